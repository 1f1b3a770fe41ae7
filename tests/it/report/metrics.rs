//! `--metrics-file`: the metrics that a run leaves for a collector, however it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::exposition::Scrape;
use crate::support::faults::{
    alone, dated, days, end, pause_deletes, resume_deletes, signal, slow_down, start, until_heard, until_running,
};
use crate::support::sweeper::{Case, Ran, Report, id_set, run, sweeper};
use crate::support::terminal::Terminal;
use mongodb::bson::{DateTime, doc};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

fn file(case: &Case) -> PathBuf {
    case.dir.path().join("sweeper.prom")
}

fn scrape(case: &Case) -> Scrape {
    Scrape::read(&std::fs::read_to_string(file(case)).expect("the metrics"))
}

/// Returns `sweeper sweep` with the arguments and a metrics file.
fn command(case: &Case, rules: &str, args: &[&str]) -> Command {
    let mut command = case.command(rules, &[&["sweep", "--format", "json"], args].concat());
    command.arg("--metrics-file").arg(file(case));
    command
}

async fn sweep(case: &Case, rules: &str, args: &[&str]) -> Ran {
    run(command(case, rules, args)).await
}

async fn report(case: &Case, rules: &str, args: &[&str]) -> (Report, Scrape) {
    let ran = sweep(case, rules, args).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    (Report { json, ran }, scrape(case))
}

fn now() -> f64 {
    DateTime::now().timestamp_millis() as f64 / 1000.0
}

fn millis(instant: &serde_json::Value) -> i64 {
    chrono::DateTime::parse_from_rfc3339(instant.as_str().expect("an instant")).expect("an instant").timestamp_millis()
}

#[tokio::test]
async fn a_sweep_says_what_it_did_and_that_nothing_is_left() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3)).chain(dated(7..9, days(3)))).await;
    let c = format!("{}.c", case.db.name());
    let before = now();
    let (report, scrape) = report(&case, RULE, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(case.ids("c").await, id_set(7..9));
    for key in ["last_run_timestamp_seconds", "last_success_timestamp_seconds"] {
        let at = scrape.run(key).unwrap();
        assert!(at >= before - 0.001 && at <= now(), "{key}: {at}");
    }
    assert_eq!(scrape.run("last_run_duration_seconds").unwrap(), report.json["durationMs"].as_f64().unwrap() / 1000.0);
    assert_eq!(scrape.run("last_run_exit_code"), Some(0.0));
    assert_eq!((scrape.run("last_run_success"), scrape.run("last_run_dry_run")), (Some(1.0), Some(0.0)));
    assert_eq!(scrape.rule("deleted_documents", &c), Some(7.0));
    assert_eq!(scrape.rule("expired_documents_remaining", &c), Some(0.0));
    assert_eq!(scrape.rule("oldest_expired_age_seconds", &c), Some(0.0));
    assert_eq!(scrape.rule("expire_after_seconds", &c), Some(86_400.0));
    let seconds = report.rule(0, "durationMs").as_f64().unwrap() / 1000.0;
    assert_eq!(scrape.rule("rule_duration_seconds", &c), Some(seconds));
    let reasons: BTreeSet<String> = scrape.rules("paused_seconds").into_keys().map(|labels| labels[2].clone()).collect();
    assert_eq!(
        reasons,
        ["head", "lag", "latency", "oplog", "pauseFile", "pressure", "rate", "throttle"].map(str::to_owned).into()
    );
    assert_eq!(scrape.rules("rule_status"), BTreeMap::from([(vec![c.clone(), c.clone(), "complete".into()], 1.0)]));
    assert!(scrape.rules("request_units").is_empty(), "mongod bills nothing");
}

