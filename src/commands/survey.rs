//! Counts of the rules of a plan: before the first delete, where the run needs them, and after the sweep, where that is cheap.

pub(super) mod estimates;
pub(super) mod fields;
pub(super) mod holds;
pub(super) mod orders;
pub(super) mod orphans;

use std::cell::RefCell;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::session::Session;
use crate::base::instant::millis;
use crate::base::text::plural;
use crate::core::plan::Status;
use crate::core::plan::estimate::RunCaps;
use crate::core::plan::findings::{CountObstacle, CountedDocuments, Counts, Remaining};
use crate::core::plan::outcome::{End, RuleOutcome};
use crate::core::plan::verdict::{Verdict, not_begun};
use crate::core::plan::{Plan, PlannedRule, SweepRule, guard};
use crate::core::report::overlap;
use crate::shell::server::Deployment;
use crate::shell::server::look::{children, count};
use crate::shell::server::wire::error::ServerError;
use crate::shell::sweep::asked_reason;
use estimates::Estimates;
use holds::RunHolds;

/// Rules that are counted at the same time.
const COUNTED_AT_ONCE: usize = 4;

/// Time limit of a count that the run can do without.
pub(super) const MAX_COUNT_TIME: Duration = Duration::from_secs(1);

/// Time limit of all counts after a sweep, so that a run that was stopped by its `maxDuration` ends soon.
const MAX_COUNTS_TIME: Duration = Duration::from_secs(5);

/// The counts that a run needs before it deletes.
#[derive(Clone, Copy)]
pub(super) struct CountScope<'a> {
    /// Every rule that can be counted is; otherwise only those with a guard that compares counts.
    pub count_all: bool,
    /// Name of a limit of the whole run under which the oldest documents go first.
    pub run_limit: Option<&'a str>,
    /// Limits of the whole run.
    pub run: RunCaps,
}

/// Counts the documents of the rules, in the order of the plan, and chooses the order of their deletes.
pub(super) async fn before(
    session: &Session,
    deployment: &Deployment,
    plan: &Plan,
    scope: CountScope<'_>,
    holds: &RunHolds<'_>,
) -> Vec<Counts> {
    let gone: RefCell<Option<String>> = RefCell::new(None);
    let estimates = &tokio::select! {
        biased;
        estimates = Estimates::open(session, deployment, plan, scope.run, scope.count_all) => estimates.unwrap_or_else(|cause| {
            gone.replace(Some(cause.to_string()));
            None
        }),
        // Each rule sees the request to stop by itself.
        () = session.stop.asked() => None,
    };
    let is_gone = gone.borrow().is_some();
    let looked = match is_gone {
        true => vec![Counts::default(); plan.rules.len()],
        false => fields::look(session, deployment, plan, scope.count_all, |planned| planned.decision.countable()).await,
    };
    let gone = &gone;
    stream::iter(plan.rules.iter().zip(looked))
        .map(|(planned, looked)| async move {
            // The findings on a refused rule are evidence for others only.
            let Some(rule) = counted_rule(planned, scope.count_all) else { return Counts::default() };
            if looked.obstacle.is_some() || (!scope.count_all && Verdict::before(planned, &looked).is_some()) {
                return looked;
            }
            let known = gone.borrow().clone();
            if let Some(why) = known {
                return Counts { obstacle: Some(CountObstacle::Failed(not_begun(&why))), ..Counts::default() };
            }
            let begun = Instant::now();
            let deployment = deployment.of_rule(rule);
            let counted = tokio::select! {
                biased;
                counted = count(&deployment, planned, rule, scope, (estimates.as_ref(), holds), looked.clone()) => counted,
                () = session.stop.asked() => {
                    Ok(Counts { obstacle: Some(CountObstacle::Stopped(asked_reason(&session.stop))), ..looked.clone() })
                }
            };
            let looked_ms = looked.duration_ms;
            let counts = counted.unwrap_or_else(|cause| {
                let why = cause.to_string();
                let obstacle = Some(CountObstacle::Failed(format!("counting: {why}")));
                gone.replace(cause.is_unreachable().then_some(why));
                Counts { obstacle, ..looked }
            });
            Counts { duration_ms: looked_ms + millis(begun.elapsed()), ..counts }
        })
        .buffered(COUNTED_AT_ONCE)
        .collect()
        .await
}

/// Returns the rule of a namespace that is counted, if one is.
fn counted_rule(planned: &PlannedRule, count_all: bool) -> Option<&SweepRule> {
    planned.decision.swept().or_else(|| planned.decision.countable().filter(|_| count_all))
}

