//! Options and indexes of a collection in the form in which mongodump writes them next to the documents.

use bson::{Bson, Document};

use super::error::Result;
use super::{Deployment, catalog};
use crate::policy::namespace::Namespace;
use crate::text;

/// Returns canonical Extended JSON with `options`, `indexes`, `uuid`, `collectionName` and `type`.
///
/// Source: mongo-tools `mongodump/metadata_dump.go`.
pub(crate) async fn of(deployment: &Deployment, namespace: &Namespace) -> Result<String> {
    let entry = catalog::entry(deployment, namespace).await?.unwrap_or_default();
    let indexes = catalog::index_entries(deployment, namespace).await?.unwrap_or_default();
    let mut metadata = Document::new();
    if let Ok(options) = entry.get_document("options") {
        metadata.insert("options", options);
    }
    metadata.insert("indexes", indexes);
    if let Some(uuid) = catalog::uuid(&entry) {
        metadata.insert("uuid", text::hex(&uuid.bytes()));
    }
    metadata.insert("collectionName", &namespace.collection);
    metadata.insert("type", entry.get_str("type").unwrap_or("collection"));
    Ok(Bson::Document(metadata).into_canonical_extjson().to_string())
}
