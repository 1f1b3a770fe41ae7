//! Options and indexes of a collection in the form in which mongodump writes them next to the documents.

use bson::{Bson, Document, Uuid};

use super::catalog;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::{Result, ServerError};

/// Returns canonical Extended JSON with `options`, `indexes`, `uuid`, `collectionName` and `type`, and what mongodump does not
/// write and mongorestore does not read: the paths of a shard key with which the `_id` is unique only together, as `shardKey`.
///
/// Errors: they cannot be read, or the collection is not the one with the UUID that is given.
///
/// Source: mongo-tools `mongodump/metadata_dump.go`.
pub(crate) async fn of(
    deployment: &Deployment,
    namespace: &Namespace,
    uuid: Option<Uuid>,
    shard_key: &[String],
) -> Result<String> {
    let entry = catalog::entry(deployment, namespace).await?.unwrap_or_default();
    if uuid.is_some() && catalog::uuid(&entry) != uuid {
        return Err(ServerError::other("the collection is another one by now"));
    }
    let indexes = catalog::index_entries(deployment, namespace).await?.unwrap_or_default();
    let mut metadata = Document::new();
    if let Ok(options) = entry.get_document("options") {
        metadata.insert("options", options);
    }
    metadata.insert("indexes", indexes);
    if let Some(uuid) = catalog::uuid(&entry) {
        metadata.insert("uuid", hex::encode(uuid.bytes()));
    }
    metadata.insert("collectionName", &namespace.collection);
    metadata.insert("type", entry.get_str("type").unwrap_or("collection"));
    if shard_key.iter().any(|path| path != "_id") {
        metadata.insert("shardKey", shard_key);
    }
    Ok(Bson::Document(metadata).into_canonical_extjson().to_string())
}
