//! The warnings of a rule.

use super::HeldBy;
use crate::base::text::plural;
use crate::core::plan::Status;
use crate::core::plan::fields::UnknownField;
use crate::core::plan::findings::Findings;
use crate::core::plan::outcome::{End, FixedLatency, RuleOutcome};
use crate::core::plan::{Guard, PlannedRule, Reason, StopReason};
use crate::core::report::orphans;

/// Returns the warnings of the plan, the findings and the sweep, and what these do not say by themselves. `status` and `reason`
/// are the status and the reason of the report.
pub(super) fn of(
    planned: &PlannedRule,
    findings: &Findings,
    outcome: &RuleOutcome,
    status: Status,
    reason: Option<&Reason>,
) -> Vec<String> {
    let mut warnings = [planned.warnings.as_slice(), &findings.told.warnings].concat();
    let swept = outcome.swept();
    if let Some(swept) = swept {
        warnings.extend(swept.warnings.iter().cloned());
        let left = swept.outcome.archived_only();
        if left > 0 {
            let why = match swept.outcome.seen_none {
                true => {
                    "changed or deleted by others in between, or archived once more in a further pass; none of them is still expired"
                }
                false => "changed or deleted by others in between; what is still expired is left to the next run",
            };
            warnings.push(format!("{} archived and not deleted: {why}", plural(left, "document")));
        }
        if swept.outcome.unconfirmed > 0 {
            let weak = &swept.outcome.weak_write_concern;
            let why = weak.as_deref().unwrap_or("not confirmed by the members in time");
            warnings.push(format!(
                "{} deleted on the primary, but {why}: a fail-over may bring them back, or has",
                plural(swept.outcome.unconfirmed, "document")
            ));
        }
        let waiting = swept.outcome.children.as_ref().map_or(0, |children| children.left);
        if waiting > 0 {
            warnings.push(format!(
                "children of up to {} may be left: the journal names these, and the next run of the rule goes on from there",
                plural(waiting, "parent")
            ));
        }
        if let Some(FixedLatency { latency, batch_size, concurrency }) = swept.outcome.fixed_latency {
            warnings.push(format!(
                "about {} ms of each delete command did not depend on its documents, and decided how long the sweep took: \
                 a larger `batchSize` ({batch_size} now) or a higher `concurrency` ({concurrency} now) makes it faster",
                latency.as_millis()
            ));
        }
    }
    if let (Some(unclear), Some(periods)) = (&findings.told.unclear_periods, &planned.rule.periods)
        && unclear.count > 0
    {
        warnings.push(format!(
            "{} kept: their `{}` in `{}` is no whole number above 0, or differs{}",
            plural(unclear.count, "document"),
            periods.value,
            periods.by.collection(&planned.namespace),
            HeldBy::most(&HeldBy::of(unclear))
        ));
    }
    if let Some(window) = &planned.rule.limits.window {
        match outcome {
            RuleOutcome::NotSwept { window_closed: true } if status == Status::Complete => {
                warnings.push(format!("deletes only from {window}, and it is not that time now"));
            }
            _ if stopped_by(outcome) == Some(StopReason::Window) => warnings.push(format!("deletes only from {window}")),
            _ => {}
        }
    }
    if stopped_by(outcome) == Some(StopReason::Missed) {
        warnings.push(
            "expired documents may be left: chunks moved between the shards meanwhile, others inserted expired documents, or a look \
             took too long; the next run deletes them"
                .to_owned(),
        );
    }
    warnings.extend(orphans::warning(planned, &findings.decides, outcome).filter(|_| status == Status::Complete));
    // The refusal says it already.
    let is_said = |unknown: &UnknownField| {
        let guard = if unknown.field.compared.is_some() { Guard::UnknownType } else { Guard::UnknownField };
        unknown.is_refused() && reason == Some(&Reason::Guard(guard))
    };
    warnings.extend(findings.decides.unknown_fields.iter().filter(|unknown| !is_said(unknown)).map(UnknownField::warning));
    warnings
}

