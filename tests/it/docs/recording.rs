//! The recording of the first five minutes, played again: the page shows what the program shows today.
//!
//! `SWEEPER_RECORD=1 cargo test --test it docs::recording` records it anew.

use std::path::Path;
use std::process::Command;

use mongodb::bson::{DateTime, doc};

use crate::support::faults::alone;
use crate::support::terminal::Terminal;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/first-five-minutes.txt");

/// The command lines, each with the answer to its question.
const STEPS: [(&str, Option<&str>); 7] = [
    ("init --namespace shop.sessions --field lastModified --expire-after 1h", None),
    ("check --connect", None),
    ("sweep --dry-run", None),
    ("why shop.sessions 3", None),
    ("sweep", Some("yes\n")),
    ("why shop.sessions 1500", None),
    ("sweep --dry-run", None),
];

/// Runs a command line on a terminal, and returns what is shown.
async fn shown(run: &Path, line: &str, answer: Option<&str>) -> String {
    let mut command = Command::new(run);
    command.args(line.split(' ')).args(["--progress", "never", "--color", "never"]);
    let mut terminal = Terminal::open(&command);
    let mut text = String::new();
    if let Some(answer) = answer {
        terminal = terminal.until_asked().await.types(answer);
        text.clone_from(&terminal.shown);
    }
    let ran = terminal.end().await;
    text += &ran.stdout;
    let lines: Vec<&str> = text.split("\r\n").map(str::trim_end).collect();
    format!("$ sweeper {line}\n{}\n", lines.join("\n").trim_end())
}

/// Returns the words of a text, in which every number, every id and every mark of a unit stand for any.
fn words(text: &str) -> Vec<String> {
    let is_id = |word: &str| word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let plain = |word: &str| {
        let parts =
            word.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).map(|part| if is_id(part) { "0" } else { part });
        let digits = parts.flat_map(str::chars).filter(|c| !c.is_ascii_digit());
        digits.collect::<String>()
    };
    let is_unit = |word: &str| ["ms", "s", "B", "KiB", "MiB", "KiB,", "B,", "s,", "ms,"].contains(&word);
    text.split_whitespace().filter(|word| !is_unit(word)).map(plain).filter(|word| !word.is_empty()).collect()
}

#[tokio::test]
async fn the_first_five_minutes_are_as_recorded() {
    let (_mongod, case) = alone().await;
    let sessions = case.client.database("shop").collection("sessions");
    let now = DateTime::now().timestamp_millis();
    let at = |id: i64| DateTime::from_millis(if id < 842 { now - 172_800_000 + id } else { now });
    sessions.insert_many((0..2000).map(|id| doc! { "_id": id, "lastModified": at(id) })).await.unwrap();
    let run = case.dir.path().join("run");
    let script = format!(
        "#!/bin/sh\ncd '{}' && MONGODB_URI='{}' exec '{}' \"$@\"\n",
        case.dir.path().display(),
        case.uri,
        env!("CARGO_BIN_EXE_sweeper")
    );
    std::fs::write(&run, script).unwrap();
    std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut recording = Vec::new();
    for (line, answer) in STEPS {
        recording.push(shown(&run, line, answer).await);
    }
    let recording = recording.join("\n");
    if std::env::var_os("SWEEPER_RECORD").is_some() {
        std::fs::write(PAGE, &recording).unwrap();
    }
    let recorded = std::fs::read_to_string(PAGE).unwrap();
    assert_eq!(words(&recording), words(&recorded), "record it again:\n{recording}");
}
