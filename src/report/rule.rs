//! One rule of a report: what was measured, what was deleted, how it ended.

use std::collections::BTreeMap;

use bson::Bson;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Status;
use super::audit::AuditReport;
use super::native_ttl::{self, NativeSetting};
use crate::instant::rfc3339;
use crate::plan::{PlannedRule, Selection};
use crate::text::percent;

/// How long nothing was sent on purpose, in milliseconds by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// What a document has to match to be deleted, as relaxed Extended JSON; null where nothing could be.
    pub predicate: Option<Value>,
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
    /// Expired documents that the run left; null where nobody knows.
    pub remaining_count: Option<u64>,
    /// The earliest date of any document that remains.
    pub oldest_remaining: Option<String>,
    /// Written out before they were deleted, or before they would have been; null where the rule has no archive, or nothing was swept.
    pub archived_count: Option<u64>,
    /// The directory that they were written to, of a run's own; of what was not swept the directory that the policy names.
    pub archive: Option<String>,
    /// By the collection's own count, before the first delete.
    pub document_count: Option<u64>,
    pub expired_percent: Option<f64>,
    pub oldest_expired: Option<String>,
    /// Expired documents times the mean size of a document.
    pub estimated_bytes: Option<u64>,
    /// Documents that the rule leaves alone for ever, by reason; null where they were not counted.
    pub never_expires: Option<BTreeMap<String, u64>>,
    pub batches: u64,
    /// Null where nothing was swept.
    pub paused_ms: Option<PausedMs>,
    /// What the sweep cost, where the service bills requests.
    pub request_units: Option<f64>,
    pub duration_ms: u64,
    /// The deployment's own TTL settings there; null where they were not looked at.
    pub native_ttl: Option<Vec<NativeSetting>>,
    /// `index`, `buckets` or `collectionScan`.
    pub strategy: Option<String>,
    pub index: Option<String>,
    pub warnings: Vec<String>,
    pub error: Option<String>,
    /// What only an audit looks at; it stands among the other keys of the rule.
    #[serde(flatten)]
    pub audit: Option<AuditReport>,
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
            threshold: planned.threshold.map(rfc3339),
            predicate: None,
            status: Status::Complete,
            reason: None,
            expired_count: None,
            expired_measurements: None,
            deleted_count: 0,
            uncertain: false,
            remaining_count: None,
            oldest_remaining: None,
            archived_count: None,
            archive: None,
            document_count: None,
            expired_percent: None,
            oldest_expired: None,
            estimated_bytes: None,
            never_expires: None,
            batches: 0,
            paused_ms: None,
            request_units: None,
            duration_ms: 0,
            native_ttl: planned.collection.as_deref().and_then(native_ttl::settings),
            strategy: None,
            index: None,
            warnings: planned.warnings.clone(),
            error: None,
            audit: None,
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

/// A selection's predicate as reports show it.
pub fn predicate_json(selection: &Selection) -> Value {
    Bson::Document(selection.predicate.clone()).into_relaxed_extjson()
}

fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A rule of which nothing is known.
    pub fn report(name: &str, namespace: &str) -> RuleReport {
        let json = serde_json::json!({
            "name": name, "namespace": namespace, "expireAfterSeconds": 3600, "status": "complete", "deletedCount": 0,
            "uncertain": false, "batches": 0, "durationMs": 0, "warnings": [],
        });
        serde_json::from_value(json).expect("the fields of a rule that are never null")
    }
}
