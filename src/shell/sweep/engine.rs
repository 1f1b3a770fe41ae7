//! The loop of one rule: waits until a batch may go, takes it from the source, starts it, and records the batches that have
//! finished.

mod admission;
mod further_passes;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::task::{JoinError, JoinSet};

use super::batch::attempts::BatchResult;
use super::batch::send::Sent;
use super::batch::{self, FinishedBatch};
use super::budget::Permit;
use super::gates::{CHECK_INTERVAL, EndedBatch, Gates};
use super::sources::Source;
use super::sources::date_stretches::first_batch;
use super::{NextBatch, RuleSweep, RunContext, stop_reason, stopped};
use crate::base::{machine, watch};
use crate::core::pace::{BatchTiming, Pace};
use crate::core::plan::StopReason;
use crate::core::plan::outcome::{End, FixedLatency, Outcome};
use crate::core::plan::waits::{Wait, Waited};
use crate::core::policy::limits::Limits;
use crate::shell::server::delete::DeleteError;
use crate::shell::server::delete::restriction::Restriction;
use admission::concurrency;

/// Maximum time to look what became of the collections of a sweep that has failed, or has to end.
const MAX_LAST_LOOK: Duration = Duration::from_secs(3);

/// A batch that may be sent at once.
pub(super) struct Admitted {
    pub restriction: Box<Restriction>,
    /// Maximum number of its documents at the time it was made.
    pub asked: u64,
    permit: Permit,
}

/// The state of one rule's loop.
pub(super) struct Engine<'a> {
    pub(super) sweep: Arc<RuleSweep>,
    pub(super) run: RunContext<'a>,
    concurrency: usize,
    /// Sees when limits are replaced while the sweep runs.
    replaced: watch::Receiver<BTreeMap<String, Limits>>,
    pace: Pace,
    pub(super) gates: Gates<'a>,
    /// Documents that the rule may still ask for.
    pub(super) allowance: Option<u64>,
    in_flight: JoinSet<FinishedBatch>,
    /// Whether a batch was not sent as a whole, or the reply to a delete was no longer waited for.
    gave_up: bool,
    /// Whether the last batch was done, and every reply to it came.
    pub(super) is_settled: bool,
    /// Whether fewer documents were deleted than batches were made of, in the pass that is under way.
    is_short: bool,
}

impl<'a> Engine<'a> {
    pub(super) fn new(sweep: Arc<RuleSweep>, run: RunContext<'a>) -> Self {
        // First, so that no change falls between the two.
        let replaced = run.budget.replaced();
        let limits = sweep.rule.limits.clone();
        let max = sweep.rule.sizes.batch;
        let mut engine = Self {
            run,
            concurrency: concurrency(&sweep, &limits),
            replaced,
            pace: Pace::new(first_batch(&sweep), max, limits.target_batch),
            allowance: limits.max_deletes,
            gates: Gates::open(&sweep, run, limits, max),
            in_flight: JoinSet::new(),
            gave_up: false,
            is_settled: false,
            is_short: false,
            sweep,
        };
        engine.set_limits();
        engine
    }

    /// Sweeps a rule without children.
    pub(super) async fn run(mut self, permit: Permit) -> Outcome {
        let swept = self.start_batches(permit).await;
        self.end(swept).await;
        self.into_outcome().await
    }

    async fn start_batches(&mut self, permit: Permit) -> Result<(), End> {
        let sweep = self.sweep.clone();
        if sweep.nothing_expired {
            return self.check_stop();
        }
        let mut source = self.open(&sweep, permit, false).await?;
        self.start_batches_of(&mut source).await?;
        if sweep.deployment.facts.is_behind_router() {
            self.sweep_what_moved(&sweep).await?;
        }
        Ok(())
    }

    /// Ends the sweep, once the last batch was started, or it came to its end earlier.
    pub(super) async fn end(&mut self, started: Result<(), End>) {
        let mut stopped = None;
        let end = match started {
            Ok(()) => match self.finish_batches().await {
                Err(end @ (End::Failed(_) | End::Partial(StopReason::LockLost))) => end,
                // Everything is in flight, so a request to stop makes the sweep partial only if a batch is given up.
                finished => {
                    stopped = finished.err();
                    End::Complete
                }
            },
            Err(end) => end,
        };
        self.outcome().end = end;
        self.wait_for_last().await;
        let mut outcome = self.outcome();
        if let (true, End::Complete, Some(end)) = (self.gave_up, &outcome.end, stopped) {
            outcome.end = end;
        }
    }

