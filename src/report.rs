//! What a run did, as values; the renderers below show it, each the whole of it. Its JSON is described by `report/schema.json`.

pub mod audit;
mod audit_text;
pub mod check;
mod csv;
pub mod diff;
pub mod history;
mod html;
pub mod json;
mod lines;
mod markdown;
pub mod metrics;
pub mod native_ttl;
pub mod restore;
pub mod rule;
mod table;

use std::collections::BTreeMap;

use bson::DateTime;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::exit;
use crate::facts::ServerFacts;
use crate::instant::rfc3339;
use crate::lock;
use crate::policy::Policy;
use crate::text;
pub use rule::{PausedMs, RuleReport, predicate_json};

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// The saved audit that the sweep went by; null where it went by none.
    pub plan: Option<PlanReport>,
    pub rules: Vec<RuleReport>,
    pub totals: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    Sweep,
    Audit,
    Check,
}

/// How a rule or a run ended, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    pub path: String,
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    pub flavor: String,
    /// How the flavor was recognised.
    pub recognised_by: String,
    pub version: String,
    pub topology: String,
    /// Name of the replica set.
    pub name: Option<String>,
    /// `host:port` of the members that the deployment names, or of the connection string where it names none.
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    pub path: String,
    /// The run that saved it.
    pub run_id: String,
}

impl From<&ServerFacts> for ServerReport {
    fn from(facts: &ServerFacts) -> Self {
        Self {
            flavor: facts.flavor.name().to_owned(),
            recognised_by: facts.recognised_by.clone(),
            version: facts.version.clone(),
            topology: facts.topology.name().to_owned(),
            name: facts.set_name.clone(),
            hosts: facts.hosts.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    pub rules: usize,
    /// Null where a rule that could be counted was not.
    pub expired_count: Option<u64>,
    pub deleted_count: u64,
    /// Null where what remains of a rule is not known; rules that were skipped leave nothing.
    pub remaining_count: Option<u64>,
    /// Of the collections that were looked at, each once; null where there is none.
    pub document_count: Option<u64>,
    /// Of what has expired; null where it is not known of a rule that was counted.
    pub estimated_bytes: Option<u64>,
    pub failed: usize,
    pub refused: usize,
}

impl Totals {
    fn of(rules: &[RuleReport]) -> Self {
        let count = |status| rules.iter().filter(|rule| rule.status == status).count();
        let uncountable =
            |rule: &&RuleReport| rule.expired_count.is_none() && matches!(rule.status, Status::Skipped | Status::Refused);
        let counted = || rules.iter().filter(|rule| !uncountable(rule));
        // Nothing has no size.
        let size = |rule: &RuleReport| if rule.expired_count == Some(0) { Some(0) } else { rule.estimated_bytes };
        let collections: BTreeMap<&str, u64> =
            rules.iter().filter_map(|rule| Some((rule.namespace.as_str(), rule.document_count?))).collect();
        Self {
            rules: rules.len(),
            expired_count: counted().map(|rule| rule.expired_count).sum(),
            document_count: (!collections.is_empty()).then(|| collections.values().sum()),
            estimated_bytes: counted().map(size).sum(),
            deleted_count: rules.iter().map(|rule| rule.deleted_count).sum(),
            remaining_count: rules.iter().filter(|rule| rule.status != Status::Skipped).map(|rule| rule.remaining_count).sum(),
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
    pub plan: Option<PlanReport>,
}

impl Report {
    pub fn new(run: RunRecord, rules: Vec<RuleReport>) -> Self {
        let status =
            rules.iter().map(|rule| rule.status).max().filter(|status| *status > Status::Complete).unwrap_or(Status::Complete);
        let is_held = |rule: &RuleReport| rule.status == Status::Refused && rule.reason.as_deref() == Some(lock::HELD);
        let of_others = rules.iter().filter(|rule| !is_held(rule)).map(|rule| rule.status).max();
        let exit_code = run.signal_exit.unwrap_or(match of_others.unwrap_or(Status::Skipped) {
            Status::Skipped | Status::Complete if rules.iter().any(is_held) => exit::LOCKED,
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
            plan: run.plan,
            totals: Totals::of(&rules),
            rules,
        }
    }
}

/// The ways to show a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned text for a terminal or a mail
    Table,
    /// The whole report for machines, described by a JSON Schema
    Json,
    /// One self-contained page with charts, for a browser or a mail
    Html,
    /// One line per rule and namespace
    Csv,
    /// A table for an issue or a wiki
    Markdown,
}

impl Format {
    /// As the command line spells it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The format that a file's extension asks for.
    pub fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "json" => Some(Format::Json),
            "html" | "htm" => Some(Format::Html),
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
        Format::Table if report.command == Command::Check => check::render(report, colored),
        Format::Table => table::render(report, colored),
        Format::Json => json::render(report),
        Format::Html => html::render(report),
        Format::Csv => csv::render(report),
        Format::Markdown => markdown::render(report),
    }
}
