//! Sweeps one rule: candidates in, guarded delete commands out, until there is nothing left or a limit says stop.

mod budget;
mod candidates;
mod date_slices;
mod id_slices;
mod source;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tracing::{info, warn};

pub use budget::RunBudget;
use source::{Source, Taken};

use crate::pace::{BatchSize, RateLimit};
use crate::plan::{PlannedRule, Selection};
use crate::policy::namespace::Namespace;
use crate::progress::Progress;
use crate::server::Deployment;
use crate::server::delete::{self, Reply, Restriction, Trouble};
use crate::server::grant::DeleteGrant;
use crate::stop::Stop;

/// Waits before the same command is sent again; there are as many further tries as waits.
const RETRY_WAITS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// What a sweep of one rule came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Summed from the server's replies.
    pub deleted: u64,
    pub batches: u64,
    /// Whether a reply was lost: `deleted` is a lower bound.
    pub uncertain: bool,
    pub end: End,
}

#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// No candidate is left.
    Complete,
    /// At least one candidate is left, or could be.
    Partial(StopReason),
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    MaxDeletes,
    MaxDuration,
    Interrupted,
}

impl StopReason {
    pub fn word(self) -> &'static str {
        match self {
            StopReason::MaxDeletes => "maxDeletes",
            StopReason::MaxDuration => "maxDuration",
            StopReason::Interrupted => "interrupted",
        }
    }
}

/// What a sweep of one rule works with.
pub struct Job<'a> {
    pub deployment: &'a Deployment,
    pub planned: &'a PlannedRule,
    pub selection: &'a Selection,
    pub grant: &'a Arc<DeleteGrant>,
    pub progress: &'a Progress,
    pub stop: &'a Stop,
}

/// What every delete command of one rule is sent with.
struct Aim {
    deployment: Deployment,
    namespace: Namespace,
    selection: Selection,
    grant: Arc<DeleteGrant>,
    stop: Stop,
}

/// A delete command that has come back.
struct Landed {
    asked: u64,
    latency: Duration,
    reply: Reply,
    uncertain: bool,
}

/// Deletes what the selection finds, in one pass, oldest dates first where an index gives that order.
///
/// Never fails as a whole: what was deleted before an error is in the outcome beside it.
pub async fn sweep(job: &Job<'_>, budget: &mut RunBudget) -> Outcome {
    let mut sweep = Sweep::new(job);
    let end = sweep.run(budget).await;
    sweep.outcome.end = end.unwrap_or_else(End::Failed);
    // What is in flight is always waited for: its documents are gone, and its counts belong into the report.
    while !sweep.in_flight.is_empty() {
        if let Err(why) = sweep.land(budget).await
            && !matches!(sweep.outcome.end, End::Failed(_))
        {
            sweep.outcome.end = End::Failed(why);
        }
    }
    info!("{}: {} deleted in {} batches", job.planned.namespace, sweep.outcome.deleted, sweep.outcome.batches);
    sweep.outcome
}

/// The state of one rule's sweep.
struct Sweep<'a> {
    job: &'a Job<'a>,
    aim: Arc<Aim>,
    size: BatchSize,
    rate: Option<RateLimit>,
    /// Documents that the rule may still ask for.
    allowance: Option<u64>,
    in_flight: JoinSet<Landed>,
    outcome: Outcome,
}

impl<'a> Sweep<'a> {
    fn new(job: &'a Job<'a>) -> Self {
        let rule = &job.planned.rule;
        Self {
            job,
            aim: Arc::new(Aim {
                deployment: job.deployment.clone(),
                namespace: job.planned.namespace.clone(),
                selection: job.selection.clone(),
                grant: job.grant.clone(),
                stop: job.stop.clone(),
            }),
            size: BatchSize::new(rule.batch_size, rule.target_batch),
            rate: rule.rate.map(RateLimit::new),
            allowance: rule.max_deletes,
            in_flight: JoinSet::new(),
            outcome: Outcome { deleted: 0, batches: 0, uncertain: false, end: End::Complete },
        }
    }

