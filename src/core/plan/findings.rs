//! Findings on one rule before anything is deleted, and what a sweep leaves, as values.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::DateTime;

use super::Status;
use super::outcome::{HeldDocuments, Outcome, RuleOutcome};
use crate::base::instant::Instant;
use crate::core::audit::figures::AuditReport;
use crate::core::facts::DataSize;
use crate::core::pace::units::UnitForecast;
use crate::core::plan::estimate::Estimate;
use crate::core::plan::fields::UnknownField;
use crate::core::plan::holds::HeldBack;
use crate::core::plan::order::OrderChoice;
use crate::core::plan::orphans;
use crate::core::plan::periods::KeptKeys;
use crate::core::plan::{OldOrphans, Refusal, Selection, StopReason, SweepRule};

/// Expired documents of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Expired {
    pub count: u64,
    /// Whether all of them were counted: a count that is compared with a guard ends once the guard objects.
    pub is_complete: bool,
    /// The earliest date of any expired document; `None` if there is none, or the service cannot say.
    pub oldest: Option<DateTime>,
    /// Measurements in expired buckets; `None` outside of a time-series collection.
    pub measurements: Option<u64>,
}

/// Documents of a rule's collection, counted one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedDocuments {
    pub count: u64,
    /// Whether all of them were counted: the count ends once a guard can decide.
    pub is_complete: bool,
}

/// Findings on a rule before anything is deleted. A value that was not measured is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Findings {
    pub decides: Decides,
    pub goes_by: GoesBy,
    pub told: Told,
}

/// Findings that decide whether the rule may be swept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decides {
    /// Fields that the rule names and no document was found to have, or not with a type that it compares them with.
    pub unknown_fields: Vec<UnknownField>,
    /// Set if the holds or the periods cannot be read.
    pub holds_refusal: Option<Refusal>,
    /// The documents of the collection, where a guard compares their number.
    pub documents: Option<CountedDocuments>,
    pub expired: Option<Expired>,
    /// Children whose parent is not there, if they were counted.
    pub orphans: Option<CountedOrphans>,
    /// Set if the oplog cannot keep its `minOplogWindow`.
    pub oplog_refusal: Option<Refusal>,
    /// Set if the look at the rule did not end, or shows that a sweep would fail.
    pub obstacle: Option<CountObstacle>,
}

/// The keys of holds and periods; `None` if the rule has none, or they were not read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReadKeys {
    pub holds: Option<Arc<KeptKeys>>,
    pub periods: Option<Arc<KeptKeys>>,
}

impl ReadKeys {
    /// Whether all keys of a rule's holds and periods were read.
    pub fn are_of(&self, selection: &Selection) -> bool {
        (self.holds.is_some() || selection.holds.is_none()) && (self.periods.is_some() || selection.periods.is_none())
    }

    /// Returns the place of the keys of holds, or of periods.
    pub fn of(&mut self, held: &HeldBack) -> &mut Option<Arc<KeptKeys>> {
        if held.periods.is_some() { &mut self.periods } else { &mut self.holds }
    }
}

/// Findings that a sweep goes by.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GoesBy {
    pub keys: ReadKeys,
    /// The order of the deletes, if it was chosen.
    pub order: Option<OrderChoice>,
    /// Bytes that each deleted document adds to the oplog, if they were looked for.
    pub oplog_bytes_per_document: Option<f64>,
    /// The size of the documents, if it was looked at after the rule was planned.
    pub size: Option<DataSize>,
    /// Whether no document was found to have expired, so that there is nothing to delete.
    pub nothing_expired: bool,
}

impl GoesBy {
    /// Returns a rule with the size of its documents, as far as that was looked at.
    pub fn sized(&self, rule: &SweepRule) -> SweepRule {
        let size = self.size.unwrap_or(rule.selection.size);
        SweepRule { selection: Selection { size, ..rule.selection.clone() }, ..rule.clone() }
    }
}

