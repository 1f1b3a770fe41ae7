//! A collection's options and indexes as mongodump writes them beside the documents.

use bson::spec::BinarySubtype;
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::Result;

use super::{Deployment, error};
use crate::policy::namespace::Namespace;
use crate::text;

/// Canonical Extended JSON with `options`, `indexes`, `uuid`, `collectionName` and `type`.
///
/// Source: mongo-tools `mongodump/metadata_dump.go`.
pub async fn of(deployment: &Deployment, namespace: &Namespace) -> Result<String> {
    let database = deployment.database(namespace);
    let list = deployment.marked(doc! { "listCollections": 1, "filter": { "name": &namespace.collection } });
    let listed: Vec<Document> = database.run_cursor_command(list).await?.try_collect().await?;
    let list = deployment.marked(doc! { "listIndexes": &namespace.collection });
    let indexes: Vec<Document> = match database.run_cursor_command(list).await {
        Ok(cursor) => cursor.try_collect().await?,
        // It was dropped.
        Err(cause) if error::code(&cause) == Some(26) => Vec::new(),
        Err(cause) => return Err(cause),
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
