//! A `delete`, which stops in the middle once the request units of the second are used up.

use std::collections::HashSet;
use std::io;

use mongodb::bson::{Bson, Document, doc};

use super::super::upstream::{Upstream, documents, is_ok, whole};
use super::super::{Call, errors};
use super::budget::{Purse, Stop};
use super::reads::returned;
use super::{Account, charges, stopped};

/// The reason why a statement does not delete all that it matches.
enum Halt {
    Units(Stop),
    /// A planned fault.
    Fault,
}

impl Account {
    /// Deletes as many documents as the units of this second allow. Sources for a throttled write that is partly done:
    /// MicrosoftDocs/azure-docs#69351; for deletes: Azure/cosmos-explorer, MongoProxyClient.ts.
    pub(super) async fn delete(&self, call: &mut Call<'_>, purse: &mut Purse<'_>) -> io::Result<Document> {
        let (most, fault) = call.stop.take().unzip();
        let most = most.unwrap_or(u64::MAX);
        let ordered = call.command.get_bool("ordered").unwrap_or(true);
        let namespace = purse.namespace();
        let (database, collection) = self.containers.place(namespace);
        let statements: Vec<Document> = documents(&call.command, "deletes").cloned().collect();
        let mut deleted = 0;
        let mut write_errors = Vec::new();
        for (index, statement) in statements.iter().enumerate() {
            let stored = self.stored_filter(namespace, statement.get_document("q").map_err(io::Error::other)?);
            let find = doc! {
                "find": &collection, "filter": &stored, "projection": { "_id": 1 }, "limit": statement.get("limit"),
                "batchSize": i32::MAX, "singleBatch": true, "$db": &database,
            };
            let ids = match matching(call.upstream, &find).await? {
                Ok(ids) => ids,
                Err(refusal) => return Ok(refusal),
            };
            let left = most.saturating_sub(deleted);
            let (afforded, halt) = self.afford(call.upstream, purse, statement, &ids, left, deleted > 0).await?;
            if !afforded.is_empty() {
                let filter = doc! { "$and": [{ "_id": { "$in": afforded } }, stored] };
                let part = doc! {
                    "delete": &collection, "deletes": [{ "q": filter, "limit": 0 }], "$db": &database,
                };
                let reply = call.upstream.run(&part).await?;
                if !is_ok(&reply) || reply.contains_key("writeErrors") {
                    return Ok(reply);
                }
                deleted += whole(&reply, "n").unsigned_abs();
            }
            let error = match (halt, &fault) {
                (None, _) => continue,
                // That a command which runs out of time is answered as a whole, without what was deleted, is an assumption.
                (Some(Halt::Units(Stop::TimedOut)), _) => return Ok(stopped(Stop::TimedOut)),
                (Some(Halt::Units(Stop::Throttled(wait))), _) => errors::throttled_write(wait),
                (Some(Halt::Fault), fault) => fault.clone().unwrap_or_default(),
            };
            write_errors.push(at(index, error)?);
            if ordered {
                break;
            }
        }
        let mut reply = doc! { "n": i32::try_from(deleted).map_err(io::Error::other)?, "ok": 1.0 };
        if !write_errors.is_empty() {
            reply.insert("writeErrors", write_errors);
        }
        Ok(reply)
    }

    /// Spends units for the matching documents of a statement, at most for `most` of them, and returns those that they suffice
    /// for.
    ///
    /// A statement goes through the documents that its filter loads, and deletes those that match. That it waits for the next
    /// second while the command has only loaded documents, and is refused once it has deleted one, is an assumption.
    async fn afford(
        &self,
        upstream: &mut Upstream,
        purse: &mut Purse<'_>,
        statement: &Document,
        ids: &[Bson],
        most: u64,
        mut deletes: bool,
    ) -> io::Result<(Vec<Bson>, Option<Halt>)> {
        let mut afforded = Vec::new();
        if let Err(stop) = purse.spend(charges::OF_A_QUERY).await {
            return Ok((afforded, Some(Halt::Units(stop))));
        }
        let indexes = self.indexed(upstream, purse.namespace()).await?.count();
        let filter = statement.get_document("q").cloned().unwrap_or_default();
        let is_single = whole(statement, "limit") == 1;
        let mut left: HashSet<Vec<u8>> = ids.iter().map(key).collect::<io::Result<_>>()?;
        for document in self.loaded_stored(upstream, purse.namespace(), &filter).await? {
            if is_single && left.is_empty() {
                break;
            }
            let load = charges::of_a_load(document.bytes);
            let loaded = if deletes { purse.spend(load).await } else { purse.spend_in_pages(load).await };
            if let Err(stop) = loaded {
                return Ok((afforded, Some(Halt::Units(stop))));
            }
            let Some(id) = document.key.get("_id") else { continue };
            if !left.remove(&key(id)?) {
                continue;
            }
            if afforded.len() as u64 >= most {
                return Ok((afforded, Some(Halt::Fault)));
            }
            if let Err(stop) = purse.spend(charges::of_a_write(document.bytes, indexes)).await {
                return Ok((afforded, Some(Halt::Units(stop))));
            }
            deletes = true;
            afforded.push(id.clone());
        }
        Ok((afforded, None))
    }
}

/// Returns the `_id`s of the documents that a statement matches. The inner error is mongod's reply to an invalid filter.
async fn matching(upstream: &mut Upstream, find: &Document) -> io::Result<Result<Vec<Bson>, Document>> {
    let reply = upstream.run(find).await?;
    if !is_ok(&reply) {
        return Ok(Err(reply));
    }
    let found = returned(&reply).into_iter().flatten().filter_map(|found| found.as_document()?.get("_id").cloned());
    Ok(Ok(found.collect()))
}

/// Returns the entry of `writeErrors` for one statement.
pub(super) fn at(index: usize, mut error: Document) -> io::Result<Bson> {
    error.insert("index", i32::try_from(index).map_err(io::Error::other)?);
    Ok(error.into())
}

/// Returns a value in a form that can be compared and hashed.
fn key(value: &Bson) -> io::Result<Vec<u8>> {
    doc! { "": value }.to_vec().map_err(io::Error::other)
}
