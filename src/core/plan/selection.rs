//! The documents of a rule, and how to find them.

use bson::{Document, RawDocumentBuf, Uuid};

use super::holds::{HeldBack, KeyCondition};
use super::index::IndexChoice;
use crate::base::values::raw;
use crate::core::facts::DataSize;
use crate::core::policy::Variable;
use crate::core::policy::namespace::Namespace;

/// The documents of a rule, and how to find them.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    pub predicate: Document,
    /// The rule's filter: the part of the predicate that selects documents whether they have expired or not.
    pub filter: Option<Document>,
    /// Whether an index may decide which documents match the filter, so that a server that trusts the index does not ask them.
    pub filter_is_indexed: bool,
    pub collation: Option<Document>,
    /// The values of the predicate that stand for environment variables.
    pub variables: Vec<Variable>,
    /// Whether the collation differs from the collection's own, so that it would loosen comparisons of string `_id`s.
    pub folds_ids: bool,
    /// The index to walk; `None` if the whole collection is examined, once.
    pub index: Option<IndexChoice>,
    /// The namespace with the documents: the rule's own, or the buckets behind it.
    pub namespace: Namespace,
    /// UUID of that collection, to which the rule is bound; `None` if the deployment does not show it.
    pub uuid: Option<Uuid>,
    pub storage: Storage,
    /// Paths of the shard key. Deletes by `_id` name them, which routes each delete to the shards that have its documents.
    pub shard_key: Vec<String>,
    pub document_count: u64,
    pub size: DataSize,
    /// Request units per second that the collection has.
    pub throughput: Option<u32>,
    /// Number of indexes besides the one on the `_id`.
    pub indexes: usize,
    /// The holds whose documents are kept; `None` if the rule has none.
    pub holds: Option<HeldBack>,
}

impl Selection {
    /// Returns the size of the documents in bytes; `None` if it is unknown.
    pub fn data_bytes(&self) -> Option<f64> {
        Some(self.size.average_bytes? * self.document_count as f64)
    }

    /// Returns a filter that leaves out the documents that are held; the filter as it is in a rule without holds.
    ///
    /// Errors: BSON cannot hold the filter, or the holds were not read.
    pub(crate) fn without_held(&self, filter: &Document) -> Result<RawDocumentBuf, bson::error::Error> {
        let filter = RawDocumentBuf::try_from(filter)?;
        match self.unheld()? {
            Some(unheld) => raw::written(filter.as_bytes().len() + unheld.bytes(), |fields| {
                unheld.write_with(fields, |query| query.all_of(&filter))
            }),
            None => Ok(filter),
        }
    }

    /// Returns the condition for documents without a hold; `None` if nothing is held, or the rule has no holds.
    ///
    /// Errors: the holds were not read.
    pub(crate) fn unheld(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        Ok(self.holds.as_ref().map(HeldBack::unheld).transpose()?.flatten())
    }

    /// Whether the documents are the buckets of a time-series collection.
    pub fn is_buckets(&self) -> bool {
        matches!(self.storage, Storage::Buckets { .. })
    }
}

/// The order in which a collection stores its documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    Plain,
    /// In the order of the `_id`.
    Clustered,
    /// The buckets of a time-series collection, in the order of the `_id`, which is the order of their dates.
    Buckets {
        /// Path of the dates of a bucket's measurements.
        measurements: String,
    },
}
