//! Entries of the listings of collections and indexes.

use std::collections::BTreeMap;

use bson::spec::BinarySubtype;
use bson::{Bson, Document, Uuid};

use crate::base::values::integer_in;
use crate::core::facts::{Collection, CollectionKind, IndexFacts, TimeSeries};
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;

/// The names of the collections of a database, with their UUIDs.
pub(super) type ListedUuids<'a> = BTreeMap<&'a str, Option<Uuid>>;

/// Returns the UUID in an entry of listCollections; `None` if there is none.
pub(crate) fn uuid(entry: &Document) -> Option<Uuid> {
    match entry.get_document("info").ok()?.get("uuid")? {
        Bson::Binary(uuid) if uuid.subtype == BinarySubtype::Uuid => uuid.to_uuid().ok(),
        _ => None,
    }
}

/// Reads an entry of listCollections. `listed` holds the names in the same database, including the names of buckets.
pub(super) fn read(deployment: &Deployment, database: &str, entry: &Document, listed: &ListedUuids) -> Option<Collection> {
    let namespace = Namespace { database: database.to_owned(), collection: entry.get_str("name").ok()?.to_owned() };
    let options = entry.get_document("options").cloned().unwrap_or_default();
    let kind = match entry.get_str("type") {
        Ok("view") => CollectionKind::View,
        Ok("timeseries") => {
            let series = options.get_document("timeseries").cloned().unwrap_or_default();
            CollectionKind::TimeSeries(TimeSeries {
                time_field: series.get_str("timeField").unwrap_or_default().to_owned(),
                meta_field: series.get_str("metaField").ok().map(str::to_owned),
                bucket_max_span_seconds: integer_in(&series, "bucketMaxSpanSeconds"),
                shows_buckets: listed.contains_key(namespace.buckets().collection.as_str()),
                buckets: listed.get(namespace.buckets().collection.as_str()).copied().flatten(),
                extended_times: None,
            })
        }
        _ if options.get_bool("capped").unwrap_or(false) => CollectionKind::Capped,
        // `true` on servers that show it as a flag, a document with the key on the others.
        _ if !matches!(options.get("clusteredIndex"), None | Some(Bson::Boolean(false))) => CollectionKind::Clustered,
        _ if deployment.facts.capabilities.ttl_by_last_change => CollectionKind::CosmosRu,
        _ => CollectionKind::Plain,
    };
    Some(Collection {
        uuid: uuid(entry),
        collation: options.get_document("collation").ok().cloned(),
        expire_after_seconds: options.get("expireAfterSeconds").cloned(),
        ..Collection::new(namespace, kind)
    })
}

/// Reads an entry of listIndexes.
pub(super) fn index(entry: &Document) -> Option<IndexFacts> {
    Some(IndexFacts {
        name: entry.get_str("name").ok()?.to_owned(),
        key: entry.get_document("key").ok()?.iter().map(|(name, direction)| (name.clone(), direction.clone())).collect(),
        partial: entry.get_document("partialFilterExpression").ok().cloned(),
        hidden: entry.get_bool("hidden").unwrap_or(false),
        sparse: entry.get_bool("sparse").unwrap_or(false),
        unique: entry.get_bool("unique").unwrap_or(false),
        collation: entry.get_document("collation").ok().cloned(),
        // From 7.0 on mongod repeats the collection's own value on its clustered index.
        expire_after_seconds: entry.get("expireAfterSeconds").filter(|_| !entry.get_bool("clustered").unwrap_or(false)).cloned(),
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_clustered_index_has_no_value_of_its_own() {
        // Replies of mongod 7.0.28.
        let clustered =
            doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_", "unique": true, "expireAfterSeconds": 3600, "clustered": true };
        let secondary = doc! { "v": 2, "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 3600 };
        let values = [clustered, secondary].map(|entry| index(&entry).unwrap().expire_after_seconds);
        assert_eq!(values, [None, Some(Bson::Int32(3600))]);
    }
}
