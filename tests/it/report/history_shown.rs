//! `sweeper history`: the runs that it shows, their format, and comparisons with earlier runs.

use std::process::Command;

use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::sweeper::{Case, id_set};
use crate::support::terminal::Terminal;
use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;

/// Rules and a history in the database of the case.
const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\nhistory: {collection: DB.runs}\n";

/// Returns the record of a run that many days ago.
fn past(id: &str, days_old: i64, deleted: i64, rules: &[(&str, &str, i64)]) -> Document {
    let rules = rules.iter().map(|(name, status, deleted)| {
        doc! { "name": name, "namespace": format!("app.{name}"), "status": status, "expiredCount": Bson::Null, "deletedCount": deleted,
        "remainingCount": 1_i64 }
    });
    doc! {
        "_id": id, "startedAt": days(-days_old), "durationMs": 2000_i64, "exitCode": if deleted == 0 { 4 } else { 0 },
        "status": if deleted == 0 { "partial" } else { "complete" },
        "totals": { "expiredCount": Bson::Null, "deletedCount": deleted, "remainingCount": 18_446_744_i64 },
        "rules": rules.collect::<Vec<_>>(), "error": Bson::Null, "rulesOmitted": 0_i64,
    }
}

async fn shown(case: &Case, args: &[&str]) -> Value {
    let ran = case.run(RULE, &[&["history", "--format", "json"], args].concat()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

fn values(history: &Value, key: &str) -> Vec<Value> {
    history["runs"].as_array().unwrap().iter().map(|run| run[key].clone()).collect()
}

#[tokio::test]
async fn the_newest_runs_come_first_and_beside_them_what_is_usual() {
    let case = Case::new().await;
    // The order of insertion is not the order of the dates.
    let deleted = [(3, 4_000_000), (1, 12_345_678), (5, 0), (2, 3_000_000), (4, 2_000_000)];
    let runs = deleted.map(|(days, deleted)| past(&format!("run-{}", 9 - days), days, deleted, &[]));
    case.fill("runs", runs).await;
    let all = shown(&case, &[]).await;
    assert_eq!(values(&all, "runId"), ["run-8", "run-7", "run-6", "run-5", "run-4"]);
    assert_eq!(values(&all, "deletedCount"), [12_345_678, 3_000_000, 4_000_000, 2_000_000, 0]);
    assert_eq!(values(&all, "deletedPerSecond"), [6_172_839.0, 1_500_000.0, 2_000_000.0, 1_000_000.0, 0.0]);
    assert_eq!(values(&all, "expiredCount"), [(); 5].map(|()| Value::Null));
    assert_eq!(all["median"], serde_json::json!({"deletedCount": 3e6, "durationMs": 2000.0, "deletedPerSecond": 1.5e6}));
    let two = shown(&case, &["-n", "2"]).await;
    assert_eq!(values(&two, "runId"), ["run-8", "run-7"]);
    assert_eq!(two["median"]["deletedCount"], 7_672_839.0);

    let table = case.run(RULE, &["history"]).await.stdout;
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let columns: Vec<&str> = table.lines().nth(2).unwrap().split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect();
    assert_eq!(columns, ["started (UTC)", "exit", "status", "deleted", "expired", "time", "docs/s", "remaining"]);
    let row: Vec<&str> = table.lines().nth(3).unwrap().split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect();
    assert_eq!(row[1..], ["0", "complete", "12.3 M", "-", "2.0 s", "6.17 M", "18.4 M"], "{table}");
    for part in ["deleted, oldest first: ▁▃▄▃█", "median: 3.00 M deleted in 2.0 s", "4.1 times the median", "1 of 5 runs did not"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }

    let csv = case.run(RULE, &["history", "--format", "csv"]).await.stdout;
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    for (record, run) in reader.records().zip(all["runs"].as_array().unwrap()) {
        for (key, value) in header.iter().zip(&record.unwrap()) {
            let expected = match &run[key] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                Value::Number(number) => number.as_f64().unwrap().to_string(),
                other => panic!("{other}"),
            };
            assert_eq!(value, expected, "{key}");
        }
    }
    let markdown = case.run(RULE, &["history", "--format", "markdown"]).await.stdout;
    assert_eq!(markdown.lines().filter(|line| line.starts_with("| 20")).count(), 5, "{markdown}");
}

#[tokio::test]
async fn a_terminal_without_unicode_gets_letters_it_has() {
    let case = Case::new().await;
    case.fill("runs", [past("a", 2, 10, &[]), past("b", 1, 70, &[])]).await;
    for (locale, line) in [("C", "deleted, oldest first: .@"), ("C.UTF-8", "deleted, oldest first: ▂█")] {
        let mut command = Command::new("env");
        let history = case.command(RULE, &["history"]);
        command.arg(format!("LC_ALL={locale}")).arg(history.get_program()).args(history.get_args());
        let ran = Terminal::open(&command).end().await;
        assert!(ran.stdout.contains(line), "{ran:?}");
    }
}

#[tokio::test]
async fn only_narrows_runs_and_counts_to_the_rules_that_are_meant() {
    let case = Case::new().await;
    let runs = [
        past("a", 3, 9, &[("sessions", "complete", 4), ("carts", "partial", 5)]),
        past("b", 2, 5, &[("carts", "complete", 5)]),
        past("c", 1, 9, &[("sessions", "failed", 2), ("carts", "complete", 7)]),
    ];
    case.fill("runs", runs).await;
    let sessions = shown(&case, &["--only", "sess*"]).await;
    assert_eq!(
        (values(&sessions, "runId"), values(&sessions, "deletedCount")),
        (vec!["c".into(), "a".into()], vec![2.into(), 4.into()])
    );
    assert_eq!(values(&sessions, "status"), ["failed", "complete"]);
    assert_eq!(values(&sessions, "remainingCount"), [1, 1]);
    let both = shown(&case, &["--only", "app.*"]).await;
    assert_eq!(
        (values(&both, "deletedCount"), values(&both, "status")),
        (vec![9.into(), 5.into(), 9.into()], vec!["failed".into(), "complete".into(), "partial".into()])
    );
    assert_eq!(values(&both, "remainingCount"), [2, 1, 2]);
    let nothing = case.run(RULE, &["history", "--only", "nothing"]).await;
    assert_eq!((nothing.code, nothing.stdout), (Some(0), format!("no run to show of {}.runs\n", case.db.name())));
    assert_eq!(nothing.stderr, "warning: --only nothing: no rule or namespace of 3 recorded runs matches\n");
}

#[tokio::test]
async fn a_history_that_is_empty_or_holds_something_else_is_said() {
    let case = Case::new().await;
    let ran = case.run(RULE, &["history"]).await;
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("no run to show of {}.runs\n", case.db.name())));
    assert_eq!(shown(&case, &[]).await["median"], Value::Null);
    let odd = doc! { "_id": "\u{1b}[31m", "startedAt": "yesterday" };
    let hostile = doc! { "error": "a\u{1b}[31m\nb|", "status": "x\u{202e}" };
    let mut run = past("a", 1, 5, &[]);
    run.extend(hostile);
    case.fill("runs", [odd, run]).await;
    let ran = case.run(RULE, &["history"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("1 documents of") || ran.stderr.contains("1 document of"), "{ran:?}");
    assert!(!ran.stdout.contains(['\u{1b}', '\u{202e}']) && ran.stdout.contains("a\\u{1b}[31m; b|"), "{ran:?}");

    let without = case.run("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &["history", "-vv"]).await;
    assert_eq!((without.code, without.stdout.as_str()), (Some(2), ""), "{without:?}");
    assert!(without.stderr.contains("no `history`") && !without.stderr.contains("command "), "{without:?}");
}

#[tokio::test]
async fn an_account_that_cannot_sort_is_read_by_pages_and_sorted_here() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3)).chain(dated(7..9, days(3)))).await;
    // The order of the `_id`s is arbitrary, and the newest run is in the middle of the second page.
    let runs = (0..450).map(|n| past(&format!("run-{:03}", (n * 7 + 211) % 450), n + 1, n, &[]));
    case.fill("runs", runs).await;
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
    let ran = proxied.case.run(RULE, &["sweep"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(7..9));
    let all = shown(&proxied.case, &["-n", "4"]).await;
    assert_eq!(values(&all, "deletedCount"), [7, 0, 1, 2]);
    let requests = proxied.proxy.requests();
    assert!(requests.iter().all(|request| request.name != "getMore" && !request.body.contains_key("comment")));
}
