//! One run at a time works on the parents of a journal, whether the policy has `lock` or not.

use crate::support::family::{assert_whole, case, entries, fill, lines_of, orders, report_after, rule, short};
use crate::support::faults::{end, start};
use crate::support::sweeper::Case;
use mongodb::bson::{Bson, DateTime, Document, doc};

/// Starts a run that takes one order a second, and waits until the first is gone.
async fn slow(case: &Case) -> std::process::Child {
    let all = orders(case).await.len();
    let mut child = start(short(
        case.command(&rule(", batchSize: 1, rate: 1").replace(", batchSize: 10", ""), &["sweep", "--format", "json"]),
    ));
    while orders(case).await.len() == all {
        assert!(child.try_wait().unwrap().is_none(), "the sweep ended before a parent went: {:?}", end(child).await);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    child
}

async fn lease(case: &Case) -> Document {
    let id = format!("{}.orders", case.db.name());
    case.collection("journal").find_one(doc! { "_id": id }).await.unwrap().unwrap()
}

#[tokio::test]
async fn another_run_is_refused_or_waits_and_a_rule_without_children_goes_on() {
    let case = case("oneatatime").await;
    fill(&case, 0..40, 40..45).await;
    let child = slow(&case).await;
    assert!(lease(&case).await.get_str("runId").is_ok());
    let before = orders(&case).await.len();
    let plain = "  - {name: plain, namespace: DB.notes, field: at, expireAfter: 1d}\n";
    case.fill("notes", [doc! { "_id": 1, "at": DateTime::from_millis(0) }]).await;
    let report = case.report(&format!("{plain}{}", rule("")), &[]).await;
    assert_eq!((report.ran.code, report.rule(1, "reason")), (Some(6), &"lock".into()), "{report:?}");
    let error = report.rule(1, "error").as_str().unwrap();
    assert!(error.contains("the lease on the namespace is held by run "), "{error}");
    assert_eq!((report.rule(0, "deletedCount"), report.rule(1, "deletedCount")), (&1.into(), &0.into()), "{report:?}");
    // A dry run takes no lease, and minds none.
    assert_eq!(case.report(&rule(""), &["--dry-run"]).await.ran.code, Some(0));
    assert!(orders(&case).await.len() > before.saturating_sub(20), "the slow run is slow");

    let mut child = child;
    child.kill().unwrap();
    end(child).await;
    let report = report_after(&case, &rule("")).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
    assert_eq!(orders(&case).await, (40..45).collect());
    assert_whole(&case, "").await;
    assert!(entries(&case).await.is_empty());
    assert_eq!(lease(&case).await.get("runId"), Some(&Bson::Null), "it is given back");
}

#[tokio::test]
async fn a_run_whose_lease_is_taken_away_deletes_nothing_more() {
    let case = case("takenaway").await;
    fill(&case, 0..40, 40..45).await;
    let child = slow(&case).await;
    let later = DateTime::from_millis(DateTime::now().timestamp_millis() + 3_600_000);
    let taken = doc! { "$set": { "runId": "another", "expiresAt": later } };
    case.collection("journal").update_one(doc! { "_id": "takenaway.orders" }, taken).await.unwrap();
    let ran = end(child).await;
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    assert_eq!((ran.code, &report["rules"][0]["reason"]), (Some(3), &"lockLost".into()), "{report}");
    let left = (orders(&case).await, lines_of(&case).await);
    assert!(left.0.len() > 5, "{left:?}");
    assert_eq!(case.report(&rule(""), &[]).await.rule(0, "reason"), "lock");
    assert_eq!((orders(&case).await, lines_of(&case).await), left);
    // The run that has it can finish what this one began.
    let free = doc! { "$set": { "runId": Bson::Null, "expiresAt": DateTime::from_millis(0) } };
    case.collection("journal").update_one(doc! { "_id": "takenaway.orders" }, free).await.unwrap();
    assert_eq!(case.report(&rule(""), &[]).await.ran.code, Some(0));
    assert_eq!(orders(&case).await, (40..45).collect());
    assert_whole(&case, "").await;
}

#[tokio::test]
async fn a_policy_with_lock_in_another_collection_holds_both_leases() {
    let case = case("bothleases").await;
    fill(&case, 0..5, 5..8).await;
    let rules = format!("{}lock: {{collection: DB.locks}}\n", rule(""));
    let id = "bothleases.orders";
    let held = |until: i64| doc! { "$set": { "runId": "another", "expiresAt": DateTime::from_millis(until) } };
    let later = DateTime::now().timestamp_millis() + 3_600_000;
    for collection in ["locks", "journal"] {
        let set = async |until: i64| {
            case.collection(collection).update_one(doc! { "_id": id }, held(until)).upsert(true).await.unwrap();
        };
        set(later).await;
        let report = case.report(&rules, &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(6), &"lock".into()), "{collection}: {report:?}");
        set(0).await;
    }
    assert_eq!(orders(&case).await, (0..8).collect());
    let report = case.report(&rules, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &5.into()), "{report:?}");
    for collection in ["locks", "journal"] {
        let lease = case.collection(collection).find_one(doc! { "_id": id }).await.unwrap().unwrap();
        assert_eq!(lease.get("runId"), Some(&Bson::Null), "{collection}");
    }
    // The journal may be the collection of `lock` as well, with one lease for both.
    let rules = format!("{}lock: {{collection: DB.journal}}\n", rule(""));
    fill(&case, 10..15, 0..0).await;
    let report = case.report(&rules, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &5.into()), "{report:?}");
    assert_whole(&case, "").await;
}
