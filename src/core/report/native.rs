//! Report of `native diff` and `native apply`: the differences between rules and native settings, and the outcome of the changes.

use bson::{Bson, Document};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::aligned::{Tone, paint};
use super::{PolicyReport, SCHEMA_VERSION, ServerReport};
use crate::base::exit;
use crate::base::instant::Instant;
use crate::base::text::{clean, count, page, plural};
use crate::core::facts::{NativeTtl, Scope};
use crate::core::native::diff::{DiffState, Difference};
use crate::core::native::target::TtlTarget;

/// Report of `sweeper native diff` or `native apply`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "sweeper native")]
pub struct NativeReport {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    pub command: NativeReportCommand,
    pub dry_run: bool,
    #[schemars(extend("format" = "uuid"))]
    pub run_id: String,
    pub started_at: Instant,
    pub exit_code: u8,
    pub policy: PolicyReport,
    pub server: ServerReport,
    /// Rows in the order of the rules, then of the namespaces; settings without a rule come last.
    pub rows: Vec<NativeRow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "command")]
pub enum NativeReportCommand {
    #[serde(rename = "native diff")]
    Diff,
    #[serde(rename = "native apply")]
    Apply,
}

/// One rule in one namespace, or one setting without a rule.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "row")]
pub struct NativeRow {
    /// Null for a setting without a rule.
    pub rule: Option<String>,
    pub namespace: String,
    pub state: DiffState,
    /// The setting of the deployment.
    pub native: Option<Setting>,
    /// The setting that would do what the rule does.
    pub wanted: Option<Setting>,
    pub reason: Option<String>,
    /// Null in a diff, and if there is nothing to do or nothing that can be done.
    pub change: Option<ChangeReport>,
}

/// One native TTL setting; documents are in canonical Extended JSON.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "setting")]
pub struct Setting {
    pub scope: Scope,
    /// Name of the index; null for a setting of the collection itself, and in `wanted`.
    pub index: Option<String>,
    /// Field of the dates, or the whole key of an index by which the server never deletes.
    pub field: String,
    /// The value as it stands in the catalog; `off` for a rule that is disabled.
    pub expire_after_seconds: Value,
    pub partial_filter_expression: Option<Value>,
    pub collation: Option<Value>,
    pub hidden: bool,
}

/// One change and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "change")]
pub struct ChangeReport {
    /// The commands as one would paste them into mongosh.
    pub command: String,
    /// Sentences about effects of the change that the counts do not show.
    pub notes: Vec<String>,
    /// Documents that the server deletes as soon as it has the setting; null if they were not counted.
    pub expired_count: Option<u64>,
    pub document_count: Option<u64>,
    pub status: ChangeStatus,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "changeStatus")]
pub enum ChangeStatus {
    /// Not made: the run was a dry run, or ended before this change.
    Planned,
    Applied,
    /// Refused by a guard.
    Refused,
    Failed,
}

impl From<&Difference> for NativeRow {
    fn from(difference: &Difference) -> Self {
        Self {
            rule: difference.rule.as_ref().map(|rule| rule.name.clone()),
            namespace: difference.namespace.to_string(),
            state: difference.state,
            native: difference.native.as_ref().map(Setting::from),
            wanted: difference.target.as_ref().map(Setting::from),
            reason: difference.reason.clone(),
            change: None,
        }
    }
}

impl From<&NativeTtl> for Setting {
    fn from(native: &NativeTtl) -> Self {
        Self {
            scope: native.scope,
            index: native.index.clone(),
            field: native.shown_field(),
            // In relaxed form a whole number is a plain number, and NaN is still distinct.
            expire_after_seconds: native.expire_after_seconds.clone().into_relaxed_extjson(),
            partial_filter_expression: native.partial.as_ref().map(json),
            collation: native.collation.as_ref().map(json),
            hidden: native.hidden,
        }
    }
}

impl From<&TtlTarget> for Setting {
    fn from(target: &TtlTarget) -> Self {
        Self {
            scope: target.scope,
            index: None,
            field: target.field.clone(),
            expire_after_seconds: target.seconds.map_or_else(|| Value::from("off"), Value::from),
            partial_filter_expression: target.partial.as_ref().map(json),
            collation: target.collation.as_ref().map(json),
            hidden: false,
        }
    }
}

