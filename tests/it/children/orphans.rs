//! Orphans, children that were without a parent before the sweep, with `orphans: true`: what is shown of them is what goes,
//! within the limits.

use std::collections::BTreeSet;

use crate::support::family::{case, entries, entry, fill, order, rule};
use crate::support::sweeper::{Case, Report, id_set};
use crate::support::terminal::Terminal;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};

/// Returns the `_id` of a child that was created so many hours ago.
fn id(hours: i64, n: u32) -> ObjectId {
    let seconds = DateTime::now().timestamp_millis() / 1000 - hours * 3600;
    ObjectId::parse_str(format!("{seconds:08x}00000000{n:08x}")).unwrap()
}

/// Returns this many orphans of two days, three to a parent that is not there.
fn orphans(number: u32) -> Vec<Document> {
    (0..number).map(|n| doc! { "_id": id(48, n), "order": 1000 + i32::try_from(n / 3).unwrap() }).collect()
}

/// Fills a case with 5 orders that are live and their lines, with orphans, and with children of an upload that goes on.
async fn with_orphans(case: &Case, number: u32) {
    fill(case, 0..0, 0..5).await;
    case.fill("lines", orphans(number)).await;
    case.fill("lines", in_flight()).await;
}

fn in_flight() -> [Document; 2] {
    [doc! { "_id": id(48, 900), "order": 900 }, doc! { "_id": id(1, 901), "order": 900 }]
}

/// Returns the lines of the live orders.
fn of_live() -> BTreeSet<String> {
    id_set((0..5).flat_map(|order| (0..3).map(move |line| format!("{order}-{line}"))))
}

/// Returns the number of lines by their order.
async fn lines(case: &Case) -> (u64, u64, u64) {
    let number = async |filter: Document| case.collection("lines").count_documents(filter).await.unwrap();
    (
        number(doc! { "order": { "$lt": 900 } }).await,
        number(doc! { "order": 900 }).await,
        number(doc! { "order": { "$gte": 1000 } }).await,
    )
}

fn counts(report: &Report) -> [Option<u64>; 5] {
    let counts = ["orphanCount", "oldOrphanCount", "wouldDeleteOrphanCount", "orphansDeletedCount", "childrenDeletedCount"];
    counts.map(|key| report.rule(0, key).as_u64())
}

