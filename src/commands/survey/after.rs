//! The expired documents that a sweep leaves, counted where that is cheap.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::AT_ONCE;
use crate::commands::session::Session;
use crate::core::plan::findings::{Findings, Remaining};
use crate::core::plan::outcome::{End, RuleOutcome};
use crate::core::plan::verdict::Verdict;
use crate::core::plan::{Plan, PlannedRule, Status, SweepRule};
use crate::core::report::overlap;
use crate::shell::server::Deployment;
use crate::shell::server::look::count;

/// Time limit of a count that the run can do without.
pub(crate) const MAX_COUNT_TIME: Duration = Duration::from_secs(1);

/// Time limit of all counts after a sweep, so that a run that was stopped by its `maxDuration` ends soon.
const MAX_COUNTS_TIME: Duration = Duration::from_secs(5);

/// Returns the expired documents that a sweep leaves, in the order of the plan. With `count_all`, these rules are counted
/// along their index: one that a limit stopped, one that went to the end and may have left some, and one that is not complete in
/// a namespace where another rule deleted. The numbers of the other rules follow from what is known.
pub(crate) async fn after(
    session: &Session,
    deployment: &Deployment,
    plan: &Plan,
    before: &[Findings],
    outcomes: &[RuleOutcome],
    count_all: bool,
) -> Vec<Remaining> {
    // The time of the run may be over, but a person may still want it to end at once.
    let stop = &session.stop.with_end(Some(Instant::now() + MAX_COUNTS_TIME));
    let shared = overlap::others_deleted(plan, outcomes);
    let rules = plan.rules.iter().zip(before).zip(outcomes.iter().zip(shared));
    stream::iter(rules)
        .map(|((planned, findings), (outcome, is_shared))| async move {
            let uncounted = if is_shared { Remaining::Shared } else { Remaining::Derived };
            let is_unfinished = if is_shared { !is_swept_whole(outcome) } else { is_stopped(planned, findings, outcome) };
            let may_be_left = is_unfinished || outcome.swept().is_some_and(|swept| swept.outcome.is_rest_unknown());
            let is_counted = count_all && may_be_left && !stop.is_asked();
            let (true, Some(rule)) = (is_counted, planned.decision.countable()) else {
                return uncounted;
            };
            let deployment = deployment.of_rule(rule);
            let rule = rule.with_keys(&findings.goes_by.keys);
            let counted = tokio::select! {
                biased;
                remaining = remaining(&deployment, &rule) => remaining,
                () = stop.asked() => None,
            };
            counted.unwrap_or(uncounted)
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

/// Whether a sweep went to the end of a rule.
fn is_swept_whole(outcome: &RuleOutcome) -> bool {
    outcome.swept().is_some_and(|swept| swept.outcome.end == End::Complete)
}

/// Whether a sweep stopped before the rule was complete.
fn is_stopped(planned: &PlannedRule, findings: &Findings, outcome: &RuleOutcome) -> bool {
    let may_be_left = match outcome {
        RuleOutcome::Swept(swept) => matches!(swept.outcome.end, End::Partial(_)),
        RuleOutcome::NotBegun(_) => true,
        RuleOutcome::Checked | RuleOutcome::NotSwept { .. } | RuleOutcome::Unreachable(_) => false,
    };
    may_be_left && Verdict::of(planned, &findings.decides, outcome).status == Status::Partial
}

async fn remaining(deployment: &Deployment, rule: &SweepRule) -> Option<Remaining> {
    let count = count::expired_within(deployment, rule, MAX_COUNT_TIME).await?;
    let oldest = if count > 0 { count::oldest_within(deployment, rule, MAX_COUNT_TIME).await } else { None };
    Some(Remaining::Counted { count, oldest })
}
