//! Every transient error, on every command of a sweep: once, permanently, and in the middle of a batch.

use std::time::{Duration, Instant};

use crate::support::faults::{
    Stopped, alone, dated, days, end, fail_commands, fill_many, heal, pause_deletes, resume_deletes, slow_down, start,
    until_running,
};
use crate::support::mongod::Mongod;
use crate::support::pool::Alone;
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::bson::{Bson, Document, doc};

/// The retryable codes of `src/shell/server/wire/codes.rs`.
const RETRYABLE: [i32; 13] = [6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// Codes with which a server refuses a command before it does anything.
const REFUSES: [i32; 2] = [10107, 13435];

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 10, concurrency: 1, maxDeletePercent: 99}\n";

/// The driver recovers from a simulated fail-over at the next heartbeat.
const HEARTBEAT: &str = "&heartbeatFrequencyMS=500&serverSelectionTimeoutMS=5000";

fn faults() -> Vec<(Document, bool)> {
    let coded = RETRYABLE.iter().map(|code| (doc! { "errorCode": *code }, REFUSES.contains(code)));
    coded.chain([(doc! { "closeConnection": true }, false)]).collect()
}

/// Runs `each` for every fault, on several servers in parallel: most of the time is spent waiting.
async fn with_each_fault(each: impl AsyncFn(&Mongod, &Case, Document, bool) + Copy) {
    let faults = faults();
    let servers = faults.chunks(3).map(async |chunk| {
        let (mongod, mut case) = alone().await;
        case.uri += HEARTBEAT;
        for (fault, refuses) in chunk {
            each(&mongod, &case, fault.clone(), *refuses).await;
        }
    });
    futures_util::future::join_all(servers).await;
}

/// Recreates the collection. Stretches of an index are found by reading plans and keys, `_id`s by a cursor.
async fn refill(case: &Case, indexed: bool) {
    case.collection("c").drop().await.unwrap();
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..105, days(3)))).await;
    if indexed {
        case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    }
}

/// Sweeps 100 documents of 105 while `command` meets a fault, and checks the counts. Returns the report and the number of faults
/// met.
async fn swept(case: &Case, command: &str, fault: &Document, mode: impl Into<Bson>) -> (Report, i64) {
    refill(case, command == "explain").await;
    let mut data = doc! { "failCommands": [command], "namespace": format!("{}.c", case.db.name()) };
    data.extend(fault.clone());
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    let admin = case.client.database("admin");
    // Faults met since the server started.
    let met = async || {
        let reply = admin.run_command(off.clone()).await.unwrap();
        reply.get_i64("count").or_else(|_| reply.get_i32("count").map(i64::from)).unwrap()
    };
    let before = met().await;
    fail_commands(&case.client, mode, data).await;
    let report = case.report(RULE, &[]).await;
    let times = met().await - before;
    let gone = 105 - case.ids("c").await.len();
    assert_eq!(report.rule(0, "deletedCount"), gone, "{command} {fault}: {report:?}");
    assert!(case.ids("c").await.is_superset(&id_set(100..105)), "{command} {fault}: {report:?}");
    (report, times)
}

