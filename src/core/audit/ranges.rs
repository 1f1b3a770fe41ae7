//! Ranges of the age histogram.

use crate::core::audit::figures::AgeRange;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Bounds of the ranges in seconds of age, on both sides of 0.
const STEPS: [i64; 15] = [
    MINUTE,
    10 * MINUTE,
    HOUR,
    6 * HOUR,
    DAY,
    3 * DAY,
    7 * DAY,
    14 * DAY,
    30 * DAY,
    90 * DAY,
    180 * DAY,
    YEAR,
    2 * YEAR,
    5 * YEAR,
    10 * YEAR,
];

/// Returns the bounds of the ranges in seconds of age, ascending: the far future first.
pub(crate) fn bounds() -> Vec<i64> {
    STEPS.iter().rev().map(|age| -age).chain([0]).chain(STEPS).collect()
}

/// Returns the bounds in milliseconds.
pub(crate) fn bounds_ms() -> Vec<i64> {
    bounds().into_iter().map(|seconds| seconds * 1000).collect()
}

/// Returns the ranges with their counts of expired and other documents. `counts` has one pair more than there are bounds. Leaves
/// out the ranges without documents at both ends, and keeps those in between.
pub(crate) fn histogram(counts: &[(u64, u64)]) -> Vec<AgeRange> {
    let bounds = bounds();
    let is_filled = |(expired, not_expired): &(u64, u64)| expired + not_expired > 0;
    let first = counts.iter().position(is_filled);
    let last = counts.iter().rposition(is_filled);
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    (first..=last)
        .map(|place| AgeRange {
            min_age_seconds: place.checked_sub(1).map(|below| bounds[below]),
            max_age_seconds: bounds.get(place).copied(),
            expired_count: counts[place].0,
            not_expired_count: counts[place].1,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_at_both_ends_are_left_out() {
        let mut counts = vec![(0, 0); bounds().len() + 1];
        assert_eq!(histogram(&counts), []);
        counts[0] = (0, 4);
        counts[2] = (0, 5);
        let kept = histogram(&counts);
        assert_eq!(kept.iter().map(|range| range.not_expired_count).collect::<Vec<_>>(), [4, 0, 5]);
        let all: Vec<(u64, u64)> = counts.iter().map(|_| (1, 0)).collect();
        let all = histogram(&all);
        assert_eq!(all.len(), 32);
        assert!(all.windows(2).all(|pair| pair[0].max_age_seconds == pair[1].min_age_seconds));
    }
}
