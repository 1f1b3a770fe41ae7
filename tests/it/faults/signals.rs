//! Interrupted runs: the batch in flight ends, the report is written, and a further run finishes the work, even after `kill -9`.

use std::time::Duration;

use crate::support::faults::{
    Stopped, alone, dated, days, end, fail_commands, fill_many, pause_deletes, resume_deletes, running, signal, slow_down, start,
    until_heard, until_running,
};
use crate::support::said::Said;
use crate::support::sweeper::{Case, Ran, Report, id_set, sweeper};
use mongodb::bson::doc;
use rand::RngExt;

/// Batches of five documents, which a slow server does not make smaller.
const RULES: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1, targetBatchMs: 30000}
  - {namespace: DB.d, field: at, expireAfter: 1d}\n";

fn read(ran: Ran) -> Report {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

fn assert_interrupted(report: &Report, code: i32) {
    assert_eq!(report.ran.code, Some(code), "{report:?}");
    assert_eq!(report.json["exitCode"], code);
    assert_eq!(report.json["status"], "partial", "{report:?}");
    for index in 0..2 {
        assert_eq!(report.rule(index, "status"), "partial", "{report:?}");
        assert_eq!(report.rule(index, "reason"), "interrupted", "{report:?}");
    }
}

#[tokio::test]
async fn the_first_signal_lets_the_batch_in_flight_end_and_the_report_be_written() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
        case.fill("d", dated(0..3, days(-3))).await;
        pause_deletes(&case.client).await;
        let one_in_flight = format!("{RULES}run: {{concurrency: 1}}\n");
        let mut child = start(case.command(&one_in_flight, &["sweep", "--format", "json"]));
        until_running(&case.client, "delete").await;
        signal(&child, name);
        assert!(until_heard(&mut child).contains("second signal"));
        resume_deletes(&case.client).await;
        let report = read(end(child).await);
        assert_interrupted(&report, code);
        assert_eq!(report.rule(0, "deletedCount"), 5, "{report:?}");
        assert_eq!(report.rule(0, "uncertain"), false, "{report:?}");
        assert_eq!(case.ids("c").await, id_set(5..103));
        assert_eq!(case.ids("d").await, id_set(0..3));

        let rerun = case.report(RULES, &[]).await;
        assert_eq!(rerun.ran.code, Some(0), "{rerun:?}");
        assert_eq!(case.ids("c").await, id_set(100..103));
        assert_eq!(case.ids("d").await, id_set::<i32>([]));
    }
}

#[tokio::test]
async fn a_signal_ends_a_command_that_has_nothing_to_report() {
    let case = Case::new().await;
    let pipe = case.dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = sweeper(&["check"]);
    command.arg("--policy").arg(&pipe);
    let child = start(command);
    // It opens once the process has opened it as well.
    let opened = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(pipe));
    let opened = opened.await.unwrap().unwrap();
    signal(&child, "TERM");
    drop(opened);
    let ran = end(child).await;
    assert_eq!(ran.code, None, "{ran:?}");
}

#[tokio::test]
async fn a_signal_ends_a_run_that_its_rate_draws_out() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    case.fill("d", dated(0..3, days(-3))).await;
    // At this rate the run would take minutes.
    let child = start(case.command(RULES, &["sweep", "--format", "json", "--rate", "1"]));
    while case.ids("c").await.len() == 100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signal(&child, "TERM");
    let report = read(end(child).await);
    assert_interrupted(&report, 143);
    let gone = 100 - case.ids("c").await.len();
    assert_eq!(report.rule(0, "deletedCount"), gone);
    assert!(gone < 50, "{report:?}");
}

#[tokio::test]
async fn a_dry_run_that_is_interrupted_while_it_counts_says_so() {
    let (_mongod, case) = alone().await;
    for name in ["c", "d"] {
        case.fill(name, dated(0..3, days(-3))).await;
    }
    slow_down(&case.client, "aggregate", 60_000).await;
    let child = start(case.command(RULES, &["sweep", "--format", "json", "--dry-run"]));
    until_running(&case.client, "aggregate").await;
    signal(&child, "INT");
    let report = read(end(child).await);
    assert_interrupted(&report, 130);
    assert!(report.rule(0, "expiredCount").is_null());
}

