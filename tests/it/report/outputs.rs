//! Several outputs of one run: their formats, the combinations refused before any server is contacted, and the effect of one that
//! cannot be written on the others.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, Ran, id_set, run, sweeper};
use crate::support::terminal::Terminal;
use serde_json::Value;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
const REFUSED: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 10}\n";
const NOWHERE: &str = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100";

async fn three() -> Case {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    case
}

fn in_dir(case: &Case, name: &str) -> PathBuf {
    case.dir.path().join(name)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

/// Returns the files in the directory of the case except the policy.
fn files(case: &Case) -> Vec<String> {
    let entries = std::fs::read_dir(case.dir.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "policy.yaml");
    names.sort();
    names
}

/// Runs `sweeper` in the directory of the case.
async fn here(case: &Case, rules: &str, uri: &str, args: &[&str]) -> Ran {
    let mut command = sweeper(args);
    command.current_dir(case.dir.path()).arg("--policy").arg(case.policy(rules)).args(["--uri", uri]);
    run(command).await
}

fn form(text: &str) -> &'static str {
    match text {
        text if text.starts_with("<!DOCTYPE html>") => "html",
        text if serde_json::from_str::<Value>(text).is_ok() => "json",
        text if text.starts_with("runId,") => "csv",
        text if text.contains("| ---") => "markdown",
        text if text.contains("rule          status") || text.contains("\nrule ") => "table",
        text => panic!("unknown format:\n{text}"),
    }
}

#[tokio::test]
async fn formats_go_to_outputs_in_order_and_the_rest_by_extension() {
    let case = three().await;
    for (args, stdout, written) in [
        ("-o a.html -o a.json -o a.csv -o a.md -o a.txt", "", "html json csv markdown table"),
        ("-o a.htm -o a.HTML -o a.markdown -o a.log -o plain", "", "html html markdown table table"),
        ("--format html --format json -o a.html -o a.json", "", "html json"),
        ("-o a.html -o - -o a.json", "table", "html json"),
        ("--format json -o - -o a.html", "json", "html"),
        ("--format json -o a.html -o b.html", "", "json html"),
        ("-o b.html --format csv -o a.json --format json", "", "csv json"),
        ("--format html", "html", ""),
        ("--format json -o /dev/stdout", "json", ""),
        ("-o -", "table", ""),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let ran = here(&case, RULE, &case.uri, &[&["sweep", "--dry-run"][..], &args].concat()).await;
        let files = args.windows(2).filter(|pair| pair[0] == "-o" && !["-", "/dev/stdout"].contains(&pair[1]));
        let said: String = files.map(|pair| format!("info: wrote `{}`\n", pair[1])).collect();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), said.as_str()), "{args:?}: {ran:?}");
        let shown = if ran.stdout.is_empty() { "" } else { form(&ran.stdout) };
        let named =
            args.windows(2).filter(|pair| pair[0] == "-o" && !["-", "/dev/stdout"].contains(&pair[1])).map(|pair| pair[1]);
        let forms: Vec<&str> = named
            .map(|name| {
                let text = read(&in_dir(&case, name));
                std::fs::remove_file(in_dir(&case, name)).unwrap();
                form(&text)
            })
            .collect();
        assert_eq!((shown, forms.join(" ").as_str()), (stdout, written), "{args:?}");
    }
    assert_eq!(files(&case), Vec::<String>::new());
}

