//! Collections as the catalog of a deployment shows them.

use bson::{Bson, Document, Uuid};

use super::native_ttl::{LAST_CHANGE, NativeTtl, Scope, date_field};
use crate::core::policy::namespace::Namespace;

/// The collections that match some patterns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalog {
    /// Ordered by namespace. Includes views; collections of the server itself are left out.
    pub collections: Vec<Collection>,
    /// One sentence for each database or collection that could not be read.
    pub unreadable: Vec<String>,
}

/// A collection, its options and its indexes, as listCollections and listIndexes show them.
#[derive(Debug, Clone, PartialEq)]
pub struct Collection {
    pub namespace: Namespace,
    pub kind: CollectionKind,
    /// `None` if the deployment does not show it, and for a view or a time-series collection: these have no documents of their
    /// own.
    pub uuid: Option<Uuid>,
    /// The default collation.
    pub collation: Option<Document>,
    /// `expireAfterSeconds` of the collection itself.
    pub expire_after_seconds: Option<Bson>,
    /// Empty for a view, and for a time-series collection whose indexes the user may not see: a sweep finds buckets by their
    /// `_id`.
    pub indexes: Vec<IndexFacts>,
}

/// The kind of a collection, which decides how documents expire in it and how they are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectionKind {
    Plain,
    Capped,
    Clustered,
    View,
    /// A collection of Azure Cosmos DB (RU): its native TTL counts from a document's last change.
    CosmosRu,
    TimeSeries(TimeSeries),
}

/// Options of a time-series collection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TimeSeries {
    pub time_field: String,
    pub meta_field: Option<String>,
    /// Seconds after `expireAfterSeconds` during which the server still keeps a bucket, counted from its first measurement.
    pub bucket_max_span_seconds: Option<i64>,
    /// Whether the deployment shows the collection of the buckets.
    pub shows_buckets: bool,
    /// UUID of that collection; `None` if the deployment does not show it.
    pub buckets: Option<Uuid>,
    /// Whether there are measurements before 1970 or after 2038; `None` if that was not looked at, because the collection has no
    /// native TTL, or could not be seen.
    pub extended_times: Option<bool>,
}

/// Figures that only a sweep needs, and that cost more commands. The figures of a time-series collection are the figures of its
/// buckets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// The collection's own count, which is exact except after a crash.
    pub document_count: u64,
    /// Nothing until it is looked at: the reply takes most of the time of a look at a collection.
    pub size: DataSize,
    /// Paths of the shard key; empty if the collection is not sharded or the deployment does not show the key.
    pub shard_key: Vec<String>,
    /// The reason why the shard key may not be read, with what to do; `None` if it was read, or there is none to read.
    pub shard_key_unknown: Option<String>,
    /// Request units per second that the collection has; `None` if it shares the units of its database, or the service bills
    /// none.
    pub throughput: Option<u32>,
}

/// Size of the documents of a collection. What the user may not see, and what has no size without documents, is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DataSize {
    /// Mean size of a document in bytes.
    pub average_bytes: Option<f64>,
    pub file: Option<FileSize>,
}

/// Size of the file that holds the documents of a collection, in bytes; of all such files on a sharded cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSize {
    /// Size on the disk.
    pub size: u64,
    /// The part of it that holds nothing, and that new documents use first.
    pub free: u64,
}

/// One index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexFacts {
    pub name: String,
    pub key: Vec<(String, Bson)>,
    pub partial: Option<Document>,
    pub hidden: bool,
    pub sparse: bool,
    pub unique: bool,
    pub collation: Option<Document>,
    pub expire_after_seconds: Option<Bson>,
}

impl Collection {
    /// Returns a collection without options and indexes.
    pub fn new(namespace: Namespace, kind: CollectionKind) -> Self {
        Self { namespace, kind, uuid: None, collation: None, expire_after_seconds: None, indexes: Vec::new() }
    }

    /// Returns the namespace that holds the documents: the buckets of a time-series collection, otherwise the collection itself.
    pub fn storage(&self) -> Namespace {
        match self.kind {
            CollectionKind::TimeSeries(_) => self.namespace.buckets(),
            _ => self.namespace.clone(),
        }
    }

    /// Returns the namespace that holds the documents, with its UUID; `None` if the deployment does not show that.
    pub fn identity(&self) -> Option<(Namespace, Uuid)> {
        let uuid = match &self.kind {
            CollectionKind::TimeSeries(series) => series.buckets,
            _ => self.uuid,
        };
        Some((self.storage(), uuid?))
    }

    /// Returns the native TTL settings: the collection's own, then the settings of its indexes.
    pub fn ttl(&self) -> Vec<NativeTtl> {
        let own = match &self.kind {
            CollectionKind::Clustered => Some((Scope::Clustered, "_id")),
            CollectionKind::TimeSeries(series) => Some((Scope::TimeSeries, series.time_field.as_str())),
            CollectionKind::Plain | CollectionKind::Capped | CollectionKind::View | CollectionKind::CosmosRu => None,
        };
        let own = own.zip(self.expire_after_seconds.clone()).map(|((scope, field), expire_after_seconds)| NativeTtl {
            scope,
            index: None,
            key: vec![(field.to_owned(), Bson::Int32(1))],
            expire_after_seconds,
            partial: None,
            collation: None,
            hidden: false,
        });
        own.into_iter().chain(self.indexes.iter().filter_map(|index| self.ttl_of(index))).collect()
    }

    fn ttl_of(&self, index: &IndexFacts) -> Option<NativeTtl> {
        let key = match &self.kind {
            // An index on `control.max` of the buckets. mongod shows its key without a field, and deletes by it.
            CollectionKind::TimeSeries(series) if index.key.is_empty() => vec![(series.time_field.clone(), Bson::Int32(1))],
            _ => index.key.clone(),
        };
        let by_last_change = self.kind == CollectionKind::CosmosRu && index.date_field() == Some(LAST_CHANGE);
        Some(NativeTtl {
            scope: if by_last_change { Scope::LastChange } else { Scope::Index },
            index: Some(index.name.clone()),
            key,
            expire_after_seconds: index.expire_after_seconds.clone()?,
            // An empty filter leaves nothing out.
            partial: index.partial.clone().filter(|partial| !partial.is_empty()),
            collation: index.collation.clone(),
            hidden: index.hidden,
        })
    }
}

impl IndexFacts {
    /// Returns the field whose dates decide what the server deletes along this index; `None` if it never deletes along it.
    pub fn date_field(&self) -> Option<&str> {
        date_field(&self.key)
    }
}
