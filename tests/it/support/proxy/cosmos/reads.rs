//! Queries, which are charged by the documents that they load.

use std::io;

use mongodb::bson::{Bson, Document, doc};

use super::super::upstream::{documents, is_ok, whole};
use super::super::{Call, errors};
use super::budget::Purse;
use super::charges::{self, Indexed, Loaded};
use super::{Account, stopped};

impl Account {
    pub(super) async fn read(&self, call: &mut Call<'_>, purse: &mut Purse<'_>) -> io::Result<Document> {
        if let Err(stop) = purse.spend(charges::OF_A_QUERY).await {
            return Ok(stopped(stop));
        }
        if call.name == "find" && !call.command.contains_key("sort") {
            // Without a sort no order is promised; that of `_id` backwards shows who relies on one.
            call.command.insert("sort", doc! { "_id": -1 });
        }
        if let Some(gone) = self.forgotten(call).await? {
            return Ok(gone);
        }
        let reply = call.forward().await?;
        if !is_ok(&reply) {
            return Ok(reply);
        }
        if let (Some(batch), Ok(cursor)) = (returned(&reply), reply.get_document("cursor")) {
            self.given(whole(cursor, "id"), batch.len() as u64);
        }
        let units = self.of_loads(call, &reply).await?;
        Ok(purse.spend_in_pages(units).await.map_or_else(stopped, |()| reply))
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
    async fn of_loads(&self, call: &mut Call<'_>, reply: &Document) -> io::Result<f64> {
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
        let loaded = self.loaded(call, &filter).await?;
        let first =
            |stage: &str| stages.iter().find(|found| !found.contains_key("$match")).map(|found| found.contains_key(stage));
        let count = match call.name.as_str() {
            "find" => self.found(call, reply, &loaded).await?,
            "aggregate" if filter == doc! { "$and": [{}] } && first("$limit") == Some(true) => {
                let limit = stages.iter().find_map(|stage| stage.contains_key("$limit").then(|| whole(stage, "$limit")));
                usize::try_from(limit.unwrap_or(0)).unwrap_or(0)
            }
            "aggregate" if stages.first().is_some_and(|stage| stage.contains_key("$sample")) => {
                let size = stages[0].get_document("$sample").map(|sample| whole(sample, "size")).unwrap_or(0);
                usize::try_from(size).unwrap_or(0)
            }
            _ => loaded.len(),
        };
        Ok(loaded.iter().take(count).map(|document| charges::of_a_load(document.bytes)).sum())
    }

    /// Returns the documents that a command with this filter loads if it goes through all of them.
    pub(super) async fn loaded(&self, call: &mut Call<'_>, filter: &Document) -> io::Result<Vec<Loaded>> {
        let (database, collection) = target(call);
        let indexed = self.indexed(call).await?;
        charges::loaded(call.upstream, &database, &collection, &indexed.served(filter)).await
    }

    pub(super) async fn indexed(&self, call: &mut Call<'_>) -> io::Result<Indexed> {
        let (database, collection) = target(call);
        let none = Document::new();
        let shard_key = self.settings.shard_keys.get(&format!("{database}.{collection}")).unwrap_or(&none);
        Indexed::read(call.upstream, &database, &collection, shard_key).await
    }

    /// Returns the number of documents that a `find` has loaded: all, or those up to the last one that it returned.
    async fn found(&self, call: &mut Call<'_>, reply: &Document, loaded: &[Loaded]) -> io::Result<usize> {
        let count = returned(reply).map_or(0, <[_]>::len);
        let limit = usize::try_from(whole(&call.command, "limit").unsigned_abs()).unwrap_or(0);
        let is_open = reply.get_document("cursor").is_ok_and(|cursor| whole(cursor, "id") != 0);
        let sort = call.command.get_document("sort").cloned().unwrap_or_default();
        let direction = whole(&sort, "_id");
        // Another order than that of `_id` needs all documents, which is an assumption.
        if count == 0 || sort.keys().next().is_none_or(|key| key != "_id") || !(is_open || count == limit) {
            return Ok(loaded.len());
        }
        let find = doc! {
            "find": call.command.get("find"), "filter": call.command.get("filter"), "sort": sort, "projection": { "_id": 1 },
            "skip": whole(&call.command, "skip") + i64::try_from(count).map_err(io::Error::other)? - 1, "limit": 1,
            "singleBatch": true, "$db": call.command.get("$db"),
        };
        let last = call.upstream.run(&find).await?;
        let last = returned(&last).and_then(|batch| batch.first()?.as_document()?.get("_id").cloned());
        let at = |last: Bson| loaded.iter().rposition(|document| document.id == last);
        let position = last.and_then(at).unwrap_or(loaded.len().saturating_sub(1));
        Ok(if direction < 0 { loaded.len() - position } else { position + 1 })
    }
}

/// Returns the database and the collection of a command.
fn target(call: &Call<'_>) -> (String, String) {
    let part = |key: &str| call.command.get_str(key).unwrap_or_default().to_owned();
    (part("$db"), part(&call.name))
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
