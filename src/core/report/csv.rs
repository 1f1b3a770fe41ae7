//! Reports as CSV: one line per rule and namespace, with the values of the run repeated in each.

use std::fmt::Display;

use super::{Report, ReportCommand, RuleReport, estimate};
use crate::core::audit::figures::AuditReport;

/// Names of the columns of every report, in the order of [`cells`].
const COLUMNS: [&str; 57] = [
    "runId",
    "command",
    "dryRun",
    "asOf",
    "startedAt",
    "exitCode",
    "name",
    "namespace",
    "field",
    "expireAfterSeconds",
    "ttlField",
    "threshold",
    "predicate",
    "status",
    "reason",
    "expiredCount",
    "holds",
    "heldCount",
    "heldBy",
    "expiredMeasurements",
    "wouldDeleteCount",
    "wouldDeleteLimit",
    "approvedCount",
    "deletedCount",
    "uncertain",
    "unconfirmedCount",
    "remainingCount",
    "oldestRemaining",
    "archivedCount",
    "archive",
    "childrenCount",
    "childrenDeletedCount",
    "orphansDeletedCount",
    "orphanCount",
    "oldOrphanCount",
    "wouldDeleteOrphanCount",
    "documentCount",
    "expiredPercent",
    "oldestExpired",
    "estimatedBytes",
    "neverExpires",
    "batches",
    "pausedMs",
    "pressureUnknown",
    "requestUnits",
    "estimatedRequestUnits",
    "estimatedSeconds",
    "estimate",
    "durationMs",
    "nativeTtl",
    "strategy",
    "index",
    "order",
    "orderReason",
    "writtenBytesPerDocument",
    "warnings",
    "error",
];

/// Names of the further columns of an audit, in the order of [`audit_cells`].
const AUDIT_COLUMNS: [&str; 12] = [
    "sampling",
    "newestExpired",
    "ageHistogram",
    "forecast",
    "backlog",
    "neverExpiresSamples",
    "samples",
    "examined",
    "createIndex",
    "nativeComparison",
    "ignoredTtlCount",
    "nativeTroubles",
];

/// Returns the report as CSV, with further columns for an audit.
pub(super) fn render(report: &Report) -> String {
    let of_audit: &[&str] = if report.command == ReportCommand::Audit { &AUDIT_COLUMNS } else { &[] };
    let rows = report.rules.iter().map(|rule| {
        let further = rule.audit.as_ref().map(audit_cells).unwrap_or_default();
        cells(report, rule).into_iter().chain(further.into_iter().take(of_audit.len())).collect()
    });
    lines(COLUMNS.iter().chain(of_audit).copied(), rows)
}

/// Returns the cells of a rule. An empty cell is a value that was not measured.
fn cells(report: &Report, rule: &RuleReport) -> [String; COLUMNS.len()] {
    // Every field is named, so that a new one does not compile without a decision.
    let RuleReport {
        name,
        namespace,
        field,
        expire_after_seconds,
        ttl_field,
        threshold,
        predicate,
        status,
        reason,
        expired_count,
        holds,
        held_count,
        held_by,
        expired_measurements,
        would_delete_count,
        would_delete_limit,
        approved_count,
        deleted_count,
        uncertain,
        unconfirmed_count,
        remaining_count,
        oldest_remaining,
        archived_count,
        archive,
        children_count,
        children_deleted_count,
        orphans_deleted_count,
        orphan_count,
        old_orphan_count,
        would_delete_orphan_count,
        document_count,
        expired_percent,
        oldest_expired,
        estimated_bytes,
        never_expires,
        batches,
        paused_ms,
        pressure_unknown,
        request_units,
        estimated_request_units,
        estimated_seconds,
        estimate: expected,
        duration_ms,
        native_ttl,
        strategy,
        index,
        order,
        order_reason,
        written_bytes_per_document,
        warnings,
        error,
        audit: _,
    } = rule;
    let seconds = |value: Option<i64>| value.map_or_else(|| "?".to_owned(), |seconds| seconds.to_string());
    [
        report.run_id.clone(),
        report.command.to_string(),
        report.dry_run.to_string(),
        known(report.as_of),
        report.started_at.to_string(),
        report.exit_code.to_string(),
        name.clone(),
        namespace.clone(),
        known(field.as_ref()),
        expire_after_seconds.to_string(),
        known(ttl_field.as_ref()),
        known(*threshold),
        known(predicate.as_ref()),
        status.to_string(),
        known(reason.as_ref()),
        known(*expired_count),
        known(holds.as_ref()),
        known(*held_count),
        list(held_by.iter().flatten(), |held| format!("{}={}", held.key, held.count)),
        known(*expired_measurements),
        known(*would_delete_count),
        known(*would_delete_limit),
        known(*approved_count),
        deleted_count.to_string(),
        uncertain.to_string(),
        known(*unconfirmed_count),
        known(*remaining_count),
        known(*oldest_remaining),
        known(*archived_count),
        known(archive.as_ref()),
        known(*children_count),
        known(*children_deleted_count),
        known(*orphans_deleted_count),
        known(*orphan_count),
        known(*old_orphan_count),
        known(*would_delete_orphan_count),
        known(*document_count),
        known(*expired_percent),
        known(*oldest_expired),
        known(*estimated_bytes),
        list(never_expires.iter().flatten(), |(reason, count)| format!("{reason}={count}")),
        batches.to_string(),
        list(paused_ms.iter().flat_map(|paused| paused.by_reason()), |(reason, ms)| format!("{reason}={ms}")),
        known(pressure_unknown.as_ref()),
        known(*request_units),
        known(*estimated_request_units),
        known(*estimated_seconds),
        list(expected.iter().flat_map(estimate::named), |(name, value)| format!("{name}={value}")),
        duration_ms.to_string(),
        list(native_ttl.iter().flatten(), |ttl| format!("{}={}", ttl.field, seconds(ttl.expire_after_seconds))),
        known(*strategy),
        known(index.as_ref()),
        known(*order),
        known(order_reason.as_ref()),
        known(*written_bytes_per_document),
        warnings.join("; "),
        known(error.as_ref()),
    ]
}

