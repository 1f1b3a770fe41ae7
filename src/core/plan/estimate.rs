//! The estimate of a sweep before it begins: documents, bytes, time, and what it leaves of the oplog.

mod load;
mod speed;
#[cfg(test)]
mod tests;

use std::fmt;

use bson::Bson;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use load::EstimatedLoad;
pub use load::{CountedChildren, oplog_bytes_per_document};

use super::SweepRule;
use crate::core::facts::{FileSize, OplogLook};
use crate::core::policy::RunLimits;

/// Minimum part of its documents that a collection's file is taken to hold compressed. A smaller file has not been written yet:
/// that happens once a minute (mongo, "checkpoints").
const LEAST_COMPRESSED: f64 = 0.1;

/// Estimate of the sweep of a rule. A value that cannot be told is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "estimate")]
pub struct Estimate {
    /// Documents that one run deletes: those that have expired, within `maxDeletes`, `maxDuration` and the length of the
    /// `window`.
    pub documents: u64,
    /// Children that go with them, and orphans. Null if the rule has none, or they were not counted.
    pub children: Option<u64>,
    /// Size of the documents and the children.
    pub bytes: Option<u64>,
    /// Seconds in which they are archived and deleted, at the allowed rates and as fast as `minOplogWindow` lets them go.
    #[schemars(range(min = 0))]
    pub seconds: Option<f64>,
    /// Documents per second without a limit, each with its children, from which the seconds follow.
    #[schemars(range(min = 0))]
    pub documents_per_second: f64,
    /// Source of that speed.
    pub speed_source: SpeedSource,
    /// Bytes that each deleted document adds to the oplog, without its children. Null where there is none, or no document.
    #[schemars(range(min = 0))]
    pub oplog_bytes_per_document: Option<f64>,
    /// Bytes that the sweep adds to the oplog: the deletes of documents and children, and the entries of the journal.
    pub oplog_bytes: Option<u64>,
    /// Seconds from the first entry of the primary's oplog to the last.
    pub oplog_window_seconds: Option<u64>,
    /// Seconds that the oplog covers after the sweep once it is full, if others write as much as until now.
    pub oplog_window_after_seconds: Option<u64>,
    /// Reason why nothing is known of the oplog's window, or of the window after the sweep.
    pub oplog_unknown: Option<String>,
    /// Bytes in the collection's file that new documents can use after the sweep, besides those that they can use now; indexes
    /// and children are not counted. Null until the server has written the file.
    pub reusable_bytes: Option<u64>,
    /// Bytes that `compact` gives back to the disk of each member after the sweep. Each member has to be compacted on its own.
    pub compact_bytes: Option<u64>,
    /// Members to compact, `host:port`, in this order: the primary comes last. Null where they are unknown.
    pub compact_members: Option<Vec<String>>,
}

/// Source of the expected speed of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "speedSource")]
pub enum SpeedSource {
    /// Earlier sweeps of the rule, which the history holds.
    History,
    /// The number of indexes, and the size of the data compared with the cache.
    Assumption,
}

impl fmt::Display for SpeedSource {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// Findings from which the estimate of a sweep follows.
#[derive(Debug)]
pub struct EstimateFacts<'a> {
    /// Documents that have expired.
    pub expired: u64,
    /// `_id`s of documents of the collection.
    pub ids: &'a [Bson],
    /// The children that go, by collection: none if the rule has none. `None` if they were not counted.
    pub children: Option<&'a [CountedChildren<'a>]>,
    pub oplog: &'a OplogLook,
    pub wire_version: i32,
    /// Size of the server's cache; `None` if it is unknown.
    pub cache: Option<u64>,
    /// Documents per second in earlier sweeps of the rule.
    pub measured_speed: Option<f64>,
    /// Members with documents, the primary last; `None` where they are unknown.
    pub members: Option<&'a [String]>,
    pub run: RunLimits,
}

impl Estimate {
    /// Estimates a sweep.
    pub fn of(rule: &SweepRule, facts: &EstimateFacts) -> Self {
        let SweepRule { selection, limits, .. } = rule;
        let has_oplog = *facts.oplog != OplogLook::None;
        let load = |documents: u64| EstimatedLoad::of(rule, facts, documents);
        let oplog_bytes = |load: &EstimatedLoad| load.oplog_bytes.filter(|_| has_oplog);
        let rate = [limits.rate, facts.run.rate].into_iter().flatten().min().map(f64::from);
        let seconds_of = |load: &EstimatedLoad| {
            let unlimited = load.seconds?;
            // Parents and children share the rate.
            let at_rate = rate.map_or(Some(0.0), |rate| Some((load.documents + load.children?) as f64 / rate))?.max(unlimited);
            match (limits.min_oplog_window, facts.oplog.known(), oplog_bytes(load)) {
                (Some(least), Some(oplog), Some(bytes)) => Some(at_rate.max(oplog.seconds_within(bytes, least)?)),
                (Some(_), None, _) if has_oplog => None,
                _ => Some(at_rate),
            }
        };
        let most = [limits.max_deletes, facts.run.max_deletes].into_iter().flatten().fold(facts.expired, u64::min);
        let time = [facts.run.max_duration, limits.window.as_ref().map(|window| window.length())].into_iter().flatten().min();
        let documents = match (time.map(|time| time.as_secs_f64()), seconds_of(&load(most))) {
            // A cast from float saturates.
            (Some(time), Some(seconds)) if seconds > time => (most as f64 * time / seconds) as u64,
            _ => most,
        };

        let load = load(documents);
        let seconds = seconds_of(&load);
        let window_after = || {
            let (oplog, bytes) = (facts.oplog.known()?, oplog_bytes(&load)?);
            oplog.window_after(bytes, seconds?).map(|seconds| seconds as u64)
        };
        let oplog_bytes_per_document = oplog_bytes_per_document(rule, facts.ids, facts.wire_version).filter(|_| has_oplog);
        let file = selection.size.file.filter(|file| {
            let used = file.size.saturating_sub(file.free) as f64;
            selection.data_bytes().is_none_or(|data| used >= data * LEAST_COMPRESSED)
        });
        let share = documents as f64 / selection.document_count.max(documents).max(1) as f64;
        let reusable = |file: FileSize| (file.size.saturating_sub(file.free) as f64 * share) as u64;
        Self {
            documents,
            children: rule.family.as_ref().and(load.children),
            bytes: load.bytes,
            seconds: seconds.map(|seconds| (seconds * 1000.0).round() / 1000.0),
            documents_per_second: load.documents_per_second.round(),
            speed_source: if facts.measured_speed.is_some() { SpeedSource::History } else { SpeedSource::Assumption },
            oplog_bytes_per_document: oplog_bytes_per_document.map(|bytes| (bytes * 10.0).round() / 10.0),
            oplog_bytes: oplog_bytes(&load),
            oplog_window_seconds: facts.oplog.known().map(|oplog| oplog.window().as_secs()),
            oplog_window_after_seconds: window_after(),
            oplog_unknown: match facts.oplog {
                OplogLook::Unknown(why) => Some(why.clone()),
                OplogLook::Known(oplog) if oplog.size.is_none() => {
                    Some("its size needs `collStats` of `local.oplog.rs` (role `clusterMonitor`)".into())
                }
                OplogLook::Known(_) if facts.children.is_none() => Some("the children were not counted".into()),
                OplogLook::Known(_) | OplogLook::None => None,
            },
            reusable_bytes: file.map(reusable),
            compact_bytes: file.map(|file| file.free + reusable(file)),
            compact_members: facts.members.filter(|_| file.is_some()).map(<[String]>::to_vec),
        }
    }
}
