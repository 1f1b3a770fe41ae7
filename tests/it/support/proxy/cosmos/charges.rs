//! The cost of commands in request units.
//!
//! Microsoft, "Optimize request cost": a point read of 1 kB costs 1 unit, an insert of 1 kB without indexes 5.5, a replacement
//! twice as much. A query is charged by the documents that it loads. "Troubleshoot query issues": a query loads every document
//! that its equality and range filters on indexed fields leave, and aggregations and counts load them as well.
//!
//! Assumptions: 2.5 units for a query itself, 1 unit and 5.5 units for each further kilobyte, 0.5 units for each index that a
//! write changes. A delete costs as much as an insert, and a command on metadata 1 unit.

use std::io;

use mongodb::bson::{Bson, Document, doc};

use super::super::upstream::{Upstream, documents, is_ok, whole};

/// Commands on metadata, which have units of their own ("Azure Cosmos DB service quotas": 240 a second for an account).
pub(super) const METADATA: [&str; 11] = [
    "collStats",
    "create",
    "createIndexes",
    "customAction",
    "dbStats",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "listCollections",
    "listDatabases",
    "listIndexes",
];

/// Charge for a command on metadata.
pub(super) const OF_METADATA: f64 = 1.0;

/// Charge for a query, before it loads a document.
pub(super) const OF_A_QUERY: f64 = 2.5;

/// The field in which mongod returns the size of a document.
const BYTES: &str = "bytes of the document";

const OF_A_LOADED_KILOBYTE: f64 = 1.0;
const OF_A_WRITTEN_KILOBYTE: f64 = 5.5;
const OF_AN_INDEX_ENTRY: f64 = 0.5;

fn kilobytes(bytes: i64) -> f64 {
    (bytes as f64 / 1024.0).max(1.0)
}

/// Returns the charge for loading a document.
pub(super) fn of_a_load(bytes: i64) -> f64 {
    OF_A_LOADED_KILOBYTE * kilobytes(bytes)
}

/// Returns the charge for an insert or a delete of a document with entries in this many indexes, `_id` not counted.
pub(super) fn of_a_write(bytes: i64, indexes: usize) -> f64 {
    OF_A_WRITTEN_KILOBYTE * kilobytes(bytes) + OF_AN_INDEX_ENTRY * indexes as f64
}

/// The indexed fields of a collection. Filters use all indexes on one field together ("Troubleshoot query issues").
pub(super) struct Indexed {
    fields: Vec<String>,
    /// Whether a wildcard index covers every field.
    every: bool,
    /// Keys of indexes on several fields.
    composite: Vec<Document>,
}

impl Indexed {
    /// Reads the indexes. `_id` and the shard key are indexed from the start ("Indexing").
    pub(super) async fn read(
        upstream: &mut Upstream,
        database: &str,
        collection: &str,
        shard_key: &Document,
    ) -> io::Result<Self> {
        let list = doc! { "listIndexes": collection, "cursor": { "batchSize": 1000 }, "$db": database };
        let reply = upstream.run(&list).await?;
        let mut fields: Vec<String> = shard_key.keys().cloned().chain(["_id".to_owned()]).collect();
        let mut composite = Vec::new();
        if let Ok(cursor) = reply.get_document("cursor") {
            for key in documents(cursor, "firstBatch").filter_map(|index| index.get_document("key").ok()) {
                match key.len() {
                    1 => fields.extend(key.keys().cloned()),
                    _ => composite.push(key.clone()),
                }
            }
        }
        let every = fields.iter().any(|field| field == "$**");
        Ok(Self { fields, every, composite })
    }

    fn has(&self, field: &str) -> bool {
        self.every || self.fields.iter().any(|indexed| indexed == field)
    }

