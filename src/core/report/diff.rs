//! Differences between two reports, in the values that a person would ask about.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::aligned::{align, bold};
use super::csv::{known, lines};
use super::{PolicyReport, Report, RuleReport, SCHEMA_VERSION, TableStyle, json};
use crate::base::instant::Instant;
use crate::base::text::{count, fold_to};
use crate::core::audit::figures::AuditReport;

/// Values that not every command measures.
pub(super) const MEASURED: [&str; 9] = [
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

/// Values that are shown before the others: the rule, its outcome, and its documents.
pub(super) const FIRST: [&str; 15] = [
    "field",
    "expireAfterSeconds",
    "ttlField",
    "status",
    "reason",
    "error",
    "strategy",
    "index",
    "order",
    "documentCount",
    "expiredCount",
    "expiredPercent",
    "estimatedBytes",
    "oldestExpired",
    "expiredMeasurements",
];

/// Values that are shown after the others.
pub(super) const LAST: [&str; 3] = ["forecast", "nativeTtl", "neverExpires"];

/// Values that are not compared: they name the rule, are compared one by one, or differ from run to run anyway.
pub(super) const NOT_COMPARED: [&str; 26] = [
    "name",
    "namespace",
    "warnings",
    "threshold",
    "relativeDates",
    "predicate",
    "heldBy",
    "unclearPeriods",
    "wouldDeleteCount",
    "wouldDeleteLimit",
    "wouldDeleteOrphanCount",
    "approvedCount",
    "remainingCount",
    "oldestRemaining",
    "archivedCount",
    "archive",
    "batches",
    "pausedMs",
    "pressureUnknown",
    "requestUnits",
    "estimatedRequestUnits",
    "estimatedSeconds",
    "estimate",
    "durationMs",
    "orderReason",
    "writtenBytesPerDocument",
];

/// Values of a run that are not compared: they follow from the values of its rules, or differ from run to run anyway.
pub(super) const NOT_COMPARED_OF_RUN: [&str; 14] = [
    "policy.path",
    "server.recognisedBy",
    "server.hosts",
    "server.untested",
    "totals.rules",
    "totals.overlapping",
    "totals.wouldDeleteCount",
    "totals.remainingCount",
    "totals.documentCount",
    "totals.estimatedBytes",
    "totals.oplogBytes",
    "totals.requestUnits",
    "totals.failed",
    "totals.refused",
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
    /// Values that differ: first the values of the run, then the values of each rule.
    pub changes: Vec<ValueChange>,
}

/// Report on one side of a comparison.
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
    /// Name of the value in the report, such as `expiredCount` or `neverExpires.missing`; `rule` if the rule was added or
    /// removed.
    pub key: String,
    pub old: Value,
    pub new: Value,
    /// New minus old, for whole numbers.
    pub difference: Option<i64>,
}

/// Compares two reports; each comes with the name of its file. Of reports that are cut down to some rules, `of_rules` leaves out
/// what the runs had as a whole.
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
    let Report { policy, server, status, exit_code, totals, .. } = report;
    let run = [
        ("policy", json!(policy)),
        ("server", json!(server)),
        ("status", json!(status)),
        ("exitCode", json!(exit_code)),
        ("totals", json!(totals)),
    ];
    let values = run.into_iter().flat_map(|(name, value)| parts((name.to_owned(), value)));
    values.filter(|(name, _)| !NOT_COMPARED_OF_RUN.contains(&name.as_str())).collect()
}

fn of_rule(old: &RuleReport, new: &RuleReport) -> Vec<ValueChange> {
    let mut changes = unequal(Some(new), values_of_rule(old), values_of_rule(new));
    let gone = old.warnings.iter().filter(|warning| !new.warnings.contains(warning));
    changes.extend(gone.map(|warning| change(Some(new), "warnings", json!(warning), Value::Null)));
    let come = new.warnings.iter().filter(|warning| !old.warnings.contains(warning));
    changes.extend(come.map(|warning| change(Some(new), "warnings", Value::Null, json!(warning))));
    changes
}

