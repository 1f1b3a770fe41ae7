//! `lock` of the policy: leases in the database, so that runs on several machines never sweep the same namespace at the same
//! time.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::support::faults::{
    alone, dated, days, end, fail_commands, heal, pause_deletes, resume_deletes, signal, slow_down, start, until_deleted_from,
    until_running,
};
use crate::support::pool::Kept;
use crate::support::server::{Server, on_servers};
use crate::support::shim::Shim;
use crate::support::site::{Secured, Site, secured};
use crate::support::sweeper::{Case, Ran, Report, id_set, run};
use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Client, Collection};

const LOCK: &str = "lock: {collection: DB.locks}\n";
const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

fn locking(case: &Case, rules: &str, args: &[&str]) -> Command {
    case.command(&format!("{rules}{LOCK}"), &[&["sweep", "--format", "json"], args].concat())
}

async fn filled(server: &Server) -> Case {
    let case = server.case().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    case
}

/// Starts a run that holds the lease and deletes one document per second.
async fn holder(case: &Case) -> Child {
    deletes(case, locking(case, RULE, &["--rate", "1"])).await
}

/// Like [`holder`], with a lease of twelve seconds: relied on for ten, and renewed every four.
async fn short_holder(case: &Case) -> Child {
    let mut command = locking(case, RULE, &["--rate", "1"]);
    command.env("SWEEPER_TEST_LEASE_SECONDS", "12");
    deletes(case, command).await
}

/// Starts a run, and waits for its first delete.
async fn deletes(case: &Case, command: Command) -> Child {
    let full = case.ids("c").await.len();
    let mut child = start(command);
    until_deleted_from(case, "c", full).await;
    assert!(child.try_wait().unwrap().is_none(), "the process ended");
    child
}

fn report(ran: Ran) -> Report {
    Report { json: serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}")), ran }
}

async fn sweep(case: &Case, rules: &str, args: &[&str]) -> Report {
    report(run(locking(case, rules, args)).await)
}

fn locks(case: &Case) -> Collection<Document> {
    case.collection("locks")
}

async fn lease(case: &Case, namespace: &str) -> Document {
    locks(case).find_one(doc! { "_id": namespace }).await.unwrap().unwrap_or_else(|| panic!("no lease on {namespace}"))
}

/// Whether all leases are free.
async fn all_free(case: &Case) -> bool {
    let held = locks(case).count_documents(doc! { "runId": { "$ne": null } }).await.unwrap();
    held == 0 && locks(case).count_documents(doc! { "expiresAt": { "$gt": DateTime::now() } }).await.unwrap() == 0
}

/// Makes the lease expire, as far as the database can tell.
async fn expire(case: &Case) {
    let past = doc! { "$set": { "expiresAt": DateTime::from_millis(DateTime::now().timestamp_millis() - 1) } };
    assert_eq!(locks(case).update_many(doc! {}, past).await.unwrap().modified_count, 1);
}

