//! Report of a run, as values, which the modules below render. The JSON Schema is derived from these types.

mod ages;
pub(crate) mod aligned;
mod amount;
pub(crate) mod approval;
pub mod archives;
mod audit_text;
pub mod check;
mod csv;
pub mod diff;
pub(crate) mod estimate;
pub mod history;
mod html;
pub mod json;
pub(crate) mod lines;
mod markdown;
pub mod metrics;
pub mod native;
pub mod native_ttl;
mod orphans;
pub(crate) mod overlap;
pub(crate) mod pacing;
pub(crate) mod preview;
pub mod reclaim;
pub mod restore;
pub mod rule;
mod table;
#[cfg(test)]
mod tests;
pub mod why;

use std::collections::BTreeMap;
use std::fmt;

use bson::DateTime;
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::exit;
use crate::base::instant::Instant;
use crate::base::text::MAIL_WIDTH;
use crate::core::facts::ServerFacts;
use crate::core::plan::{Guard, Reason, Status};
use crate::core::policy::Policy;
use crate::core::policy::RunLimits;
use pacing::PacingReport;
pub use rule::{DeleteOrder, HeldBy, RelativeDateReport, RuleReport, Strategy, predicate_json};

/// Version of the report's format: raised when a field changes its meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Result of one run of sweeper. A value that was not measured is null. Instants are RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "sweeper report")]
pub struct Report {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    pub command: ReportCommand,
    pub dry_run: bool,
    /// Also sent with every command to the server, as its comment.
    #[schemars(extend("format" = "uuid"))]
    pub run_id: String,
    /// The instant that the run took for now; null where no server was asked.
    pub as_of: Option<Instant>,
    pub started_at: Instant,
    pub duration_ms: u64,
    #[schemars(extend("enum" = [0, 3, 4, 5, 6, 130, 143]))]
    pub exit_code: u8,
    /// The worst status of any rule; complete if all rules were skipped.
    #[schemars(extend("enum" = ["complete", "partial", "refused", "failed"]))]
    pub status: Status,
    pub policy: PolicyReport,
    /// Null where no server was asked.
    pub server: Option<ServerReport>,
    /// The saved audit that approved the sweep; null where there was none.
    pub plan: Option<PlanReport>,
    /// Limits of the whole run; null where it had none.
    pub limits: Option<ReportedLimits>,
    /// Values of pace and windows that were replaced while the sweep ran, in the order of time.
    #[serde(default)]
    pub pacing_changes: Vec<PacingReport>,
    /// One entry for each rule and namespace, in the order of the policy.
    pub rules: Vec<RuleReport>,
    pub totals: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "command")]
pub enum ReportCommand {
    Sweep,
    Audit,
    Check,
}

impl fmt::Display for ReportCommand {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// The policy of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "policy")]
pub struct PolicyReport {
    /// Path as given; - is standard input.
    pub path: String,
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
}

/// The deployment of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "server")]
pub struct ServerReport {
    #[schemars(extend("enum" = ["mongodb", "cosmosRu", "documentDb", "amazonDocumentDb"]))]
    pub flavor: String,
    /// Evidence by which the flavor was recognised.
    pub recognised_by: String,
    pub version: String,
    #[schemars(extend("enum" = ["standalone", "replicaSet", "sharded"]))]
    pub topology: String,
    /// Name of the replica set.
    pub name: Option<String>,
    /// Members as host:port: the members that the deployment names, or the members of the connection string if it names none.
    pub hosts: Vec<String>,
    /// Sentence that this service or version was never tested with this program; null if it was.
    pub untested: Option<String>,
}

/// The saved audit that approved a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "plan")]
pub struct PlanReport {
    pub path: String,
    /// Id of the run that saved it.
    #[schemars(extend("format" = "uuid"))]
    pub run_id: String,
}

/// Limits of a run, over all of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "limits")]
pub struct ReportedLimits {
    /// Documents that the run deletes at most.
    pub max_deletes: Option<u64>,
    /// Documents per second at most.
    pub rate: Option<u32>,
    /// Seconds that the run takes at most.
    pub max_duration_seconds: Option<u64>,
}

impl ReportedLimits {
    fn of(limits: RunLimits) -> Option<Self> {
        let RunLimits { max_deletes, rate, max_duration, concurrency: _ } = limits;
        let max_duration_seconds = max_duration.map(|most| most.as_secs());
        let is_limited = max_deletes.is_some() || rate.is_some() || max_duration.is_some();
        is_limited.then_some(Self { max_deletes, rate, max_duration_seconds })
    }
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
            untested: facts.untested(),
        }
    }
}

