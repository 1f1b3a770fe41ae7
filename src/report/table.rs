//! The report as aligned text: narrow enough for a mail from cron.

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::lines::{COLUMNS, FIRST_NUMBER, Tone, cells, head, last, notes, shown, title};
use super::{Command, Report, audit_text};
use crate::text::fold;

pub fn render(report: &Report, colored: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(COLUMNS);
    for rule in shown(report).0 {
        table.add_row(cells(report, rule));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= FIRST_NUMBER {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out = head(report).join("\n");
    out.push_str("\n\n");
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let notes = notes(report);
    if !notes.is_empty() {
        out.push('\n');
    }
    for (tone, note) in notes {
        out.push_str(&paint(&fold(&format!("{}{note}", prefix(tone)), "  "), tone, colored));
        out.push('\n');
    }
    for (rule, audit) in shown(report).0.into_iter().filter_map(|rule| Some((rule, rule.audit.as_ref()?))) {
        out.push_str(&format!("\n{}\n", title(report, rule)));
        for line in audit_text::section(rule, audit, "  ") {
            out.push_str(&line);
            out.push('\n');
        }
    }
    if report.command == Command::Audit {
        out.push_str(&format!("\n{}", fold(&audit_text::totals(report), "  ")));
    }
    let (tone, line) = last(report);
    out.push('\n');
    out.push_str(&paint(&fold(&line, "  "), tone, colored));
    out.push('\n');
    out
}

pub fn prefix(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Warning => "warning: ",
        Tone::Error => "error: ",
    }
}

pub fn paint(text: &str, tone: Tone, colored: bool) -> String {
    let style = match tone {
        Tone::Warning => AnsiColor::Yellow.on_default(),
        Tone::Error => AnsiColor::Red.on_default(),
        Tone::Plain => Style::new(),
    };
    if colored { format!("{style}{text}{style:#}") } else { text.to_owned() }
}
