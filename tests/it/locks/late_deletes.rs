//! Deletes that are late: no delete takes effect once another run has the lease.

use std::process::Child;
use std::time::Duration;

use crate::support::faults::{alone, dated, days, end, logged, signal, start};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::fault::{Fault, Gate};
use crate::support::sweeper::{Case, Report, id_set, run};
use mongodb::bson::{DateTime, Document, doc};

const RULE: &str =
    "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 10, concurrency: 1}\nlock: {collection: DB.locks}\n";

/// Starts a run whose leases last this many seconds; the holder relies on five sixths of that.
fn locking(case: &Case, seconds: u64, args: &[&str]) -> Child {
    let mut command = case.command(RULE, &[&["sweep", "--format", "json"], args].concat());
    command.env("SWEEPER_TEST_LEASE_SECONDS", seconds.to_string());
    start(command)
}

async fn report(child: Child) -> Report {
    let ran = end(child).await;
    Report { json: serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}")), ran }
}

/// A server with 100 documents to delete, and a proxy that holds the first delete on its way.
struct Held {
    proxied: Proxied,
    /// The same case without the proxy.
    direct: String,
    gate: Gate,
}

impl Held {
    async fn new() -> Self {
        let case = Case::new().await;
        case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
        let direct = case.uri.clone();
        let proxied = Proxied::behind(Service::Mongos, case).await;
        let gate = Gate::new();
        proxied.proxy.faults().next("delete", 1, Fault::Hold(gate.clone()));
        Self { proxied, direct, gate }
    }

    /// Starts a run through the proxy, and waits until its first delete is on its way.
    async fn holder(&self) -> Child {
        let mut child = locking(&self.proxied.case, 12, &[]);
        while self.deletes() == 0 {
            assert!(child.try_wait().unwrap().is_none(), "the process ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        child
    }

    /// Returns the number of deletes that the proxy has received.
    fn deletes(&self) -> usize {
        self.proxied.proxy.requests_of("delete").len()
    }

    /// Lets another run wait for the lease, take it over once it has expired, and delete ten documents.
    async fn taken_over(&mut self) {
        let through_proxy = std::mem::replace(&mut self.proxied.case.uri, self.direct.clone());
        let other = report(locking(&self.proxied.case, 12, &["--lock-wait", "1h", "--max-deletes", "10"])).await;
        assert_eq!((other.ran.code, other.rule(0, "deletedCount")), (Some(4), &10.into()), "{other:?}");
        self.proxied.case.uri = through_proxy;
    }
}

fn assert_lost(lost: &Report) {
    assert_eq!(lost.ran.code, Some(3), "{lost:?}");
    assert_eq!((lost.rule(0, "status"), lost.rule(0, "reason")), (&"failed".into(), &"lockLost".into()), "{lost:?}");
}

#[tokio::test]
async fn a_delete_that_arrives_after_another_run_took_the_lease_deletes_nothing() {
    let mut held = Held::new().await;
    let holder = held.holder().await;
    // Nothing is renewed while the process is stopped.
    signal(&holder, "STOP");
    held.taken_over().await;
    let left = held.proxied.case.ids("c").await;
    assert_eq!(left.len(), 93);
    let reply = held.gate.open().await;
    assert_eq!(reply.get_i32("n").unwrap(), 0, "{reply}");
    assert!(reply.to_string().contains("the time of this delete is over"), "{reply}");
    assert_eq!(held.proxied.case.ids("c").await, left);
    signal(&holder, "CONT");
    let lost = report(holder).await;
    assert_lost(&lost);
    assert_eq!(lost.rule(0, "deletedCount"), 0, "{lost:?}");
    assert_eq!((held.proxied.case.ids("c").await, held.deletes()), (left, 1));
}

#[tokio::test]
async fn a_delete_that_waits_for_a_server_while_another_run_takes_the_lease_is_never_sent() {
    let mut held = Held::new().await;
    let holder = held.holder().await;
    // The delete is lost, and another attempt waits for a server.
    held.proxied.proxy.cut();
    held.taken_over().await;
    let left = held.proxied.case.ids("c").await;
    held.proxied.proxy.heal();
    let lost = report(holder).await;
    assert_lost(&lost);
    assert_eq!((lost.rule(0, "deletedCount"), lost.rule(0, "uncertain")), (&0.into(), &true.into()), "{lost:?}");
    assert_eq!((held.proxied.case.ids("c").await, held.deletes()), (left, 1));
}

#[tokio::test]
async fn a_lease_under_which_a_delete_had_no_answer_is_left_to_expire() {
    let proxied = Proxied::new(Service::Mongos, 20).await;
    proxied.proxy.faults().next("delete", 1, Fault::Close { done: true });
    let swept = report(locking(&proxied.case, 60, &[])).await;
    assert_eq!((swept.ran.code, swept.rule(0, "uncertain")), (Some(0), &true.into()), "{swept:?}");
    assert!(swept.ran.stderr.contains("is left to expire"), "{swept:?}");
    let case = &proxied.case;
    let lease = case.collection("locks").find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(lease.get_str("runId").unwrap(), swept.json["runId"].as_str().unwrap());
    assert!(lease.get_datetime("expiresAt").unwrap() > lease.get_datetime("since").unwrap());
    let refused = report(locking(case, 60, &[])).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(6), &"lock".into()), "{refused:?}");
}

#[tokio::test]
async fn a_run_whose_lease_was_removed_stops_and_a_run_with_a_new_one_waits_for_that() {
    let (mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    let mut holder = locking(&case, 60, &["--rate", "1"]);
    while logged(&mongod, "delete").is_empty() {
        assert!(holder.try_wait().unwrap().is_none(), "the process ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    case.collection("locks").drop().await.unwrap();
    let lost = report(holder).await;
    assert_lost(&lost);
    let error = lost.rule(0, "error").as_str().unwrap();
    assert!(error.contains("or its document was removed"), "{error}");
    let left = case.ids("c").await;
    let (deleted, gone) = (lost.rule(0, "deletedCount").as_u64().unwrap(), 103 - left.len() as u64);
    assert!(deleted == gone || deleted < gone && lost.rule(0, "uncertain") == true, "{gone} gone: {lost:?}");

    let before = logged(&mongod, "delete").len();
    let second = report(locking(&case, 60, &[])).await;
    assert_eq!(second.ran.code, Some(0), "{second:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
    assert!(second.ran.stderr.contains("leases in `t.locks` are new"), "{second:?}");
    let lease: Document = case.collection("locks").find_one(doc! {}).await.unwrap().unwrap();
    let log = std::fs::read_to_string(mongod.dir.path().join("log")).unwrap();
    let deletes = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let deletes = deletes.filter(|line| line["attr"]["appName"] == "sweeper" && line["attr"]["command"].get("delete").is_some());
    let first = deletes.filter(|line| line["msg"] == "Slow query").nth(before).unwrap();
    let at = DateTime::parse_rfc3339_str(first["t"]["$date"].as_str().unwrap()).unwrap();
    // The server's clock is read before the document is written.
    let waited = at.timestamp_millis() - lease.get_datetime("since").unwrap().timestamp_millis();
    assert!(waited >= 5000, "{waited}");

    let third = run(case.command(RULE, &["sweep"])).await;
    assert_eq!(third.code, Some(0), "{third:?}");
    assert!(!third.stderr.contains("waiting"), "{third:?}");
}
