//! The next stretch is found while others are still being deleted: what changes in between is decided by the delete itself.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::faults::{
    alone, days, end, heal, logged, pause_deletes, removed, resume_deletes, slow_down, start, until_running,
};
use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{DateTime, doc};

const EXPIRED: i32 = 1500;
const BATCH: usize = 50;
const RULES: &str = "  - {namespace: DB.a, field: at, expireAfter: 1d, batchSize: 50, targetBatchMs: 10000}
  - {namespace: DB.b, field: at, expireAfter: 1d, batchSize: 50, targetBatchMs: 10000}
run: {concurrency: 4}\n";

/// Dates three days ago, later from document to document.
fn date(n: i32) -> DateTime {
    DateTime::from_millis(days(-3).timestamp_millis() + i64::from(n) * 1000)
}

async fn left(case: &Case, name: &str) -> BTreeSet<i32> {
    case.collection(name).distinct("_id", doc! {}).await.unwrap().iter().map(|id| id.as_i32().unwrap()).collect()
}

#[tokio::test]
async fn dates_that_move_out_of_a_stretch_found_ahead_survive_and_older_ones_wait_for_the_next_run() {
    let (mongod, case) = alone().await;
    for name in ["a", "b"] {
        case.fill(name, (0..EXPIRED).map(|n| doc! { "_id": n, "at": date(n) })).await;
        let index = doc! { "key": { "at": 1 }, "name": "at_1" };
        case.db.run_command(doc! { "createIndexes": name, "indexes": [index] }).await.unwrap();
    }
    slow_down(&case.client, "delete", 50).await;
    let child = start(case.command(RULES, &["sweep", "--format", "json"]));
    // The first of a rule has to come back before anything is found ahead.
    while removed(&mongod).len() < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pause_deletes(&case.client).await;
    until_running(&case.client, "delete").await;
    // Nothing more comes back: what is in flight has been sent, and what comes after it found.
    let mut found = 0;
    while found < logged(&mongod, "find").len() {
        found = logged(&mongod, "find").len();
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let mut survivors = [BTreeSet::new(), BTreeSet::new()];
    for (name, survivors) in ["a", "b"].into_iter().zip(&mut survivors) {
        let before = left(&case, name).await;
        assert!(before.len() > 6 * BATCH, "too late: {} are left", before.len());
        // Two batches are in flight and one is found; some of each, and of what comes after them.
        let moved: Vec<i32> = before.iter().copied().take(5 * BATCH).step_by(3).collect();
        let later = doc! { "$set": { "at": days(3) } };
        case.collection(name).update_many(doc! { "_id": { "$in": &moved } }, later).await.unwrap();
        // Below the position: before all that is still there, and not a moment ago in flight.
        let older = (EXPIRED..EXPIRED + 20).map(|n| doc! { "_id": n, "at": date(n - EXPIRED - 1000) });
        case.collection(name).insert_many(older).await.unwrap();
        survivors.extend(moved);
    }
    resume_deletes(&case.client).await;
    heal(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    for (index, name) in ["a", "b"].into_iter().enumerate() {
        let moved = &survivors[index];
        let with_older = id_set(moved.iter().copied().chain(EXPIRED..EXPIRED + 20));
        assert_eq!(case.ids(name).await, with_older, "{name}");
        assert_eq!(report["rules"][index]["deletedCount"], EXPIRED as usize - moved.len());
    }
    let again = case.report(RULES, &[]).await;
    assert_eq!((again.ran.code, &again.json["totals"]["deletedCount"]), (Some(0), &40.into()), "{again:?}");
    for (name, moved) in ["a", "b"].into_iter().zip(survivors) {
        assert_eq!(case.ids(name).await, id_set(moved), "{name}");
    }
}