fn assert_held(report: &Report, rule: usize, by: &Child) {
    assert_eq!(report.rule(rule, "status"), "refused", "{report:?}");
    assert_eq!(report.rule(rule, "reason"), "lock", "{report:?}");
    assert_eq!(report.rule(rule, "deletedCount"), 0, "{report:?}");
    let error = report.rule(rule, "error").as_str().unwrap();
    for part in [&format!("process {}, since 2", by.id()), "it ends at 2"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn of_two_runs_that_begin_together_exactly_one_sweeps() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    for round in 0..3 {
        pause_deletes(&case.client).await;
        let mut children = vec![start(locking(&case, RULE, &[])), start(locking(&case, RULE, &[]))];
        // The run that sweeps cannot end before its deletes resume; if both swept, neither would end.
        let mut ended = None;
        for _ in 0..2000 {
            ended = children.iter_mut().position(|child| child.try_wait().unwrap().is_some());
            if ended.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let loser = children.remove(ended.expect("both runs sweep"));
        let winner = children.remove(0);
        let lost = report(end(loser).await);
        assert_eq!(lost.ran.code, Some(6), "{lost:?}");
        assert_eq!((&lost.json["status"], &lost.json["exitCode"]), (&"refused".into(), &6.into()));
        assert_held(&lost, 0, &winner);
        resume_deletes(&case.client).await;
        let won = report(end(winner).await);
        assert_eq!((won.ran.code, won.rule(0, "deletedCount")), (Some(0), &100.into()), "{won:?}");
        assert_eq!(case.ids("c").await, id_set(100..103));
        assert!(all_free(&case).await, "round {round}");
        case.fill("c", dated(0..100, days(-3))).await;
    }
}

async fn policies_that_differ_share_the_lease_of_a_namespace_and_other_namespaces_are_swept(server: &Server) {
    let case = filled(server).await;
    case.fill("other", dated(0..5, days(-3))).await;
    let first = holder(&case).await;
    let rules = "  - {name: x, namespace: 'DB.*', field: at, expireAfter: 2d, filter: {s: 1}}
  - {name: y, namespace: DB.other, field: at, expireAfter: 1d}
  - {name: z, namespace: DB.other, field: 'at', expireAfter: 1h, maxDeletes: 1000}\n";
    let second = sweep(&case, rules, &[]).await;
    assert_eq!(second.ran.code, Some(6), "{second:?}");
    assert_held(&second, 0, &first);
    for rule in 1..4 {
        assert_eq!(second.rule(rule, "status"), "complete", "{second:?}");
    }
    assert_eq!(second.json["totals"]["deletedCount"], 5);
    assert_eq!(case.ids("other").await, id_set::<i32>([]));
    // A worse outcome than a held lease decides the exit code.
    case.fill("other", dated(0..5, days(-3))).await;
    for (keys, code) in [("maxDeletes: 2", 4), ("maxDeletePercent: 1", 5)] {
        let rules = format!("{RULE}  - {{namespace: DB.other, field: at, expireAfter: 1d, {keys}}}\n");
        let second = sweep(&case, &rules, &[]).await;
        assert_eq!(second.ran.code, Some(code), "{second:?}");
        assert_held(&second, 0, &first);
    }
    let quiet = run(case.command(&format!("{RULE}{LOCK}"), &["sweep", "-q"])).await;
    assert_eq!((quiet.code, quiet.stderr.lines().count()), (Some(6), 1), "{quiet:?}");
    assert!(quiet.stderr.contains(&format!("process {}", first.id())), "{quiet:?}");
    signal(&first, "TERM");
    assert_eq!(end(first).await.code, Some(143));
    assert!(all_free(&case).await);
}

#[tokio::test]
async fn a_lease_is_given_back_however_a_run_ends() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    let refused = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 1}\n";
    let partial = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 1}\n";
    assert_eq!(sweep(&case, refused, &[]).await.ran.code, Some(5));
    assert!(all_free(&case).await);
    assert_eq!(sweep(&case, partial, &[]).await.ran.code, Some(4));
    assert!(all_free(&case).await);
    fail_commands(&case.client, "alwaysOn", doc! { "failCommands": ["delete"], "errorCode": 13 }).await;
    assert_eq!(sweep(&case, RULE, &[]).await.ran.code, Some(3));
    assert!(all_free(&case).await);
    heal(&case.client).await;
    pause_deletes(&case.client).await;
    let child = start(locking(&case, RULE, &["--max-duration", "1s"]));
    until_running(&case.client, "delete").await;
    assert!(!all_free(&case).await);
    signal(&child, "INT");
    resume_deletes(&case.client).await;
    assert_eq!(end(child).await.code, Some(130));
    assert!(all_free(&case).await);
    assert_eq!(sweep(&case, RULE, &[]).await.ran.code, Some(0));
    // The documents remain, one for each namespace.
    let lease = lease(&case, "t.c").await;
    let keys: BTreeSet<&str> = lease.keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["_id", "runId", "host", "pid", "since", "heartbeat", "expiresAt"]));
    assert_eq!(locks(&case).count_documents(doc! {}).await.unwrap(), 1);
}

