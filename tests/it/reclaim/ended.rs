//! Compactions that end early: by a signal, by the time, by a fail-over, by the loss of their member.

use std::time::Duration;

use mongodb::bson::doc;
use serde_json::{Value, json};

use super::emptied::{Emptied, RULE, emptied, read};
use crate::support::faults::{end, running, signal, slow_down, start, until_running};

/// Holds up `compact` on the first of the secondaries in the order of a run, and starts a run. Returns the index of the member.
async fn held_up(emptied: &Emptied, args: &[&str]) -> (usize, std::process::Child) {
    let mut secondaries: Vec<usize> = vec![1, 2];
    secondaries.sort_by_key(|index| format!("127.0.0.1:{}", emptied.set.members[*index].port));
    for index in &secondaries {
        slow_down(&emptied.set.members[*index].client().await, "compact", 600_000).await;
    }
    let child = start(emptied.site.command(&emptied.set.uri(), RULE, &[&["reclaim", "--format", "json"], args].concat()));
    until_running(&emptied.set.members[secondaries[0]].client().await, "compact").await;
    (secondaries[0], child)
}

fn statuses(report: &Value) -> Vec<&Value> {
    report["rows"].as_array().unwrap().iter().map(|row| &row["status"]).collect()
}

#[tokio::test]
async fn a_signal_or_the_end_of_the_time_ends_the_command_on_the_server() {
    let emptied = emptied().await;
    let before = emptied.files().await;
    for (args, name, code) in [(&[][..], Some("INT"), 130), (&[], Some("TERM"), 143), (&["--max-duration", "3s"], None, 4)] {
        let (member, child) = held_up(&emptied, args).await;
        if let Some(name) = name {
            signal(&child, name);
        }
        let report = read(end(child).await);
        assert_eq!(report["exitCode"], code, "{report:#}");
        assert_eq!(statuses(&report), ["interrupted", "interrupted", "skipped"], "{report:#}");
        let reason = if name.is_some() { "interrupted" } else { "maxDuration" };
        assert_eq!(report["rows"][0]["reason"], reason, "{report:#}");
        assert_eq!(running(&emptied.set.members[member].client().await, "compact").await, 0);
    }
    assert_eq!(emptied.files().await, before);
}

#[tokio::test]
async fn two_runs_do_not_compact_two_members_at_the_same_time() {
    let emptied = emptied().await;
    let before = emptied.files().await;
    let (_, first) = held_up(&emptied, &[]).await;
    let second = emptied.run(&["--max-duration", "4s"]).await;
    assert!(second.stderr.contains("is being compacted by somebody else"), "{second:?}");
    let second = read(second);
    assert_eq!(statuses(&second), ["interrupted", "interrupted", "skipped"], "{second:#}");
    signal(&first, "INT");
    assert_eq!(end(first).await.code, Some(130));
    assert_eq!(emptied.files().await, before);
}

#[tokio::test]
async fn a_member_that_becomes_the_primary_is_not_compacted_to_the_end() {
    let emptied = emptied().await;
    emptied.set.prefer_no_member().await;
    let (member, child) = held_up(&emptied, &["--max-duration", "60s"]).await;
    let admin = emptied.set.members[member].client().await.database("admin");
    for _ in 0..100 {
        if admin.run_command(doc! { "replSetStepUp": 1 }).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ended = async {
        while running(&emptied.set.members[member].client().await, "compact").await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the command ends on the new primary");
    signal(&child, "INT");
    let report = read(end(child).await);
    assert_eq!(statuses(&report)[0], "notDone", "{report:#}");
    let reason = report["rows"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("primary") || reason.contains("interrupted"), "{report:#}");
    assert_eq!(report["exitCode"], 130, "{report:#}");
}

#[tokio::test]
async fn a_member_that_is_lost_is_not_done_and_no_other_is_compacted_without_it() {
    let mut emptied = emptied().await;
    let (member, child) = held_up(&emptied, &["--max-duration", "20s"]).await;
    emptied.set.members[member].kill();
    let report = read(end(child).await);
    assert_eq!(statuses(&report), ["notDone", "interrupted", "skipped"], "{report:#}");
    assert_eq!(report["exitCode"], 4, "{report:#}");
    assert!(report["rows"][0]["reason"].is_string(), "{report:#}");
    assert_eq!(report["rows"][1]["freedBytes"], json!(null), "{report:#}");
    let dry = read(emptied.run(&["--dry-run"]).await);
    assert_eq!((statuses(&dry)[0], &dry["exitCode"]), (&json!("notDone"), &json!(3)), "{dry:#}");
    assert!(dry["rows"][0]["reason"].as_str().unwrap().contains("connecting to"), "{dry:#}");
}
