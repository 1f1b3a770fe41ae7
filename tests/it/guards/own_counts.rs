//! Guards on a mongod whose own counts of its collections are wrong, as they are after a crash: they go by documents that were
//! counted.

use crate::support::faults::{dated, days};
use crate::support::mongod::{Mongod, launch};
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::bson::{Document, doc};

/// Starts a mongod, lets `before` and then `after` write, and kills it: its own counts then are those between the two.
///
/// The counts are saved with a checkpoint, and the journal brings back the writes after it, but not their count.
async fn crashed(before: impl AsyncFnOnce(&Case), after: impl AsyncFnOnce(&Case)) -> (Mongod, Case) {
    let extra = ["--syncdelay", "3600"];
    let mut mongod = tokio::task::spawn_blocking(move || Mongod::start(&extra)).await.unwrap();
    let case = Case::on(&mongod, "t").await;
    before(&case).await;
    case.client.database("admin").run_command(doc! { "fsync": 1 }).await.unwrap();
    after(&case).await;
    let journaled = doc! { "insert": "last", "documents": [{}], "writeConcern": { "w": 1, "j": true } };
    case.db.run_command(journaled).await.unwrap();
    mongod.kill();
    mongod.child = launch(mongod.dir.path(), mongod.port, &mongod.extra);
    let mongod = tokio::task::spawn_blocking(move || {
        assert!(mongod.listens(), "{}", mongod.last_words());
        mongod
    });
    let mongod = mongod.await.unwrap();
    let case = Case::on(&mongod, "t").await;
    (mongod, case)
}

async fn own_count(case: &Case) -> u64 {
    case.collection("c").estimated_document_count().await.unwrap()
}

fn assert_refused(report: &Report, code: i32, guard: &str, part: &str) {
    assert_eq!(report.ran.code, Some(code), "{report:?}");
    assert_eq!(report.rule(0, "status"), "refused", "{report:?}");
    assert_eq!(report.rule(0, "reason"), guard, "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap_or_default().contains(part), "{report:?}");
}

#[tokio::test]
async fn a_count_that_is_too_high_after_a_crash_lets_no_share_go_that_is_too_large() {
    let fill = async |case: &Case| case.fill("c", dated(0..900, days(-3)).chain(dated(900..5900, days(3)))).await;
    let thin = async |case: &Case| {
        case.collection("c").delete_many(doc! { "_id": { "$gte": 1000 } }).await.unwrap();
    };
    let (_mongod, case) = crashed(fill, thin).await;
    assert_eq!(own_count(&case).await, 5900);
    let rule = |limit: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: {limit}}}\n");
    let said = "900 of 1,000 documents have expired, 90.00 %, and 50 % may be deleted; raise `maxDeletePercent` if that is intended; \
                the server's own count, 5,900, is wrong";
    // With an index and without one, found by the dates and by the `_id`s.
    for index in [false, true] {
        if index {
            case.db
                .run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] })
                .await
                .unwrap();
        }
        for args in [&[][..], &["--max-deletes", "800"], &["--rate", "100000"]] {
            assert_refused(&case.report(&rule("50"), args).await, 5, "maxDeletePercent", said);
        }
        let dry = case.report(&rule("89.9"), &["--dry-run"]).await;
        assert_refused(&dry, 0, "maxDeletePercent", "900 of 1,000 documents");
        assert_eq!(dry.rule(0, "documentCount"), 1000);
        assert_eq!(dry.rule(0, "expiredPercent"), 90.0);
        let audit = case.run(&rule("50"), &["audit", "--format", "json"]).await;
        assert_refused(&Report { json: serde_json::from_str(&audit.stdout).unwrap(), ran: audit }, 0, "maxDeletePercent", said);
        assert_eq!(case.ids("c").await, id_set(0..1000));
    }
    assert_eq!(own_count(&case).await, 5900);
    let swept = case.report(&rule("90"), &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set(900..1000));
}

