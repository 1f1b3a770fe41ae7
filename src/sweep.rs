//! Sweeps one rule: candidates in, guarded delete commands out, until there is nothing left or a limit says stop.

mod archived;
mod attempts;
mod batch;
mod budget;
mod candidates;
mod date_slices;
mod engine;
mod id_pages;
mod id_slices;
mod lag_gate;
mod source;

use std::sync::Arc;
use std::time::Duration;

pub use archived::RuleArchive;
pub use budget::{Limits, RunBudget, Turn};
use engine::Engine;

use crate::plan::{StopReason, SweepRule};
use crate::progress::RuleProgress;
use crate::report::outcome::Outcome;
use crate::server::Deployment;
use crate::server::grant::DeleteGrant;
use crate::server::lag::LagSource;
use crate::server::meter::Charges;
use crate::stop::Stop;

/// Returns the reason of a run that was asked to stop: by a signal, or by its stop file.
pub fn asked_reason(stop: &Stop) -> StopReason {
    if stop.exit_code().is_some() { StopReason::Interrupted } else { StopReason::StopFile }
}

/// What a sweep of one rule works with.
pub struct Job<'a> {
    pub deployment: &'a Deployment,
    pub rule: &'a SweepRule,
    pub grant: &'a Arc<DeleteGrant>,
    pub charges: &'a Charges,
    /// Shared with the other rules of the run.
    pub budget: &'a RunBudget,
    pub lag: &'a LagSource,
    /// Where documents are written before they are deleted, where the rule asks for it.
    pub archive: Option<&'a Arc<RuleArchive>>,
    pub progress: &'a RuleProgress<'a>,
    pub stop: &'a Stop,
}

/// Deletes what the selection finds, in one pass, oldest dates first where an index gives that order. `turn` is the first of many: after
/// each batch other rules have theirs.
///
/// Never fails as a whole: what was deleted before an error is in the outcome beside it.
pub async fn sweep(job: &Job<'_>, turn: Turn) -> Outcome {
    Engine::new(job).run(turn).await
}

/// Why a rule may not begin or go on now; `None` where it may.
pub fn stop_reason(rule: &SweepRule, budget: &RunBudget, stop: &Stop) -> Option<StopReason> {
    if budget.leases().is_over(&rule.namespace) {
        Some(StopReason::LockLost)
    } else if stop.is_asked() {
        Some(asked_reason(stop))
    } else if budget.is_out_of_time() {
        Some(StopReason::MaxDuration)
    } else if is_window_closed(rule) {
        Some(StopReason::Window)
    } else {
        None
    }
}

/// Ends when the rule may not go on.
pub async fn stopped(rule: &SweepRule, budget: &RunBudget, stop: &Stop) -> StopReason {
    let window_closes = async {
        // The clock may be set, and the machine may sleep: it is asked again and again.
        while !is_window_closed(rule) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = budget.leases().over(&rule.namespace) => StopReason::LockLost,
        () = stop.asked() => asked_reason(stop),
        () = budget.out_of_time() => StopReason::MaxDuration,
        () = window_closes => StopReason::Window,
    }
}

fn is_window_closed(rule: &SweepRule) -> bool {
    rule.limits.window.as_ref().is_some_and(|window| !window.contains(chrono::Utc::now()))
}
