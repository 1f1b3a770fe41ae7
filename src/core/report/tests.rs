//! Status, exit code and summary of a report.

mod shown;

use super::*;
use crate::core::plan::StopReason;
use crate::core::policy::RunLimits;
use crate::core::policy::parse::parse;

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
        limits: RunLimits::default(),
        pacing_changes: Vec::new(),
    };
    Report::new(run, rules)
}

fn rules(statuses: &[Status]) -> Vec<RuleReport> {
    let rule = |(index, status): (usize, &Status)| RuleReport {
        status: *status,
        ..crate::testing::made_up::report(&format!("rule {index}"), &format!("app.c{index}"))
    };
    statuses.iter().enumerate().map(rule).collect()
}

#[test]
fn a_share_is_rounded_once() {
    let mut rules = rules(&[Status::Complete]);
    let (expired, documents, rounded) = (Some(7), Some(13), Some(53.85));
    rules[0] = RuleReport { expired_count: expired, document_count: documents, expired_percent: rounded, ..rules[0].clone() };
    let report = report(false, None, rules);
    for format in [Format::Table, Format::Markdown, Format::Html] {
        let text = render(&report, format, TableStyle::default());
        assert!(text.contains("53.8 %") && !text.contains("53.9"), "{text}");
    }
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
        "failed: deleted 0 documents by 3 rules; left: 19,428 documents; unknown: 2 rules; \
         2 partial (maxDeletes); 2 refused (maxDeletePercent, view); 1 failed, in 1 ms; \
         rule 3 (app.c3): failed: counting: no; rule 2 (app.c2): refused: maxDeletePercent: 90 % have expired; \
         rule 4 (app.c4): refused: view: a view; also rule 1 (app.c1), rule 5 (app.c5)"
    );
    // A reply was lost: so many were deleted at least, and so many are left at most.
    rules.truncate(2);
    rules[1] =
        RuleReport { uncertain: true, expired_count: Some(10), deleted_count: 4, remaining_count: None, ..rules[1].clone() };
    let line = reason(&report(false, None, rules));
    assert!(
        line.starts_with(
            "partial: deleted at least 4 documents by 1 rule, nothing by 1 rule; left: at most 6 documents; 1 partial"
        ),
        "{line}"
    );
    // A rule that fails after its first deletes has deleted them, and is named.
    let mut failed = self::rules(&[Failed]);
    failed[0] = RuleReport { name: "carts".into(), error: Some("disk full".into()), ..failed[0].clone() };
    let line = reason(&report(false, None, failed.clone()));
    assert!(line.starts_with("failed: nothing was deleted; "), "{line}");
    failed[0].deleted_count = 500;
    let line = reason(&report(false, None, failed));
    assert!(line.starts_with("failed: deleted 500 documents by 1 rule; "), "{line}");
    assert!(line.ends_with("; carts (app.c0): failed: disk full"), "{line}");
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

/// Returns a report of rules that each count `expired` of the 10 documents of `app.c`.
fn sharing(command: ReportCommand, max_deletes: Option<u64>, expired: &[u64]) -> Report {
    let rule = |(index, expired): (usize, &u64)| RuleReport {
        expired_count: Some(*expired),
        would_delete_count: Some(*expired),
        document_count: Some(10),
        expired_percent: Some(*expired as f64 * 10.0),
        estimated_bytes: Some(100),
        ..crate::testing::made_up::report(&format!("rule {index}"), "app.c")
    };
    let rules = expired.iter().enumerate().map(rule).collect();
    let text = "version: 1\ncollections: [{namespace: app.c, field: at, expireAfter: 1h}]\n";
    let run = RunRecord {
        command,
        dry_run: true,
        run_id: "r".into(),
        as_of: None,
        started_at: DateTime::from_millis(0),
        duration_ms: 1,
        signal_exit: None,
        policy: &parse("p", text, &|_| None, true).unwrap(),
        server: None,
        plan: None,
        limits: RunLimits { max_deletes, ..RunLimits::default() },
        pacing_changes: Vec::new(),
    };
    Report::new(run, rules)
}

