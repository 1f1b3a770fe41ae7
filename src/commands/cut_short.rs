//! The report of a sweep that a second signal ends at once.

use tokio::time::Instant;
use tracing::warn;

use super::session::Session;
use super::so_far::RuleState;
use crate::failure::Failure;
use crate::instant::millis;
use crate::plan::StopReason;
use crate::plan::estimate::RunCaps;
use crate::progress::RuleTally;
use crate::report::counts::Remaining;
use crate::report::outcome::{Archived, End, Outcome, Paused, RuleOutcome, Stopped, Swept};
use crate::report::{Report, ReportCommand, RuleReport, RunRecord};

/// Returns the report of a run that ends at once. The counts of the rules that were being swept are lower bounds.
///
/// Errors: nothing had been deleted.
pub(super) fn report(session: &Session, limits: RunCaps) -> Result<Report, Failure> {
    let (Some(known), Some(deployment)) = (session.so_far.known(), session.connected.get()) else {
        let failure = session.stop.failure("nothing was deleted");
        return Err(failure.also("a second signal ended the run at once"));
    };
    let states = known.rules.lock();
    let rules = known.plan.rules.iter().zip(&known.counts).enumerate().map(|(index, (planned, counts))| {
        let report = |outcome: &RuleOutcome| RuleReport::of(planned, counts, outcome, &Remaining::Derived);
        let report = match states.get(&index) {
            None => report(&RuleOutcome::NotSwept { window_closed: false }),
            Some(RuleState::Waits) => {
                report(&RuleOutcome::NotBegun(Stopped { reason: StopReason::Interrupted, lease_lost: None }))
            }
            Some(RuleState::Ended(outcome)) => report(outcome),
            Some(RuleState::Runs { since, tally, archive }) => RuleReport {
                // Known only at the end.
                unconfirmed_count: None,
                archived_count: None,
                paused_ms: None,
                ..report(&running(*since, tally, archive.clone()))
            },
        };
        report.billed(deployment.units_spent_on(&planned.rule.name, &planned.namespace))
    });
    let record = RunRecord {
        as_of: Some(known.plan.as_of),
        server: Some(&deployment.facts),
        plan: session.so_far.plan(),
        limits,
        ..session.record(ReportCommand::Sweep)
    };
    warn!("{}", left_behind(session));
    Ok(Report::new(record, rules.collect()).billed(deployment.units_spent()))
}

/// Returns the outcome of a rule that ends in the middle.
fn running(since: Instant, tally: &RuleTally, archive: Option<String>) -> RuleOutcome {
    let (deleted, batches) = tally.read();
    let outcome = Outcome {
        deleted,
        batches,
        uncertain: true,
        unconfirmed: 0,
        weak_write_concern: None,
        paused: Paused::default(),
        fixed_latency: None,
        archived: Archived::default(),
        children: None,
        end: End::Partial(StopReason::Interrupted),
    };
    let in_flight = "a second signal ended the run at once: a delete command may be in flight, so the count is a lower bound";
    RuleOutcome::Swept(Box::new(Swept {
        outcome,
        lease_lost: None,
        archive,
        written_bytes: None,
        never_expires: None,
        held: None,
        pressure_unknown: None,
        warnings: vec![in_flight.to_owned()],
        duration_ms: millis(since.elapsed()),
    }))
}

/// Says what a run that ends at once leaves behind.
fn left_behind(session: &Session) -> String {
    let leases = session.policy.lock.as_ref().map(|_| "its leases end by themselves".to_owned());
    let archive = session.policy.rules.iter().any(|rule| rule.archive.is_some());
    let archive = archive.then(|| "its archive has no manifest, and is read from its journal".to_owned());
    let left: Vec<String> = [leases, archive].into_iter().flatten().collect();
    let left = if left.is_empty() { String::new() } else { format!("; {}", left.join("; ")) };
    format!("a second signal ended the run at once: the counts are those of the replies that came, and may be too low{left}")
}
