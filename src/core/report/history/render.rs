//! History as a table, JSON, CSV or Markdown.

use super::{History, RecordedRun, trend};
use crate::base::text::{compact, count, duration, fold_to, page, plural};
use crate::core::report::aligned::{self, Tone, align_within};
use crate::core::report::csv::{lines, plain};
use crate::core::report::markdown::escape;
use crate::core::report::{Format, TableStyle, json};

const COLUMNS: [&str; 8] = ["started (UTC)", "exit", "status", "deleted", "expired", "time", "docs/s", "remaining"];

/// Columns with words instead of numbers.
const WORDS: [usize; 2] = [0, 2];

/// Maximum number of runs in the sparkline; the newest are shown.
const MAX_LETTERS: usize = 60;

/// Renders the history; the text ends with a newline. `unicode` says whether the table's reader can show block characters.
pub fn render(history: &History, format: Format, unicode: bool, look: TableStyle) -> String {
    match format {
        Format::Json => json::render(history),
        Format::Csv => csv(history),
        Format::Markdown => markdown(history),
        // A history has no HTML page: the command `history` refuses the format.
        Format::Table | Format::Html => table(history, unicode, look),
    }
}

fn table(history: &History, unicode: bool, TableStyle { colored, width, .. }: TableStyle) -> String {
    if history.runs.is_empty() {
        return page([format!("no run to show of {}", history.collection)]);
    }
    let rows = std::iter::once(COLUMNS.map(str::to_owned)).chain(history.runs.iter().map(cells));
    let rows = align_within(&rows.collect::<Vec<_>>(), |column| !WORDS.contains(&column), width);
    let tones = std::iter::once(Tone::Plain).chain(history.runs.iter().map(tone));
    let lines = tones.zip(rows).flat_map(|(tone, lines)| lines.into_iter().map(move |line| (tone, line)));
    let below = summary(history, unicode).into_iter().flat_map(|line| fold_to(&line, "  ", width));
    let head = [format!("runs in {}, the newest first", history.collection), String::new()];
    page(head) + &aligned::table(lines.collect(), colored) + &page(std::iter::once(String::new()).chain(below))
}

fn tone(run: &RecordedRun) -> Tone {
    match run.status.as_str() {
        "complete" | "running" => Tone::Plain,
        "partial" | "refused" => Tone::Warning,
        _ => Tone::Error,
    }
}

fn markdown(history: &History) -> String {
    let mut lines = vec![format!("Runs in {}, the newest first  ", escape(&history.collection)), String::new()];
    lines.push(format!("| {} |", COLUMNS.join(" | ")));
    let rule: Vec<&str> = (0..COLUMNS.len()).map(|index| if WORDS.contains(&index) { "---" } else { "---:" }).collect();
    lines.push(format!("| {} |", rule.join(" | ")));
    lines.extend(history.runs.iter().map(|run| format!("| {} |", cells(run).map(|cell| escape(&cell)).join(" | "))));
    lines.push(String::new());
    lines.extend(summary(history, true).iter().map(|line| format!("- {}", escape(line))));
    lines.push(String::new());
    lines.join("\n")
}

/// Returns the cells of a run, in the order of [`COLUMNS`].
fn cells(run: &RecordedRun) -> [String; 8] {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), compact);
    [
        run.started_at.minute(),
        run.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
        run.status.clone(),
        number(run.deleted_count),
        number(run.expired_count),
        run.duration_ms.map_or_else(|| "-".to_owned(), duration),
        run.deleted_per_second.map_or_else(|| "-".to_owned(), whole),
        number(run.remaining_count),
    ]
}

/// Returns the lines below the table: trend, medians, runs that have not ended, and the errors of runs without a report.
fn summary(history: &History, unicode: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let ended: Vec<&RecordedRun> = history.runs.iter().filter(|run| run.has_ended()).collect();
    let reported = history.runs.iter().filter(|run| run.has_report());
    let reported: Vec<(u64, u64)> = reported.filter_map(|run| Some((run.deleted_count?, run.duration_ms?))).collect();
    if let (Some(&(latest_deleted, latest_duration)), Some(median), true) =
        (reported.first(), &history.median, reported.len() > 1)
    {
        let mut deleted: Vec<u64> = reported.iter().take(MAX_LETTERS).map(|(deleted, _)| *deleted).collect();
        deleted.reverse();
        lines.push(format!("deleted, oldest first: {}", trend::sparkline(&deleted, unicode)));
        let rate = median.deleted_per_second.map(|rate| format!(", {} per second", whole(rate)));
        lines.push(format!(
            "median: {} deleted in {}{}",
            whole(median.deleted_count),
            duration(median.duration_ms as u64),
            rate.unwrap_or_default()
        ));
        let compared = |value, median| trend::times(value, median).map(|times| format!(" ({times})")).unwrap_or_default();
        lines.push(format!(
            "latest: {} deleted{} in {}{}",
            count(latest_deleted),
            compared(latest_deleted as f64, median.deleted_count),
            duration(latest_duration),
            compared(latest_duration as f64, median.duration_ms)
        ));
    }
    let bad = ended.iter().filter(|run| run.exit_code != Some(0)).count();
    if bad > 0 {
        lines.push(format!("{} of {} did not end with 0", bad, plural(ended.len() as u64, "run")));
    }
    lines.extend(history.runs.iter().filter(|run| !run.has_ended()).map(|run| {
        let host = run.host.as_deref().map(|host| format!(" on {host}")).unwrap_or_default();
        let process = run.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
        format!(
            "{}: run {}{host}{process} has not ended: it still runs, or it was killed, and what it deleted is not recorded",
            run.started_at.minute(),
            run.run_id
        )
    }));
    let errors = history.runs.iter().filter_map(|run| Some((run, run.error.as_ref()?)));
    lines.extend(errors.map(|(run, why)| {
        // Details and the hint are lines of their own in the log.
        let why: Vec<&str> = why.lines().map(str::trim).collect();
        format!("{}: {}", run.started_at.minute(), why.join("; "))
    }));
    lines
}

fn whole(value: f64) -> String {
    // A cast from float saturates.
    compact(value.round() as u64)
}

/// Renders the values of each run by their names.
fn csv(history: &History) -> String {
    let rows = history.runs.iter().map(|run| json::values(run).values().map(plain).collect());
    lines(json::values(&RecordedRun::default()).keys().map(String::as_str), rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::report::SCHEMA_VERSION;

    #[test]
    fn an_error_with_a_hint_is_one_paragraph_in_text_and_markdown() {
        let error = "reading: no such file; nothing was deleted\n  p:1:1: first\nhint: name one with -p";
        let run = RecordedRun { status: "failed".into(), error: Some(error.into()), ..RecordedRun::default() };
        let history = History {
            schema_version: SCHEMA_VERSION,
            command: "history",
            collection: "ops.runs".into(),
            runs: vec![run],
            median: None,
        };
        let expected = ": reading: no such file; nothing was deleted; p:1:1: first; hint: name one with -p\n";
        for format in [Format::Table, Format::Markdown] {
            let text = render(&history, format, true, TableStyle { width: 200, ..TableStyle::default() });
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