#[tokio::test]
async fn what_is_left_is_counted_where_that_is_cheap_and_absent_where_nobody_knows() {
    let case = Case::new().await;
    let name = case.db.name().to_owned();
    let now = DateTime::now().timestamp_millis();
    let documents = |days_old: std::ops::Range<i64>| {
        days_old.map(move |day| doc! { "_id": day, "at": DateTime::from_millis(now - day * 86_400_000) })
    };
    for collection in ["indexed", "scanned", "counted", "refused"] {
        case.fill(collection, documents(3..13)).await;
    }
    case.index_on_date("indexed").await;
    let rules = [
        "  - {namespace: DB.indexed, field: at, expireAfter: 1d, maxDeletes: 4}",
        "  - {namespace: DB.scanned, field: at, expireAfter: 1d, maxDeletes: 4}",
        "  - {namespace: DB.counted, field: at, expireAfter: 1d, maxDeletes: 4, maxDeletePercent: 100}",
        "  - {namespace: DB.refused, field: at, expireAfter: 1d, maxDeletePercent: 10}",
        "  - {namespace: DB.broken, field: at, expireAfter: 1d}",
        "  - {name: off, namespace: DB.indexed, field: at, expireAfter: 1d, enabled: false}",
        "",
    ]
    .join("\n");
    let view = doc! { "create": "broken", "viewOn": "indexed", "pipeline": [] };
    case.db.run_command(view).await.expect("a view");
    let (report, scrape) = report(&case, &rules, &[]).await;
    assert_eq!(report.ran.code, Some(5), "{report:?}");
    let of = |family: &str| -> BTreeMap<String, f64> {
        let rules = scrape.rules(family).into_iter();
        rules.map(|(labels, value)| (labels[0].trim_start_matches(&format!("{name}.")).to_owned(), value)).collect()
    };
    let numbers =
        |pairs: &[(&str, f64)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<BTreeMap<_, _>>();
    assert_eq!(
        of("deleted_documents"),
        numbers(&[("indexed", 4.0), ("scanned", 4.0), ("counted", 4.0), ("refused", 0.0), ("broken", 0.0), ("off", 0.0)])
    );
    assert_eq!(of("expired_documents_remaining"), numbers(&[("indexed", 6.0), ("counted", 6.0), ("refused", 10.0)]));
    // Along the index the four oldest documents are deleted: of the days 12 to 3, day 8 and later are left.
    let age = |day: i64| (millis(&report.json["asOf"]) - (now - day * 86_400_000)) as f64 / 1000.0;
    assert_eq!(case.ids("indexed").await, id_set(3..9_i64));
    assert_eq!(of("oldest_expired_age_seconds"), numbers(&[("indexed", age(8)), ("refused", age(12))]));
    let statuses: BTreeSet<(String, String)> = scrape
        .rules("rule_status")
        .into_keys()
        .map(|labels| (labels[0].replace(&format!("{name}."), ""), labels[2].clone()))
        .collect();
    let expected = [
        ("indexed", "partial"),
        ("scanned", "partial"),
        ("counted", "partial"),
        ("refused", "refused"),
        ("broken", "refused"),
        ("off", "skipped"),
    ];
    assert_eq!(statuses, expected.map(|(rule, status)| (rule.to_owned(), status.to_owned())).into());
    // The report agrees, also if nothing is recorded.
    assert_eq!(report.rule(0, "remainingCount"), 6);
    assert_eq!(report.json["totals"]["remainingCount"], serde_json::Value::Null);
    let unrecorded = case.report(&rules, &[]).await;
    assert_eq!(unrecorded.rule(0, "remainingCount"), 2, "{unrecorded:?}");
    assert_eq!(case.ids("indexed").await, id_set(3..5_i64));
}

#[tokio::test]
async fn a_dry_run_says_what_has_expired_and_is_no_success() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let c = format!("{}.c", case.db.name());
    let (report, dry) = report(&case, RULE, &["--dry-run"]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!((dry.run("last_run_success"), dry.run("last_run_dry_run")), (Some(1.0), Some(1.0)));
    assert_eq!(dry.run("last_success_timestamp_seconds"), None);
    assert_eq!((dry.rule("deleted_documents", &c), dry.rule("expired_documents_remaining", &c)), (Some(0.0), Some(7.0)));
    let age = (millis(&report.json["asOf"]) - millis(report.rule(0, "oldestExpired"))) as f64 / 1000.0;
    assert_eq!(dry.rule("oldest_expired_age_seconds", &c), Some(age));

    assert_eq!(sweep(&case, RULE, &[]).await.code, Some(0));
    let success = scrape(&case).run("last_success_timestamp_seconds");
    assert!(success.is_some());
    assert_eq!(sweep(&case, RULE, &["--dry-run"]).await.code, Some(0));
    assert_eq!(scrape(&case).run("last_success_timestamp_seconds"), success);
}

#[tokio::test]
async fn the_earliest_date_of_bson_has_an_age() {
    let case = Case::new().await;
    case.fill("c", dated(0..1, DateTime::from_millis(i64::MIN))).await;
    let (report, dry) = report(&case, RULE, &["--dry-run"]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    let age = dry.rule("oldest_expired_age_seconds", &format!("{}.c", case.db.name()));
    assert_eq!(age, Some(i64::MAX as f64 / 1000.0));
}

#[tokio::test]
async fn a_run_that_does_not_end_well_says_so_and_keeps_the_last_success() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let earlier = "# HELP x y\nsweeper_last_success_timestamp_seconds 1700000000.125\n";
    let broken = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {at: {$nonsense: 1}}}\n";
    let down = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100";
    let wrong_output = case.dir.path().join("absent/report.json");
    for (rules, args, code) in [
        ("  - {namespace: DB.c, field: at}\n", &[][..], 2),
        (RULE, &["--only", "nothing"], 2),
        (RULE, &["--uri", down], 1),
        (RULE, &["-o", wrong_output.to_str().unwrap()], 1),
        (broken, &[], 3),
        ("  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 1}\n", &[], 4),
        ("  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 1}\n", &[], 5),
        ("  - {namespace: DB.c, field: at, expireAfter: 1d}\nconnection: {expect: {replicaSet: other}}\n", &[], 5),
    ] {
        std::fs::write(file(&case), earlier).unwrap();
        let before = now();
        let mut command = sweeper(&[&["sweep"], args].concat());
        command.arg("-p").arg(case.policy(rules)).env("MONGODB_URI", &case.uri).arg("--metrics-file").arg(file(&case));
        let ran = run(command).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let scrape = scrape(&case);
        assert_eq!(scrape.run("last_success_timestamp_seconds"), Some(1_700_000_000.125), "{args:?}");
        assert_eq!(scrape.run("last_run_exit_code"), Some(f64::from(code)), "{args:?}");
        assert_eq!(scrape.run("last_run_success"), Some(0.0), "{args:?}");
        assert!(scrape.run("last_run_timestamp_seconds").unwrap() >= before - 0.001, "{args:?}");
        assert!(scrape.run("last_run_duration_seconds").is_some(), "{args:?}");
        assert_eq!(scrape.rules("rule_status").is_empty(), code < 3, "{args:?}");
    }
}

