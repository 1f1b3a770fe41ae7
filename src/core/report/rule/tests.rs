use std::time::Duration as Time;

use super::*;
use crate::core::plan::fields::UnknownField;
use crate::core::plan::findings::CountObstacle;
use crate::core::plan::outcome::{Archived, ChildCollection, End, Outcome, Stopped, Swept};
use crate::core::plan::waits::Wait;
use crate::core::plan::{Approved, Guard, Refusal, SkipReason};
use crate::core::policy::namespace::Namespace;
use crate::testing::made_up::{self, counted, not_swept, planned, swept, with_obstacle};

fn of(planned: &PlannedRule, findings: &Findings, outcome: RuleOutcome) -> RuleReport {
    RuleReport::of(planned, findings, &outcome, &Remaining::Derived)
}

fn sweep(swept: Swept) -> RuleOutcome {
    RuleOutcome::Swept(Box::new(swept))
}

fn verdict(report: &RuleReport) -> (Status, String) {
    (report.status, report.why().unwrap_or_default())
}

#[test]
fn a_dry_run_has_counts_and_nothing_of_a_sweep() {
    let report = of(&planned("", 200), &counted(50), not_swept());
    assert_eq!(verdict(&report), (Status::Complete, String::new()));
    assert_eq!((report.expired_count, report.document_count, report.expired_percent), (Some(50), Some(200), Some(25.0)));
    assert_eq!((report.estimated_bytes, report.remaining_count), (Some(5000), Some(50)));
    assert_eq!((report.oldest_expired, report.oldest_remaining.map(Instant::millis)), (report.oldest_remaining, Some(0)));
    assert_eq!((report.deleted_count, report.unconfirmed_count, report.paused_ms, report.archived_count), (0, None, None, None));
    assert_eq!((report.strategy, report.duration_ms), (Some(Strategy::CollectionScan), 10));
}

#[test]
fn a_rule_for_which_no_server_was_asked_has_what_the_policy_says_and_nothing_else() {
    let rule = planned("    ttlField: ttl\n    holds: {collection: app.holds, key: tenant}\n", 3).rule;
    let report = RuleReport::of_policy(&rule, vec!["beware".into()]);
    assert_eq!(verdict(&report), (Status::Complete, String::new()));
    let expected = RuleReport {
        field: Some("at".into()),
        ttl_field: Some("ttl".into()),
        holds: Some("app.holds".into()),
        warnings: vec!["beware".into()],
        ..made_up::report("app.c", "app.c")
    };
    assert_eq!(report, expected);
}

#[test]
fn a_sweep_has_what_it_did() {
    let mut outcome = swept(50, End::Complete);
    outcome.outcome.unconfirmed = 1;
    outcome.outcome.paused[Wait::Lag] = Time::from_secs(1);
    let report = of(&planned("", 200), &Findings::default(), sweep(outcome));
    assert_eq!((report.deleted_count, report.unconfirmed_count, report.remaining_count), (50, Some(1), Some(0)));
    assert_eq!((report.expired_count, report.request_units), (None, None));
    assert_eq!(report.clone().billed(Some(1.499)).request_units, Some(1.5));
    assert_eq!(
        report.paused_ms,
        Some(PausedMs { lag: 1000, oplog: 0, head: 0, latency: 0, pressure: 0, rate: 0, pause_file: 0, throttle: 0 })
    );
    let quiet = of(&planned("", 200), &Findings::default(), sweep(swept(0, End::Complete)));
    assert_eq!((quiet.unconfirmed_count, quiet.warnings.len()), (Some(0), 0));
}

