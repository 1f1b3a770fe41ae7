//! Figures of an audit from the counts of the server. Values in, values out.

pub(crate) mod distribution;
pub(crate) mod doubts;
pub(crate) mod figures;
pub(crate) mod ranges;
pub(crate) mod sample;
pub(crate) mod troubles;

/// Documents of the largest collection that is not sampled.
pub(crate) const SAMPLED_ABOVE: u64 = 1_000_000;

/// Documents of a sample, give or take a few hundred.
pub(crate) const SAMPLE: u64 = 100_000;

/// Returns the share of the documents that is sampled; `None` if every document is looked at.
///
/// A sample is drawn by `$sampleRate`, which reads the whole collection but spends nothing on what it leaves out. `$sample`
/// reads only what it returns, but does not choose evenly. On mongod 6.0.5 some tenths of a collection, in the order of its
/// dates, came up three times as often as others, run after run. No margin holds for such a sample.
pub(crate) fn sample_rate(documents: u64, exact: bool) -> Option<f64> {
    (documents > SAMPLED_ABOVE && !exact).then(|| SAMPLE as f64 / documents as f64)
}

/// Returns the margin of a sample of this size in percentage points: 95 % of all measured shares are within it. Assumes a share
/// of one half, the worst case.
pub(crate) fn margin_percent(sampled: u64) -> f64 {
    let margin = 1.96 * (0.25 / sampled.max(1) as f64).sqrt() * 100.0;
    ((margin * 100.0).round() / 100.0).min(100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_big_collections_are_sampled() {
        assert_eq!(sample_rate(1_000_000, false), None);
        assert_eq!(sample_rate(1_000_001, true), None);
        assert_eq!(sample_rate(2_000_000, false), Some(0.05));
        let few = sample_rate(1_000_001, false).unwrap();
        assert!(few > 0.09 && few < 0.1, "{few}");
    }

    #[test]
    fn the_margin_is_that_of_a_share_of_a_half() {
        assert_eq!([1, 100, 40_000, 100_000].map(margin_percent), [98.0, 9.8, 0.49, 0.31]);
    }
}
