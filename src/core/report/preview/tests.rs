use bson::DateTime;

use super::*;
use crate::base::instant::Instant;
use crate::core::plan::{Guard, Reason, SkipReason};
use crate::core::report::{Format, PlanReport, ReportCommand, Strategy, TableStyle, render};
use crate::testing::made_up::{NOW, dry_run, report};

/// Lines above the question on a small terminal.
const MAX_LINES: usize = 19;

/// Returns a rule that may delete this many of so many documents.
fn rule(name: &str, namespace: &str, expired: u64, documents: u64) -> RuleReport {
    RuleReport {
        threshold: Some(Instant(DateTime::from_millis(NOW - 3_600_000))),
        expired_count: Some(expired),
        document_count: Some(documents),
        expired_percent: percent(expired, documents),
        would_delete_count: Some(expired),
        ..report(name, namespace)
    }
}

fn not_swept(rule: RuleReport, status: Status, reason: Reason, error: Option<&str>) -> RuleReport {
    RuleReport { status, reason: Some(reason), error: error.map(str::to_owned), would_delete_count: None, ..rule }
}

fn refused(rule: RuleReport, guard: Guard, why: &str) -> RuleReport {
    not_swept(rule, Status::Refused, Reason::Guard(guard), Some(why))
}

fn shown(report: &Report, width: usize, most: Option<usize>) -> (Vec<String>, bool) {
    let Lines { lines, is_whole } = above_question(report, width, most);
    (lines.into_iter().map(|(_, line)| line).collect(), is_whole)
}

#[test]
fn the_question_shows_what_goes_under_every_limit_and_what_does_not_go() {
    let carts = RuleReport {
        would_delete_count: Some(100),
        would_delete_limit: Some(StopReason::MaxDeletes),
        ..rule("shop.carts", "shop.carts", 20_587, 50_000)
    };
    let night = RuleReport {
        would_delete_count: Some(0),
        would_delete_limit: Some(StopReason::Window),
        warnings: vec!["deletes only from 01:00:00 to 05:00:00 UTC, and it is not that time now".into()],
        ..rule("night", "shop.events", 7, 10)
    };
    let buckets = RuleReport { strategy: Some(Strategy::Buckets), ..rule("weather", "shop.weather", 3, 40) };
    let own = RuleReport { ttl_field: Some("ttl".into()), ..rule("ttl", "shop.carts", 1, 50_000) };
    let report = dry_run(vec![
        carts,
        own,
        night,
        buckets,
        refused(rule("jobs", "shop.jobs", 90, 100), Guard::MaxDeletePercent, "90 of 100 documents have expired"),
        refused(report("shop.v", "shop.v"), Guard::View, "a view holds no documents of its own"),
        RuleReport {
            warnings: vec!["no such namespace: `shop.gone`".into()],
            ..not_swept(report("shop.gone", "shop.gone"), Status::Skipped, Reason::Skip(SkipReason::NoSuchNamespace), None)
        },
        rule("shop.live", "shop.live", 0, 5),
    ]);
    let (lines, is_whole) = shown(&report, 120, Some(MAX_LINES));
    assert_eq!(
        lines,
        [
            "server mongodb 6.0.5, replicaSet rs0: a:1, b:1",
            "policy sweeper.yaml, as of 2027-01-15T08:00:00.000Z",
            "rule        would go  expired      of   share  dates up to (UTC)",
            "shop.carts       100   20,587  50,000  41.2 %  2027-01-15 07:00   maxDeletes",
            "ttl                1        1  50,000   0.0 %  2027-01-15 07:00   or by own `ttl`",
            "night              0        7      10  70.0 %  2027-01-15 07:00   window closed",
            "weather            3        3      40   7.5 %  2027-01-15 07:00   buckets",
            "jobs         refused       90     100  90.0 %  2027-01-15 07:00",
            "shop.v       refused        -       -       -  -",
            "shop.gone    skipped        -       -       -  -                  no such namespace",
            "1 more rule with nothing expired",
            "jobs: refused: maxDeletePercent: 90 of 100 documents have expired",
            "shop.v: refused: view: a view holds no documents of its own",
            "warning: night: deletes only from 01:00:00 to 05:00:00 UTC, and it is not that time now",
            "not archived: this cannot be undone",
        ]
    );
    assert!(is_whole);
    // Two rules share a collection, and one deletes nothing now.
    assert_eq!(question(&report).unwrap(), "delete at most 101 documents and 3 buckets from 2 collections?");
}

