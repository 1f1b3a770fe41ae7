//! A reply that is lost on a connection that stays open: a run that has to end does not wait for it, and claims no more than it
//! knows.

use std::time::Duration;

use crate::support::faults::{dated, days, end, signal, start};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::fault::{Fault, Gate};
use crate::support::sweeper::{Ran, Report, id_set};
use mongodb::bson::doc;
use serde_json::json;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1}\n";

/// Creates ten expired and three live documents on a server that leaves the first delete unanswered. Without an end of the run,
/// the reply would count as lost after a minute.
async fn silent() -> Proxied {
    let mut proxied = Proxied::new(Service::Mongos, 10).await;
    proxied.case.fill("c", dated(10..13, days(3))).await;
    proxied.case.uri += "?socketTimeoutMS=60000";
    proxied.proxy.faults().next("delete", 1, Fault::Silence);
    proxied
}

/// Asserts that the run ended with an unanswered delete, which has deleted five documents, and that another run finishes the
/// work.
async fn assert_given_up(proxied: &Proxied, ran: Ran, code: i32, reason: &str) {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let report = Report { json, ran };
    assert_eq!(report.ran.code, Some(code), "{report:?}");
    let found = ["status", "reason", "deletedCount", "uncertain"].map(|key| report.rule(0, key).clone());
    assert_eq!(found, [json!("partial"), json!(reason), json!(0), json!(true)], "{report:?}");
    assert!(report.ran.stderr.contains("no answer to a delete within 6 s after the sweep had to end"), "{report:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(5..13));
    let rerun = proxied.case.report(RULE, &[]).await;
    assert_eq!((rerun.ran.code, rerun.rule(0, "deletedCount")), (Some(0), &5.into()), "{rerun:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(10..13));
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_a_lost_reply() {
    let proxied = silent().await;
    let child = start(proxied.case.command(RULE, &["sweep", "--format", "json"]));
    while proxied.proxy.requests_of("delete").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signal(&child, "TERM");
    let ran = end(child).await;
    assert_given_up(&proxied, ran, 143, "interrupted").await;
}

#[tokio::test]
async fn the_maximum_duration_ends_the_wait_for_a_lost_reply() {
    let proxied = silent().await;
    let ran = proxied.case.run(RULE, &["sweep", "--format", "json", "--max-duration", "3s"]).await;
    assert_given_up(&proxied, ran, 4, "maxDuration").await;
}

#[tokio::test]
async fn the_last_batch_is_given_up_like_any_other() {
    let proxied = silent().await;
    let whole = RULE.replace("batchSize: 5", "batchSize: 100");
    let ran = proxied.case.run(&whole, &["sweep", "--format", "json", "--max-duration", "3s"]).await;
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let rule = &json["rules"][0];
    assert_eq!((ran.code, &rule["reason"], &rule["uncertain"]), (Some(4), &"maxDuration".into(), &true.into()), "{ran:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(10..13));
}

#[tokio::test]
async fn a_reply_that_does_not_say_how_much_was_deleted_is_not_read_as_nothing() {
    let proxied = Proxied::new(Service::Mongos, 10).await;
    proxied.proxy.faults().next("delete", 1, Fault::Answer { reply: doc! { "ok": 1.0 }, done: true });
    let ran = proxied.case.run(RULE, &["sweep", "--format", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let rule = &json["rules"][0];
    let found = ["status", "deletedCount", "uncertain"].map(|key| rule[key].clone());
    assert_eq!((ran.code, found), (Some(3), [json!("failed"), json!(0), json!(true)]), "{ran:?}");
    assert!(ran.stdout.contains("the reply cannot be read: it does not say how much was deleted"), "{ran:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(5..10));
}

#[tokio::test]
async fn a_delete_that_arrives_after_the_end_of_its_run_spares_what_has_moved() {
    let mut proxied = Proxied::new(Service::Mongos, 10).await;
    proxied.case.uri += "?socketTimeoutMS=60000";
    let gate = Gate::new();
    proxied.proxy.faults().next("delete", 1, Fault::Hold(gate.clone()));
    let ran = proxied.case.run(RULE, &["sweep", "--format", "json", "--max-duration", "3s"]).await;
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let rule = &json["rules"][0];
    assert_eq!((ran.code, &rule["deletedCount"], &rule["uncertain"]), (Some(4), &json!(0), &json!(true)), "{ran:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(0..10));
    let c = proxied.case.collection("c");
    c.update_one(doc! { "_id": 0 }, doc! { "$set": { "at": days(3) } }).await.unwrap();
    c.delete_one(doc! { "_id": 1 }).await.unwrap();
    proxied.case.fill("c", dated(1..2, days(3))).await;
    let reply = gate.open().await;
    assert_eq!(reply.get_i32("n").unwrap(), 3, "{reply}");
    assert_eq!(proxied.case.ids("c").await, id_set([0, 1].into_iter().chain(5..10)));
}
