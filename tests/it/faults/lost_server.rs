//! Servers that are down, go down, or answer with errors: exact survivors, correct counts, messages without debug text.

use std::process::{Command, Stdio};

use crate::support::faults::{
    alone, dated, days, end, fail_commands, heal, pause_deletes, resume_deletes, slow_down, start, until_running,
};
use crate::support::ports::ClosedPort;
use crate::support::sweeper::{Case, Ran, Report, id_set, ids, run};
use mongodb::Client;
use mongodb::bson::{Document, doc};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 10}\n";

/// A server announces a real fail-over; after a simulated one the driver waits for the next heartbeat.
const HEARTBEAT: &str = "&heartbeatFrequencyMS=500";

/// Asserts that no debug text of the driver is printed, and that every line begins with a level or `hint:`.
fn assert_readable(ran: &Ran) {
    for part in ["Error {", "Kind:", "labels", "ErrorKind", "Some(", "panicked"] {
        assert!(!ran.stderr.contains(part) && !ran.stdout.contains(part), "{part}: {ran:?}");
    }
    let starts = ["error: ", "warning: ", "hint: ", "info: "];
    assert!(ran.stderr.lines().all(|line| starts.iter().any(|start| line.starts_with(start))), "{ran:?}");
}

fn read(ran: Ran) -> Report {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

#[tokio::test]
async fn a_server_that_is_down_is_an_error_in_one_line_and_a_hint() {
    let mut case = Case::new().await;
    let closed = ClosedPort::new();
    let port = closed.port;
    case.uri = format!("mongodb://127.0.0.1:{port}/?serverSelectionTimeoutMS=500");
    for args in [&["sweep"][..], &["sweep", "-q"], &["sweep", "--dry-run"], &["check", "--connect"]] {
        let ran = case.run(RULE, args).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.stdout, "");
        let hint = if args.contains(&"-q") { "; hint: " } else { "\nhint: " };
        assert_eq!(ran.stderr.lines().count(), hint.lines().count(), "{ran:?}");
        assert!(ran.stderr.contains(hint), "{ran:?}");
        assert!(ran.stderr.starts_with(&format!("error: connecting to `mongodb://127.0.0.1:{port}`: ")), "{ran:?}");
        assert!(ran.stderr.contains("connection refused") && ran.stderr.contains("nothing was deleted"), "{ran:?}");
        assert_readable(&ran);
    }
}

#[tokio::test]
async fn a_server_that_dies_half_way_leaves_a_report_that_claims_no_more_than_is_gone() {
    let (mut mongod, mut case) = alone().await;
    // Journaled, so that acknowledged deletes survive the crash.
    case.uri += "&serverSelectionTimeoutMS=500&journal=true";
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..105, days(3)))).await;
    case.fill("d", dated(0..100, days(-3))).await;
    slow_down(&case.client, "delete", 300).await;
    let rules = format!("{RULE}{}", RULE.replace("DB.c", "DB.d"));
    let child = start(case.command(&rules, &["sweep", "--format", "json"]));
    while case.collection("c").count_documents(doc! {}).await.unwrap() == 105 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    pause_deletes(&case.client).await;
    until_running(&case.client, "delete").await;
    mongod.kill();
    let report = read(end(child).await);
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    assert_eq!(report.rule(0, "status"), "failed");
    assert_eq!(report.rule(1, "status"), "failed");
    let uncertain = [0, 1].iter().find(|rule| report.rule(**rule, "uncertain") == true);
    let uncertain = uncertain.unwrap_or_else(|| panic!("a delete was under way: {report:?}"));
    assert_readable(&report.ran);
    let error = report.rule(*uncertain, "error").as_str().unwrap();
    assert!(error.contains("at least") && error.contains("deleted before"), "{error}");

    mongod.restart();
    let client = Client::with_uri_str(mongod.uri()).await.unwrap();
    let left = ids(&client.database("t").collection::<Document>("c")).await;
    let gone = 105 - left.len() as u64;
    let claimed = report.rule(0, "deletedCount").as_u64().unwrap();
    assert!((1..=gone).contains(&claimed), "{claimed} of {gone}");
    assert!(left.is_superset(&id_set(100..105)), "{left:?}");
    let rerun = case.report(&rules, &[]).await;
    assert_eq!(rerun.ran.code, Some(0), "{rerun:?}");
    assert_eq!(ids(&client.database("t").collection::<Document>("c")).await, id_set(100..105));
}