#[test]
fn a_narrow_terminal_breaks_lines_and_loses_nothing() {
    let report = dry_run(vec![refused(
        rule("sessions", "shop.sessions", 84_219, 200_000),
        Guard::MaxDeletePercent,
        "84,219 of 200,000 documents have expired, 42.11 %, and 10 % may be deleted",
    )]);
    assert_eq!(
        shown(&report, 60, Some(MAX_LINES)).0[3..],
        [
            "sessions",
            "       refused   84,219  200,000  42.1 %  2027-01-15 07:00",
            "sessions: refused: maxDeletePercent: 84,219 of 200,000",
            "    documents have expired, 42.11 %, and 10 % may be deleted",
        ]
    );
}

#[test]
fn rows_that_take_three_lines_leave_room_for_fewer() {
    let rules = (0..5).map(|number| {
        let name = format!("shop.recommendationsPerCustomer{number}");
        RuleReport { would_delete_limit: Some(StopReason::MaxDeletes), ..rule(&name, &name, 100 + number, 1_000) }
    });
    let (lines, is_whole) = shown(&dry_run(rules.collect()), 60, Some(12));
    assert_eq!(
        lines[2..],
        [
            "rule  would go  expired     of   share  dates up to (UTC)",
            "shop.recommendationsPerCustomer3",
            "           103      103  1,000  10.3 %  2027-01-15 07:00",
            "    maxDeletes",
            "shop.recommendationsPerCustomer4",
            "           104      104  1,000  10.4 %  2027-01-15 07:00",
            "    maxDeletes",
            "3 more rules: 303 documents",
            "not archived: this cannot be undone",
        ]
    );
    assert!(!is_whole);
}

#[test]
fn the_limits_of_the_run_bound_the_question_and_the_rows() {
    let limits = ReportedLimits { max_deletes: Some(10), rate: Some(500), max_duration_seconds: Some(7200) };
    let buckets = RuleReport { strategy: Some(Strategy::Buckets), ..rule("b", "app.b", 4, 40) };
    let mut report = Report { limits: Some(limits), ..dry_run(vec![rule("a", "app.a", 90, 100), buckets]) };
    assert_eq!(
        shown(&report, 120, Some(MAX_LINES)).0[2..],
        [
            "rule  would go  expired   of   share  dates up to (UTC)",
            "a           10       90  100  90.0 %  2027-01-15 07:00   --max-deletes",
            "b            4        4   40  10.0 %  2027-01-15 07:00   buckets",
            "the run: at most 10 documents (--max-deletes), at most 500 documents per second, at most 2h 00m",
            "not archived: this cannot be undone",
        ]
    );
    assert_eq!(question(&report).unwrap(), "delete at most 10 documents or buckets from 2 collections?");
    report.rules.remove(0);
    assert_eq!(question(&report).unwrap(), "delete at most 4 buckets from 1 collection?");
}

#[test]
fn a_plan_shows_what_it_approved() {
    let approved = RuleReport { approved_count: Some(1_000), ..rule("a", "app.a", 990, 2_000) };
    let plan = PlanReport { path: "audit.json".into(), run_id: "r".into() };
    let other = not_swept(report("b", "app.b"), Status::Skipped, Reason::Skip(SkipReason::NotInPlan), None);
    let report = Report { plan: Some(plan), ..dry_run(vec![approved, other]) };
    assert_eq!(
        shown(&report, 120, Some(MAX_LINES)).0[2..],
        [
            "plan audit.json: approved 1,000 by 1 rule",
            "rule  would go  expired     of   share  dates up to (UTC)",
            "a          990      990  2,000  49.5 %  2027-01-15 07:00   approved 1,000",
            "b      skipped        -      -       -  -                  not in the plan",
            "not archived: this cannot be undone",
        ]
    );
}

