//! History of runs: the document that records a run, and the list of the last ones.

mod document;
mod render;
mod trend;

use bson::{Bson, Document};
use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

use super::SCHEMA_VERSION;
use crate::base::instant::Instant;
use crate::base::values::count_in;
use crate::core::plan::Status;
use crate::core::policy::namespace::glob;

use document::RUNNING;
pub use document::{document, opening};
pub use render::render;
pub use trend::speeds;

/// The last runs of the history.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "sweeper history")]
pub struct History {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    #[schemars(extend("const" = "history"))]
    pub command: &'static str,
    /// Namespace of the history.
    pub collection: String,
    /// Newest first.
    pub runs: Vec<RecordedRun>,
    /// Null if no run has ended with a report.
    pub median: Option<Median>,
}

/// One recorded run. A value that was not measured is null.
#[derive(Debug, Default, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "run")]
pub struct RecordedRun {
    pub run_id: String,
    pub started_at: Instant,
    /// Null for a run that has not ended.
    pub duration_ms: Option<u64>,
    /// Null for a run that has not ended.
    pub exit_code: Option<u8>,
    /// The status of the report; `running` for a run that has not ended: it still runs, or it was killed.
    pub status: String,
    pub expired_count: Option<u64>,
    /// Null for a run that has not ended.
    pub deleted_count: Option<u64>,
    pub remaining_count: Option<u64>,
    /// Null if the run took less than a millisecond.
    pub deleted_per_second: Option<f64>,
    /// Error of a run that ended without a report.
    pub error: Option<String>,
    /// Machine of the process.
    pub host: Option<String>,
    /// Process id.
    pub pid: Option<u64>,
}

/// Median over the runs in the list that ended with a report, for each value separately.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "median")]
pub struct Median {
    pub deleted_count: f64,
    pub duration_ms: f64,
    pub deleted_per_second: Option<f64>,
}

impl History {
    /// Reads the documents of runs, newest first, and leaves out documents that record no run. `only` are patterns for the names
    /// and namespaces of rules. If there are any, runs without a matching rule are left out, and counts are the counts of the
    /// matching rules.
    pub fn new(collection: String, documents: &[Document], only: &[String]) -> Self {
        let runs: Vec<RecordedRun> = documents.iter().filter_map(|document| RecordedRun::read(document, only)).collect();
        let median = trend::median_of(&runs);
        Self { schema_version: SCHEMA_VERSION, command: "history", collection, runs, median }
    }
}

impl RecordedRun {
    fn read(document: &Document, only: &[String]) -> Option<Self> {
        let status = document.get_str("status").ok()?;
        let none = Document::new();
        let is_running = status == RUNNING;
        let totals = document.get_document("totals").ok().or(is_running.then_some(&none))?;
        let mut run = Self {
            run_id: document.get_str("_id").ok()?.to_owned(),
            started_at: Instant(*document.get_datetime("startedAt").ok()?),
            duration_ms: count_in(document, "durationMs"),
            exit_code: count_in(document, "exitCode").and_then(|code| u8::try_from(code).ok()),
            status: status.to_owned(),
            expired_count: count_in(totals, "expiredCount"),
            deleted_count: count_in(totals, "deletedCount"),
            remaining_count: count_in(totals, "remainingCount"),
            deleted_per_second: None,
            error: document.get_str("error").ok().map(str::to_owned),
            host: document.get_str("host").ok().map(str::to_owned),
            pid: count_in(document, "pid"),
        };
        if is_running {
            // Its rules are unknown, so it is shown for all of them.
            return Some(run);
        }
        let (duration_ms, _, _) = (run.duration_ms?, run.exit_code?, run.deleted_count?);
        if !only.is_empty() {
            let rules = document.get_array("rules").into_iter().flatten().filter_map(Bson::as_document);
            run.narrow(&rules.filter(|rule| is_meant(rule, only)).collect::<Vec<_>>())?;
        }
        run.deleted_per_second = run.deleted_count.filter(|_| duration_ms > 0).map(|deleted| trend::rate(deleted, duration_ms));
        Some(run)
    }

    /// Whether the run has ended, well or not.
    pub fn has_ended(&self) -> bool {
        self.status != RUNNING
    }

    /// Whether the run has ended with a report.
    pub fn has_report(&self) -> bool {
        self.has_ended() && self.error.is_none()
    }

    /// Narrows status and counts to these rules; `None` if there are none.
    fn narrow(&mut self, rules: &[&Document]) -> Option<()> {
        let worst = rules.iter().filter_map(|rule| rule.get_str("status").ok()).max_by_key(|status| severity(status))?;
        worst.clone_into(&mut self.status);
        self.deleted_count = Some(rules.iter().filter_map(|rule| count_in(rule, "deletedCount")).sum());
        self.expired_count = rules.iter().map(|rule| count_in(rule, "expiredCount")).sum();
        self.remaining_count = rules.iter().map(|rule| count_in(rule, "remainingCount")).sum();
        Some(())
    }
}

fn is_meant(rule: &Document, only: &[String]) -> bool {
    let names = ["name", "namespace"].into_iter().filter_map(|key| rule.get_str(key).ok());
    names.into_iter().any(|name| only.iter().any(|pattern| glob(pattern, name)))
}

/// Returns the status that a word stands for; `None`, which sorts below every status, for a word of a later version.
fn severity(status: &str) -> Option<Status> {
    let word: StrDeserializer<value::Error> = status.into_deserializer();
    Status::deserialize(word).ok()
}