#[tokio::test]
async fn what_is_left_stays_known_until_a_run_knows_better() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3)).chain(dated(7..9, days(3)))).await;
    case.index_on_date("c").await;
    let c = format!("{}.c", case.db.name());
    let limited = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 2}\n";
    assert_eq!(sweep(&case, limited, &[]).await.code, Some(4));
    let after = scrape(&case);
    assert_eq!(after.rule("deleted_documents", &c), Some(2.0));
    for _ in 0..2 {
        let mut command = sweeper(&["sweep", "--uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"]);
        command.arg("-p").arg(case.policy(limited)).arg("--metrics-file").arg(file(&case));
        assert_eq!(run(command).await.code, Some(1));
        let now = scrape(&case);
        assert_eq!(now.run("last_run_exit_code"), Some(1.0));
        for name in ["rule_status", "expired_documents_remaining", "oldest_expired_age_seconds", "expire_after_seconds"] {
            assert_eq!(now.rules(name), after.rules(name), "{name}");
            assert!(!now.rules(name).is_empty(), "{name}");
        }
        assert_eq!(now.rule("deleted_documents", &c), None, "it deleted nothing");
    }
    assert_eq!(sweep(&case, RULE, &[]).await.code, Some(0));
    assert_eq!(scrape(&case).rule("expired_documents_remaining", &c), Some(0.0));
    assert_eq!(scrape(&case).rule("deleted_documents", &c), Some(5.0));
}