#[tokio::test]
async fn orphans_are_counted_where_no_parent_has_expired_and_what_is_shown_goes() {
    let case = case("orphansShown").await;
    with_orphans(&case, 30).await;
    let rules = rule(", orphans: true");
    let dry = case.report(&rules, &["--dry-run"]).await;
    assert_eq!(counts(&dry), [Some(32), Some(30), Some(30), None, None], "{dry:?}");
    assert_eq!(dry.json["totals"]["oldOrphanCount"], 30, "{dry:?}");
    assert_eq!(case.report(&rules, &["--dry-run", "--detailed-exitcode"]).await.ran.code, Some(7));
    for (args, part) in [
        (["sweep", "--dry-run", "--format", "table"].as_slice(), "would delete 30 orphans by 1 rule"),
        (&["sweep", "--dry-run", "--format", "table"], "and 30 orphans"),
        (&["audit", "--format", "markdown"], "32 children without a parent (30 for a day)"),
        (&["sweep", "--dry-run", "--format", "html"], "30 orphans would go"),
        (&["sweep", "--dry-run", "--format", "html"], "orphans that the rule deletes"),
        (&["audit", "--format", "table"], "would delete 30 orphans by 1 rule"),
        (&["check"], "`orphans: true`: a sweep also deletes children without a"),
    ] {
        let ran = case.run(&rules, args).await;
        assert!(ran.code == Some(0) && ran.stdout.contains(part), "{args:?} {part}: {ran:?}");
    }
    let csv = case.run(&rules, &["sweep", "--dry-run", "--format", "csv"]).await.stdout;
    let mut rows = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().unwrap();
    let place = head.iter().position(|name| *name == "orphansDeletedCount").unwrap();
    assert_eq!(head[place..place + 4], ["orphansDeletedCount", "orphanCount", "oldOrphanCount", "wouldDeleteOrphanCount"]);
    assert!(csv.contains(",,32,30,30,"), "{csv}");
    assert_eq!(lines(&case).await, (15, 2, 30), "nothing is deleted by looking");
    let before = case.ids("lines").await;

    let metrics = case.dir.path().join("metrics.prom");
    let path = metrics.to_str().unwrap();
    let history = rules.clone() + "history: {collection: DB.history}\n";
    let report = case.report(&history, &["--metrics-file", path]).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "remainingCount")), (&0.into(), &0.into()), "{report:?}");
    assert_eq!(counts(&report), [None, None, None, Some(30), Some(30)], "nothing compares their number: {report:?}");
    assert_eq!(report.json["totals"]["orphansDeletedCount"], 30, "{report:?}");
    assert_eq!(lines(&case).await, (15, 2, 0), "{report:?}");
    let left = case.ids("lines").await;
    assert!(left.is_superset(&of_live()) && left.is_subset(&before));
    let metrics = std::fs::read_to_string(&metrics).unwrap();
    assert!(metrics.lines().any(|line| line.starts_with("sweeper_deleted_orphans{") && line.ends_with("} 30")), "{metrics}");
    let recorded = case.collection("history").find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(recorded.get_array("rules").unwrap()[0].as_document().unwrap().get_i64("orphansDeletedCount").unwrap(), 30);

    case.fill("lines", orphans(6)).await;
    let ran = case.run(&rules, &["sweep", "-v", "--format", "table"]).await;
    assert!(ran.stdout.contains("deleted 6 orphans by 1 rule"), "{ran:?}");
    assert!(ran.stdout.contains("6 children deleted (6 orphans)"), "{ran:?}");
    assert!(ran.stderr.contains("6 children (6 orphans) deleted"), "{ran:?}");
}

#[tokio::test]
async fn a_terminal_asks_for_orphans_and_yes_does_what_was_shown() {
    let case = case("orphansAsked").await;
    with_orphans(&case, 30).await;
    let rules = rule(", orphans: true");
    let terminal = Terminal::open(&case.command(&rules, &["sweep"])).until_asked().await;
    for part in ["delete at most 30 orphans by 1 rule?", "and 30 orphans"] {
        assert!(terminal.shown.contains(part), "{part}: {}", terminal.shown);
    }
    let ran = terminal.types("no\n").end().await;
    assert_eq!((ran.code, lines(&case).await), (Some(1), (15, 2, 30)), "{ran:?}");
    let terminal = Terminal::open(&case.command(&rules, &["sweep"])).until_asked().await;
    let ran = terminal.types("yes\n").end().await;
    assert_eq!((ran.code, lines(&case).await), (Some(0), (15, 2, 0)), "{ran:?}");
    assert!(ran.stdout.contains("deleted 30 orphans"), "{ran:?}");

    // With an order that has expired, and a limit of the run that both have to share.
    case.fill("orders", [order(7, true)]).await;
    case.fill("lines", orphans(30)).await;
    let terminal = Terminal::open(&case.command(&rules, &["sweep"])).until_asked().await;
    assert!(terminal.shown.contains("delete at most 1 document and 30 orphans by 1 rule?"), "{}", terminal.shown);
    terminal.types("no\n").end().await;
    let quiet =
        case.run(&rules.replace("orphans", "maxDeletePercent: 90, orphans"), &["sweep", "-q", "--max-deletes", "1"]).await;
    let said = format!("{}{}", quiet.stdout, quiet.stderr);
    assert!(said.contains("deleted 1 document by 1 rule; left: 30 orphans"), "{quiet:?}");
    case.fill("orders", [order(7, true)]).await;
    let terminal = Terminal::open(&case.command(&rules, &["sweep", "--max-deletes", "9"])).until_asked().await;
    assert!(terminal.shown.contains("delete at most 1 document and 8 orphans by 1 rule?"), "{}", terminal.shown);
    let ran = terminal.types("yes\n").end().await;
    assert_eq!((ran.code, lines(&case).await), (Some(4), (15, 2, 22)), "{ran:?}");
    assert!(ran.stdout.contains("deleted 1 document and 8 orphans") && ran.stdout.contains("left: 22 orphans"), "{ran:?}");
}

