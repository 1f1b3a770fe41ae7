//! A limit of documents per second.

use std::time::Duration;

/// Maximum delay of a batch that the next ones make up for.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// Batches per second under a rate that is reached: enough to be smooth, and one batch more or less is 1 % of ten seconds.
const BATCHES_PER_SECOND: u32 = 10;

/// Maximum batches per second, as long as each of them has enough documents: other users of the server wait less for a small
/// batch to end.
const MAX_BATCHES_PER_SECOND: u32 = 250;

/// Batches that are watched, at least, before a rate that is not reached makes them larger.
const MIN_WATCHED: u32 = 8;

/// Share of the time from which on a rate is not reached.
const LOST_SHARE: f64 = 0.05;

/// Time after which batches of a rate that was reached become smaller again.
const CALM: Duration = Duration::from_secs(60);

/// A limit of documents per second, without bursts.
///
/// Its batches are small. Where so many commands take too long, as with members in another region, they become larger until the
/// rate is reached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateLimit {
    rate: u32,
    /// Time since the run began at which the rate allows the next documents.
    free_at: Duration,
    /// How many times the batches were doubled.
    doublings: u32,
    watched: Watched,
}

/// The batches since the size of batches last changed.
#[derive(Debug, Clone, PartialEq, Default)]
struct Watched {
    batches: u32,
    begun: Duration,
    /// Time that the rate allowed and that no batch used.
    lost: Duration,
}

impl RateLimit {
    /// Creates a limit of `rate` documents per second.
    pub(crate) fn new(rate: u32) -> Self {
        Self { rate, free_at: Duration::ZERO, doublings: 0, watched: Watched::default() }
    }

    /// Returns the documents per second.
    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    /// Replaces the rate for documents that are charged from now on.
    pub(crate) fn set_rate(&mut self, rate: u32) {
        (self.rate, self.doublings, self.watched) = (rate, 0, Watched::default());
    }

    /// Returns the number of documents that a batch may take at most. `enough` is the number for which the cost of the command
    /// itself is negligible, and `gentle` the number up to which a batch may grow.
    pub(crate) fn batch_limit(&self, enough: u32, gentle: u32) -> u32 {
        let (few, many) = (self.rate / BATCHES_PER_SECOND, self.rate / MAX_BATCHES_PER_SECOND);
        let limit = many.max(enough).min(few).max(1);
        let grown = limit.saturating_mul(1 << self.doublings).min(self.rate);
        grown.min(gentle).max(limit)
    }

    /// Returns the wait before the next batch. `now` is the time since the run began; it never goes back.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.free_at.saturating_sub(now)
    }

    /// Charges documents to the rate; later batches wait until their time has passed.
    pub(crate) fn take(&mut self, documents: u64, now: Duration) {
        // Unused time is not saved up, except for the delay of a timer: no burst follows a pause.
        let earliest = now.saturating_sub(MAX_DELAY);
        self.watch(earliest.saturating_sub(self.free_at), now);
        self.free_at = self.free_at.max(earliest) + self.cost(documents);
    }

    /// Takes in a batch before which this much time was lost, and adjusts the size of batches.
    fn watch(&mut self, lost: Duration, now: Duration) {
        if self.watched.batches == 0 {
            self.watched = Watched { batches: 1, begun: now, lost: Duration::ZERO };
            return;
        }
        self.watched.batches += 1;
        self.watched.lost += lost;
        let elapsed = now.saturating_sub(self.watched.begun);
        if self.watched.lost > elapsed.mul_f64(LOST_SHARE) {
            if self.watched.batches >= MIN_WATCHED {
                // A second's documents are the most, and no rate has more than 2^32.
                self.doublings = (self.doublings + 1).min(31);
                self.watched = Watched::default();
            }
        } else if elapsed >= CALM {
            self.doublings = self.doublings.saturating_sub(1);
            self.watched = Watched::default();
        }
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
    use crate::core::pace::{ENOUGH, ENOUGH_WITH_HOLDS};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_rate_holds_over_any_stretch_and_pauses_are_not_saved_up() {
        let mut limit = RateLimit::new(1000);
        assert_eq!(limit.batch_limit(ENOUGH, u32::MAX), 100);
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
        for (enough, expected) in [(ENOUGH, [1, 1, 3, 100, 200]), (ENOUGH_WITH_HOLDS, [1, 1, 3, 500, 5000])] {
            assert_eq!([1, 9, 30, 5000, 50_000].map(|rate| RateLimit::new(rate).batch_limit(enough, u32::MAX)), expected);
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

    #[test]
    fn batches_double_where_more_than_a_twentieth_of_the_time_is_lost_and_shrink_after_a_calm_minute() {
        let doublings = |lost: Duration, batches: u32, elapsed: Duration, before: u32| {
            let mut limit = RateLimit { doublings: before, ..RateLimit::new(1000) };
            limit.watch(Duration::ZERO, MS(5));
            for _ in 2..batches {
                limit.watch(Duration::ZERO, MS(5));
            }
            limit.watch(lost, MS(5) + elapsed);
            (limit.doublings, limit.watched.batches)
        };
        let second = MS(1000);
        for (lost, batches, elapsed, before, expected) in [
            (MS(51), MIN_WATCHED, second, 0, (1, 0)),
            (MS(51), MIN_WATCHED - 1, second, 0, (0, MIN_WATCHED - 1)),
            // A twentieth is not too much.
            (MS(50), MIN_WATCHED, second, 0, (0, MIN_WATCHED)),
            (MS(51), MIN_WATCHED, second, 31, (31, 0)),
            (MS(0), 2, CALM, 3, (2, 0)),
            (MS(0), 2, CALM, 0, (0, 0)),
            (MS(0), 2, CALM - MS(1), 3, (3, 2)),
        ] {
            assert_eq!(doublings(lost, batches, elapsed, before), expected, "{lost:?} {batches} {elapsed:?}");
        }
        // The losses of several batches add up.
        let mut limit = RateLimit::new(1000);
        (0..MIN_WATCHED).for_each(|batch| limit.watch(MS(10), MS(u64::from(batch) * 20)));
        assert_eq!(limit.doublings, 1);
    }
}