#[test]
fn an_unknown_count_is_asked_for_as_unknown_and_nothing_is_not_asked_for() {
    let unknown = RuleReport { expired_count: None, would_delete_count: None, ..rule("a", "app.a", 1, 1) };
    let report = dry_run(vec![unknown, rule("b", "app.b", 5, 9)]);
    assert_eq!(question(&report).unwrap(), "delete an unknown number of documents from 2 collections?");
    assert!(shown(&report, 80, None).0[3].starts_with("a            ?        -"), "{:?}", shown(&report, 80, None).0);
    let closed = RuleReport { would_delete_count: Some(0), ..rule("a", "app.a", 5, 9) };
    let idle = dry_run(vec![closed, refused(rule("b", "app.b", 5, 9), Guard::Clock, "no"), rule("c", "app.c", 0, 9)]);
    assert_eq!(question(&idle), None);
}

/// Returns a rule for each tenant.
fn tenants(name: &str, number: u64) -> Vec<RuleReport> {
    (0..number).map(|tenant| rule(name, &format!("tenant_{tenant}.{name}"), tenant, 1_000)).collect()
}

#[test]
fn however_many_namespaces_there_are_the_lines_are_few_and_all_of_them_can_be_seen() {
    let mut rules = tenants("jobs", 300);
    rules[7].would_delete_limit = Some(StopReason::MaxDeletes);
    rules[8] = refused(rules[8].clone(), Guard::View, "a view");
    rules[9] = refused(rules[9].clone(), Guard::View, "a view");
    rules.push(rule("sessions", "app.sessions", 5, 50));
    let report = dry_run(rules);
    let (lines, is_whole) = shown(&report, 120, Some(MAX_LINES));
    assert_eq!(
        lines[2..],
        [
            "rule                   would go  expired       of   share  dates up to (UTC)",
            "jobs (299 namespaces)    44,833   44,850  299,000  15.0 %  2027-01-15 07:00   2 refused, maxDeletes",
            "sessions                      5        5       50  10.0 %  2027-01-15 07:00",
            "1 more rule with nothing expired",
            "jobs tenant_8.jobs, jobs tenant_9.jobs: refused: view: a view",
            "not archived: this cannot be undone",
        ]
    );
    assert!(!is_whole);
    let (everything, is_whole) = shown(&report, 120, None);
    assert!(is_whole);
    assert_eq!(everything.iter().filter(|line| line.starts_with("jobs tenant_")).count(), 300);

    // As many rules, each with a reason of its own and a warning.
    let many = (0..300).map(|number| {
        let name = format!("rule {number}");
        let rule = rule(&name, &format!("app.c{number}"), number, 1_000);
        let rule = RuleReport { warnings: vec![format!("number {number}")], ..rule };
        if number % 2 == 0 { refused(rule, Guard::Hint, &format!("reason {number}")) } else { rule }
    });
    let report = dry_run(many.collect());
    for width in [40, 80, 200] {
        let (lines, is_whole) = shown(&report, width, Some(MAX_LINES));
        assert!(lines.len() <= MAX_LINES && !is_whole, "{width}: {lines:#?}");
        for part in ["rule 299", "more rules: ", "more notes"] {
            assert!(lines.iter().any(|line| line.contains(part)), "{part} at {width}: {lines:#?}");
        }
    }
    let everything = shown(&report, 80, None).0;
    let rows = everything.iter().filter(|line| line.starts_with("rule ") && line.contains("2027-01-15")).count();
    let reasons = everything.iter().filter(|line| line.contains("refused: hint: reason")).count();
    let warnings = everything.iter().filter(|line| line.starts_with("warning: rule ")).count();
    assert_eq!((rows, reasons, warnings), (300, 150, 300));
}

