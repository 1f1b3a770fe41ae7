//! Status, exit code and summary of a report.

use super::*;
use crate::plan::StopReason;
use crate::policy::parse::parse;

fn report(dry_run: bool, signal_exit: Option<u8>, rules: Vec<RuleReport>) -> Report {
    let text = "version: 1\ncollections: [{namespace: app.c, field: at, expireAfter: 1h}]\n";
    let run = RunRecord {
        command: ReportCommand::Sweep,
        dry_run,
        run_id: "r".into(),
        as_of: None,
        started_at: DateTime::from_millis(0),
        duration_ms: 1,
        signal_exit,
        policy: &parse("p", text, &|_| None, true).unwrap(),
        server: None,
        plan: None,
        limits: RunCaps::default(),
    };
    Report::new(run, rules)
}

fn rules(statuses: &[Status]) -> Vec<RuleReport> {
    let rule = |(index, status): (usize, &Status)| RuleReport {
        status: *status,
        ..made_up::report(&format!("rule {index}"), &format!("app.c{index}"))
    };
    statuses.iter().enumerate().map(rule).collect()
}

#[test]
fn the_worst_rule_decides_status_and_exit_code() {
    use Status::{Complete, Failed, Partial, Refused, Skipped};
    for (statuses, status, swept, dry) in [
        (&[][..], Complete, 0, 0),
        (&[Skipped], Complete, 0, 0),
        (&[Complete, Skipped], Complete, 0, 0),
        (&[Complete, Partial], Partial, exit::LIMIT, exit::LIMIT),
        (&[Refused, Partial], Refused, exit::REFUSED, 0),
        (&[Refused, Failed, Complete], Failed, exit::RULE_FAILED, exit::RULE_FAILED),
    ] {
        let sweep = report(false, None, rules(statuses));
        assert_eq!((sweep.status, sweep.exit_code), (status, swept), "{statuses:?}");
        assert_eq!(report(true, None, rules(statuses)).exit_code, dry, "{statuses:?}");
        assert_eq!(report(false, Some(130), rules(statuses)).exit_code, 130, "{statuses:?}");
    }
}

#[test]
fn the_detailed_exit_code_says_whether_a_dry_run_found_something_and_nothing_else() {
    let found = |dry_run, statuses: &[Status], expired| {
        let mut rules = rules(statuses);
        rules[0].expired_count = expired;
        report(dry_run, None, rules).with_detailed_exit_code().exit_code
    };
    let complete = &[Status::Complete];
    assert_eq!((found(true, complete, Some(1)), found(true, complete, Some(0))), (exit::FOUND, exit::DONE));
    assert_eq!((found(true, complete, None), found(false, complete, Some(1))), (exit::DONE, exit::DONE));
    assert_eq!(found(true, &[Status::Failed], Some(1)), exit::RULE_FAILED);
    assert_eq!(found(true, &[Status::Refused], Some(1)), exit::FOUND);
}

#[test]
fn the_line_of_a_quiet_run_names_every_rule_that_did_not_run_to_its_end_and_what_is_left() {
    use Status::{Complete, Failed, Partial, Refused};
    let mut rules = rules(&[Complete, Partial, Refused, Failed, Refused, Partial]);
    rules[1].reason = Some(Reason::Stop(StopReason::MaxDeletes));
    rules[1].remaining_count = Some(19_337);
    rules[2].reason = Some(Reason::Guard(Guard::MaxDeletePercent));
    rules[2].error = Some("90 % have expired".into());
    rules[2].remaining_count = Some(90);
    rules[3].error = Some("counting: no".into());
    rules[4].reason = Some(Reason::Guard(Guard::View));
    rules[4].error = Some("a view".into());
    rules[5].reason = Some(Reason::Stop(StopReason::MaxDeletes));
    rules[5].remaining_count = Some(1);
    rules[0].remaining_count = Some(0);
    let line = reason(&report(false, None, rules.clone()));
    assert_eq!(
        line,
        "failed: deleted 0 documents by 3 rules; left: 19,428 documents, and an unknown number by 2 rules; \
         2 partial (maxDeletes); 2 refused (maxDeletePercent, view); 1 failed, in 1 ms; \
         app.c3: failed: counting: no; app.c2: refused: maxDeletePercent: 90 % have expired; app.c4: refused: view: a view; \
         also app.c1, app.c5"
    );
    // A reply was lost: so many were deleted at least, and so many are left at most.
    rules.truncate(2);
    rules[1] =
        RuleReport { uncertain: true, expired_count: Some(10), deleted_count: 4, remaining_count: None, ..rules[1].clone() };
    let line = reason(&report(false, None, rules));
    assert!(line.starts_with("partial: deleted at least 4 documents by 2 rules; left: at most 6 documents; 1 partial"), "{line}");
    // A rule with a `*` is one rule of the policy, in many namespaces.
    let mut tenants = self::rules(&[Complete, Complete, Complete]);
    tenants[2].name = tenants[1].name.clone();
    let line = reason(&report(false, None, tenants));
    assert!(line.starts_with("complete: deleted 0 documents by 2 rules in 3 namespaces"), "{line}");
    let many: Vec<Status> = (0..40).map(|_| Partial).collect();
    let line = reason(&report(false, None, self::rules(&many)));
    assert!(line.len() < 400, "{line}");
}

#[test]
fn a_rule_whose_lease_another_run_holds_makes_no_other_exit_code_better_or_worse() {
    use Status::{Complete, Partial, Refused};
    let with_held = |statuses: &[Status]| {
        let mut rules = rules(statuses);
        rules[0].reason = Some(Reason::Guard(Guard::Lock));
        report(false, None, rules).exit_code
    };
    assert_eq!(with_held(&[Refused]), exit::LOCKED);
    assert_eq!(with_held(&[Refused, Complete]), exit::LOCKED);
    assert_eq!(with_held(&[Refused, Partial]), exit::LIMIT);
    assert_eq!(with_held(&[Refused, Refused]), exit::REFUSED);
    // Only the guard stands for a lease held by another run; the stop does not.
    let mut stopped = rules(&[Partial]);
    stopped[0].reason = Some(Reason::Stop(StopReason::LockLost));
    assert_eq!(report(false, None, stopped).exit_code, exit::LIMIT);
}

#[test]
fn a_total_is_null_where_a_rule_that_counts_is_unknown() {
    let mut two = rules(&[Status::Complete, Status::Skipped]);
    two[0].expired_count = Some(3);
    two[0].document_count = Some(10);
    two[0].estimated_bytes = Some(300);
    let totals = report(true, None, two.clone()).totals;
    assert_eq!((totals.expired_count, totals.document_count, totals.estimated_bytes), (Some(3), Some(10), Some(300)));
    two[1].status = Status::Failed;
    let totals = report(true, None, two).totals;
    assert_eq!((totals.expired_count, totals.document_count, totals.failed), (None, Some(10), 1));
}
