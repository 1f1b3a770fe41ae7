//! `--pause-file`: while the file exists no further batch begins, leases are kept, and the other limits hold.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::faults::{alone, dated, days, end, pause_deletes, resume_deletes, start, until_running};
use crate::support::said::Said;
use crate::support::sweeper::{Case, id_set, run};
use mongodb::bson::{Document, doc};

const RULES: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1}
lock: {collection: DB.locks}\n";

fn with_file(case: &Case, args: &[&str]) -> Command {
    let mut command = case.command(RULES, &[&["sweep", "--format", "json"], args].concat());
    command.arg("--pause-file").arg(case.dir.path().join("pause"));
    command.env("SWEEPER_TEST_LEASE_SECONDS", "12");
    command
}

/// Waits until a lease has been renewed this many times.
async fn until_renewed(case: &Case, times: usize) {
    let (begun, mut renewed, mut before) = (Instant::now(), 0, None);
    while renewed < times {
        assert!(begun.elapsed() < Duration::from_secs(60), "{renewed} of {times}: {before:?}");
        let lease = case.db.collection::<Document>("locks").find_one(doc! {}).await.unwrap();
        let heartbeat = lease.and_then(|lease| lease.get_datetime("heartbeat").ok().copied());
        renewed += usize::from(before.is_some() && heartbeat.is_some() && heartbeat != before);
        before = heartbeat;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn nothing_is_deleted_while_the_file_is_there_and_the_sweep_goes_on_once_it_is_gone() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    pause_deletes(&case.client).await;
    let mut child = start(with_file(&case, &[]));
    let said = Said::by(&mut child);
    until_running(&case.client, "delete").await;
    let pause = case.file("pause", "");
    said.until(&format!("the pause file `{}` exists: no batch begins until it is gone", pause.display())).await;
    resume_deletes(&case.client).await;
    // The batch in flight ends, and no other one begins.
    said.until("(waiting: the pause file `").await;
    assert_eq!(case.ids("c").await, id_set(5..103));
    until_renewed(&case, 1).await;
    assert_eq!(case.ids("c").await, id_set(5..103));

    std::fs::remove_file(pause).unwrap();
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(said.into_text().contains("the pause file is gone: going on"));
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&report["rules"][0]["status"], &report["rules"][0]["deletedCount"]),
        (&"complete".into(), &100.into()),
        "{ran:?}"
    );
    assert!(report["rules"][0]["pausedMs"]["pauseFile"].as_u64().unwrap() > 0, "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
}

#[tokio::test]
async fn the_maximum_duration_ends_a_run_that_waits_for_the_file_and_a_dry_run_does_not_wait() {
    let case = Case::new().await;
    case.fill("c", dated(0..20, days(-3))).await;
    case.file("pause", "");
    let ran = run(with_file(&case, &["--max-duration", "2s"])).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&report["rules"][0]["reason"], &report["rules"][0]["deletedCount"]),
        (&"maxDuration".into(), &0.into()),
        "{ran:?}"
    );
    let ran = run(with_file(&case, &["--dry-run"])).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("pause file"), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(0..20));
}
