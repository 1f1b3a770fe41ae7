//! Outcome of one rule in a run, as values.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::Bson;

use crate::core::plan::StopReason;
use crate::core::plan::waits::Waited;
use crate::core::policy::namespace::Namespace;

/// Outcome of one rule in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RuleOutcome {
    /// The rule was only checked: nothing was to be deleted.
    Checked,
    /// No delete was attempted: a dry run or an audit, a rule that was not ready, or no rule had expired documents.
    NotSwept {
        /// Whether the rule's window is closed, so that a sweep would not delete now.
        window_closed: bool,
    },
    /// The run stopped before the rule's turn.
    NotBegun(Stopped),
    /// An earlier rule had found that the deployment cannot be reached; the text is the reason.
    Unreachable(String),
    Swept(Box<Swept>),
}

impl RuleOutcome {
    /// Returns the outcome of the sweep, if there was one.
    pub fn swept(&self) -> Option<&Swept> {
        match self {
            Self::Swept(swept) => Some(swept),
            Self::Checked | Self::NotSwept { .. } | Self::NotBegun(_) | Self::Unreachable(_) => None,
        }
    }
}

/// Stop of a rule before it began, with an explanation that only the run has.
#[derive(Debug, Clone, PartialEq)]
pub struct Stopped {
    pub reason: StopReason,
    /// Reason why this run no longer has the lease, for [`StopReason::LockLost`].
    pub lease_lost: Option<String>,
}

/// Outcome of a rule that was swept, and the counts made after the sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    pub outcome: Outcome,
    /// Reason why this run no longer has the lease, for a sweep that ended by [`StopReason::LockLost`].
    pub lease_lost: Option<String>,
    /// The run's directory in the archive; `None` if the rule has no archive.
    pub archive: Option<String>,
    /// Documents that never expire by the rule, by reason, counted after the sweep.
    pub never_expires: Option<BTreeMap<String, u64>>,
    /// Documents that holds keep, counted after the sweep.
    pub held: Option<HeldDocuments>,
    /// Bytes that the server wrote from its cache meanwhile, including for other clients; `None` if it did not tell, or the
    /// collection is small.
    pub written_bytes: Option<u64>,
    /// Figures of the server's load that were unknown, and the reason; `None` if none was.
    pub pressure_unknown: Option<String>,
    pub warnings: Vec<String>,
    pub duration_ms: u64,
}

/// Expired documents that holds keep.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HeldDocuments {
    pub count: u64,
    /// The keys that keep most, each with its documents; the most first.
    pub most: Vec<(Bson, u64)>,
}

/// Outcome of a sweep of one rule; while it runs, what became of the rule by now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Deleted documents, summed from the server's replies.
    pub deleted: u64,
    /// Delete commands that were sent.
    pub batches: u64,
    /// Whether `deleted` is a lower bound: a reply was lost, or a fail-over may have brought back documents that were then
    /// deleted again.
    pub uncertain: bool,
    /// Deleted documents that no majority of the members had confirmed when the sweep ended, or that a fail-over may have brought
    /// back.
    pub unconfirmed: u64,
    /// Whether a collection of the rule was dropped, renamed or replaced, so that what is left of it is unknown.
    pub is_collection_gone: bool,
    /// Whether a look after the last delete saw no expired document.
    pub seen_none: bool,
    /// The reason why no majority was asked to confirm; `None` if one was.
    pub weak_write_concern: Option<String>,
    pub paused: Waited,
    /// `None` if something else took most of the time.
    pub fixed_latency: Option<FixedLatency>,
    pub archived: Archived,
    /// `None` if the rule has no children.
    pub children: Option<Children>,
    pub end: End,
}

impl Outcome {
    /// Returns the number of documents that were archived and not deleted, because others changed or deleted them in between; 0
    /// if it is not known how many were deleted.
    pub fn archived_only(&self) -> u64 {
        if self.uncertain { 0 } else { self.archived.documents.saturating_sub(self.deleted) }
    }

    /// Whether it is unknown how many expired documents are left: the deletes may have missed some, or others changed documents
    /// once they were archived.
    pub fn is_rest_unknown(&self) -> bool {
        match self.end {
            // After a lost reply `deleted` is a lower bound.
            End::Complete => !self.seen_none && self.archived.documents > self.deleted,
            End::Partial(reason) => reason == StopReason::Missed,
            End::Failed(_) => false,
        }
    }
}

/// Outcome of the children of a rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Children {
    pub collections: Vec<ChildCollection>,
    /// Parents whose children may be left, and whose `_id`s are in the journal.
    pub left: u64,
}

/// Outcome of the children of a rule in one collection.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildCollection {
    pub namespace: Namespace,
    /// Deleted children, summed from the server's replies.
    pub deleted: u64,
    /// The children among them that were orphans.
    pub orphans: u64,
    /// Whether `deleted` is a lower bound, because a reply was lost.
    pub uncertain: bool,
    pub archived: Archived,
}

impl Children {
    /// Returns the number of deleted children.
    pub fn deleted(&self) -> u64 {
        self.collections.iter().map(|collection| collection.deleted).sum()
    }

    /// Returns the number of deleted orphans.
    pub fn orphans(&self) -> u64 {
        self.collections.iter().map(|collection| collection.orphans).sum()
    }
}

/// A latency of every delete command that no smaller batch could reduce, and that took most of the time of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedLatency {
    /// Mean of all batches.
    pub latency: Duration,
    /// Maximum number of documents in a batch.
    pub batch_size: u32,
    /// Maximum number of delete commands in flight.
    pub concurrency: usize,
}

/// End of a sweep.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum End {
    /// No candidate is left.
    #[default]
    Complete,
    /// At least one candidate is left, or may be left.
    Partial(StopReason),
    /// Deleting failed, with the error.
    Failed(String),
}

impl End {
    /// Whether nothing but a limit on deletes ended the sweep early: it deleted all that it found and was allowed to delete.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Complete | Self::Partial(StopReason::MaxDeletes | StopReason::Missed))
    }
}

/// Counts of the documents that were read for archiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Archived {
    /// Documents that were written to the archive before they were sent to be deleted.
    pub documents: u64,
    /// Documents that were neither archived nor deleted, because no delete can compare them.
    pub incomparable: u64,
}

impl Archived {
    pub fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        self.incomparable += other.incomparable;
    }
}
