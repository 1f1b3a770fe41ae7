//! The ranges of the age histogram.

use crate::report::audit::AgeRange;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Where ranges meet, in seconds of age, on both sides of 0.
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

/// Where ranges meet, in seconds of age, ascending: the far future first.
pub fn bounds() -> Vec<i64> {
    STEPS.iter().rev().map(|age| -age).chain([0]).chain(STEPS).collect()
}

/// The same in milliseconds.
pub fn bounds_ms() -> Vec<i64> {
    bounds().into_iter().map(|seconds| seconds * 1000).collect()
}

/// The ranges with their counts, expired and not; `counts` has one pair more than there are bounds. Ranges without documents are left out at
/// both ends.
pub fn histogram(counts: &[(u64, u64)]) -> Vec<AgeRange> {
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

/// The ranges as a person wants to see them: three or more without documents, on one side of now, become one.
pub fn merged(ranges: &[AgeRange]) -> Vec<AgeRange> {
    let is_empty = |range: &AgeRange| range.expired_count == 0 && range.not_expired_count == 0;
    let together = |a: &AgeRange, b: &AgeRange| is_empty(a) && is_empty(b) && a.max_age_seconds != Some(0);
    let merge = |stretch: &[AgeRange]| match stretch {
        [first, _, .., last] if stretch.len() >= 3 && is_empty(first) => {
            vec![AgeRange { max_age_seconds: last.max_age_seconds, ..first.clone() }]
        }
        few => few.to_vec(),
    };
    ranges.chunk_by(together).flat_map(merge).collect()
}

/// A range in words: `1 h to 6 h`, of dates in the future `in 1 h to 6 h`.
pub fn words(range: &AgeRange) -> String {
    match (range.min_age_seconds, range.max_age_seconds) {
        (None, Some(max)) => format!("in {} or more", age(-max)),
        (Some(min), Some(max)) if max <= 0 => format!("in {} to {}", age(-max), age(-min)),
        (Some(min), Some(max)) => format!("{} to {}", age(min), age(max)),
        (Some(min), None) => format!("{} or more", age(min)),
        (None, None) => "any".to_owned(),
    }
}

fn age(seconds: i64) -> String {
    let (number, unit) = match seconds {
        0 => return "0".to_owned(),
        seconds if seconds % YEAR == 0 => (seconds / YEAR, "y"),
        seconds if seconds % DAY == 0 => (seconds / DAY, "d"),
        seconds if seconds % HOUR == 0 => (seconds / HOUR, "h"),
        seconds if seconds % MINUTE == 0 => (seconds / MINUTE, "m"),
        seconds => (seconds, "s"),
    };
    format!("{number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranges_without_documents_are_shown_as_one() {
        let mut counts = vec![(0, 0); bounds().len() + 1];
        (counts[0], counts[19], counts[22]) = ((0, 4), (1, 0), (2, 0));
        let all = histogram(&counts);
        let shown = merged(&all);
        let words: Vec<String> = shown.iter().map(words).collect();
        assert_eq!(
            words,
            ["in 10 y or more", "in 0 to 10 y", "0 to 1 h", "1 h to 6 h", "6 h to 1 d", "1 d to 3 d", "3 d to 7 d"]
        );
        assert_eq!(
            shown.iter().map(|range| (range.expired_count, range.not_expired_count)).collect::<Vec<_>>(),
            [(0, 4), (0, 0), (0, 0), (1, 0), (0, 0), (0, 0), (2, 0)]
        );
    }

    #[test]
    fn ranges_without_documents_are_left_out_at_both_ends_alone() {
        let mut counts = vec![(0, 0); bounds().len() + 1];
        assert_eq!(histogram(&counts), []);
        counts[0] = (0, 4);
        counts[2] = (0, 5);
        let shown = histogram(&counts);
        assert_eq!(shown.iter().map(words).collect::<Vec<_>>(), ["in 10 y or more", "in 5 y to 10 y", "in 2 y to 5 y"]);
        assert_eq!(shown.iter().map(|range| range.not_expired_count).collect::<Vec<_>>(), [4, 0, 5]);
        let all: Vec<(u64, u64)> = counts.iter().map(|_| (1, 0)).collect();
        let all = histogram(&all);
        assert_eq!(all.len(), 32);
        assert_eq!(["in 0 to 1 m", "0 to 1 m", "1 m to 10 m"], [15, 16, 17].map(|place| words(&all[place])).as_slice());
        assert_eq!(all.last().map(words).as_deref(), Some("10 y or more"));
        assert!(all.windows(2).all(|pair| pair[0].max_age_seconds == pair[1].min_age_seconds));
    }
}