#[test]
fn the_plan_decides_before_counts_and_counts_before_the_sweep() {
    let mut rule = planned("    maxDeletePercent: 50\n", 200);
    assert_eq!(of(&rule, &counted(100), not_swept()).status, Status::Complete);
    let refused = of(&rule, &counted(101), not_swept());
    assert_eq!((refused.status, refused.reason), (Status::Refused, Some(Reason::Guard(Guard::MaxDeletePercent))));
    assert_eq!(refused.remaining_count, Some(101), "a refused rule leaves everything");
    let stopped = with_obstacle(CountObstacle::Stopped(StopReason::StopFile), counted(101));
    assert_eq!(verdict(&of(&rule, &stopped, not_swept())), (Status::Partial, "stopFile".to_owned()));
    let failed = with_obstacle(CountObstacle::Failed("counting: no".into()), Findings::default());
    assert_eq!(verdict(&of(&rule, &failed, not_swept())), (Status::Failed, "counting: no; nothing was deleted there".to_owned()));
    let Decision::Sweep(sweep) = rule.decision.clone() else { panic!("{rule:?}") };
    rule.decision = Decision::Refuse { refusal: Refusal::new(Guard::Clock, "wrong"), countable: Some(sweep) };
    let refused = of(&rule, &counted(7), not_swept());
    assert_eq!((verdict(&refused), refused.expired_count), ((Status::Refused, "clock: wrong".to_owned()), Some(7)));
    assert_eq!(verdict(&of(&rule, &failed, not_swept())), (Status::Failed, "counting: no; nothing was deleted there".to_owned()));
    rule.decision = Decision::Skip(SkipReason::Disabled);
    let skipped = of(&rule, &Findings::default(), not_swept());
    assert_eq!(verdict(&skipped), (Status::Skipped, "disabled in the policy".to_owned()));
    assert_eq!((skipped.document_count, skipped.remaining_count), (None, None));
    rule.decision = Decision::Fail("gone".into());
    let gone = "gone; nothing was deleted there".to_owned();
    assert_eq!(verdict(&of(&rule, &Findings::default(), not_swept())), (Status::Failed, gone));
    // A check never deletes, so it does not say so.
    for findings in [Findings::default(), failed] {
        let checked = of(&rule, &findings, RuleOutcome::Checked);
        assert_eq!(verdict(&checked), (Status::Failed, "gone".to_owned()));
    }
}

#[test]
fn more_than_was_approved_and_the_tolerance_is_refused() {
    let mut rule = planned("", 1000);
    let Decision::Sweep(sweep) = &mut rule.decision else { panic!("{rule:?}") };
    sweep.approved = Some(Approved::of(100));
    assert_eq!(of(&rule, &counted(101), not_swept()).status, Status::Complete);
    let refused = of(&rule, &counted(102), not_swept());
    assert_eq!((refused.status, refused.reason), (Status::Refused, Some(Reason::Guard(Guard::Plan))));
}

#[test]
fn every_end_of_a_sweep_has_its_verdict() {
    use End::{Complete, Failed, Partial};
    let lost = |swept: Swept| Swept { lease_lost: Some("the lease was lost".into()), ..swept };
    for (outcome, status, why) in [
        (sweep(swept(3, Complete)), Status::Complete, ""),
        (sweep(swept(3, Partial(StopReason::MaxDeletes))), Status::Partial, "maxDeletes"),
        (sweep(swept(1, Failed("no".into()))), Status::Failed, "deleting: no; 1 document was deleted before"),
        (
            sweep(lost(swept(1234, Partial(StopReason::LockLost)))),
            Status::Failed,
            "lockLost: the lease was lost; 1,234 documents were deleted before",
        ),
        (RuleOutcome::NotBegun(Stopped { reason: StopReason::Interrupted, lease_lost: None }), Status::Partial, "interrupted"),
        (RuleOutcome::Unreachable("no server".into()), Status::Failed, "not begun: no server; nothing was deleted there"),
        (
            RuleOutcome::Unreachable("no file (os error 2)".into()),
            Status::Failed,
            "not begun: no file; nothing was deleted there",
        ),
    ] {
        let report = of(&planned("", 200), &Findings::default(), outcome);
        assert_eq!(verdict(&report), (status, why.to_owned()));
    }
    let mut uncertain = swept(7, Failed("no reply".into()));
    uncertain.outcome.uncertain = true;
    let report = of(&planned("", 200), &counted(9), sweep(uncertain));
    assert_eq!(report.error.as_deref(), Some("deleting: no reply; at least 7 documents were deleted before"));
    assert_eq!(report.remaining_count, None, "what a lost reply deleted is unknown");
}

