//! Collections that mongod cannot hold as they are: `_id` is unique for each value of the shard key only ("Indexing"), and
//! documents have a time of their last change, `_ts`, which clients do not see ("Time to live").
//!
//! mongod holds them under another name, with `_id: {k: shard key, i: _id}` and `_ts`. A view under the real name shows them as
//! clients see them, without those that have expired. Reads go to the view; commands that cannot go to a view go to the stored
//! collection.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::super::upstream::{Upstream, documents, is_ok};
use super::TtlOnTs;

/// Beginning of the names under which mongod holds collections.
const STORED: &str = "stored.";

/// The collections of an account that are held in another form.
pub(super) struct Containers {
    shard_keys: BTreeMap<String, Document>,
    /// Time since the last change of documents that were there before.
    age: Duration,
    held: Mutex<BTreeSet<String>>,
}

impl Containers {
    pub(super) fn new(shard_keys: BTreeMap<String, Document>, age: Duration) -> Self {
        Self { shard_keys, age, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_held(&self, namespace: &str) -> bool {
        self.held().contains(namespace)
    }

    pub(super) fn shard_key(&self, namespace: &str) -> Document {
        self.shard_keys.get(namespace).cloned().unwrap_or_default()
    }

    /// Returns the database and the collection in which mongod holds the documents.
    pub(super) fn place(&self, namespace: &str) -> (String, String) {
        let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
        let stored = if self.is_held(namespace) { STORED } else { "" };
        (database.to_owned(), format!("{stored}{collection}"))
    }

    /// Turns a collection of mongod into a stored one and a view of it.
    pub(super) async fn hold(&self, upstream: &mut Upstream, namespace: &str, ttl: Option<TtlOnTs>) -> io::Result<()> {
        if !self.held().insert(namespace.to_owned()) {
            return self.show(upstream, namespace, ttl).await;
        }
        let ((database, stored), (_, shown)) = (self.place(namespace), namespace.split_once('.').unwrap_or_default());
        let list = doc! { "listIndexes": shown, "$db": &database };
        let indexes = upstream.run(&list).await?;
        let age = i64::try_from(self.age.as_millis()).map_err(io::Error::other)?;
        let paths = (0..).zip(self.shard_key(namespace)).map(|(n, (path, _))| (format!("p{n}"), Bson::from(format!("${path}"))));
        let form = doc! {
            "_id": { "k": Document::from_iter(paths), "i": "$_id" },
            "_ts": { "$subtract": ["$$NOW", age] },
        };
        let pipeline = [doc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", form] } }, doc! { "$out": &stored }];
        run(upstream, doc! { "aggregate": shown, "pipeline": &pipeline[..], "cursor": {}, "$db": &database }).await?;
        // Fails if there was a collection.
        upstream.run(&doc! { "create": &stored, "$db": &database }).await?;
        if let Ok(cursor) = indexes.get_document("cursor") {
            let others = documents(cursor, "firstBatch").filter(|index| index.get_str("name").ok() != Some("_id_")).cloned();
            let others: Vec<Document> = others.collect();
            if !others.is_empty() {
                run(upstream, doc! { "createIndexes": &stored, "indexes": others, "$db": &database }).await?;
            }
            run(upstream, doc! { "drop": shown, "$db": &database }).await?;
        }
        run(upstream, doc! { "create": shown, "viewOn": &stored, "pipeline": shown_by(ttl), "$db": &database }).await
    }

    /// Shows the documents that a setting of native TTL leaves visible.
    async fn show(&self, upstream: &mut Upstream, namespace: &str, ttl: Option<TtlOnTs>) -> io::Result<()> {
        let ((database, stored), (_, shown)) = (self.place(namespace), namespace.split_once('.').unwrap_or_default());
        run(upstream, doc! { "collMod": shown, "viewOn": &stored, "pipeline": shown_by(ttl), "$db": &database }).await
    }

    /// Deletes expired documents, as the service does in the background with units that are left over ("Time to live").
    pub(super) async fn purge(&self, upstream: &mut Upstream, namespace: &str, ttl: Option<TtlOnTs>) -> io::Result<()> {
        let (database, stored) = self.place(namespace);
        let expired = doc! { "q": { "$expr": expired(ttl) }, "limit": 0 };
        run(upstream, doc! { "delete": stored, "deletes": [expired], "$db": database }).await
    }

    /// Returns a filter on the stored form of documents that are visible.
    pub(super) fn filter(&self, namespace: &str, filter: &Document, ttl: Option<TtlOnTs>) -> Document {
        if !self.is_held(namespace) {
            return filter.clone();
        }
        doc! { "$and": [of_stored(filter), { "$expr": { "$not": [expired(ttl)] } }] }
    }

    /// Returns the stored form of a document. That a document without a value for the shard key is taken is an assumption.
    pub(super) fn document(&self, namespace: &str, document: &Document) -> Document {
        if !self.is_held(namespace) {
            return document.clone();
        }
        let paths = (0..).zip(self.shard_key(namespace));
        let key = paths.filter_map(|(n, (path, _))| Some((format!("p{n}"), at(document, &path)?.clone())));
        let id = doc! { "k": Document::from_iter(key), "i": document.get("_id") };
        let mut stored = doc! { "_id": id };
        stored.extend(document.clone().into_iter().filter(|(name, _)| name != "_id"));
        stored.insert("_ts", DateTime::now());
        stored
    }

    /// Returns the reply to `listCollections` with the views as collections.
    pub(super) fn listed(&self, database: &str, mut reply: Document) -> Document {
        let held = self.held();
        let batch = reply.get_document_mut("cursor").and_then(|cursor| cursor.get_array_mut("firstBatch"));
        let Ok(batch) = batch else { return reply };
        batch.retain(|entry| {
            let name = entry.as_document().and_then(|entry| entry.get_str("name").ok()).unwrap_or_default();
            !name.starts_with(STORED) && name != "system.views"
        });
        for entry in batch.iter_mut().filter_map(Bson::as_document_mut) {
            if held.contains(&format!("{database}.{}", entry.get_str("name").unwrap_or_default())) {
                entry.insert("type", "collection");
                entry.insert("options", doc! {});
            }
        }
        reply
    }
}

async fn run(upstream: &mut Upstream, command: Document) -> io::Result<()> {
    let reply = upstream.run(&command).await?;
    if is_ok(&reply) { Ok(()) } else { Err(io::Error::other(format!("{command}: {reply}"))) }
}

/// Returns the pipeline of a view.
fn shown_by(ttl: Option<TtlOnTs>) -> Vec<Document> {
    vec![
        doc! { "$match": { "$expr": { "$not": [expired(ttl)] } } },
        doc! { "$set": { "_id": "$_id.i" } },
        doc! { "$unset": "_ts" },
    ]
}

/// Returns an expression for whether a stored document has expired.
///
/// "Time to live": a `ttl` that is a whole number of 32 bits overrides the collection's value; others are ignored. That 0 and
/// negative numbers other than -1 are ignored as well is an assumption.
fn expired(ttl: Option<TtlOnTs>) -> Bson {
    let Some(TtlOnTs::Seconds(seconds)) = ttl else { return false.into() };
    let counts = doc! { "$and": [
        { "$in": [{ "$type": "$ttl" }, ["int", "long", "double"]] },
        { "$eq": ["$ttl", { "$trunc": "$ttl" }] },
        { "$lte": ["$ttl", i32::MAX] },
        { "$or": [{ "$gt": ["$ttl", 0] }, { "$eq": ["$ttl", -1] }] },
    ] };
    let over = doc! { "$lte": [{ "$add": ["$_ts", { "$multiply": ["$$seconds", 1000] }] }, "$$NOW"] };
    let expired = doc! { "$let": {
        "vars": { "seconds": { "$cond": [counts, "$ttl", seconds] } },
        "in": { "$and": [{ "$gt": ["$$seconds", 0] }, over] },
    } };
    expired.into()
}

/// Returns a filter with the stored form of `_id`.
fn of_stored(filter: &Document) -> Document {
    let part = |(key, value): (&String, &Bson)| match (key.as_str(), value) {
        ("$and" | "$or" | "$nor", Bson::Array(members)) => {
            let members =
                members.iter().map(|member| member.as_document().map_or(member.clone(), |member| of_stored(member).into()));
            (key.clone(), members.collect::<Vec<_>>().into())
        }
        ("$expr", value) => (key.clone(), in_expression(value)),
        ("_id", value) => ("_id.i".to_owned(), value.clone()),
        (path, value) => (path.strip_prefix("_id.").map_or(path.to_owned(), |rest| format!("_id.i.{rest}")), value.clone()),
    };
    filter.iter().map(part).collect()
}

fn in_expression(value: &Bson) -> Bson {
    match value {
        Bson::String(path) if path == "$_id" => "$_id.i".into(),
        Bson::String(path) => path.strip_prefix("$_id.").map_or(value.clone(), |rest| format!("$_id.i.{rest}").into()),
        Bson::Array(members) => members.iter().map(in_expression).collect::<Vec<_>>().into(),
        Bson::Document(members) => {
            let member = |(key, value): (&String, &Bson)| {
                (key.clone(), if key == "$literal" { value.clone() } else { in_expression(value) })
            };
            Bson::Document(members.iter().map(member).collect())
        }
        other => other.clone(),
    }
}

/// Returns the value at a dotted path.
fn at<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = document.get(first)?;
    match rest {
        Some(rest) => at(value.as_document()?, rest),
        None => Some(value),
    }
}
