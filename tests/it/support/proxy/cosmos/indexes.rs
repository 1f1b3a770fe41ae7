//! Indexes: the one on `_ts`, which sets native TTL and does not exist on mongod, and the form of the others.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mongodb::bson::{Bson, Document, doc};

use super::super::upstream::{documents, is_ok, whole};
use super::super::{Call, errors};
use super::refusals::namespace;

/// The index on `_ts`. Source: Azure/azure-cli#13229.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TtlOnTs {
    /// An index without `expireAfterSeconds`: nothing expires.
    Off,
    /// `expireAfterSeconds`: seconds after the last change, or -1 for documents with a `ttl` field only.
    Seconds(i32),
}

/// The indexes on `_ts` of an account, by namespace.
pub(super) struct Indexes {
    on_ts: Mutex<BTreeMap<String, TtlOnTs>>,
    /// Whether another field may have a TTL index.
    on_custom_path: bool,
}

impl Indexes {
    pub(super) fn new(on_ts: BTreeMap<String, TtlOnTs>, on_custom_path: bool) -> Self {
        Self { on_ts: Mutex::new(on_ts), on_custom_path }
    }

    fn on_ts(&self) -> MutexGuard<'_, BTreeMap<String, TtlOnTs>> {
        self.on_ts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists indexes like mongod, but in the form of the service and with the index on `_ts`.
    pub(super) async fn list(&self, call: &mut Call<'_>) -> io::Result<Document> {
        let mut reply = call.forward().await?;
        if !is_ok(&reply) {
            return Ok(reply);
        }
        let namespace = namespace(call);
        let cursor = reply.get_document_mut("cursor").map_err(io::Error::other)?;
        let entries = cursor.get_array_mut("firstBatch").map_err(io::Error::other)?;
        if let Some(ttl) = self.on_ts().get(&namespace) {
            let mut entry = doc! { "key": { "_ts": 1 }, "name": "_ts_1" };
            if let TtlOnTs::Seconds(seconds) = ttl {
                entry.insert("expireAfterSeconds", *seconds);
            }
            entries.push(entry.into());
        }
        for entry in entries.iter_mut().filter_map(Bson::as_document_mut) {
            entry.insert("v", 1);
            entry.insert("ns", &namespace);
        }
        Ok(reply)
    }

    /// Creates or replaces the index on `_ts`, and lets mongod create others. The reply of an account to a second index on `_ts`
    /// is not known.
    pub(super) async fn create(&self, call: &mut Call<'_>) -> io::Result<Document> {
        let is_on_ts = |spec: &Document| spec.get_document("key").is_ok_and(|key| key.contains_key("_ts"));
        let (on_ts, others): (Vec<Document>, Vec<Document>) = documents(&call.command, "indexes").cloned().partition(is_on_ts);
        if !self.on_custom_path && others.iter().any(|spec| spec.contains_key("expireAfterSeconds")) {
            // Source: node-rate-limiter-flexible#206.
            let text = "The 'expireAfterSeconds' option is supported on '_ts' field only.";
            return Ok(errors::of_cosmos(2, "BadValue", text));
        }
        for spec in on_ts {
            let seconds = spec.contains_key("expireAfterSeconds").then(|| whole(&spec, "expireAfterSeconds"));
            let seconds = seconds.map(i32::try_from).transpose().map_err(io::Error::other)?;
            self.on_ts().insert(namespace(call), seconds.map_or(TtlOnTs::Off, TtlOnTs::Seconds));
        }
        if others.is_empty() {
            let counts = doc! { "createdCollectionAutomatically": false, "numIndexesBefore": 1, "numIndexesAfter": 2 };
            return Ok(done("CreateIndexesResponse", counts));
        }
        call.command.insert("indexes", others);
        call.forward().await
    }

    /// Drops the index on `_ts`, or lets mongod drop another one.
    pub(super) async fn drop(&self, call: &mut Call<'_>) -> io::Result<Document> {
        let is_on_ts = match call.command.get("index") {
            Some(Bson::String(name)) => name == "_ts_1" || name == "*",
            Some(Bson::Document(key)) => key.contains_key("_ts"),
            _ => false,
        };
        let dropped = is_on_ts && self.on_ts().remove(&namespace(call)).is_some();
        if dropped && call.command.get_str("index").ok() != Some("*") {
            return Ok(done("DropIndexesResponse", doc! { "nIndexesWas": 2 }));
        }
        call.forward().await
    }
}

/// Returns the reply to a change of indexes. Source for the shape: "Indexing".
fn done(kind: &str, counts: Document) -> Document {
    let mut reply = doc! { "_t": kind, "ok": 1 };
    reply.extend(counts);
    reply
}
