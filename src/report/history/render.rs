//! The history as a table, JSON, CSV or Markdown.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{History, RecordedRun, trend};
use crate::report::markdown::escape;
use crate::report::{Format, json};
use crate::text::{clean, compact, count, duration, fold, plural};

const COLUMNS: [&str; 8] = ["started (UTC)", "exit", "status", "deleted", "expired", "time", "docs/s", "remaining"];

/// Columns that hold words.
const WORDS: [usize; 2] = [0, 2];

/// Runs that a line of letters shows at most, the newest.
const WIDEST: usize = 60;

/// Shows the history; ends with a newline. `unicode` says whether the table's reader can show blocks.
pub fn render(history: &History, format: Format, unicode: bool) -> String {
    match format {
        Format::Json => json::render(history),
        Format::Csv => csv(history),
        Format::Markdown => markdown(history),
        // Pages are for reports: `history` refuses to make one.
        Format::Table | Format::Html => table(history, unicode),
    }
}

fn table(history: &History, unicode: bool) -> String {
    if history.runs.is_empty() {
        return format!("no run is recorded in {}\n", clean(&history.collection));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(COLUMNS);
    history.runs.iter().for_each(|run| {
        table.add_row(cells(run));
    });
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if !WORDS.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    let below = summary(history, unicode).into_iter().map(|line| fold(&line, "  "));
    let mut out = format!("runs in {}, the newest first\n\n", clean(&history.collection));
    out.extend(lines.into_iter().chain([String::new()]).chain(below).map(|line| line + "\n"));
    out
}

fn markdown(history: &History) -> String {
    let mut lines = vec![format!("Runs in {}, the newest first  ", escape(&clean(&history.collection))), String::new()];
    lines.push(format!("| {} |", COLUMNS.join(" | ")));
    let rule: Vec<&str> = (0..COLUMNS.len()).map(|index| if WORDS.contains(&index) { "---" } else { "---:" }).collect();
    lines.push(format!("| {} |", rule.join(" | ")));
    lines.extend(history.runs.iter().map(|run| format!("| {} |", cells(run).map(|cell| escape(&cell)).join(" | "))));
    lines.push(String::new());
    lines.extend(summary(history, true).iter().map(|line| format!("- {}", escape(line))));
    lines.push(String::new());
    lines.join("\n")
}

/// One row, in the order of [`COLUMNS`].
fn cells(run: &RecordedRun) -> [String; 8] {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), compact);
    [
        minute(&run.started_at),
        run.exit_code.to_string(),
        clean(&run.status),
        compact(run.deleted_count),
        number(run.expired_count),
        duration(run.duration_ms),
        run.deleted_per_second.map_or_else(|| "-".to_owned(), whole),
        number(run.remaining_count),
    ]
}

/// What the rows together say, and why runs came to no end.
fn summary(history: &History, unicode: bool) -> Vec<String> {
    let (Some(latest), Some(median)) = (history.runs.first(), &history.median) else { return Vec::new() };
    let mut lines = Vec::new();
    if history.runs.len() > 1 {
        let mut deleted: Vec<u64> = history.runs.iter().take(WIDEST).map(|run| run.deleted_count).collect();
        deleted.reverse();
        lines.push(format!("deleted, oldest first: {}", trend::sparkline(&deleted, unicode)));
        let rate = median.deleted_per_second.map(|rate| format!(", {} per second", whole(rate)));
        lines.push(format!(
            "median: {} deleted in {}{}",
            whole(median.deleted_count),
            duration(median.duration_ms as u64),
            rate.unwrap_or_default()
        ));
        let beside = |value, median| trend::times(value, median).map(|times| format!(" ({times})")).unwrap_or_default();
        lines.push(format!(
            "latest: {} deleted{} in {}{}",
            count(latest.deleted_count),
            beside(latest.deleted_count as f64, median.deleted_count),
            duration(latest.duration_ms),
            beside(latest.duration_ms as f64, median.duration_ms)
        ));
    }
    let bad = history.runs.iter().filter(|run| run.exit_code != 0).count();
    if bad > 0 {
        lines.push(format!("{} of {} did not end with 0", bad, plural(history.runs.len() as u64, "run")));
    }
    let errors = history.runs.iter().filter_map(|run| Some((run, run.error.as_ref()?)));
    lines.extend(errors.map(|(run, why)| format!("{}: {}", minute(&run.started_at), clean(why))));
    lines
}

/// An instant to the minute.
fn minute(instant: &str) -> String {
    match instant.get(..16) {
        Some(minute) if instant.ends_with('Z') => minute.replace('T', " "),
        _ => instant.to_owned(),
    }
}

fn whole(value: f64) -> String {
    // A cast from float saturates.
    compact(value.round() as u64)
}

fn csv(history: &History) -> String {
    const HEADER: [&str; 10] = [
        "runId",
        "startedAt",
        "durationMs",
        "exitCode",
        "status",
        "expiredCount",
        "deletedCount",
        "remainingCount",
        "deletedPerSecond",
        "error",
    ];
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let record = |run: &RecordedRun| {
        [
            run.run_id.clone(),
            run.started_at.clone(),
            run.duration_ms.to_string(),
            run.exit_code.to_string(),
            run.status.clone(),
            number(run.expired_count),
            run.deleted_count.to_string(),
            number(run.remaining_count),
            run.deleted_per_second.map(|rate| rate.to_string()).unwrap_or_default(),
            run.error.clone().unwrap_or_default(),
        ]
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    let wrote =
        writer.write_record(HEADER).and_then(|()| history.runs.iter().try_for_each(|run| writer.write_record(record(run))));
    wrote.expect("records of one length go to memory");
    String::from_utf8(writer.into_inner().expect("a buffer in memory")).expect("CSV of strings is UTF-8")
}