#[test]
fn sums_over_rules_that_share_a_collection_are_upper_bounds_in_every_format() {
    let report = sharing(ReportCommand::Audit, None, &[10, 10]);
    let totals = &report.totals;
    assert_eq!((totals.expired_count, totals.would_delete_count, totals.overlapping), (Some(20), Some(20), true));
    assert_eq!(totals.document_count, Some(10), "a collection counts once");
    for format in [Format::Table, Format::Markdown] {
        let text = render(&report, format, TableStyle { colored: false, width: 400, ..TableStyle::default() });
        for part in [
            "total: at most 20 documents expired, because rules share a collection and each counts a document, in collections of 10",
            "would delete at most 20 documents by 2 rules",
            "for the same collection: a document that has expired by both is counted by each, and deleted once",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    let page = render(&report, Format::Html, TableStyle::default());
    for part in ["at most 20 documents would go", "<dt>expired</dt><dd>at most 20</dd>", "<dd>at most 200 B</dd>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // One of them counts nothing.
    let report = sharing(ReportCommand::Audit, None, &[10, 0]);
    assert!(!report.totals.overlapping && report.rules.iter().all(|rule| rule.warnings.is_empty()), "{report:?}");
    let text = render(&report, Format::Table, TableStyle { colored: false, width: 400, ..TableStyle::default() });
    assert!(text.contains("total: 10 of 10 documents expired (100.0 %)") && text.contains("would delete 10 documents"), "{text}");
}

#[test]
fn what_is_left_by_rules_that_share_a_collection_is_an_upper_bound() {
    let mut rules = rules(&[Status::Partial, Status::Partial]);
    rules.iter_mut().for_each(|rule| rule.remaining_count = Some(4));
    assert_eq!(lines::left(&report(false, None, rules.clone())).as_deref(), Some("left: 8 documents"));
    rules.iter_mut().for_each(|rule| rule.namespace = "app.c".into());
    assert_eq!(lines::left(&report(false, None, rules.clone())).as_deref(), Some("left: at most 8 documents"));
    let page = render(&report(false, None, rules), Format::Html, TableStyle::default());
    assert!(page.contains("<dt>left</dt><dd>at most 8</dd>"), "{page}");
}

#[test]
fn the_limit_of_the_run_is_that_of_each_rule_and_of_their_sum_in_every_format() {
    let report = sharing(ReportCommand::Sweep, Some(10), &[40]);
    let rule = &report.rules[0];
    assert_eq!((rule.expired_count, rule.would_delete_count), (Some(40), Some(10)));
    assert_eq!((rule.would_delete_limit, report.totals.would_delete_count), (Some(StopReason::MaxDeletes), Some(10)));
    let json: serde_json::Value = serde_json::from_str(&render(&report, Format::Json, TableStyle::default())).unwrap();
    assert_eq!((&json["rules"][0]["wouldDeleteCount"], &json["totals"]["wouldDeleteCount"]), (&10.into(), &10.into()));
    let table = render(&report, Format::Table, TableStyle { colored: false, width: 400, ..TableStyle::default() });
    assert!(table.contains("would delete 10 documents by 1 rule") && table.contains("--max-deletes"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("rule 0        10       40")), "{table}");
    let markdown = render(&report, Format::Markdown, TableStyle::default());
    assert!(markdown.contains("| 40 | 10 | 100.0 % | 10 | maxDeletes |"), "{markdown}");
    let csv = render(&report, Format::Csv, TableStyle::default());
    assert!(csv.contains(",complete,,40,,,,,,,,10,maxDeletes,"), "{csv}");
    let page = render(&report, Format::Html, TableStyle::default());
    for part in ["10 documents would go", "data-l=\"would go\" data-v=\"10\">10<span class=\"under\">maxDeletes</span>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let both = sharing(ReportCommand::Sweep, Some(10), &[40, 7]);
    let goes: Vec<_> = both.rules.iter().map(|rule| (rule.would_delete_count, rule.would_delete_limit)).collect();
    assert_eq!(goes, [(Some(10), Some(StopReason::MaxDeletes)), (Some(7), None)]);
    assert_eq!(both.totals.would_delete_count, Some(10));
}
