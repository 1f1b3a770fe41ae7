//! What an audit adds to a rule of the report: how old documents are, what comes next, what stays for ever, examples, cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What only an audit looks at. A value that was not measured is null.
///
/// Documents are those that the rule's filter selects; in a time-series collection they are buckets, and their date is that of the latest
/// measurement. Every document is in `ageHistogram`, once, or in `neverExpires` of the rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// Null: every document was looked at. The counts of the histogram, the forecast and the backlog are then exact, else projected.
    pub sampling: Option<Sampling>,
    /// The latest date of any expired document.
    pub newest_expired: Option<String>,
    /// Documents by the age of the date that decides, the future first; ranges without documents are left out at both ends only.
    pub age_histogram: Option<Vec<AgeRange>>,
    /// How many documents expire on each of the 30 days after asOf, if nothing is inserted, changed or deleted.
    pub forecast: Option<Vec<ForecastDay>>,
    /// Expired documents by the month (UTC) of the date that decided, the earliest first.
    pub backlog: Option<Vec<BacklogMonth>>,
    /// Some `_id`s of documents that never expire, by the reasons of `neverExpires`, as canonical Extended JSON; at most 5 of each.
    pub never_expires_samples: BTreeMap<String, Vec<Value>>,
    /// At most 10 documents that have expired, the oldest first where an index gives that order.
    pub samples: Vec<Sample>,
    /// What finding the expired documents costs, by the server's own account.
    pub examined: Option<Examined>,
    /// The command of mongosh that creates the index that would help; null where there is one.
    pub create_index: Option<String>,
    /// Whether the deployment's own TTL does what the rule does; null where its settings could not be read.
    pub native_comparison: Option<NativeComparison>,
}

/// The deployment's own TTL beside the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NativeComparison {
    pub state: NativeState,
    /// What is there, in words.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NativeState {
    /// The server deletes what the rule deletes.
    Same,
    /// The server deletes there as well, but something else or at another time.
    Differs,
    /// The server deletes nothing by this field.
    None,
}

impl NativeState {
    pub fn word(self) -> &'static str {
        match self {
            NativeState::Same => "same",
            NativeState::Differs => "differs",
            NativeState::None => "none",
        }
    }
}

/// How a part of the documents stands for all of them: counts are those of the sample, times `of` by `documents`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sampling {
    pub documents: u64,
    pub of: u64,
    /// 95 % of all shares that were measured are within so many percentage points of the true ones.
    pub margin_percent: f64,
}

/// Documents whose age in seconds is in `minAgeSeconds <= age < maxAgeSeconds`; null is without end. Ages below 0 are dates in the future.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgeRange {
    pub min_age_seconds: Option<i64>,
    pub max_age_seconds: Option<i64>,
    pub expired_count: u64,
    pub not_expired_count: u64,
}

/// Documents that expire after `from` and up to 24 hours later, that instant included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastDay {
    /// The beginning of the 24 hours, counted from asOf.
    pub from: String,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BacklogMonth {
    /// Such as `2026-01`; earlier than the year 0 is `0000-01`.
    pub month: String,
    pub count: u64,
}

/// One expired document, without its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// The `_id` as canonical Extended JSON.
    pub id: Value,
    /// The date that decided.
    pub date: String,
    /// Why it decided, such as `earliest of 3 dates` or `ttl 20 overrides 3600`.
    pub why: String,
}

/// Of the first 10,000 expired documents along the index; without one of all documents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Examined {
    pub documents: u64,
    pub keys: u64,
    pub returned: u64,
}