/// Sums over the rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "totals")]
pub struct Totals {
    pub rules: usize,
    /// Null if a rule that could be counted was not. Where `overlapping` is true a document counts once for each rule.
    pub expired_count: Option<u64>,
    /// Whether several rules count documents of one collection: the sums of documents and bytes are then upper bounds.
    #[serde(default)]
    pub overlapping: bool,
    /// In a dry run and an audit the documents that one sweep deletes at most: the documents of the rules, within the
    /// `maxDeletes` of the run. Null if it is unknown for a rule that may be swept.
    pub would_delete_count: Option<u64>,
    pub deleted_count: u64,
    /// Null if it is unknown for a rule; a skipped rule counts as 0.
    pub remaining_count: Option<u64>,
    /// Documents of the collections that were looked at, each collection counted once; null if there was none.
    pub document_count: Option<u64>,
    /// Size of the expired documents; null if it is unknown for a rule that was counted.
    pub estimated_bytes: Option<u64>,
    /// Bytes that the sweeps add to the oplog; null if they are unknown for a rule that has documents to delete. A refused rule
    /// deletes none.
    pub oplog_bytes: Option<u64>,
    /// Cost of everything that the run asked, its history included. Null where the service bills nothing, or no server was asked.
    #[schemars(range(min = 0))]
    pub request_units: Option<f64>,
    /// Orphans that the rules delete, where they were counted; null where none were.
    pub old_orphan_count: Option<u64>,
    /// Deleted orphans; null where no rule with children was swept.
    pub orphans_deleted_count: Option<u64>,
    pub failed: usize,
    pub refused: usize,
}

impl Totals {
    pub(crate) fn of(rules: &[RuleReport], dry_run: bool, max_deletes: Option<u64>) -> Self {
        let ready = rules.iter().filter(|rule| rule.status == Status::Complete);
        let would_delete = ready.map(|rule| rule.would_delete_count).sum::<Option<u64>>().filter(|_| dry_run);
        let count = |status| rules.iter().filter(|rule| rule.status == status).count();
        let uncountable =
            |rule: &&RuleReport| rule.expired_count.is_none() && matches!(rule.status, Status::Skipped | Status::Refused);
        let counted = || rules.iter().filter(|rule| !uncountable(rule));
        // No documents take no room, even where the size of a document is unknown.
        let size = |rule: &RuleReport| if rule.expired_count == Some(0) { Some(0) } else { rule.estimated_bytes };
        let collections: BTreeMap<&str, u64> =
            rules.iter().filter_map(|rule| Some((rule.namespace.as_str(), rule.document_count?))).collect();
        Self {
            rules: rules.len(),
            expired_count: counted().map(|rule| rule.expired_count).sum(),
            overlapping: overlap::is_shared(rules, |rule| rule.expired_count),
            would_delete_count: would_delete.map(|goes| goes.min(max_deletes.unwrap_or(u64::MAX))),
            document_count: (!collections.is_empty()).then(|| collections.values().sum()),
            estimated_bytes: counted().map(size).sum(),
            deleted_count: rules.iter().map(|rule| rule.deleted_count).sum(),
            remaining_count: rules.iter().filter(|rule| rule.status != Status::Skipped).map(|rule| rule.remaining_count).sum(),
            oplog_bytes: counted()
                .filter(|rule| rule.expired_count != Some(0) && rule.status != Status::Refused)
                .map(|rule| rule.estimate.as_ref()?.oplog_bytes)
                .sum(),
            request_units: None,
            old_orphan_count: known(rules, |rule| rule.old_orphan_count),
            orphans_deleted_count: known(rules, |rule| rule.orphans_deleted_count),
            failed: count(Status::Failed),
            refused: count(Status::Refused),
        }
    }
}