/// Counts one rule; `counts` are the findings before.
async fn count(
    deployment: &Deployment,
    planned: &PlannedRule,
    rule: &SweepRule,
    scope: CountScope<'_>,
    (estimates, holds): (Option<&Estimates>, &RunHolds<'_>),
    mut counts: Counts,
) -> Result<Counts, ServerError> {
    let CountScope { count_all, run_limit, run: _ } = scope;
    let Some(rule) = &holds.enter(rule, &mut counts).await else { return Ok(counts) };
    counts.documents = for_search_guard(deployment, planned, rule).await?;
    if !count_all && Verdict::before(planned, &counts).is_some() {
        return Ok(counts);
    }
    if count_all || rule.limits.max_delete_percent.is_some() || rule.approved.is_some() {
        // The guard objects to any number from this one on.
        let enough = rule.limits.max_delete_percent.filter(|_| !count_all && rule.approved.is_none());
        let enough = enough.map(|percent| (percent / 100.0 * rule.selection.document_count as f64) as u64 + 1);
        let expired;
        (expired, counts.forecast) = count::expired_and_forecast(deployment, rule, enough).await?;
        counts.documents = for_share_guard(deployment, rule, expired.count, counts.documents).await?;
        counts.expired = Some(expired);
    }
    if count_all {
        counts.held = count::held(deployment, rule).await?;
        counts.never_expires = count::never_expires(deployment, rule).await?;
        children(deployment, rule, &mut counts).await?;
    }
    counts.orphans = orphans::count(deployment, rule, count_all).await?;
    counts.order = orders::choose(deployment, planned, rule, run_limit).await;
    if let Some(estimates) = estimates {
        estimates.enter(deployment, rule, &mut counts).await;
    }
    Ok(counts)
}

/// Counts the children of the expired documents, where there are not too many of these.
async fn children(deployment: &Deployment, rule: &SweepRule, counts: &mut Counts) -> Result<(), ServerError> {
    let (Some(family), Some(expired)) = (&rule.family, &counts.expired) else { return Ok(()) };
    if expired.count <= children::MAX_PARENTS {
        counts.children = Some(children::of_expired(deployment, rule, family).await?);
    } else {
        let many = plural(children::MAX_PARENTS, "document");
        counts.warnings.push(format!("the children of the expired documents were not counted: these are more than {many}"));
    }
    Ok(())
}

/// Counts the documents of a collection that would be searched without an index, as far as the guard of large collections needs to know.
pub(super) async fn for_search_guard(
    deployment: &Deployment,
    planned: &PlannedRule,
    rule: &SweepRule,
) -> Result<Option<CountedDocuments>, ServerError> {
    let SweepRule { namespace, selection, expiry, .. } = rule;
    let at_any_size = guard::scan(&planned.rule, namespace, &expiry.field, selection.index.as_ref(), u64::MAX);
    if at_any_size.is_none() || selection.is_buckets() {
        return Ok(None);
    }
    count::documents_up_to(deployment, selection, guard::SCAN_GUARD_DOCUMENTS + 1).await
}

/// Counts the documents of the collection, as far as the guard of the share of the expired documents needs to know; `known` are those that were
/// counted before.
pub(super) async fn for_share_guard(
    deployment: &Deployment,
    rule: &SweepRule,
    expired_count: u64,
    known: Option<CountedDocuments>,
) -> Result<Option<CountedDocuments>, ServerError> {
    match guard::enough_documents(rule.limits.max_delete_percent, expired_count) {
        Some(enough) if known.is_none_or(|known| !known.is_complete && known.count < enough) => {
            count::documents_up_to(deployment, &rule.selection, enough).await
        }
        _ => Ok(known),
    }
}

/// Returns the expired documents that a sweep leaves, in the order of the plan. With `count_all`, a rule that a limit stopped is counted along
/// its index, as is one that is not complete in a namespace where another rule deleted; the numbers of the other rules follow from what is known.
pub(super) async fn after(
    session: &Session,
    deployment: &Deployment,
    plan: &Plan,
    before: &[Counts],
    outcomes: &[RuleOutcome],
    count_all: bool,
) -> Vec<Remaining> {
    // The time of the run may be over, but a person may still want it to end at once.
    let stop = &session.stop.with_end(Some(Instant::now() + MAX_COUNTS_TIME));
    let shared = overlap::others_deleted(plan, outcomes);
    let rules = plan.rules.iter().zip(before).zip(outcomes.iter().zip(shared));
    stream::iter(rules)
        .map(|((planned, counts), (outcome, is_shared))| async move {
            let uncounted = if is_shared { Remaining::Shared } else { Remaining::Derived };
            let may_be_left = if is_shared { !is_swept_whole(outcome) } else { is_stopped(planned, counts, outcome) };
            let is_counted = count_all && may_be_left && !stop.is_asked();
            let (true, Some(rule)) = (is_counted, planned.decision.countable()) else {
                return uncounted;
            };
            let deployment = deployment.of_rule(rule);
            let rule = holds::with_keys(rule, counts);
            let counted = tokio::select! {
                biased;
                remaining = remaining(&deployment, &rule) => remaining,
                () = stop.asked() => None,
            };
            counted.unwrap_or(uncounted)
        })
        .buffered(COUNTED_AT_ONCE)
        .collect()
        .await
}

/// Whether a sweep went to the end of a rule.
fn is_swept_whole(outcome: &RuleOutcome) -> bool {
    outcome.swept().is_some_and(|swept| swept.outcome.end == End::Complete)
}

/// Whether a sweep stopped before the rule was complete.
fn is_stopped(planned: &PlannedRule, counts: &Counts, outcome: &RuleOutcome) -> bool {
    let may_be_left = match outcome {
        RuleOutcome::Swept(swept) => matches!(swept.outcome.end, End::Partial(_)),
        RuleOutcome::NotBegun(_) => true,
        RuleOutcome::Checked | RuleOutcome::NotSwept { .. } | RuleOutcome::Unreachable(_) => false,
    };
    may_be_left && Verdict::of(planned, counts, outcome).status == Status::Partial
}

async fn remaining(deployment: &Deployment, rule: &SweepRule) -> Option<Remaining> {
    let count = count::expired_within(deployment, rule, MAX_COUNT_TIME).await?;
    let oldest = if count > 0 { count::oldest_within(deployment, rule, MAX_COUNT_TIME).await } else { None };
    Some(Remaining::Counted { count, oldest })
}
