//! SIGHUP, which a terminal sends when it is closed: it ends a run as SIGTERM does, unless the run was started to ignore it.

use std::process::Command;
use std::time::Duration;

use mongodb::bson::doc;

use crate::support::archives::{archive, directory};
use crate::support::faults::{
    alone, dated, days, end, fail_commands, pause_deletes, resume_deletes, signal, slow_down, start, until_running,
};
use crate::support::said::Said;
use crate::support::sweeper::{Report, id_set, sweeper};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1, targetBatchMs: 30000}\n";

#[tokio::test]
async fn hang_ups_let_the_batch_in_flight_end_and_the_report_and_the_history_be_written() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    pause_deletes(&case.client).await;
    let rules = format!("{RULE}history: {{collection: DB.runs}}\n");
    let mut child = start(case.command(&rules, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    let said = Said::by(&mut child);
    signal(&child, "HUP");
    said.until("stopping after the batch in flight").await;
    // The kernel sends one, and the shell another: none of them is a second signal.
    for _ in 0..3 {
        signal(&child, "HUP");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    let report = Report { json: serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}")), ran };
    assert_eq!(report.ran.code, Some(143), "{report:?}");
    let values = ["status", "reason", "deletedCount", "uncertain"].map(|key| report.rule(0, key).clone());
    assert_eq!(values, [serde_json::json!("partial"), "interrupted".into(), 5.into(), false.into()], "{report:?}");
    assert_eq!(case.ids("c").await, id_set(5..100));
    let run = case.collection("runs").find_one(doc! {}).await.unwrap().expect("the document of the run");
    assert_eq!(
        (run.get_str("status").ok(), run.get_i32("exitCode").ok().or_else(|| Some(run.get_i64("exitCode").ok()? as i32))),
        (Some("partial"), Some(143)),
        "{run}"
    );
}

#[tokio::test]
async fn another_signal_after_a_hang_up_is_the_second() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    slow_down(&case.client, "delete", 60_000).await;
    let mut child = start(case.command(RULE, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    let said = Said::by(&mut child);
    signal(&child, "HUP");
    said.until("stops at once").await;
    signal(&child, "INT");
    let ran = end(child).await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(said.into_text().contains("a second signal ended the run at once"));
    assert_eq!(case.ids("c").await, id_set(0..100));
}

#[tokio::test]
async fn a_run_that_was_started_to_ignore_hang_ups_is_not_ended_by_one() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3)).chain(dated(20..23, days(3)))).await;
    pause_deletes(&case.client).await;
    let sweep = case.command(RULE, &["sweep", "--format", "json"]);
    let mut nohup = Command::new("nohup");
    nohup.arg(sweep.get_program()).args(sweep.get_args()).env_remove("MONGODB_URI").env_remove("SWEEPER_POLICY");
    let child = start(nohup);
    until_running(&case.client, "delete").await;
    signal(&child, "HUP");
    tokio::time::sleep(Duration::from_millis(500)).await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(20..23));
}

#[tokio::test]
async fn every_command_that_a_signal_ends_in_order_is_ended_by_a_hang_up() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3))).await;
    let archives = directory(&case);
    let archived =
        format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\n", archives.display());
    assert_eq!(case.run(&archived, &["sweep"]).await.code, Some(0));
    case.fill("c", dated(20..25, days(-3))).await;
    let mut restore = sweeper(&["restore", "--format", "json", "--uri", &case.uri]);
    restore.arg(archive(&archives));
    for (command, held, stdout) in [
        (case.command(RULE, &["audit", "--format", "json"]), "aggregate", "interrupted"),
        (case.command(RULE, &["sweep", "--dry-run", "--format", "json"]), "aggregate", "interrupted"),
        (restore, "insert", "143"),
        (case.command(RULE, &["native", "apply", "--yes", "--format", "json"]), "createIndexes", "143"),
    ] {
        let block = doc! { "failCommands": [held], "blockConnection": true, "blockTimeMS": 8_000 };
        fail_commands(&case.client, "alwaysOn", block).await;
        let shown = format!("{command:?}");
        let child = start(command);
        until_running(&case.client, held).await;
        signal(&child, "HUP");
        let ran = end(child).await;
        assert_eq!(ran.code, Some(143), "{shown} {ran:?}");
        assert!(ran.stdout.contains(stdout), "{shown} {ran:?}");
    }
}