#[test]
fn a_report_is_as_wide_as_its_terminal_and_coloured_for_those_who_ask() {
    let why = "one word after the other ".repeat(12);
    let report = dry_run(vec![rule("a", "app.a", 1, 9), refused(rule("b", "app.b", 5, 9), Guard::Hint, why.trim())]);
    let render = |colored, width| render(&report, Format::Table, TableStyle { colored, width, ..TableStyle::default() });
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!((101..=120).contains(&widest(&render(false, 120))), "{}", render(false, 120));
    assert!(widest(&render(false, TableStyle::default().width)) <= 80);
    assert!(!render(false, 120).contains('\u{1b}'));
    let coloured = render(true, 120);
    let lines: Vec<&str> = coloured.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("\u{1b}[1mrule  would go")), "{coloured:?}");
    assert!(lines.iter().any(|line| line.starts_with("\u{1b}[33mb ") && line.contains("refused  ")), "{coloured:?}");
    assert!(lines.iter().any(|line| line.starts_with("a ")), "{coloured:?}");
}

#[test]
fn the_children_are_counted_in_the_row_the_question_and_the_last_line() {
    let orders = |name: &str, children_count| RuleReport {
        child_namespaces: Some(vec!["shop.lines".into(), "shop.notes".into()]),
        children_count,
        ..rule(name, &format!("shop.{name}"), 200, 900)
    };
    let counted = dry_run(vec![orders("orders", Some(1_460)), rule("carts", "shop.carts", 225, 900)]);
    let rows = shown(&counted, 120, Some(MAX_LINES)).0;
    assert!(rows[3].starts_with("orders ") && rows[3].ends_with("and 1,460 children"), "{rows:#?}");
    assert_eq!(question(&counted).unwrap(), "delete at most 425 documents and 1,460 children from 4 collections?");
    let text = render(&counted, Format::Table, TableStyle::default());
    assert!(text.contains("would delete 425 documents and 1,460 children by 2 rules"), "{text}");
    let html = render(&counted, Format::Html, TableStyle::default());
    assert!(html.contains("<h1>425 documents and 1,460 children would go</h1>"), "{html}");
    // A sweep that only finishes what another began deletes no parent.
    let finished = RuleReport { children_deleted_count: Some(3), ..orders("orders", None) };
    let swept = render(&Report { dry_run: false, ..dry_run(vec![finished]) }, Format::Html, TableStyle::default());
    assert!(swept.contains("<h1>3 children were deleted</h1>"), "{swept}");
    let unknown = dry_run(vec![orders("orders", None)]);
    let asked = "delete at most 200 documents and their children (not counted) from 3 collections?";
    assert_eq!(question(&unknown).unwrap(), asked);
    // Two namespaces of one rule, where the rows do not fit.
    let many =
        dry_run((0..30).map(|number| RuleReport { name: "orders".into(), ..orders(&number.to_string(), Some(2)) }).collect());
    let rows = shown(&many, 120, Some(MAX_LINES)).0;
    assert!(rows[3].starts_with("orders (30 namespaces)") && rows[3].ends_with("and 60 children"), "{rows:#?}");
}

