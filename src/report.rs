//! What a run did, as values; the renderers below show it, each the whole of it. Its JSON is described by `report/schema.json`.

pub mod check;
mod csv;
mod json;
mod lines;
mod markdown;
mod table;
pub mod text;

use std::collections::BTreeMap;

use bson::DateTime;
use chrono::{SecondsFormat, Utc};
use serde::Serialize;

use crate::exit;
use crate::facts::ServerFacts;
use crate::plan::{NativeSetting, PlannedRule, percent};
use crate::policy::Policy;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub schema_version: u32,
    pub command: Command,
    pub dry_run: bool,
    pub run_id: String,
    /// The instant the run called now; null where no server was asked.
    pub as_of: Option<String>,
    pub started_at: String,
    pub duration_ms: u64,
    pub exit_code: u8,
    pub status: Status,
    pub policy: PolicyReport,
    /// Null where no server was asked.
    pub server: Option<ServerReport>,
    pub rules: Vec<RuleReport>,
    pub totals: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    Sweep,
    Check,
}

/// How a rule or a run ended, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    Skipped,
    Complete,
    Partial,
    Refused,
    Failed,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Skipped => "skipped",
            Status::Complete => "complete",
            Status::Partial => "partial",
            Status::Refused => "refused",
            Status::Failed => "failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    pub path: String,
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    pub flavor: &'static str,
    /// How the flavor was recognised.
    pub recognised_by: String,
    pub version: String,
    pub topology: &'static str,
    /// Name of the replica set.
    pub name: Option<String>,
}

impl From<&ServerFacts> for ServerReport {
    fn from(facts: &ServerFacts) -> Self {
        Self {
            flavor: facts.service.name(),
            recognised_by: facts.recognised_by.clone(),
            version: facts.version.clone(),
            topology: facts.topology.name(),
            name: facts.set_name.clone(),
        }
    }
}

/// How long nothing was sent on purpose, in milliseconds by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedMs {
    /// A member of the replica set was further behind than `maxLag`.
    pub lag: u64,
    /// A batch took longer than `targetBatchMs`.
    pub latency: u64,
    /// The `rate` of the rule or of the run was used up.
    pub rate: u64,
    /// The service had no room, or `maxRequestUnits` was used up.
    pub throttle: u64,
}

/// One rule in one namespace. A value that was not measured is null.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleReport {
    pub name: String,
    pub namespace: String,
    /// Null where the rule leaves it to a time-series collection, and no server was asked.
    pub field: Option<String>,
    /// -1: only documents with a ttl of their own expire.
    pub expire_after_seconds: i64,
    pub ttl_field: Option<String>,
    /// Null where only documents with a ttl of their own expire, or no server was asked.
    pub threshold: Option<String>,
    pub status: Status,
    /// Why the rule is partial, refused or skipped: one word for a guard or a limit.
    pub reason: Option<String>,
    /// Counted by a query before the first delete. In a time-series collection every count is of buckets.
    pub expired_count: Option<u64>,
    /// Measurements in the expired buckets of a time-series collection.
    pub expired_measurements: Option<u64>,
    /// Summed from the server's replies.
    pub deleted_count: u64,
    /// Whether a reply was lost: `deletedCount` is then a lower bound.
    pub uncertain: bool,
    /// By the collection's own count, before the first delete.
    pub document_count: Option<u64>,
    pub expired_percent: Option<f64>,
    pub oldest_expired: Option<String>,
    /// Expired documents times the mean size of a document.
    pub estimated_bytes: Option<u64>,
    /// Documents that the rule leaves alone for ever, by reason; null where they were not counted.
    pub never_expires: Option<BTreeMap<&'static str, u64>>,
    pub batches: u64,
    /// Null where nothing was swept.
    pub paused_ms: Option<PausedMs>,
    /// What the sweep cost, where the service bills requests.
    pub request_units: Option<f64>,
    pub duration_ms: u64,
    /// `index` or `collectionScan`.
    /// The deployment's own TTL settings there; null where they were not looked at.
    pub native_ttl: Option<Vec<NativeSetting>>,
    pub strategy: Option<&'static str>,
    pub index: Option<String>,
    pub warnings: Vec<String>,
    pub error: Option<String>,
}

impl RuleReport {
    /// A rule of which nothing is known yet but the plan.
    pub fn new(planned: &PlannedRule) -> Self {
        Self {
            name: planned.rule.name.clone(),
            namespace: planned.namespace.to_string(),
            field: planned.field.clone(),
            expire_after_seconds: planned.rule.expire_after_seconds.map_or(-1, i64::from),
            ttl_field: planned.rule.ttl_field.clone(),
            threshold: planned.expiry.threshold().map(rfc3339),
            status: Status::Complete,
            reason: None,
            expired_count: None,
            expired_measurements: None,
            deleted_count: 0,
            uncertain: false,
            document_count: None,
            expired_percent: None,
            oldest_expired: None,
            estimated_bytes: None,
            never_expires: None,
            batches: 0,
            paused_ms: None,
            request_units: None,
            duration_ms: 0,
            native_ttl: planned.native_ttl.clone(),
            strategy: None,
            index: None,
            warnings: planned.warnings.clone(),
            error: None,
        }
    }

