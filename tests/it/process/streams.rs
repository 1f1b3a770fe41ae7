//! `sweeper` as a process: use of stdout and stderr, sources of its input, and quiet modes.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::support::faults::{alone, dated, days, end, fail_commands, start};
use crate::support::sweeper::{Case, id_set, run, sweeper};
use mongodb::bson::doc;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
const REFUSED: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 10}\n";
const PARTIAL: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 1}\n";

async fn three() -> Case {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    case
}

#[tokio::test]
async fn the_report_is_all_of_stdout_and_nothing_of_it_goes_to_stderr() {
    let case = three().await;
    let missing = format!("{RULE}  - {{namespace: DB.absent, field: at, expireAfter: 1d}}\n");
    let ran = case.run(&missing, &["sweep", "--format", "json", "-vv", "--progress", "always"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("one JSON document");
    assert!(ran.stderr.contains("command find"), "{ran:?}");
    let ran = case.run(RULE, &["sweep"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("deleted 0 documents"), "{ran:?}");
}

#[tokio::test]
async fn quiet_is_silent_when_all_went_well_and_says_one_line_when_not() {
    let case = three().await;
    let missing = format!("{RULE}  - {{name: gone, namespace: DB.absent, field: at, expireAfter: 1d}}\n");
    for (rules, args, code, part) in [
        (REFUSED, &["sweep", "-q", "--dry-run"][..], 0, ""),
        (REFUSED, &["sweep", "-q"], 5, "3 of 3"),
        (PARTIAL, &["sweep", "-q"], 4, "maxDeletes"),
        (RULE, &["sweep", "-q", "--as-of", "9999-01-01T00:00:00Z"], 5, "server's clock"),
        (&missing, &["sweep", "-q"], 0, ""),
        (RULE, &["sweep", "-q", "-o", "/absent/report.json"], 1, "/absent/report.json"),
    ] {
        let ran = case.run(rules, args).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
        assert_eq!(ran.stderr.lines().count(), usize::from(code != 0), "{args:?} {ran:?}");
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
    // `-q` does not suppress a report requested with `-o`.
    let report = case.dir.path().join("report.json");
    let ran = case.run(RULE, &["sweep", "-q", "-o", report.to_str().unwrap()]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(std::fs::read_to_string(&report).unwrap().starts_with('{'));
}

#[tokio::test]
async fn a_reader_that_went_away_is_no_error() {
    let case = three().await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = case.command(RULE, &["sweep"]);
    command.stdout(writer).stderr(Stdio::piped());
    let ran = end(command.spawn().unwrap()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));

    case.fill("c", dated(0..3, days(-3))).await;
    let mut shell = Command::new("sh");
    let sweep = case.command(RULE, &["sweep"]);
    shell.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(sweep.get_program()).args(sweep.get_args());
    let ran = run(shell).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_log_that_nobody_reads_does_not_disturb_a_sweep() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    let data = doc! { "failCommands": ["delete"], "errorCode": 7 };
    fail_commands(&case.client, doc! { "times": 2 }, data).await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = case.command(RULE, &["sweep", "--format", "json", "-vv"]);
    command.stderr(writer).stdout(Stdio::piped());
    let ran = end(command.spawn().unwrap()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("\"deletedCount\": 100"), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
}

#[tokio::test]
async fn the_policy_may_come_from_standard_input() {
    let case = three().await;
    let text = std::fs::read_to_string(case.policy(RULE)).unwrap();
    let mut command = sweeper(&["sweep", "--format", "json", "--policy", "-", "--uri", &case.uri]);
    command.stdin(Stdio::piped());
    let mut child = start(command);
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("\"path\": \"-\""), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn policy_and_connection_string_come_from_the_environment_and_options_win() {
    let case = three().await;
    let policy = case.policy(&format!("{RULE}connection: {{uri: 'mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100'}}\n"));
    let with = |args: &[&str], uri: &str| {
        let mut command = sweeper(args);
        command.env("SWEEPER_POLICY", &policy).env("MONGODB_URI", uri);
        command
    };
    let ran = run(with(&["sweep", "--dry-run"], &case.uri)).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = run(with(&["sweep", "--dry-run", "--uri", &case.uri], "mongodb://127.0.0.1:1")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = run(with(&["sweep", "--policy", "/absent.yaml"], &case.uri)).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    // Without the variable the string in the policy is used.
    let mut unset = with(&["sweep"], "");
    unset.env_remove("MONGODB_URI");
    let ran = run(unset).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("127.0.0.1:1"), "{ran:?}");

    let from_policy = case.policy(&format!("{RULE}connection: {{uri: '${{SWEEPER_TEST_URI}}'}}\n"));
    let mut command = sweeper(&["sweep"]);
    command.arg("-p").arg(from_policy).env("SWEEPER_TEST_URI", &case.uri);
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn the_extension_of_the_output_chooses_the_format_and_an_option_wins() {
    let case = three().await;
    let report = async |name: &str, args: &[&str]| {
        let path = case.dir.path().join(name);
        let output = path.to_str().unwrap().to_owned();
        let ran = case.run(RULE, &[&["sweep", "--dry-run", "-o", &output], args].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
        std::fs::read_to_string(path).unwrap()
    };
    let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
    assert!(is_json(&report("r.json", &[]).await));
    assert!(is_json(&report("r.JSON", &[]).await));
    assert!(report("r.csv", &[]).await.lines().next().unwrap().contains("expiredCount,"));
    assert!(report("r.md", &[]).await.contains("| --"));
    assert!(report("r.txt", &[]).await.contains("would delete 3 documents"));
    assert!(report("report", &[]).await.contains("would delete 3 documents"));
    assert!(is_json(&report("r.csv", &["--format", "json"]).await), "the old file is replaced as a whole");
}

#[tokio::test]
async fn a_log_for_machines_has_one_object_per_line() {
    let case = three().await;
    let missing = format!("{RULE}  - {{namespace: DB.absent, field: at, expireAfter: 1d}}\n");
    let wrong = "  - {namespace: DB.c, field: at}\n";
    let down = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100";
    for (rules, uri, flag, code) in
        [(RULE, down, "-v", 1), (wrong, &case.uri, "-v", 2), (REFUSED, &case.uri, "-q", 5), (&missing, &case.uri, "-vv", 0)]
    {
        let mut command = sweeper(&["sweep", "--log-format", "json", flag, "--uri", uri]);
        command.arg("--policy").arg(case.policy(rules));
        let ran = run(command).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(!ran.stderr.is_empty());
        for line in ran.stderr.lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|cause| panic!("{cause}: {line}"));
            for key in ["timestamp", "level", "message"] {
                assert!(object[key].is_string(), "{line}");
            }
        }
    }
}

/// journald names the stream that it reads by its device and its inode.
#[tokio::test]
async fn journald_is_told_the_priority_of_each_line_and_no_other_reader_is() {
    let case = three().await;
    for (of_stderr, expected) in [(true, "<3>error: reading the policy"), (false, "error: reading the policy")] {
        let log = std::fs::File::create(case.dir.path().join("log")).unwrap();
        let of = if of_stderr { log.metadata() } else { case.dir.path().metadata() }.unwrap();
        let mut command = sweeper(&["check", "-p", "/absent.yaml"]);
        command.env("JOURNAL_STREAM", format!("{}:{}", of.dev(), of.ino())).stderr(log);
        assert_eq!(command.status().unwrap().code(), Some(2));
        let said = std::fs::read_to_string(case.dir.path().join("log")).unwrap();
        assert!(said.starts_with(expected), "{said}");
        assert!(said.lines().all(|line| line.starts_with('<') == of_stderr), "{said}");
    }
}

#[tokio::test]
async fn too_few_files_for_a_run_are_an_error_and_no_panic() {
    let case = three().await;
    for files in [6, 10] {
        let command = case.command(RULE, &["sweep"]);
        let mut limited = Command::new("sh");
        limited
            .args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")])
            .arg(command.get_program())
            .args(command.get_args());
        let ran = run(limited).await;
        let said = "error: starting: no room for 8 open files: Too many open files; nothing was contacted; raise the limit (`ulimit -n`)\n";
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), said), "{files}");
    }
    assert_eq!(case.ids("c").await, id_set(0..3));
}

#[tokio::test]
async fn no_log_level_shows_what_documents_or_filters_hold() {
    let case = Case::new().await;
    let old = days(-3);
    case.fill("c", (0..3).map(|n| doc! { "_id": format!("SECRET{n}"), "at": old, "s": "SECRET", "ttl": "SECRET" })).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl, filter: {s: SECRET}, maxDeletePercent: 100}\n";
    for args in [&["sweep", "-vv", "--dry-run"][..], &["sweep", "-vv", "--log-format", "json"]] {
        let ran = case.run(rules, args).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(&format!("command aggregate {}.c", case.db.name())), "{ran:?}");
        assert!(!ran.stderr.contains("SECRET") && !ran.stdout.contains("SECRET"), "{ran:?}");
    }
    assert_eq!(case.ids("c").await, id_set::<&str>([]));
}

#[tokio::test]
async fn help_names_every_exit_code_and_asks_for_nothing() {
    for args in [&["--help"][..], &["sweep", "--help"], &["audit", "--help"], &["check", "--help"]] {
        let ran = run(sweeper(args)).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        let codes = ran.stdout.split("Exit codes:").nth(1).unwrap_or_else(|| panic!("{ran:?}"));
        for code in ["0", "1", "2", "3", "4", "5", "6", "7", "130", "143"] {
            assert!(codes.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}: {codes}");
        }
    }
    let ran = run(sweeper(&["--version"])).await;
    assert_eq!(ran.stdout, format!("sweeper {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(run(sweeper(&[])).await.code, Some(2));
}
