//! The report as CSV: one line per rule and namespace, with the values of the run repeated in each.

use super::{Report, RuleReport};

const HEADER: [&str; 34] = [
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
    "status",
    "reason",
    "expiredCount",
    "expiredMeasurements",
    "deletedCount",
    "uncertain",
    "archivedCount",
    "archive",
    "documentCount",
    "expiredPercent",
    "oldestExpired",
    "estimatedBytes",
    "neverExpires",
    "batches",
    "pausedMs",
    "requestUnits",
    "durationMs",
    "nativeTtl",
    "strategy",
    "index",
    "warnings",
    "error",
];

pub fn render(report: &Report) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and all records are of one length.
    let wrote = writer
        .write_record(HEADER)
        .and_then(|()| report.rules.iter().try_for_each(|rule| writer.write_record(record(report, rule))));
    wrote.expect("records of one length go to memory");
    String::from_utf8(writer.into_inner().expect("a buffer in memory")).expect("CSV of strings is UTF-8")
}

/// An empty cell is a value that was not measured.
fn record(report: &Report, rule: &RuleReport) -> Vec<String> {
    fn number(value: Option<u64>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let never: Option<Vec<_>> =
        rule.never_expires.as_ref().map(|counts| counts.iter().map(|(reason, number)| format!("{reason}={number}")).collect());
    let native: Option<Vec<_>> = rule.native_ttl.as_ref().map(|settings| {
        let seconds = |value: Option<i64>| value.map_or_else(|| "?".to_owned(), |seconds| seconds.to_string());
        settings.iter().map(|setting| format!("{}={}", setting.field, seconds(setting.expire_after_seconds))).collect()
    });
    let paused = rule.paused_ms.map(|paused| {
        format!("lag={}; latency={}; rate={}; throttle={}", paused.lag, paused.latency, paused.rate, paused.throttle)
    });
    vec![
        report.run_id.clone(),
        format!("{:?}", report.command).to_lowercase(),
        report.dry_run.to_string(),
        text(&report.as_of),
        report.started_at.clone(),
        report.exit_code.to_string(),
        rule.name.clone(),
        rule.namespace.clone(),
        text(&rule.field),
        rule.expire_after_seconds.to_string(),
        text(&rule.ttl_field),
        text(&rule.threshold),
        rule.status.word().to_owned(),
        text(&rule.reason),
        number(rule.expired_count),
        number(rule.expired_measurements),
        rule.deleted_count.to_string(),
        rule.uncertain.to_string(),
        number(rule.archived_count),
        text(&rule.archive),
        number(rule.document_count),
        rule.expired_percent.map(|percent| percent.to_string()).unwrap_or_default(),
        text(&rule.oldest_expired),
        number(rule.estimated_bytes),
        never.unwrap_or_default().join("; "),
        rule.batches.to_string(),
        paused.unwrap_or_default(),
        rule.request_units.map(|units| units.to_string()).unwrap_or_default(),
        rule.duration_ms.to_string(),
        native.unwrap_or_default().join("; "),
        text(&rule.strategy),
        text(&rule.index),
        rule.warnings.join("; "),
        text(&rule.error),
    ]
}