#[tokio::test]
async fn parents_and_orphans_share_the_limits_and_the_parents_come_first() {
    let case = case("orphansLimited").await;
    // Of 6 orders and 30 orphans a limit lets so many go, of the rule and of the run.
    for (most, parents, gone, status) in
        [(5, 5, 0, "partial"), (6, 6, 0, "partial"), (7, 6, 1, "partial"), (35, 6, 29, "partial"), (36, 6, 30, "complete")]
    {
        for of_run in [false, true] {
            case.db.drop().await.unwrap();
            with_orphans(&case, 30).await;
            case.fill("orders", (10..16).map(|id| order(id, true))).await;
            case.fill("lines", (10..16).flat_map(|id| crate::support::family::lines(id, 3))).await;
            let limit = most.to_string();
            let (rules, args) = match of_run {
                true => (rule(", orphans: true"), vec!["--max-deletes", &limit]),
                false => (rule(&format!(", orphans: true, maxDeletes: {limit}")), vec![]),
            };
            let dry = case.report(&rules, &[&["--dry-run"], args.as_slice()].concat()).await;
            if !of_run {
                assert_eq!(dry.rule(0, "wouldDeleteCount"), parents, "{most}: {dry:?}");
                assert_eq!(dry.rule(0, "wouldDeleteOrphanCount"), gone, "{most}: {dry:?}");
                let limit = if gone < 30 { "maxDeletes".into() } else { serde_json::Value::Null };
                assert_eq!(dry.rule(0, "wouldDeleteLimit"), &limit, "{dry:?}");
            }
            let report = case.report(&rules, &args).await;
            assert_eq!(report.rule(0, "status"), status, "{most} {of_run}: {report:?}");
            assert_eq!(report.ran.code, Some(if status == "complete" { 0 } else { 4 }), "{report:?}");
            assert_eq!(report.rule(0, "deletedCount"), parents, "{most} {of_run}: {report:?}");
            // The children of the parents are no part of the limit.
            let of_parents = parents * 3;
            assert_eq!(counts(&report)[3..], [Some(gone), Some(of_parents + gone)], "{most} {of_run}: {report:?}");
            assert_eq!(lines(&case).await, (15 + (6 - parents) * 3, 2, 30 - gone), "{most} {of_run}: {report:?}");
        }
    }
}

#[tokio::test]
async fn a_larger_share_of_the_children_than_allowed_is_refused_before_the_first_delete() {
    let case = case("orphansShare").await;
    with_orphans(&case, 30).await;
    case.fill("orders", [order(7, true)]).await;
    // 30 of 47 children: 63.83 %.
    let rules = |percent: f64| rule(&format!(", orphans: true, maxDeletePercent: {percent}"));
    let refused = rules(63.8);
    let dry = case.report(&refused, &["--dry-run"]).await;
    assert_eq!((dry.rule(0, "status"), dry.rule(0, "wouldDeleteOrphanCount")), (&"refused".into(), &().into()), "{dry:?}");
    for args in [[].as_slice(), &["--yes"]] {
        let report = case.report(&refused, args).await;
        assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"maxDeletePercent".into()), "{report:?}");
        let error = report.rule(0, "error").as_str().unwrap();
        assert!(error.contains("30 of 47 documents of `orphansShare.lines` have no parent, 63.83 %, and 63.8 %"), "{error}");
        assert_eq!((case.ids("orders").await.len(), lines(&case).await), (6, (15, 2, 30)), "{report:?}");
    }
    // Without orphans it is a share of the orders only.
    let report = case.report(&rules(63.8).replace("orphans: true, ", ""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &1.into()), "{report:?}");
    let report = case.report(&rules(63.9), &[]).await;
    assert_eq!((report.ran.code, counts(&report)), (Some(0), [Some(32), Some(30), None, Some(30), Some(30)]), "{report:?}");
    assert_eq!(lines(&case).await, (15, 2, 0));
}

