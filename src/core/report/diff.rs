//! Differences between two reports, in the values that a person would ask about.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::aligned::{align, bold};
use super::csv::{known, lines};
use super::{PolicyReport, Report, RuleReport, SCHEMA_VERSION, Totals};
use crate::base::instant::Instant;
use crate::base::text::{clean, count, fold};
use crate::core::audit::figures::AuditReport;

/// Values that not every command measures.
const MEASURED: [&str; 9] = [
    "documentCount",
    "estimatedBytes",
    "expiredCount",
    "expiredMeasurements",
    "expiredPercent",
    "forecast",
    "nativeTtl",
    "oldestExpired",
    "unconfirmedCount",
];

/// Columns of a comparison as CSV.
const COLUMNS: [&str; 6] = ["rule", "namespace", "key", "old", "new", "difference"];

/// Comparison of two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    pub schema_version: u32,
    pub command: &'static str,
    pub old: Side,
    pub new: Side,
    /// Values that differ: first those of the run, then those of each rule.
    pub changes: Vec<ValueChange>,
}

/// One of the two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    pub path: String,
    pub run_id: String,
    pub started_at: Instant,
    pub as_of: Option<Instant>,
    pub policy: PolicyReport,
}

/// One value that differs. Null is a value that was not measured or does not exist.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueChange {
    /// Null for a value of the whole run.
    pub rule: Option<String>,
    pub namespace: Option<String>,
    /// Name of the value in the report, such as `expiredCount` or `neverExpires.missing`; `rule` if the rule was added or removed.
    pub key: String,
    pub old: Value,
    pub new: Value,
    /// New minus old, for whole numbers.
    pub difference: Option<i64>,
}

/// Compares two reports; each comes with the name of its file. Of reports that are cut down to some rules, `of_rules` leaves out what the runs had as a
/// whole.
pub fn diff(old: (&str, &Report), new: (&str, &Report), of_rules: bool) -> Diff {
    let mut changes = of_run(old.1, new.1);
    if of_rules {
        changes.retain(|change| change.key.starts_with("policy.") || change.key.starts_with("server."));
    }
    // A sweep does not measure what an audit measures.
    let kind = |report: &Report| (report.command, report.dry_run);
    let are_alike = kind(old.1) == kind(new.1);
    let key = |rule: &RuleReport| (rule.name.clone(), rule.namespace.clone());
    let before: BTreeMap<_, _> = old.1.rules.iter().map(|rule| (key(rule), rule)).collect();
    let after: BTreeMap<_, _> = new.1.rules.iter().map(|rule| (key(rule), rule)).collect();
    for rule in &old.1.rules {
        match after.get(&key(rule)) {
            Some(now) => changes.extend(of_rule(rule, now).into_iter().filter(|change| are_alike || !is_unmeasured(change))),
            None => changes.push(change(Some(rule), "rule", json!("there"), Value::Null)),
        }
    }
    let added = new.1.rules.iter().filter(|rule| !before.contains_key(&key(rule)));
    changes.extend(added.map(|rule| change(Some(rule), "rule", Value::Null, json!("there"))));
    let side = |(path, report): (&str, &Report)| Side {
        path: path.to_owned(),
        run_id: report.run_id.clone(),
        started_at: report.started_at,
        as_of: report.as_of,
        policy: report.policy.clone(),
    };
    Diff { schema_version: SCHEMA_VERSION, command: "diff", old: side(old), new: side(new), changes }
}

/// Whether one of the runs did not measure a value that the other did.
fn is_unmeasured(change: &ValueChange) -> bool {
    let is_figure = MEASURED.contains(&change.key.as_str()) || change.key.starts_with("neverExpires.");
    is_figure && (change.old.is_null() || change.new.is_null())
}

fn of_run(old: &Report, new: &Report) -> Vec<ValueChange> {
    unequal(None, values_of_run(old), values_of_run(new))
}