fn json(document: &Document) -> Value {
    Bson::Document(document.clone()).into_canonical_extjson()
}

/// Returns the exit code of a diff: 0 if there is no difference, but for rules that no native setting can serve.
pub fn of_diff(rows: &[NativeRow]) -> u8 {
    let is_served = |row: &NativeRow| matches!(row.state, DiffState::Same | DiffState::Impossible);
    if rows.iter().all(is_served) { exit::DONE } else { exit::REFUSED }
}

/// Returns the exit code of an apply: 0 if everything is as the rules say that native TTL can serve.
pub fn of_apply(rows: &[NativeRow], dry_run: bool) -> u8 {
    let any = |status| rows.iter().filter_map(|row| row.change.as_ref()).any(|change| change.status == status);
    if any(ChangeStatus::Failed) {
        exit::RULE_FAILED
    } else if !dry_run && (any(ChangeStatus::Refused) || rows.iter().any(|row| is_left(row, rows))) {
        exit::REFUSED
    } else {
        exit::DONE
    }
}

/// Whether a setting stays different from its rule, because no change makes them the same, neither its own nor the change of
/// another rule.
fn is_left(row: &NativeRow, rows: &[NativeRow]) -> bool {
    let is_alike = |other: &&NativeRow| other.namespace == row.namespace && other.wanted == row.wanted && other.change.is_some();
    matches!(row.state, DiffState::Differs | DiffState::Missing) && !rows.iter().any(|other| is_alike(&other))
}

/// Renders a report as text that ends with a newline.
pub fn to_text(report: &NativeReport, colored: bool) -> String {
    rows(&report.rows, colored) + &page([summary(report)])
}

/// Renders rows as lines, each with its change below it.
pub fn rows(rows: &[NativeRow], colored: bool) -> String {
    let width = rows.iter().map(|row| clean(&row.namespace).chars().count()).max().unwrap_or(0);
    let line = |row: &NativeRow| {
        let first = format!("{:<10}  {:<width$}  {}", row.state, clean(&row.namespace), said(row));
        let below = row.change.iter().flat_map(|change| changed(row, change)).map(|line| format!("{:<10}  {line}", ""));
        std::iter::once(first).chain(below).map(|line| paint(&line, tone(row), colored) + "\n").collect::<String>()
    };
    rows.iter().map(line).collect()
}

fn tone(row: &NativeRow) -> Tone {
    match (row.state, row.change.as_ref().map(|change| change.status)) {
        (_, Some(ChangeStatus::Failed)) => Tone::Error,
        (DiffState::Same, _) | (_, Some(ChangeStatus::Applied)) => Tone::Plain,
        (DiffState::Differs | DiffState::Missing | DiffState::Extra | DiffState::Impossible, _) => Tone::Warning,
    }
}

