//! `--every`: repeated runs in one process. Each run is independent, none overlaps another, and a failed one does not end the
//! process.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Child;
use std::time::Duration;

use crate::support::faults::{
    alone, dated, days, end, fail_commands, heal, pause_deletes, resume_deletes, signal, start, until_running,
};
use crate::support::said::Said;
use crate::support::sweeper::{Case, id_set, run, sweeper};
use crate::support::terminal::Terminal;
use serde_json::Value;

use mongodb::bson::doc;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

/// Maximum number of waits, one minute in total.
const MAX_WAITS: usize = 3000;

async fn wait() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Waits until a collection is empty; fails if the process ends.
async fn until_swept(case: &Case, name: &str, child: &mut Child) {
    for _ in 0..MAX_WAITS {
        if case.ids(name).await.is_empty() {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "the process ended");
        wait().await;
    }
    panic!("`{name}` is not swept in time");
}

/// Splits stdout into the reports that were written one after the other.
fn reports(stdout: &str) -> Vec<Value> {
    let reports: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(stdout).into_iter().collect();
    reports.unwrap_or_else(|cause| panic!("{cause}: {stdout}"))
}

#[tokio::test]
async fn it_runs_at_once_and_again_and_again_until_a_signal_ends_it() {
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        let case = Case::new().await;
        case.fill("c", dated(0..5, days(-3))).await;
        let mut child = start(case.command(RULE, &["sweep", "--format", "json", "--every", "1s"]));
        until_swept(&case, "c", &mut child).await;
        case.fill("c", dated(5..8, days(-3))).await;
        until_swept(&case, "c", &mut child).await;
        signal(&child, name);
        let ran = end(child).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let reports = reports(&ran.stdout);
        assert!(reports.len() >= 2, "{ran:?}");
        let of = |key: &str| reports.iter().map(|report| report[key].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(BTreeSet::from_iter(of("runId")).len(), reports.len(), "{ran:?}");
        assert!(of("asOf").is_sorted() && BTreeSet::from_iter(of("asOf")).len() == reports.len(), "{ran:?}");
        let deleted: u64 = reports.iter().map(|report| report["totals"]["deletedCount"].as_u64().unwrap()).sum();
        assert_eq!((deleted, &reports[0]["totals"]["deletedCount"]), (8, &Value::from(5)), "{ran:?}");
    }
}

#[tokio::test]
async fn a_signal_ends_a_wait_of_days_at_once_and_leaves_nothing_behind_that_stops_others() {
    let case = Case::new().await;
    case.fill("c", dated(0..5, days(-3))).await;
    let lock = case.dir.path().join("lock");
    let rules = format!("{RULE}lock: {{collection: DB.locks}}\n");
    let mut command = case.command(&rules, &["sweep", "-v", "--every", "30d"]);
    command.arg("--lock").arg(&lock);
    let mut child = start(command);
    let said = Said::by(&mut child);
    said.until("the next run begins at").await;
    // Both locks are free between two runs.
    case.fill("c", dated(5..8, days(-3))).await;
    let mut between = case.command(&rules, &["sweep"]);
    between.arg("--lock").arg(&lock);
    let between = run(between).await;
    assert_eq!(between.code, Some(0), "{between:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    signal(&child, "TERM");
    said.until("info: stopped between two runs; nothing was in flight").await;
    assert_eq!(end(child).await.code, Some(143));
    assert!(said.lines().iter().all(|line| !line.contains("batch in flight")), "{:?}", said.lines());
}

#[tokio::test]
async fn a_signal_in_a_run_lets_the_batch_in_flight_end() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3))).await;
    pause_deletes(&case.client).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1}\n";
    let mut child = start(case.command(rule, &["sweep", "--format", "json", "--every", "1s"]));
    until_running(&case.client, "delete").await;
    let said = Said::by(&mut child);
    signal(&child, "TERM");
    said.until("stopping after the batch in flight").await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let reports = reports(&ran.stdout);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0]["rules"][0]["reason"], "interrupted");
    assert_eq!(case.ids("c").await, id_set(5..20));
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_not_overlapped_by_the_next() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3))).await;
    pause_deletes(&case.client).await;
    let mut child = start(case.command(RULE, &["sweep", "--format", "json", "--every", "1s"]));
    until_running(&case.client, "delete").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    resume_deletes(&case.client).await;
    until_swept(&case, "c", &mut child).await;
    case.fill("c", dated(20..22, days(-3))).await;
    until_swept(&case, "c", &mut child).await;
    signal(&child, "TERM");
    let ran = end(child).await;
    let reports = reports(&ran.stdout);
    assert!(reports[0]["durationMs"].as_u64().unwrap() >= 4000, "{ran:?}");
    let millis = |report: &Value| {
        let at = chrono::DateTime::parse_from_rfc3339(report["startedAt"].as_str().unwrap()).unwrap();
        u64::try_from(at.timestamp_millis()).unwrap()
    };
    for pair in reports.windows(2) {
        assert!(millis(&pair[1]) >= millis(&pair[0]) + pair[0]["durationMs"].as_u64().unwrap(), "{ran:?}");
        // Missed times are skipped: the next run starts at a multiple again, apart from the jitter.
        assert!(millis(&pair[1]) % 1000 < 500, "{ran:?}");
    }
}

