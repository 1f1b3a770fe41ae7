//! Queries, which are charged by the documents that they load.

use std::io;

use mongodb::bson::{Bson, Document, doc};

use super::super::upstream::{Upstream, documents, is_ok, whole};
use super::super::{Call, errors};
use super::budget::Purse;
use super::charges::{self, Indexed, Loaded};
use super::operators::sorts;
use super::{Account, stopped};

impl Account {
    pub(super) async fn read(&self, call: &mut Call<'_>, purse: &mut Purse<'_>) -> io::Result<Document> {
        if let Err(stop) = purse.spend(charges::OF_A_QUERY).await {
            return Ok(stopped(stop));
        }
        let namespace = purse.namespace();
        if let Some(why) = self.why_not_sorted(call, namespace).await? {
            return Ok(errors::bad_request(why));
        }
        self.order(call, namespace);
        if let Some(gone) = self.forgotten(call).await? {
            return Ok(gone);
        }
        let is_single = self.containers.is_held(namespace) && call.command.remove("singleBatch").is_some();
        let mut reply = call.forward().await?;
        if !is_ok(&reply) {
            return Ok(reply);
        }
        if let (true, Ok(cursor)) = (is_single, reply.get_document_mut("cursor")) {
            // mongod has no single batches of views.
            let collection = call.command.get(&call.name);
            let kill = doc! { "killCursors": collection, "cursors": [whole(cursor, "id")], "$db": call.command.get("$db") };
            call.upstream.run(&kill).await?;
            cursor.insert("id", 0_i64);
        }
        if let (Some(batch), Ok(cursor)) = (returned(&reply), reply.get_document("cursor")) {
            self.given(whole(cursor, "id"), batch.len() as u64);
        }
        let units = self.of_loads(call, namespace, &reply).await?;
        Ok(purse.spend_in_pages(units).await.map_or_else(stopped, |()| reply))
    }

