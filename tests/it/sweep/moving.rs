//! Collections and indexes that are dropped or renamed in the middle of a run.

use crate::support::faults::{alone, dated, days, end, pause_deletes, resume_deletes, start, until_deleting_from};
use crate::support::mongod::Mongod;
use crate::support::pool::Alone;
use crate::support::sweeper::{Case, Report, id_set, ids};
use mongodb::bson::{Document, doc};

/// Two rules; the first sweeps in small batches.
const RULES: &str = "  - {namespace: DB.moving, field: at, expireAfter: 1d, batchSize: 10, concurrency: 1}
  - {namespace: DB.other, field: at, expireAfter: 1d}\n";

/// Sweeps 100 expired documents of `moving`, and calls `change` while the first delete is in progress.
async fn swept_while(change: impl AsyncFnOnce(&Case)) -> (Alone<Mongod>, Case, Report) {
    let (mongod, case) = alone().await;
    case.fill("moving", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    case.fill("other", dated(0..3, days(-3))).await;
    case.db.run_command(doc! { "createIndexes": "moving", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    pause_deletes(&case.client).await;
    let child = start(case.command(RULES, &["sweep", "--format", "json"]));
    until_deleting_from(&case.collection("moving")).await;
    change(&case).await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    (mongod, case, Report { json, ran })
}

fn assert_failed(report: &Report, reason: &str) {
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    assert_eq!(report.rule(0, "status"), "failed", "{report:?}");
    let error = report.rule(0, "error").as_str().unwrap();
    assert!(error.contains(reason), "{error}");
    assert!(error.contains("documents were deleted"), "{error}");
    assert_eq!(report.rule(1, "status"), "complete", "{report:?}");
}

#[tokio::test]
async fn a_collection_that_is_dropped_fails_its_rule_alone_and_is_not_counted_as_deleted() {
    let drop = async |case: &Case| case.collection("moving").drop().await.unwrap();
    let (_mongod, case, report) = swept_while(drop).await;
    assert_failed(&report, "`t.moving` was dropped during the run");
    assert_eq!(report.rule(0, "deletedCount"), 0, "{report:?}");
    assert_eq!(case.ids("other").await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_new_collection_under_the_name_of_a_dropped_one_keeps_its_live_documents() {
    let (_mongod, case, report) = swept_while(async |case| {
        case.collection("moving").drop().await.unwrap();
        case.fill("moving", dated(0..50, days(3))).await;
    })
    .await;
    assert_failed(&report, "`t.moving` was replaced by another collection during the run");
    assert_eq!(report.rule(0, "deletedCount"), 0, "{report:?}");
    assert_eq!(case.ids("moving").await, id_set(0..50));
}

#[tokio::test]
async fn a_collection_that_is_renamed_is_not_followed() {
    let (_mongod, case, report) = swept_while(async |case| {
        let rename = doc! { "renameCollection": "t.moving", "to": "t.kept" };
        case.client.database("admin").run_command(rename).await.unwrap();
    })
    .await;
    assert_failed(&report, "`t.moving` was renamed to `t.kept` during the run");
    assert_eq!(report.rule(0, "deletedCount"), 0, "{report:?}");
    assert_eq!(case.ids("kept").await, id_set(0..103));
    assert_eq!(case.ids("other").await, id_set::<i32>([]));
}

#[tokio::test]
async fn an_index_that_is_dropped_fails_its_rule_with_exact_counts_and_a_rerun_ends_the_work() {
    let drop = async |case: &Case| {
        let drop = doc! { "dropIndexes": "moving", "index": "at_1" };
        case.db.run_command(drop).await.unwrap();
    };
    let (_mongod, case, report) = swept_while(drop).await;
    assert_failed(&report, "dropped, renamed or moved");
    let left = ids(&case.db.collection::<Document>("moving")).await;
    assert!(left.is_superset(&id_set(100..103)), "{left:?}");
    assert_eq!(report.rule(0, "deletedCount"), 103 - left.len(), "{report:?}");
    let rerun = case.report(RULES, &[]).await;
    assert_eq!(rerun.ran.code, Some(0), "{rerun:?}");
    assert_eq!(case.ids("moving").await, id_set(100..103));
}

#[tokio::test]
async fn an_index_that_is_still_being_built_is_waited_for() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..50, days(-3)).chain(dated(50..53, days(3)))).await;
    let hang = |mode: &'static str| {
        let admin = case.client.database("admin");
        async move { admin.run_command(doc! { "configureFailPoint": "hangAfterStartingIndexBuild", "mode": mode }).await.unwrap() }
    };
    hang("alwaysOn").await;
    let db = case.db.clone();
    let build = tokio::spawn(async move {
        db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await
    });
    // The index is listed once its build has begun.
    while case.collection("c").list_index_names().await.unwrap().len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let report = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
    hang("off").await;
    build.await.unwrap().unwrap();
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap().contains("still being built"), "{report:?}");
    assert_eq!(case.ids("c").await, id_set(0..53));
    let again = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
    assert_eq!((again.ran.code, again.rule(0, "index")), (Some(0), &"at_1".into()), "{again:?}");
    assert_eq!(case.ids("c").await, id_set(50..53));
}
