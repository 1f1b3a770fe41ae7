//! Errors in every phase of a sweep with children.

use std::collections::BTreeSet;

use crate::support::archives::directory;
use crate::support::family::{assert_kept, assert_whole, entries, fill, order, orders, report_after, rule, short};
use crate::support::faults::{
    end, fail_commands, heal, pause_deletes, resume_deletes, set_alone, signal, start, until_deleted_from, until_deleting_from,
    until_running,
};
use crate::support::said::Said;
use crate::support::sweeper::{Case, Report};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;

/// The commands of the phases, with the collection that each is for.
const PHASES: [(&str, &str); 8] = [
    ("find", "journal"),
    ("insert", "journal"),
    ("delete", "orders"),
    ("find", "orders"),
    ("find", "lines"),
    ("getMore", "lines"),
    ("delete", "lines"),
    ("delete", "journal"),
];

/// Makes the commands of a phase fail. Returns the same as [`fail_commands`].
async fn fails(case: &Case, (command, collection): (&str, &str), mode: impl Into<Bson>, fault: Document) -> i32 {
    let mut data = doc! { "failCommands": [command], "namespace": format!("t.{collection}") };
    data.extend(fault);
    fail_commands(&case.client, mode, data).await
}

/// Replaces what the phase before has left.
async fn fill_again(case: &Case) {
    for collection in ["orders", "lines", "journal"] {
        case.collection(collection).drop().await.unwrap();
    }
    fill(case, 0..50, 50..60).await;
}

async fn sweep(case: &Case) -> Report {
    case.report(&rule(", concurrency: 1"), &[]).await
}

#[tokio::test]
async fn an_error_that_lasts_leaves_no_parent_without_a_child_and_the_next_run_no_orphan() {
    let (_set, case) = set_alone().await;
    for phase in PHASES {
        fill_again(&case).await;
        // Neither an error that passes nor one that comes from the load of the server.
        fails(&case, phase, doc! { "skip": 1 }, doc! { "errorCode": 2 }).await;
        let report = sweep(&case).await;
        heal(&case.client).await;
        let context = format!("{phase:?}: {report:?}");
        assert_kept(&case, &context).await;
        match phase {
            ("delete", "journal") => assert_eq!(report.ran.code, Some(0), "{context}"),
            ("find", "journal") => assert!(matches!(report.ran.code, Some(0 | 3)), "{context}"),
            _ => assert_eq!(report.ran.code, Some(3), "{context}"),
        }
        if report.ran.code == Some(3) {
            assert_eq!(report.rule(0, "deletedCount"), 60 - orders(&case).await.len(), "{context}");
        }
        let again = sweep(&case).await;
        assert_eq!(again.ran.code, Some(0), "{phase:?}: {again:?}");
        assert_eq!(orders(&case).await, (50..60).collect(), "{phase:?}: {again:?}");
        assert_whole(&case, &format!("{phase:?}: {again:?}")).await;
    }
}

/// The searches for orphans, and the counts of children, read all documents again.
#[tokio::test]
async fn a_search_that_an_error_ends_begins_again() {
    let (_set, case) = set_alone().await;
    let orphans = |from: i32| {
        (from..from + 5000).map(|n| doc! { "_id": ObjectId::from_bytes([1; 12]).to_hex() + &n.to_string(), "order": n })
    };
    let phases = [("aggregate", "lines"), ("getMore", "lines")];
    for (phase, args) in phases.into_iter().flat_map(|phase| [(phase, &["--dry-run"][..]), (phase, &[])]) {
        fill_again(&case).await;
        case.fill("lines", orphans(1000)).await;
        let before = fails(&case, phase, doc! { "times": 1 }, doc! { "errorCode": 11_602 }).await;
        let report = case.report(&rule(", concurrency: 1, orphans: true"), args).await;
        assert_eq!(heal(&case.client).await - before, 1, "{phase:?} {args:?}: the fault was met");
        let counted = if args.is_empty() { Value::Null } else { 5000.into() };
        let context = format!("{phase:?} {args:?}: {report:?}");
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{context}");
        assert_eq!(report.rule(0, "orphanCount"), &counted, "{context}");
    }
}

#[tokio::test]
async fn an_error_that_passes_is_tried_again_in_every_phase() {
    let (_set, case) = set_alone().await;
    for phase in PHASES {
        fill_again(&case).await;
        // Interrupted by a change of the primary: retryable for reads and writes.
        fails(&case, phase, doc! { "times": 1 }, doc! { "errorCode": 11_602 }).await;
        let report = sweep(&case).await;
        heal(&case.client).await;
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{phase:?}: {report:?}");
        assert_eq!(orders(&case).await, (50..60).collect(), "{phase:?}: {report:?}");
        assert_whole(&case, &format!("{phase:?}: {report:?}")).await;
        assert!(entries(&case).await.is_empty(), "{phase:?}: {report:?}");
    }
}