#[test]
fn of_many_different_refusals_by_one_guard_two_are_told_and_all_rules_have_a_row() {
    let guards = [Guard::MaxDeletePercent, Guard::UnknownField];
    let rules = (0..12).map(|number| {
        let name = format!("shop.collection{number:02}");
        let why =
            format!("{number} of 100 documents have expired, {number}.00 %, and 1 % may be deleted; raise `maxDeletePercent`");
        refused(rule(&name, &name, number, 100), guards[number as usize % 2], &why)
    });
    let report = dry_run(rules.collect());
    let text = render(&report, Format::Table, TableStyle::default());
    assert!(text.lines().count() <= 40, "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("shop.collection")).count(), 12, "{text}");
    let others = "warning: shop.collection04, shop.collection06, shop.collection08 and 1 more:\n  refused: maxDeletePercent as well; `-v` shows why\n";
    assert!(text.contains(others), "{text}");
    assert!(
        text.ends_with(
            "nothing would be deleted; 12 refused (maxDeletePercent, unknownField);\n  nothing was deleted (dry run), in 1 ms\n"
        ),
        "{text}"
    );
    let detailed = render(&report, Format::Table, TableStyle { is_detailed: true, width: 400, ..TableStyle::default() });
    assert_eq!(detailed.matches("documents have expired").count(), 12, "{detailed}");
    // The facts of a refused rule are for those who ask, after a sweep as well.
    let mut sweep = report.clone();
    sweep.dry_run = false;
    sweep.rules.iter_mut().for_each(|rule| rule.strategy = Some(Strategy::Buckets));
    let facts = |is_detailed| {
        render(&sweep, Format::Table, TableStyle { is_detailed, ..TableStyle::default() }).matches("whole buckets").count()
    };
    assert_eq!([false, true].map(facts), [0, 12]);
    // The question tells what fits, and `?` the rest.
    assert!(shown(&report, 80, Some(38)).0.iter().any(|line| line.ends_with(" as well")));
    assert!(!shown(&report, 80, None).0.iter().any(|line| line.contains("as well")));
}

#[test]
fn the_rows_that_are_shown_fill_the_terminal_and_the_others_are_summed_by_what_they_delete() {
    let rules = (0..40).map(|number| {
        let name = format!("shop.c{number:02}");
        match number {
            0 => RuleReport { strategy: Some(Strategy::Buckets), ..rule(&name, &name, 2, 100) },
            1 => RuleReport { would_delete_count: None, ..rule(&name, &name, 3, 100) },
            number => rule(&name, &name, 10 + number, 100),
        }
    });
    let lines = shown(&dry_run(rules.collect()), 120, Some(MAX_LINES)).0;
    let goes = |of: &str| lines.iter().filter(|line| line.starts_with(of)).count();
    assert_eq!(
        (lines.len(), goes("shop.c"), goes("shop.c01 "), goes("shop.c39 ")),
        (MAX_LINES, MAX_LINES - 5, 1, 1),
        "{lines:#?}"
    );
    assert!(lines.contains(&"26 more rules: 600 documents and 2 buckets".to_owned()), "{lines:#?}");
}

#[test]
fn a_reason_and_a_warning_that_rules_share_are_said_once() {
    let why = "the policy differs from the plan's; look at a new audit, and save it as the plan";
    let rules = (0..11).map(|number| {
        let rule = rule(&format!("r{number}"), &format!("app.c{number}"), 5, 9);
        RuleReport { warnings: vec!["`maxLag` has no effect here".into()], ..refused(rule, Guard::Plan, why) }
    });
    let report = dry_run(rules.collect());
    for format in [Format::Table, Format::Markdown] {
        let text = render(&report, format, TableStyle { colored: false, width: 200, ..TableStyle::default() });
        assert_eq!(text.matches("differs from the plan's").count(), 1, "{text}");
        assert!(text.contains("r0, r1, r2 and 8 more: refused: plan: "), "{text}");
        assert_eq!(text.matches("has no effect here").count(), 1, "{text}");
    }
    let check = Report { command: ReportCommand::Check, ..report };
    let text = render(&check, Format::Table, TableStyle { colored: false, width: 200, ..TableStyle::default() });
    assert_eq!(text.matches("differs from the plan's").count(), 1, "{text}");
    assert_eq!(text.matches("plan: as for r0").count(), 10, "{text}");
}

#[test]
fn orphans_are_in_the_question_and_in_the_row_although_no_parent_has_expired() {
    let with =
        |rule: RuleReport, goes, old| RuleReport { would_delete_orphan_count: Some(goes), old_orphan_count: Some(old), ..rule };
    let idle = with(rule("c", "shop.c", 0, 5), 0, 0);
    let limited = RuleReport { would_delete_limit: Some(StopReason::MaxDeletes), ..with(rule("b", "shop.b", 7, 10), 93, 200) };
    let mut report = dry_run(vec![with(rule("a", "shop.a", 0, 10), 6_000, 6_000), limited, idle]);
    assert_eq!(
        shown(&report, 120, Some(MAX_LINES)).0[2..],
        [
            "rule  would go  expired  of   share  dates up to (UTC)",
            "a            0        0  10   0.0 %  2027-01-15 07:00   and 6,000 orphans",
            "b            7        7  10  70.0 %  2027-01-15 07:00   and 93 of 200 orphans, maxDeletes",
            "1 more rule with nothing expired",
            "not archived: this cannot be undone",
        ]
    );
    assert_eq!(question(&report).unwrap(), "delete at most 7 documents and 6,093 orphans by 2 rules?");
    report.limits = Some(ReportedLimits { max_deletes: Some(100), rate: None, max_duration_seconds: None });
    assert_eq!(question(&report).unwrap(), "delete at most 100 documents or orphans by 2 rules?");
    assert!(shown(&report, 120, Some(MAX_LINES)).0[3].ends_with("and 6,000 orphans, --max-deletes"));
    // Many namespaces of one rule are one row.
    let rules = (0..40).map(|n| with(rule("a", &format!("shop.a{n}"), 0, 10), 5, 6)).collect();
    let lines = shown(&dry_run(rules), 120, Some(MAX_LINES)).0;
    assert!(lines[3].starts_with("a (40 namespaces)") && lines[3].ends_with("and 200 of 240 orphans"), "{lines:?}");
}

#[test]
fn it_is_said_whether_what_goes_is_archived_first() {
    let archived = |rule: RuleReport, directory: &str| RuleReport { archive: Some(directory.into()), ..rule };
    let (a, b, idle) = (rule("a", "app.a", 5, 9), rule("b", "app.b", 5, 9), rule("c", "app.c", 0, 9));
    let held = refused(rule("d", "app.d", 5, 9), Guard::View, "a view");
    let orphans = RuleReport { would_delete_orphan_count: Some(1), ..idle.clone() };
    let (in_x, in_y) = (archived(a.clone(), "/x"), archived(b.clone(), "/y"));
    for (rules, said) in [
        (vec![a.clone(), archived(idle.clone(), "/x")], Some("not archived: this cannot be undone")),
        (vec![in_x.clone(), idle, held.clone()], Some("archived to /x first")),
        (vec![in_x.clone(), in_y], Some("archived to /x, /y first")),
        (vec![in_x.clone(), b], Some("archived to /x first, but for b: what these delete cannot be undone")),
        (vec![in_x, orphans], Some("archived to /x first, but for c: what these delete cannot be undone")),
        (vec![archived(held, "/x")], None),
    ] {
        assert_eq!(of_run(&dry_run(rules)).last().map(String::as_str), said);
    }
}

#[test]
fn twelve_rules_fit_a_screen_and_the_facts_about_each_are_for_those_who_ask() {
    let of = |number: u64| RuleReport {
        strategy: Some(Strategy::Index),
        index: Some("at_1".into()),
        oldest_expired: Some(Instant(DateTime::from_millis(NOW - 86_400_000))),
        ..rule(&format!("shop.c{number}"), &format!("shop.c{number}"), 84_219 + number, 200_000)
    };
    let mut rules: Vec<RuleReport> = (0..12).map(of).collect();
    rules[3] = refused(rules[3].clone(), Guard::MaxDeletePercent, "42.11 % have expired, and 10 % may be deleted");
    rules[5].warnings.push("no index on `at`: every document is looked at".into());
    let report = dry_run(rules);
    let text = |is_detailed| render(&report, Format::Table, TableStyle { is_detailed, ..TableStyle::default() });
    let (short, long) = (text(false), text(true));
    assert!(short.lines().count() <= 40 && short.lines().all(|line| line.chars().count() <= 80), "{short}");
    for number in 0..12 {
        assert_eq!(short.matches(&format!("shop.c{number} ")).count(), 1, "{short}");
    }
    for said in ["refused: maxDeletePercent: 42.11 %", "no index on `at`", "not archived: this cannot be undone", "1 refused"] {
        assert_eq!(short.matches(said).count(), 1, "{said}: {short}");
    }
    assert!(!short.contains("index at_1") && long.contains("index at_1"), "{long}");
    let ready = render(&dry_run(vec![rule("a", "app.a", 5, 9)]), Format::Table, TableStyle::default());
    assert!(ready.contains("\nready: would delete 5 documents by 1 rule; nothing was deleted (dry run)"), "{ready}");
}
