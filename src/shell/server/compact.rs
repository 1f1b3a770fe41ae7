//! `compact` on one member of a deployment: what it would give back, the command itself, and its end by its comment.

use bson::{Bson, Document, doc};

use super::Deployment;
use super::wire::error::Result;
use super::wire::transport::ServerCommand;
use crate::base::values::count_in;
use crate::core::facts::FileSize;
use crate::core::policy::namespace::Namespace;

/// Returns the files of a collection and its indexes; none if the collection is not there, or its storage has no files.
///
/// Errors: the member does not tell.
pub(crate) async fn files(member: &Deployment, namespace: &Namespace) -> Result<Vec<FileSize>> {
    let stats = member.read(&namespace.database, doc! { "collStats": &namespace.collection }).await?;
    let data = stats.get_document("wiredTiger").ok();
    let indexes = stats.get_document("indexDetails").into_iter().flat_map(Document::values).filter_map(Bson::as_document);
    Ok(data.into_iter().chain(indexes).filter_map(file).collect())
}

/// Reads the size of one file from its statistics, as the storage engine calls them.
fn file(stats: &Document) -> Option<FileSize> {
    let blocks = stats.get_document("block-manager").ok()?;
    Some(FileSize { size: count_in(blocks, "file size in bytes")?, free: count_in(blocks, "file bytes available for reuse")? })
}

/// Compacts a collection and its indexes. `is_forced` makes a primary do it.
///
/// Errors: the server's, also if the command was killed. It is never sent again.
pub(crate) async fn compact(member: &Deployment, namespace: &Namespace, is_forced: bool) -> Result<()> {
    let mut command = doc! { "compact": &namespace.collection };
    if is_forced {
        command.insert("force", true);
    }
    let command = ServerCommand::of(&namespace.database, &member.marked(command), member.patience())?;
    member.send_once(command).await.map(drop)
}

/// Whether any client compacts on a member.
///
/// Errors: the member does not answer, or the user may not see the operations of others.
pub(crate) async fn is_compacting(member: &Deployment) -> Result<bool> {
    Ok(!operations(member, doc! { "allUsers": true }, doc! {}).await?.is_empty())
}

/// Ends the `compact` of this run on a member. It needs no privilege: a user may end operations of his own (MongoDB manual,
/// "killOp").
///
/// Errors: the member does not answer.
pub(crate) async fn kill(member: &Deployment) -> Result<()> {
    for operation in operations(member, doc! {}, doc! { "command.comment": member.comment.as_str() }).await? {
        member.read("admin", doc! { "killOp": 1, "op": operation }).await?;
    }
    Ok(())
}

/// Returns the ids of the `compact` operations on a member that match a filter. `options` are those of `$currentOp`.
async fn operations(member: &Deployment, options: Document, filter: Document) -> Result<Vec<Bson>> {
    let stages = vec![
        doc! { "$currentOp": options },
        doc! { "$match": { "$and": [{ "command.compact": { "$exists": true } }, filter] } },
        doc! { "$project": { "opid": 1 } },
    ];
    let reply = member.read("admin", doc! { "aggregate": 1, "pipeline": stages, "cursor": {} }).await?;
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let found = batch.into_iter().flatten().filter_map(Bson::as_document);
    Ok(found.filter_map(|operation| operation.get("opid").cloned()).collect())
}

/// Whether a member takes writes.
///
/// Errors: the member does not answer.
pub(crate) async fn takes_writes(member: &Deployment) -> Result<bool> {
    let hello = member.read("admin", doc! { "hello": 1 }).await?;
    Ok(hello.get_bool("isWritablePrimary").or_else(|_| hello.get_bool("ismaster")).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_file_is_what_its_block_manager_says() {
        let stats = doc! { "block-manager": { "file size in bytes": 9_i64, "file bytes available for reuse": 4 } };
        assert_eq!(file(&stats), Some(FileSize { size: 9, free: 4 }));
        assert_eq!((file(&doc! {}), file(&doc! { "block-manager": { "file size in bytes": 9 } })), (None, None));
    }
}