async fn the_lease_of_a_run_that_was_killed_is_taken_over_once_it_has_expired(server: &Server) {
    let case = filled(server).await;
    let first = holder(&case).await;
    signal(&first, "KILL");
    let id = first.id();
    end(first).await;
    let second = sweep(&case, RULE, &[]).await;
    assert_eq!(second.ran.code, Some(6), "{second:?}");
    assert!(second.rule(0, "error").as_str().unwrap().contains(&format!("process {id}")), "{second:?}");
    expire(&case).await;
    let third = sweep(&case, RULE, &[]).await;
    assert_eq!(third.ran.code, Some(0), "{third:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
    assert!(all_free(&case).await);
}

async fn whose_clock_is_wrong_neither_takes_a_lease_too_early_nor_keeps_it_too_long(server: &Server) {
    let case = filled(server).await;
    let shim = Shim::clock(&case);
    let shifted = |args: &[&str], seconds| {
        let mut command = locking(&case, RULE, args);
        shim.shift(&mut command, seconds);
        command
    };
    for seconds in ["200", "-200"] {
        let first = start(shifted(&["--max-deletes", "1000", "--rate", "1"], seconds));
        let begun = case.ids("c").await.len();
        until_deleted_from(&case, "c", begun).await;
        let namespace = format!("{}.c", case.db.name());
        let left = lease(&case, &namespace).await.get_datetime("expiresAt").unwrap().timestamp_millis()
            - DateTime::now().timestamp_millis();
        assert!((0..=60_000).contains(&left), "{left}");
        for seconds in ["200", "0", "-200"] {
            let second = report(run(shifted(&[], seconds)).await);
            assert_eq!(second.ran.code, Some(6), "{second:?}");
        }
        signal(&first, "TERM");
        assert_eq!(end(first).await.code, Some(143));
        assert!(all_free(&case).await);
    }
}

async fn who_waits_takes_the_lease_when_the_other_has_ended_and_a_signal_ends_the_wait(server: &Server) {
    let case = filled(server).await;
    let first = holder(&case).await;
    let late = sweep(&case, RULE, &["--lock-wait", "1s"]).await;
    assert_eq!(late.ran.code, Some(6), "{late:?}");
    assert!(late.ran.stderr.contains("info: waiting for at most"), "{late:?}");
    let waits = || {
        let mut child = start(locking(&case, RULE, &["--lock-wait", "1h"]));
        let stderr = child.stderr.take().unwrap();
        let line = std::io::BufRead::lines(std::io::BufReader::new(stderr)).next().unwrap().unwrap();
        assert!(line.contains("waiting for at most"), "{line}");
        child
    };
    let stopped = waits();
    signal(&stopped, "TERM");
    let stopped = report(end(stopped).await);
    assert_eq!((stopped.ran.code, stopped.rule(0, "reason")), (Some(143), &"interrupted".into()), "{stopped:?}");
    let second = waits();
    signal(&first, "TERM");
    assert_eq!(end(first).await.code, Some(143));
    let second = report(end(second).await);
    assert_eq!(second.ran.code, Some(0), "{second:?}");
    assert!(second.rule(0, "deletedCount").as_u64().unwrap() > 50, "{second:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
    assert!(all_free(&case).await);
}

/// Asserts that the run reports the loss of its lease.
fn assert_lost(ran: Ran, gone: usize, why: &str) {
    let lost = report(ran);
    assert_eq!(lost.ran.code, Some(3), "{lost:?}");
    assert_eq!(lost.rule(0, "status"), "failed", "{lost:?}");
    assert_eq!(lost.rule(0, "reason"), "lockLost", "{lost:?}");
    let deleted = lost.rule(0, "deletedCount").as_u64().unwrap();
    // A reply that was outstanding when the lease ended is lost.
    assert!(deleted == gone as u64 || deleted < gone as u64 && lost.rule(0, "uncertain") == true, "{gone} gone: {lost:?}");
    let error = lost.rule(0, "error").as_str().unwrap();
    assert!(error.contains(why) && error.contains("deleted before"), "{error}");
}

#[tokio::test]
async fn a_run_that_slept_through_its_lease_deletes_nothing_after_another_has_taken_over() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    let first = short_holder(&case).await;
    signal(&first, "STOP");
    // All requests sent before are finished; meanwhile the rest of the lease passes on the clock of the stopped run.
    let stopped_at = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let gone = 103 - case.ids("c").await.len();
    expire(&case).await;
    let second = sweep(&case, RULE, &["--max-deletes", "10"]).await;
    assert_eq!((second.ran.code, second.rule(0, "deletedCount")), (Some(4), &10.into()), "{second:?}");
    let left = case.ids("c").await;
    assert_eq!(left.len(), 103 - gone - 10);
    // Longer than the run may rely on its lease.
    tokio::time::sleep(Duration::from_secs(11).saturating_sub(stopped_at.elapsed())).await;
    // The heartbeat is too slow to reveal the loss: the run has to notice by itself.
    slow_down(&case.client, "update", 5000).await;
    signal(&first, "CONT");
    assert_lost(end(first).await, gone, "could not be renewed within 10 s");
    assert_eq!(case.ids("c").await, left);
    assert!(all_free(&case).await);
}

async fn a_run_whose_lease_another_has_taken_learns_it_with_its_heartbeat(server: &Server) {
    let case = filled(server).await;
    let first = short_holder(&case).await;
    let namespace = format!("{}.c", case.db.name());
    let before = lease(&case, &namespace).await;
    // The lease was renewed in time, by the clock of the server.
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "the lease was not renewed within 60 s");
        let now = lease(&case, &namespace).await;
        if now.get("heartbeat") != before.get("heartbeat") {
            let millis = |key| now.get_datetime(key).unwrap().timestamp_millis();
            assert_eq!(millis("expiresAt") - millis("heartbeat"), 12_000);
            assert_eq!(now.get("since"), before.get("since"));
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let other = doc! { "$set": { "runId": "another", "host": "elsewhere" } };
    locks(&case).update_one(doc! { "_id": &namespace }, other).await.unwrap();
    let ran = end(first).await;
    let gone = 103 - case.ids("c").await.len();
    assert!(gone < 90, "{ran:?}");
    assert_lost(ran, gone, "another run has it");
    // The run must not release the lease of another.
    assert_eq!(lease(&case, &namespace).await.get_str("runId").unwrap(), "another");
}

#[tokio::test]
async fn a_run_that_cannot_renew_its_lease_stops_before_it_is_over() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..200, days(-3))).await;
    let child = short_holder(&case).await;
    fail_commands(&case.client, "alwaysOn", doc! { "failCommands": ["update"], "errorCode": 50 }).await;
    let ran = end(child).await;
    // No other run has taken the lease: it has not expired when this run stops.
    assert!(lease(&case, "t.c").await.get_datetime("expiresAt").unwrap() > &DateTime::now());
    let gone = 200 - case.ids("c").await.len();
    assert!(gone < 100, "{ran:?}");
    assert!(ran.stderr.contains("warning: renewing the leases: "), "{ran:?}");
    assert_lost(ran, gone, "could not be renewed within 10 s");
}

