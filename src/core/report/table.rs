//! Report as aligned text, narrow enough for a mail from cron.

use super::aligned::{Tone, align_within, paint, table};
use super::lines::{FIRST_NUMBER, cells, columns, head, last, notes, shown, title, tone, without_row};
use super::{Report, ReportCommand, TableStyle, audit_text, preview};
use crate::base::text::{fold_to, page};

/// Renders the table, the notes below it and the last line; the text ends with a newline.
pub(super) fn render(report: &Report, look: TableStyle) -> String {
    let TableStyle { colored, width, is_detailed } = look;
    let fold = |text: &str| fold_to(text, "  ", width);
    let mut out = page(head(report).iter().flat_map(|line| fold(line)));
    out.push('\n');
    let without_row = without_row(report).filter(|_| !report.dry_run);
    out.push_str(&table(if report.dry_run { preview::table(report, width) } else { rows(report, width) }, colored));
    let notes = notes(report, is_detailed);
    if !notes.is_empty() || without_row.is_some() {
        out.push('\n');
    }
    for (tone, note) in notes {
        out.push_str(&painted(&fold(&format!("{}{note}", prefix(tone))), tone, colored));
    }
    out.push_str(&page(without_row));
    for (rule, audit) in shown(report).0.into_iter().filter_map(|rule| Some((rule, rule.audit.as_ref()?))) {
        out.push('\n');
        out.push_str(&page(std::iter::once(title(report, rule)).chain(audit_text::section(rule, audit, "  ", width))));
    }
    out.push('\n');
    if report.command == ReportCommand::Audit {
        out.push_str(&page(fold(&audit_text::totals(report))));
    }
    if report.dry_run {
        out.push_str(&page(preview::of_run(report).iter().flat_map(|line| fold(line))));
    }
    let (tone, line) = last(report);
    out.push_str(&painted(&fold(&line), tone, colored));
    out
}

/// Returns the heads of the columns and the row of each rule.
fn rows(report: &Report, width: usize) -> Vec<(Tone, String)> {
    let rules = shown(report).0;
    let rows = std::iter::once(columns(report).map(str::to_owned)).chain(rules.iter().map(|rule| cells(report, rule)));
    let tones = std::iter::once(Tone::Plain).chain(rules.iter().map(|rule| tone(rule.status)));
    let rows = align_within(&rows.collect::<Vec<_>>(), |column| column >= FIRST_NUMBER, width);
    tones.zip(rows).flat_map(|(tone, lines)| lines.into_iter().map(move |line| (tone, line))).collect()
}

/// Returns the word before a note.
pub(super) fn prefix(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Warning => "warning: ",
        Tone::Error => "error: ",
    }
}

/// Joins lines to a text, each of them coloured.
fn painted(lines: &[String], tone: Tone, colored: bool) -> String {
    lines.iter().map(|line| paint(line, tone, colored) + "\n").collect()
}