/// Returns the sum of the numbers that are known; `None` if none is.
fn known(rules: &[RuleReport], number: impl Fn(&RuleReport) -> Option<u64>) -> Option<u64> {
    rules.iter().filter_map(number).reduce(u64::saturating_add)
}

/// Values of a run apart from its rules.
pub struct RunRecord<'a> {
    pub command: ReportCommand,
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
    pub limits: RunLimits,
    pub pacing_changes: Vec<PacingReport>,
}

impl Report {
    /// Adds what the run spent, where the service bills requests.
    pub fn billed(mut self, request_units: Option<f64>) -> Self {
        self.totals.request_units = request_units.map(rule::two_decimals);
        self
    }

    /// Makes the exit code say whether a dry run that went well has found expired documents, or orphans that go.
    pub fn with_detailed_exit_code(mut self) -> Self {
        let is_found = self.dry_run && self.rules.iter().any(|rule| rule.expired_count.max(rule.old_orphan_count) > Some(0));
        if is_found && self.exit_code == exit::DONE {
            self.exit_code = exit::FOUND;
        }
        self
    }

    /// Makes the report of a run. Status and exit code follow from the rules, which the limit of the run holds for as well.
    pub fn new(run: RunRecord, mut rules: Vec<RuleReport>) -> Self {
        rules.iter_mut().for_each(|rule| rule.limit(run.limits.max_deletes));
        overlap::warn(run.command, &mut rules);
        let status =
            rules.iter().map(|rule| rule.status).max().filter(|status| *status > Status::Complete).unwrap_or(Status::Complete);
        let is_held = |rule: &RuleReport| rule.status == Status::Refused && rule.reason == Some(Reason::Guard(Guard::Lock));
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
            as_of: run.as_of.map(Instant),
            started_at: Instant(run.started_at),
            duration_ms: run.duration_ms,
            exit_code,
            status,
            policy: PolicyReport { path: run.policy.path.clone(), sha256: run.policy.sha256.clone() },
            server: run.server.map(ServerReport::from),
            plan: run.plan,
            limits: ReportedLimits::of(run.limits),
            pacing_changes: run.pacing_changes,
            totals: Totals::of(&rules, run.dry_run, run.limits.max_deletes),
            rules,
        }
    }
}

/// Formats of a report.
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
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the format for the extension of a file.
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

/// Returns one line with the outcome, and every rule that did not run to its end: all that a quiet run prints.
pub fn reason(report: &Report) -> String {
    let parts: Vec<String> = std::iter::once(lines::last(report).1).chain(lines::unfinished(report)).collect();
    parts.join("; ")
}

/// Look of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStyle {
    pub colored: bool,
    /// Columns of its reader's terminal.
    pub width: usize,
    /// Whether a dry run shows a paragraph about each rule, as an audit and a sweep do.
    pub is_detailed: bool,
}

impl Default for TableStyle {
    fn default() -> Self {
        Self { colored: false, width: MAIL_WIDTH, is_detailed: false }
    }
}

/// Renders a report; the text ends with a newline. Colours and width apply only to the table.
pub fn render(report: &Report, format: Format, look: TableStyle) -> String {
    match format {
        Format::Table if report.command == ReportCommand::Check => check::render(report, look),
        Format::Table => table::render(report, look),
        Format::Json => json::render(report),
        Format::Html => html::render(report),
        Format::Csv => csv::render(report),
        Format::Markdown => markdown::render(report, look),
    }
}
