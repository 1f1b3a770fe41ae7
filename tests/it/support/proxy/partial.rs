//! Deletes that stop half-way.

use std::io;

use mongodb::bson::{Bson, Document, doc};

use super::upstream::{Upstream, documents, is_ok, whole};

/// Finds the `_id`s that each statement of a `delete` matches, at most `most` in total, plus one if a statement matches more. The
/// inner error is mongod's reply to an invalid filter.
pub(super) async fn targets(
    upstream: &mut Upstream,
    command: &Document,
    most: u64,
) -> io::Result<Result<Vec<Vec<Bson>>, Document>> {
    let mut left = i64::try_from(most).unwrap_or(i64::MAX - 1);
    let mut all = Vec::new();
    for statement in documents(command, "deletes") {
        let limit = if whole(statement, "limit") == 1 { 1 } else { left + 1 };
        let find = doc! {
            "find": command.get("delete"), "filter": statement.get("q"), "projection": { "_id": 1 },
            "limit": limit, "batchSize": i32::MAX, "singleBatch": true, "$db": command.get("$db"),
        };
        let reply = upstream.run(&find).await?;
        if !is_ok(&reply) {
            return Ok(Err(reply));
        }
        let batch = reply.get_document("cursor").map_err(io::Error::other)?;
        let ids: Vec<Bson> = documents(batch, "firstBatch").filter_map(|found| found.get("_id").cloned()).collect();
        left -= i64::try_from(ids.len()).unwrap_or(i64::MAX).min(left);
        all.push(ids);
    }
    Ok(Ok(all))
}

/// Deletes the first `most` of the targets, still under the filters of their statements, and answers with the error for the rest.
pub(super) async fn delete_first(
    upstream: &mut Upstream,
    command: &Document,
    targets: &[Vec<Bson>],
    most: u64,
    error: &Document,
) -> io::Result<Document> {
    let ordered = command.get_bool("ordered").unwrap_or(true);
    let mut left = usize::try_from(most).unwrap_or(usize::MAX);
    let mut deleted = 0;
    let mut write_errors = Vec::new();
    for (index, (statement, ids)) in documents(command, "deletes").zip(targets).enumerate() {
        let now = &ids[..ids.len().min(left)];
        left -= now.len();
        if !now.is_empty() {
            let filter = doc! { "$and": [{ "_id": { "$in": now } }, statement.get("q")] };
            let part = doc! {
                "delete": command.get("delete"), "deletes": [{ "q": filter, "limit": 0 }], "$db": command.get("$db"),
            };
            let reply = upstream.run(&part).await?;
            if !is_ok(&reply) || reply.contains_key("writeErrors") {
                return Ok(reply);
            }
            deleted += whole(&reply, "n");
        }
        if now.len() < ids.len() {
            let mut error = error.clone();
            error.insert("index", i32::try_from(index).map_err(io::Error::other)?);
            write_errors.push(error);
            if ordered {
                break;
            }
        }
    }
    Ok(doc! { "ok": 1.0, "n": i32::try_from(deleted).map_err(io::Error::other)?, "writeErrors": write_errors })
}