#[tokio::test]
async fn a_run_that_is_interrupted_before_it_is_connected_deletes_nothing_and_reports_it() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..3, days(-3))).await;
    slow_down(&case.client, "listCollections", 15_000).await;
    let interrupted = async |args: &[&str]| {
        let mut child = start(case.command(RULES, args));
        until_running(&case.client, "listCollections").await;
        let said = Said::by(&mut child);
        signal(&child, "TERM");
        let ran = end(child).await;
        while running(&case.client, "listCollections").await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ran { stderr: said.into_text(), ..ran }
    };
    let report = read(interrupted(&["sweep", "--format", "json"]).await);
    assert_interrupted(&report, 143);
    for key in ["expiredCount", "remainingCount"] {
        assert!(report.json["totals"][key].is_null() && report.rule(0, key).is_null(), "{key}: {report:?}");
    }
    assert_eq!(report.json["totals"]["deletedCount"], 0, "{report:?}");
    assert!(report.ran.stderr.contains("interrupted; nothing was deleted"), "{report:?}");
    let quiet = interrupted(&["sweep", "-q"]).await;
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.lines().count()), (Some(143), "", 1), "{quiet:?}");
    assert!(quiet.stderr.contains("deleted 0 documents by 2 rules; "), "{quiet:?}");
    assert!(quiet.stderr.contains("2 partial (interrupted)"), "{quiet:?}");
    assert_eq!(case.ids("c").await, id_set(0..3));
}

/// New leases are waited for, so that a lock that was removed under another run has ended.
#[tokio::test]
async fn a_run_that_is_stopped_before_its_first_delete_writes_every_record_of_it() {
    let rules = format!("{RULES}lock: {{collection: DB.locks}}\nhistory: {{collection: DB.runs}}\n");
    for (args, code, reason) in [(&[][..], 143, "interrupted"), (&["--max-duration", "1s"], 4, "maxDuration")] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..100, days(-3))).await;
        case.fill("d", dated(0..3, days(-3))).await;
        let [json, metrics] = ["a.json", "a.prom"].map(|name| case.file(name, "yesterday's"));
        std::fs::remove_file(&metrics).unwrap();
        let (json, metrics) = (json.to_str().unwrap(), metrics.to_str().unwrap());
        let mut child = start(case.command(&rules, &[&["sweep", "-o", json, "--metrics-file", metrics], args].concat()));
        let said = Said::by(&mut child);
        if args.is_empty() {
            said.until("leases in").await;
            signal(&child, "TERM");
        }
        let ran = end(child).await;
        let said = said.into_text();
        let report = Report { json: serde_json::from_str(&std::fs::read_to_string(json).unwrap()).expect(&said), ran };
        assert_eq!((report.ran.code, &report.json["exitCode"]), (Some(code), &code.into()), "{report:?}");
        assert_eq!(report.json["status"], "partial");
        assert!(!report.json["server"].is_null() && !report.json["asOf"].is_null(), "{report:?}");
        for index in 0..2 {
            let values = ["status", "reason", "deletedCount", "expiredCount"].map(|key| report.rule(index, key).clone());
            assert_eq!(values, ["partial".into(), reason.into(), 0.into(), serde_json::Value::Null], "{report:?}");
        }
        let metrics = std::fs::read_to_string(metrics).expect("the metrics");
        assert!(metrics.contains(&format!("sweeper_last_run_exit_code {code}\n")), "{metrics}");
        assert_eq!(metrics.matches("status=\"partial\"} 1").count(), 2, "{metrics}");
        let run = case.collection("runs").find_one(doc! {}).await.expect("an answer").expect("the document of the run");
        let rules = run.get_array("rules").expect("its rules");
        assert_eq!((run.get_str("status").ok(), rules.len()), (Some("partial"), 2), "{run}");
        assert_eq!(rules[0].as_document().and_then(|rule| rule.get_str("reason").ok()), Some(reason), "{run}");
        assert!(said.contains("deleted 0 documents by 2 rules; left: unknown (2 rules); 2 partial"), "{said}");
        assert_eq!((case.ids("c").await.len(), case.ids("d").await.len()), (100, 3));
    }
}

