//! A collection's options and indexes as mongodump writes them beside the documents.

use bson::spec::BinarySubtype;
use bson::{Bson, Document, doc};
use super::error::Result;

use super::find::Query;
use super::{Deployment, codes};
use crate::policy::namespace::Namespace;
use crate::text;

/// Canonical Extended JSON with `options`, `indexes`, `uuid`, `collectionName` and `type`.
///
/// Source: mongo-tools `mongodump/metadata_dump.go`.
pub async fn of(deployment: &Deployment, namespace: &Namespace) -> Result<String> {
    let Namespace { database, collection } = namespace;
    let listed = Query::listing(database, doc! { "listCollections": 1, "filter": { "name": collection } }).all(deployment).await?;
    let indexes = match Query::listing(database, doc! { "listIndexes": collection }).all(deployment).await {
        // It was dropped.
        Err(cause) if cause.has_code(codes::NAMESPACE_NOT_FOUND) => Vec::new(),
        indexes => indexes?,
    };
    let entry = listed.into_iter().next().unwrap_or_default();
    let mut metadata = Document::new();
    if let Ok(options) = entry.get_document("options") {
        metadata.insert("options", options);
    }
    metadata.insert("indexes", indexes);
    if let Some(Bson::Binary(uuid)) = entry.get_document("info").ok().and_then(|info| info.get("uuid"))
        && uuid.subtype == BinarySubtype::Uuid
    {
        metadata.insert("uuid", text::hex(&uuid.bytes));
    }
    metadata.insert("collectionName", &namespace.collection);
    metadata.insert("type", entry.get_str("type").unwrap_or("collection"));
    Ok(Bson::Document(metadata).into_canonical_extjson().to_string())
}