#[test]
fn what_remains_follows_from_counts_and_deletes() {
    let stop = || End::Partial(StopReason::MaxDeletes);
    for (findings, swept, remaining) in [
        (Findings::default(), swept(7, End::Complete), Some(0)),
        (counted(9), swept(7, stop()), Some(2)),
        (counted(9), swept(12, stop()), Some(0)),
        (Findings::default(), swept(7, stop()), None),
        (counted(9), swept(7, End::Failed(String::new())), Some(2)),
    ] {
        let report = of(&planned("", 200), &findings, sweep(swept));
        assert_eq!((report.remaining_count, report.oldest_remaining), (remaining, None));
    }
    let later = Remaining::Counted { count: 4, oldest: Some(bson::DateTime::from_millis(5)) };
    let report = RuleReport::of(&planned("", 200), &counted(9), &sweep(swept(7, stop())), &later);
    assert_eq!((report.remaining_count, report.oldest_remaining.map(Instant::millis)), (Some(4), Some(5)));
    // The date may have been read before the last document went.
    let none = Remaining::Counted { count: 0, oldest: Some(bson::DateTime::from_millis(5)) };
    let report = RuleReport::of(&planned("", 200), &counted(9), &sweep(swept(7, stop())), &none);
    assert_eq!((report.remaining_count, report.oldest_remaining), (Some(0), None));
    let complete = swept(7, End::Complete).outcome;
    let missed_on_a_shard = Outcome { end: End::Partial(StopReason::Missed), ..complete.clone() };
    let archived = Archived { documents: 8, incomparable: 0 };
    let changed_once_archived = Outcome { archived, ..complete.clone() };
    // The one may have been deleted, too.
    let uncertain = Outcome { uncertain: true, archived, ..complete.clone() };
    for (outcome, status) in
        [(missed_on_a_shard, Status::Partial), (changed_once_archived, Status::Complete), (uncertain, Status::Complete)]
    {
        for remaining in [Remaining::Derived, Remaining::Shared] {
            let swept = Swept { outcome: outcome.clone(), ..swept(7, End::Complete) };
            let report = RuleReport::of(&planned("", 200), &counted(9), &sweep(swept), &remaining);
            assert_eq!((report.status, report.remaining_count), (status, None), "{outcome:?}");
        }
        let failed = Outcome { end: End::Failed("no space".into()), ..outcome };
        assert!(!failed.is_rest_unknown(), "{failed:?} has not gone to the end");
    }
    // A document that a further pass found was archived twice.
    let archived_again = Outcome { seen_none: true, archived, ..complete };
    let report = of(&planned("", 200), &counted(9), sweep(Swept { outcome: archived_again, ..swept(7, End::Complete) }));
    assert_eq!((report.status, report.remaining_count), (Status::Complete, Some(0)));
    assert!(report.warnings[0].ends_with("none of them is still expired"), "{:?}", report.warnings);
    let unknown = RuleReport::of(&planned("", 200), &counted(9), &not_swept(), &Remaining::Unknown);
    assert_eq!((unknown.remaining_count, unknown.oldest_remaining), (None, None));
}

