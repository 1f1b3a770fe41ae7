//! Limits that end a run early: never one document more, the oldest first, and the report says that expired documents remain.

use crate::support::faults::{alone, dated, days, end, pause_deletes, resume_deletes, slow_down, start, until_running};
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::bson::{Document, doc};

fn assert_partial(report: &Report, index: usize, reason: &str, deleted: u64) {
    assert_eq!(report.ran.code, Some(4), "{report:?}");
    assert_eq!(report.json["status"], "partial", "{report:?}");
    assert_eq!(report.rule(index, "status"), "partial", "{report:?}");
    assert_eq!(report.rule(index, "reason"), reason, "{report:?}");
    assert_eq!(report.rule(index, "deletedCount"), deleted, "{report:?}");
}

/// Inserts expired documents in an order that is neither the order of their dates nor the reverse: the higher the `_id`, the
/// older.
async fn shuffled(case: &Case, name: &str, documents: i64) {
    let document = |n: i64| doc! { "_id": n * 7 % documents, "at": days(-3 - n * 7 % documents) };
    case.fill(name, (0..documents).map(document)).await;
}

async fn index(case: &Case, name: &str, key: Document) {
    let spec = doc! { "key": key, "name": "by_date" };
    let created = case.db.run_command(doc! { "createIndexes": name, "indexes": [spec] });
    created.await.expect("an index");
}

#[tokio::test]
async fn a_rule_stops_at_its_limit_and_has_taken_the_oldest() {
    for key in [doc! { "at": 1 }, doc! { "at": -1 }, doc! { "at": -1, "s": 1 }] {
        let case = Case::new().await;
        shuffled(&case, "c", 50).await;
        index(&case, "c", key.clone()).await;
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 20, batchSize: 3, concurrency: 3, targetBatchMs: 60000}\n";
        let swept = case.report(rule, &[]).await;
        assert_partial(&swept, 0, "maxDeletes", 20);
        assert_eq!(swept.rule(0, "batches"), 7, "{swept:?}");
        assert_eq!(case.ids("c").await, id_set(0_i64..30), "{key}");
    }
}

