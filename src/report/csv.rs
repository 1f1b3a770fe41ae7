//! Reports as CSV: one line per rule and namespace, with the values of the run repeated in each.

use std::fmt::Display;

use super::{Command, Report, RuleReport};
use crate::audit::figures::AuditReport;

/// Column of every report: its name, and the function that returns its cell for a rule. An empty cell is a value that was not measured.
type Column = (&'static str, fn(&Report, &RuleReport) -> String);

const COLUMNS: [Column; 38] = [
    ("runId", |report, _| report.run_id.clone()),
    ("command", |report, _| report.command.to_string()),
    ("dryRun", |report, _| report.dry_run.to_string()),
    ("asOf", |report, _| known(report.as_of)),
    ("startedAt", |report, _| report.started_at.to_string()),
    ("exitCode", |report, _| report.exit_code.to_string()),
    ("name", |_, rule| rule.name.clone()),
    ("namespace", |_, rule| rule.namespace.clone()),
    ("field", |_, rule| known(rule.field.as_ref())),
    ("expireAfterSeconds", |_, rule| rule.expire_after_seconds.to_string()),
    ("ttlField", |_, rule| known(rule.ttl_field.as_ref())),
    ("threshold", |_, rule| known(rule.threshold)),
    ("predicate", |_, rule| known(rule.predicate.as_ref())),
    ("status", |_, rule| rule.status.to_string()),
    ("reason", |_, rule| known(rule.reason.as_ref())),
    ("expiredCount", |_, rule| known(rule.expired_count)),
    ("expiredMeasurements", |_, rule| known(rule.expired_measurements)),
    ("deletedCount", |_, rule| rule.deleted_count.to_string()),
    ("uncertain", |_, rule| rule.uncertain.to_string()),
    ("unconfirmedCount", |_, rule| known(rule.unconfirmed_count)),
    ("remainingCount", |_, rule| known(rule.remaining_count)),
    ("oldestRemaining", |_, rule| known(rule.oldest_remaining)),
    ("archivedCount", |_, rule| known(rule.archived_count)),
    ("archive", |_, rule| known(rule.archive.as_ref())),
    ("documentCount", |_, rule| known(rule.document_count)),
    ("expiredPercent", |_, rule| known(rule.expired_percent)),
    ("oldestExpired", |_, rule| known(rule.oldest_expired)),
    ("estimatedBytes", |_, rule| known(rule.estimated_bytes)),
    ("neverExpires", |_, rule| list(rule.never_expires.iter().flatten(), |(reason, count)| format!("{reason}={count}"))),
    ("batches", |_, rule| rule.batches.to_string()),
    ("pausedMs", |_, rule| {
        list(rule.paused_ms.iter().flat_map(|paused| paused.by_reason()), |(reason, ms)| format!("{reason}={ms}"))
    }),
    ("requestUnits", |_, rule| known(rule.request_units)),
    ("durationMs", |_, rule| rule.duration_ms.to_string()),
    ("nativeTtl", |_, rule| {
        let seconds = |value: Option<i64>| value.map_or_else(|| "?".to_owned(), |seconds| seconds.to_string());
        list(rule.native_ttl.iter().flatten(), |ttl| format!("{}={}", ttl.field, seconds(ttl.expire_after_seconds)))
    }),
    ("strategy", |_, rule| known(rule.strategy)),
    ("index", |_, rule| known(rule.index.as_ref())),
    ("warnings", |_, rule| rule.warnings.join("; ")),
    ("error", |_, rule| known(rule.error.as_ref())),
];

/// Column that only an audit has; its cell is empty for a rule that was not looked at.
type AuditColumn = (&'static str, fn(&AuditReport) -> String);

const AUDIT_COLUMNS: [AuditColumn; 10] = [
    ("sampling", |audit| {
        list(&audit.sampling, |s| format!("documents={}; of={}; marginPercent={}", s.documents, s.of, s.margin_percent))
    }),
    ("newestExpired", |audit| known(audit.newest_expired)),
    ("ageHistogram", |audit| {
        list(audit.age_histogram.iter().flatten(), |range| {
            let (min, max) = (known(range.min_age_seconds), known(range.max_age_seconds));
            format!("{min}..{max}={}+{}", range.expired_count, range.not_expired_count)
        })
    }),
    ("forecast", |audit| list(audit.forecast.iter().flatten(), |day| format!("{}={}", day.from, day.count))),
    ("backlog", |audit| list(audit.backlog.iter().flatten(), |month| format!("{}={}", month.month, month.count))),
    ("neverExpiresSamples", |audit| {
        list(&audit.never_expires_samples, |(reason, ids)| format!("{reason}={}", list(ids, ToString::to_string)))
    }),
    ("samples", |audit| list(&audit.samples, |sample| format!("{}={} ({})", sample.id, sample.date, sample.why))),
    ("examined", |audit| {
        list(&audit.examined, |e| format!("documents={}; keys={}; returned={}", e.documents, e.keys, e.returned))
    }),
    ("createIndex", |audit| known(audit.create_index.as_ref())),
    ("nativeComparison", |audit| list(&audit.native_comparison, |native| format!("{}: {}", native.state, native.detail))),
];

/// Returns the report as CSV, with further columns for an audit.
pub fn render(report: &Report) -> String {
    let of_audit: &[AuditColumn] = if report.command == Command::Audit { &AUDIT_COLUMNS } else { &[] };
    let head = COLUMNS.iter().map(|(name, _)| *name).chain(of_audit.iter().map(|(name, _)| *name));
    let rows = report.rules.iter().map(|rule| {
        let further = of_audit.iter().map(|(_, cell)| rule.audit.as_ref().map(cell).unwrap_or_default());
        COLUMNS.iter().map(|(_, cell)| cell(report, rule)).chain(further).collect()
    });
    lines(head, rows)
}

/// Renders CSV; all rows must have as many cells as the head.
pub fn lines<'a>(head: impl Iterator<Item = &'a str>, mut rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let wrote = writer.write_record(head).and_then(|()| rows.try_for_each(|row| writer.write_record(row)));
    wrote.expect("records of one length go to memory");
    String::from_utf8(writer.into_inner().expect("a buffer in memory")).expect("CSV of strings is UTF-8")
}

/// Returns the cell of a value; it is empty if the value was not measured.
pub fn known(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the cell of a list: `key=value; key=value`.
fn list<T>(items: impl IntoIterator<Item = T>, cell: impl Fn(T) -> String) -> String {
    items.into_iter().map(cell).collect::<Vec<_>>().join("; ")
}