#[test]
fn the_archive_is_the_runs_after_a_sweep_and_the_policys_before() {
    let rule = planned("    archive: {directory: /backup}\n", 200);
    let before = of(&rule, &counted(5), not_swept());
    assert_eq!((before.archive.as_deref(), before.archived_count), (Some("/backup"), None));
    let mut outcome = swept(3, End::Complete);
    outcome.archive = Some("/backup/run".into());
    outcome.outcome.archived = Archived { documents: 5, incomparable: 0 };
    let after = of(&rule, &counted(5), sweep(outcome.clone()));
    assert_eq!((after.archive.as_deref(), after.archived_count), (Some("/backup/run"), Some(5)));
    assert!(after.warnings[0].starts_with("2 documents archived and not deleted"), "{:?}", after.warnings);
    outcome.outcome.archived = Archived::default();
    let orphans = ChildCollection {
        namespace: Namespace { database: "app".into(), collection: "d".into() },
        deleted: 2,
        orphans: 2,
        uncertain: false,
        archived: Archived { documents: 2, incomparable: 0 },
    };
    let children = Some(Children { collections: vec![orphans], left: 0 });
    let of_children = Swept { outcome: Outcome { children, ..outcome.outcome.clone() }, ..outcome.clone() };
    let only_orphans = of(&rule, &counted(0), sweep(of_children));
    assert_eq!((only_orphans.archive.as_deref(), only_orphans.archived_count), (Some("/backup/run"), Some(0)));
    let nothing = of(&rule, &counted(0), sweep(outcome));
    assert_eq!((nothing.archive, nothing.archived_count), (None, Some(0)));
}

#[test]
fn what_a_sweep_would_delete_is_bound_by_the_limits_and_known_only_before_it() {
    let would = |report: &RuleReport| (report.would_delete_count, report.would_delete_limit);
    let limited = planned("    maxDeletes: 10\n", 200);
    for (expired, expected) in [(9, (Some(9), None)), (10, (Some(10), None)), (11, (Some(10), Some(StopReason::MaxDeletes)))] {
        assert_eq!(would(&of(&limited, &counted(expired), not_swept())), expected, "{expired}");
    }
    assert_eq!(would(&of(&limited, &Findings::default(), not_swept())), (None, None), "not counted");
    assert_eq!(would(&of(&limited, &counted(11), sweep(swept(10, End::Partial(StopReason::MaxDeletes))))), (None, None));
    let refused = planned("    maxDeletePercent: 1\n", 200);
    assert_eq!(would(&of(&refused, &counted(11), not_swept())), (None, None));
}

#[test]
fn a_refused_rule_has_no_estimate_of_a_sweep_and_counts_all_the_same() {
    let mut findings = counted(101);
    findings.told.forecast = Some(crate::core::pace::units::UnitForecast { units: 7.0, seconds: Some(1.0) });
    findings.told.estimate = Some(made_up::estimate());
    let costs = |keys: &str| {
        let report = of(&planned(keys, 200), &findings, not_swept());
        (
            report.expired_count,
            report.estimated_bytes,
            report.estimate.is_some(),
            report.estimated_request_units,
            report.estimated_seconds,
        )
    };
    assert_eq!(costs(""), (Some(101), Some(10_100), true, Some(7.0), Some(1.0)));
    assert_eq!(costs("    maxDeletePercent: 50\n"), (Some(101), Some(10_100), false, None, None));
    let report = |keys: &str| of(&planned(keys, 200), &findings, not_swept());
    let totals =
        made_up::dry_run(vec![report("    maxDeletePercent: 50\n"), RuleReport { namespace: "app.d".into(), ..report("") }])
            .totals;
    assert_eq!(totals.oplog_bytes, Some(150_000));
}

#[test]
fn a_field_that_none_has_is_refused_before_all_else() {
    let rule = planned("    filter: {held: {$ne: true}}\n    maxDeletePercent: 1\n", 200);
    let unknown = |field| UnknownField { field, is_known: false, similar: None, is_elsewhere: false, is_strict: false };
    let holds = Some(Refusal::new(Guard::Holds, "no holds"));
    let mut findings = counted(50);
    findings.decides.unknown_fields = crate::core::plan::fields::named(&rule).into_iter().map(unknown).collect();
    findings.decides.holds_refusal = holds;
    let guard = |findings: &Findings| of(&rule, findings, not_swept()).reason;
    assert_eq!(guard(&findings), Some(Reason::Guard(Guard::UnknownField)));
    findings.decides.unknown_fields.clear();
    assert_eq!(guard(&findings), Some(Reason::Guard(Guard::Holds)));
}
