//! Report as Markdown, for an issue or a wiki.

use super::lines::{COLUMNS, FIRST_NUMBER, cells, columns, head, last, notes, shown, title, without_row};
use super::table::prefix;
use super::{Report, ReportCommand, TableStyle, audit_text, preview};
use crate::base::text::clean;

pub(super) fn render(report: &Report, look: TableStyle) -> String {
    let mut lines: Vec<String> = head(report).iter().map(|line| format!("{}  ", escape(line))).collect();
    lines.push(String::new());
    lines.push(format!("| {} |", columns(report).join(" | ")));
    let rule: Vec<&str> = (0..COLUMNS).map(|index| if index < FIRST_NUMBER { "---" } else { "---:" }).collect();
    lines.push(format!("| {} |", rule.join(" | ")));
    for rule in shown(report).0 {
        lines.push(format!("| {} |", cells(report, rule).map(|cell| escape(&cell)).join(" | ")));
    }
    lines.push(String::new());
    for (tone, note) in notes(report, look.is_detailed) {
        lines.push(format!("- {}{}", prefix(tone), escape(&note)));
    }
    lines.extend(without_row(report).map(|line| format!("- {}", escape(&line))));
    lines.push(String::new());
    for (rule, audit) in shown(report).0.into_iter().filter_map(|rule| Some((rule, rule.audit.as_ref()?))) {
        lines.extend([format!("### {}", escape(&title(report, rule))), String::new()]);
        // Indented code: text from outside cannot end it, because it contains no line breaks.
        lines.extend(audit_text::section(rule, audit, "    ", look.width).iter().map(|line| clean(line)));
        lines.push(String::new());
    }
    if report.command == ReportCommand::Audit {
        lines.extend([escape(&audit_text::totals(report)), String::new()]);
    }
    if report.dry_run {
        lines.extend(preview::of_run(report).iter().flat_map(|line| [escape(line), String::new()]));
    }
    lines.push(format!("**{}**", escape(&last(report).1)));
    lines.push(String::new());
    lines.join("\n")
}

/// Makes a line safe to print, and escapes the characters that have a meaning in Markdown or HTML, except those in plain names
/// and numbers.
pub(super) fn escape(text: &str) -> String {
    clean(text).chars().fold(String::with_capacity(text.len()), |mut out, c| {
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