/// Returns the values of a run that are compared.
fn values_of_run(report: &Report) -> Vec<(String, Value)> {
    // Every field is named, so that a new one does not compile without a decision.
    let Report {
        policy: PolicyReport { sha256, path: _ },
        server,
        status,
        exit_code,
        totals,
        // Values of the two sides, or different in every run.
        schema_version: _,
        command: _,
        dry_run: _,
        run_id: _,
        as_of: _,
        started_at: _,
        duration_ms: _,
        plan: _,
        limits: _,
        rules: _,
    } = report;
    let Totals {
        expired_count,
        deleted_count,
        old_orphan_count,
        orphans_deleted_count,
        // These follow from the rules.
        rules: _,
        overlapping: _,
        would_delete_count: _,
        remaining_count: _,
        document_count: _,
        estimated_bytes: _,
        oplog_bytes: _,
        request_units: _,
        failed: _,
        refused: _,
    } = totals;
    let server = server.as_ref();
    let values = [
        ("policy.sha256", json!(sha256)),
        ("server.flavor", json!(server.map(|server| &server.flavor))),
        ("server.version", json!(server.map(|server| &server.version))),
        ("server.topology", json!(server.map(|server| &server.topology))),
        ("server.name", json!(server.and_then(|server| server.name.as_ref()))),
        ("status", json!(status)),
        ("exitCode", json!(exit_code)),
        ("totals.expiredCount", json!(expired_count)),
        ("totals.deletedCount", json!(deleted_count)),
        ("totals.oldOrphanCount", json!(old_orphan_count)),
        ("totals.orphansDeletedCount", json!(orphans_deleted_count)),
    ];
    values.map(owned).into()
}

fn of_rule(old: &RuleReport, new: &RuleReport) -> Vec<ValueChange> {
    let mut changes = unequal(Some(new), values(old), values(new));
    let gone = old.warnings.iter().filter(|warning| !new.warnings.contains(warning));
    changes.extend(gone.map(|warning| change(Some(new), "warnings", json!(warning), Value::Null)));
    let come = new.warnings.iter().filter(|warning| !old.warnings.contains(warning));
    changes.extend(come.map(|warning| change(Some(new), "warnings", Value::Null, json!(warning))));
    changes
}

/// Returns the values of a rule that are compared.
fn values(rule: &RuleReport) -> Vec<(String, Value)> {
    // Every field is named, so that a new one does not compile without a decision.
    let RuleReport {
        field,
        expire_after_seconds,
        ttl_field,
        status,
        reason,
        error,
        strategy,
        index,
        order,
        document_count,
        expired_count,
        expired_percent,
        estimated_bytes,
        oldest_expired,
        expired_measurements,
        holds,
        held_count,
        deleted_count,
        uncertain,
        unconfirmed_count,
        children_count,
        children_deleted_count,
        orphans_deleted_count,
        orphan_count,
        old_orphan_count,
        native_ttl,
        never_expires,
        audit,
        // By these a rule is found in the other report.
        name: _,
        namespace: _,
        // Compared one by one.
        warnings: _,
        // These differ from run to run anyway.
        order_reason: _,
        written_bytes_per_document: _,
        threshold: _,
        predicate: _,
        would_delete_count: _,
        would_delete_limit: _,
        would_delete_orphan_count: _,
        approved_count: _,
        remaining_count: _,
        oldest_remaining: _,
        held_by: _,
        archived_count: _,
        archive: _,
        batches: _,
        paused_ms: _,
        pressure_unknown: _,
        request_units: _,
        estimated_request_units: _,
        estimated_seconds: _,
        estimate: _,
        duration_ms: _,
    } = rule;
    let forecast = audit.as_ref().and_then(forecast);
    let mut values: Vec<(String, Value)> = [
        ("field", json!(field)),
        ("expireAfterSeconds", json!(expire_after_seconds)),
        ("ttlField", json!(ttl_field)),
        ("status", json!(status)),
        ("reason", json!(reason)),
        ("error", json!(error)),
        ("strategy", json!(strategy)),
        ("index", json!(index)),
        ("order", json!(order)),
        ("documentCount", json!(document_count)),
        ("expiredCount", json!(expired_count)),
        ("expiredPercent", json!(expired_percent)),
        ("estimatedBytes", json!(estimated_bytes)),
        ("oldestExpired", json!(oldest_expired)),
        ("expiredMeasurements", json!(expired_measurements)),
        ("holds", json!(holds)),
        ("heldCount", json!(held_count)),
        ("deletedCount", json!(deleted_count)),
        ("uncertain", json!(uncertain)),
        ("unconfirmedCount", json!(unconfirmed_count)),
        ("childrenCount", json!(children_count)),
        ("childrenDeletedCount", json!(children_deleted_count)),
        ("orphansDeletedCount", json!(orphans_deleted_count)),
        ("orphanCount", json!(orphan_count)),
        ("oldOrphanCount", json!(old_orphan_count)),
        ("forecast", json!(forecast)),
        ("nativeTtl", json!(native_ttl)),
    ]
    .map(owned)
    .into();
    let never = never_expires.iter().flatten();
    values.extend(never.map(|(reason, number)| (format!("neverExpires.{reason}"), json!(number))));
    values
}

