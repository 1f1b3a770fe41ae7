//! A run that ends between a parent and its children leaves the rest to the next run, which leaves no orphan.

use std::process::Child;
use std::time::Duration;

use crate::support::family::{
    assert_kept, assert_whole, case, entries, entry, fill, lines, lines_of, order, orders, report_after, rule, short,
};
use crate::support::faults::{end, start};
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::bson::{DateTime, doc};

/// Kills of the test in the suite; `SWEEPER_TEST_KILLS` asks for another number.
const KILLS: u32 = 8;

/// Kills a sweep once it has made or removed so many entries or, with `between`, once parents are gone whose children are not; or
/// lets it end.
async fn kill_at(case: &Case, mut child: Child, entries: u64, between: bool) {
    // The entries tell how far the run is, whatever the speed of the machine.
    let seen = async || case.collection("journal").estimated_document_count().await.unwrap();
    let (mut changes, mut last) = (0, 0);
    while child.try_wait().unwrap().is_none() {
        let now = seen().await;
        changes += u64::from(now != last);
        last = now;
        if changes >= entries && (!between || is_between(case).await) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    child.kill().unwrap();
    end(child).await;
}

/// Whether there are lines without their order.
async fn is_between(case: &Case) -> bool {
    lines_of(case).await.len() > orders(case).await.len()
}

#[tokio::test]
async fn one_more_run_after_a_kill_leaves_no_orphan_and_every_living_parent_whole() {
    let case = case("kills").await;
    let kills = std::env::var("SWEEPER_TEST_KILLS").ok().and_then(|number| number.parse().ok()).unwrap_or(KILLS);
    fill(&case, 0..0, 1_000_000..1_000_020).await;
    let mut orphaned = 0;
    for kill in 0..kills {
        let first = i32::try_from(kill).unwrap() * 200;
        fill(&case, first..first + 200, 0..0).await;
        let child = start(short(case.command(&rule(""), &["sweep", "--rate", "600"])));
        kill_at(&case, child, u64::from(kill % 9) * 3 + u64::from(fastrand::u8(..3)), kill % 2 == 0).await;
        assert_kept(&case, &format!("kill {kill}")).await;
        orphaned += u32::from(is_between(&case).await);
        let report = report_after(&case, &rule("")).await;
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
        assert_eq!(orders(&case).await, (1_000_000..1_000_020).collect(), "kill {kill}: {report:?}");
        assert_whole(&case, &format!("kill {kill}: {report:?}")).await;
    }
    assert!(orphaned > 0, "no run was killed between parents and their children");
}

#[tokio::test]
async fn what_is_in_the_journal_is_finished_and_a_parent_that_is_there_keeps_its_children() {
    let case = case("journal").await;
    fill(&case, 0..0, 0..10).await;
    // Orders 0 to 4 went, and order 3 was created again.
    case.collection("orders").delete_many(doc! { "_id": { "$lt": 5 } }).await.unwrap();
    case.fill("orders", [order(3, false)]).await;
    let other = doc! { "_id": 4, "namespace": "other.orders", "rule": "r", "run": "earlier", "at": DateTime::now(), "field": "_id", "parents": [4, 9], "children": [] };
    let entries_of =
        [entry(&case, 1, "_id", vec![0, 1, 3]), entry(&case, 2, "_id", vec![2]), entry(&case, 3, "_id", vec![8]), other];
    case.fill("journal", entries_of).await;
    let report = case.report(&rule(""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &9.into()), "{report:?}");
    let left = lines_of(&case).await;
    assert_eq!(left.into_keys().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 9]);
    // The run that entered orders 3 and 8 has not deleted them, and cannot do it any more.
    assert_eq!(entries(&case).await, id_set([4]));
}

#[tokio::test]
async fn what_is_in_the_journal_is_finished_where_no_parent_has_expired_by_a_count() {
    let case = case("counted").await;
    fill(&case, 0..0, 5..10).await;
    case.fill("lines", (0..5).flat_map(|order| lines(order, 3))).await;
    case.fill("journal", [entry(&case, 1, "_id", vec![0, 1, 2, 3, 4])]).await;
    let report = case.report(&rule(", maxDeletePercent: 50"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "expiredCount")), (Some(0), &0.into()), "{report:?}");
    assert_eq!(report.rule(0, "childrenDeletedCount"), 15, "{report:?}");
    assert_whole(&case, &format!("{report:?}")).await;
    assert_eq!(entries(&case).await, id_set([0; 0]));
}

