//! The next stretch is found while earlier ones are still being deleted: the delete decides about documents that change in
//! between.

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

/// Returns dates three days ago, later from document to document.
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
    // A rule finds batches ahead only after its first batches have returned.
    while removed(&mongod).len() < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    pause_deletes(&case.client).await;
    until_running(&case.client, "delete").await;
    // Paused batches do not return: wait until those in flight are sent and the next ones are found.
    let mut found = 0;
    while found < logged(&mongod, "find").len() {
        found = logged(&mongod, "find").len();
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let mut survivors = [BTreeSet::new(), BTreeSet::new()];
    for (name, survivors) in ["a", "b"].into_iter().zip(&mut survivors) {
        let before = left(&case, name).await;
        assert!(before.len() > 6 * BATCH, "too late: {} are left", before.len());
        // Two batches are in flight and one is found; move some documents of each, and some of the documents after them.
        let moved: Vec<i32> = before.iter().copied().take(5 * BATCH).step_by(3).collect();
        let later = doc! { "$set": { "at": days(3) } };
        case.collection(name).update_many(doc! { "_id": { "$in": &moved } }, later).await.unwrap();
        // Older than all documents that are left, so behind the position of the sweep.
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
