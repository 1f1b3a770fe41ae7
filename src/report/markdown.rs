//! The report as Markdown, for an issue or a wiki.

use super::Report;
use super::lines::{COLUMNS, FIRST_NUMBER, cells, head, last, notes, shown};
use super::table::prefix;

pub fn render(report: &Report) -> String {
    let mut lines: Vec<String> = head(report).iter().map(|line| format!("{}  ", escape(line))).collect();
    lines.push(String::new());
    lines.push(format!("| {} |", COLUMNS.join(" | ")));
    let rule: Vec<&str> = (0..COLUMNS.len()).map(|index| if index < FIRST_NUMBER { "---" } else { "---:" }).collect();
    lines.push(format!("| {} |", rule.join(" | ")));
    for rule in shown(report).0 {
        lines.push(format!("| {} |", cells(report, rule).map(|cell| escape(&cell)).join(" | ")));
    }
    lines.push(String::new());
    for (tone, note) in notes(report) {
        lines.push(format!("- {}{}", prefix(tone), escape(&note)));
    }
    lines.push(String::new());
    lines.push(format!("**{}**", escape(&last(report).1)));
    lines.push(String::new());
    lines.join("\n")
}

/// Takes the meaning from every character that Markdown or HTML gives one, but those of plain names and numbers.
pub fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => out.extend(['\\', c]),
            c => out.push(c),
        }
        out
    })
}
