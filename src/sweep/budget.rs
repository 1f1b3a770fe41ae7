//! What a whole run may use: time, deletes and documents per second, over all its rules.

use std::time::{Duration, Instant};

use crate::pace::RateLimit;

#[derive(Debug)]
pub struct RunBudget {
    begun: Instant,
    max_duration: Option<Duration>,
    deletes_left: Option<u64>,
    rate: Option<(u32, RateLimit)>,
    concurrency: Option<u32>,
}

impl RunBudget {
    /// `None` is no limit. The duration counts from `begun`.
    pub fn new(
        begun: Instant,
        max_duration: Option<Duration>,
        max_deletes: Option<u64>,
        rate: Option<u32>,
        concurrency: Option<u32>,
    ) -> Self {
        let rate = rate.map(|rate| (rate, RateLimit::new(rate)));
        Self { begun, max_duration, deletes_left: max_deletes, rate, concurrency }
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub fn time_left(&self) -> Option<Duration> {
        self.max_duration.map(|limit| limit.saturating_sub(self.begun.elapsed()))
    }

    pub fn is_out_of_time(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// Documents that one batch may take at most.
    pub fn batch_limit(&self) -> Option<u64> {
        let by_rate = self.rate.as_ref().map(|(_, limit)| u64::from(limit.batch_limit()));
        [by_rate, self.deletes_left].into_iter().flatten().min()
    }

    /// Delete commands of one rule that may be in flight.
    pub fn concurrency(&self, of_rule: u32) -> usize {
        let least = self.concurrency.map_or(of_rule, |of_run| of_run.min(of_rule)).max(1);
        usize::try_from(least).unwrap_or(1)
    }

    /// The lower of the run's and the rule's rate.
    pub fn slowest_rate(&self, of_rule: Option<u32>) -> Option<u32> {
        [self.rate.as_ref().map(|(rate, _)| *rate), of_rule].into_iter().flatten().min()
    }

    /// Says how long this many documents have to wait for the run's rate.
    pub fn reserve(&mut self, documents: u64) -> Duration {
        let now = self.elapsed();
        self.rate.as_mut().map_or(Duration::ZERO, |(_, limit)| limit.reserve(documents, now))
    }

    /// Takes deletes that are about to be asked for; never more than [`Self::batch_limit`] said.
    pub fn take(&mut self, documents: u64) {
        self.deletes_left = self.deletes_left.map(|left| left.saturating_sub(documents));
    }

    /// Whether the run's deletes are limited at all.
    pub fn has_delete_limit(&self) -> bool {
        self.deletes_left.is_some()
    }

    /// Settles a batch that was asked for: what was not deleted comes back, what others inserted meanwhile goes off.
    pub fn settle(&mut self, asked: u64, deleted: u64) {
        self.deletes_left = self.deletes_left.map(|left| left.saturating_add(asked).saturating_sub(deleted));
    }

    /// Makes the run's rate count what really was, where it was reserved by what could be.
    pub fn correct_rate(&mut self, reserved: u64, real: u64) {
        if let Some((_, rate)) = &mut self.rate {
            rate.correct(reserved, real);
        }
    }
}
