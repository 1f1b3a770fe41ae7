//! Waits until a batch may go: for all gates, for room among the batches in flight, and for a permit of the run. Takes over
//! limits that are replaced meanwhile.

use tokio::time::Instant;

use super::super::batch::archived;
use super::super::budget::Permit;
use super::super::gates::{Closed, Room};
use super::Engine;
use crate::core::plan::outcome::End;
use crate::core::policy::limits::Limits;
use crate::shell::sweep::RuleSweep;

impl Engine<'_> {
    /// Takes over limits that were replaced since the last look.
    pub(super) fn take_limits(&mut self) {
        if self.replaced.borrow_and_update().has_changed() {
            self.set_limits();
        }
    }

    /// Sets pace and gates by the limits that hold now.
    pub(super) fn set_limits(&mut self) {
        let Some(limits) = self.run.budget.replaced_limits_of(&self.sweep.rule) else { return };
        let max = self.sweep.max_batch(&limits);
        self.concurrency = concurrency(&self.sweep, &limits);
        self.pace.set_limits(max, limits.target_batch);
        self.gates.set_limits(limits, max);
    }

    /// Returns the room for the next batch before any gate is asked.
    pub(super) fn room(&self, has_turn: bool) -> Room {
        let sweep = &self.sweep;
        let of_archive = sweep.archive.as_ref().and_then(|_| archived::batch_limit(&sweep.rule.selection));
        // Without cursors every page is charged, and a service that is too busy for a delete is too busy for a page.
        let has_cursors = sweep.deployment.facts.capabilities.cursors;
        let is_fast = self.outcome().batches > 0 && self.pace.rest().is_zero();
        Room {
            size: self.pace.batch_size(),
            limit: [of_archive, self.allowance].into_iter().flatten().min().unwrap_or(u64::MAX),
            batches: self.concurrency,
            reads_ahead: !self.has_delete_limit() && has_cursors && is_fast,
            has_turn,
            gentle_size: self.pace.gentle_size(),
        }
    }

    /// Whether a delete limit applies. A batch must then not include documents that others insert into its range during the
    /// delete.
    pub(super) fn has_delete_limit(&self) -> bool {
        self.allowance.is_some() || self.run.budget.max_deletes().is_some()
    }

    /// Waits, once the delete limit is used up, until a batch may have returned part of it. Returns false if no batch can.
    pub(super) async fn wait_for_refund(&mut self) -> Result<bool, End> {
        if !self.in_flight.is_empty() {
            self.join_next().await?;
            return Ok(true);
        }
        let budget = self.run.budget;
        match budget.returned() {
            Some(returned) => self.wait(returned).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Waits until a batch may be sent. Returns only if nothing was waited for since all gates were asked.
    pub(super) async fn admit(&mut self, mut permit: Option<Permit>) -> Result<(Permit, Room), End> {
        loop {
            self.take_limits();
            match self.gates.ask(self.room(permit.is_some())) {
                Err(closed) => {
                    // Other rules take their turns meanwhile.
                    permit = permit.filter(|_| closed.keeps_turn);
                    self.hold_back(&closed).await?;
                }
                Ok(room) => {
                    if let Some(look) = self.gates.look() {
                        let took = self.wait(look).await?.map_err(End::Failed)?;
                        self.gates.looked(took);
                        continue;
                    }
                    self.run.progress.waits(None);
                    if self.in_flight.len() >= room.batches {
                        permit = None;
                        self.join_next().await?;
                        continue;
                    }
                    match permit {
                        Some(permit) => return Ok((permit, room)),
                        None => permit = Some(self.wait(self.run.budget.acquire()).await?),
                    }
                }
            }
        }
    }

    /// Waits until the gates are to be asked again, and counts the time under the one that is closed.
    async fn hold_back(&mut self, closed: &Closed) -> Result<(), End> {
        let begun = Instant::now();
        self.run.progress.waits(Some((closed.wait.name(), &closed.why)));
        // Other limits may open the gate.
        let mut replaced = self.replaced.clone();
        let again = async {
            let _ = tokio::time::timeout(closed.again, replaced.changed()).await;
        };
        let waited = self.wait(again).await;
        self.outcome().paused[closed.wait] += begun.elapsed();
        waited
    }
}

/// Returns the number of a rule's batches that may be in flight.
pub(super) fn concurrency(sweep: &RuleSweep, limits: &Limits) -> usize {
    usize::try_from(sweep.rule.concurrency(limits, &sweep.deployment.facts.capabilities)).unwrap_or(1)
}
