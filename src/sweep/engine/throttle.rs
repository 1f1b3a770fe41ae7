//! Holds a rule back before a batch: for the server's latency, its members, its oplog, the rates, and a permit of the run.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::super::budget::Permit;
use super::Engine;
use crate::report::outcome::{End, Paused};

/// Time between two looks at the lag of the members, and at the oplog.
pub(super) const LAG_CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Engine<'_> {
    /// Waits until a batch may be sent.
    pub(super) async fn acquire(&mut self) -> Result<Permit, End> {
        loop {
            self.hold_back().await?;
            if self.in_flight.len() >= self.concurrency {
                self.join_next().await?;
                continue;
            }
            let permit = self.wait(self.run.budget.acquire()).await?;
            // Batches that finished meanwhile may have changed the pace, the lag or the charges.
            if self.rest().is_zero() && self.behind().is_none() && self.too_short().is_none() && self.wait_for_units().is_zero() {
                return Ok(permit);
            }
        }
    }

    /// Waits for everything that concerns only this rule, without a permit, so that other rules take their turns.
    async fn hold_back(&mut self) -> Result<(), End> {
        let rest = self.rest();
        if !rest.is_zero() {
            let why = format!("the server is slower than {} ms per batch", self.sweep.rule.limits.target_batch.as_millis());
            self.pause(&why, rest, |paused| &mut paused.latency).await?;
        }
        let mut said = false;
        while let Some(why) = self.behind() {
            if !said {
                let namespace = &self.sweep.rule.namespace;
                warn!(%namespace, "{namespace}: waiting: {why}");
                said = true;
            }
            self.pause(&why, LAG_CHECK_INTERVAL, |paused| &mut paused.lag).await?;
        }
        let mut said = false;
        while let Some(why) = self.too_short() {
            if !said {
                let namespace = &self.sweep.rule.namespace;
                warn!(%namespace, "{namespace}: waiting: {why}");
                said = true;
            }
            self.pause(&why, LAG_CHECK_INTERVAL, |paused| &mut paused.oplog).await?;
        }
        let wait = self.rate.as_ref().map_or(Duration::ZERO, |rate| rate.wait(self.run.budget.elapsed()));
        if !wait.is_zero() {
            self.pause("rate", wait, |paused| &mut paused.rate).await?;
        }
        let wait = self.wait_for_units();
        if !wait.is_zero() {
            self.pause("request units", wait, |paused| &mut paused.throttle).await?;
        }
        self.run.progress.waits(None);
        Ok(())
    }

    /// Waits until the run's rate allows a batch.
    pub(super) async fn wait_for_rate_of_run(&mut self) -> Result<(), End> {
        loop {
            let wait = self.run.budget.rate_wait();
            if wait.is_zero() {
                self.run.progress.waits(None);
                return Ok(());
            }
            self.pause("rate", wait, |paused| &mut paused.rate).await?;
        }
    }

    /// Returns the time to wait for room at the service, and for the limit of request units.
    fn wait_for_units(&self) -> Duration {
        let namespace = &self.sweep.rule.selection.namespace;
        self.sweep.deployment.wait_to_find(namespace, self.max_documents())
    }

    /// Returns the time until the next batch may begin.
    fn rest(&self) -> Duration {
        self.rests_until.saturating_duration_since(Instant::now())
    }

    /// Returns the reason to wait for the members; `None` if there is none.
    fn behind(&self) -> Option<String> {
        self.sweep.lag.as_ref()?.behind()
    }

    /// Returns the reason to wait for the oplog; `None` if there is none.
    fn too_short(&self) -> Option<String> {
        self.sweep.oplog.as_ref()?.too_short()
    }

    /// Waits for a time, and adds it to the pauses of the outcome and, with the reason, to the progress shown. The caller removes
    /// the reason.
    async fn pause(&mut self, why: &str, length: Duration, of: fn(&mut Paused) -> &mut Duration) -> Result<(), End> {
        let begun = Instant::now();
        self.run.progress.waits(Some(why));
        let waited = self.wait(tokio::time::sleep(length)).await;
        *of(&mut self.outcome.paused) += begun.elapsed();
        waited
    }
}
