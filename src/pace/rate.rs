//! A limit of documents per second.

use std::time::Duration;

/// Maximum delay of a batch that the next ones make up for.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// Batches per second under a rate: enough to be smooth, and one batch more or less is 1 % of ten seconds.
const BATCHES_PER_SECOND: u32 = 10;

/// Maximum batches per second, as long as each of them has enough documents: other users of the server wait less for a small batch
/// to end.
const MAX_BATCHES_PER_SECOND: u32 = 100;

/// A limit of documents per second, without bursts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateLimit {
    rate: u32,
    /// Time since the run began at which the rate allows the next documents.
    free_at: Duration,
}

impl RateLimit {
    /// Creates a limit of `rate` documents per second.
    pub(crate) fn new(rate: u32) -> Self {
        Self { rate, free_at: Duration::ZERO }
    }

    /// Returns the number of documents that a batch may take at most. `enough` is the number for which the cost of the command itself is negligible.
    pub(crate) fn batch_limit(&self, enough: u32) -> u32 {
        let (few, many) = (self.rate / BATCHES_PER_SECOND, self.rate / MAX_BATCHES_PER_SECOND);
        many.max(enough).min(few).max(1)
    }

    /// Returns the wait before the next batch. `now` is the time since the run began; it never goes back.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.free_at.saturating_sub(now)
    }

    /// Charges documents to the rate; later batches wait until their time has passed.
    pub(crate) fn take(&mut self, documents: u64, now: Duration) {
        // Unused time is not saved up, except for the delay of a timer: no burst follows a pause.
        self.free_at = self.free_at.max(now.saturating_sub(MAX_DELAY)) + self.cost(documents);
    }

    /// Corrects an earlier [`Self::take`]: refunds documents that were not deleted, and charges those deleted in excess.
    pub(crate) fn settle(&mut self, taken: u64, deleted: u64) {
        self.free_at = (self.free_at + self.cost(deleted)).saturating_sub(self.cost(taken));
    }

    /// Returns the time that documents take at the rate.
    fn cost(&self, documents: u64) -> Duration {
        Duration::from_secs_f64(documents as f64 / f64::from(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::{ENOUGH, ENOUGH_WITH_HOLDS};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_rate_holds_over_any_stretch_and_pauses_are_not_saved_up() {
        let mut limit = RateLimit::new(1000);
        assert_eq!(limit.batch_limit(ENOUGH), 100);
        let mut now = Duration::ZERO;
        for batch in 0..100 {
            now += limit.wait(now);
            assert_eq!(now, MS(batch * 100));
            limit.take(100, now);
        }
        now += Duration::from_secs(3600);
        assert_eq!(limit.wait(now), MS(0));
        limit.take(100, now);
        assert_eq!(limit.wait(now), MS(0), "a timer may have been late");
        limit.take(100, now);
        assert_eq!(limit.wait(now), MS(100));
        for (enough, expected) in [(ENOUGH, [1, 1, 3, 100, 500]), (ENOUGH_WITH_HOLDS, [1, 1, 3, 500, 5000])] {
            assert_eq!([1, 9, 30, 5000, 50_000].map(|rate| RateLimit::new(rate).batch_limit(enough)), expected);
        }

        let mut limit = RateLimit::new(1000);
        limit.take(200, MS(0));
        limit.settle(200, 50);
        assert_eq!(limit.wait(MS(0)), MS(50));
        limit.settle(200, 350);
        assert_eq!(limit.wait(MS(0)), MS(200));
    }

    #[test]
    fn late_timers_do_not_lower_the_rate() {
        let mut limit = RateLimit::new(1000);
        let mut now = Duration::ZERO;
        for _ in 0..101 {
            now += limit.wait(now) + MS(7);
            limit.take(100, now);
        }
        // 10 000 documents take ten seconds, and the last one its own delay.
        assert_eq!(now, MS(10_007));
    }
}