#[tokio::test]
async fn a_failed_run_is_reported_and_the_next_one_comes() {
    let (mut mongod, mut case) = alone().await;
    case.uri = format!("{}&serverSelectionTimeoutMS=300", case.uri);
    case.fill("c", dated(0..5, days(-3))).await;
    // A rule fails.
    let data = doc! { "failCommands": ["delete"], "errorCode": 13 };
    fail_commands(&case.client, "alwaysOn", data).await;
    let output = case.dir.path().join("report.json");
    let mut command = case.command(RULE, &["sweep", "--every", "1s"]);
    command.arg("-o").arg(&output);
    let mut child = start(command);
    let said = Said::by(&mut child);
    said.until("error: failed: nothing was deleted").await;
    heal(&case.client).await;
    until_swept(&case, "c", &mut child).await;
    // The server is down.
    mongod.kill();
    said.until("error: connecting to ").await;
    mongod.restart();
    case.fill("c", dated(5..8, days(-3))).await;
    until_swept(&case, "c", &mut child).await;
    let run_id = || serde_json::from_str::<Value>(&std::fs::read_to_string(&output).unwrap()).unwrap()["runId"].clone();
    // Each report replaces the previous one.
    let first = run_id();
    for _ in 0..MAX_WAITS {
        if run_id() != first {
            break;
        }
        wait().await;
    }
    assert_ne!(run_id(), first);
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
}

#[tokio::test]
async fn a_hangup_reads_the_policy_anew_and_keeps_the_old_one_where_the_new_one_is_wrong() {
    let case = Case::new().await;
    let mut child = start(case.command(RULE, &["sweep", "--every", "1s", "--format", "json"]));
    let said = Said::by(&mut child);
    // The signal handler is installed before the first run.
    case.fill("c", dated(0..2, days(-3))).await;
    until_swept(&case, "c", &mut child).await;
    case.fill("d", dated(0..2, days(-3))).await;
    case.replace_policy("  - {namespace: DB.d, field: at}\n");
    signal(&child, "HUP");
    said.until("neither `expireAfterSeconds` nor `expireAfter`").await;
    said.until("the runs keep using the previous policy (sha256 ").await;
    case.fill("c", dated(2..4, days(-3))).await;
    until_swept(&case, "c", &mut child).await;
    assert_eq!(case.ids("d").await, id_set(0..2));
    case.replace_policy("  - {namespace: DB.d, field: at, expireAfter: 1d}\n");
    signal(&child, "HUP");
    said.until("read again").await;
    until_swept(&case, "d", &mut child).await;
    signal(&child, "TERM");
    let ran = end(child).await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    assert!(!ran.stderr.contains("nothing was contacted"), "{ran:?}");
    let reports = reports(&ran.stdout);
    let hashes: BTreeSet<String> = reports.iter().map(|report| report["policy"]["sha256"].to_string()).collect();
    assert_eq!(hashes.len(), 2, "{ran:?}");
}

