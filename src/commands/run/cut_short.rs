//! The report of a sweep that cannot wait for its end. A second signal ends it at once, nothing that it waits for answers after
//! the first one, or it is asked to stop before its first delete.

use tokio::time::Instant;
use tracing::warn;

use crate::base::instant::millis;
use crate::commands::session::Session;
use crate::commands::session::so_far::{KnownSoFar, RuleState};
use crate::core::plan::Status;
use crate::core::plan::findings::Remaining;
use crate::core::plan::outcome::{End, RuleOutcome, Stopped, Swept};
use crate::core::plan::{Reason, SkipReason, StopReason};
use crate::core::policy::Rule;
use crate::core::policy::RunLimits;
use crate::core::policy::only::Only;
use crate::core::report::{Report, ReportCommand, RuleReport, RunRecord, overlap};
use crate::shell::server::Deployment;
use crate::shell::sweep::{RuleSweep, asked_reason};

/// Returns the report of a run that ends now, however far it came; `why` is the reason. The counts of the rules that were being
/// swept are lower bounds.
pub(crate) fn report(session: &Session, limits: RunLimits, dry_run: bool, why: &str) -> Report {
    let reason = asked_reason(&session.stop);
    let deployment = session.connected.get();
    let known = session.so_far.known();
    let rules = match known.as_ref() {
        Some(known) => of_plan(known, reason, deployment, why),
        None => of_policy(session, reason),
    };
    let record = RunRecord {
        dry_run,
        as_of: known.as_ref().map(|known| known.plan.as_of),
        server: deployment.map(|deployment| &deployment.facts),
        plan: session.so_far.plan(),
        limits,
        ..session.record(ReportCommand::Sweep)
    };
    Report::new(record, rules).billed(deployment.and_then(Deployment::units_spent))
}

fn of_plan(known: &KnownSoFar, reason: StopReason, deployment: Option<&Deployment>, why: &str) -> Vec<RuleReport> {
    let outcome = |index| match known.rules.get(&index) {
        None => RuleOutcome::NotSwept { window_closed: false },
        Some(RuleState::Waits) => RuleOutcome::NotBegun(Stopped { reason, lease_lost: None }),
        Some(RuleState::Ended(outcome)) => outcome.clone(),
        Some(RuleState::Runs { since, sweep }) => running(*since, sweep, why),
    };
    let outcomes: Vec<RuleOutcome> = (0..known.plan.rules.len()).map(outcome).collect();
    let are_shared = overlap::others_deleted(&known.plan, &outcomes);
    let rules = known.plan.rules.iter().zip(&*known.findings).zip(outcomes.iter().zip(are_shared));
    let rules = rules.map(|((planned, findings), (outcome, is_shared))| {
        let remaining = if is_shared { Remaining::Shared } else { Remaining::Derived };
        let report = RuleReport::of(planned, findings, outcome, &remaining);
        report.billed(deployment.and_then(|all| all.units_spent_on(&planned.rule.name, &planned.namespace)))
    });
    rules.collect()
}

/// Returns the rules of the policy where there is no plan: those that are enabled were not begun.
fn of_policy(session: &Session, reason: StopReason) -> Vec<RuleReport> {
    // Without any rule the command line is wrong, which a run that goes on would have said.
    let rules = Only(&session.options.only).rules(&session.policy).unwrap_or_default();
    let rule = |rule: &Rule| {
        let (status, reason) = match rule.enabled {
            true => (Status::Partial, Reason::Stop(reason)),
            false => (Status::Skipped, Reason::Skip(SkipReason::Disabled)),
        };
        RuleReport { status, reason: Some(reason), ..RuleReport::of_policy(rule, Vec::new()) }
    };
    rules.into_iter().map(rule).collect()
}

/// Returns the outcome of a rule that ends in the middle; `why` is the reason.
fn running(since: Instant, sweep: &RuleSweep, why: &str) -> RuleOutcome {
    let mut outcome = sweep.outcome_by_now();
    outcome.end = End::Partial(StopReason::Interrupted);
    outcome.uncertain = true;
    for children in outcome.children.iter_mut().flat_map(|children| &mut children.collections) {
        children.uncertain = true;
    }
    let in_flight = format!("{why}: a delete command may be in flight, so the count is a lower bound");
    RuleOutcome::Swept(Box::new(Swept {
        outcome,
        lease_lost: None,
        archive: sweep.archive_directory(),
        written_bytes: None,
        never_expires: None,
        held: None,
        pressure_unknown: None,
        warnings: vec![in_flight],
        duration_ms: millis(since.elapsed()),
    }))
}

/// Says why the run ended, and what it leaves behind.
pub(crate) fn warn_of_the_end(session: &Session, why: &str) {
    if !session.so_far.known().as_ref().is_some_and(|known| known.has_begun) {
        return warn!("{why}; nothing was deleted");
    }
    let leases = session.policy.lock.as_ref().map(|_| "its leases end by themselves");
    let archive = session.policy.rules.iter().any(|rule| rule.archive.is_some());
    let archive = archive.then_some("its archive has no manifest, and is read from its journal");
    let left: String = [leases, archive].into_iter().flatten().map(|left| format!("; {left}")).collect();
    warn!("{why}: the counts are those of the replies that came, and may be too low{left}");
}
