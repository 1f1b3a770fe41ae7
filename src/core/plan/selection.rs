//! The documents of a rule, and how to find them.

use bson::{DateTime, Document, RawDocumentBuf, Uuid};

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
    /// The periods by which documents are kept for longer; `None` if the rule has none.
    pub periods: Option<HeldBack>,
}

impl Selection {
    /// Returns a selection of the documents of a collection that match a predicate, of which nothing else is known.
    pub fn of(namespace: &Namespace, predicate: Document) -> Self {
        Self {
            predicate,
            filter: None,
            filter_is_indexed: false,
            collation: None,
            variables: Vec::new(),
            folds_ids: false,
            index: None,
            namespace: namespace.clone(),
            uuid: None,
            storage: Storage::Plain,
            shard_key: Vec::new(),
            document_count: 0,
            size: DataSize::default(),
            throughput: None,
            indexes: 0,
            holds: None,
            periods: None,
        }
    }

    /// Returns the size of the documents in bytes; `None` if it is unknown.
    pub fn data_bytes(&self) -> Option<f64> {
        Some(self.size.average_bytes? * self.document_count as f64)
    }

    /// Returns what holds documents back: the holds and the periods.
    pub fn held_back(&self) -> impl Iterator<Item = &HeldBack> {
        self.holds.iter().chain(&self.periods)
    }

    /// Returns the path of the dates by which periods count; `None` without periods.
    pub(crate) fn date_field(&self) -> Option<&str> {
        Some(self.periods.as_ref()?.periods.as_ref()?.expiry.field.as_str())
    }

    /// Whether documents are held back at all.
    pub fn has_keys(&self) -> bool {
        self.held_back().next().is_some()
    }

    /// Returns a filter that leaves out the documents that are held back; the filter as it is in a rule without holds and
    /// periods.
    ///
    /// Errors: BSON cannot hold the filter, or the keys were not read.
    pub(crate) fn without_held(&self, filter: &Document) -> Result<RawDocumentBuf, bson::error::Error> {
        let filter = RawDocumentBuf::try_from(filter)?;
        match self.unheld()? {
            Some(unheld) => raw::written(filter.as_bytes().len() + unheld.bytes(), |fields| {
                unheld.write_with(fields, |query| query.all_of(&filter))
            }),
            None => Ok(filter),
        }
    }

    /// Returns the condition for documents that nothing holds back; `None` if nothing is held back.
    ///
    /// Errors: the keys were not read.
    pub(crate) fn unheld(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        self.each_unheld(HeldBack::unheld)
    }

    /// Returns the same for documents whose date is at or before `until`, by a condition of its own; `None` for any date.
    ///
    /// Errors: the keys were not read.
    pub(crate) fn unheld_until(&self, until: Option<DateTime>) -> Result<Option<KeyCondition>, bson::error::Error> {
        self.each_unheld(|held| held.unheld_until(until))
    }

    /// Returns the same for documents in a state in which they were found without a hold ([`HeldBack::unheld_since_found`]).
    ///
    /// Errors: the keys were not read.
    pub(crate) fn unheld_since_found(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        self.each_unheld(HeldBack::unheld_since_found)
    }

    /// Returns the condition for documents that only a hold keeps; `None` if no key is held.
    ///
    /// Errors: the keys were not read.
    pub(crate) fn kept_by_holds(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        let Some(held) = self.holds.as_ref().map(HeldBack::held).transpose()?.flatten() else { return Ok(None) };
        let expired = self.periods.as_ref().map(HeldBack::unheld).transpose()?.flatten();
        Ok(KeyCondition::all([Some(held), expired].into_iter().flatten().collect()))
    }

    fn each_unheld(
        &self,
        unheld: impl Fn(&HeldBack) -> Result<Option<KeyCondition>, bson::error::Error>,
    ) -> Result<Option<KeyCondition>, bson::error::Error> {
        let each = self.held_back().map(unheld).collect::<Result<Vec<_>, _>>()?;
        Ok(KeyCondition::all(each.into_iter().flatten().collect()))
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
