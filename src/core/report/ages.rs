//! Ages and their ranges, as people read them.

use crate::core::audit::figures::AgeRange;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Returns the ranges with three or more neighbours without documents, on one side of now, merged into one.
pub(super) fn merged(ranges: &[AgeRange]) -> Vec<AgeRange> {
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

/// Returns a range in words: `1 h to 6 h`, for dates in the future `in 1 h to 6 h`.
pub(super) fn words(range: &AgeRange) -> String {
    match (range.min_age_seconds, range.max_age_seconds) {
        (None, Some(max)) => format!("in {} or more", age(-max)),
        (Some(min), Some(max)) if max <= 0 => format!("in {} to {}", age(-max), age(-min)),
        (Some(min), Some(max)) => format!("{} to {}", age(min), age(max)),
        (Some(min), None) => format!("{} or more", age(min)),
        (None, None) => "any".to_owned(),
    }
}

/// Returns a number of seconds in the largest unit that makes it a whole number: `90 d`, `2 y`, `36 h`.
pub(super) fn age(seconds: i64) -> String {
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
    use crate::core::audit::ranges::{bounds, histogram};

    #[test]
    fn ages_are_short() {
        for (seconds, text) in
            [(0, "0"), (90, "90 s"), (3_600, "1 h"), (129_600, "36 h"), (7_776_000, "90 d"), (63_072_000, "2 y")]
        {
            assert_eq!(age(seconds), text);
        }
    }

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
    fn ranges_in_words() {
        let all = histogram(&vec![(1, 0); bounds().len() + 1]);
        assert_eq!(["in 0 to 1 m", "0 to 1 m", "1 m to 10 m"], [15, 16, 17].map(|place| words(&all[place])).as_slice());
        assert_eq!(all.first().map(words).as_deref(), Some("in 10 y or more"));
        assert_eq!(all.last().map(words).as_deref(), Some("10 y or more"));
    }
}
