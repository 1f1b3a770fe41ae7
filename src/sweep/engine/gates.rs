//! What a rule waits for before a batch may be sent.

use std::time::{Duration, Instant};

use tracing::warn;

use super::super::budget::Turn;
use super::Engine;
use crate::report::outcome::{End, Paused};

/// How often a gate is tried that only the members of the set can open.
pub const TRY_GATE: Duration = Duration::from_millis(200);

impl Engine<'_> {
    /// Waits until a batch may be sent.
    pub(super) async fn turn(&mut self) -> Result<Turn, End> {
        loop {
            self.hold_back().await?;
            if self.in_flight.len() >= self.concurrency {
                self.land_next().await?;
                continue;
            }
            let turn = self.wait(self.job.budget.turn()).await?;
            // Meanwhile others may have come back, with news.
            if self.rest().is_zero() && self.behind().is_none() && self.wait_for_units().is_zero() {
                return Ok(turn);
            }
        }
    }

    /// Waits for whatever the rule itself has to wait for, while other rules have their turns.
    async fn hold_back(&mut self) -> Result<(), End> {
        let rest = self.rest();
        if !rest.is_zero() {
            let why = format!("the server is slower than {} ms per batch", self.job.rule.limits.target_batch.as_millis());
            self.pause(&why, rest, |paused| &mut paused.latency).await?;
        }
        let mut said = false;
        while let Some(why) = self.behind() {
            if !said {
                let namespace = &self.job.rule.namespace;
                warn!(%namespace, "{namespace}: waiting: {why}");
                said = true;
            }
            self.pause(&why, TRY_GATE, |paused| &mut paused.lag).await?;
        }
        let wait = self.rate.as_ref().map_or(Duration::ZERO, |rate| rate.wait(self.job.budget.elapsed()));
        if !wait.is_zero() {
            self.pause("rate", wait, |paused| &mut paused.rate).await?;
        }
        let wait = self.wait_for_units();
        if !wait.is_zero() {
            self.pause("request units", wait, |paused| &mut paused.throttle).await?;
        }
        self.job.progress.waits(None);
        Ok(())
    }

    pub(super) async fn wait_for_rate_of_run(&mut self) -> Result<(), End> {
        loop {
            let wait = self.job.budget.rate_wait();
            if wait.is_zero() {
                self.job.progress.waits(None);
                return Ok(());
            }
            self.pause("rate", wait, |paused| &mut paused.rate).await?;
        }
    }

    /// Takes in what requests have cost since this was last done.
    pub(super) fn count_charges(&mut self) {
        if !self.job.deployment.facts.capabilities.request_charge {
            return;
        }
        let spent = self.job.charges.take();
        *self.outcome.request_units.get_or_insert(0.0) += spent;
        if let Some(units) = &mut self.units {
            // A fraction of a unit counts as a whole one; a cast from float saturates.
            units.pay(spent.ceil() as u64, self.job.budget.elapsed());
        }
    }

    /// How long the request units that were spent have to be waited for.
    fn wait_for_units(&mut self) -> Duration {
        self.count_charges();
        self.units.as_ref().map_or(Duration::ZERO, |units| units.wait(self.job.budget.elapsed()))
    }

    fn rest(&self) -> Duration {
        self.rests_until.saturating_duration_since(Instant::now())
    }

    fn behind(&self) -> Option<String> {
        self.aim.lag.as_ref()?.behind()
    }

    /// Waits for so long; the caller says when the rule does not wait any more.
    async fn pause(&mut self, why: &str, length: Duration, of: fn(&mut Paused) -> &mut Duration) -> Result<(), End> {
        let begun = Instant::now();
        self.job.progress.waits(Some(why));
        let waited = self.wait(tokio::time::sleep(length)).await;
        *of(&mut self.outcome.paused) += begun.elapsed();
        waited
    }
}
