//! Report as aligned text, narrow enough for a mail from cron.

use anstyle::{AnsiColor, Style};
use textwrap::core::display_width;

use super::lines::{COLUMNS, FIRST_NUMBER, Tone, cells, head, last, notes, shown, title};
use super::{Report, ReportCommand, audit_text};
use crate::text::{clean, fold, page};

/// Renders the table, the notes below it and the last line; the text ends with a newline.
pub(super) fn render(report: &Report, colored: bool) -> String {
    let rows = std::iter::once(COLUMNS.map(str::to_owned)).chain(shown(report).0.into_iter().map(|rule| cells(report, rule)));
    let mut out = page(head(report));
    out.push('\n');
    out.push_str(&page(align(&rows.collect::<Vec<_>>(), |column| column >= FIRST_NUMBER)));
    let notes = notes(report);
    if !notes.is_empty() {
        out.push('\n');
    }
    for (tone, note) in notes {
        out.push_str(&painted(&fold(&format!("{}{note}", prefix(tone)), "  "), tone, colored));
    }
    for (rule, audit) in shown(report).0.into_iter().filter_map(|rule| Some((rule, rule.audit.as_ref()?))) {
        out.push('\n');
        out.push_str(&page(std::iter::once(title(report, rule)).chain(audit_text::section(rule, audit, "  "))));
    }
    out.push('\n');
    if report.command == ReportCommand::Audit {
        out.push_str(&page(fold(&audit_text::totals(report), "  ")));
    }
    let (tone, line) = last(report);
    out.push_str(&painted(&fold(&line, "  "), tone, colored));
    out
}

/// Aligns rows to columns with two blanks between them. `is_number` says which columns are aligned to the right.
pub(super) fn align<const N: usize>(rows: &[[String; N]], is_number: impl Fn(usize) -> bool) -> Vec<String> {
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| clean(cell))).collect();
    let widths: [usize; N] = std::array::from_fn(|column| rows.iter().map(|row| display_width(&row[column])).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            let blanks = " ".repeat(width - display_width(cell));
            if is_number(column) { format!("{blanks}{cell}") } else { format!("{cell}{blanks}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
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

/// Makes a line safe to print, and colours it by its tone, if `colored`.
pub(super) fn paint(line: &str, tone: Tone, colored: bool) -> String {
    let text = clean(line);
    let style = match tone {
        Tone::Warning => AnsiColor::Yellow.on_default(),
        Tone::Error => AnsiColor::Red.on_default(),
        Tone::Plain => Style::new(),
    };
    if colored { format!("{style}{text}{style:#}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_on_a_terminal() {
        let rows =
            [["rule", "expired", "time"], ["数", "1,234", "-"], ["sessions", "-", "2.0 s"]].map(|row| row.map(str::to_owned));
        assert_eq!(
            align(&rows, |column| column > 0),
            ["rule      expired   time", "数          1,234      -", "sessions        -  2.0 s"]
        );
        assert_eq!(align(&rows, |_| false)[1], "数        1,234    -");
        assert_eq!(align::<2>(&[], |_| true), Vec::<String>::new());
    }
}
