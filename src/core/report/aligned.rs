//! Aligned and coloured lines of text.

use anstyle::{AnsiColor, Style};
use textwrap::core::display_width;

use crate::base::text::clean;

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Warning,
    Error,
}

/// Aligns rows to columns with two blanks between them. `is_number` says which columns are aligned to the right.
pub(crate) fn align<const N: usize>(rows: &[[String; N]], is_number: impl Fn(usize) -> bool) -> Vec<String> {
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

/// Aligns rows as [`align`] does, the first of them the heads, and returns the lines of each row. If they would be wider than
/// `width`, a first cell that is too long stands above its row.
pub(crate) fn align_within<const N: usize>(
    rows: &[[String; N]],
    is_number: impl Fn(usize) -> bool,
    width: usize,
) -> Vec<Vec<String>> {
    let length = |row: &[String; N]| display_width(&clean(&row[0]));
    let lines = align(rows, &is_number);
    let excess = lines.iter().map(|line| display_width(line)).max().unwrap_or(0).saturating_sub(width);
    if excess == 0 {
        return lines.into_iter().map(|line| vec![line]).collect();
    }
    let room = rows.iter().map(length).max().unwrap_or(0).saturating_sub(excess);
    let is_above = |row: &[String; N]| length(row) > room;
    let below: Vec<[String; N]> = rows
        .iter()
        .cloned()
        .map(|mut row| {
            if is_above(&row) {
                row[0].clear();
            }
            row
        })
        .collect();
    let lines = align(&below, is_number).into_iter().zip(rows).enumerate();
    lines.map(|(index, (line, row))| if index > 0 && is_above(row) { vec![clean(&row[0]), line] } else { vec![line] }).collect()
}

/// Joins the lines of a table to a text: the heads bold, the others by their tones, if `colored`.
pub(crate) fn table(lines: Vec<(Tone, String)>, colored: bool) -> String {
    let mut lines = lines.into_iter();
    let heads = lines.next().map(|(_, line)| bold(&line, colored) + "\n");
    heads.into_iter().chain(lines.map(|(tone, line)| paint(&line, tone, colored) + "\n")).collect()
}

/// Makes a line safe to print, and bold, if `colored`.
pub(crate) fn bold(line: &str, colored: bool) -> String {
    let (text, style) = (clean(line), Style::new().bold());
    if colored { format!("{style}{text}{style:#}") } else { text }
}

/// Makes a line safe to print, and colours it by its tone, if `colored`.
pub(crate) fn paint(line: &str, tone: Tone, colored: bool) -> String {
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

    #[test]
    fn a_name_that_makes_a_table_too_wide_stands_above_its_row() {
        let rows =
            [["rule", "expired"], ["sessions", "1,234"], ["shop.passwordResetTokens", "5"]].map(|row| row.map(str::to_owned));
        let within = |width| align_within(&rows, |column| column > 0, width);
        assert_eq!(within(33).concat(), align(&rows, |column| column > 0));
        assert_eq!(
            within(32),
            [vec!["rule      expired"], vec!["sessions    1,234"], vec!["shop.passwordResetTokens", "                5"],]
        );
        assert_eq!(within(10), [vec!["  expired"], vec!["sessions", "    1,234"], vec!["shop.passwordResetTokens", "        5"]]);
    }
}
