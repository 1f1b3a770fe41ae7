//! The loop of one rule: waits until a batch may go, takes it from the source, sends it, learns from how it went.

mod gates;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::archived;
use super::attempts::Tally;
use super::batch::{self, Aim, Landed, Sent};
use super::budget::Turn;
use super::lag_gate::{self, LagGate};
use super::source::{Source, Taken};
use super::{Job, stop_reason, stopped};
use crate::pace::{Pace, RateLimit};
use crate::plan::StopReason;
use crate::report::outcome::{Archived, End, Outcome, Paused};
use gates::TRY_GATE;

pub struct Engine<'a> {
    job: &'a Job<'a>,
    aim: Arc<Aim>,
    /// Dropped when the sweep ends, so that nothing is sent again.
    going_on: watch::Sender<()>,
    concurrency: usize,
    pace: Pace,
    /// No batch begins before.
    rests_until: Instant,
    rate: Option<RateLimit>,
    /// Request units.
    units: Option<RateLimit>,
    /// Documents that the rule may still ask for.
    allowance: Option<u64>,
    in_flight: JoinSet<Landed>,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    pub fn new(job: &'a Job<'a>) -> Self {
        let limits = &job.rule.limits;
        let capabilities = &job.deployment.facts.capabilities;
        let lag = limits.max_lag.and_then(|most| LagGate::new(most, job.lag)).map(Arc::new);
        let (going_on, ended) = watch::channel(());
        Self {
            job,
            aim: Arc::new(Aim {
                deployment: job.deployment.clone(),
                namespace: job.rule.namespace.clone(),
                selection: job.rule.selection.clone(),
                write_concern: lag_gate::write_concern(&job.deployment.write_concern, lag.as_deref(), job.lag),
                grant: job.grant.clone(),
                lag,
                charges: job.charges.clone(),
                lease: job.budget.leases().of(&job.rule.namespace).cloned(),
                archive: job.archive.cloned(),
                ended,
            }),
            going_on,
            concurrency: usize::try_from(limits.concurrency.unwrap_or(capabilities.concurrency)).unwrap_or(1),
            pace: Pace::new(capabilities.first_batch, limits.batch_size.min(capabilities.largest_batch), limits.target_batch),
            rests_until: Instant::now(),
            rate: limits.rate.map(RateLimit::new),
            units: limits.max_request_units.filter(|_| capabilities.request_charge).map(RateLimit::new),
            allowance: limits.max_deletes,
            in_flight: JoinSet::new(),
            outcome: Outcome {
                deleted: 0,
                batches: 0,
                uncertain: false,
                unconfirmed: 0,
                request_units: None,
                paused: Paused::default(),
                archived: Archived::default(),
                end: End::Complete,
            },
        }
    }

    pub async fn run(mut self, turn: Turn) -> Outcome {
        self.outcome.end = match self.send_all(turn).await {
            Ok(()) => match self.land_all().await {
                Err(end @ (End::Failed(_) | End::Partial(StopReason::LockLost))) => end,
                // All is sent: whether it is done the last batches will say.
                _ => End::Complete,
            },
            Err(end) => end,
        };
        // What is in flight is always waited for: its documents are gone, and its counts belong into the report. But it is not sent again.
        self.going_on = watch::Sender::new(());
        while let Some(landed) = self.in_flight.join_next().await {
            if let Err(end) = self.land(landed)
                && !matches!(self.outcome.end, End::Failed(_))
            {
                self.outcome.end = end;
            }
        }
        self.count_charges();
        self.outcome
    }

    /// Sends batches until there is nothing left.
    ///
    /// Errors: the end, where it comes before.
    async fn send_all(&mut self, turn: Turn) -> Result<(), End> {
        let Job { rule, budget, stop, .. } = self.job;
        let slowest = budget.slowest_rate(rule.limits.rate);
        // Under a limit no document may go that others insert into a stretch while it is being deleted.
        let exact = self.allowance.is_some() || budget.has_delete_limit();
        // Without them every page is paid for, and a service that has no room for a delete has none for a page.
        let has_cursors = self.job.deployment.facts.capabilities.cursors;
        if let Some(reason) = stop_reason(rule, budget, stop) {
            return Err(End::Partial(reason));
        }
        // Once it is archived, what a stretch holds may have to be deleted by its `_id`s; they alone do not find the shard.
        let by_ids = exact || self.job.archive.is_some() && !self.job.rule.selection.shard_key.is_empty();
        let mut source = self.wait(Source::open(self.job, slowest, by_ids)).await?.map_err(End::Failed)?;
        drop(turn);
        loop {
            // While others are in flight the next batch is looked for; but under a limit or a rate, and while it is not known that the server is
            // fast, it is found when it may be sent: so that it is sent at once, before others can add to it, and in the size that is right by then.
            let may_read_ahead =
                !exact && slowest.is_none() && has_cursors && self.outcome.batches > 0 && self.pace.rest().is_zero();
            let reads_ahead = may_read_ahead && !self.in_flight.is_empty();
            let turn = if reads_ahead { None } else { Some(self.turn().await?) };
            self.wait_for_rate_of_run().await?;
            if let Some(reason) = stop_reason(rule, budget, stop) {
                return Err(End::Partial(reason));
            }
            let most = budget.reserve(self.most());
            if most == 0 {
                // What was asked for and not deleted comes back, so a spent limit is not the end yet.
                drop(turn);
                if !self.in_flight.is_empty() {
                    self.land_next().await?;
                    continue;
                } else if let Some(returned) = budget.returned() {
                    self.wait(returned).await?;
                    continue;
                }
                return match self.wait(source.take(0)).await?.map_err(End::Failed)? {
                    Taken::Exhausted => Ok(()),
                    Taken::More | Taken::Batch { .. } => Err(End::Partial(StopReason::MaxDeletes)),
                };
            }
            let taken = self.wait(source.take(most)).await;
            let asked = if let Ok(Ok(Taken::Batch { most, .. })) = &taken { *most } else { 0 };
            budget.give_back(most.saturating_sub(asked));
            let Taken::Batch { restriction, .. } = taken?.map_err(End::Failed)? else { return Ok(()) };
            if let Some(rate) = &mut self.rate {
                rate.pay(asked, budget.elapsed());
            }
            budget.pay(asked);
            self.allowance = self.allowance.map(|left| left.saturating_sub(asked));
            let turn = match turn {
                Some(turn) => turn,
                None => self.turn().await?,
            };
            self.in_flight.spawn(batch::run(self.aim.clone(), restriction, asked, turn));
        }
    }

    /// Documents that the next batch may take at most.
    fn most(&self) -> u64 {
        let of_rate = self.rate.as_ref().map(|rate| u64::from(rate.batch_limit()));
        let of_archive = self.job.archive.and_then(|_| archived::batch_limit(&self.job.rule.selection));
        let limits = [of_rate, of_archive, self.job.budget.rate_limit(), self.allowance];
        limits.into_iter().flatten().min().unwrap_or(u64::MAX).min(u64::from(self.pace.batch_size()))
    }

    /// Awaits something that only waits or reads, and takes in what comes back meanwhile.
    ///
    /// Errors: the end, where the rule may not go on.
    async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Result<T, End> {
        let Job { rule, budget, stop, .. } = self.job;
        let stopped = stopped(rule, budget, stop);
        tokio::pin!(future, stopped);
        loop {
            tokio::select! {
                output = &mut future => return Ok(output),
                reason = &mut stopped => return Err(End::Partial(reason)),
                Some(landed) = self.in_flight.join_next() => self.land(landed)?,
            }
        }
    }

    async fn land_all(&mut self) -> Result<(), End> {
        while !self.in_flight.is_empty() {
            self.land_next().await?;
        }
        Ok(())
    }

    /// Waits for a command to come back; under `maxLag` no longer than until it is time to look at the lag.
    async fn land_next(&mut self) -> Result<(), End> {
        let Job { rule, budget, stop, .. } = self.job;
        tokio::select! {
            Some(landed) = self.in_flight.join_next() => self.land(landed),
            reason = stopped(rule, budget, stop) => Err(End::Partial(reason)),
            () = tokio::time::sleep(TRY_GATE), if self.aim.lag.is_some() => Ok(()),
        }
    }

    /// Takes in one command that has come back.
    ///
    /// Errors: why it failed for good.
    fn land(&mut self, landed: Result<Landed, JoinError>) -> Result<(), End> {
        let landed = landed.map_err(|panic| End::Failed(format!("an internal error while deleting: {panic}")))?;
        self.outcome.archived.add(&landed.archived);
        let Sent { is_sent, latency, tally } = landed.sent;
        if !is_sent {
            self.job.budget.settle(landed.asked, 0);
            return Err(End::Partial(StopReason::LockLost));
        }
        let Tally { deleted, unconfirmed, uncertain, trouble, overloaded, throttled, .. } = tally;
        self.outcome.deleted += deleted;
        self.outcome.unconfirmed += unconfirmed;
        self.outcome.batches += 1;
        self.outcome.uncertain |= uncertain;
        self.job.progress.deleted(deleted);
        self.pace.learn(landed.asked, latency, overloaded);
        self.outcome.paused.throttle += throttled;
        self.rests_until = self.rests_until.max(Instant::now() + self.pace.rest());
        // After a lost reply nobody knows how many went: none of them come back.
        let gone = if uncertain { landed.asked.max(deleted) } else { deleted };
        self.allowance = self.allowance.map(|left| (left + landed.asked).saturating_sub(gone));
        self.job.budget.settle(landed.asked, gone);
        if let Some(rate) = &mut self.rate {
            rate.correct(landed.asked, gone);
        }
        self.job.budget.correct_rate(landed.asked, gone);
        match trouble {
            Some(trouble) if !(trouble.unconfirmed && self.aim.lag.is_some()) => Err(End::Failed(trouble.why)),
            // What is only not confirmed is not sent again once the sweep ends, and is no failure of it.
            _ => Ok(()),
        }
    }
}