#[tokio::test]
async fn an_error_that_passes_costs_no_document_on_any_command() {
    with_each_fault(async |_, case, fault, refuses| {
        for command in ["delete", "find", "getMore", "aggregate", "explain"] {
            let (report, times) = swept(case, command, &fault, doc! { "times": 1 }).await;
            assert_eq!(times, 1, "{command} {fault}: {report:?}");
            assert_eq!(report.ran.code, Some(0), "{command} {fault}: {report:?}");
            assert_eq!(report.rule(0, "deletedCount"), 100, "{command} {fault}: {report:?}");
            assert_eq!(report.rule(0, "uncertain"), command == "delete" && !refuses, "{command} {fault}: {report:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_delete_that_the_storage_engine_or_a_time_limit_ends_is_sent_again() {
    let (_mongod, mut case) = alone().await;
    case.uri += HEARTBEAT;
    // LockTimeout, MaxTimeMSExpired, WriteConflict, TemporarilyUnavailable.
    for code in [24, 50, 112, 365] {
        let (report, times) = swept(&case, "delete", &doc! { "errorCode": code }, doc! { "times": 2 }).await;
        assert_eq!((times, report.ran.code), (2, Some(0)), "{code}: {report:?}");
        let found = (report.rule(0, "deletedCount"), report.rule(0, "uncertain"));
        assert_eq!(found, (&100.into(), &true.into()), "{code}: {report:?}");
    }
}

#[tokio::test]
async fn an_error_that_stays_is_given_up_after_so_many_tries() {
    with_each_fault(async |_, case, fault, refuses| {
        let begun = Instant::now();
        for command in ["delete", "find", "aggregate"] {
            let (report, times) = swept(case, command, &fault, "alwaysOn").await;
            assert_eq!((report.ran.code, report.rule(0, "status")), (Some(3), &"failed".into()), "{command} {fault}: {report:?}");
            assert_eq!(report.rule(0, "uncertain"), command == "delete" && !refuses, "{command} {fault}: {report:?}");
            let expected = match command {
                "delete" => 4..=4,
                // The driver retries once by itself.
                _ => 2..=8,
            };
            assert!(expected.contains(&times), "{times} times {command} {fault}: {report:?}");
        }
        // Each pass finds some documents before it breaks.
        let (report, _) = swept(case, "getMore", &fault, "alwaysOn").await;
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &100.into()), "{fault}: {report:?}");
        assert!(begun.elapsed() < Duration::from_secs(300), "{fault}");
    })
    .await;
}

#[tokio::test]
async fn write_concern_errors_that_pass_are_counted_once_and_for_sure() {
    let (_mongod, mut case) = alone().await;
    case.uri += HEARTBEAT;
    for code in RETRYABLE {
        let fault = doc! { "writeConcernError": { "code": code, "errmsg": "no majority" } };
        let (report, _) = swept(&case, "delete", &fault, doc! { "times": 1 }).await;
        assert_eq!(report.ran.code, Some(0), "{code}: {report:?}");
        assert_eq!(
            (report.rule(0, "deletedCount"), report.rule(0, "uncertain")),
            (&100.into(), &false.into()),
            "{code}: {report:?}"
        );
    }
}

/// Sweeps one large batch and calls `trouble` while the server is in the middle of it, with only some of the documents deleted.
async fn in_the_middle(trouble: impl AsyncFnOnce(&Case, Vec<i32>)) -> (Alone<Mongod>, Case, Report) {
    let (mongod, mut case) = alone().await;
    case.uri += HEARTBEAT;
    fill_many(&case, "c", 2000, days(-3)).await;
    case.fill("c", dated(2000..2005, days(3))).await;
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    let admin = case.client.database("admin");
    admin.run_command(doc! { "setParameter": 1, "internalQueryExecYieldIterations": 20 }).await.unwrap();
    let slowly = doc! { "configureFailPoint": "setYieldAllLocksWait", "mode": "alwaysOn", "data": { "waitForMillis": 50, "namespace": format!("{}.c", case.db.name()) } };
    admin.run_command(slowly).await.unwrap();
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, concurrency: 1}\n";
    let child = start(case.command(rule, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    while case.collection("c").estimated_document_count().await.unwrap() > 1900 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let current = doc! { "currentOp": 1, "op": "remove", "appName": "sweeper" };
    let current = admin.run_command(current).await.unwrap();
    let ids = current.get_array("inprog").unwrap().iter().map(|op| op.as_document().unwrap().get_i32("opid").unwrap());
    trouble(&case, ids.collect()).await;
    let off = doc! { "configureFailPoint": "setYieldAllLocksWait", "mode": "off" };
    admin.run_command(off).await.unwrap();
    let ran = end(child).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    (mongod, case, Report { json, ran })
}

#[tokio::test]
async fn a_delete_that_is_killed_half_way_is_said_to_have_deleted_an_unknown_number() {
    let (_mongod, case, report) = in_the_middle(async |case, ids| {
        assert!(!ids.is_empty(), "a delete is under way");
        for id in ids {
            case.client.database("admin").run_command(doc! { "killOp": 1, "op": id }).await.unwrap();
        }
    })
    .await;
    // An operator who kills a delete does not want it sent again.
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    assert_eq!(report.rule(0, "uncertain"), true, "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap().contains("at least"), "{report:?}");
    let left = case.ids("c").await;
    let gone = 2005 - left.len() as u64;
    assert!(gone > 0 && report.rule(0, "deletedCount").as_u64().unwrap() <= gone, "{gone} gone: {report:?}");
    assert!(left.is_superset(&id_set(2000..2005)));
}

#[tokio::test]
async fn an_expression_that_fails_half_way_leaves_the_count_a_lower_bound() {
    let (_mongod, mut case) = alone().await;
    case.uri += HEARTBEAT;
    // The expression fails on one document in the middle, and the reply does not mention the documents deleted before.
    let documents = (0..100).map(|id| doc! { "_id": id, "at": days(-3), "x": if id == 50 { 0 } else { 1 } });
    case.fill("c", documents).await;
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    let filter = "filter: {$expr: {$gt: [{$divide: [1, $x]}, 0]}}";
    let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {filter}}}\n");
    let report = case.report(&rule, &[]).await;
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    let gone = 100 - case.ids("c").await.len() as u64;
    let deleted = report.rule(0, "deletedCount").as_u64().unwrap();
    assert!(gone > 0 && deleted <= gone, "{gone} gone: {report:?}");
    assert_eq!(report.rule(0, "uncertain"), true, "{report:?}");
}

#[tokio::test]
async fn a_server_that_answers_its_heartbeat_and_nothing_else_is_given_up() {
    let (_mongod, mut case) = alone().await;
    case.uri += "&socketTimeoutMS=1000";
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..105, days(3)))).await;
    let begun = Instant::now();
    pause_deletes(&case.client).await;
    let report = case.report(RULE, &[]).await;
    resume_deletes(&case.client).await;
    assert!(begun.elapsed() < Duration::from_secs(60), "{report:?}");
    assert_eq!((report.ran.code, report.rule(0, "uncertain")), (Some(3), &true.into()), "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap().contains("no answer within 1 s"), "{report:?}");
    assert_eq!(report.ran.stderr.matches("no answer within 1 s; trying again in").count(), 3, "{report:?}");

    // If the server recovers, the sweep continues.
    case.fill("d", dated(0..100, days(-3)).chain(dated(100..105, days(3)))).await;
    pause_deletes(&case.client).await;
    let child = start(case.command(&RULE.replace("DB.c", "DB.d"), &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("d").await, id_set(100..105));
}

#[tokio::test]
async fn a_read_that_takes_long_is_said_to_be_waited_for() {
    let (_mongod, mut case) = alone().await;
    case.uri += "&socketTimeoutMS=1000";
    refill(&case, false).await;
    slow_down(&case.client, "getMore", 2500).await;
    let report = case.report(RULE, &["--max-deletes", "15"]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(4), &15.into()), "{report:?}");
    assert!(report.ran.stderr.contains("find t.c: no answer for 2 s; still waiting"), "{report:?}");
}

#[tokio::test]
async fn a_server_that_says_nothing_at_all_is_given_up() {
    let (mongod, mut case) = alone().await;
    case.uri += "&heartbeatFrequencyMS=500&connectTimeoutMS=1000&serverSelectionTimeoutMS=1000";
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..105, days(3)))).await;
    pause_deletes(&case.client).await;
    let child = start(case.command(RULE, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    let stopped = Stopped::new(mongod.child.id());
    let begun = Instant::now();
    let ran = end(child).await;
    assert!(begun.elapsed() < Duration::from_secs(60), "{ran:?}");
    drop(stopped);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("\"uncertain\": true") && ran.stderr.contains("trying again in"), "{ran:?}");
    heal(&case.client).await;
    resume_deletes(&case.client).await;
    let again = case.report(RULE, &[]).await;
    assert_eq!(again.ran.code, Some(0), "{again:?}");
    assert_eq!(case.ids("c").await, id_set(100..105));
}
