//! Sizes batches and spaces them out in time. Arithmetic only: time comes in as values.

use std::time::Duration;

/// Maximum rest: the next batch then shows whether the server has recovered.
const MAX_REST: Duration = Duration::from_secs(10);

/// Maximum delay of a batch that the next ones make up for.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// Batches per second under a rate: enough to be smooth, and one batch more or less is 1 % of ten seconds.
const BATCHES_PER_SECOND: u32 = 10;

/// Maximum batches per second, as long as each of them has [`ENOUGH`] documents: other users of the server wait less for a small
/// batch to end.
const MAX_BATCHES_PER_SECOND: u32 = 100;

/// Number of documents in a batch for which the cost of the command itself is negligible.
const ENOUGH: u32 = 100;

/// The size of batches and the rest between them, adjusted so that the latency of a delete command stays near a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pace {
    size: u32,
    max: u32,
    target: Duration,
    rest: Duration,
    /// Whether the server has ever reported an overload: from then on batches grow by little.
    careful: bool,
}

/// The measurements of a batch that the pace depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchTiming {
    /// Documents that the batch asked for.
    pub documents: u64,
    /// `None` if the time says nothing about the server.
    pub latency: Option<Duration>,
    /// Documents that were deleted before a service first reported an overload; `None` if it reported none.
    pub overloaded_after: Option<u64>,
}

impl Pace {
    /// Creates a pace. `first` is the size of the first batch, while the speed of the server is unknown; `max` is never exceeded;
    /// `target` is the desired latency of one delete command.
    pub(crate) fn new(first: u32, max: u32, target: Duration) -> Self {
        Self { size: first.min(max).max(1), max, target, rest: Duration::ZERO, careful: false }
    }

    /// Returns the number of documents that the next batch may take at most; at least 1.
    pub(crate) fn batch_size(&self) -> u32 {
        self.size
    }

    /// Returns the time to leave the server alone before the next batch: the time by which the last one exceeded the target.
    pub(crate) fn rest(&self) -> Duration {
        self.rest
    }

    /// Adjusts size and rest after a batch.
    pub(crate) fn record(&mut self, batch: &BatchTiming) {
        let saturated = |documents: u64| u32::try_from(documents).unwrap_or(u32::MAX);
        match (batch.overloaded_after, batch.latency) {
            (Some(done), _) => self.shrink_to(saturated(done)),
            (None, Some(latency)) => self.approach_target(saturated(batch.documents), latency),
            (None, None) => self.rest = Duration::ZERO,
        }
    }

    /// Doubles the size if the latency is below half of the target, and shrinks it in proportion above the target.
    ///
    /// A batch that was cut short by a limit says little about the server: the size does not grow after it.
    fn approach_target(&mut self, documents: u32, latency: Duration) {
        self.rest = latency.saturating_sub(self.target).min(MAX_REST);
        if latency > self.target {
            let ratio = self.target.as_secs_f64() / latency.as_secs_f64();
            // A cast from float saturates; it rounds down, to the smaller batch.
            self.size = ((f64::from(documents) * ratio) as u32).clamp(1, self.size);
        } else if latency < self.target / 2 && documents >= self.size {
            let more = if self.careful { self.size / 10 + 1 } else { self.size };
            self.size = self.size.saturating_add(more).min(self.max);
        }
    }

    /// Shrinks the size to the number of documents that an overloaded server managed.
    fn shrink_to(&mut self, documents: u32) {
        self.careful = true;
        self.size = if documents == 0 { self.size / 2 } else { documents.min(self.size) }.max(1);
    }
}

/// Returns the wait before repeating a command that an overloaded server refused without naming a wait. Each wait is half as long
/// again as the one before.
///
/// `attempt` counts from 0; `jitter` is from 0 to 1 and keeps many clients from returning at the same moment.
pub(crate) fn back_off(attempt: u32, jitter: f64) -> Duration {
    const FIRST: f64 = 0.25;
    const MAX: f64 = 5.0;
    let seconds = (FIRST * 1.5_f64.powi(attempt.min(30).cast_signed())).min(MAX);
    Duration::from_secs_f64(seconds * (0.7 + 0.6 * jitter.clamp(0.0, 1.0)))
}

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

    /// Returns the number of documents that a batch may take at most.
    pub(crate) fn batch_limit(&self) -> u32 {
        let (few, many) = (self.rate / BATCHES_PER_SECOND, self.rate / MAX_BATCHES_PER_SECOND);
        many.max(ENOUGH).min(few).max(1)
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

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn took(documents: u64, latency: u64) -> BatchTiming {
        BatchTiming { documents, latency: Some(MS(latency)), overloaded_after: None }
    }

    fn overloaded(done: u64) -> BatchTiming {
        BatchTiming { documents: 100, latency: None, overloaded_after: Some(done) }
    }

    #[test]
    fn batches_grow_while_fast_and_shrink_at_once_when_slow() {
        let mut pace = Pace::new(500, 2000, MS(200));
        let mut steps = vec![(pace.batch_size(), pace.rest())];
        for (documents, latency) in [(500, 20), (1000, 40), (2000, 90), (2000, 400), (1000, 150), (1000, 60_000), (3, 1)] {
            pace.record(&took(documents, latency));
            steps.push((pace.batch_size(), pace.rest()));
        }
        let expected = [(500, 0), (1000, 0), (2000, 0), (2000, 0), (1000, 200), (1000, 0), (3, 10_000), (6, 0)];
        assert_eq!(steps, expected.map(|(size, rest)| (size, MS(rest))));

        let mut pace = Pace::new(500, 3, MS(1));
        assert_eq!(pace.batch_size(), 3);
        pace.record(&took(3, 3_600_000));
        assert_eq!(pace.batch_size(), 1);
        pace.record(&took(1, 0));
        pace.record(&took(2, 0));
        assert_eq!((pace.batch_size(), pace.rest()), (3, MS(0)));
    }

    #[test]
    fn a_short_batch_does_not_let_the_size_grow() {
        let mut pace = Pace::new(500, 2000, MS(200));
        pace.record(&took(3, 1));
        assert_eq!(pace.batch_size(), 500);
    }

    #[test]
    fn an_overloaded_server_gets_what_it_can_do_and_little_more() {
        let mut pace = Pace::new(100, 1000, MS(200));
        pace.record(&took(100, 1));
        pace.record(&overloaded(73));
        let mut sizes = vec![pace.batch_size()];
        for done in [0, 0, 90] {
            pace.record(&overloaded(done));
            sizes.push(pace.batch_size());
        }
        pace.record(&took(18, 1));
        sizes.push(pace.batch_size());
        for _ in 0..10 {
            pace.record(&overloaded(0));
        }
        sizes.push(pace.batch_size());
        assert_eq!(sizes, [73, 36, 18, 18, 20, 1]);
    }

    #[test]
    fn waits_grow_to_a_limit_and_differ() {
        let millis = |attempt, jitter| back_off(attempt, jitter).as_millis();
        assert_eq!([0, 1, 2, 8, 100].map(|attempt| millis(attempt, 0.5)), [250, 375, 562, 5000, 5000]);
        assert_eq!((millis(100, 0.0), millis(100, 1.0)), (3500, 6500));
    }

    #[test]
    fn the_rate_holds_over_any_stretch_and_pauses_are_not_saved_up() {
        let mut limit = RateLimit::new(1000);
        assert_eq!(limit.batch_limit(), 100);
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
        assert_eq!([1, 9, 30, 5000, 50_000].map(|rate| RateLimit::new(rate).batch_limit()), [1, 1, 3, 100, 500]);

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