    /// Returns the outcome of a sweep that has ended.
    pub(super) async fn into_outcome(mut self) -> Outcome {
        self.look_at_collections().await;
        let outcome = self.sweep.outcome_by_now();
        Outcome { fixed_latency: self.decisive_fixed_latency(&outcome.paused), ..outcome }
    }

    /// Returns what became of the rule by now, without its children.
    pub(super) fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.sweep.outcome.lock()
    }

    /// Waits for the batches in flight, because their deletes belong in the counts. They are not sent again.
    pub(super) async fn wait_for_last(&mut self) {
        self.sweep.end();
        while let Some(finished) = self.in_flight.join_next().await {
            if let Err(end) = self.record(finished) {
                let mut outcome = self.outcome();
                if !matches!(outcome.end, End::Failed(_)) {
                    outcome.end = end;
                }
            }
        }
    }

    /// Fails the sweep if a collection that it is bound to is gone or another one by now. Where the server looks itself, that is
    /// only asked to say why the sweep has failed.
    async fn look_at_collections(&mut self) {
        let (sweep, RunContext { budget, stop, .. }) = (self.sweep.clone(), self.run);
        let end = self.outcome().end.clone();
        let failed = match &end {
            End::Failed(why) => Some(why.clone()),
            end if end.is_over() && !sweep.binding.is_by_server() => None,
            End::Complete | End::Partial(_) => return,
        };
        // A run that has to end waits a little, and then says that it was not looked.
        let given_up = async {
            let reason = match &failed {
                Some(_) => None,
                None => Some(stopped(&sweep.rule, budget, stop).await),
            };
            tokio::time::sleep(MAX_LAST_LOOK).await;
            reason
        };
        let changed = tokio::select! {
            biased;
            changed = sweep.binding.changed() => changed,
            reason = given_up => {
                self.outcome().end = reason.map_or(end, End::Partial);
                return;
            }
        };
        let mut outcome = self.outcome();
        outcome.is_collection_gone = matches!(changed, Ok(Some(_)));
        outcome.end = match (changed, failed) {
            (Ok(Some(changed)), Some(why)) if !why.starts_with(&changed) => End::Failed(format!("{changed}: {why}")),
            (Ok(Some(changed)), None) => End::Failed(changed),
            (Err(why), None) => End::Failed(why),
            (Ok(_) | Err(_), Some(why)) => End::Failed(why),
            (Ok(None), None) => return,
        };
    }

    /// Returns the fixed part of the latency, if neither the documents nor a pause for another reason decided the speed.
    fn decisive_fixed_latency(&self, paused: &Waited) -> Option<FixedLatency> {
        let has_other = Wait::ALL.into_iter().any(|wait| wait != Wait::Latency && !paused[wait].is_zero());
        let latency = self.pace.decisive_fixed_latency().filter(|_| !has_other)?;
        Some(FixedLatency { latency, batch_size: self.pace.max_batch_size(), concurrency: self.concurrency })
    }

    /// Opens the source of the batches; `by_ids` asks for one whose batches are lists of `_id`s.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    pub(super) async fn open<'s>(&mut self, sweep: &'s RuleSweep, permit: Permit, by_ids: bool) -> Result<Source<'s>, End> {
        self.check_stop()?;
        let rate = self.run.budget.slowest_rate(self.run.budget.limits_of(&sweep.rule).rate);
        // Once archived, the documents of a range may have to be deleted by their `_id`s, which do not lead to a shard.
        let by_ids = by_ids || self.has_delete_limit() || sweep.archive.is_some() && !sweep.rule.selection.shard_key.is_empty();
        for keys in sweep.keys.iter() {
            self.wait(keys.fresh()).await?.map_err(End::Failed)?;
        }
        let limits = [sweep.rule.limits.max_deletes, self.run.budget.max_deletes()];
        let max_deletes = limits.into_iter().flatten().min();
        let source = self.wait(Source::open(sweep, rate, by_ids, max_deletes)).await?.map_err(End::Failed)?;
        drop(permit);
        Ok(source)
    }

    /// Starts the batches of a source until nothing is left.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    pub(super) async fn start_batches_of(&mut self, source: &mut Source<'_>) -> Result<(), End> {
        while let Some(batch) = self.next(source).await? {
            self.start(batch);
        }
        Ok(())
    }

    /// Waits until a batch may go, and takes it from a source; `None` if nothing is left.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    pub(super) async fn next(&mut self, source: &mut Source<'_>) -> Result<Option<Admitted>, End> {
        loop {
            self.take_limits();
            // Find the next batch while earlier ones are in flight, but only without a limit or a rate and once the server has
            // proved fast. Otherwise find it just before sending, so that no writer can add to it and its size is current.
            let (permit, room) = match self.gates.ask(self.room(false)) {
                Ok(room) if room.reads_ahead && !self.in_flight.is_empty() => (None, room),
                Ok(_) | Err(_) => self.admit(None).await.map(|(permit, room)| (Some(permit), room))?,
            };
            self.check_stop()?;
            let reserved = self.run.budget.reserve(room.documents());
            if reserved == 0 {
                drop(permit);
                if self.wait_for_refund().await? {
                    continue;
                }
                return self.end_at_limit(source).await.map(|()| None);
            }
            let Some((restriction, asked)) = self.take(source, reserved).await? else { return Ok(None) };
            // Gates may have closed meanwhile.
            let admitted = self.admit(permit).await;
            if admitted.is_err() {
                self.run.budget.settle(asked, 0);
            }
            let (permit, _) = admitted?;
            return Ok(Some(Admitted { restriction, asked, permit }));
        }
    }

    /// Starts a batch.
    pub(super) fn start(&mut self, batch: Admitted) {
        let Admitted { restriction, asked, permit } = batch;
        self.gates.sent(asked);
        let paused = self.outcome().paused[Wait::PauseFile];
        self.in_flight.spawn(machine::here(batch::run(self.sweep.clone(), restriction, asked, permit, paused)));
    }

    /// Takes the next batch from the source and charges it to the limits; `None` if no document is left. Gives back the part of
    /// the reservation that the batch does not need.
    async fn take(&mut self, source: &mut Source<'_>, reserved: u64) -> Result<Option<(Box<Restriction>, u64)>, End> {
        let taken = loop {
            match self.wait(source.take(reserved)).await {
                Ok(Ok(NextBatch::AfterOthers)) => match self.finish_batches().await {
                    Ok(()) => {}
                    Err(end) => break Err(end),
                },
                taken => break taken,
            }
        };
        let asked = if let Ok(Ok(NextBatch::Batch { documents, .. })) = &taken { *documents } else { 0 };
        self.run.budget.give_back(reserved.saturating_sub(asked));
        let NextBatch::Batch { restriction, .. } = taken?.map_err(End::Failed)? else { return Ok(None) };
        self.gates.taken(asked);
        self.allowance = self.allowance.map(|left| left.saturating_sub(asked));
        Ok(Some((restriction, asked)))
    }

    /// Ends the sweep once the delete limit is used up. If no document is left, the end is not a partial one.
    async fn end_at_limit(&mut self, source: &mut Source<'_>) -> Result<(), End> {
        match self.wait(source.take(0)).await?.map_err(End::Failed)? {
            NextBatch::Exhausted => Ok(()),
            NextBatch::More | NextBatch::AfterOthers | NextBatch::Batch { .. } => Err(End::Partial(StopReason::MaxDeletes)),
        }
    }

    pub(super) fn check_stop(&self) -> Result<(), End> {
        match stop_reason(&self.sweep.rule, self.run.budget, self.run.stop) {
            Some(reason) => Err(End::Partial(reason)),
            None => Ok(()),
        }
    }

    /// Awaits a future that only waits or reads, and records the batches that finish meanwhile.
    ///
    /// Errors: the end of the sweep, if the rule may not go on.
    pub(super) async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Result<T, End> {
        let (sweep, RunContext { budget, stop, .. }) = (self.sweep.clone(), self.run);
        let stopped = stopped(&sweep.rule, budget, stop);
        tokio::pin!(future, stopped);
        loop {
            // What has happened is recorded before anything new begins. No branch starves another: batches in flight are few, and
            // none is added meanwhile.
            tokio::select! {
                biased;
                Some(finished) = self.in_flight.join_next() => self.record(finished)?,
                reason = &mut stopped => return Err(End::Partial(reason)),
                output = &mut future => return Ok(output),
            }
        }
    }

    pub(super) async fn finish_batches(&mut self) -> Result<(), End> {
        while !self.in_flight.is_empty() {
            self.join_next().await?;
        }
        Ok(())
    }

    /// Waits for a batch to finish; under `maxLag`, no longer than until the next look at the lag.
    async fn join_next(&mut self) -> Result<(), End> {
        let (sweep, RunContext { budget, stop, .. }) = (self.sweep.clone(), self.run);
        tokio::select! {
            biased;
            Some(finished) = self.in_flight.join_next() => self.record(finished),
            reason = stopped(&sweep.rule, budget, stop) => Err(End::Partial(reason)),
            () = tokio::time::sleep(CHECK_INTERVAL), if sweep.lag.is_bound() => Ok(()),
        }
    }

    /// Records a batch that has finished.
    ///
    /// Errors: the end of the sweep, if the batch has failed for good.
    fn record(&mut self, finished: Result<FinishedBatch, JoinError>) -> Result<(), End> {
        let finished = finished.map_err(|panic| End::Failed(format!("an internal error while deleting: {panic}")))?;
        let FinishedBatch { asked, paused_before, archived, sent } = finished;
        let Sent { is_sent, is_cut_short, out_of_lease, latency, result } = sent;
        let (sweep, budget) = (self.sweep.clone(), self.run.budget);
        let mut outcome = sweep.outcome.lock();
        self.is_settled = is_sent && !is_cut_short && !result.uncertain && result.error.is_none();
        outcome.archived.add(&archived);
        // The rule has counted its own wait for the same file already.
        let pause_file = &mut outcome.paused[Wait::PauseFile];
        *pause_file = (*pause_file).max(paused_before + result.paused);
        self.gave_up |= is_cut_short;
        if !is_sent {
            budget.settle(asked, 0);
            self.gates.ended(&EndedBatch { asked, gone: 0, latency: None, rest: Duration::ZERO });
            return match result.error {
                _ if out_of_lease => Err(End::Partial(StopReason::LockLost)),
                Some(error) => Err(End::Failed(error.message)),
                None => Ok(()),
            };
        }
        let BatchResult { deleted, unconfirmed, uncertain, error, overloaded_after, throttled, .. } = result;
        outcome.deleted += deleted;
        outcome.unconfirmed += if sweep.weak_write_concern().is_some() { deleted } else { unconfirmed };
        outcome.batches += 1;
        outcome.uncertain |= uncertain;
        self.is_short |= deleted + archived.incomparable < asked;
        if !sweep.is_of_children {
            self.run.progress.deleted(deleted);
        }
        self.pace.set_gentle(self.gates.is_cramped());
        self.pace.record(&BatchTiming { documents: asked, latency, overloaded_after });
        outcome.paused[Wait::Throttle] += throttled;
        // After a lost reply the number of deletes is unknown, so nothing is refunded.
        let gone = if uncertain { asked.max(deleted) } else { deleted };
        self.allowance = self.allowance.map(|left| (left + asked).saturating_sub(gone));
        budget.settle(asked, gone);
        self.gates.ended(&EndedBatch { asked, gone, latency, rest: self.pace.rest() });
        self.gave_up |= error.as_ref().is_some_and(|error| error.given_up);
        match error {
            _ if out_of_lease => Err(End::Partial(StopReason::LockLost)),
            Some(DeleteError { given_up: true, .. } | DeleteError { confirmation_cut: true, .. }) => Ok(()),
            Some(error) if !(error.confirmation_timed_out && sweep.lag.is_bound()) => Err(End::Failed(error.message)),
            // A batch that lacks only its confirmation is not sent again once the sweep ends, and does not count as a failure.
            // Neither does one that is given up, because the end of the sweep has a reason of its own.
            _ => Ok(()),
        }
    }
}
