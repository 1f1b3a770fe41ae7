//! What is left when a sweep has ended: known from what it did, or counted where that is cheap and somebody records it.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use super::Run;
use super::measure::{COUNTED_AT_ONCE, LONGEST_COUNT};
use crate::instant::rfc3339;
use crate::plan::{Decision, Plan, PlannedRule};
use crate::report::{RuleReport, Status};
use crate::server::{Deployment, count};

/// No count begins later: a run that was stopped by its `maxDuration` is to end.
const LONGEST: Duration = Duration::from_secs(5);

/// Enters into each report what remains of its rule, as far as it is known. With `count`, rules that a limit stopped are counted along
/// their index.
pub async fn enter(run: &Run, deployment: &Deployment, plan: &Plan, dry_run: bool, count: bool, reports: &mut [RuleReport]) {
    let begun = Instant::now();
    stream::iter(plan.rules.iter().zip(reports))
        .for_each_concurrent(COUNTED_AT_ONCE, |(planned, report)| async move {
            derive(report, dry_run);
            let is_partial = !dry_run && report.status == Status::Partial;
            if count && is_partial && !run.stop.is_asked() && begun.elapsed() < LONGEST {
                tokio::select! {
                    () = measure(deployment, planned, report) => {}
                    () = run.stop.asked() => {}
                }
            }
        })
        .await;
}

/// What follows from the counts before and the deletes since.
fn derive(report: &mut RuleReport, dry_run: bool) {
    match report.status {
        Status::Complete if !dry_run => report.remaining_count = Some(0),
        Status::Complete | Status::Refused => {
            report.remaining_count = report.expired_count;
            report.oldest_remaining = report.oldest_expired.clone();
        }
        Status::Partial | Status::Failed if !report.uncertain => {
            report.remaining_count = report.expired_count.map(|expired| expired.saturating_sub(report.deleted_count));
        }
        Status::Partial | Status::Failed | Status::Skipped => {}
    }
}

async fn measure(deployment: &Deployment, planned: &PlannedRule, report: &mut RuleReport) {
    let Decision::Sweep(rule) = &planned.decision else { return };
    let Some(remaining) = count::expired_within(deployment, rule, LONGEST_COUNT).await else { return };
    report.remaining_count = Some(remaining);
    if remaining > 0 {
        let oldest = count::oldest_within(deployment, rule, LONGEST_COUNT).await;
        report.oldest_remaining = oldest.map(rfc3339);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::rule::tests::report;

    #[test]
    fn what_remains_is_known_or_null() {
        use Status::{Complete, Failed, Partial, Refused, Skipped};
        for (status, dry_run, expired, deleted, uncertain, remaining) in [
            (Complete, false, None, 7, false, Some(0)),
            (Complete, false, Some(9), 7, true, Some(0)),
            (Complete, true, Some(9), 0, false, Some(9)),
            (Complete, true, None, 0, false, None),
            (Refused, false, Some(9), 0, false, Some(9)),
            (Refused, false, None, 0, false, None),
            (Partial, false, Some(9), 7, false, Some(2)),
            (Partial, false, Some(9), 12, false, Some(0)),
            (Partial, false, Some(9), 7, true, None),
            (Partial, false, None, 7, false, None),
            (Failed, false, Some(9), 7, false, Some(2)),
            (Failed, false, None, 0, false, None),
            (Skipped, false, None, 0, false, None),
        ] {
            let mut report = RuleReport {
                status,
                expired_count: expired,
                deleted_count: deleted,
                uncertain,
                oldest_expired: expired.map(|_| "2026-01-01T00:00:00.000Z".to_owned()),
                ..report("r", "app.c")
            };
            derive(&mut report, dry_run);
            assert_eq!(report.remaining_count, remaining, "{report:?}");
            let all_remain = remaining.is_some() && remaining == expired;
            assert_eq!(report.oldest_remaining.is_some(), all_remain, "{report:?}");
        }
    }
}