/// Sweeps while a fail point, set in the middle of the run, causes trouble.
async fn swept_with(data: Document, times: i32) -> Report {
    let (_mongod, mut case) = alone().await;
    case.uri += HEARTBEAT;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..105, days(3)))).await;
    pause_deletes(&case.client).await;
    let child = start(case.command(RULE, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    fail_commands(&case.client, doc! { "times": times }, data).await;
    resume_deletes(&case.client).await;
    let report = read(end(child).await);
    heal(&case.client).await;
    assert_readable(&report.ran);
    let gone = 105 - case.ids("c").await.len();
    assert_eq!(report.rule(0, "deletedCount"), gone, "{report:?}");
    assert!(case.ids("c").await.is_superset(&id_set(100..105)));
    report
}

#[tokio::test]
async fn trouble_that_passes_leaves_exact_survivors() {
    for data in [
        doc! { "failCommands": ["delete"], "errorCode": 189 },
        doc! { "failCommands": ["delete"], "errorCode": 11602 },
        doc! { "failCommands": ["delete"], "closeConnection": true },
        doc! { "failCommands": ["getMore"], "errorCode": 189 },
        doc! { "failCommands": ["getMore"], "errorCode": 43 },
        doc! { "failCommands": ["getMore"], "closeConnection": true },
    ] {
        let shown = data.to_string();
        let report = swept_with(data, 2).await;
        assert_eq!(report.ran.code, Some(0), "{shown}: {report:?}");
        assert_eq!(report.rule(0, "deletedCount"), 100, "{shown}: {report:?}");
        assert_eq!(report.rule(0, "uncertain"), shown.contains("\"delete\""), "{shown}: {report:?}");
        let said = report.ran.stderr.contains("trying again") || report.ran.stderr.contains("starting the pass again");
        assert!(said, "{shown}: {report:?}");
    }
}

#[tokio::test]
async fn deletes_that_were_carried_out_are_counted_whatever_their_write_concern_came_to() {
    let concern = |code: i32| doc! { "failCommands": ["delete"], "writeConcernError": { "code": code, "errmsg": "no majority" } };
    let report = swept_with(concern(91), 2).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), 100, "{report:?}");
    let report = swept_with(concern(64), 1).await;
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    let error = report.rule(0, "error").as_str().unwrap();
    assert!(error.contains("write concern") && error.contains("no majority"), "{error}");
}

#[tokio::test]
async fn trouble_that_stays_fails_its_rule_and_the_others_are_swept() {
    for (data, part) in [
        (doc! { "failCommands": ["delete"], "errorCode": 189 }, "189"),
        (doc! { "failCommands": ["delete"], "errorCode": 13 }, "needs `remove`"),
        (doc! { "failCommands": ["find"], "errorCode": 13 }, "needs `find`"),
        (doc! { "failCommands": ["listIndexes"], "errorCode": 13 }, "nothing was deleted there"),
    ] {
        let (_mongod, mut case) = alone().await;
        case.uri += HEARTBEAT;
        for name in ["c", "d"] {
            case.fill(name, dated(0..5, days(-3))).await;
        }
        let mut data = data;
        data.insert("namespace", "t.c");
        fail_commands(&case.client, "alwaysOn", data).await;
        let rules = format!("{RULE}  - {{namespace: DB.d, field: at, expireAfter: 1d}}\n");
        let report = case.report(&rules, &[]).await;
        assert_eq!(report.ran.code, Some(3), "{report:?}");
        assert_eq!(report.rule(0, "status"), "failed", "{report:?}");
        assert!(report.rule(0, "error").as_str().unwrap().contains(part), "{report:?}");
        assert_readable(&report.ran);
        assert_eq!(case.ids("c").await, id_set(0..5));
        assert_eq!(case.ids("d").await, id_set::<i32>([]));
    }
}

#[tokio::test]
async fn a_report_that_cannot_be_written_says_what_was_deleted() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let ran = case.run(RULE, &["sweep", "-o", "/dev/full", "--format", "json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("/dev/full") && ran.stderr.contains("3 documents deleted"), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    let instead: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(instead["totals"]["deletedCount"], 3);

    case.fill("c", dated(0..2, days(-3))).await;
    let mut command = case.command(RULE, &["sweep"]);
    command.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let ran = run_into(command).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("2 documents deleted"), "{ran:?}");
}

/// Like [`run`], but keeps the standard output that was set before.
async fn run_into(mut command: Command) -> Ran {
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    end(child).await
}

#[tokio::test]
async fn a_report_that_could_never_be_written_keeps_the_run_from_deleting() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let file = case.file("file", "x");
    for place in [case.dir.path().join("absent/report.json"), file.join("report.json"), case.dir.path().to_owned()] {
        let mut command = case.command(RULE, &["sweep", "--format", "json"]);
        command.arg("-o").arg(&place);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(&*place.to_string_lossy()) && ran.stderr.contains("nothing was deleted"), "{ran:?}");
        assert_eq!(case.ids("c").await, id_set(0..3));
    }
}