    /// Returns the reason why a sort is refused: it needs an index on its field, or one with its fields in their order. Sources:
    /// "Indexing"; hcengineering/huly-selfhost#29, pa11y/pa11y-webservice#151.
    pub(super) fn why_not_sorted(&self, sort: &Document) -> Option<&'static str> {
        let directions = |key: &Document, sign: i64| -> Vec<(String, i64)> {
            key.keys().map(|field| (field.clone(), sign * whole(key, field))).collect()
        };
        let serves = |key: &Document| [1, -1].iter().any(|sign| directions(key, *sign) == directions(sort, 1));
        match sort.len() {
            1 if sort.keys().all(|field| self.has(field)) => None,
            1 => Some("The index path corresponding to the specified order-by item is excluded."),
            0 => None,
            _ if self.composite.iter().any(serves) => None,
            _ => Some("The order by query does not have a corresponding composite index that it can be served from."),
        }
    }

    /// Returns the number of indexes on fields other than `_id`.
    pub(super) fn count(&self) -> usize {
        self.fields.iter().filter(|field| *field != "_id").count()
    }

    /// Returns the part of a filter that indexes serve: it matches all documents that are loaded to find the documents of the
    /// filter.
    pub(super) fn served(&self, filter: &Document) -> Document {
        let parts: Vec<Document> = filter.iter().filter_map(|(key, value)| self.served_part(key, value)).collect();
        match parts.as_slice() {
            [] => Document::new(),
            [part] => part.clone(),
            _ => doc! { "$and": parts },
        }
    }

    fn served_part(&self, key: &str, value: &Bson) -> Option<Document> {
        let members = || value.as_array().into_iter().flatten().filter_map(Bson::as_document).map(|member| self.served(member));
        match (key, value) {
            ("$and", _) => {
                let parts: Vec<Document> = members().filter(|part| !part.is_empty()).collect();
                (!parts.is_empty()).then(|| doc! { "$and": parts })
            }
            ("$or", _) => {
                let parts: Vec<Document> = members().collect();
                parts.iter().all(|part| !part.is_empty()).then(|| doc! { "$or": parts })
            }
            // That no index serves `$expr` and `$nor` is an assumption.
            (key, _) if key.starts_with('$') => None,
            (key, _) if !self.has(key) => None,
            (key, Bson::Document(operators)) if operators.keys().any(|name| name.starts_with('$')) => {
                let ranges =
                    operators.iter().filter(|(name, _)| ["$eq", "$gt", "$gte", "$lt", "$lte", "$in"].contains(&name.as_str()));
                let ranges: Document = ranges.map(|(name, value)| (name.clone(), value.clone())).collect();
                (!ranges.is_empty()).then(|| doc! { key: ranges })
            }
            (_, Bson::RegularExpression(_)) => None,
            (key, value) => Some(doc! { key: value.clone() }),
        }
    }
}

/// A document that a command loads.
pub(super) struct Loaded {
    /// `_id` and shard key.
    pub key: Document,
    pub bytes: i64,
}

/// Returns the documents that a query with this filter loads, in the order of `_id` and shard key.
pub(super) async fn loaded(
    upstream: &mut Upstream,
    (database, collection): (&str, &str),
    served: &Document,
    shard_key: &Document,
) -> io::Result<Vec<Loaded>> {
    let key = doc! { "_id": 1 }.into_iter().chain(shard_key.keys().map(|path| (path.clone(), Bson::Int32(1))));
    let key: Document = key.collect();
    let mut project = key.clone();
    project.insert(BYTES, doc! { "$bsonSize": "$$ROOT" });
    let pipeline = [doc! { "$match": served }, doc! { "$sort": key }, doc! { "$project": project }];
    let aggregate = doc! {
        "aggregate": collection, "pipeline": &pipeline[..], "cursor": { "batchSize": i32::MAX }, "allowDiskUse": true, "$db": database,
    };
    let mut reply = upstream.run(&aggregate).await?;
    let mut all = Vec::new();
    let mut batch = "firstBatch";
    // An invalid filter loads nothing: the command itself fails.
    while is_ok(&reply) {
        let cursor = reply.get_document("cursor").map_err(io::Error::other)?;
        all.extend(documents(cursor, batch).map(|found| {
            let mut key = found.clone();
            key.remove(BYTES);
            Loaded { key, bytes: whole(found, BYTES) }
        }));
        let id = whole(cursor, "id");
        if id == 0 {
            break;
        }
        batch = "nextBatch";
        reply = upstream.run(&doc! { "getMore": id, "collection": collection, "$db": database }).await?;
    }
    Ok(all)
}
