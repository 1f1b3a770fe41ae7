//! Figures that an audit adds to the report of a rule: ages, forecast, backlog, documents that never expire, examples, cost.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::instant::Instant;
use crate::base::text::{count, duration, plural};
use crate::core::facts::IdleReason;
use crate::core::policy::duration as time;

/// Reasons why a document never expires. From missing to otherType the reason is the value that the field holds in place of a
/// date. From ttlNever to before1970 it is a property of the document or its date. For parentField it is the fields by which
/// its children name the document.
pub(crate) const NEVER_EXPIRES_REASONS: [&str; 19] = [
    "missing",
    "null",
    "string",
    "number",
    "decimal",
    "date",
    "timestamp",
    "emptyArray",
    "arrayWithoutDate",
    "otherType",
    "ttlNever",
    "ttlNotPositive",
    "noTtl",
    "implausibleEpoch",
    "before1970",
    "periodNever",
    "periodUnclear",
    "noPeriod",
    PARENT_FIELD,
];

/// Reason why a parent that has expired stays: it is unclear which children it has.
pub(crate) const PARENT_FIELD: &str = "parentField";

/// The lag in seconds from which whole days are shown.
const TWO_DAYS: u64 = 2 * 86_400;

/// Figures of an audit. A value that was not measured is null.
///
/// Only documents that the rule's filter selects count; in a time-series collection the documents are buckets, dated by their
/// latest measurement. Every document is counted once, either in `ageHistogram` or in `neverExpires` of the rule.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// In an audit: the sample; null if every document was looked at. The counts of ageHistogram, forecast, backlog and
    /// neverExpires are then the counts of the sample, multiplied by `of` / `documents`.
    pub sampling: Option<Sampling>,
    /// In an audit: the latest date of any expired document. Null where there is none, or in a sample.
    pub newest_expired: Option<Instant>,
    /// In an audit: documents by the age of the date that decides, the future first. Ranges without documents are left out at
    /// both ends.
    pub age_histogram: Option<Vec<AgeRange>>,
    /// In an audit: the number of documents that expire on each of the 30 days after asOf, if nothing is inserted, changed or
    /// deleted.
    pub forecast: Option<Vec<ForecastDay>>,
    /// In an audit: documents by their period. Null where the rule has no periods.
    pub by_period: Option<Vec<PeriodDocuments>>,
    /// In an audit: expired documents by the month (UTC) of the date that decided, the earliest first.
    pub backlog: Option<Vec<BacklogMonth>>,
    /// In an audit: some `_id`s for each reason of neverExpires, as canonical Extended JSON; at most 5 of each.
    #[schemars(extend("propertyNames" = { "enum": NEVER_EXPIRES_REASONS }))]
    pub never_expires_samples: BTreeMap<String, Vec<Value>>,
    /// In an audit: some expired documents, the oldest first where an index gives that order.
    #[schemars(length(max = 10))]
    pub samples: Vec<Sample>,
    /// In an audit: the cost, as the server reports it, of finding the first 10,000 expired documents along the index, or all of
    /// them without an index. Null where it is unknown.
    pub examined: Option<Examined>,
    /// In an audit: the mongosh command that creates an index for the rule; null where an index serves it already.
    pub create_index: Option<String>,
    /// In an audit: the deployment's own TTL compared with the rule; null where it could not be read.
    pub native_comparison: Option<NativeComparison>,
    /// In an audit: documents with a date before asOf whose value in `ttlField` does not count, because it is no whole number
    /// that fits 32 bits; `expireAfterSeconds` decides for them. Null without a `ttlField`.
    pub ignored_ttl_count: Option<u64>,
    /// In an audit: the deployment's own TTL settings of the collection that are set and delete nothing, or are far behind; null
    /// where they were not looked at.
    pub native_troubles: Option<Vec<NativeTrouble>>,
}

/// Documents with one period. A ttl of their own is not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "periodDocuments")]
pub struct PeriodDocuments {
    /// Period, ofRule, never, unclear, or missing where the rule has no time of its own.
    pub kind: PeriodKind,
    /// Seconds after which they expire; null if they never do.
    pub seconds: Option<i64>,
    pub count: u64,
}