/// Returns the values of a rule that are compared, in the order in which they are shown.
fn values_of_rule(rule: &RuleReport) -> Vec<(String, Value)> {
    // Of an audit only the documents of the forecast are compared: the other figures are long, or examples.
    let mut values = json::values(&RuleReport { audit: None, ..rule.clone() });
    values.insert("forecast".to_owned(), json!(rule.audit.as_ref().and_then(expected)));
    values.retain(|name, _| !NOT_COMPARED.contains(&name.as_str()));
    let mut values: Vec<_> = values.into_iter().collect();
    let place = |list: &[&str], name: &str| list.iter().position(|listed| *listed == name);
    values.sort_by_key(|(name, _)| (place(&LAST, name), place(&FIRST, name).unwrap_or(FIRST.len())));
    values.into_iter().flat_map(parts).collect()
}

/// Returns a value, or the parts of one with names of their own.
fn parts((name, value): (String, Value)) -> Vec<(String, Value)> {
    match value {
        Value::Object(parts) => parts.into_iter().map(|(part, value)| (format!("{name}.{part}"), value)).collect(),
        value => vec![(name, value)],
    }
}

/// Returns the number of documents that expire within the days of the forecast.
fn expected(audit: &AuditReport) -> Option<u64> {
    Some(audit.forecast.as_ref()?.iter().map(|day| day.count).sum())
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
pub fn to_text(diff: &Diff, look: TableStyle) -> String {
    let TableStyle { colored, width, .. } = look;
    let mut lines = Vec::new();
    for (word, side) in [("old", &diff.old), ("new", &diff.new)] {
        let as_of = side.as_of.map_or_else(|| "-".to_owned(), |as_of| as_of.to_string());
        lines.extend(fold_to(&format!("{word} {}: as of {as_of}, run {}", side.path, side.run_id), "  ", width));
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
        lines.extend(fold_to(&format!("  {line}"), "    ", width));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::audit::figures::ForecastDay;
    use crate::core::plan::Status;
    use crate::core::report::Strategy;
    use crate::testing::made_up::report;

    #[test]
    fn what_a_rule_is_comes_before_its_counts_and_what_always_differs_does_not_come() {
        let day = |count| ForecastDay { from: Instant(bson::DateTime::from_millis(0)), count };
        let old = report("r", "app.c");
        let new = RuleReport {
            status: Status::Failed,
            error: Some("no".into()),
            index: Some("at_1".into()),
            strategy: Some(Strategy::Index),
            expired_count: Some(7),
            document_count: Some(9),
            deleted_count: 3,
            children_count: Some(1),
            native_ttl: Some(Vec::new()),
            never_expires: Some(BTreeMap::from([("missing".to_owned(), 4), ("null".to_owned(), 0)])),
            audit: Some(AuditReport { forecast: Some(vec![day(2), day(3)]), ..AuditReport::default() }),
            warnings: vec!["beware".into()],
            batches: 5,
            duration_ms: 6,
            order_reason: Some("small".into()),
            remaining_count: Some(8),
            ..old.clone()
        };
        let changes = of_rule(&old, &new);
        let shown: Vec<String> = changes.iter().map(|change| format!("{} {} {}", change.key, change.old, change.new)).collect();
        let expected = [
            r#"status "complete" "failed""#,
            r#"error null "no""#,
            r#"strategy null "index""#,
            r#"index null "at_1""#,
            "documentCount null 9",
            "expiredCount null 7",
            "deletedCount 0 3",
            "childrenCount null 1",
            "forecast null 5",
            "nativeTtl null []",
            "neverExpires.missing null 4",
            "neverExpires.null null 0",
            r#"warnings null "beware""#,
        ];
        assert_eq!(shown, expected);
        let back = of_rule(&new, &old);
        let keys: Vec<&str> = back.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(keys, changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>());
        assert_eq!(of_rule(&new, &new), []);
    }
}