#[tokio::test]
async fn without_a_parent_no_child_is_taken_for_an_orphan() {
    let case = case("orphansAlone").await;
    with_orphans(&case, 30).await;
    let rules = rule(", orphans: true");
    case.collection("orders").delete_many(doc! {}).await.unwrap();
    let check = case.run(&rules, &["check", "--connect"]).await;
    assert!(check.stdout.contains("`orphans`: `orphansAlone.orders` has no document"), "{check:?}");
    let orphan = format!(
        "ObjectId(\"{}\")",
        case.collection("lines").find_one(doc! { "order": 1000 }).await.unwrap().unwrap().get_object_id("_id").unwrap()
    );
    let why = case.run(&rules, &["why", "orphansAlone.lines", &orphan]).await;
    assert!(why.stdout.contains("stays: its parent is not there, and neither is any other"), "{why:?}");
    let refused = async |part: &str| {
        let before = case.ids("lines").await;
        for args in [["--dry-run"].as_slice(), &[], &["--yes"]] {
            let report = case.report(&rules, args).await;
            assert_eq!(
                (report.rule(0, "status"), report.rule(0, "reason")),
                (&"refused".into(), &"children".into()),
                "{report:?}"
            );
            assert_eq!(report.ran.code, Some(if args == ["--dry-run"] { 0 } else { 5 }), "{report:?}");
            assert!(report.rule(0, "error").as_str().unwrap().contains(part), "{report:?}");
        }
        let audit = case.run(&rules, &["audit", "--format", "json"]).await;
        assert!(
            audit.stdout.contains("\"reason\":\"children\"") || audit.stdout.contains("\"reason\": \"children\""),
            "{audit:?}"
        );
        assert_eq!(case.ids("lines").await, before);
    };
    // Children whose names tell no time are no orphans that go.
    refused("`orphansAlone.orders` has no document, and 30 children would be taken for orphans").await;
    case.collection("orders").drop().await.unwrap();
    refused("there is no collection `orphansAlone.orders`").await;

    // A bucket without files and chunks is nothing to speak of.
    fill(&case, 0..0, 0..0).await;
    case.collection("lines").delete_many(doc! {}).await.unwrap();
    let report = case.report(&rules, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
}

#[tokio::test]
async fn parents_that_are_lost_after_the_question_take_no_child_with_them() {
    let case = case("orphansLost").await;
    let rules = rule(", orphans: true");
    for half in [false, true] {
        case.db.drop().await.unwrap();
        with_orphans(&case, 3).await;
        let old = (0..5).map(|order| doc! { "_id": id(48, 500 + order as u32), "order": order });
        case.fill("lines", old).await;
        let rules = if half { rule(", orphans: true, maxDeletePercent: 20") } else { rules.clone() };
        let terminal = Terminal::open(&case.command(&rules, &["sweep"])).until_asked().await;
        assert!(terminal.shown.contains("delete at most 3 orphans"), "{}", terminal.shown);
        // All of them, or all but one.
        case.collection("orders").delete_many(doc! { "_id": { "$ne": if half { 0 } else { -1 } } }).await.unwrap();
        case.collection("lines").delete_many(doc! { "_id": { "$type": "string" } }).await.unwrap();
        let before = case.ids("lines").await;
        let ran = terminal.types("yes\n").end().await;
        assert_eq!(ran.code, Some(3), "{half}: {ran:?}");
        let part = if half { "maxDeletePercent" } else { "`orphansLost.orders` has no document" };
        let said = ran.stdout.replace("\u{1b}[0m", "").replace("\u{1b}[31m", "").replace("\r\n ", "");
        assert!(said.contains(part), "{ran:?}");
        assert_eq!(case.ids("lines").await, before, "{half}: {ran:?}");
    }
}

#[tokio::test]
async fn a_sweep_that_leaves_no_parent_leaves_the_orphans_and_says_so_before() {
    let case = case("orphansLast").await;
    fill(&case, 0..4, 0..0).await;
    case.fill("lines", orphans(6)).await;
    let rules = rule(", orphans: true");
    let dry = case.report(&rules, &["--dry-run"]).await;
    assert_eq!((dry.rule(0, "wouldDeleteCount"), counts(&dry)[2]), (&4.into(), Some(0)), "{dry:?}");
    assert!(dry.rule(0, "warnings").to_string().contains("every document of the rule has expired"), "{dry:?}");
    let report = case.report(&rules, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(3), &4.into()), "{report:?}");
    assert_eq!(counts(&report)[3..], [Some(0), Some(12)], "{report:?}");
    assert_eq!(lines(&case).await, (0, 0, 6));
}