/// The policy is a pipe, so that the process reads it until the test has written it.
#[tokio::test]
async fn a_signal_that_comes_before_the_policy_is_read_is_heard() {
    let case = Case::new().await;
    let pipe = case.dir.path().join("pipe");
    let reading = async || {
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let path = pipe.clone();
        // It opens once the process has opened it as well.
        let opened = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(path));
        (wrong(&case, &["--every", "30d", "-p", pipe.to_str().unwrap()]), opened)
    };
    let (command, opened) = reading().await;
    let mut child = start(command);
    let said = Said::by(&mut child);
    let mut written = opened.await.unwrap().unwrap();
    signal(&child, "HUP");
    let policy = std::fs::read(case.policy(RULE)).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    std::fs::write(&pipe, &policy).unwrap();
    written.write_all(&policy).unwrap();
    drop(written);
    said.until("read again").await;
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));

    std::fs::remove_file(&pipe).unwrap();
    let (command, opened) = reading().await;
    let child = start(command);
    let _open = opened.await.unwrap().unwrap();
    signal(&child, "TERM");
    let ran = end(child).await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    assert!(ran.stderr.contains("interrupted; nothing was contacted"), "{ran:?}");
}

/// systemd sends SIGHUP as soon as a service is ready, such as for `systemctl reload` right after `start`.
#[tokio::test]
async fn a_process_that_is_ready_is_not_ended_by_a_hangup() {
    let case = Case::new().await;
    let path = case.dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let mut command = case.command(RULE, &["sweep", "--every", "30d"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut child = start(command);
    let said = Said::by(&mut child);
    let told = tokio::task::spawn_blocking(move || {
        let mut told = [0; 100];
        let length = socket.recv(&mut told).unwrap();
        told[..length].to_vec()
    });
    assert_eq!(told.await.unwrap(), b"READY=1");
    signal(&child, "HUP");
    said.until("read again").await;
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
}

#[tokio::test]
async fn the_stop_file_skips_runs_and_does_not_end_the_stay() {
    let case = Case::new().await;
    case.fill("c", dated(0..2, days(-3))).await;
    let stop = case.file("stop", "");
    let mut command = case.command(RULE, &["sweep", "--every", "1s"]);
    command.arg("--stop-file").arg(&stop);
    let mut child = start(command);
    let said = Said::by(&mut child);
    said.until("no run begins until it is gone").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(case.ids("c").await, id_set(0..2));
    assert_eq!(said.lines().len(), 1, "the message is printed once: {:?}", said.lines());
    std::fs::remove_file(stop).unwrap();
    until_swept(&case, "c", &mut child).await;
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
}

/// Returns the usual command, with some options replaced.
fn wrong(case: &Case, args: &[&str]) -> std::process::Command {
    let mut command = sweeper(&[&["sweep"], args].concat());
    if !args.contains(&"--uri") {
        command.args(["--uri", &case.uri]);
    }
    if !args.contains(&"-p") {
        command.arg("--policy").arg(case.policy(RULE));
    }
    command
}

#[tokio::test]
async fn what_makes_no_sense_ends_before_the_first_run_or_with_it() {
    let case = Case::new().await;
    case.fill("c", dated(0..2, days(-3))).await;
    for (args, part) in [
        (&["--every", "1s", "--as-of", "2026-01-31T02:00:00Z"][..], "cannot be used with"),
        (&["--every", "0s"], "at least 1s"),
        (&["--every", "1s", "--only", "nothing"], "no rule or namespace matches"),
        (&["--every", "1s", "-p", "/absent.yaml"], "reading the policy"),
        (&["--every", "1s", "--uri", "http://x"], "connection string"),
    ] {
        let ran = run(wrong(&case, args)).await;
        assert_eq!(ran.code, Some(2), "{args:?} {ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
    let ran = Terminal::open(&case.command(RULE, &["sweep", "--every", "1s"])).end().await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stdout.contains("--yes"), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(0..2));
}

#[tokio::test]
async fn a_dry_run_may_stay_as_well() {
    let case = Case::new().await;
    case.fill("c", dated(0..2, days(-3))).await;
    let mut child = start(case.command(RULE, &["sweep", "--dry-run", "-v", "--every", "1s", "--format", "json"]));
    let said = Said::by(&mut child);
    said.until_times("the next run begins", 2).await;
    signal(&child, "TERM");
    let reports = reports(&end(child).await.stdout);
    assert!(reports.len() >= 2);
    assert!(reports.iter().all(|report| report["totals"]["expiredCount"] == 2));
    assert_eq!(case.ids("c").await, id_set(0..2));
}