    async fn why_not_sorted(&self, call: &mut Call<'_>, namespace: &str) -> io::Result<Option<&'static str>> {
        let stages: Vec<Document> = documents(&call.command, "pipeline").cloned().collect();
        let sort = call.command.get_document("sort").ok();
        let sorts: Vec<&Document> = sort.into_iter().chain(sorts(&stages)).collect();
        if sorts.is_empty() {
            return Ok(None);
        }
        let indexed = self.indexed(call.upstream, namespace).await?;
        Ok(sorts.into_iter().find_map(|sort| indexed.why_not_sorted(sort)))
    }

    /// Makes the order of a `find` the one that the tests expect of the service: partition after partition where values of `_id`
    /// are the same, which is an assumption. Without a sort no order is promised; the order of `_id` backwards shows who relies
    /// on one.
    fn order(&self, call: &mut Call<'_>, namespace: &str) {
        if call.name != "find" {
            return;
        }
        let mut sort = call.command.get_document("sort").cloned().unwrap_or(doc! { "_id": -1 });
        if sort.contains_key("_id") {
            let direction = sort.get("_id").cloned();
            let paths = self.containers.shard_key(namespace).into_iter().map(|(path, _)| path);
            sort.extend(paths.filter_map(|path| Some((path, direction.clone()?))));
        }
        call.command.insert("sort", sort);
    }

    /// Forgets cursors in time. Source: data-migration-desktop-tool#131, "cursor not found" at row 18,000.
    async fn forgotten(&self, call: &mut Call<'_>) -> io::Result<Option<Document>> {
        let (true, Some(most)) = (call.name == "getMore", self.settings.rows_of_a_cursor) else { return Ok(None) };
        let cursor = whole(&call.command, "getMore");
        let left = most.saturating_sub(self.given(cursor, 0));
        if left == 0 {
            let kill =
                doc! { "killCursors": call.command.get("collection"), "cursors": [cursor], "$db": call.command.get("$db") };
            call.upstream.run(&kill).await?;
            return Ok(Some(errors::of_cosmos(43, "CursorNotFound", &format!("cursor id {cursor} not found"))));
        }
        let asked = u64::try_from(whole(&call.command, "batchSize")).unwrap_or(0);
        let batch = if asked == 0 { left } else { left.min(asked) };
        call.command.insert("batchSize", i64::try_from(batch).map_err(io::Error::other)?);
        Ok(None)
    }

    /// Returns the charge for the documents that the query has loaded.
    async fn of_loads(&self, call: &mut Call<'_>, namespace: &str, reply: &Document) -> io::Result<f64> {
        let command = &call.command;
        let stages: Vec<Document> = documents(command, "pipeline").cloned().collect();
        let filter = |key| command.get_document(key).cloned().unwrap_or_default();
        let filter = match call.name.as_str() {
            "find" => filter("filter"),
            "distinct" => filter("query"),
            "count" => filter("query"),
            "aggregate" => {
                let matches = stages.iter().map_while(|stage| stage.get_document("$match").ok());
                doc! { "$and": matches.cloned().chain([doc! {}]).collect::<Vec<_>>() }
            }
            // A cursor goes on: what it skips is not counted, which is an assumption.
            _ => return Ok(returned(reply).into_iter().flatten().map(of_returned).sum()),
        };
        if call.name == "count" && filter.is_empty() {
            // That the number of all documents is known without loading any is an assumption.
            return Ok(0.0);
        }
        let loaded = self.loaded(call.upstream, namespace, &filter).await?;
        let first =
            |stage: &str| stages.iter().find(|found| !found.contains_key("$match")).map(|found| found.contains_key(stage));
        // That a pipeline loads only as many as it begins by taking, and otherwise all that its first filters leave, is an
        // assumption.
        let head = |count: Option<i64>| {
            let count = usize::try_from(count.unwrap_or(0)).unwrap_or(0);
            &loaded[..loaded.len().min(count)]
        };
        let loaded = match call.name.as_str() {
            "find" => self.found(call, reply, &loaded).await?,
            "aggregate" if filter == doc! { "$and": [{}] } && first("$limit") == Some(true) => {
                head(stages.iter().find_map(|stage| stage.contains_key("$limit").then(|| whole(stage, "$limit"))))
            }
            "aggregate" if stages.first().is_some_and(|stage| stage.contains_key("$sample")) => {
                head(stages[0].get_document("$sample").ok().map(|sample| whole(sample, "size")))
            }
            _ => &loaded,
        };
        Ok(loaded.iter().map(|document| charges::of_a_load(document.bytes)).sum())
    }

    /// Returns the documents that a command with this filter loads if it goes through all of them, with the `_id`s under which
    /// mongod shows them.
    async fn loaded(&self, upstream: &mut Upstream, namespace: &str, filter: &Document) -> io::Result<Vec<Loaded>> {
        let served = self.indexed(upstream, namespace).await?.served(filter);
        let place = namespace.split_once('.').unwrap_or_default();
        charges::loaded(upstream, place, &served, &self.containers.shard_key(namespace)).await
    }

    /// Returns the documents that a command with this filter loads if it goes through all of them, with the `_id`s under which
    /// mongod holds them.
    pub(super) async fn loaded_stored(
        &self,
        upstream: &mut Upstream,
        namespace: &str,
        filter: &Document,
    ) -> io::Result<Vec<Loaded>> {
        let served = self.indexed(upstream, namespace).await?.served(filter);
        let (database, collection) = self.containers.place(namespace);
        charges::loaded(upstream, (&database, &collection), &self.stored_filter(namespace, &served), &Document::new()).await
    }

    /// Returns a filter on documents as mongod holds them.
    pub(super) fn stored_filter(&self, namespace: &str, filter: &Document) -> Document {
        self.containers.filter(namespace, filter, self.indexes.ttl(namespace))
    }

    pub(super) async fn indexed(&self, upstream: &mut Upstream, namespace: &str) -> io::Result<Indexed> {
        let (database, collection) = self.containers.place(namespace);
        Indexed::read(upstream, &database, &collection, &self.containers.shard_key(namespace)).await
    }

    /// Returns the documents that a `find` has loaded: all, or those up to the last one that it returned.
    async fn found<'a>(&self, call: &mut Call<'_>, reply: &Document, loaded: &'a [Loaded]) -> io::Result<&'a [Loaded]> {
        let count = returned(reply).map_or(0, <[_]>::len);
        let limit = usize::try_from(whole(&call.command, "limit").unsigned_abs()).unwrap_or(0);
        let is_open = reply.get_document("cursor").is_ok_and(|cursor| whole(cursor, "id") != 0);
        let sort = call.command.get_document("sort").cloned().unwrap_or_default();
        let direction = whole(&sort, "_id");
        let filter = call.command.get_document("filter").cloned().unwrap_or_default();
        if count > 0 && count == limit && !sort.contains_key("_id") && filter.keys().eq(sort.keys()) {
            // Along the index on the field of both filter and sort, as many as were asked for: "Indexing".
            return Ok(&loaded[..count]);
        }
        // Otherwise another order than the order of `_id` needs all documents, which is an assumption.
        if count == 0 || sort.keys().next().is_none_or(|key| key != "_id") || !(is_open || count == limit) {
            return Ok(loaded);
        }
        let key: Document = sort.keys().map(|path| (path.clone(), Bson::Int32(1))).collect();
        let find = doc! {
            "find": call.command.get("find"), "filter": call.command.get("filter"), "sort": &sort, "projection": key,
            "skip": whole(&call.command, "skip") + i64::try_from(count).map_err(io::Error::other)? - 1, "limit": 1,
            "$db": call.command.get("$db"),
        };
        let last = call.upstream.run(&find).await?;
        let last = returned(&last).and_then(|batch| batch.first()?.as_document());
        let last = last.and_then(|last| loaded.iter().position(|document| document.key == *last));
        Ok(match last {
            Some(last) if direction < 0 => &loaded[last..],
            Some(last) => &loaded[..=last],
            None => loaded,
        })
    }
}

/// Returns the documents in the reply to a query.
pub(super) fn returned(reply: &Document) -> Option<&[Bson]> {
    let cursor = reply.get_document("cursor").ok()?;
    cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).ok().map(Vec::as_slice)
}

fn of_returned(document: &Bson) -> f64 {
    let bytes = document.as_document().and_then(|document| document.to_vec().ok()).map_or(0, |bytes| bytes.len());
    charges::of_a_load(i64::try_from(bytes).unwrap_or(i64::MAX))
}