/// Returns the cells of the figures of an audit.
fn audit_cells(audit: &AuditReport) -> [String; AUDIT_COLUMNS.len()] {
    let AuditReport {
        sampling,
        newest_expired,
        age_histogram,
        forecast,
        backlog,
        never_expires_samples,
        samples,
        examined,
        create_index,
        native_comparison,
        ignored_ttl_count,
        native_troubles,
    } = audit;
    [
        list(sampling, |s| format!("documents={}; of={}; marginPercent={}", s.documents, s.of, s.margin_percent)),
        known(*newest_expired),
        list(age_histogram.iter().flatten(), |range| {
            let (min, max) = (known(range.min_age_seconds), known(range.max_age_seconds));
            format!("{min}..{max}={}+{}", range.expired_count, range.not_expired_count)
        }),
        list(forecast.iter().flatten(), |day| format!("{}={}", day.from, day.count)),
        list(backlog.iter().flatten(), |month| format!("{}={}", month.month, month.count)),
        list(never_expires_samples, |(reason, ids)| format!("{reason}={}", list(ids, ToString::to_string))),
        list(samples, |sample| format!("{}={} ({})", sample.id, sample.date, sample.why)),
        list(examined, |e| format!("documents={}; keys={}; returned={}", e.documents, e.keys, e.returned)),
        known(create_index.as_ref()),
        list(native_comparison, |native| format!("{}: {}", native.state, native.detail)),
        known(*ignored_ttl_count),
        list(native_troubles.iter().flatten(), |trouble| trouble.words()),
    ]
}

/// Renders CSV; all rows must have as many cells as the head.
pub(super) fn lines<'a>(head: impl Iterator<Item = &'a str>, mut rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |row: Vec<String>| writer.write_record(row.into_iter().map(harmless));
    let wrote = write(head.map(str::to_owned).collect()).and_then(|()| rows.try_for_each(write));
    wrote.expect("records of one length go to memory");
    String::from_utf8(writer.into_inner().expect("a buffer in memory")).expect("CSV of strings is UTF-8")
}

/// Puts a `'` before a cell that a spreadsheet would calculate (OWASP, "CSV Injection"): names of collections and indexes come from whoever may create
/// them. Numbers stay as they are.
fn harmless(cell: String) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    let is_number = cell.starts_with(['+', '-']) && cell.contains(|c: char| c.is_ascii_digit()) && cell.parse::<f64>().is_ok();
    if is_formula && !is_number { format!("'{cell}") } else { cell }
}

/// Returns the cell of a value; it is empty if the value was not measured.
pub(super) fn known(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the cell of a list: `key=value; key=value`.
fn list<T>(items: impl IntoIterator<Item = T>, cell: impl Fn(T) -> String) -> String {
    items.into_iter().map(cell).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_numbers_stay_numbers() {
        for (cell, shown) in [
            ("=1+cmd|' /C calc'!A0", "'=1+cmd|' /C calc'!A0"),
            ("@SUM(1)", "'@SUM(1)"),
            ("+1+2", "'+1+2"),
            ("-1+2", "'-1+2"),
            ("-inf", "'-inf"),
            ("\t=1", "'\t=1"),
            ("＝1", "'＝1"),
            ("-1", "-1"),
            ("-1.5e3", "-1.5e3"),
            ("a=b", "a=b"),
            ("", ""),
        ] {
            assert_eq!(harmless(cell.into()), shown);
        }
        let text = lines(["n", "m"].into_iter(), [vec!["\r=1,2".to_owned(), "-1".to_owned()]].into_iter());
        assert_eq!(text, "n,m\n\"'\r=1,2\",-1\n");
    }
}