#[tokio::test]
async fn the_time_of_progress_moves_with_each_sweep_that_deletes_and_stands_still_with_others() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3))).await;
    case.fill("held", dated(0..7, days(-3))).await;
    let names = ["c", "held"].map(|name| format!("{}.{name}", case.db.name()));
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 2}\n  - {namespace: DB.held, field: at, expireAfter: 1d, maxDeletePercent: 1}\n";
    let progress = || names.each_ref().map(|name| scrape(&case).rule("last_progress_timestamp_seconds", name));
    let run_ended = || scrape(&case).run("last_run_timestamp_seconds");

    assert_eq!(sweep(&case, rules, &["--dry-run"]).await.code, Some(0));
    assert_eq!(progress(), [None, None], "a dry run is no progress");
    assert_eq!(sweep(&case, rules, &[]).await.code, Some(5));
    let begin = run_ended();
    assert_eq!(progress(), [begin, begin], "the refused rule has its first sweep");
    assert_eq!(sweep(&case, rules, &[]).await.code, Some(5));
    let second = run_ended();
    assert!(second > begin);
    assert_eq!(progress(), [second, begin]);

    // Neither a run that cannot begin nor a dry run changes the times.
    let mut command = sweeper(&["sweep", "--uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"]);
    command.arg("-p").arg(case.policy(rules)).arg("--metrics-file").arg(file(&case));
    assert_eq!(run(command).await.code, Some(1));
    assert_eq!(progress(), [second, begin]);
    assert_eq!(sweep(&case, rules, &["--dry-run"]).await.code, Some(0));
    assert_eq!(progress(), [second, begin]);

    // Nothing is left to delete: that is progress.
    case.collection("held").delete_many(doc! {}).await.unwrap();
    assert_eq!(sweep(&case, rules, &[]).await.code, Some(4));
    assert_eq!(progress(), [run_ended(), run_ended()]);
    // A time in the future is none of ours.
    let text = std::fs::read_to_string(file(&case)).unwrap();
    let line = text.lines().find(|line| line.starts_with("sweeper_last_progress") && line.contains(".held\"")).unwrap();
    let ahead = format!("{} 99999999999", line.rsplit_once(' ').unwrap().0);
    std::fs::write(file(&case), text.replace(line, &ahead)).unwrap();
    assert_eq!(sweep(&case, rules, &["--only", "nothing"]).await.code, Some(2));
    assert_eq!(progress()[1], None);
}

#[tokio::test]
async fn a_sweep_that_would_stay_and_ask_is_refused_and_says_so() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let ran = Terminal::open(&command(&case, RULE, &["--every", "1h"])).end().await;
    assert!(ran.code == Some(2) && ran.stdout.contains("does not ask before each run"), "{ran:?}");
    assert_eq!(scrape(&case).run("last_run_exit_code"), Some(2.0));
    assert_eq!(case.ids("c").await.len(), 3);
}

#[tokio::test]
async fn an_earlier_file_that_is_something_else_is_replaced_and_says_nothing() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let name = "sweeper_last_success_timestamp_seconds";
    let not_ours = [" ", " NaN", " +Inf", " -5", " 99999999999", " 1700000000 5 7", "_more 1700000000", "{} 1700000000"];
    let garbage = not_ours.map(|value| format!("{name}{value}\n").into_bytes());
    let garbage = [&garbage[..], &[Vec::new(), b"\xff\xfe\x00\n\xff".to_vec()]].concat();
    for earlier in garbage {
        std::fs::write(file(&case), &earlier).unwrap();
        let ran = sweep(&case, RULE, &["--only", "nothing"]).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_eq!(scrape(&case).run("last_success_timestamp_seconds"), None, "{}", String::from_utf8_lossy(&earlier));
    }
    // Any bytes may surround the line.
    let around = [b"\xff\n", name.as_bytes(), b" 1700000000\n{"].concat();
    std::fs::write(file(&case), around).unwrap();
    sweep(&case, RULE, &["--only", "nothing"]).await;
    assert_eq!(scrape(&case).run("last_success_timestamp_seconds"), Some(1.7e9));
}

#[tokio::test]
async fn names_from_outside_stay_within_their_label() {
    let case = Case::new().await;
    let hostile = "a\"} 1\nb{\\n=\"c\\\u{202e},é";
    case.fill(hostile, dated(0..7, days(-3))).await;
    let rule = "x\"} 7\\, \u{202e}";
    let rules = format!("  - {{name: {}, namespace: 'DB.a*', field: at, expireAfter: 1d}}\n", serde_json::json!(rule));
    let ran = sweep(&case, &rules, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids(hostile).await, id_set::<i32>([]));
    let labels = vec![rule.to_owned(), format!("{}.{hostile}", case.db.name())];
    let scrape = scrape(&case);
    assert_eq!(scrape.rules("deleted_documents"), BTreeMap::from([(labels.clone(), 7.0)]));
    assert_eq!(scrape.rules("rule_status"), BTreeMap::from([([&labels[..], &["complete".into()]].concat(), 1.0)]));
    // The time of the rule's progress is found again.
    let earlier = scrape.rules("last_progress_timestamp_seconds");
    assert!(earlier.contains_key(&labels), "{earlier:?}");
    assert_eq!(sweep(&case, &rules, &["--dry-run"]).await.code, Some(0));
    assert_eq!(Scrape::read(&std::fs::read_to_string(file(&case)).unwrap()).rules("last_progress_timestamp_seconds"), earlier);
}

