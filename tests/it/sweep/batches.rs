//! The commands of a sweep as the server sees them: bounded, guarded, with a comment, in one pass over the data, few at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::faults::{
    alone, batches, dated, days, end, every_logged, fill_many, heal, logged, removed, running, slow_down, start,
};
use crate::support::mongod::Mongod;
use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{Document, doc};
use serde_json::{Value, json};

#[tokio::test]
async fn every_delete_is_bounded_and_repeats_the_predicate_beside_the_ids() {
    let (mongod, case) = alone().await;
    case.fill("c", dated(0..50, days(-3)).chain(dated(50..53, days(3)))).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 7, filter: {_id: {$ne: 4}}}\n";
    let report = case.report(rule, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(case.ids("c").await, id_set([4, 50, 51, 52]));

    let deletes = logged(&mongod, "delete");
    assert_eq!(report.rule(0, "batches"), deletes.len(), "{report:?}");
    let run_id = report.json["runId"].as_str().unwrap();
    let threshold = report.rule(0, "threshold").as_str().unwrap();
    for delete in &deletes {
        let command = &delete["command"];
        assert_eq!(command["delete"], "c");
        assert_eq!(command["comment"], format!("sweeper {run_id}"), "{command}");
        assert_eq!(command["writeConcern"], json!({ "w": "majority" }), "{command}");
        let statements = command["deletes"].as_array().unwrap();
        assert_eq!(statements.len(), 1, "{command}");
        assert_eq!(statements[0]["hint"], json!({ "_id": 1 }), "{command}");
        let predicate = &statements[0]["q"]["$and"][1];
        let expected = json!({ "$and": [{ "at": { "$lte": { "$date": threshold } } }, { "_id": { "$ne": 4 } }] });
        assert_eq!(predicate, &expected, "{command}");
    }
    let batches = batches(&mongod);
    assert!(batches.iter().all(|batch| (1..=7).contains(&batch.len())), "{batches:?}");
    let listed: Vec<i64> = batches.iter().flatten().filter_map(Value::as_i64).collect();
    let once: BTreeSet<i64> = listed.iter().copied().collect();
    assert_eq!(listed.len(), 49, "a document was listed twice: {listed:?}");
    assert_eq!(once, (0..50).filter(|id| *id != 4).collect());
}

#[tokio::test]
async fn every_command_on_the_data_carries_the_run() {
    let (mongod, case) = alone().await;
    case.fill("c", dated(0..5, days(-3))).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 100}\n";
    let report = case.report(rule, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    let comment = format!("sweeper {}", report.json["runId"].as_str().unwrap());
    let without: BTreeSet<String> = every_logged(&mongod)
        .iter()
        .map(|attributes| &attributes["command"])
        .filter(|command| command["$db"] == "t" && command["comment"] != *comment)
        .filter_map(|command| command.as_object()?.keys().find(|key| !key.starts_with('$')).cloned())
        .collect();
    assert_eq!(without, BTreeSet::new(), "commands without the comment `{comment}`");
}

#[tokio::test]
async fn the_connection_string_decides_on_the_write_concern() {
    let (mongod, mut case) = alone().await;
    case.fill("c", dated(0..5, days(-3))).await;
    case.uri += "&w=1&journal=true&wTimeoutMS=5000";
    let report = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    let sent = &logged(&mongod, "delete")[0]["command"]["writeConcern"];
    assert_eq!(sent, &json!({ "w": 1, "j": true, "wtimeout": 5000 }));
}

/// Sums a number of the log over all reads and over all deletes.
fn examined(mongod: &Mongod, key: &str) -> (u64, u64) {
    let sum = |entries: Vec<Value>| entries.iter().filter_map(|entry| entry[key].as_u64()).sum();
    (sum([logged(mongod, "find"), logged(mongod, "getMore")].concat()), sum(removed(mongod)))
}