#[tokio::test]
async fn all_outputs_are_of_one_run() {
    let case = three().await;
    let ran = here(&case, RULE, &case.uri, &["sweep", "-o", "a.html", "-o", "a.json", "-o", "-"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    let json: Value = serde_json::from_str(&read(&in_dir(&case, "a.json"))).unwrap();
    assert_eq!(json["totals"]["deletedCount"], 3);
    let id = json["runId"].as_str().unwrap();
    assert!(read(&in_dir(&case, "a.html")).contains(id) && ran.stdout.contains(id), "{ran:?}");
    assert!(read(&in_dir(&case, "a.html")).contains("<h1>3 documents were deleted</h1>"));
}

#[tokio::test]
async fn outputs_that_cannot_be_meant_are_usage_errors_before_anything_is_contacted() {
    let case = Case::new().await;
    std::os::unix::fs::symlink("a.json", in_dir(&case, "link.json")).unwrap();
    std::os::unix::fs::symlink(case.dir.path(), in_dir(&case, "again")).unwrap();
    let absolute = in_dir(&case, "a.json").to_str().unwrap().to_owned();
    for (args, part) in [
        ("--format json --format html", "2 formats for 1 output;"),
        ("--format json --format html -o a.html", "2 formats for 1 output;"),
        ("--format json --format html --format csv -o a.html -o -", "3 formats for 2 outputs"),
        ("-o a.json -o a.json", "`a.json` is given twice"),
        ("-o a.json -o ./a.json", "`./a.json` is given twice"),
        ("-o a.json -o b.json -o link.json", "`link.json` is given twice"),
        ("-o a.json -o again/a.json", "`again/a.json` is given twice"),
        (&format!("-o {absolute} -o a.json"), "`a.json` is given twice"),
        ("-o a.json --format csv -o a.json", "`a.json` is given twice"),
        ("-o - -o a.json -o -", "standard output is given twice"),
        ("-o a.html -o a.pdf", "expected .html, .json, .csv, .md or .txt, or --format"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        let ran = here(&case, RULE, NOWHERE, &[&["sweep"][..], &args].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(part), "{args:?}: {ran:?}");
    }
    for command in [&["import"][..], &["native", "diff"], &["native", "apply", "--yes"]] {
        let ran = here(&case, RULE, NOWHERE, &[command, &["-o", "a.json", "-o", "-"]].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{command:?}: {ran:?}");
        assert!(ran.stderr.contains("writes to one output, 2 are given; nothing was contacted"), "{ran:?}");
    }
    assert_eq!(files(&case), ["again", "link.json"]);
}

#[tokio::test]
async fn every_output_is_tried_before_anything_is_contacted() {
    let case = three().await;
    for uri in [NOWHERE, &case.uri] {
        let ran = here(&case, RULE, uri, &["sweep", "-o", "a.json", "-o", "absent/b.html"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(
            ran.stderr.contains("creating the report `absent/b.html`") && ran.stderr.contains("nothing was deleted"),
            "{ran:?}"
        );
    }
    assert_eq!(files(&case), Vec::<String>::new());
    assert_eq!(case.ids("c").await.len(), 3);
}

#[tokio::test]
async fn an_output_that_fails_at_the_end_does_not_keep_the_others_from_being_written() {
    for order in [["/dev/full", "a.json"], ["a.json", "/dev/full"]] {
        for quiet in [&[][..], &["-q"]] {
            let case = three().await;
            let ran = here(&case, RULE, &case.uri, &[&["sweep", "-o", order[0], "-o", order[1]][..], quiet].concat()).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
            assert_eq!(ran.stderr.lines().count(), if quiet.is_empty() { 2 } else { 1 }, "{ran:?}");
            let why = "writing the report to `/dev/full`: No space left on device";
            assert!(ran.stderr.contains(why) && ran.stderr.contains("3 documents deleted"), "{ran:?}");
            let json: Value = serde_json::from_str(&read(&in_dir(&case, "a.json"))).unwrap();
            assert_eq!(json["totals"]["deletedCount"], 3);
            assert_eq!(case.ids("c").await, id_set::<i32>([]));
        }
    }
    // A report that could not be written to any output goes to standard output, once.
    let case = three().await;
    let ran = here(&case, RULE, &case.uri, &["sweep", "--format", "json", "-o", "/dev/full"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(form(&ran.stdout), "json");
    assert!(ran.stderr.contains("written to standard output instead"), "{ran:?}");
    let case = three().await;
    let ran = here(&case, RULE, &case.uri, &["sweep", "--format", "json", "-o", "/dev/full", "-o", "-"]).await;
    assert_eq!((ran.code, form(&ran.stdout)), (Some(1), "table"), "{ran:?}");
}

#[tokio::test]
async fn a_person_is_not_shown_a_page_of_html_because_a_disk_is_full() {
    let case = three().await;
    let args = ["sweep", "--yes", "--format", "html", "-o", "/dev/full"];
    let ran = Terminal::open(&case.command(RULE, &args)).end().await;
    assert_eq!((ran.code, ran.stdout.contains("<html")), (Some(1), false), "{ran:?}");
    for part in ["deleted 3 documents by 1 rule", "warning: the report was written to standard output instead"] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
}

/// Returns the command in a shell that lets the process write no byte to any file.
fn without_files(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

#[tokio::test]
async fn a_process_that_may_write_no_files_says_what_it_deleted() {
    let case = three().await;
    let mut command = sweeper(&["sweep", "--format", "json", "-o"]);
    command.arg(in_dir(&case, "a.json")).arg("--policy").arg(case.policy(RULE)).args(["--uri", &case.uri]);
    let ran = run(without_files(&command)).await;
    assert_eq!((ran.code, form(&ran.stdout)), (Some(1), "json"), "{ran:?}");
    assert!(ran.stderr.contains("File too large") && ran.stderr.contains("3 documents deleted"), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn quiet_keeps_standard_output_empty_and_writes_the_files() {
    let case = three().await;
    for (rules, code, lines) in [(REFUSED, 5, 1), (RULE, 0, 0)] {
        let ran = here(&case, rules, &case.uri, &["sweep", "-q", "-o", "a.html", "-o", "-", "-o", "a.json"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), lines, "{ran:?}");
        assert_eq!((form(&read(&in_dir(&case, "a.html"))), form(&read(&in_dir(&case, "a.json")))), ("html", "json"));
    }
    // If the report is on standard output, the reason is not repeated.
    case.fill("c", dated(0..3, days(-3))).await;
    let ran = here(&case, REFUSED, &case.uri, &["sweep", "-o", "a.html", "-o", "-"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(5), "info: wrote `a.html`\n"), "{ran:?}");
    let ran = here(&case, REFUSED, &case.uri, &["sweep", "-o", "a.html", "-o", "a.json"]).await;
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(5), 3), "{ran:?}");
}

#[tokio::test]
async fn nothing_is_written_over_the_policy_the_lock_or_another_output() {
    let case = three().await;
    let policy = read(&case.policy(RULE));
    for args in [
        &["sweep", "--output", "policy.yaml", "--format", "json"][..],
        &["audit", "--output", "./policy.yaml", "--format", "json"],
        &["sweep", "--metrics-file", "policy.yaml"],
        &["sweep", "--metrics-file", "new", "--output", "./new", "--format", "json"],
        &["sweep", "--metrics-file", "lock", "--lock", "lock"],
        &["sweep", "--output", "lock", "--format", "json", "--lock", "lock"],
    ] {
        let ran = here(&case, RULE, NOWHERE, args).await;
        assert_eq!(ran.code, Some(2), "{args:?} {ran:?}");
        assert!(ran.stderr.contains("nothing was contacted"), "{ran:?}");
        assert_eq!(read(&case.dir.path().join("policy.yaml")), policy);
    }
    assert_eq!(files(&case), [""; 0]);
}

#[tokio::test]
async fn a_new_report_is_for_owner_and_group_whatever_the_umask_allows_and_an_old_one_stays_as_it_is() {
    let case = three().await;
    let modes = async |umask: &str, name: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask \"$1\"; shift; exec \"$@\"", "sh", umask]);
        let sweep = case.command(RULE, &["sweep", "--dry-run", "-o"]);
        shell.arg(sweep.get_program()).args(sweep.get_args().take(3)).arg(in_dir(&case, name)).args(sweep.get_args().skip(3));
        let ran = run(shell).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        std::fs::metadata(in_dir(&case, name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((modes("000", "a.html").await, modes("077", "b.html").await), (0o640, 0o600));
    std::fs::set_permissions(in_dir(&case, "a.html"), Permissions::from_mode(0o644)).unwrap();
    assert_eq!(modes("077", "a.html").await, 0o644);
}
