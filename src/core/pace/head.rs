//! Judges the time that a query for the oldest document takes, which grows with the keys of deleted documents in its way.
//!
//! Measured with mongod 6.0.5: a replica set keeps them for `minSnapshotHistoryWindowInSeconds`, through all checkpoints; the
//! next queries remove them.

use std::time::Duration;

/// Minimum time between two queries.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time between two queries in times of what one takes: each walks along all of those keys, which keeps the server as busy.
const TIMES: u32 = 10;

/// The time that a query for the oldest document took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Took {
    Known(Duration),
    /// The query was given up after this time.
    MoreThan(Duration),
}

impl Took {
    /// Returns why a rule waits whose limit is `max`; `None` if the query took no longer.
    pub(crate) fn too_long(self, max: Duration) -> Option<String> {
        let took = match self {
            Self::Known(took) if took <= max => return None,
            // Rounded up, so that it does not look like the limit.
            Self::Known(took) => took.as_nanos().div_ceil(1_000_000).to_string(),
            Self::MoreThan(took) => format!("more than {}", took.as_millis()),
        };
        Some(format!("the oldest document takes {took} ms to find, maxHeadMs {}", max.as_millis()))
    }

    /// Returns the time from the end of the query to the next one.
    pub(crate) fn until_next(self) -> Duration {
        let (Self::Known(took) | Self::MoreThan(took)) = self;
        INTERVAL.max(took * TIMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn at_the_limit_is_not_too_long_and_a_query_without_an_end_is() {
        let why = |took: Took| took.too_long(MS(20));
        assert_eq!((why(Took::Known(MS(0))), why(Took::Known(MS(20)))), (None, None));
        for (took, ms) in [(MS(20) + Duration::from_nanos(1), 21), (MS(45), 45)] {
            assert_eq!(why(Took::Known(took)), Some(format!("the oldest document takes {ms} ms to find, maxHeadMs 20")));
        }
        assert_eq!(
            why(Took::MoreThan(MS(1000))).as_deref(),
            Some("the oldest document takes more than 1000 ms to find, maxHeadMs 20")
        );
        // A limit as long as the limit of the query.
        assert!(Took::MoreThan(MS(1000)).too_long(MS(1000)).is_some());
    }

    #[test]
    fn the_slower_a_query_is_the_later_comes_the_next() {
        for (took, millis) in [
            (Took::Known(MS(0)), 1000),
            (Took::Known(MS(100)), 1000),
            (Took::Known(MS(101)), 1010),
            (Took::MoreThan(MS(1000)), 10_000),
        ] {
            assert_eq!(took.until_next(), MS(millis));
        }
    }
}
