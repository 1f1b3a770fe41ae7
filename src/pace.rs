//! How many documents a batch takes and when it may start. Arithmetic only: time comes in as values.

use std::time::Duration;

/// No rest is longer: the next batch shows whether the server has recovered.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// How late a batch may come and the rate still be made up for.
const LATE: Duration = Duration::from_millis(100);

/// Batches per second under a rate: enough to be smooth, and one more or less of them is 1 % of ten seconds.
const BATCHES_PER_SECOND: u32 = 10;

/// Batches per second where that leaves them [`ENOUGH`] documents: others on the server wait less for a small batch to end.
const MOST_BATCHES_PER_SECOND: u32 = 100;

/// Documents of a batch in comparison to which the command itself costs little.
const ENOUGH: u32 = 100;

/// Lets batches grow, shrink and rest, so that the latency of a delete command stays near a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    size: u32,
    most: u32,
    target: Duration,
    rest: Duration,
    /// Whether the server has ever said that a batch was too much: from then on batches grow by little.
    careful: bool,
}

impl Pace {
    /// `first` is the size to begin with, for nothing is known yet of how fast the server deletes; `most` is never exceeded; `target` is the
    /// latency of one delete command to come close to.
    pub fn new(first: u32, most: u32, target: Duration) -> Self {
        Self { size: first.min(most).max(1), most, target, rest: Duration::ZERO, careful: false }
    }

    /// Documents that the next batch may take at most; at least 1.
    pub fn batch_size(&self) -> u32 {
        self.size
    }

    /// How long to leave the server alone before the next batch: as long as the last one took beyond the target.
    pub fn rest(&self) -> Duration {
        self.rest
    }

    /// Learns from a batch of `documents` that took `latency`: doubles below half of the target, shrinks in proportion above it.
    ///
    /// A batch that was cut short by a limit says little and lets the size only shrink.
    pub fn observe(&mut self, documents: u32, latency: Duration) {
        self.rest = latency.saturating_sub(self.target).min(LONGEST_REST);
        if latency > self.target {
            let ratio = self.target.as_secs_f64() / latency.as_secs_f64();
            // A cast from float saturates; the fraction is dropped on the side of the smaller batch.
            self.size = ((f64::from(documents) * ratio) as u32).clamp(1, self.size);
        } else if latency < self.target / 2 && documents >= self.size {
            let more = if self.careful { self.size / 10 + 1 } else { self.size };
            self.size = self.size.saturating_add(more).min(self.most);
        }
    }

    /// Learns from a batch that was asked for `documents`; `overloaded` says how many were done before a service first said that it was too
    /// much, where it did.
    pub fn learn(&mut self, documents: u64, latency: Duration, overloaded: Option<u64>) {
        let saturated = |documents: u64| u32::try_from(documents).unwrap_or(u32::MAX);
        match overloaded {
            Some(done) => self.overloaded(saturated(done)),
            None => self.observe(saturated(documents), latency),
        }
    }

    /// Learns from a batch of which the server did so many `documents` and then no more: that many it can do.
    pub fn overloaded(&mut self, documents: u32) {
        self.careful = true;
        self.size = if documents == 0 { self.size / 2 } else { documents.min(self.size) }.max(1);
    }
}

/// Wait before what a server had no room for is asked again, where it does not say how long: half as long again each time.
///
/// `attempt` counts from 0; `jitter` is from 0 to 1 and keeps many clients from coming back at once.
pub fn back_off(attempt: u32, jitter: f64) -> Duration {
    const FIRST: f64 = 0.25;
    const LONGEST: f64 = 5.0;
    let seconds = (FIRST * 1.5_f64.powi(attempt.min(30).cast_signed())).min(LONGEST);
    Duration::from_secs_f64(seconds * (0.7 + 0.6 * jitter.clamp(0.0, 1.0)))
}

/// Spreads documents over time: at most `rate` per second, without bursts.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimit {
    rate: u32,
    /// Time since the run began at which the documents let through so far are paid for.
    free_at: Duration,
}

impl RateLimit {
    /// `rate` is in documents per second.
    pub fn new(rate: u32) -> Self {
        Self { rate, free_at: Duration::ZERO }
    }