#[tokio::test]
async fn a_second_signal_ends_the_run_at_once_and_the_report_says_what_is_known() {
    for (first, second, code) in [("INT", "INT", 130), ("TERM", "TERM", 143), ("INT", "TERM", 143)] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..100, days(-3))).await;
        case.fill("d", dated(0..3, days(-3))).await;
        slow_down(&case.client, "delete", 60_000).await;
        let mut child = start(case.command(RULES, &["sweep", "--format", "json"]));
        until_running(&case.client, "delete").await;
        signal(&child, first);
        // Two equal signals would merge if the process had not handled the first.
        let said = Said::by(&mut child);
        said.until("stops at once").await;
        signal(&child, second);
        let report = read(end(child).await);
        assert_interrupted(&report, code);
        assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "uncertain")), (&0.into(), &true.into()), "{report:?}");
        assert_eq!((report.rule(0, "unconfirmedCount"), report.rule(0, "remainingCount")), (&0.into(), &().into()), "{report:?}");
        let said = said.into_text();
        assert!(said.contains("a second signal ended the run at once"), "{said}");
        assert_eq!(case.ids("c").await, id_set(0..100));
        assert_eq!(case.ids("d").await, id_set(0..3));
    }
}

/// The first two deletes are answered, and the third is held up.
#[tokio::test]
async fn after_a_second_signal_the_count_is_a_lower_bound_in_every_output() {
    let rules = RULES.lines().next().unwrap().to_owned() + "\nlock: {collection: DB.locks}\nhistory: {collection: DB.runs}\n";
    for format in [&["--format", "json"][..], &[], &["-q"]] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..100, days(-3))).await;
        let metrics = case.dir.path().join("a.prom");
        let args = [&["sweep", "--metrics-file", metrics.to_str().unwrap()], format].concat();
        let held = doc! { "failCommands": ["delete"], "blockConnection": true, "blockTimeMS": 60_000 };
        fail_commands(&case.client, doc! { "skip": 2 }, held).await;
        let mut child = start(case.command(&rules, &args));
        while case.ids("c").await.len() > 90 {
            assert!(child.try_wait().unwrap().is_none(), "the run has ended: {:?}", end(child).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until_running(&case.client, "delete").await;
        let said = Said::by(&mut child);
        signal(&child, "TERM");
        if format != ["-q"] {
            said.until("stops at once").await;
        }
        // The two signals differ, so that they do not merge where the first was not heard: then they may come in either order.
        signal(&child, "INT");
        let ran = end(child).await;
        let ran = Ran { stderr: said.into_text(), ..ran };
        assert!(ran.code == Some(130) || (ran.code == Some(143) && format == ["-q"]), "{ran:?}");
        assert_eq!(case.ids("c").await, id_set(10..100));
        // So does the history. The server may carry out the update after the process has ended.
        let mut run = doc! {};
        for _ in 0..1500 {
            run = case.collection("runs").find_one(doc! {}).await.expect("an answer").expect("the document of the run");
            if run.get_str("status").is_ok_and(|status| status != "running") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(run.get_str("status").ok(), Some("partial"), "{run}");
        let rule = run.get_array("rules").expect("its rules")[0].as_document().expect("a rule");
        assert_eq!((rule.get_i64("deletedCount").ok(), rule.get_bool("uncertain").ok()), (Some(10), Some(true)), "{run}");
        let metrics = std::fs::read_to_string(metrics).expect("the metrics");
        assert!(metrics.contains(&format!("sweeper_last_run_exit_code {}\n", ran.code.unwrap())), "{metrics}");
        match format {
            ["-q"] => {
                assert_eq!((ran.stdout.as_str(), ran.stderr.lines().count()), ("", 1), "{ran:?}");
                assert!(ran.stderr.contains("deleted at least 10 documents by 1 rule"), "{ran:?}");
            }
            [] => {
                for part in ["deleted at least 10 documents by 1 rule", ">= 10", "so the count is a lower bound"] {
                    assert!(ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ").contains(part), "{part}: {ran:?}");
                }
                assert!(ran.stderr.contains("its leases end by themselves"), "{ran:?}");
            }
            _ => {
                let report = read(ran);
                let values = ["deletedCount", "uncertain", "batches"].map(|key| report.rule(0, key).clone());
                assert_eq!(values, [serde_json::json!(10), serde_json::json!(true), serde_json::json!(2)], "{report:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_history_that_does_not_answer_after_a_second_signal_has_the_run_as_running_and_that_is_said() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    let rules = RULES.lines().next().unwrap().to_owned() + "\nhistory: {collection: DB.runs}\n";
    // The first of these commands records the beginning.
    let held = doc! { "failCommands": ["delete", "update"], "blockConnection": true, "blockTimeMS": 60_000 };
    fail_commands(&case.client, doc! { "skip": 1 }, held).await;
    let mut child = start(case.command(&rules, &["sweep"]));
    until_running(&case.client, "delete").await;
    let said = Said::by(&mut child);
    signal(&child, "TERM");
    said.until("stops at once").await;
    signal(&child, "INT");
    let ran = end(child).await;
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stdout.contains("deleted at least 0 documents by 1 rule"), "the report comes first: {ran:?}");
    let said = said.into_text();
    assert!(
        said.contains("no answer within 1 s at the end of the run; there it stays as running, also after later runs"),
        "{said}"
    );
    let run = case.collection("runs").find_one(doc! {}).await.expect("an answer").expect("the document of the run");
    assert_eq!(run.get_str("status").ok(), Some("running"), "{run}");
}

/// A container has ten seconds from the first signal on.
#[tokio::test]
async fn a_server_that_falls_silent_does_not_hold_up_the_end_of_a_run_and_the_report_says_what_is_known() {
    let (mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    pause_deletes(&case.client).await;
    let rules = RULES.lines().next().unwrap().to_owned() + "\nhistory: {collection: DB.runs}\n";
    let mut child = start(case.command(&rules, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    let said = Said::by(&mut child);
    let stopped = Stopped::new(mongod.child.id());
    signal(&child, "TERM");
    let report = read(end(child).await);
    drop(stopped);
    assert_eq!(report.ran.code, Some(143), "{report:?}");
    let values = ["status", "reason", "deletedCount", "uncertain"].map(|key| report.rule(0, key).clone());
    assert_eq!(values, [serde_json::json!("partial"), "interrupted".into(), 0.into(), true.into()], "{report:?}");
    let said = said.into_text();
    assert!(said.contains("the run ended 8 s after the signal, without the answers that it waited for"), "{said}");
    assert!(
        said.contains("no answer within 1 s at the end of the run; there it stays as running, also after later runs"),
        "{said}"
    );
}

#[tokio::test]
async fn a_run_that_is_killed_at_any_moment_is_ended_by_a_rerun_as_if_nothing_had_happened() {
    let (_mongod, case) = alone().await;
    fill_many(&case, "c", 20_000, days(-3)).await;
    case.fill("c", dated(20_000..20_050, days(3))).await;
    let kept = id_set(20_000..20_050);
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 20, concurrency: 3}\n";
    let mut killed = 0;
    for _ in 0..8 {
        let mut child = start(case.command(rules, &["sweep", "--format", "json"]));
        let moment = rand::rng().random_range(0..150);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        if child.try_wait().unwrap().is_none() {
            signal(&child, "KILL");
            killed += 1;
        }
        end(child).await;
        while running(&case.client, "delete").await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(case.ids("c").await.is_superset(&kept), "after {moment} ms of run {killed}");
    }
    assert!(killed > 0);
    let left = case.ids("c").await.len() - kept.len();
    let rerun = case.report(rules, &[]).await;
    assert_eq!(rerun.ran.code, Some(0), "{rerun:?}");
    assert_eq!(rerun.rule(0, "deletedCount"), left, "{rerun:?}");
    assert_eq!(case.ids("c").await, kept);
}
