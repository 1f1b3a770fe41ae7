//! Holds a rule back before a batch: for the pause file, the server's latency, its members, its oplog, its oldest document, the rates, and a permit of the run.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::super::budget::Permit;
use super::Engine;
use crate::core::pace::pressure::Pressure;
use crate::core::plan::outcome::End;
use crate::core::plan::waits::Wait;
use crate::shell::sweep::gates::pressure::PressureGate;

/// Time between two looks at the lag of the members, at the oplog, and for the pause file.
pub(super) const LAG_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Time between two looks at the server while it is spared: its dirty bytes can fall from the limit to almost none within a quarter of a second.
const PRESSURE_CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Time until an early look at the server is expected.
const NEXT_LOOK: Duration = Duration::from_millis(5);

/// Maximum time for which the gate stays closed unless the policy asks for it.
const MAX_CLOSED: Duration = Duration::from_secs(10);

impl Engine<'_> {
    /// Waits until a batch may be sent.
    pub(super) async fn acquire(&mut self) -> Result<Permit, End> {
        loop {
            self.hold_back().await?;
            if self.in_flight.len() >= self.concurrency_now() {
                self.join_next().await?;
                continue;
            }
            let permit = self.wait(self.run.budget.acquire()).await?;
            // Batches that finished meanwhile may have changed the pace, the lag or the charges, and a person may have made the file.
            if self.sweep.pause.reason().is_none()
                && self.rest().is_zero()
                && self.behind().is_none()
                && self.too_short().is_none()
                && self.time_to_spare().is_zero()
                && self.wait_for_units().is_zero()
            {
                return Ok(permit);
            }
        }
    }

    /// Waits for everything that concerns only this rule, without a permit, so that other rules take their turns.
    async fn hold_back(&mut self) -> Result<(), End> {
        // The file is logged once for all rules.
        while let Some(why) = self.sweep.pause.reason() {
            self.pause(&why, LAG_CHECK_INTERVAL, Wait::PauseFile).await?;
        }
        let rest = self.rest();
        if !rest.is_zero() {
            let why = format!("the server is slower than {} ms per batch", self.sweep.rule.limits.target_batch.as_millis());
            self.pause(&why, rest, Wait::Latency).await?;
        }
        self.wait_while(Self::behind, Wait::Lag).await?;
        self.wait_while(Self::too_short, Wait::Oplog).await?;
        self.wait_for_head().await?;
        self.wait_for_pressure().await?;
        let wait = self.rate.as_ref().map_or(Duration::ZERO, |rate| rate.wait(self.run.budget.elapsed()));
        if !wait.is_zero() {
            self.pause("rate", wait, Wait::Rate).await?;
        }
        let wait = self.wait_for_units();
        if !wait.is_zero() {
            self.pause("request units", wait, Wait::Throttle).await?;
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
            self.pause("rate", wait, Wait::Rate).await?;
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

    /// Waits as long as there is a reason, and logs the first one.
    async fn wait_while(&mut self, reason: fn(&Self) -> Option<String>, of: Wait) -> Result<(), End> {
        let mut said = false;
        while let Some(why) = reason(self) {
            if !said {
                self.warn_of_wait(&why);
                said = true;
            }
            self.pause(&why, LAG_CHECK_INTERVAL, of).await?;
        }
        Ok(())
    }

    /// Waits while the oldest document takes too long to find, and logs the first reason.
    async fn wait_for_head(&mut self) -> Result<(), End> {
        let sweep = self.sweep.clone();
        let Some(gate) = &sweep.head else { return Ok(()) };
        let mut said = false;
        while let Some((why, wait)) = self.wait(gate.closed(&sweep)).await?.map_err(End::Failed)? {
            if !said {
                self.warn_of_wait(&why);
                said = true;
            }
            self.pause(&why, wait, Wait::Head).await?;
        }
        Ok(())
    }

    fn warn_of_wait(&self, why: &str) {
        let namespace = &self.sweep.rule.namespace;
        warn!(%namespace, "{namespace}: waiting: {why}");
    }

    /// Waits while the server is at its limits, and otherwise for the rest that it needs.
    async fn wait_for_pressure(&mut self) -> Result<(), End> {
        let begun = Instant::now();
        let mut said = false;
        loop {
            let wait = self.time_to_spare();
            if wait.is_zero() {
                return Ok(());
            }
            let pressure = self.pressure();
            let why = pressure.as_ref().map_or("the last batches may have filled the server's cache", Pressure::why);
            let is_long = begun.elapsed() >= MAX_CLOSED;
            if is_long && !said {
                self.warn_of_wait(why);
                said = true;
            }
            if is_long && !self.sweep.pressure.as_ref().is_some_and(PressureGate::is_strict) {
                self.passes = true;
                return Ok(());
            }
            self.pause(why, wait, Wait::Pressure).await?;
        }
    }

    /// Returns the pressure on the server; `None` if there is none, or nothing is known.
    pub(super) fn pressure(&self) -> Option<Pressure> {
        self.sweep.pressure.as_ref()?.pressure()
    }

    /// Returns the time for which the server is to be left alone before it is looked at again.
    fn time_to_spare(&self) -> Duration {
        let Some(gate) = self.sweep.pressure.as_ref().filter(|_| !self.passes) else { return Duration::ZERO };
        let wait = match gate.pressure() {
            Some(pressure) if pressure.is_closed() => PRESSURE_CHECK_INTERVAL,
            _ if gate.is_used_up() => NEXT_LOOK,
            Some(pressure) => {
                // The pressure may be gone before the rest is over.
                let rested = |(ended, latency): (Instant, Duration)| pressure.rest(latency).saturating_sub(ended.elapsed());
                self.last_timed.map_or(Duration::ZERO, rested).min(PRESSURE_CHECK_INTERVAL)
            }
            None => Duration::ZERO,
        };
        if !wait.is_zero() {
            gate.ask_for_look();
        }
        wait
    }

    /// Returns the number of batches that may be in flight at the moment.
    fn concurrency_now(&self) -> usize {
        if self.pressure().is_some() || self.is_cramped() { 1 } else { self.concurrency }
    }

    /// Whether others use a cache that is full.
    pub(super) fn is_cramped(&self) -> bool {
        self.sweep.pressure.as_ref().is_some_and(PressureGate::is_cramped)
    }

    /// Waits for a time, and adds it to the pauses of the outcome and, with the reason, to the progress shown. The caller removes
    /// the reason.
    async fn pause(&mut self, why: &str, length: Duration, of: Wait) -> Result<(), End> {
        let begun = Instant::now();
        self.run.progress.waits(Some(why));
        let waited = self.wait(tokio::time::sleep(length)).await;
        self.outcome.paused[of] += begun.elapsed();
        waited
    }
}
