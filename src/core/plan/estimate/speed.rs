//! The speed that is assumed of a sweep that was never seen: mongod 6.0.5, two shared cores, all data in the cache, as
//! `cargo bench --bench sweep` runs.

use crate::core::plan::{ChildRule, SweepRule};

/// Documents per second that a sweep deletes from a collection with so many indexes besides the one on the `_id`.
const SPEEDS: [(usize, f64); 4] = [(1, 87_000.0), (2, 69_000.0), (4, 44_000.0), (6, 21_000.0)];

/// Part of the speeds above for a collection that is larger than the cache. That part is a sixth in the order of the storage, a
/// fourteenth along an index whose dates are in another order. Measured with 400,000 documents of 1 kB, half of them expired,
/// in a cache of 256 MiB.
const BEYOND_CACHE: f64 = 0.1;

/// Bytes of a document that are part of the speeds above, and the seconds for each further one. A document is read before it is
/// deleted, and a large one frees pages of its own (chunks of GridFS).
const LARGE: (f64, f64) = (1000.0, 2e-9);

/// Times that a child takes as long as a document: its parent is confirmed and looked for by a majority before each of its
/// deletes. Measured with two and three children of a parent.
const CHILD: f64 = 8.0;

/// Seconds that it takes to archive a document, and a byte of it.
const ARCHIVED: (f64, f64) = (5e-6, 5e-9);

/// Seconds that a rule with something to delete takes besides: what is asked before its first delete and after its last.
/// Measured with 300 collections of three documents each.
pub(super) const RULE: f64 = 0.004;

/// Returns the seconds to expect of a sweep without a limit for each document, by its average size. `cache` is the size of the
/// server's cache.
pub(super) fn assumed_seconds(rule: &SweepRule, cache: Option<u64>) -> f64 {
    let bytes = rule.selection.size.average_bytes.unwrap_or(0.0);
    let large = LARGE.1 * (bytes - LARGE.0).max(0.0);
    let archived = rule.archive.as_ref().map_or(0.0, |_| ARCHIVED.0 + ARCHIVED.1 * bytes);
    1.0 / deleted_per_second(rule, cache) + large + archived
}

/// Returns the same of a child, whose parent is deleted before it.
pub(super) fn assumed_seconds_of_child(child: &ChildRule, cache: Option<u64>) -> f64 {
    CHILD * assumed_seconds(&child.rule, cache)
}

fn deleted_per_second(rule: &SweepRule, cache: Option<u64>) -> f64 {
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
