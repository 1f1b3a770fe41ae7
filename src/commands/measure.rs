//! What is known of every rule before the first delete: its plan, and its counts where somebody needs them.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};

use super::Run;
use crate::instant::{millis, rfc3339};
use crate::plan::{Decision, Plan, PlannedRule, Refusal, Selection, Storage, SweepRule, guard};
use crate::report::{RuleReport, Status, predicate_json};
use crate::server::{Deployment, count, error};
use crate::sweep::StopReason;

/// Rules that are counted at the same time.
pub const COUNTED_AT_ONCE: usize = 4;

/// A count that nobody insists on may take so long.
pub const LONGEST_COUNT: Duration = Duration::from_secs(1);

/// Begins the report of every rule: what is known from the plan, and the counts where somebody needs them.
pub async fn measure(run: &Run, deployment: &Deployment, plan: &Plan, count_all: bool) -> Vec<RuleReport> {
    let gone: RefCell<Option<String>> = RefCell::new(None);
    let gone = &gone;
    stream::iter(&plan.rules)
        .map(|planned| async move {
            let mut report = begin(planned);
            let rule = match &planned.decision {
                Decision::Sweep(rule) => Some(rule),
                decision => decision.countable().filter(|_| count_all),
            };
            let known = gone.borrow().clone();
            if let (Some(_), Some(why)) = (rule, known) {
                not_begun(&mut report, &why);
            } else if let Some(rule) = rule {
                let begun = Instant::now();
                tokio::select! {
                    counted = count(deployment, rule, count_all, &mut report) => {
                        if let Err(cause) = counted {
                            let why = error::explain(&cause);
                            report.status = Status::Failed;
                            report.error = Some(format!("counting: {why}; nothing was deleted there"));
                            gone.replace(error::is_unreachable(&cause).then_some(why));
                        }
                    }
                    () = run.stop.asked() => {
                        report.status = Status::Partial;
                        report.reason = Some(StopReason::asked(&run.stop).word().to_owned());
                    }
                }
                report.duration_ms = millis(begun.elapsed());
            }
            report
        })
        .buffered(COUNTED_AT_ONCE)
        .collect()
        .await
}

/// What the plan alone says of a rule.
pub fn begin(planned: &PlannedRule) -> RuleReport {
    let mut report = RuleReport::new(planned);
    match &planned.decision {
        Decision::Sweep(rule) => {
            describe(&mut report, &rule.selection);
            report.archive = rule.archive.as_ref().map(|to| to.directory.display().to_string());
        }
        Decision::Skip(reason) => {
            report.status = Status::Skipped;
            report.reason = Some(reason.text().to_owned());
        }
        Decision::Refuse { refusal, countable } => {
            refuse(&mut report, refusal);
            if let Some(rule) = countable {
                describe(&mut report, &rule.selection);
            }
        }
        Decision::Fail(error) => {
            report.status = Status::Failed;
            report.error = Some(error.clone());
        }
    }
    report
}

fn describe(report: &mut RuleReport, selection: &Selection) {
    report.predicate = Some(predicate_json(selection));
    report.document_count = Some(selection.document_count);
    let strategy = match (&selection.storage, &selection.index) {
        (Storage::Buckets { .. }, _) => "buckets",
        (_, Some(_)) => "index",
        (_, None) => "collectionScan",
    };
    report.strategy = Some(strategy.to_owned());
    report.index = selection.index.as_ref().map(|index| index.name.clone());
}

pub fn refuse(report: &mut RuleReport, refusal: &Refusal) {
    report.status = Status::Refused;
    report.reason = Some(refusal.guard.to_owned());
    report.error = Some(refusal.detail.clone());
}

/// Counts what has expired where the run needs it: always in a dry run or before a question, and for the share guard.
async fn count(deployment: &Deployment, rule: &SweepRule, count_all: bool, report: &mut RuleReport) -> error::Result<()> {
    if count_all || rule.limits.max_delete_percent.is_some() || rule.approved.is_some() {
        let expired = count::expired(deployment, rule).await?;
        report.set_expired(expired.count, rule.selection.average_bytes);
        report.oldest_expired = expired.oldest.map(rfc3339);
        report.expired_measurements = expired.measurements;
        let share = guard::share(rule.limits.max_delete_percent, expired.count, rule.selection.document_count);
        if let Some(refusal) = share.or_else(|| rule.approved?.guard(expired.count))
            && report.status == Status::Complete
        {
            refuse(report, &refusal);
        }
        if expired.count == 0 && rule.selection.document_count > 0 && count_all {
            note_unseen_field(report, rule, count::has_field(deployment, rule).await?);
        }
    }
    if count_all {
        report.never_expires = count::never_expires(deployment, rule).await?;
    }
    Ok(())
}

/// A rule that was not tried because no server is left.
pub fn not_begun(report: &mut RuleReport, why: &str) {
    report.status = Status::Failed;
    report.error = Some(format!("not begun: {why}; nothing was deleted there"));
}

pub fn note_unseen_field(report: &mut RuleReport, rule: &SweepRule, seen: bool) {
    if !seen {
        report
            .warnings
            .push(format!("none of the first 1000 documents has the field `{}`; is its name right?", rule.expiry.field));
    }
}
