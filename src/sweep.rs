//! Sweeps one rule: candidates in, guarded delete commands out, until there is nothing left or a limit says stop.

mod budget;
mod candidates;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::RawArrayBuf;
use tokio::task::JoinSet;
use tracing::{info, warn};

pub use budget::RunBudget;
use candidates::Candidates;

use crate::pace::{BatchSize, RateLimit};
use crate::plan::{PlannedRule, Selection};
use crate::progress::Progress;
use crate::server::Deployment;
use crate::server::delete::{self, Reply, Trouble};
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
    let rule = &job.planned.rule;
    let mut outcome = Outcome { deleted: 0, batches: 0, uncertain: false, end: End::Complete };
    let mut size = BatchSize::new(rule.batch_size, rule.target_batch);
    let mut rate = rule.rate.map(RateLimit::new);
    let mut allowance = rule.max_deletes;
    let mut candidates = Candidates::new(job, budget.slowest_rate(rule.rate));
    let mut in_flight: JoinSet<Landed> = JoinSet::new();
    let concurrency = budget.concurrency(rule.concurrency);

    loop {
        if let Some(reason) = stop_reason(job, budget) {
            outcome.end = End::Partial(reason);
            break;
        }
        let most =
            [Some(u64::from(size.next())), rate.as_ref().map(|rate| rate.batch_limit().into()), budget.batch_limit(), allowance];
        let most = most.into_iter().flatten().min().unwrap_or(0);
        if in_flight.len() >= concurrency || (most == 0 && !in_flight.is_empty()) {
            // What was asked for and not deleted comes back to the allowance, so a spent one is not the end yet.
            if let Err(why) = land(&mut in_flight, &mut outcome, &mut size, &mut allowance, budget, job.progress).await {
                outcome.end = End::Failed(why);
                break;
            }
            continue;
        }
        let batch = match candidates.take(most).await {
            Ok(batch) => batch,
            Err(why) => {
                outcome.end = End::Failed(why);
                break;
            }
        };
        let Some((ids, asked)) = batch else {
            if candidates.is_exhausted() {
                break;
            }
            outcome.end = End::Partial(StopReason::MaxDeletes);
            break;
        };
        let wait = budget
            .reserve(asked)
            .max(rate.as_mut().map_or(Duration::ZERO, |rate| rate.reserve(asked_u32(asked), budget.elapsed())));
        if !wait.is_zero() && !pause(job, budget, wait).await {
            outcome.end = End::Partial(stop_reason(job, budget).unwrap_or(StopReason::Interrupted));
            break;
        }
        allowance = allowance.map(|left| left - asked);
        budget.take(asked);
        in_flight.spawn(run_batch(
            job.deployment.clone(),
            job.planned.clone(),
            job.selection.clone(),
            ids,
            asked,
            job.grant.clone(),
        ));
    }

    // What is in flight is always waited for: its documents are gone, and its counts belong into the report.
    while !in_flight.is_empty() {
        if let Err(why) = land(&mut in_flight, &mut outcome, &mut size, &mut allowance, budget, job.progress).await
            && !matches!(outcome.end, End::Failed(_))
        {
            outcome.end = End::Failed(why);
        }
    }
    info!("{}: {} deleted in {} batches", job.planned.namespace, outcome.deleted, outcome.batches);
    outcome
}

fn asked_u32(asked: u64) -> u32 {
    u32::try_from(asked).unwrap_or(u32::MAX)
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

/// Waits; false where the run is to stop before the wait is over.
async fn pause(job: &Job<'_>, budget: &RunBudget, wait: Duration) -> bool {
    let allowed = budget.time_left().map_or(wait, |left| left.min(wait));
    tokio::select! {
        () = tokio::time::sleep(allowed) => allowed == wait,
        () = job.stop.asked() => false,
    }
}

/// Takes in one command that has come back.
///
/// Errors: why it failed for good, with what was deleted before said by the outcome.
async fn land(
    in_flight: &mut JoinSet<Landed>,
    outcome: &mut Outcome,
    size: &mut BatchSize,
    allowance: &mut Option<u64>,
    budget: &mut RunBudget,
    progress: &Progress,
) -> Result<(), String> {
    let landed = match in_flight.join_next().await {
        None => return Ok(()),
        Some(Ok(landed)) => landed,
        Some(Err(panic)) => return Err(format!("an internal error while deleting: {panic}")),
    };
    let deleted = landed.reply.deleted;
    outcome.deleted += deleted;
    outcome.batches += 1;
    outcome.uncertain |= landed.uncertain;
    progress.deleted(deleted);
    size.observe(asked_u32(landed.asked), landed.latency);
    // After a lost reply nobody knows how many went: none of them come back to the allowance.
    let back = if landed.uncertain { 0 } else { landed.asked.saturating_sub(deleted) };
    *allowance = allowance.map(|left| left + back);
    budget.give_back(back);
    match landed.reply.trouble {
        None => Ok(()),
        Some(trouble) => Err(trouble.why),
    }
}

/// Sends one delete command, and again where that can help.
async fn run_batch(
    deployment: Deployment,
    planned: PlannedRule,
    selection: Selection,
    ids: RawArrayBuf,
    asked: u64,
    grant: Arc<DeleteGrant>,
) -> Landed {
    let begun = Instant::now();
    let mut landed = Landed { asked, latency: Duration::ZERO, reply: Reply { deleted: 0, trouble: None }, uncertain: false };
    let mut waits = RETRY_WAITS.iter();
    loop {
        let reply = delete::delete(&deployment, &planned.namespace, &selection, &ids, &grant).await;
        landed.reply.deleted += reply.deleted;
        landed.uncertain |= reply.trouble.as_ref().is_some_and(|trouble| trouble.reply_lost);
        landed.reply.trouble = reply.trouble;
        match (&landed.reply.trouble, waits.next()) {
            (Some(Trouble { why, retryable: true, .. }), Some(wait)) => {
                warn!("{}: {why}; trying again in {} ms", planned.namespace, wait.as_millis());
                tokio::time::sleep(*wait).await;
            }
            _ => break,
        }
    }
    landed.latency = begun.elapsed();
    landed
}