#[tokio::test]
async fn a_field_without_index_costs_one_scan_and_not_one_per_batch() {
    for object_ids in [false, true] {
        let (mongod, case) = alone().await;
        // The live documents come first, so that a second pass would read them again.
        let documents = dated(0..2000, days(3)).chain(dated(2000..4000, days(-3)));
        let with_id = |document: Document| {
            if object_ids {
                doc! { "at": document.get("at").unwrap() }
            } else {
                document
            }
        };
        case.fill("c", documents.map(with_id)).await;
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 50}\n";
        let report = case.report(rule, &[]).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        assert_eq!(report.rule(0, "deletedCount"), 2000, "{report:?}");
        let (read, deleted) = examined(&mongod, "docsExamined");
        assert!((1..=4100).contains(&(read.max(deleted))), "read {read}, deleted {deleted} of 4000 documents");
        assert_eq!(case.ids("c").await.len(), 2000);
    }
}

#[tokio::test]
async fn a_hundred_thousand_documents_of_one_date_are_swept_in_one_pass() {
    for indexed in [true, false] {
        let (mongod, case) = alone().await;
        fill_many(&case, "c", 100_000, days(-3)).await;
        case.fill("c", dated(100_000..100_003, days(3))).await;
        if indexed {
            let indexes = doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] };
            case.db.run_command(indexes).await.unwrap();
        }
        let report = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        assert_eq!(report.rule(0, "deletedCount"), 100_000);
        for key in ["docsExamined", "keysExamined"] {
            let (read, deleted) = examined(&mongod, key);
            assert!(read.max(deleted) <= 110_000, "{key}: read {read}, deleted {deleted} for 100,003 documents");
        }
        let sizes: Vec<u64> = removed(&mongod).iter().filter_map(|entry| entry["ndeleted"].as_u64()).collect();
        assert_eq!(sizes.iter().sum::<u64>(), 100_000);
        // A range along the storage is larger, because in most collections only a part of it goes.
        let most = if indexed { 2000 } else { 8000 };
        assert!(sizes.iter().all(|size| *size <= most), "{sizes:?}");
        assert_eq!(case.ids("c").await, id_set(100_000..100_003));
    }
}

#[tokio::test]
async fn a_rate_makes_batches_that_come_several_times_a_second() {
    let in_rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, rate: 60}\n";
    let in_run = "  - {namespace: DB.c, field: at, expireAfter: 1d, rate: 1000000}\nrun: {rate: 60}\n";
    let in_neither = "  - {namespace: DB.c, field: at, expireAfter: 1d}\nrun: {rate: 1000000}\n";
    for (rules, args) in [(in_rule, &["--rate", "1000000"][..]), (in_run, &[]), (in_neither, &["--rate", "60"])] {
        let (mongod, case) = alone().await;
        case.fill("c", dated(0..40, days(-3))).await;
        let report = case.report(rules, args).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        let batches = batches(&mongod);
        assert!(batches.iter().all(|batch| batch.len() <= 12), "{batches:?}");
        assert_eq!(report.rule(0, "batches"), batches.len());
        assert_eq!(case.ids("c").await, id_set::<i32>([]));
    }
}

/// Returns the highest number of delete commands seen on the server at the same time.
async fn most_at_once(case: &Case, rules: &str) -> usize {
    case.fill("c", dated(0..60, days(-3))).await;
    slow_down(&case.client, "delete", 300).await;
    let mut child = start(case.command(rules, &["sweep"]));
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(running(&case.client, "delete").await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    heal(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    most
}

#[tokio::test]
async fn no_more_deletes_are_in_flight_than_the_rule_and_the_run_allow() {
    let (_mongod, case) = alone().await;
    let rule = |concurrency: u32, batch: u32| {
        format!(
            "  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: {batch}, concurrency: {concurrency}, targetBatchMs: 60000}}\n"
        )
    };
    assert_eq!(most_at_once(&case, &rule(1, 15)).await, 1);
    assert_eq!(most_at_once(&case, &rule(4, 5)).await, 4);
    assert_eq!(most_at_once(&case, &format!("{}run: {{concurrency: 2}}\n", rule(4, 8))).await, 2);
}
