//! How many documents a batch takes and when it may start. Arithmetic only: time comes in as values.

use std::time::Duration;

/// First batch of a rule; small, for nothing is known yet of how fast the server deletes.
const FIRST_BATCH: u32 = 500;

/// Lets batches grow and shrink towards a latency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchSize {
    size: u32,
    most: u32,
    target: Duration,
}

impl BatchSize {
    /// `most` is never exceeded; `target` is the latency of one delete command to come close to.
    pub fn new(most: u32, target: Duration) -> Self {
        Self { size: FIRST_BATCH.min(most), most, target }
    }

    /// Documents that the next batch may take at most; at least 1.
    pub fn next(&self) -> u32 {
        self.size
    }

    /// Learns from a batch of `documents` that took `latency`: doubles below half of the target, shrinks in proportion above it.
    ///
    /// A batch that was cut short by a limit says little and lets the size only shrink.
    pub fn observe(&mut self, documents: u32, latency: Duration) {
        if latency > self.target {
            let ratio = self.target.as_secs_f64() / latency.as_secs_f64();
            // A cast from float saturates; the fraction is dropped on the side of the smaller batch.
            self.size = ((f64::from(documents) * ratio) as u32).clamp(1, self.size);
        } else if latency < self.target / 2 && documents >= self.size {
            self.size = self.size.saturating_mul(2).min(self.most);
        }
    }
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

    /// Documents a batch may take at most, so that batches come several times a second.
    pub fn batch_limit(&self) -> u32 {
        (self.rate / 5).max(1)
    }

    /// Lets `documents` through and says how long they have to wait. `now` is the time since the run began; it never goes back.
    pub fn reserve(&mut self, documents: u64, now: Duration) -> Duration {
        // Time that passed unused is not saved up: a pause is not followed by a burst.
        let start = self.free_at.max(now);
        self.free_at = start + self.cost(documents);
        start - now
    }

    /// Replaces documents that were let through by how many they really were: fewer come back, more are paid for.
    pub fn correct(&mut self, reserved: u64, real: u64) {
        self.free_at = (self.free_at + self.cost(real)).saturating_sub(self.cost(reserved));
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
        let mut size = BatchSize::new(2000, MS(200));
        let mut sizes = vec![size.next()];
        for (documents, latency) in [(500, 20), (1000, 40), (2000, 90), (2000, 400), (1000, 150), (1000, 10_000), (20, 1)] {
            size.observe(documents, MS(latency));
            sizes.push(size.next());
        }
        assert_eq!(sizes, [500, 1000, 2000, 2000, 1000, 1000, 20, 40]);

        let mut size = BatchSize::new(3, MS(1));
        assert_eq!(size.next(), 3);
        size.observe(3, Duration::from_secs(3600));
        assert_eq!(size.next(), 1);
        size.observe(1, MS(0));
        size.observe(2, MS(0));
        assert_eq!(size.next(), 3);
    }

    #[test]
    fn a_short_batch_does_not_let_the_size_grow() {
        let mut size = BatchSize::new(2000, MS(200));
        size.observe(3, MS(1));
        assert_eq!(size.next(), 500);
    }

    #[test]
    fn the_rate_holds_over_any_stretch_and_pauses_are_not_saved_up() {
        let mut limit = RateLimit::new(1000);
        assert_eq!(limit.batch_limit(), 200);
        let mut now = Duration::ZERO;
        let mut let_through = 0;
        for _ in 0..50 {
            now += limit.reserve(200, now);
            let_through += 200;
            // What is let through by now was allowed: the rate's share of the time, and the one batch that starts now.
            assert!(f64::from(let_through) <= now.as_secs_f64() * 1000.0 + 200.0 + 1e-6);
        }
        assert_eq!(now, MS(9800));
        now += Duration::from_secs(3600);
        assert_eq!(limit.reserve(200, now), MS(0));
        assert_eq!(limit.reserve(200, now), MS(200));
        assert_eq!(RateLimit::new(1).batch_limit(), 1);

        let mut limit = RateLimit::new(1000);
        assert_eq!(limit.reserve(200, MS(0)), MS(0));
        limit.correct(200, 50);
        assert_eq!(limit.reserve(200, MS(0)), MS(50));
        limit.correct(200, 300);
        assert_eq!(limit.reserve(1, MS(0)), MS(350));
    }
}
