//! Text on a narrow terminal: lines are broken between words, and values stay whole.

use std::process::Command;

use crate::support::faults::{dated, days};
use crate::support::sweeper::Case;
use crate::support::terminal::Terminal;

const RULES: &str =
    "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {_id: {$gte: 0}}}\nhistory: {collection: DB.runs}\n";

/// Runs a command on a terminal of 66 columns, and returns the lines that it shows.
async fn lines(command: &Command) -> Vec<String> {
    let mut narrow = Command::new("sh");
    narrow.args(["-c", "stty cols 66 && exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    narrow.args(["--color", "never"]);
    let ran = Terminal::open(&narrow).end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn why_history_and_diff_are_broken_between_words() {
    let case = Case::new().await;
    case.fill("c", dated(0..10, days(-3)).chain(dated(10..20, days(3)))).await;
    let report = |name: &str| case.dir.path().join(name).display().to_string();
    for (name, option) in [("old.json", "--dry-run"), ("new.json", "--yes")] {
        let ran = case.run(RULES, &["sweep", option, "-o", &report(name)]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let collection = case.collection("c").namespace().to_string();
    for (args, whole) in [
        (vec!["why", &collection, "12"], "  filter     yes  {"),
        (vec!["history"], "     0  complete       10        -  "),
        (vec!["diff", &report("old.json"), &report("new.json")], "  deletedCount  "),
    ] {
        let shown = lines(&case.command(RULES, &args)).await;
        for line in &shown {
            let is_one_word = line.trim_start().split(' ').count() == 1;
            assert!(line.chars().count() <= 66 || is_one_word, "{line:?}: {shown:#?}");
        }
        assert!(shown.iter().any(|line| line.starts_with(whole)), "{whole}: {shown:#?}");
    }
}