#[tokio::test]
async fn a_limit_that_nothing_exceeds_is_no_limit() {
    let case = Case::new().await;
    for name in ["a", "b"] {
        case.fill(name, dated(0..20, days(-3)).chain(dated(20..25, days(3)))).await;
    }
    let rules = "  - {namespace: DB.a, field: at, expireAfter: 1d, maxDeletes: 20, batchSize: 7}
  - {namespace: DB.b, field: at, expireAfter: 1d, batchSize: 10}\n";
    let swept = case.report(rules, &["--max-deletes", "40"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.json["status"], "complete");
    for (index, name) in ["a", "b"].iter().enumerate() {
        assert_eq!(swept.rule(index, "status"), "complete", "{swept:?}");
        assert_eq!(swept.rule(index, "reason"), &serde_json::Value::Null);
        assert_eq!(case.ids(name).await, id_set(20..25));
    }
    // The whole allowance is used, and no expired documents are left.
    case.fill("a", dated(0..20, days(-3))).await;
    let swept = case.report(rules, &["--max-deletes", "20"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
}

#[tokio::test]
async fn the_limit_of_the_run_holds_over_all_its_rules() {
    let case = Case::new().await;
    for name in ["a", "b", "c"] {
        case.fill(name, dated(0..20, days(-3))).await;
    }
    let rules = "  - {namespace: DB.a, field: at, expireAfter: 1d, batchSize: 3}
  - {namespace: DB.b, field: at, expireAfter: 1d, batchSize: 3, maxDeletes: 19}
  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 3}\n";
    let swept = case.report(rules, &["--max-deletes", "31"]).await;
    assert_eq!(swept.json["totals"]["deletedCount"], 31);
    for (index, name) in ["a", "b", "c"].iter().enumerate() {
        // The rules take turns: each deletes some documents, none deletes all of its own.
        let gone = 20 - case.ids(name).await.len() as u64;
        assert!((1..20).contains(&gone), "{swept:?}");
        assert_partial(&swept, index, "maxDeletes", gone);
    }
}

#[tokio::test]
async fn the_limit_of_a_rule_holds_for_each_namespace_of_its_glob() {
    let case = Case::new().await;
    for name in ["s1", "s2"] {
        case.fill(name, dated(0..5, days(-3))).await;
    }
    let swept = case.report("  - {namespace: 'DB.s*', field: at, expireAfter: 1d, maxDeletes: 4}\n", &[]).await;
    assert_partial(&swept, 0, "maxDeletes", 4);
    assert_partial(&swept, 1, "maxDeletes", 4);
    assert_eq!((case.ids("s1").await.len(), case.ids("s2").await.len()), (1, 1));
}

/// Sweeps, and calls `change` while the first deletes wait on the server.
async fn swept_while(case: &Case, rules: &str, args: &[&str], change: impl AsyncFnOnce(&Case)) -> Report {
    pause_deletes(&case.client).await;
    let child = start(case.command(rules, &[&["sweep", "--format", "json"], args].concat()));
    until_running(&case.client, "delete").await;
    change(case).await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    Report { json: serde_json::from_str(&ran.stdout).unwrap(), ran }
}

#[tokio::test]
async fn what_moved_away_before_its_delete_does_not_use_up_the_limit() {
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 4, concurrency: 2, maxDeletes: ";
    for (limit, args) in [(8, &[][..]), (20, &["--max-deletes", "8"])] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..20, days(-3))).await;
        index(&case, "c", doc! { "at": 1, "_id": 1 }).await;
        let report = swept_while(&case, &format!("{rule}{limit}}}\n"), args, async |case| {
            let moved = doc! { "_id": { "$in": [0, 2, 5] } };
            let update = doc! { "$set": { "at": days(3) } };
            case.collection("c").update_many(moved, update).await.unwrap();
        })
        .await;
        assert_partial(&report, 0, "maxDeletes", 8);
        assert_eq!(case.ids("c").await, id_set([0, 2, 5].into_iter().chain(11..20)));
    }
}

#[tokio::test]
async fn what_others_insert_meanwhile_does_not_break_the_limit() {
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 20, concurrency: 1, maxDeletes: ";
    for (limit, args) in [(1000, &[][..]), (5000, &["--max-deletes", "1000"])] {
        let (_mongod, case) = alone().await;
        shuffled(&case, "c", 1500).await;
        index(&case, "c", doc! { "at": 1 }).await;
        let report = swept_while(&case, &format!("{rule}{limit}}}\n"), args, async |case| {
            // Older than all documents so far.
            case.fill("c", dated(2000..4000, days(-5000))).await;
        })
        .await;
        assert_eq!(report.ran.code, Some(4), "{report:?}");
        let gone = 3500 - case.ids("c").await.len();
        assert_eq!(report.rule(0, "deletedCount"), gone, "{report:?}");
        assert!(gone <= 1000, "{gone} documents were deleted, 1000 were allowed");
    }
}

#[tokio::test]
async fn a_run_that_takes_too_long_ends_with_exact_counts() {
    for limit in [["--max-duration", "3s"], ["--progress", "never"]] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..100, days(-3))).await;
        case.fill("d", dated(0..5, days(-3))).await;
        slow_down(&case.client, "delete", 400).await;
        let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 2}
  - {namespace: DB.d, field: at, expireAfter: 1d}
run: {maxDuration: 3s}\n";
        let rules = if limit[0] == "--max-duration" { rules.replace("3s", "1h") } else { rules.to_owned() };
        let swept = case.report(&rules, &limit).await;
        let gone = 100 - case.ids("c").await.len() as u64;
        assert!(gone < 100);
        assert_partial(&swept, 0, "maxDuration", gone);
        assert_eq!(swept.rule(0, "uncertain"), false);
        // The other rule has had its turn.
        assert_eq!(swept.rule(1, "status"), "complete", "{swept:?}");
        assert_eq!(case.ids("d").await, id_set::<i32>([]));
    }
}