#[tokio::test]
async fn a_count_that_is_too_low_after_a_crash_refuses_no_share_that_is_small_enough() {
    let nothing = async |case: &Case| case.db.create_collection("c").await.unwrap();
    let fill = async |case: &Case| case.fill("c", dated(0..300, days(-3)).chain(dated(300..500, days(3)))).await;
    let (_mongod, case) = crashed(nothing, fill).await;
    assert_eq!(own_count(&case).await, 0);
    let rule = |limit: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: {limit}}}\n");
    let swept = case.report(&rule("59.9"), &[]).await;
    assert_refused(&swept, 5, "maxDeletePercent", "300 of 500 documents have expired, 60.00 %");
    assert_eq!(case.ids("c").await, id_set(0..500));
    // An empty collection has no fields: the documents that the own count does not know of are looked at.
    let mistaken = case.report("  - {namespace: DB.c, field: att, expireAfter: 1d}\n", &[]).await;
    let warnings = mistaken.rule(0, "warnings").to_string();
    assert!(warnings.contains("`att`"), "{mistaken:?}");
    let swept = case.report(&rule("60"), &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.rule(0, "documentCount"), 500);
    assert_eq!(case.ids("c").await, id_set(300..500));
}

#[tokio::test]
async fn a_large_collection_is_not_gone_through_because_its_count_was_lost_in_a_crash() {
    let one = async |case: &Case| case.fill("c", dated(0..1, days(-3))).await;
    // A mongod also saves its counts each minute, between two commands: on a busy machine it saves the count of a part.
    let many = async |case: &Case| {
        let stages = vec![
            doc! { "$documents": [{ "_id": { "$range": [0, 1_000_001] } }] },
            doc! { "$unwind": "$_id" },
            doc! { "$set": { "at": days(-3) } },
            doc! { "$out": "c" },
        ];
        case.db.run_command(doc! { "aggregate": 1, "pipeline": stages, "cursor": Document::new() }).await.unwrap();
    };
    let (_mongod, case) = crashed(one, many).await;
    assert!(own_count(&case).await <= 1_000_000);
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {_id: {$gte: 3}}, maxDeletes: 2000";
    for (args, code) in [(&[][..], 5), (&["--dry-run"], 0)] {
        let report = case.report(&format!("{rule}}}\n"), args).await;
        assert_refused(&report, code, "collectionScan", "1000001 documents");
    }
    let policy = format!("{rule}}}\n");
    let checked = case.run(&policy, &["check", "--connect", "--format", "json"]).await;
    let checked = Report { json: serde_json::from_str(&checked.stdout).unwrap(), ran: checked };
    assert_refused(&checked, 5, "collectionScan", "1000001 documents");
    assert_eq!(checked.rule(0, "expiredCount"), &serde_json::Value::Null, "a check counts nothing else: {checked:?}");
    let why = case.run(&policy, &["why", "t.c", "5", "--format", "json"]).await;
    let explained: serde_json::Value = serde_json::from_str(&why.stdout).unwrap();
    assert_eq!(explained["rules"][0]["taken"], false, "{why:?}");
    assert!(explained["rules"][0]["notSwept"].as_str().unwrap().starts_with("refused (collectionScan): "), "{why:?}");
    assert_eq!(case.collection("c").count_documents(doc! {}).await.unwrap(), 1_000_001);
    let swept = case.report(&format!("{rule}, allowCollectionScan: true}}\n"), &[]).await;
    assert_eq!(swept.ran.code, Some(4), "{swept:?}");
    let left = async |ids: Document| case.collection("c").count_documents(doc! { "_id": ids }).await.unwrap();
    assert_eq!(left(doc! { "$lt": 3 }).await, 3);
    assert_eq!(left(doc! { "$gte": 3, "$lt": 2003 }).await, 0);
    assert_eq!(left(doc! { "$gte": 2003 }).await, 1_000_001 - 2003);
}
