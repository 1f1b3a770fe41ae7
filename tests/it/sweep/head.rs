//! `maxHeadMs` on a real server: the sweep waits while the oldest document takes long to find, and the wait has an end.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::faults::{alone, dated, days, end, heal, slow_down, start};
use crate::support::said::Said;
use crate::support::sweeper::{Case, Report, id_set, run};
use mongodb::bson::{Document, doc};

/// A limit that a busy machine keeps.
const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 10, rate: 40, maxHeadMs: 200}\n";

const WHY: &str = "waiting: the oldest document takes ";

async fn fill(case: &Case) {
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..105, days(3)))).await;
    let index = doc! { "key": { "at": 1 }, "name": "by_date" };
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [index] }).await.expect("an index");
}

fn sweep(case: &Case, args: &[&str]) -> Command {
    case.command(RULE, &[&["sweep", "--format", "json"], args].concat())
}

fn report(ran: crate::support::sweeper::Ran) -> Report {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    Report { json, ran }
}

#[tokio::test]
async fn a_sweep_waits_while_the_oldest_document_takes_long_to_find() {
    let (_mongod, case) = alone().await;
    fill(&case).await;
    // The first batch waits as well as those in the middle.
    slow_down(&case.client, "find", 300).await;
    let mut child = start(sweep(&case, &[]));
    let said = Said::by(&mut child);
    said.until(WHY).await;
    said.until(&format!("0 deleted, 0 per second; DB.c 0 ({WHY}").replace("DB", case.db.name())).await;
    assert_eq!(case.ids("c").await, id_set(0..105));
    heal(&case.client).await;
    let begun = Instant::now();
    while case.ids("c").await.len() > 90 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was deleted within 60 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    slow_down(&case.client, "find", 300).await;
    said.until_times(&format!("c: {WHY}"), 2).await;
    let left = case.ids("c").await;
    assert!(left.len() > 5, "{left:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(case.ids("c").await, left);
    heal(&case.client).await;

    let mut swept = report(end(child).await);
    swept.ran.stderr = said.into_text();
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &100.into()), "{swept:?}");
    assert!(swept.rule(0, "pausedMs")["head"].as_u64().unwrap() >= 2000, "{swept:?}");
    assert!(swept.ran.stderr.contains(" ms to find, maxHeadMs 200"), "{swept:?}");
    assert_eq!(swept.rule(0, "warnings"), &serde_json::json!([]));
    assert_eq!(case.ids("c").await, id_set(100..105));
}

#[tokio::test]
async fn the_maximum_duration_ends_the_wait_also_for_a_query_that_does_not_end() {
    let (_mongod, case) = alone().await;
    fill(&case).await;
    for (millis, why) in [(300, " ms to find, maxHeadMs 200"), (5000, "takes more than 1000 ms to find, maxHeadMs 200")] {
        slow_down(&case.client, "find", millis).await;
        let swept = report(run(sweep(&case, &["--max-duration", "20s"])).await);
        assert_eq!((swept.ran.code, swept.rule(0, "reason")), (Some(4), &"maxDuration".into()), "{swept:?}");
        assert_eq!(swept.rule(0, "deletedCount"), 0, "{swept:?}");
        assert!(swept.rule(0, "pausedMs")["head"].as_u64().unwrap() > 0 && swept.ran.stderr.contains(why), "{swept:?}");
        heal(&case.client).await;
        assert_eq!(case.ids("c").await, id_set(0..105));
    }
}

#[tokio::test]
async fn without_an_index_for_the_query_the_key_has_no_effect_and_all_say_so() {
    let case = Case::new().await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {x: 1}, maxHeadMs: 1}\n";
    let indexed = |options: Document| {
        let mut index = doc! { "key": { "at": 1 }, "name": "by_date" };
        index.extend(options);
        doc! { "createIndexes": "c", "indexes": [index] }
    };
    let with = |document: Document| doc! { "_id": document.get("_id"), "at": document.get("at"), "x": 1 };
    for index in [None, Some(indexed(doc! { "partialFilterExpression": { "x": 1 } }))] {
        case.collection("c").drop().await.unwrap();
        case.fill("c", dated(0..10, days(-3)).chain(dated(10..13, days(3))).map(with)).await;
        if let Some(index) = index {
            case.db.run_command(index).await.expect("an index");
        }
        let checked = case.run(rule, &["check", "--connect"]).await;
        let dry = case.report(rule, &["--dry-run"]).await;
        let swept = case.report(rule, &[]).await;
        let warning = "`maxHeadMs` has no effect here: no index begins with `at` and holds every document";
        let said: Vec<&str> = checked.stdout.split_whitespace().collect();
        assert!(said.join(" ").contains(warning), "{checked:?}");
        for report in [dry, swept] {
            assert_eq!((report.ran.code, &report.rule(0, "warnings")[0]), (Some(0), &warning.into()), "{report:?}");
        }
        assert_eq!(case.ids("c").await, id_set(10..13));
    }
}