/// Findings that are only told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told {
    /// Expired documents that are held, if they were counted.
    pub held: Option<HeldDocuments>,
    /// Documents old enough for the shortest period whose own period is unclear, if they were counted.
    pub unclear_periods: Option<HeldDocuments>,
    /// Documents that never expire by the rule, by reason.
    pub never_expires: Option<BTreeMap<String, u64>>,
    /// Children of the expired documents, if they were counted.
    pub children: Option<u64>,
    /// The cost of the sweep, where the service bills requests and all expired documents were counted.
    pub forecast: Option<UnitForecast>,
    /// The estimate of the sweep, where it is shown and all expired documents were counted.
    pub estimate: Option<Estimate>,
    /// Figures that only an audit looks for.
    pub audit: Option<AuditReport>,
    pub warnings: Vec<String>,
    pub duration_ms: u64,
}

impl Decides {
    /// Returns the number of documents in the collection, as far as it is known; `own_count` is the server's.
    pub fn document_count(&self, own_count: u64) -> u64 {
        match self.documents {
            Some(CountedDocuments { count, is_complete: true }) => count,
            Some(CountedDocuments { count, is_complete: false }) => count.max(own_count),
            None => own_count,
        }
    }
}

/// Children of a rule whose parent is not there.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedOrphans {
    /// Children without a parent, the orphans of uploads that have not ended among them.
    pub count: u64,
    /// Orphans that the rule deletes, by collection; `None` if it deletes none.
    pub old: Option<Vec<OldOrphans>>,
    /// Whether the collection of the parents has a document.
    pub has_parents: bool,
    /// Whether the journal names parents of the rule, which a sweep finishes first.
    pub is_in_journal: bool,
}

impl CountedOrphans {
    /// Returns the number of those that the rule deletes; `None` if it deletes none.
    pub fn old_count(&self) -> Option<u64> {
        self.old.as_deref().map(orphans::sum)
    }
}

/// Obstacle that was met before anything of a rule was deleted.
#[derive(Debug, Clone, PartialEq)]
pub enum CountObstacle {
    Stopped(StopReason),
    /// Counting failed, the deployment is gone, or a privilege is missing; the text says which.
    Failed(String),
}

/// Expired documents that a run leaves.
#[derive(Debug, Clone, PartialEq)]
pub enum Remaining {
    /// Not reported by the command.
    Unknown,
    /// Derived from the counts before the sweep and its deletes, as far as these are known.
    Derived,
    /// Neither: other rules of the run deleted in the same namespace, so that the counts of this one tell nothing of what is
    /// left.
    Shared,
    /// Counted after the sweep.
    Counted { count: u64, oldest: Option<DateTime> },
}

impl Remaining {
    /// Returns the number of documents and their earliest date; `None` if unknown.
    pub fn values(&self, status: Status, findings: &Decides, outcome: &RuleOutcome) -> (Option<u64>, Option<Instant>) {
        let expired = findings.expired.as_ref().filter(|expired| expired.is_complete);
        let swept = outcome.swept().map(|swept| &swept.outcome);
        let (deleted, uncertain) = swept.map_or((0, false), |swept| (swept.deleted, swept.uncertain));
        let is_gone = swept.is_some_and(|swept| swept.is_collection_gone);
        let is_rest_unknown = swept.is_some_and(Outcome::is_rest_unknown);
        // Documents that could not be archived.
        let kept = swept.map_or(0, |swept| swept.archived.incomparable);
        match (self, status) {
            (Self::Unknown, _) | (_, Status::Skipped) => (None, None),
            (Self::Counted { count, oldest }, _) => (Some(*count), oldest.filter(|_| *count > 0).map(Instant)),
            (Self::Derived | Self::Shared, Status::Complete | Status::Partial) if is_rest_unknown => (None, None),
            (Self::Derived | Self::Shared, Status::Complete) if swept.is_some() => (Some(kept), None),
            (Self::Shared, _) => (None, None),
            (Self::Derived, Status::Complete | Status::Refused) => {
                (expired.map(|expired| expired.count), expired.and_then(|expired| expired.oldest).map(Instant))
            }
            (Self::Derived, Status::Partial | Status::Failed) if uncertain || is_gone => (None, None),
            (Self::Derived, Status::Partial | Status::Failed) => {
                (expired.map(|expired| expired.count.saturating_sub(deleted)), None)
            }
        }
    }
}