async fn the_collection_of_the_leases_is_never_swept(server: &Server) {
    let case = server.case().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let old = doc! { "_id": "x.y", "runId": null, "heartbeat": days(-9), "expiresAt": days(-9), "at": days(-9) };
    let records = dated(0..3, days(-3)).map(|record| ("history", record)).chain([("locks", old)]);
    for (name, record) in records {
        // A collection that a run makes itself begins with an upsert as well.
        let id = doc! { "_id": record["_id"].clone() };
        case.collection(name).replace_one(id, record).upsert(true).await.unwrap();
    }
    let rules = "  - {namespace: 'DB.*', field: at, expireAfter: 1d}\nhistory: {collection: DB.history}\n";
    let swept = sweep(&case, rules, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    assert!(case.ids("locks").await.contains("\"x.y\""));
    // The run is recorded in `history` in addition to the old documents, and nothing else changes.
    let recorded = id_set([swept.json["runId"].as_str().unwrap()]);
    assert_eq!(case.ids("history").await, id_set(0..3).into_iter().chain(recorded).collect());
    for (name, key) in [("locks", ""), ("history", "history: {collection: DB.history}\n")] {
        let rules = format!("  - {{namespace: DB.{name}, field: at, expireAfter: 1d}}\n{key}");
        let ran = run(locking(&case, &rules, &[])).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("keep their own records"), "{ran:?}");
    }
}

/// Returns a server with users, a filled collection, and a client with all privileges.
async fn with_users(name: &str) -> (Kept<Secured>, Client, String) {
    let server = secured();
    let root = server.root().await;
    root.database(name).collection("c").insert_many(dated(0..3, days(-3))).await.unwrap();
    let head = format!("  - {{namespace: {name}.c, field: at, expireAfter: 1d}}\nlock: {{collection: ops.{name}}}\n");
    (server, root, head)
}

