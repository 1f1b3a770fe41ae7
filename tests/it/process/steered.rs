//! SIGHUP in the middle of a run with `--every`: the run takes over pace and windows of the policy, and nothing else.

use std::process::Child;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use serde_json::{Value, json};

use crate::support::faults::{alone, dated, days, end, fill_many, pause_deletes, resume_deletes, signal, start, until_running};
use crate::support::replica_set::ReplicaSet;
use crate::support::said::Said;
use crate::support::sweeper::{Case, Ran, id_set};

/// One run only: the next one comes after days.
const SWEEP: [&str; 6] = ["sweep", "--every", "30d", "--format", "json", "-v"];

/// Waits until a collection has fewer documents than before.
async fn until_fewer(case: &Case, name: &str, than: u64) {
    for _ in 0..3000 {
        if case.db.collection::<Document>(name).count_documents(doc! {}).await.unwrap() < than {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing was deleted from `{name}` in time");
}

async fn reread(case: &Case, child: &Child, said: &Said, rules: &str) {
    let before = said.lines().iter().filter(|line| line.contains("read again (sha256")).count();
    case.replace_policy(rules);
    signal(child, "HUP");
    said.until_times("read again (sha256", before + 1).await;
}

/// Ends the process between two runs, and returns what it said and the report of its only run.
async fn ended(child: Child, said: Said) -> (Ran, String, Value) {
    said.until("the next run begins at").await;
    signal(&child, "TERM");
    let ran = end(child).await;
    let report = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    (ran, said.into_text(), report)
}

#[tokio::test]
async fn a_sweep_takes_over_another_pace_and_says_which_held_when() {
    let case = Case::new().await;
    fill_many(&case, "c", 3000, days(-3)).await;
    let rule = |keys: &str| format!("  - {{name: old, namespace: DB.c, field: at, expireAfter: 1d, {keys}}}\n");
    // Five minutes and more by this rate.
    let mut child = start(case.command(&(rule("rate: 10") + "run: {concurrency: 2}\n"), &SWEEP));
    let said = Said::by(&mut child);
    until_fewer(&case, "c", 3000).await;
    let faster = "batchSize: 500, concurrency: 3, targetBatchMs: 300, maxHeadMs: 900, maxDirty: 20, maxLag: 10s";
    reread(&case, &child, &said, &(rule(faster) + "run: {concurrency: 3, rate: 100000}\n")).await;
    let (ran, said, report) = ended(child, said).await;
    let of = |key: &str| {
        let changes = report["pacingChanges"].as_array().unwrap().iter().filter(|change| change["key"] == key);
        changes.map(|change| json!([change["rule"], change["before"], change["after"]])).collect::<Vec<_>>()
    };
    for (key, change) in [
        ("rate", json!(["old", "10", null])),
        ("concurrency", json!(["old", null, "3"])),
        ("batchSize", json!(["old", null, "500"])),
        ("targetBatchMs", json!(["old", "200", "300"])),
        ("maxHeadMs", json!(["old", null, "900"])),
        ("maxDirty", json!(["old", null, "20"])),
        ("maxLag", json!(["old", null, "10s"])),
        ("run.rate", json!([null, null, "100000"])),
        ("run.concurrency", json!([null, "2", "3"])),
    ] {
        assert_eq!(of(key), [change], "{key}: {report}");
    }
    assert_eq!(report["pacingChanges"].as_array().unwrap().len(), 9, "{report}");
    assert_eq!((&report["status"], &report["rules"][0]["deletedCount"]), (&json!("complete"), &json!(3000)), "{ran:?}");
    assert!(report["durationMs"].as_u64().unwrap() < 240_000, "{report}");
    assert!(said.contains("rule `old`: `rate` none from "), "{said}");
    assert!(!said.contains("takes over pace and windows only"), "{said}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_window_that_is_closed_ends_the_rule_and_nothing_else_of_the_policy_is_taken_over() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3))).await;
    case.fill("d", dated(0..20, days(-3))).await;
    let rules = |c: &str, d: &str| {
        format!("  - {{name: c, namespace: DB.c, field: at, batchSize: 5, {c}}}\n  - {{namespace: DB.d, field: at, {d}}}\n")
    };
    pause_deletes(&case.client).await;
    let begun = rules("concurrency: 1, expireAfter: 1d", "concurrency: 1, batchSize: 5, expireAfter: 1d");
    let mut child = start(case.command(&begun, &SWEEP));
    let said = Said::by(&mut child);
    until_running(&case.client, "delete").await;
    let hour = |hours| (chrono::Utc::now() + chrono::Duration::hours(hours)).format("%H:%M").to_string();
    let shut = format!("window: {{start: '{}', end: '{}'}}", hour(11), hour(12));
    // The other rule would delete nothing any more by its new period.
    let d = "concurrency: 1, batchSize: 5, expireAfter: 10d";
    reread(&case, &child, &said, &(rules(&format!("concurrency: 1, expireAfter: 1d, {shut}"), d) + "lock: {collection: DB.l}\n"))
        .await;
    said.until("not before the next run: `lock`; `expireAfter` of rule `").await;
    said.until("rule `c`: `window` ").await;
    resume_deletes(&case.client).await;
    let (ran, _, report) = ended(child, said).await;
    let of = |place: usize| {
        let rule = &report["rules"][place];
        json!([rule["status"], rule["reason"], rule["deletedCount"], rule["expireAfterSeconds"]])
    };
    assert_eq!(of(0), json!(["partial", "window", 5, 86400]), "{ran:?}");
    assert_eq!(of(1), json!(["complete", null, 20, 86400]), "{ran:?}");
    assert_eq!((case.ids("c").await.len(), case.ids("d").await), (15, id_set::<i32>([])));
}

#[tokio::test]
async fn a_policy_that_is_wrong_or_keeps_less_changes_nothing_and_the_rate_of_the_command_line_stays() {
    let case = Case::new().await;
    fill_many(&case, "c", 400, days(-3)).await;
    let rule =
        |keys: &str| format!("  - {{name: old, namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 100, {keys}}}\n");
    let mut child = start(case.command(&rule("batchSize: 10"), &[&SWEEP[..], &["--rate", "40"]].concat()));
    let said = Said::by(&mut child);
    until_fewer(&case, "c", 400).await;
    case.replace_policy(&rule("batchSize: 0"));
    signal(&child, "HUP");
    said.until("the runs keep using the previous policy").await;
    case.replace_policy("  - {name: old, namespace: DB.c, field: at, expireAfter: 1d, batchSize: 7}\n");
    signal(&child, "HUP");
    said.until("`maxDeletePercent` is gone").await;
    reread(&case, &child, &said, &(rule("batchSize: 20") + "run: {rate: 100000}\n")).await;
    let (ran, _, report) = ended(child, said).await;
    let changes = report["pacingChanges"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{report}");
    assert_eq!(json!([changes[0]["key"], changes[0]["after"]]), json!(["batchSize", "20"]), "{ran:?}");
    // 400 documents at 40 a second.
    assert!(report["durationMs"].as_u64().unwrap() > 9000, "{report}");
}

#[tokio::test]
async fn a_guard_that_is_new_holds_the_sweep_back_and_one_that_is_gone_lets_it_go_on() {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, &[])).await.unwrap();
    let case = Case::at(&set.uri(), set.client().await, "app");
    fill_many(&case, "c", 3000, days(-3)).await;
    let rule = |keys: &str| format!("  - {{name: old, namespace: DB.c, field: at, expireAfter: 1d{keys}}}\n");
    let mut child = start(case.command(&rule(", rate: 20, batchSize: 10"), &SWEEP));
    let said = Said::by(&mut child);
    until_fewer(&case, "c", 3000).await;
    // No oplog of this server covers a year.
    reread(&case, &child, &said, &rule(", maxLag: 10s, minOplogWindow: 52w")).await;
    said.until("waiting: the next batches would leave the oplog a window of ").await;
    // A batch may be in flight.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left = case.ids("c").await.len();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(case.ids("c").await.len(), left);
    reread(&case, &child, &said, &rule("")).await;
    let (ran, _, report) = ended(child, said).await;
    let rule = &report["rules"][0];
    assert_eq!(json!([rule["status"], rule["deletedCount"], rule["remainingCount"]]), json!(["complete", 3000, 0]), "{ran:?}");
    assert!(rule["pausedMs"]["oplog"].as_u64().unwrap() >= 2000, "{report}");
}
