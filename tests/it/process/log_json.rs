//! `--log-format json`: every line is one object with the id of its run; rules and runs carry the values of the report as fields.

use std::collections::BTreeMap;

use crate::support::faults::{dated, days, fill_many};
use crate::support::sweeper::{Case, Ran, id_set, run, sweeper};
use crate::support::terminal::Terminal;
use serde_json::Value;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
const JSON: [&str; 3] = ["sweep", "--log-format", "json"];

/// Parses the lines of a log, which must all be of the same run.
fn lines(log: &str) -> Vec<Value> {
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line:?}"))).collect();
    for line in &lines {
        let at = line["timestamp"].as_str().unwrap_or_default();
        let parsed = chrono::DateTime::parse_from_rfc3339(at);
        assert!(parsed.is_ok() && at.ends_with('Z'), "{line}");
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&line["level"].as_str().unwrap_or_default()), "{line}");
        assert!(line["message"].as_str().is_some_and(|message| !message.is_empty()), "{line}");
        assert_eq!(line["runId"].as_str().map(str::len), Some(36), "{line}");
        assert_eq!(line["runId"], lines[0]["runId"]);
    }
    lines
}

fn events<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

async fn logged(case: &Case, rules: &str, args: &[&str]) -> (Ran, Vec<Value>) {
    let ran = case.run(rules, &[&JSON[..], &["--format", "json"], args].concat()).await;
    let lines = lines(&ran.stderr);
    (ran, lines)
}

/// Returns a rule for each outcome.
async fn every_fate(case: &Case) -> String {
    for name in ["complete", "partial", "refused", "failed"] {
        case.fill(name, dated(0..10, days(-3))).await;
    }
    [
        "  - {name: complete, namespace: DB.complete, field: at, expireAfter: 1d}",
        "  - {name: partial, namespace: DB.partial, field: at, expireAfter: 1d, maxDeletes: 3}",
        "  - {name: refused, namespace: DB.refused, field: at, expireAfter: 1d, maxDeletePercent: 10}",
        "  - {name: failed, namespace: DB.failed, field: at, expireAfter: 1d, filter: {at: {$nonsense: 1}}}",
        "  - {name: skipped, namespace: DB.absent, field: at, expireAfter: 1d}",
        "",
    ]
    .join("\n")
}