fn said(row: &NativeRow) -> String {
    let native = row.native.as_ref().map(|native| {
        let index = native.index.as_ref().map(|index| format!(" by index {index}")).unwrap_or_default();
        format!("expireAfterSeconds {}{index}", plain(&native.expire_after_seconds))
    });
    let wanted = row.wanted.as_ref().map(|wanted| plain(&wanted.expire_after_seconds));
    let setting = row.native.as_ref().or(row.wanted.as_ref());
    let values = match (native, wanted) {
        (Some(native), Some(wanted)) if row.state != DiffState::Same => Some(format!("{native}, the policy says {wanted}")),
        (Some(native), _) => Some(native),
        (None, Some(wanted)) => Some(format!("expireAfterSeconds {wanted} of the policy")),
        (None, None) => None,
    };
    let rule = row.rule.as_ref().filter(|rule| **rule != row.namespace).map(|rule| format!("rule {rule}"));
    let field = setting.map(|setting| setting.field.clone());
    [rule, field, values, row.reason.clone()].into_iter().flatten().collect::<Vec<_>>().join(": ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn changed(row: &NativeRow, change: &ChangeReport) -> Vec<String> {
    let mut lines = vec![change.command.clone()];
    if let (Some(expired), Some(documents)) = (change.expired_count, change.document_count) {
        // In a time-series collection the server deletes whole buckets, and later.
        let is_series = row.wanted.as_ref().is_some_and(|wanted| wanted.scope == Scope::TimeSeries);
        let at_most = if is_series { "at most " } else { "" };
        let documents = plural(documents, "document");
        lines.push(format!("the server would delete {at_most}{} of {documents} at once", count(expired)));
    }
    lines.extend(change.notes.iter().cloned());
    let error = change.error.as_deref().unwrap_or_default();
    match change.status {
        ChangeStatus::Planned => {}
        ChangeStatus::Applied => lines.push("applied".to_owned()),
        ChangeStatus::Refused => lines.push(format!("refused: {error}")),
        ChangeStatus::Failed => lines.push(format!("failed: {error}")),
    }
    lines
}

/// Renders one line with the number of rows in each state and the number of changes by outcome.
pub fn summary(report: &NativeReport) -> String {
    let all = [DiffState::Same, DiffState::Differs, DiffState::Missing, DiffState::Extra, DiffState::Impossible];
    let states = all.iter().filter_map(|state| counted(&report.rows, &state.to_string(), |row| row.state == *state));
    let of = |status: ChangeStatus| move |row: &NativeRow| row.change.as_ref().is_some_and(|change| change.status == status);
    let changes = [
        counted(&report.rows, "applied", of(ChangeStatus::Applied)),
        counted(&report.rows, "refused", of(ChangeStatus::Refused)),
        counted(&report.rows, "failed", of(ChangeStatus::Failed)),
    ];
    let mut parts = vec![states.collect::<Vec<_>>().join(", ")];
    parts.extend(Some(changes.into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|changes| !changes.is_empty()));
    if report.command == NativeReportCommand::Apply && !report.rows.iter().any(of(ChangeStatus::Applied)) {
        parts.push(if report.dry_run { "nothing was changed (dry run)" } else { "nothing was changed" }.to_owned());
    }
    let server = &report.server;
    format!("{} on {} {} {}: {}", report.policy.path, server.flavor, server.version, server.topology, parts.join("; "))
}

fn counted(rows: &[NativeRow], word: &str, is_meant: impl Fn(&NativeRow) -> bool) -> Option<String> {
    match rows.iter().filter(|row| is_meant(row)).count() {
        0 => None,
        n => Some(format!("{n} {word}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: DiffState, seconds: i64, change: Option<ChangeStatus>) -> NativeRow {
        let wanted = Setting {
            scope: Scope::Index,
            index: None,
            field: "at".into(),
            expire_after_seconds: seconds.into(),
            partial_filter_expression: None,
            collation: None,
            hidden: false,
        };
        let change = change.map(|status| ChangeReport {
            command: String::new(),
            notes: Vec::new(),
            expired_count: None,
            document_count: None,
            status,
            error: None,
        });
        let (rule, native, reason) = (Some("r".into()), None, None);
        NativeRow { rule, namespace: "a.c".into(), state, native, wanted: Some(wanted), reason, change }
    }

    #[test]
    fn a_diff_is_done_if_only_what_no_setting_can_do_is_left() {
        let of = |state| of_diff(&[row(DiffState::Same, 1, None), row(state, 2, None)]);
        assert_eq!([DiffState::Same, DiffState::Impossible].map(of), [exit::DONE; 2]);
        assert_eq!([DiffState::Differs, DiffState::Missing, DiffState::Extra].map(of), [exit::REFUSED; 3]);
    }

    #[test]
    fn a_difference_that_no_change_removes_does_not_end_as_done() {
        let left = |state| vec![row(DiffState::Same, 1, None), row(state, 2, None)];
        for (rows, applied, dry) in [
            (left(DiffState::Differs), exit::REFUSED, exit::DONE),
            (left(DiffState::Missing), exit::REFUSED, exit::DONE),
            // No native TTL can do these.
            (left(DiffState::Impossible), exit::DONE, exit::DONE),
            (left(DiffState::Extra), exit::DONE, exit::DONE),
            // The change of another rule makes the same setting.
            (
                vec![row(DiffState::Missing, 2, Some(ChangeStatus::Applied)), row(DiffState::Missing, 2, None)],
                exit::DONE,
                exit::DONE,
            ),
            (
                vec![row(DiffState::Differs, 2, Some(ChangeStatus::Failed)), row(DiffState::Differs, 3, None)],
                exit::RULE_FAILED,
                exit::RULE_FAILED,
            ),
        ] {
            assert_eq!((of_apply(&rows, false), of_apply(&rows, true)), (applied, dry), "{rows:?}");
        }
    }
}
