//! A restore whose reply is lost: it counts no document twice, calls none inserted that it does not know, and puts every document
//! back.

use std::path::PathBuf;
use std::time::Duration;

use crate::support::archives::{Documents, archive, directory, raw, restored};
use crate::support::faults::{dated, days, end, signal, start};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::errors;
use crate::support::proxy::fault::{Fault, Gate};
use crate::support::sweeper::{Case, sweeper};
use mongodb::bson::{Document, doc};
use serde_json::{Value, json};

/// Returns a case behind a proxy, the archive of its ten documents that were deleted, and the documents.
async fn swept() -> (Proxied, PathBuf, Documents) {
    let case = Case::new().await;
    case.fill("c", dated(0..10, days(-3))).await;
    let before = raw(&case, "c").await;
    let rule =
        format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\n", directory(&case).display());
    assert_eq!(case.run(&rule, &["sweep"]).await.code, Some(0));
    let run = archive(&directory(&case));
    (Proxied::behind(Service::Mongos, case).await, run, before)
}

/// Returns the counts of a report: inserted, replaced, the same, and whether they are uncertain.
fn counts(report: &Value) -> [Value; 4] {
    ["insertedCount", "replacedCount", "sameCount", "uncertain"].map(|key| report["namespaces"][0][key].clone())
}

#[tokio::test]
async fn only_what_a_reply_calls_inserted_counts_as_inserted() {
    let (proxied, run, before) = swept().await;
    let shutdown = || errors::failed(11_600, "InterruptedAtShutdown", "interrupted at shutdown");
    for (fault, inserted, same, is_uncertain) in [
        (Fault::Close { done: false }, 10, 0, false),
        (Fault::Close { done: true }, 0, 10, true),
        (Fault::Answer { reply: shutdown(), done: false }, 10, 0, false),
        (Fault::Answer { reply: shutdown(), done: true }, 0, 10, true),
    ] {
        proxied.case.collection("c").drop().await.unwrap();
        proxied.proxy.faults().next("insert", 1, fault.clone());
        let (report, ran) = restored(&proxied.case, &run, &[]).await;
        let expected = [json!(inserted), json!(0), json!(same), json!(is_uncertain)];
        assert_eq!((ran.code, counts(&report)), (Some(0), expected), "{fault:?}: {ran:?}");
        assert_eq!(raw(&proxied.case, "c").await, before, "{fault:?}");
    }
}

#[tokio::test]
async fn what_another_inserts_after_a_lost_reply_is_not_called_inserted() {
    let (proxied, run, before) = swept().await;
    let gate = Gate::new();
    proxied.proxy.faults().next("insert", 1, Fault::Close { done: false });
    proxied.proxy.faults().next("insert", 1, Fault::Hold(gate.clone()));
    let direct = async {
        while proxied.proxy.requests_of("insert").len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let documents = before.values().map(|bytes| Document::from_reader(bytes.as_slice()).unwrap());
        proxied.case.fill("c", documents.filter(|document| document.get_i32("_id").unwrap() < 4)).await;
        gate.open().await;
    };
    let ((report, ran), ()) = tokio::join!(restored(&proxied.case, &run, &[]), direct);
    assert_eq!((ran.code, counts(&report)), (Some(0), [json!(6), json!(0), json!(4), json!(true)]), "{ran:?}");
    assert_eq!(raw(&proxied.case, "c").await, before);
}

#[tokio::test]
async fn a_replacement_that_is_sent_twice_counts_once() {
    let (proxied, run, before) = swept().await;
    proxied.case.fill("c", (0..10).map(|id| doc! { "_id": id, "other": true })).await;
    proxied.proxy.faults().next("update", 3, Fault::Close { done: true });
    let (report, ran) = restored(&proxied.case, &run, &["--replace"]).await;
    assert_eq!((ran.code, counts(&report)), (Some(0), [json!(0), json!(10), json!(0), json!(false)]), "{ran:?}");
    assert_eq!(raw(&proxied.case, "c").await, before);
}

#[tokio::test]
async fn a_signal_during_a_lost_reply_leaves_lower_bounds() {
    let (mut proxied, run, before) = swept().await;
    // Without a signal, the reply would count as lost after a minute.
    proxied.case.uri += "?socketTimeoutMS=60000";
    proxied.proxy.faults().next("insert", 1, Fault::Silence);
    let mut command = sweeper(&["restore", "--format", "json", "--uri", &proxied.case.uri]);
    command.arg(&run);
    let child = start(command);
    while proxied.proxy.requests_of("insert").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signal(&child, "TERM");
    let ran = end(child).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    assert_eq!((ran.code, counts(&report)), (Some(143), [json!(0), json!(0), json!(0), json!(true)]), "{ran:?}");
    assert!(report["namespaces"][0]["error"].as_str().unwrap().contains("no answer within 8 s after the signal"), "{ran:?}");
    let (rerun, ran) = restored(&proxied.case, &run, &[]).await;
    assert_eq!((ran.code, counts(&rerun)), (Some(0), [json!(0), json!(0), json!(10), json!(false)]), "{ran:?}");
    assert_eq!(raw(&proxied.case, "c").await, before);
}
