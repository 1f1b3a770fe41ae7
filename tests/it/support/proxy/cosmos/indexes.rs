//! Indexes: the one on `_ts`, which sets native TTL and does not exist on mongod, and the form of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mongodb::bson::{Bson, Document, doc};

use super::super::upstream::{documents, is_ok, whole};
use super::super::{Call, errors};
use super::containers::Containers;

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

    /// Returns the setting of native TTL; `None` if there is no index on `_ts`.
    pub(super) fn ttl(&self, namespace: &str) -> Option<TtlOnTs> {
        self.on_ts().get(namespace).copied()
    }

    /// Returns the namespaces with an index on `_ts`.
    pub(super) fn namespaces(&self) -> Vec<String> {
        self.on_ts().keys().cloned().collect()
    }

    /// Lists indexes like mongod, but in the form of the service and with the index on `_ts`.
    pub(super) async fn list(&self, call: &mut Call<'_>, namespace: &str) -> io::Result<Document> {
        let mut reply = call.forward().await?;
        if !is_ok(&reply) {
            return Ok(reply);
        }
        let cursor = reply.get_document_mut("cursor").map_err(io::Error::other)?;
        let entries = cursor.get_array_mut("firstBatch").map_err(io::Error::other)?;
        if let Some(ttl) = self.on_ts().get(namespace) {
            let mut entry = doc! { "key": { "_ts": 1 }, "name": "_ts_1" };
            if let TtlOnTs::Seconds(seconds) = ttl {
                entry.insert("expireAfterSeconds", *seconds);
            }
            entries.push(entry.into());
        }
        for entry in entries.iter_mut().filter_map(Bson::as_document_mut) {
            entry.insert("v", 1);
            entry.insert("ns", namespace);
        }
        Ok(reply)
    }

    /// Creates the index on `_ts`, which sets native TTL, and lets mongod create others.
    pub(super) async fn create(&self, call: &mut Call<'_>, namespace: &str, containers: &Containers) -> io::Result<Document> {
        let is_on_ts = |spec: &Document| spec.get_document("key").is_ok_and(|key| key.contains_key("_ts"));
        let (on_ts, others): (Vec<Document>, Vec<Document>) = documents(&call.command, "indexes").cloned().partition(is_on_ts);
        if !self.on_custom_path && others.iter().any(|spec| spec.contains_key("expireAfterSeconds")) {
            // Source: node-rate-limiter-flexible#206.
            let text = "The 'expireAfterSeconds' option is supported on '_ts' field only.";
            return Ok(errors::of_cosmos(2, "BadValue", text));
        }
        if self.fields_with_ttl(call, namespace).await?.len() > 1 {
            // "Supported features", Custom TTL: only one field in a collection can have a TTL. The code is an assumption.
            let text = "Only one field in a collection can have a TTL set on it.";
            return Ok(errors::of_cosmos(67, "CannotCreateIndex", text));
        }
        for spec in on_ts {
            let ttl = match spec.get("expireAfterSeconds").map(|_| whole(&spec, "expireAfterSeconds")) {
                None => TtlOnTs::Off,
                Some(seconds) => match i32::try_from(seconds).ok().filter(|seconds| *seconds == -1 || *seconds > 0) {
                    Some(seconds) => TtlOnTs::Seconds(seconds),
                    // Source: Azure/azure-cli#7508, for the API for NoSQL.
                    None => return Ok(errors::bad_request("The value of TTL must be a nonzero positive integer or -1")),
                },
            };
            if self.ttl(namespace).is_some_and(|there| there != ttl) {
                // That a second index on `_ts` is refused as MongoDB refuses one is an assumption.
                let text = "An equivalent index already exists with the same name but different options.";
                return Ok(errors::of_cosmos(85, "IndexOptionsConflict", text));
            }
            self.on_ts().insert(namespace.to_owned(), ttl);
            containers.hold(call.upstream, namespace, Some(ttl)).await?;
        }
        if others.is_empty() {
            let counts = doc! { "createdCollectionAutomatically": false, "numIndexesBefore": 1, "numIndexesAfter": 2 };
            return Ok(done("CreateIndexesResponse", counts));
        }
        call.command.insert("indexes", others);
        call.forward().await
    }

    /// Returns the fields that would have a TTL once the indexes of a command are created.
    async fn fields_with_ttl(&self, call: &mut Call<'_>, namespace: &str) -> io::Result<BTreeSet<String>> {
        let list = doc! { "listIndexes": call.command.get("createIndexes"), "$db": call.command.get("$db") };
        let there = call.upstream.run(&list).await?;
        let there = there.get_document("cursor").ok().into_iter().flat_map(|cursor| documents(cursor, "firstBatch"));
        let with_ttl = there.chain(documents(&call.command, "indexes")).filter(|spec| spec.contains_key("expireAfterSeconds"));
        let fields = with_ttl.filter_map(|spec| spec.get_document("key").ok()?.keys().next().cloned());
        let on_ts = matches!(self.ttl(namespace), Some(TtlOnTs::Seconds(_))).then(|| "_ts".to_owned());
        Ok(fields.chain(on_ts).collect())
    }

    /// Drops the index on `_ts`, or lets mongod drop another one. Documents that had expired and were not deleted yet are seen
    /// again: MicrosoftDocs/azure-docs#24025.
    pub(super) async fn drop(&self, call: &mut Call<'_>, namespace: &str, containers: &Containers) -> io::Result<Document> {
        let is_on_ts = match call.command.get("index") {
            Some(Bson::String(name)) => name == "_ts_1" || name == "*",
            Some(Bson::Document(key)) => key.contains_key("_ts"),
            _ => false,
        };
        let dropped = is_on_ts && self.on_ts().remove(namespace).is_some();
        if dropped {
            containers.hold(call.upstream, namespace, None).await?;
        }
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