    /// Enters what was counted, and what follows from it.
    pub fn set_expired(&mut self, expired_count: u64, average_bytes: Option<f64>) {
        self.expired_count = Some(expired_count);
        self.expired_percent = self.document_count.and_then(|whole| percent(expired_count, whole)).map(two_decimals);
        // A cast from float saturates.
        self.estimated_bytes = average_bytes.map(|average| (average * expired_count as f64).round() as u64);
    }
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    pub rules: usize,
    /// Null where a rule that could be counted was not.
    pub expired_count: Option<u64>,
    pub deleted_count: u64,
    pub failed: usize,
    pub refused: usize,
}

impl Totals {
    fn of(rules: &[RuleReport]) -> Self {
        let count = |status| rules.iter().filter(|rule| rule.status == status).count();
        let uncountable =
            |rule: &&RuleReport| rule.expired_count.is_none() && matches!(rule.status, Status::Skipped | Status::Refused);
        let counted = rules.iter().filter(|rule| !uncountable(rule)).map(|rule| rule.expired_count);
        Self {
            rules: rules.len(),
            expired_count: counted.sum(),
            deleted_count: rules.iter().map(|rule| rule.deleted_count).sum(),
            failed: count(Status::Failed),
            refused: count(Status::Refused),
        }
    }
}

/// What is known of a run beside its rules.
pub struct RunRecord<'a> {
    pub command: Command,
    pub dry_run: bool,
    pub run_id: String,
    pub as_of: Option<DateTime>,
    pub started_at: DateTime,
    pub duration_ms: u64,
    /// 130 or 143 where a signal ended the run.
    pub signal_exit: Option<u8>,
    pub policy: &'a Policy,
    pub server: Option<&'a ServerFacts>,
}

impl Report {
    pub fn new(run: RunRecord, rules: Vec<RuleReport>) -> Self {
        let status =
            rules.iter().map(|rule| rule.status).max().filter(|status| *status > Status::Complete).unwrap_or(Status::Complete);
        let exit_code = run.signal_exit.unwrap_or(match status {
            Status::Skipped | Status::Complete => exit::DONE,
            Status::Partial => exit::LIMIT,
            Status::Refused if run.dry_run => exit::DONE,
            Status::Refused => exit::REFUSED,
            Status::Failed => exit::RULE_FAILED,
        });
        Self {
            schema_version: SCHEMA_VERSION,
            command: run.command,
            dry_run: run.dry_run,
            run_id: run.run_id,
            as_of: run.as_of.map(rfc3339),
            started_at: rfc3339(run.started_at),
            duration_ms: run.duration_ms,
            exit_code,
            status,
            policy: PolicyReport { path: run.policy.path.clone(), sha256: run.policy.sha256.clone() },
            server: run.server.map(ServerReport::from),
            totals: Totals::of(&rules),
            rules,
        }
    }
}

/// RFC 3339 in UTC with milliseconds; years outside of 0 to 9999 as MongoDB's extended form has no other: milliseconds since 1970.
pub fn rfc3339(at: DateTime) -> String {
    match chrono::DateTime::<Utc>::from_timestamp_millis(at.timestamp_millis()) {
        Some(instant) if (0..=9999).contains(&chrono::Datelike::year(&instant)) => {
            instant.to_rfc3339_opts(SecondsFormat::Millis, true)
        }
        _ => format!("{} ms since 1970", at.timestamp_millis()),
    }
}

/// The ways to show a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned text for a terminal or a mail
    Table,
    /// The whole report for machines, described by a JSON Schema
    Json,
    /// One line per rule and namespace
    Csv,
    /// A table for an issue or a wiki
    Markdown,
}

impl Format {
    /// The format that a file's extension asks for.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "json" => Some(Format::Json),
            "csv" => Some(Format::Csv),
            "md" | "markdown" => Some(Format::Markdown),
            "txt" | "log" => Some(Format::Table),
            _ => None,
        }
    }
}

/// One line that says what happened and, where something is wrong, what: all that a quiet run prints.
pub fn reason(report: &Report) -> String {
    let worst = report.rules.iter().filter(|rule| rule.status > Status::Complete).max_by_key(|rule| rule.status);
    let why = worst.and_then(|rule| Some(format!("; {}: {}", text::clean(&rule.namespace), text::clean(rule.error.as_ref()?))));
    format!("{}{}", lines::last(report).1, why.unwrap_or_default())
}

/// Shows a report; ends with a newline. `colored` concerns the table alone.
pub fn render(report: &Report, format: Format, colored: bool) -> String {
    match format {
        Format::Table if report.command == Command::Check => check::render(report),
        Format::Table => table::render(report, colored),
        Format::Json => json::render(report),
        Format::Csv => csv::render(report),
        Format::Markdown => markdown::render(report),
    }
}