#[tokio::test]
async fn each_rule_and_the_run_end_with_a_line_that_holds_the_values_of_the_report() {
    let case = Case::new().await;
    let rules = every_fate(&case).await;
    let (ran, lines) = logged(&case, &rules, &[]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(lines[0]["runId"], report["runId"]);

    let ended: BTreeMap<&str, &Value> =
        events(&lines, "ruleEnds").into_iter().map(|line| (line["rule"].as_str().unwrap(), line)).collect();
    assert_eq!(events(&lines, "ruleEnds").len(), 5);
    for rule in report["rules"].as_array().unwrap() {
        let line = ended[rule["name"].as_str().unwrap()];
        for key in [
            "namespace",
            "status",
            "reason",
            "expiredCount",
            "deletedCount",
            "uncertain",
            "batches",
            "durationMs",
            "error",
            "requestUnits",
        ] {
            assert_eq!(line[key], rule[key], "{key}: {line}");
        }
        let level = match rule["status"].as_str().unwrap() {
            "failed" => "ERROR",
            "partial" | "refused" => "WARN",
            _ => "INFO",
        };
        assert_eq!(line["level"], level, "{line}");
    }
    // Only swept rules have a `ruleBegins`.
    let begun: Vec<&Value> = events(&lines, "ruleBegins").into_iter().map(|line| &line["rule"]).collect();
    assert_eq!(begun, ["complete", "partial", "failed"]);
    for name in ["complete", "partial", "failed"] {
        let place = |event: &str| lines.iter().position(|line| line["event"] == event && line["rule"] == name);
        assert!(place("ruleBegins") < place("ruleEnds"), "{name}");
    }
    let [end] = events(&lines, "runEnds")[..] else { panic!("{ran:?}") };
    for key in ["exitCode", "status", "durationMs", "dryRun"] {
        assert_eq!(end[key], report[key], "{key}");
    }
    for key in ["deletedCount", "expiredCount", "remainingCount", "rules", "failed", "refused"] {
        assert_eq!(end[key], report["totals"][key], "{key}");
    }
    assert_eq!(end, lines.last().unwrap());
}

#[tokio::test]
async fn a_dry_run_says_what_each_rule_would_delete() {
    let case = Case::new().await;
    let rules = every_fate(&case).await;
    let (ran, lines) = logged(&case, &rules, &["--dry-run", "--only", "complete"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let [rule] = events(&lines, "ruleEnds")[..] else { panic!("{ran:?}") };
    assert_eq!((&rule["expiredCount"], &rule["deletedCount"]), (&10.into(), &0.into()));
    let [end] = events(&lines, "runEnds")[..] else { panic!("{ran:?}") };
    assert_eq!((&end["dryRun"], &end["exitCode"]), (&true.into(), &0.into()));
    assert_eq!(case.ids("complete").await, id_set(0..10));
}

#[tokio::test]
async fn a_quiet_run_logs_errors_alone() {
    let case = Case::new().await;
    let rules = every_fate(&case).await;
    let (ran, lines) = logged(&case, &rules, &["-q", "--only", "complete"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(lines.is_empty());
    let (ran, lines) = logged(&case, &rules, &["-q"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(lines.iter().all(|line| line["level"] == "ERROR"), "{ran:?}");
    assert!(lines.iter().any(|line| line["rule"] == "failed"), "{ran:?}");
}

#[tokio::test]
async fn a_run_that_does_not_take_place_ends_with_a_line_and_its_exit_code() {
    let case = Case::new().await;
    let down = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100";
    let wrong = "  - {namespace: DB.c, field: at}\n  - {namespace: admin.c, field: at, expireAfter: 1d}\n";
    for (rules, args, code) in [
        (wrong, &[][..], 2),
        (RULE, &["--only", "nothing"], 2),
        (RULE, &["-o", "report.unknown"], 2),
        (RULE, &["-o", "/absent/report.json"], 1),
        (RULE, &["--metrics-file", "/absent/sweeper.prom"], 1),
        (RULE, &["--uri", down], 1),
    ] {
        for flag in [None, Some("-q"), Some("-vv")] {
            let args: Vec<&str> = JSON.iter().chain(args).copied().chain(flag).collect();
            let mut command = sweeper(&args);
            command.arg("-p").arg(case.policy(rules)).env("MONGODB_URI", &case.uri);
            let ran = run(command).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
            let lines = lines(&ran.stderr);
            let end = lines.last().unwrap_or_else(|| panic!("{ran:?}"));
            assert_eq!((&end["exitCode"], &end["event"], &end["level"]), (&code.into(), &"runEnds".into(), &"ERROR".into()));
        }
    }
}

#[tokio::test]
async fn names_from_outside_stay_within_their_line() {
    let case = Case::new().await;
    let hostile = "a\"}\n{\"level\":\"INFO\"\\\u{202e}\r\u{2028}";
    case.fill(hostile, dated(0..7, days(-3))).await;
    let name = "x\"}{\u{202e}";
    let rules = format!("  - {{name: {}, namespace: 'DB.a*', field: at, expireAfter: 1d}}\n", serde_json::json!(name));
    let (ran, lines) = logged(&case, &rules, &["-vv"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for event in ["ruleBegins", "ruleEnds"] {
        let [line] = events(&lines, event)[..] else { panic!("{ran:?}") };
        assert_eq!(line["rule"], name);
        assert_eq!(line["namespace"], format!("{}.{hostile}", case.db.name()));
    }
}

#[tokio::test]
async fn progress_comes_as_numbers() {
    let case = Case::new().await;
    fill_many(&case, "c", 1200, days(-3)).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, rate: 100, maxDeletePercent: 100}\n";
    let (ran, lines) = logged(&case, rules, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let progress = events(&lines, "progress");
    assert!(!progress.is_empty(), "{ran:?}");
    for line in progress {
        let number = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("{key}: {line}"));
        assert_eq!(number("deletedCount") + number("remainingCount"), 1200);
        assert!(number("deletedCount") > 0 && number("deletedPerSecond") > 0);
        assert_eq!((number("rules"), number("rulesEnded"), number("expectedCount")), (1, 0, 1200));
        let left = number("remainingSeconds");
        assert!(line["message"].as_str().unwrap().contains(&format!(", eta 00:00:{left:02}; ")), "{line}");
    }
}

#[tokio::test]
async fn a_terminal_gets_objects_as_well_and_no_bars() {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let output = case.dir.path().join("report.json");
    let args = [&JSON[..], &["--yes", "-v", "--progress", "always", "-o", output.to_str().unwrap()]].concat();
    let ran = Terminal::open(&case.command(RULE, &args)).end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = lines(&ran.stdout);
    assert_eq!(events(&lines, "ruleEnds").len(), 1, "{ran:?}");
}

#[tokio::test]
async fn lines_for_people_are_without_fields_and_none_where_all_goes_well() {
    let case = Case::new().await;
    let rules = every_fate(&case).await;
    let ran = case.run(&rules, &["sweep"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(3), ""), "the report on standard output is enough");
    let ran = case.run(&rules, &["sweep", "-v", "--only", "complete"]).await;
    let name = format!("{}.complete", case.db.name());
    let expected = format!("info: {name}: sweeping\ninfo: {name}: complete, 0 deleted in 0 delete commands\n");
    let about: String = ran.stderr.lines().filter(|line| line.contains(&name)).map(|line| format!("{line}\n")).collect();
    assert_eq!(about, expected, "{ran:?}");
}