    /// Documents a batch may take at most.
    pub fn batch_limit(&self) -> u32 {
        let (few, many) = (self.rate / BATCHES_PER_SECOND, self.rate / MOST_BATCHES_PER_SECOND);
        many.max(ENOUGH).min(few).max(1)
    }

    /// How long the next batch has to wait. `now` is the time since the run began; it never goes back.
    pub fn wait(&self, now: Duration) -> Duration {
        self.free_at.saturating_sub(now)
    }

    /// Lets documents through; the batches after them wait for it.
    pub fn pay(&mut self, documents: u64, now: Duration) {
        // Time that passed unused is not saved up, but for what a timer is late: a pause is not followed by a burst.
        self.free_at = self.free_at.max(now.saturating_sub(LATE)) + self.cost(documents);
    }

    /// Replaces documents that were let through by how many they really were: fewer come back, more are paid for.
    pub fn correct(&mut self, paid: u64, real: u64) {
        self.free_at = (self.free_at + self.cost(real)).saturating_sub(self.cost(paid));
    }

    /// The time that documents take at the rate.
    fn cost(&self, documents: u64) -> Duration {
        Duration::from_secs_f64(documents as f64 / f64::from(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn batches_grow_while_fast_and_shrink_at_once_when_slow() {
        let mut pace = Pace::new(500, 2000, MS(200));
        let mut steps = vec![(pace.batch_size(), pace.rest())];
        for (documents, latency) in [(500, 20), (1000, 40), (2000, 90), (2000, 400), (1000, 150), (1000, 60_000), (3, 1)] {
            pace.observe(documents, MS(latency));
            steps.push((pace.batch_size(), pace.rest()));
        }
        let expected = [(500, 0), (1000, 0), (2000, 0), (2000, 0), (1000, 200), (1000, 0), (3, 10_000), (6, 0)];
        assert_eq!(steps, expected.map(|(size, rest)| (size, MS(rest))));

        let mut pace = Pace::new(500, 3, MS(1));
        assert_eq!(pace.batch_size(), 3);
        pace.observe(3, Duration::from_secs(3600));
        assert_eq!(pace.batch_size(), 1);
        pace.observe(1, MS(0));
        pace.observe(2, MS(0));
        assert_eq!((pace.batch_size(), pace.rest()), (3, MS(0)));
    }

    #[test]
    fn a_short_batch_does_not_let_the_size_grow() {
        let mut pace = Pace::new(500, 2000, MS(200));
        pace.observe(3, MS(1));
        assert_eq!(pace.batch_size(), 500);
    }

    #[test]
    fn an_overloaded_server_gets_what_it_can_do_and_little_more() {
        let mut pace = Pace::new(100, 1000, MS(200));
        pace.observe(100, MS(1));
        pace.overloaded(73);
        let mut sizes = vec![pace.batch_size()];
        for done in [0, 0, 90] {
            pace.overloaded(done);
            sizes.push(pace.batch_size());
        }
        pace.observe(18, MS(1));
        sizes.push(pace.batch_size());
        for _ in 0..10 {
            pace.overloaded(0);
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
            limit.pay(100, now);
        }
        now += Duration::from_secs(3600);
        assert_eq!(limit.wait(now), MS(0));
        limit.pay(100, now);
        assert_eq!(limit.wait(now), MS(0), "a timer may have been late");
        limit.pay(100, now);
        assert_eq!(limit.wait(now), MS(100));
        assert_eq!([1, 9, 30, 5000, 50_000].map(|rate| RateLimit::new(rate).batch_limit()), [1, 1, 3, 100, 500]);

        let mut limit = RateLimit::new(1000);
        limit.pay(200, MS(0));
        limit.correct(200, 50);
        assert_eq!(limit.wait(MS(0)), MS(50));
        limit.correct(200, 350);
        assert_eq!(limit.wait(MS(0)), MS(200));
    }

    #[test]
    fn late_timers_do_not_lower_the_rate() {
        let mut limit = RateLimit::new(1000);
        let mut now = Duration::ZERO;
        for _ in 0..101 {
            now += limit.wait(now) + MS(7);
            limit.pay(100, now);
        }
        // 10 000 documents take ten seconds, and the last one its own delay.
        assert_eq!(now, MS(10_007));
    }
}