    /// Sends batches until there is nothing left or a limit says stop.
    ///
    /// Errors: why the rule cannot go on.
    async fn run(&mut self, budget: &mut RunBudget) -> Result<End, String> {
        let rule = &self.job.planned.rule;
        let slowest = budget.slowest_rate(rule.rate);
        let concurrency = budget.concurrency(rule.concurrency);
        // Under a limit no document may go that others insert into a stretch while it is being deleted.
        let exact = self.allowance.is_some() || budget.has_delete_limit();
        if let Some(reason) = stop_reason(self.job, budget) {
            return Ok(End::Partial(reason));
        }
        let mut source = match unless_stopped(self.job, budget, Source::open(self.job, slowest, exact)).await {
            Ok(source) => source?,
            Err(reason) => return Ok(End::Partial(reason)),
        };
        loop {
            if let Some(reason) = stop_reason(self.job, budget) {
                return Ok(End::Partial(reason));
            }
            let most = self.most(budget);
            if self.in_flight.len() >= concurrency || (most == 0 && !self.in_flight.is_empty()) {
                // What was asked for and not deleted comes back to the allowance, so a spent one is not the end yet.
                self.land(budget).await?;
                continue;
            }
            // The wait comes first: what is found after it is deleted at once, before others can add to it.
            let of_rule = self.rate.as_mut().map_or(Duration::ZERO, |rate| rate.reserve(most, budget.elapsed()));
            let wait = budget.reserve(most).max(of_rule);
            if !wait.is_zero()
                && let Err(reason) = unless_stopped(self.job, budget, tokio::time::sleep(wait)).await
            {
                return Ok(End::Partial(reason));
            }
            let taken = match unless_stopped(self.job, budget, source.take(most)).await {
                Ok(taken) => taken?,
                Err(reason) => return Ok(End::Partial(reason)),
            };
            let asked = if let Taken::Batch { most, .. } = &taken { *most } else { 0 };
            self.correct_rate(budget, most, asked);
            let restriction = match taken {
                Taken::Batch { restriction, .. } => restriction,
                Taken::Exhausted => return Ok(End::Complete),
                Taken::More => return Ok(End::Partial(StopReason::MaxDeletes)),
            };
            self.allowance = self.allowance.map(|left| left.saturating_sub(asked));
            budget.take(asked);
            self.in_flight.spawn(run_batch(self.aim.clone(), restriction, asked));
        }
    }

    /// Documents that the next batch may take at most.
    fn most(&self, budget: &RunBudget) -> u64 {
        let of_rate = self.rate.as_ref().map(|rate| u64::from(rate.batch_limit()));
        [Some(u64::from(self.size.next())), of_rate, budget.batch_limit(), self.allowance]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(0)
    }

    /// Makes the rates count what really was, where it was reserved by what could be.
    fn correct_rate(&mut self, budget: &mut RunBudget, reserved: u64, real: u64) {
        if let Some(rate) = &mut self.rate {
            rate.correct(reserved, real);
        }
        budget.correct_rate(reserved, real);
    }

    /// Takes in one command that has come back.
    ///
    /// Errors: why it failed for good, with what was deleted before said by the outcome.
    async fn land(&mut self, budget: &mut RunBudget) -> Result<(), String> {
        let landed = match self.in_flight.join_next().await {
            None => return Ok(()),
            Some(Ok(landed)) => landed,
            Some(Err(panic)) => return Err(format!("an internal error while deleting: {panic}")),
        };
        let deleted = landed.reply.deleted;
        self.outcome.deleted += deleted;
        self.outcome.batches += 1;
        self.outcome.uncertain |= landed.uncertain;
        self.job.progress.deleted(deleted);
        self.size.observe(u32::try_from(landed.asked).unwrap_or(u32::MAX), landed.latency);
        if !landed.uncertain {
            // After a lost reply nobody knows how many went: none of them come back.
            self.allowance = self.allowance.map(|left| (left + landed.asked).saturating_sub(deleted));
            budget.settle(landed.asked, deleted);
            self.correct_rate(budget, landed.asked, deleted);
        }
        match landed.reply.trouble {
            None => Ok(()),
            Some(trouble) => Err(trouble.why),
        }
    }
}

fn stop_reason(job: &Job<'_>, budget: &RunBudget) -> Option<StopReason> {
    if job.stop.is_asked() {
        Some(StopReason::Interrupted)
    } else if budget.is_out_of_time() {
        Some(StopReason::MaxDuration)
    } else {
        None
    }
}

/// Awaits something that only waits or reads; the reason where the run is to stop before it has come to an end.
async fn unless_stopped<F: Future>(job: &Job<'_>, budget: &RunBudget, future: F) -> Result<F::Output, StopReason> {
    let out_of_time = async {
        match budget.time_left() {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        output = future => Ok(output),
        () = out_of_time => Err(StopReason::MaxDuration),
        () = job.stop.asked() => Err(StopReason::Interrupted),
    }
}

/// Sends one delete command, and again where that can help.
async fn run_batch(aim: Arc<Aim>, restriction: Box<Restriction>, asked: u64) -> Landed {
    let begun = Instant::now();
    let mut landed = Landed { asked, latency: Duration::ZERO, reply: Reply { deleted: 0, trouble: None }, uncertain: false };
    let mut waits = RETRY_WAITS.iter();
    loop {
        let reply = delete::delete(&aim.deployment, &aim.namespace, &aim.selection, &restriction, &aim.grant).await;
        landed.reply.deleted += reply.deleted;
        landed.uncertain |= reply.trouble.as_ref().is_some_and(|trouble| trouble.reply_lost);
        landed.reply.trouble = reply.trouble;
        match (&landed.reply.trouble, waits.next()) {
            (Some(Trouble { why, retryable: true, .. }), Some(wait)) if !aim.stop.is_asked() => {
                warn!("{}: {why}; trying again in {} ms", aim.namespace, wait.as_millis());
                tokio::select! {
                    () = tokio::time::sleep(*wait) => {}
                    () = aim.stop.asked() => break,
                }
            }
            _ => break,
        }
    }
    landed.latency = begun.elapsed();
    landed
}
