//! The estimate of a sweep before it begins: documents, bytes, time, and what it leaves of the oplog.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bson::Bson;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SweepRule;
use super::oplog::Entries;
use crate::core::facts::{FileSize, OplogLook};

/// Documents per second that a sweep deletes from a collection with so many indexes besides the one on the `_id`: mongod 6.0.5, two shared cores, all
/// data in the cache, as `cargo bench --bench sweep` runs.
const SPEEDS: [(usize, f64); 4] = [(1, 87_000.0), (2, 69_000.0), (4, 44_000.0), (6, 21_000.0)];

/// Part of that speed for a collection that is larger than the cache: between a sixth in the order of the storage and a fourteenth along
/// an index whose dates are in another order (400,000 documents of 1 kB, half of them expired, in a cache of 256 MiB).
const BEYOND_CACHE: f64 = 0.1;

/// Estimate of the sweep of a rule. A value that cannot be told is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "estimate")]
pub struct Estimate {
    /// Documents that one run deletes: those that have expired, within `maxDeletes`, `maxDuration` and the length of the `window`.
    pub documents: u64,
    /// Their size.
    pub bytes: Option<u64>,
    /// Seconds in which they are deleted, at the allowed rates and as fast as `minOplogWindow` lets them go.
    #[schemars(range(min = 0))]
    pub seconds: Option<f64>,
    /// Documents per second without a limit, from which the seconds follow.
    #[schemars(range(min = 0))]
    pub documents_per_second: f64,
    /// Source of that speed.
    pub speed_source: SpeedSource,
    /// Bytes that each deleted document adds to the oplog. Null where there is none, or no document.
    #[schemars(range(min = 0))]
    pub oplog_bytes_per_document: Option<f64>,
    /// Bytes that the sweep adds to the oplog.
    pub oplog_bytes: Option<u64>,
    /// Seconds from the first entry of the primary's oplog to the last.
    pub oplog_window_seconds: Option<u64>,
    /// Seconds that the oplog covers after the sweep once it is full, if others write as much as until now.
    pub oplog_window_after_seconds: Option<u64>,
    /// Reason why nothing is known of the oplog's window, or of the window after the sweep.
    pub oplog_unknown: Option<String>,
    /// Bytes in the collection's file that new documents can use after the sweep, besides those that they can use now; indexes are not counted.
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

/// Limits of the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCaps {
    pub max_deletes: Option<u64>,
    /// Documents per second.
    pub rate: Option<u32>,
    pub max_duration: Option<Duration>,
}

impl RunCaps {
    /// Returns the name of a limit under which the oldest documents go first; `None` without one.
    pub fn oldest_first(&self) -> Option<&'static str> {
        self.max_deletes.map(|_| "--max-deletes").or(self.rate.map(|_| "rate"))
    }
}

/// Findings from which the estimate of a sweep follows.
#[derive(Debug)]
pub struct EstimateFacts<'a> {
    /// Documents that have expired.
    pub expired: u64,
    /// `_id`s of documents of the collection.
    pub ids: &'a [Bson],
    pub oplog: &'a OplogLook,
    pub wire_version: i32,
    /// Size of the server's cache; `None` if it is unknown.
    pub cache: Option<u64>,
    /// Documents per second in earlier sweeps of the rule.
    pub measured_speed: Option<f64>,
    /// Members with documents, the primary last; `None` where they are unknown.
    pub members: Option<&'a [String]>,
    pub run: RunCaps,
}