async fn user(server: &Secured, name: &str, database: &str, on_leases: &[&str]) -> String {
    let resource = |db: &str, collection: &str| doc! { "db": db, "collection": collection };
    let privileges = vec![
        doc! { "resource": resource(database, ""), "actions": ["find", "remove", "listIndexes", "listCollections"] },
        doc! { "resource": resource("ops", database), "actions": on_leases.to_vec() },
    ];
    server.admin(doc! { "createRole": name, "privileges": privileges, "roles": [] }).await;
    server.admin(doc! { "createUser": name, "pwd": "password", "roles": [name] }).await;
    server.uri(name, "password")
}

#[tokio::test]
async fn a_dry_run_takes_no_lease_and_waits_for_none() {
    let (server, root, rules) = with_users("drylease").await;
    server.admin(doc! { "createUser": "dryreader", "pwd": "password", "roles": [{ "role": "read", "db": "drylease" }] }).await;
    let reader = server.uri("dryreader", "password");
    let site = Site::new();
    let dry = site.report(&reader, &rules, &["--dry-run"]).await;
    assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &3.into()), "{dry:?}");
    let names = root.database("ops").list_collection_names().await.unwrap();
    assert!(!names.contains(&"drylease".to_owned()), "{names:?}");
    let held = doc! { "_id": "drylease.c", "runId": "another", "expiresAt": days(1) };
    root.database("ops").collection("drylease").insert_one(held).await.unwrap();
    let dry = site.report(&reader, &rules, &["--dry-run"]).await;
    assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &3.into()), "{dry:?}");
    let swept = site.report(&server.uri("root", "root-password"), &rules, &[]).await;
    assert_eq!(swept.ran.code, Some(6), "{swept:?}");
    assert!(swept.rule(0, "error").as_str().unwrap().contains("an unidentified run"), "{swept:?}");
}

#[tokio::test]
async fn three_rights_are_enough_for_leases_and_none_of_them_can_be_spared() {
    let (server, root, rules) = with_users("leaserights").await;
    let site = Site::new();
    let all = ["find", "insert", "update"];
    for left_out in all {
        let granted: Vec<&str> = all.into_iter().filter(|action| *action != left_out).collect();
        let uri = user(&server, &format!("lease{left_out}"), "leaserights", &granted).await;
        let checked = site.run(&uri, &rules, &["check", "--connect"]).await;
        assert_eq!(checked.code, Some(3), "{checked:?}");
        let plain = checked.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(&format!("the user needs `{left_out}` on `ops.leaserights`")), "{checked:?}");
        if left_out == "find" {
            // `find` is only needed to name the holder of a lease, and here the lease is free.
            continue;
        }
        let swept = site.run(&uri, &rules, &["sweep"]).await;
        assert_eq!((swept.code, swept.stdout.as_str()), (Some(1), ""), "{left_out}: {swept:?}");
        for part in ["taking a lease in `ops.leaserights`", "nothing was deleted", "the user needs `find`, `insert`, `update`"] {
            assert!(swept.stderr.contains(part), "{part}: {swept:?}");
        }
    }
    assert_eq!(root.database("leaserights").collection::<Document>("c").count_documents(doc! {}).await.unwrap(), 3);
    let uri = user(&server, "leaseall", "leaserights", &all).await;
    let checked = site.run(&uri, &rules, &["check", "--connect"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let swept = site.report(&uri, &rules, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &3.into()), "{swept:?}");
}

#[tokio::test]
async fn a_lease_that_a_server_cannot_confirm_is_none() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let concern = doc! { "code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out" };
    fail_commands(&case.client, "alwaysOn", doc! { "failCommands": ["update"], "writeConcernError": concern }).await;
    let ran = run(locking(&case, RULE, &[])).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("nothing was deleted"), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(0..3));
}

on_servers!(
    policies_that_differ_share_the_lease_of_a_namespace_and_other_namespaces_are_swept,
    the_lease_of_a_run_that_was_killed_is_taken_over_once_it_has_expired,
    whose_clock_is_wrong_neither_takes_a_lease_too_early_nor_keeps_it_too_long,
    who_waits_takes_the_lease_when_the_other_has_ended_and_a_signal_ends_the_wait,
    a_run_whose_lease_another_has_taken_learns_it_with_its_heartbeat,
    the_collection_of_the_leases_is_never_swept
);