#[tokio::test]
async fn names_that_make_the_same_text_together_are_two_series() {
    let case = Case::new().await;
    let (one, two) = (case.client.database("mab"), case.client.database("ab"));
    for (db, documents) in [(&one, 3), (&two, 5)] {
        db.collection("c").insert_many(dated(0..documents, days(-3))).await.unwrap();
    }
    let rules = "  - {name: y, namespace: mab.c, field: at, expireAfter: 1d}\n  - {name: ym, namespace: ab.c, field: at, expireAfter: 1d}\n";
    let ran = sweep(&case, rules, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let expected = [("y", "mab.c", 3.0), ("ym", "ab.c", 5.0)];
    let expected = expected.map(|(rule, namespace, value)| (vec![rule.to_owned(), namespace.to_owned()], value));
    assert_eq!(scrape(&case).rules("deleted_documents"), expected.into());
}

#[tokio::test]
async fn a_collector_of_another_user_can_read_a_new_file_and_the_permissions_of_an_old_one_stay() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let mode = || std::fs::metadata(file(&case)).unwrap().permissions().mode() & 0o777;
    let sweep = async || {
        let sweep = command(&case, RULE, &[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(sweep.get_program()).args(sweep.get_args());
        assert_eq!(run(shell).await.code, Some(0));
    };
    sweep().await;
    assert_eq!(mode(), 0o644);
    std::fs::set_permissions(file(&case), std::fs::Permissions::from_mode(0o640)).unwrap();
    sweep().await;
    assert_eq!(mode(), 0o640);
    let names: BTreeSet<String> =
        std::fs::read_dir(case.dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["policy.yaml", "sweeper.prom"].map(str::to_owned).into());
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_found_before_anything_is_contacted() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let directory = case.dir.path().to_str().unwrap();
    for (place, code) in [("/absent/sweeper.prom", 1), (directory, 1), ("-", 2)] {
        let ran = case.run(RULE, &["sweep", "-vv", "--metrics-file", place]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
        assert!(ran.stderr.contains("metrics") && !ran.stderr.contains("command "), "{ran:?}");
    }
    assert_eq!(case.ids("c").await, id_set(0..7));
}

#[tokio::test]
async fn metrics_that_cannot_be_written_in_the_end_are_an_error_of_a_run_that_did_its_work() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let directory = case.dir.path().join("textfile");
    std::fs::create_dir(&directory).unwrap();
    pause_deletes(&case.client).await;
    let mut command = case.command(RULE, &["sweep", "-q"]);
    command.arg("--metrics-file").arg(directory.join("sweeper.prom"));
    let child = start(command);
    until_running(&case.client, "delete").await;
    std::fs::remove_dir(&directory).unwrap();
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with("error: writing the metrics file"), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_run_that_is_interrupted_says_how_far_it_came() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    case.index_on_date("c").await;
    pause_deletes(&case.client).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1}\n";
    let mut child = start(command(&case, rules, &[]));
    until_running(&case.client, "delete").await;
    signal(&child, "TERM");
    assert!(until_heard(&mut child).contains("second signal"));
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let (scrape, c) = (scrape(&case), format!("{}.c", case.db.name()));
    assert_eq!((scrape.run("last_run_exit_code"), scrape.run("last_run_success")), (Some(143.0), Some(0.0)));
    let left = case.ids("c").await.len();
    assert!(left >= 90, "only the batch in flight is deleted: {left}");
    assert_eq!(scrape.rule("deleted_documents", &c), Some((100 - left) as f64));
    assert_eq!(scrape.rule("expired_documents_remaining", &c), None, "an interrupted run does not wait for a count");
}

#[tokio::test]
async fn a_run_that_is_interrupted_before_it_has_a_plan_leaves_metrics_and_one_that_is_killed_leaves_the_old_ones() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..7, days(-3))).await;
    slow_down(&case.client, "listCollections", 60_000).await;
    for (name, code) in [("INT", Some(130)), ("KILL", None)] {
        let earlier = "sweeper_last_success_timestamp_seconds 1700000000\n";
        std::fs::write(file(&case), earlier).unwrap();
        let child = start(command(&case, RULE, &[]));
        until_running(&case.client, "listCollections").await;
        signal(&child, name);
        assert_eq!(end(child).await.code, code);
        match code {
            Some(code) => assert_eq!(scrape(&case).run("last_run_exit_code"), Some(f64::from(code))),
            None => assert_eq!(std::fs::read_to_string(file(&case)).unwrap(), earlier),
        }
    }
    assert_eq!(case.ids("c").await, id_set(0..7));
}
