//! Definitions of collections and indexes: a sharded collection is made on every shard, under one UUID.

use std::io;
use std::sync::{Arc, PoisonError};

use mongodb::bson::{Bson, Document, doc};

use super::super::Call;
use super::super::upstream::{documents, is_ok};
use super::{Answer, Asked, Router, Sharded};

/// Databases of the cluster itself.
const OWN: [&str; 3] = ["admin", "config", "local"];

/// Name of the index on the shard key of a new collection.
const OF_KEY: &str = "shard_key";

impl Router {
    /// Shards every collection that a client makes from now on.
    pub(crate) fn shard_new_collections(&self, sharded: Sharded) {
        *self.of_new.lock().unwrap_or_else(PoisonError::into_inner) = Some(sharded);
    }

    /// Whether it shards the collections that clients make.
    pub(super) fn shards_new(&self) -> bool {
        self.of_new.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Makes and shards the collection of a command that would make it, unless that is a view, or a time-series or capped
    /// collection.
    pub(super) async fn shard_if_new(&self, database: &str, name: &str, call: &Call<'_>) -> io::Result<Option<Arc<Sharded>>> {
        let of_new = self.of_new.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A run makes its own collections by upserts, and those that it restores by inserts with a comment. They are unsharded,
        // as on a cluster, unless each of these writes names the shard key.
        let is_of_run = call.name == "update" || call.command.contains_key("comment");
        let has_key = |sharded: &Sharded| !is_of_run || sharded.key.keys().all(|path| path == "_id");
        let makes_it = match call.name.as_str() {
            "create" => !["viewOn", "timeseries", "capped", "clusteredIndex"].iter().any(|key| call.command.contains_key(key)),
            "insert" | "update" | "createIndexes" => true,
            _ => false,
        };
        let is_own = OWN.contains(&database) || name.starts_with("system.");
        let Some(sharded) = of_new.filter(|sharded| makes_it && !is_own && has_key(sharded)) else { return Ok(None) };
        let keys = ["collation", "validator", "validationLevel", "validationAction"];
        let options = call.command.iter().filter(|(key, _)| call.name == "create" && keys.contains(&key.as_str()));
        let mut create = doc! { "create": name };
        create.extend(options.map(|(key, value)| (key.clone(), value.clone())));
        if self.listed(database, name).await?.is_some() {
            // A view, or a collection that is not sharded.
            return Ok(None);
        }
        let sharded = Sharded { collation: create.get_document("collation").ok().cloned(), ..sharded };
        self.create(database, create, sharded).await?;
        Ok(self.sharded(database, name))
    }

    /// Makes a sharded collection: on each shard, with the index on its shard key and its entry in `config`.
    pub(crate) async fn create(&self, database: &str, create: Document, sharded: Sharded) -> io::Result<()> {
        let name = create.get_str("create").unwrap_or_default().to_owned();
        let mut first = create;
        first.insert("$db", database);
        self.done(0, first).await?;
        let listed = self.listed(database, &name).await?.ok_or_else(|| io::Error::other("the collection was not made"))?;
        let uuid = listed.get_document("info").ok().and_then(|info| info.get("uuid")).cloned();
        let mut options = doc! { "create": &name };
        options.extend(listed.get_document("options").cloned().unwrap_or_default());
        let index = doc! { "key": &sharded.key, "name": OF_KEY, "collation": { "locale": "simple" } };
        for shard in 0..self.shards.len() {
            if shard > 0 {
                // A sharded collection has one UUID on all shards.
                let entry = doc! { "op": "c", "ns": format!("{database}.$cmd"), "ui": &uuid, "o": &options };
                self.done(shard, doc! { "applyOps": [entry], "$db": database }).await?;
            }
            self.done(shard, doc! { "createIndexes": &name, "indexes": [&index], "$db": database }).await?;
        }
        let namespace = format!("{database}.{name}");
        let entry = doc! { "_id": &namespace, "key": &sharded.key, "unique": false, "noBalance": false };
        self.done(0, doc! { "insert": "collections", "documents": [entry], "$db": "config" }).await?;
        self.shard(&namespace, sharded);
        Ok(())
    }

    /// Creates indexes on every shard. One on the shard key takes the place of the index that was made with the collection, as if
    /// the collection had been sharded afterwards.
    pub(super) async fn create_indexes(&self, asked: &Asked) -> Answer {
        let key = asked.sharded.as_ref().map(|sharded| &sharded.key);
        let is_of_key =
            |index: &Document| index.get_document("key").ok() == key && !index.contains_key("partialFilterExpression");
        if documents(&asked.command, "indexes").any(is_of_key) {
            // Refused where the index was replaced before.
            for shard in 0..self.shards.len() {
                self.run(shard, &doc! { "dropIndexes": &asked.collection, "index": OF_KEY, "$db": &asked.database }).await?;
            }
        }
        self.on_all_shards(asked).await
    }

    /// Runs a command that may not fail.
    async fn done(&self, shard: usize, command: Document) -> io::Result<()> {
        let reply = self.run(shard, &command).await?;
        if is_ok(&reply) { Ok(()) } else { Err(io::Error::other(format!("{command}: {reply}"))) }
    }

    /// Returns the entry of a collection in the list of the primary shard.
    async fn listed(&self, database: &str, name: &str) -> io::Result<Option<Document>> {
        let list = doc! { "listCollections": 1, "filter": { "name": name }, "$db": database };
        let found = self.gather(0, &list).await?.map_err(|refusal| io::Error::other(refusal.to_string()))?;
        Ok(found.first().and_then(Bson::as_document).cloned())
    }

    /// Drops a sharded collection and what is known of it: one of the same name is another collection.
    ///
    /// Source: db/s/drop_collection_coordinator.cpp.
    pub(super) async fn drop_sharded(&self, asked: &Asked) -> Answer {
        let reply = self.on_all_shards(asked).await?;
        let entry = doc! { "q": { "_id": asked.namespace() }, "limit": 1 };
        self.done(0, doc! { "delete": "collections", "deletes": [entry], "$db": "config" }).await?;
        self.collections.lock().unwrap_or_else(PoisonError::into_inner).remove(&asked.namespace());
        Ok(reply)
    }

    /// Runs a command on every shard; the reply is the first refusal, or the reply of the primary shard.
    ///
    /// Source: s/commands/cluster_create_indexes_cmd.cpp, cluster_coll_mod_cmd.cpp, cluster_drop_database_cmd.cpp.
    pub(super) async fn on_all_shards(&self, asked: &Asked) -> Answer {
        let mut first = None;
        for shard in 0..self.shards.len() {
            let reply = self.run(shard, &asked.command).await?;
            if !is_ok(&reply) {
                return Ok(reply);
            }
            first.get_or_insert(reply);
        }
        Ok(first.unwrap_or_default())
    }
}