fn stopped_by(outcome: &RuleOutcome) -> Option<StopReason> {
    match outcome {
        RuleOutcome::NotBegun(stopped) => Some(stopped.reason),
        RuleOutcome::Swept(swept) => match swept.outcome.end {
            End::Partial(reason) => Some(reason),
            End::Complete | End::Failed(_) => None,
        },
        RuleOutcome::Checked | RuleOutcome::NotSwept { .. } | RuleOutcome::Unreachable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::plan::fields::named;
    use crate::core::plan::findings::{CountObstacle, Remaining};
    use crate::core::plan::outcome::{Outcome, Swept};
    use crate::core::report::RuleReport;
    use crate::testing::made_up::{counted, not_swept, planned, swept, with_obstacle};

    fn report(planned: &PlannedRule, findings: &Findings, outcome: RuleOutcome) -> RuleReport {
        RuleReport::of(planned, findings, &outcome, &Remaining::Derived)
    }

    fn sweep(swept: Swept) -> RuleOutcome {
        RuleOutcome::Swept(Box::new(swept))
    }

    #[test]
    fn what_a_fail_over_may_take_back_and_what_held_the_sweep_up_is_warned_of() {
        let warnings = |unconfirmed, weak: Option<&str>, fixed_latency| {
            let mut swept = swept(50, End::Complete);
            swept.outcome = Outcome { unconfirmed, weak_write_concern: weak.map(str::to_owned), fixed_latency, ..swept.outcome };
            report(&planned("", 200), &Findings::default(), sweep(swept)).warnings
        };
        let latency = FixedLatency { latency: Duration::from_micros(250_900), batch_size: 2000, concurrency: 2 };
        assert_eq!(
            warnings(1, None, Some(latency)),
            [
                "1 document deleted on the primary, but not confirmed by the members in time: a fail-over may bring them back, or has",
                "about 250 ms of each delete command did not depend on its documents, and decided how long the sweep took: a larger \
                 `batchSize` (2000 now) or a higher `concurrency` (2 now) makes it faster"
            ]
        );
        assert_eq!(
            warnings(50, Some("`w=1` is weak"), None),
            ["50 documents deleted on the primary, but `w=1` is weak: a fail-over may bring them back, or has"]
        );
        assert_eq!(warnings(0, None, None), [""; 0]);
    }

    #[test]
    fn a_window_and_a_field_that_nobody_has_are_warned_of() {
        let rule = planned("    window: {start: \"02:00\", end: \"03:00\"}\n", 200);
        let closed = report(&rule, &counted(5), RuleOutcome::NotSwept { window_closed: true });
        assert_eq!((closed.would_delete_count, closed.would_delete_limit), (Some(0), Some(StopReason::Window)));
        assert!(closed.warnings[0].ends_with("and it is not that time now"), "{:?}", closed.warnings);
        let stopped = report(&rule, &Findings::default(), sweep(swept(3, End::Partial(StopReason::Window))));
        assert!(stopped.warnings[0].starts_with("deletes only from 02:00"), "{:?}", stopped.warnings);
        let rule = planned("    filter: {held: {$ne: true}}\n", 200);
        let unknown = |field| UnknownField { field, is_known: false, similar: None, is_elsewhere: false, is_strict: false };
        let mut findings = counted(0);
        findings.decides.unknown_fields =
            named(&rule).into_iter().filter(|field| field.compared.is_none()).map(unknown).collect();
        let unseen = report(&rule, &findings, not_swept());
        assert_eq!((unseen.status, unseen.reason), (Status::Refused, Some(Reason::Guard(Guard::UnknownField))));
        assert!(unseen.error.unwrap().starts_with("no document found has `held` (`filter`); "));
        assert_eq!(unseen.warnings, ["no document found has `at` (`field`); is its name right?"]);
        let stopped = with_obstacle(CountObstacle::Stopped(StopReason::StopFile), findings);
        assert_eq!(report(&rule, &stopped, not_swept()).warnings.len(), 2, "another reason does not say it");
    }
}
