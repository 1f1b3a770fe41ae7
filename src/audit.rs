//! From what the server counted to what an audit shows. Values in, values out.

pub mod distribution;
pub mod doubts;
pub mod ranges;
pub mod sample;

/// Collections with more documents than this are sampled, unless all of them are asked for.
pub const SAMPLED_ABOVE: u64 = 1_000_000;

/// Documents of a sample at most.
const LARGEST_SAMPLE: u64 = 100_000;

/// The server draws single documents up to a twentieth of a collection; above that it goes through all of it. A share with some distance.
const SAMPLE_ONE_IN: u64 = 25;

/// How many documents stand for so many; `None`: every one is looked at.
pub fn sample_size(documents: u64, exact: bool) -> Option<u64> {
    (documents > SAMPLED_ABOVE && !exact).then(|| (documents / SAMPLE_ONE_IN).min(LARGEST_SAMPLE))
}

/// Within how many percentage points of the truth 95 % of all shares are that a sample of this size shows: that of a share of a half, which
/// is the worst.
pub fn margin_percent(sampled: u64) -> f64 {
    let margin = 1.96 * (0.25 / sampled.max(1) as f64).sqrt() * 100.0;
    ((margin * 100.0).ceil() / 100.0).min(100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_big_collections_are_sampled_and_never_more_than_the_server_draws() {
        assert_eq!(sample_size(1_000_000, false), None);
        assert_eq!(sample_size(1_000_001, false), Some(40_000));
        assert_eq!(sample_size(2_500_000, false), Some(100_000));
        assert_eq!(sample_size(u64::MAX, false), Some(100_000));
        assert_eq!(sample_size(u64::MAX, true), None);
        for documents in [1_000_001, 2_499_999, 2_500_000] {
            assert!(sample_size(documents, false).unwrap() * 20 < documents);
        }
    }

    #[test]
    fn the_margin_is_that_of_a_share_of_a_half() {
        assert_eq!([1, 100, 40_000, 100_000].map(margin_percent), [98.0, 9.8, 0.49, 0.31]);
    }
}