/// Returns the documents of the forecast: of an audit only they are compared, for the other figures are long, or examples.
fn forecast(audit: &AuditReport) -> Option<u64> {
    let AuditReport {
        forecast,
        sampling: _,
        newest_expired: _,
        age_histogram: _,
        backlog: _,
        never_expires_samples: _,
        samples: _,
        examined: _,
        create_index: _,
        native_comparison: _,
        ignored_ttl_count: _,
        native_troubles: _,
    } = audit;
    Some(forecast.as_ref()?.iter().map(|day| day.count).sum())
}

fn owned((key, value): (&str, Value)) -> (String, Value) {
    (key.to_owned(), value)
}

/// Returns the values that differ; a value that only one side has is null on the other.
fn unequal(
    rule: Option<&RuleReport>,
    old: impl IntoIterator<Item = (String, Value)>,
    new: impl IntoIterator<Item = (String, Value)>,
) -> Vec<ValueChange> {
    let mut before: Vec<(String, Value)> = old.into_iter().collect();
    let mut changes = Vec::new();
    for (key, now) in new {
        let then = before.iter().position(|(other, _)| *other == key).map_or(Value::Null, |index| before.remove(index).1);
        if then != now {
            changes.push(change(rule, &key, then, now));
        }
    }
    let left = before.into_iter().filter(|(_, then)| !then.is_null());
    changes.extend(left.map(|(key, then)| change(rule, &key, then, Value::Null)));
    changes
}

fn change(rule: Option<&RuleReport>, key: &str, old: Value, new: Value) -> ValueChange {
    let difference = old.as_i64().zip(new.as_i64()).and_then(|(old, new)| new.checked_sub(old));
    ValueChange {
        rule: rule.map(|rule| rule.name.clone()),
        namespace: rule.map(|rule| rule.namespace.clone()),
        key: key.to_owned(),
        old,
        new,
        difference,
    }
}

/// Renders a comparison as CSV: one line for each change.
pub fn to_csv(diff: &Diff) -> String {
    let value = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let rows = diff.changes.iter().map(|change| {
        let ValueChange { rule, namespace, key, old, new, difference } = change;
        vec![known(rule.as_ref()), known(namespace.as_ref()), key.clone(), value(old), value(new), known(*difference)]
    });
    lines(COLUMNS.into_iter(), rows)
}

/// Renders a comparison as text, with one line for each change below the name of its rule; the text ends with a newline.
pub fn to_text(diff: &Diff, colored: bool) -> String {
    let mut lines = Vec::new();
    for (word, side) in [("old", &diff.old), ("new", &diff.new)] {
        let as_of = side.as_of.map_or_else(|| "-".to_owned(), |as_of| as_of.to_string());
        lines.push(clean(&format!("{word} {}: as of {as_of}, run {}", side.path, side.run_id)));
    }
    let rows: Vec<[String; 2]> = diff.changes.iter().map(|change| [change.key.clone(), changed(change)]).collect();
    let mut title = None;
    for (change, line) in diff.changes.iter().zip(align(&rows, |_| false)) {
        let of_change = Some(titled(change));
        if of_change != title {
            lines.push(String::new());
            lines.push(bold(&of_change.clone().unwrap_or_default(), colored));
            title = of_change;
        }
        lines.extend(fold(&format!("  {line}"), "    "));
    }
    if diff.changes.is_empty() {
        lines.push(String::new());
        lines.push("nothing changed".to_owned());
    }
    lines.join("\n") + "\n"
}

fn titled(change: &ValueChange) -> String {
    match (&change.rule, &change.namespace) {
        (Some(rule), Some(namespace)) if rule != namespace => format!("{rule} {namespace}"),
        (Some(rule), _) => rule.clone(),
        (None, _) => "the run".to_owned(),
    }
}

fn changed(change: &ValueChange) -> String {
    let difference = change.difference.map(|n| format!(" ({}{})", if n < 0 { "-" } else { "+" }, count(n.unsigned_abs())));
    format!("{} -> {}{}", shown(change, &change.old), shown(change, &change.new), difference.unwrap_or_default())
}

/// Returns a value as a person reads it; `-` is null.
fn shown(change: &ValueChange, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if change.key == "policy.sha256" => text.chars().take(12).collect(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_u64().map_or_else(|| number.to_string(), count),
        other => other.to_string(),
    }
}