#[tokio::test]
async fn what_a_crash_left_is_finished_although_no_parent_is_left() {
    let case = case("orphansJournal").await;
    fill(&case, 0..0, 0..0).await;
    let old = |parent: i32, n: u32| doc! { "_id": id(48, n), "order": parent };
    case.fill("lines", [old(1, 1), old(1, 2), old(2, 3)]).await;
    let entry = entry(&case, 1, "_id", vec![1]);
    case.fill("journal", [entry]).await;
    let report = case.report(&rule(", orphans: true"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(3), &"failed".into()), "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap().contains("has no document, and 1 child would be taken"), "{report:?}");
    assert_eq!(counts(&report)[3..], [Some(0), Some(2)], "{report:?}");
    assert_eq!(case.ids("lines").await.len(), 1);
    assert!(entries(&case).await.is_empty());
}

#[tokio::test]
async fn a_plan_limits_the_orphans_to_what_the_audit_showed() {
    let case = case("orphansPlanned").await;
    with_orphans(&case, 99).await;
    let rules = rule(", orphans: true");
    let audit = case.run(&rules, &["audit", "--format", "json"]).await;
    let plan = case.file("audit.json", &audit.stdout);
    let plan = plan.to_str().unwrap();
    // One percent more is tolerated.
    let more = |n: u32| doc! { "_id": id(48, 700 + n), "order": 2000 };
    case.fill("lines", [more(0), more(1)]).await;
    let report = case.report(&rules, &["--plan", plan]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"plan".into()), "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap().starts_with("101 orphans, 99 were approved"), "{report:?}");
    assert_eq!(lines(&case).await, (15, 2, 101));
    case.collection("lines").delete_one(doc! { "order": 2000 }).await.unwrap();
    let report = case.report(&rules, &["--plan", plan]).await;
    assert_eq!((report.ran.code, counts(&report)), (Some(0), [Some(102), Some(100), None, Some(100), Some(100)]), "{report:?}");
    assert_eq!(lines(&case).await, (15, 2, 0));

    // An audit of an earlier version does not say how many there are.
    let mut old: serde_json::Value = serde_json::from_str(&audit.stdout).unwrap();
    for key in ["oldOrphanCount", "orphansDeletedCount", "wouldDeleteOrphanCount"] {
        old["rules"][0].as_object_mut().unwrap().remove(key);
        old["totals"].as_object_mut().unwrap().remove(key);
    }
    let old = case.file("old.json", &old.to_string());
    let report = case.report(&rules, &["--plan", old.to_str().unwrap()]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"plan".into()), "{report:?}");
}