#[tokio::test]
async fn what_a_rule_does_not_have_stays_in_the_journal_for_one_that_has_it_and_is_warned_of() {
    let case = case("unclaimed").await;
    fill(&case, 0..0, 5..10).await;
    let notes = (0..10).map(|order| doc! { "_id": order, "of": order });
    case.fill("notes", notes).await;
    let index = doc! { "key": { "of": 1 }, "name": "of" };
    case.db.run_command(doc! { "createIndexes": "notes", "indexes": [index] }).await.unwrap();
    case.fill("lines", (0..5).flat_map(|order| lines(order, 3))).await;
    let mut both = entry(&case, 1, "_id", vec![0, 1, 2, 3, 4]);
    both.get_array_mut("children").unwrap().push(doc! { "namespace": "unclaimed.notes", "field": "of" }.into());
    case.fill("journal", [both]).await;
    let with = |name: &str, children: &str| {
        format!("  - {{name: {name}, namespace: DB.orders, field: at, expireAfter: 1d, batchSize: 10, children: [{children}]}}\n")
    };
    let of_lines = with("lines", "{namespace: DB.lines, field: order}");
    let of_notes = with("notes", "{namespace: DB.notes, field: of}");
    let without = "  - {name: without, namespace: DB.orders, field: at, expireAfter: 1d}\n";
    let policy = |rules: &str| format!("{rules}journal: {{collection: DB.journal}}\n");
    let warns = |report: &Report| {
        let said = report.rule(0, "warnings").to_string();
        said.contains("children in `unclaimed.notes` (`of`) are yet to be deleted, and no rule of this run has these children")
    };

    // A policy that has lost its children sees them, and so does a dry run.
    assert!(warns(&case.report(&policy(without), &["--dry-run"]).await));
    let report = case.report(&policy(&format!("{of_lines}{of_notes}")), &["--only", "lines"]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &15.into()), "{report:?}");
    assert!(warns(&report), "{report:?}");
    assert_eq!(
        (lines_of(&case).await.into_keys().collect(), case.ids("notes").await),
        ((5..10).collect::<Vec<_>>(), id_set(0..10))
    );
    assert_eq!(entries(&case).await, id_set([1]));

    let report = case.report(&policy(&of_notes), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &5.into()), "{report:?}");
    assert!(!warns(&report), "{report:?}");
    assert_eq!((case.ids("notes").await, entries(&case).await), (id_set(5..10), id_set([0; 0])));
    assert_whole(&case, "").await;
}

#[tokio::test]
async fn two_rules_with_other_children_finish_what_an_earlier_run_has_left_to_both() {
    let case = case("shared").await;
    fill(&case, 0..0, 5..10).await;
    case.fill("lines", (0..5).flat_map(|order| lines(order, 3))).await;
    case.fill("notes", (0..10).map(|order| doc! { "_id": order, "of": order })).await;
    let mut both = entry(&case, 1, "_id", vec![0, 1, 2, 3, 4]);
    both.get_array_mut("children").unwrap().push(doc! { "namespace": "shared.notes", "field": "of" }.into());
    case.fill("journal", [both]).await;
    let with = |name: &str, children: &str| {
        format!("  - {{name: {name}, namespace: DB.orders, field: at, expireAfter: 1d, children: [{children}]}}\n")
    };
    let rules = [with("z", "{namespace: DB.lines, field: order}"), with("a", "{namespace: DB.notes, field: of}")].concat();
    let report = case.report(&format!("{rules}journal: {{collection: DB.journal}}\n"), &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(
        (report.rule(0, "warnings"), report.rule(1, "childrenDeletedCount")),
        (&serde_json::json!([]), &5.into()),
        "{report:?}"
    );
    assert_whole(&case, "").await;
    assert_eq!(case.ids("notes").await, id_set(5..10));
    // The rules took the entry up at the same time, and each left it to the other: one more run removes what names no child any
    // more.
    assert_eq!(case.report(&rule(""), &[]).await.ran.code, Some(0));
    assert_eq!(entries(&case).await, id_set([0; 0]));
}
