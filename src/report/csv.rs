//! The report as CSV: one line per rule and namespace, with the values of the run repeated in each.

use super::audit::AuditReport;
use super::{Command, Report, RuleReport};

const HEADER: [&str; 37] = [
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
    "expiredMeasurements",
    "deletedCount",
    "uncertain",
    "remainingCount",
    "oldestRemaining",
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

/// Further columns of an audit.
const OF_AUDIT: [&str; 10] = [
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
];

pub fn render(report: &Report) -> String {
    let further: &[&str] = if report.command == Command::Audit { &OF_AUDIT } else { &[] };
    let row = |rule: &RuleReport| {
        let mut record = record(report, rule);
        if report.command == Command::Audit {
            record.extend(rule.audit.as_ref().map_or_else(Default::default, of_audit));
        }
        record
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail, and all records are of one length.
    let wrote = writer
        .write_record(HEADER.iter().chain(further))
        .and_then(|()| report.rules.iter().try_for_each(|rule| writer.write_record(row(rule))));
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
        rule.predicate.as_ref().map(ToString::to_string).unwrap_or_default(),
        rule.status.word().to_owned(),
        text(&rule.reason),
        number(rule.expired_count),
        number(rule.expired_measurements),
        rule.deleted_count.to_string(),
        rule.uncertain.to_string(),
        number(rule.remaining_count),
        text(&rule.oldest_remaining),
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

/// The cells of [`OF_AUDIT`]: lists as `key=value; key=value`.
fn of_audit(audit: &AuditReport) -> [String; 10] {
    fn list<T>(items: &[T], cell: impl Fn(&T) -> String) -> String {
        items.iter().map(cell).collect::<Vec<_>>().join("; ")
    }
    let bound = |seconds: Option<i64>| seconds.map(|seconds| seconds.to_string()).unwrap_or_default();
    let sampling = audit.sampling.as_ref();
    let ages = audit.age_histogram.as_deref().unwrap_or_default();
    let never: Vec<_> = audit.never_expires_samples.iter().collect();
    let examined = audit.examined.as_ref();
    [
        sampling
            .map(|s| format!("documents={}; of={}; marginPercent={}", s.documents, s.of, s.margin_percent))
            .unwrap_or_default(),
        audit.newest_expired.clone().unwrap_or_default(),
        list(ages, |range| {
            let (min, max) = (bound(range.min_age_seconds), bound(range.max_age_seconds));
            format!("{min}..{max}={}+{}", range.expired_count, range.not_expired_count)
        }),
        list(audit.forecast.as_deref().unwrap_or_default(), |day| format!("{}={}", day.from, day.count)),
        list(audit.backlog.as_deref().unwrap_or_default(), |month| format!("{}={}", month.month, month.count)),
        list(&never, |(reason, ids)| format!("{reason}={}", list(ids, ToString::to_string))),
        list(&audit.samples, |sample| format!("{}={} ({})", sample.id, sample.date, sample.why)),
        examined.map(|e| format!("documents={}; keys={}; returned={}", e.documents, e.keys, e.returned)).unwrap_or_default(),
        audit.create_index.clone().unwrap_or_default(),
        audit.native_comparison.as_ref().map(|native| format!("{}: {}", native.state.word(), native.detail)).unwrap_or_default(),
    ]
}
