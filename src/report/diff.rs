//! Differences between two reports, in the values that a person would ask about.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{PolicyReport, Report, RuleReport, SCHEMA_VERSION};
use crate::instant::Instant;
use crate::text::{clean, count, fold};

/// Comparison of two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diff {
    pub schema_version: u32,
    pub command: &'static str,
    pub old: Side,
    pub new: Side,
    /// Values that differ: first those of the run, then those of each rule.
    pub changes: Vec<Change>,
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
pub struct Change {
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

/// Compares two reports; each comes with the name of its file.
pub fn diff(old: (&str, &Report), new: (&str, &Report)) -> Diff {
    let mut changes = of_run(old.1, new.1);
    let key = |rule: &RuleReport| (rule.name.clone(), rule.namespace.clone());
    let before: BTreeMap<_, _> = old.1.rules.iter().map(|rule| (key(rule), rule)).collect();
    let after: BTreeMap<_, _> = new.1.rules.iter().map(|rule| (key(rule), rule)).collect();
    for rule in &old.1.rules {
        match after.get(&key(rule)) {
            Some(now) => changes.extend(of_rule(rule, now)),
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

fn of_run(old: &Report, new: &Report) -> Vec<Change> {
    let values = |report: &Report| {
        let server = report.server.as_ref();
        [
            ("policy.sha256", json!(report.policy.sha256)),
            ("server.flavor", json!(server.map(|server| &server.flavor))),
            ("server.version", json!(server.map(|server| &server.version))),
            ("server.topology", json!(server.map(|server| &server.topology))),
            ("server.name", json!(server.and_then(|server| server.name.as_ref()))),
            ("status", json!(report.status)),
            ("exitCode", json!(report.exit_code)),
            ("totals.expiredCount", json!(report.totals.expired_count)),
            ("totals.deletedCount", json!(report.totals.deleted_count)),
        ]
    };
    unequal(None, values(old).map(owned), values(new).map(owned))
}

fn of_rule(old: &RuleReport, new: &RuleReport) -> Vec<Change> {
    let mut changes = unequal(Some(new), values(old), values(new));
    let gone = old.warnings.iter().filter(|warning| !new.warnings.contains(warning));
    changes.extend(gone.map(|warning| change(Some(new), "warnings", json!(warning), Value::Null)));
    let come = new.warnings.iter().filter(|warning| !old.warnings.contains(warning));
    changes.extend(come.map(|warning| change(Some(new), "warnings", Value::Null, json!(warning))));
    changes
}

/// Returns the values of a rule that are compared. Leaves out values that differ from run to run anyway, such as instants of the run,
/// durations and examples.
fn values(rule: &RuleReport) -> Vec<(String, Value)> {
    let audit = rule.audit.as_ref();
    let forecast = audit.and_then(|audit| Some(audit.forecast.as_ref()?.iter().map(|day| day.count).sum::<u64>()));
    let mut values: Vec<(String, Value)> = [
        ("field", json!(rule.field)),
        ("expireAfterSeconds", json!(rule.expire_after_seconds)),
        ("ttlField", json!(rule.ttl_field)),
        ("status", json!(rule.status)),
        ("reason", json!(rule.reason)),
        ("error", json!(rule.error)),
        ("strategy", json!(rule.strategy)),
        ("index", json!(rule.index)),
        ("documentCount", json!(rule.document_count)),
        ("expiredCount", json!(rule.expired_count)),
        ("expiredPercent", json!(rule.expired_percent)),
        ("estimatedBytes", json!(rule.estimated_bytes)),
        ("oldestExpired", json!(rule.oldest_expired)),
        ("expiredMeasurements", json!(rule.expired_measurements)),
        ("deletedCount", json!(rule.deleted_count)),
        ("uncertain", json!(rule.uncertain)),
        ("unconfirmedCount", json!(rule.unconfirmed_count)),
        ("forecast", json!(forecast)),
        ("nativeTtl", json!(rule.native_ttl)),
    ]
    .map(owned)
    .into();
    let never = rule.never_expires.iter().flatten();
    values.extend(never.map(|(reason, number)| (format!("neverExpires.{reason}"), json!(number))));
    values
}

fn owned((key, value): (&str, Value)) -> (String, Value) {
    (key.to_owned(), value)
}

/// Returns the values that differ; a value that only one side has is null on the other.
fn unequal(
    rule: Option<&RuleReport>,
    old: impl IntoIterator<Item = (String, Value)>,
    new: impl IntoIterator<Item = (String, Value)>,
) -> Vec<Change> {
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

fn change(rule: Option<&RuleReport>, key: &str, old: Value, new: Value) -> Change {
    let difference = old.as_i64().zip(new.as_i64()).and_then(|(old, new)| new.checked_sub(old));
    Change {
        rule: rule.map(|rule| rule.name.clone()),
        namespace: rule.map(|rule| rule.namespace.clone()),
        key: key.to_owned(),
        old,
        new,
        difference,
    }
}

/// Renders a comparison as text, with one line for each change below the name of its rule; the text ends with a newline.
pub fn to_text(diff: &Diff) -> String {
    let mut lines = Vec::new();
    for (word, side) in [("old", &diff.old), ("new", &diff.new)] {
        let as_of = side.as_of.map_or_else(|| "-".to_owned(), |as_of| as_of.to_string());
        lines.push(format!("{word} {}: as of {as_of}, run {}", clean(&side.path), side.run_id));
    }
    let width = diff.changes.iter().map(|change| change.key.chars().count()).max().unwrap_or(0);
    let mut title = None;
    for change in &diff.changes {
        let of_change = Some(titled(change));
        if of_change != title {
            lines.push(String::new());
            lines.push(of_change.clone().unwrap_or_default());
            title = of_change;
        }
        let difference = change.difference.map(|n| format!(" ({}{})", if n < 0 { "-" } else { "+" }, count(n.unsigned_abs())));
        let line = format!(
            "  {:<width$}  {} -> {}{}",
            change.key,
            shown(change, &change.old),
            shown(change, &change.new),
            difference.unwrap_or_default()
        );
        lines.push(fold(&line, "    "));
    }
    if diff.changes.is_empty() {
        lines.push(String::new());
        lines.push("nothing changed".to_owned());
    }
    lines.push(String::new());
    lines.join("\n")
}

fn titled(change: &Change) -> String {
    match (&change.rule, &change.namespace) {
        (Some(rule), Some(namespace)) if rule != namespace => format!("{} {}", clean(rule), clean(namespace)),
        (Some(rule), _) => clean(rule),
        (None, _) => "the run".to_owned(),
    }
}

/// Returns a value as a person reads it; `-` is null.
fn shown(change: &Change, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if change.key == "policy.sha256" => text.chars().take(12).collect(),
        Value::String(text) => clean(text),
        Value::Number(number) => number.as_u64().map_or_else(|| number.to_string(), count),
        other => clean(&other.to_string()),
    }
}
