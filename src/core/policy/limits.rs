//! The limits of a rule: how fast it deletes, how much, when, and what holds it back.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::keys;
use super::mapping::Mapping;
use super::window::Windows;

/// The limits of one rule; `None` means no limit unless a field says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Documents per delete command at most; `None` is the default of the flavor.
    pub batch_size: Option<u32>,
    /// Latency of a delete command towards which batches grow and shrink.
    pub target_batch: Duration,
    /// Delete commands in flight at most; `None` is the default of the flavor, or one more with an archive.
    pub concurrency: Option<u32>,
    /// Documents per second at most.
    pub rate: Option<u32>,
    /// Cosmos RU: request units per second at most.
    pub max_request_units: Option<u32>,
    /// Maximum number of documents that a run deletes, per namespace; the rule stops there. An approval may lower it.
    pub max_deletes: Option<u64>,
    /// Guard: the rule is refused above this share of the collection, in percent.
    pub max_delete_percent: Option<f64>,
    /// Lag of a secondary above which the sweep pauses; it pauses as well while the lag is unknown.
    pub max_lag: Option<Duration>,
    /// Guard: the time that the oplog of the primary covers never falls below this by the sweep.
    pub min_oplog_window: Option<Duration>,
    /// Share of the server's cache, in percent, that may wait to be written; above it the sweep pauses.
    pub max_dirty: Option<f64>,
    /// Time that a query for the oldest document may take; the sweep pauses while it takes longer.
    pub max_head: Option<Duration>,
    /// Times of the week in which the rule may delete.
    pub window: Option<Windows>,
}

impl Limits {
    /// Reads the limits of a rule.
    pub(super) fn read(map: &Mapping) -> Self {
        Self {
            batch_size: map.optional(&keys::BATCH_SIZE),
            target_batch: Duration::from_millis(map.value(&keys::TARGET_BATCH_MS)),
            concurrency: map.optional(&keys::CONCURRENCY),
            rate: map.optional(&keys::RATE),
            max_request_units: map.optional(&keys::MAX_REQUEST_UNITS),
            max_deletes: map.optional(&keys::MAX_DELETES),
            max_delete_percent: map.optional(&keys::MAX_DELETE_PERCENT),
            max_lag: map.optional(&keys::MAX_LAG),
            min_oplog_window: map.optional(&keys::MIN_OPLOG_WINDOW),
            max_dirty: map.optional(&keys::MAX_DIRTY),
            max_head: map.optional(&keys::MAX_HEAD_MS).map(Duration::from_millis),
            window: map.optional(&keys::WINDOW).map(Windows),
        }
    }

    /// Returns these limits with the pace and the windows of others: what a sweep takes over from a policy that is read while it
    /// runs.
    pub fn with_pace_of(&self, others: &Limits) -> Self {
        let Self { max_request_units, max_deletes, max_delete_percent, .. } = *self;
        Self { max_request_units, max_deletes, max_delete_percent, ..others.clone() }
    }

    /// Whether an instant is not at a time at which the rule may delete.
    pub fn is_window_closed(&self, now: DateTime<Utc>) -> bool {
        self.window.as_ref().is_some_and(|window| !window.contains(now))
    }
}
