//! Names that speak to a terminal, hide, turn the direction of text or break lines: no output for people has them raw, and none
//! writes a line of the log.

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, Ran, id_set, run};
use crate::support::terminal::Terminal;
use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::options::IndexOptions;

/// Sets the title of a terminal, rings, clears the screen, writes a line, goes back in it, hides, turns the direction; with and
/// without ESC.
const HOSTILE: &str = "c\u{1b}]0;owned\u{7}\u{1b}[2J\nerror: forged\r\u{8}\u{9b}31m\u{9d}\u{85}\u{7f}\u{202e}\u{2066}\u{200b}\u{200f}\u{2028}\u{feff}\u{ad}x";

/// Whether a character may stand in a text for people.
fn is_shown(c: char) -> bool {
    c == '\n' || !(c.is_control() || "\u{202e}\u{2066}\u{200b}\u{200f}\u{2028}\u{feff}\u{ad}".contains(c))
}

fn assert_clean(ran: &Ran) {
    for text in [&ran.stdout, &ran.stderr] {
        assert!(text.chars().all(is_shown), "{text:?}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("error: forged")), "{text}");
    }
}

async fn hostile() -> Case {
    let case = Case::new().await;
    case.fill(HOSTILE, dated(0..4, days(-3)).chain(dated(4..6, days(3)))).await;
    for (keys, ttl) in [(doc! { "at": 1 }, None), (doc! { HOSTILE: 1 }, Some(std::time::Duration::from_secs(3_000_000)))] {
        let name = format!("{HOSTILE}{}", keys.len() + usize::from(ttl.is_some()));
        let options = IndexOptions::builder().name(name).expire_after(ttl).build();
        case.collection(HOSTILE).create_index(IndexModel::builder().keys(keys).options(options).build()).await.expect("an index");
    }
    case
}

#[tokio::test]
async fn no_command_writes_a_hostile_name_raw() {
    let case = hostile().await;
    let rule = "  - {namespace: DB.c*, field: at, expireAfter: 1d, maxDeletePercent: 90, ttlField: \"HOST\", filter: {x: {$exists: false}}}\n"
        .replace("HOST", &HOSTILE.escape_unicode().to_string().replace("\\u{", "\\U{"));
    let rule = escaped(&rule);
    let failing = rule.replace("$exists: false", "$nonsense: 1");
    let refused = rule.replace("90", "1").replace("filter", "hint: absent, filter");
    let mut outputs = 0;
    for rules in [&rule, &failing, &refused] {
        for args in [
            &["sweep", "--dry-run", "-vv"][..],
            &["sweep", "--dry-run", "-q"],
            &["sweep", "--dry-run", "--format", "json"],
            &["sweep", "--dry-run", "--format", "markdown"],
            &["sweep", "--dry-run", "--log-format", "json"],
            &["sweep", "--dry-run", "--only", HOSTILE],
            &["sweep", "--dry-run", HOSTILE],
            &["audit", "-vv"],
            &["audit", "--format", "markdown"],
            &["audit", "--format", "json"],
            &["audit", "-o", HOSTILE],
            &["check", "--connect", "-vv"],
            &["native", "diff", "-vv"],
            &["native", "diff", "--format", "json"],
            &["native", "apply", "--dry-run"],
            &["import"],
            &["restore", HOSTILE],
            &["diff", HOSTILE, HOSTILE],
            &["sweep", "--dry-run", "-p", HOSTILE],
        ] {
            let mut command = case.command(rules, args);
            command.current_dir(&case.dir);
            let ran = run(command).await;
            assert_clean(&ran);
            outputs += usize::from(ran.stdout.contains(r"owned\u{7}") || ran.stdout.contains(r"owned\u0007"));
        }
    }
    assert!(outputs > 25, "{outputs} outputs show the name");
    assert_eq!(case.ids(HOSTILE).await, id_set(0..6));
}

/// Writes the escapes of Rust as the escapes of YAML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\U{") {
        let (digits, after) = after.split_once('}').expect("an escape");
        out.push_str(&format!("{before}\\U{digits:0>8}"));
        rest = after;
    }
    out + rest
}

#[tokio::test]
async fn a_sweep_its_archive_and_its_history_write_no_hostile_name_raw() {
    let case = hostile().await;
    std::fs::create_dir(case.dir.path().join("archive")).unwrap();
    let rules = format!(
        "  - {{namespace: DB.c*, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\nhistory: {{collection: DB.runs}}\n",
        case.dir.path().join("archive").display()
    );
    let ran = case.run(&rules, &["sweep", "-vv"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_clean(&ran);
    assert_eq!(case.ids(HOSTILE).await, id_set(4..6));
    let written = std::fs::read_dir(case.dir.path().join("archive")).unwrap().next().unwrap().unwrap().path();
    for args in [&["restore", "--yes", written.to_str().unwrap()][..], &["history"], &["history", "--format", "markdown"]] {
        let ran = case.run(&rules, args).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_clean(&ran);
    }
    assert_eq!(case.ids(HOSTILE).await, id_set(0..6));
}

#[tokio::test]
async fn the_question_and_the_bars_show_no_hostile_name_raw() {
    let case = hostile().await;
    let rule = "  - {namespace: DB.c*, field: at, expireAfter: 1d, batchSize: 1}\n";
    let command = case.command(rule, &["sweep", "--progress", "always", "--color", "always"]);
    let ran = Terminal::open(&command).until_asked().await.types("yes\n").end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let shown = format!("{}{}", ran.stdout, ran.stderr);
    assert!(shown.contains(r"owned\u{7}"), "{shown}");
    for raw in ["\u{1b}]0;", "\u{7}", "\u{1b}[2J", "\nerror: forged", "\u{9b}", "\u{202e}", "\u{200b}"] {
        assert!(!shown.contains(raw), "{raw:?}: {shown:?}");
    }
    assert_eq!(case.ids(HOSTILE).await, id_set(4..6));
}

#[tokio::test]
async fn a_policy_with_a_hostile_path_and_name_writes_one_line_for_each_problem() {
    let case = Case::new().await;
    let path = case.file(HOSTILE, "version: 1\ncollections:\n  - {namespace: a.b, field: at, expireAfter: 5}\n");
    for args in [&["check"][..], &["check", "-q"], &["check", "--log-format", "json"]] {
        let mut command = crate::support::sweeper::sweeper(args);
        command.arg("--policy").arg(&path);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_clean(&ran);
        let lines = ran.stderr.lines().count();
        assert_eq!(lines, if args.len() == 1 { 2 } else { 1 }, "{ran:?}");
    }
}