impl Estimate {
    /// Estimates a sweep.
    pub fn of(rule: &SweepRule, facts: &EstimateFacts) -> Self {
        let SweepRule { selection, limits, .. } = rule;
        let oplog_bytes_per_document = oplog_bytes_per_document(rule, facts.ids, facts.wire_version);
        let has_oplog = *facts.oplog != OplogLook::None;
        let oplog_bytes_per_document = oplog_bytes_per_document.filter(|_| has_oplog);
        let oplog_bytes = |documents: u64| oplog_bytes_per_document.map(|each| (each * documents as f64).round() as u64);

        let speed = facts.measured_speed.unwrap_or_else(|| assumed_speed(rule, facts.cache));
        let rates = [limits.rate, facts.run.rate].into_iter().flatten().map(f64::from);
        let allowed = rates.fold(speed, f64::min);
        let seconds_of = |documents: u64| {
            let at_rate = documents as f64 / allowed;
            match (limits.min_oplog_window, facts.oplog.known(), oplog_bytes(documents)) {
                (Some(least), Some(oplog), Some(bytes)) => Some(at_rate.max(oplog.seconds_within(bytes, least)?)),
                (Some(_), None, _) if has_oplog => None,
                _ => Some(at_rate),
            }
        };
        let most = [limits.max_deletes, facts.run.max_deletes].into_iter().flatten().fold(facts.expired, u64::min);
        let time = [facts.run.max_duration, limits.window.as_ref().map(|window| window.length())].into_iter().flatten().min();
        let documents = match (time.map(|time| time.as_secs_f64()), seconds_of(most)) {
            // A cast from float saturates.
            (Some(time), Some(seconds)) if seconds > time => (most as f64 * time / seconds) as u64,
            _ => most,
        };

        let seconds = seconds_of(documents);
        let bytes = selection.average_bytes.map(|average| (average * documents as f64).round() as u64);
        let window_after = || {
            let (oplog, bytes) = (facts.oplog.known()?, oplog_bytes(documents)?);
            oplog.window_after(bytes, seconds?).map(|seconds| seconds as u64)
        };
        let share = documents as f64 / selection.document_count.max(documents).max(1) as f64;
        let reusable = |file: FileSize| (file.size.saturating_sub(file.free) as f64 * share) as u64;
        Self {
            documents,
            bytes,
            seconds: seconds.map(|seconds| (seconds * 10.0).round() / 10.0),
            documents_per_second: speed.round(),
            speed_source: if facts.measured_speed.is_some() { SpeedSource::History } else { SpeedSource::Assumption },
            oplog_bytes_per_document: oplog_bytes_per_document.map(|bytes| (bytes * 10.0).round() / 10.0),
            oplog_bytes: oplog_bytes(documents),
            oplog_window_seconds: facts.oplog.known().map(|oplog| oplog.window().as_secs()),
            oplog_window_after_seconds: window_after(),
            oplog_unknown: match facts.oplog {
                OplogLook::Unknown(why) => Some(why.clone()),
                OplogLook::Known(oplog) if oplog.size.is_none() => Some("the user may not see its size".into()),
                OplogLook::Known(_) | OplogLook::None => None,
            },
            reusable_bytes: selection.file.map(reusable),
            compact_bytes: selection.file.map(|file| file.free + reusable(file)),
            compact_members: facts.members.filter(|_| selection.file.is_some()).map(<[String]>::to_vec),
        }
    }
}

/// Returns the bytes that each deleted document of a rule adds to the oplog, by some `_id`s of its collection.
pub fn oplog_bytes_per_document(rule: &SweepRule, ids: &[Bson], wire_version: i32) -> Option<f64> {
    let selection = &rule.selection;
    Entries::of(wire_version).bytes_per_document(&selection.namespace.to_string(), ids, selection.average_bytes)
}

/// Returns the documents per second to expect of a sweep without a limit.
fn assumed_speed(rule: &SweepRule, cache: Option<u64>) -> f64 {
    let selection = &rule.selection;
    let indexes = selection.indexes.max(1);
    let upper = SPEEDS.iter().find(|(of, _)| *of >= indexes);
    let lower = SPEEDS.iter().rev().find(|(of, _)| *of <= indexes);
    let in_cache = match (lower, upper) {
        (Some((few, fast)), Some((many, slow))) if few < many => {
            fast + (slow - fast) * (indexes - few) as f64 / (many - few) as f64
        }
        (Some((few, speed)), _) => speed * *few as f64 / indexes as f64,
        (None, _) => SPEEDS[0].1,
    };
    let is_larger = cache.zip(selection.data_bytes()).is_some_and(|(cache, data)| data > cache as f64);
    if is_larger { in_cache * BEYOND_CACHE } else { in_cache }
}
