//! `--stop-file`: while the file exists nothing starts, and a running sweep ends after the batch in flight.

use std::process::Command;

use crate::support::faults::{alone, dated, days, end, pause_deletes, resume_deletes, start, until_deleted_from, until_running};
use crate::support::said::Said;
use crate::support::sweeper::{Case, id_set, run, sweeper};

const RULES: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1}
  - {namespace: DB.d, field: at, expireAfter: 1d}
run: {concurrency: 1}\n";

fn with_file(case: &Case, args: &[&str]) -> Command {
    let mut command = case.command(RULES, &[&["sweep", "--format", "json"], args].concat());
    command.arg("--stop-file").arg(case.dir.path().join("stop"));
    command
}

#[tokio::test]
async fn nothing_begins_while_the_file_is_there() {
    let case = Case::new().await;
    case.fill("c", dated(0..5, days(-3))).await;
    let stop = case.file("stop", "");
    for (args, lines) in [(&["-q"][..], 1), (&["--dry-run"], 2)] {
        let mut command = sweeper(&["sweep", "--uri", "mongodb://127.0.0.1:1"]);
        command.arg("--policy").arg(case.policy(RULES)).arg("--stop-file").arg(&stop).args(args);
        let ran = run(command).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(4), ""), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), lines, "{ran:?}");
        for part in [stop.to_str().unwrap(), "exists; nothing was contacted"] {
            assert!(ran.stderr.contains(part), "{part}: {ran:?}");
        }
    }
    std::fs::remove_file(&stop).unwrap();
    let ran = run(with_file(&case, &[])).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_file_that_appears_lets_the_batch_in_flight_end_and_the_report_be_written() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    case.fill("d", dated(0..3, days(-3))).await;
    pause_deletes(&case.client).await;
    let mut child = start(with_file(&case, &[]));
    let said = Said::by(&mut child);
    until_running(&case.client, "delete").await;
    let stop = case.file("stop", "");
    said.until("exists: stopping after the batch in flight").await;
    std::fs::remove_file(stop).unwrap();
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["exitCode"], 4);
    for rule in 0..2 {
        assert_eq!(report["rules"][rule]["status"], "partial", "{ran:?}");
        assert_eq!(report["rules"][rule]["reason"], "stopFile", "{ran:?}");
    }
    assert_eq!(report["totals"]["deletedCount"], 5);
    assert_eq!(case.ids("c").await, id_set(5..103));
    assert_eq!(case.ids("d").await, id_set(0..3));
}

#[tokio::test]
async fn a_file_that_appears_ends_a_wait() {
    let case = Case::new().await;
    case.fill("c", dated(0..100, days(-3))).await;
    // At this rate the run would take minutes.
    let child = start(with_file(&case, &["--rate", "1"]));
    until_deleted_from(&case, "c", 100).await;
    case.file("stop", "");
    let ran = end(child).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["rules"][0]["reason"], "stopFile", "{ran:?}");
    let left = case.ids("c").await.len();
    assert_eq!(report["totals"]["deletedCount"], 100 - left);
    assert!(left > 50, "{ran:?}");

    std::fs::remove_file(case.dir.path().join("stop")).unwrap();
    let lock = case.dir.path().join("lock");
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let mut command = with_file(&case, &["--lock-wait", "1h"]);
    command.arg("--lock").arg(&lock);
    let mut waits = start(command);
    let said = Said::by(&mut waits);
    said.until("waiting for at most").await;
    case.file("stop", "");
    let ran = end(waits).await;
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &report["rules"][0]["reason"]), (Some(4), &"stopFile".into()), "{ran:?}");
    assert_eq!(case.ids("c").await.len(), left);
}