#[tokio::test]
async fn without_an_entry_in_the_journal_no_parent_goes() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..50, 50..60).await;
    fails(&case, ("insert", "journal"), "alwaysOn", doc! { "errorCode": 2 }).await;
    let report = sweep(&case).await;
    heal(&case.client).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(3), &0.into()), "{report:?}");
    let error = report.rule(0, "error").as_str().unwrap();
    assert!(error.contains("writing to the journal `t.journal`") && error.contains("were not deleted"), "{error}");
    assert_eq!(orders(&case).await, (0..60).collect());
}

#[tokio::test]
async fn a_parent_that_is_created_again_before_its_children_are_found_keeps_them() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..10, 10..20).await;
    fails(&case, ("find", "lines"), "alwaysOn", doc! { "errorCode": 2 }).await;
    let report = sweep(&case).await;
    heal(&case.client).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(3), &10.into()), "{report:?}");
    let said = report.rule(0, "warnings").to_string();
    assert!(said.contains("children of up to 10 parents may be left"), "{report:?}");
    case.fill("orders", [order(7, false), order(8, false)]).await;
    case.collection("lines").delete_one(doc! { "_id": "8-1" }).await.unwrap();
    case.fill("lines", [doc! { "_id": "new", "order": 8 }]).await;
    let report = sweep(&case).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &24.into()), "{report:?}");
    assert_whole(&case, "").await;
}

#[tokio::test]
async fn an_entry_stays_with_a_parent_that_a_delete_without_a_reply_may_still_take() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..5, 5..8).await;
    fails(&case, ("delete", "orders"), doc! { "times": 1 }, doc! { "closeConnection": true }).await;
    pause_deletes(&case.client).await;
    let child = start(short(case.command(&rule(""), &["sweep"])));
    until_deleting_from(&case.collection("orders")).await;
    let rescued = order(3, false);
    case.collection("orders").replace_one(doc! { "_id": 3 }, rescued).await.unwrap();
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!((ran.code, orders(&case).await), (Some(0), BTreeSet::from([3, 5, 6, 7])), "{ran:?}");
    assert_whole(&case, "").await;
    // The first delete may still be on its way, and order 3 may expire again.
    assert_eq!(entries(&case).await.len(), 1, "{ran:?}");
    case.collection("orders").delete_one(doc! { "_id": 3 }).await.unwrap();
    // The lease is left to expire with that delete.
    assert_eq!(sweep(&case).await.rule(0, "reason"), "lock");
    assert_eq!(report_after(&case, &rule("")).await.ran.code, Some(0));
    assert_whole(&case, "").await;
    assert!(entries(&case).await.is_empty());
}

#[tokio::test]
async fn a_run_that_a_second_signal_ends_tells_the_children_that_are_gone_and_what_is_archived() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..50, 50..60).await;
    // Of the 30 lines of the first ten orders, ten go, and the next ten are held up.
    let held = doc! { "blockConnection": true, "blockTimeMS": 60_000 };
    fails(&case, ("delete", "lines"), doc! { "skip": 1 }, held).await;
    std::fs::create_dir_all(directory(&case)).unwrap();
    let archive = format!(", concurrency: 1, archive: {{directory: {}}}", directory(&case).display());
    let mut child = start(case.command(&rule(&archive), &["sweep", "--format", "json"]));
    until_deleted_from(&case, "lines", 180).await;
    until_running(&case.client, "delete").await;
    signal(&child, "TERM");
    let said = Said::by(&mut child);
    said.until("stops at once").await;
    signal(&child, "INT");
    let ran = end(child).await;
    let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let known = ["deletedCount", "archivedCount", "childrenDeletedCount", "batches", "unconfirmedCount", "uncertain"];
    let told = known.map(|key| json["rules"][0][key].clone());
    assert_eq!(serde_json::json!(told), serde_json::json!([10, 10, 10, 2, 0, true]), "{json}");
    let warnings = json["rules"][0]["warnings"].to_string();
    assert!(warnings.contains("children of up to 10 parents may be left"), "{warnings}");
    assert_eq!(
        (orders(&case).await, case.collection("lines").count_documents(doc! {}).await.unwrap()),
        ((10..60).collect(), 170)
    );
}