/// Kind of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "periodKind")]
pub enum PeriodKind {
    Period,
    OfRule,
    Never,
    Unclear,
    Missing,
}

impl PeriodDocuments {
    /// Names the period.
    pub fn words(&self) -> String {
        let seconds = self.seconds.map(time::format).unwrap_or_default();
        match self.kind {
            PeriodKind::Period => seconds,
            PeriodKind::OfRule => format!("{seconds} (the rule's own)"),
            PeriodKind::Never => "never".to_owned(),
            PeriodKind::Unclear => "unclear".to_owned(),
            PeriodKind::Missing => "no period".to_owned(),
        }
    }
}

/// A native TTL setting that does not do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "nativeTrouble")]
pub struct NativeTrouble {
    /// Name of the index; null if the setting belongs to the collection itself.
    pub index: Option<String>,
    /// Field of the dates, or all fields of an index by which the server never deletes.
    pub field: String,
    pub reason: IdleReason,
    /// The reason in words.
    pub detail: String,
    /// Documents, in a time-series collection buckets, that the server should have deleted more than 10 minutes ago; null if they
    /// were not counted.
    pub overdue_count: Option<u64>,
    /// Seconds since the first of them expired by the setting; null if none is overdue, or its time is unknown.
    pub behind_seconds: Option<u64>,
}

impl NativeTrouble {
    /// Says which setting it is, why it deletes nothing, and how far it is behind.
    pub fn words(&self) -> String {
        let place = self.index.as_ref().map_or_else(|| "the collection's own".to_owned(), |index| format!("index {index}"));
        let mut words = format!("{place} ({}): {}", self.field, self.detail);
        if let Some(overdue) = self.overdue_count {
            words.push_str(&format!("; {} overdue", plural(overdue, "document")));
        }
        match self.behind_seconds {
            Some(behind @ TWO_DAYS..) => words.push_str(&format!(", the first by {} days", count(behind / 86_400))),
            Some(behind) => words.push_str(&format!(", the first by {}", duration(behind.saturating_mul(1000)))),
            None => {}
        }
        words
    }
}

/// The deployment's own TTL compared with the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "nativeComparison")]
pub struct NativeComparison {
    pub state: NativeState,
    /// The deployment's setting in words.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "nativeState")]
pub enum NativeState {
    /// The server deletes the same documents as the rule.
    Same,
    /// The server deletes there as well, but other documents or at another time.
    Differs,
    /// The server deletes nothing by this field.
    None,
}

impl fmt::Display for NativeState {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// Size of the sample that stands for all documents: counts come from the sample, multiplied by `of` / `documents`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "sampling")]
pub struct Sampling {
    pub documents: u64,
    pub of: u64,
    /// Precision: 95 % of all measured shares are within this many percentage points of the true ones.
    #[schemars(range(min = 0, max = 100))]
    pub margin_percent: f64,
}

/// Documents whose age in seconds is in `minAgeSeconds <= age < maxAgeSeconds`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ageRange")]
pub struct AgeRange {
    /// Inclusive; negative for dates in the future; null if the range has no lower end.
    pub min_age_seconds: Option<i64>,
    /// Exclusive; null if the range has no upper end.
    pub max_age_seconds: Option<i64>,
    pub expired_count: u64,
    pub not_expired_count: u64,
}

/// Documents that expire within 24 hours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "forecastDay")]
pub struct ForecastDay {
    /// Beginning of the 24 hours, counted from asOf: the documents expire after it and up to 24 hours later, that instant
    /// included.
    pub from: Instant,
    pub count: u64,
}

/// Expired documents of one month.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "backlogMonth")]
pub struct BacklogMonth {
    /// Year and month, such as `2026-01`; 0000-01 also stands for everything earlier.
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}$"))]
    pub month: String,
    pub count: u64,
}

/// One expired document, without its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "sample")]
pub struct Sample {
    /// The `_id` as canonical Extended JSON.
    pub id: Value,
    /// The date that decided.
    pub date: Instant,
    /// Reason for the decision, such as `earliest of 3 dates` or `ttl 20 overrides 3600`.
    pub why: String,
}

/// Cost of finding expired documents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "examined")]
pub struct Examined {
    pub documents: u64,
    pub keys: u64,
    pub returned: u64,
}
