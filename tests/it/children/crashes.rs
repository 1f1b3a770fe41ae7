//! A run that ends between a parent and its children leaves the rest to the next run, which leaves no orphan.

use std::process::Child;

use crate::support::family::{assert_kept, assert_whole, case, fill, lines_of, order, orders, rule};
use crate::support::faults::{end, start};
use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{DateTime, doc};

/// Kills of the test in the suite; `SWEEPER_TEST_KILLS` asks for another number.
const KILLS: u32 = 12;

/// Kills a sweep once it has made or removed so many entries or, with `between`, once parents are gone whose children are not; or lets it end.
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
    let (_set, case) = case("kills").await;
    let kills = std::env::var("SWEEPER_TEST_KILLS").ok().and_then(|number| number.parse().ok()).unwrap_or(KILLS);
    fill(&case, 0..0, 1_000_000..1_000_020).await;
    let mut orphaned = 0;
    for kill in 0..kills {
        let first = i32::try_from(kill).unwrap() * 200;
        fill(&case, first..first + 200, 0..0).await;
        let child = start(case.command(&rule(""), &["sweep", "--rate", "600"]));
        kill_at(&case, child, u64::from(kill % 9) * 3 + u64::from(fastrand::u8(..3)), kill % 2 == 0).await;
        assert_kept(&case, &format!("kill {kill}")).await;
        orphaned += u32::from(is_between(&case).await);
        let report = case.report(&rule(""), &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
        assert_eq!(orders(&case).await, (1_000_000..1_000_020).collect(), "kill {kill}: {report:?}");
        assert_whole(&case, &format!("kill {kill}: {report:?}")).await;
    }
    assert!(orphaned > 0, "no run was killed between parents and their children");
}

#[tokio::test]
async fn what_is_in_the_journal_is_finished_and_a_parent_that_is_there_keeps_its_children() {
    let (_set, case) = case("journal").await;
    fill(&case, 0..0, 0..10).await;
    // Orders 0 to 4 went, and order 3 was created again.
    case.collection("orders").delete_many(doc! { "_id": { "$lt": 5 } }).await.unwrap();
    case.fill("orders", [order(3, false)]).await;
    let ago = |hours: i64| DateTime::from_millis(DateTime::now().timestamp_millis() - hours * 3_600_000);
    let namespace = format!("{}.orders", case.db.name());
    let entry = |id: i32, of: &str, parents: &[i32], at| doc! { "_id": id, "namespace": of, "rule": "r", "at": at, "field": "_id", "parents": parents };
    case.fill(
        "journal",
        [
            entry(1, &namespace, &[0, 1, 3], ago(1)),
            entry(2, &namespace, &[2], ago(1)),
            entry(3, &namespace, &[8], ago(30)),
            entry(4, "other.orders", &[4, 9], ago(30)),
        ],
    )
    .await;
    let report = case.report(&rule(""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &9.into()), "{report:?}");
    let left = lines_of(&case).await;
    assert_eq!(left.into_keys().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 9]);
    // A run that is still at work may be about to delete order 3; after a day it is not.
    assert_eq!(case.ids("journal").await, id_set([1, 4]));
    case.collection("journal").update_one(doc! { "_id": 1 }, doc! { "$set": { "at": ago(25) } }).await.unwrap();
    assert_eq!(case.report(&rule(""), &[]).await.ran.code, Some(0));
    assert_eq!(case.ids("journal").await, id_set([4]));
    assert_eq!(lines_of(&case).await.len(), 7);
}
