//! The speed that is assumed of a sweep that was never seen: mongod 6.0.5, two shared cores, all data in the cache, as `cargo bench --bench sweep` runs.

use crate::core::plan::SweepRule;

/// Documents per second that a sweep deletes from a collection with so many indexes besides the one on the `_id`.
const SPEEDS: [(usize, f64); 4] = [(1, 87_000.0), (2, 69_000.0), (4, 44_000.0), (6, 21_000.0)];

/// Part of that speed for a collection that is larger than the cache: between a sixth in the order of the storage and a fourteenth along
/// an index whose dates are in another order (400,000 documents of 1 kB, half of them expired, in a cache of 256 MiB).
const BEYOND_CACHE: f64 = 0.1;

/// Seconds that it takes to archive a document, and a byte of it.
const ARCHIVED: (f64, f64) = (5e-6, 5e-9);

/// Returns the seconds to expect of a sweep without a limit for each document, by its average size. `cache` is the size of the server's cache.
pub(super) fn assumed_seconds(rule: &SweepRule, cache: Option<u64>) -> f64 {
    let archived = rule.archive.as_ref().map_or(0.0, |_| ARCHIVED.0 + ARCHIVED.1 * rule.selection.average_bytes.unwrap_or(0.0));
    1.0 / deleted_per_second(rule, cache) + archived
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
