//! Guards: conditions under which a rule is refused until a person has looked.

#[cfg(test)]
mod tests;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::UnknownField;
use super::{RunFacts, create_index};
use crate::base::text::{count, duration, percent};
use crate::core::plan::index::IndexChoice;
use crate::core::policy::namespace::Namespace;
use crate::core::policy::{DateFormat, Rule};

/// Maximum number of documents in a collection that is searched without an index and without the rule's permission.
pub const SCAN_GUARD_DOCUMENTS: u64 = 1_000_000;

/// Maximum difference between the clocks of client and server, in milliseconds.
pub const CLOCK_SKEW_GUARD_MS: i64 = 300_000;

/// Excess over the approved count that a sweep tolerates, in percent of that count, rounded up. At a fixed asOf the count can
/// only grow by documents that were inserted or changed since then and have a date in the past.
pub const TOLERANCE_PERCENT: u64 = 1;

/// Noun of what is counted outside of time-series collections.
pub const DOCUMENT: &str = "document";

/// Name of a guard, one word for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Guard {
    /// The clocks of client and server are too far apart.
    Clock,
    /// The deployment is not the one that the policy expects.
    Expect,
    /// The server is a part of a deployment, connected to without the rest.
    Detached,
    /// `--as-of` is later than the server's clock.
    AsOf,
    /// The saved plan does not allow the rule, or no longer holds.
    Plan,
    /// Another run holds the lease of the namespace.
    Lock,
    /// Documents may go for the lack of a field that no document was found to have.
    UnknownField,
    /// Documents may go because a field is compared with a type that no document was found to have there.
    UnknownType,
    /// A larger share of the collection has expired than `maxDeletePercent` allows.
    MaxDeletePercent,
    /// The oplog cannot keep the window that `minOplogWindow` asks for, or its window is unknown.
    MinOplogWindow,
    /// No index serves the rule, and the collection is large.
    CollectionScan,
    /// The index that the rule names as its hint cannot be used.
    Hint,
    /// The namespace does not exist, which `--strict` does not let pass.
    NoSuchNamespace,
    /// The namespace is a view.
    View,
    /// The collection is capped.
    Capped,
    /// The rule cannot be applied to the buckets of a time-series collection.
    TimeSeries,
    /// The rule names no field, and the collection is not a time-series collection.
    Field,
    /// The service does not compare by a collation.
    Collation,
    /// The service is not known to read dates of the rule's format.
    DateFormat,
    /// The documents cannot be archived before they are deleted.
    Archive,
    /// The children cannot go with their parents.
    Children,
    /// The holds cannot be read, or one of them has no key.
    Holds,
    /// The periods cannot be read, or one of them has no key.
    Periods,
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// Refusal of a rule by a guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub guard: Guard,
    /// Finding, expectation and remedy in words.
    pub detail: String,
}

impl Refusal {
    pub fn new(guard: Guard, detail: impl Into<String>) -> Self {
        Self { guard, detail: detail.into() }
    }
}

/// Permission of a saved plan for one rule in one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Approved {
    /// Documents that had expired when the plan was saved.
    pub count: u64,
    /// Maximum number of documents to delete, tolerance included.
    pub most: u64,
}

impl Approved {
    /// Approves `count` documents, and the tolerance on top.
    pub fn of(count: u64) -> Self {
        Self { count, most: count.saturating_add(count.saturating_mul(TOLERANCE_PERCENT).div_ceil(100)) }
    }

    /// Refuses a rule if more documents have expired than were approved, tolerance included.
    pub fn refusal(self, expired_count: u64) -> Option<Refusal> {
        (expired_count > self.most).then(|| {
            Refusal::new(
                Guard::Plan,
                format!(
                    "{} documents have expired, {} were approved, and {TOLERANCE_PERCENT} % more is tolerated; {AGAIN}",
                    count(expired_count),
                    count(self.count),
                ),
            )
        })
    }
}

/// Remedy for a plan that no longer holds.
pub const AGAIN: &str = "look at a new audit, and save it as the plan";

/// Refuses all rules of a run: on an unexpected deployment, on a part of one without the rest, at an instant in the future, or
/// with clocks too far apart.
pub fn of_run(run: &RunFacts) -> Option<Refusal> {
    if let Some(reason) = run.server.unexpected(run.expect) {
        return Some(Refusal::new(Guard::Expect, reason));
    }
    if let Some(reason) = run.server.role.detached() {
        return Some(Refusal::new(Guard::Detached, reason));
    }
    let ahead = run.as_of.timestamp_millis() - run.server.local_time.timestamp_millis();
    if ahead > 0 {
        return Some(Refusal::new(
            Guard::AsOf,
            format!(
                "`--as-of` is later than the server's clock, by {}; expected an earlier instant",
                duration(ahead.unsigned_abs())
            ),
        ));
    }
    let skew = run.server.clock_skew_ms;
    if skew.abs() > CLOCK_SKEW_GUARD_MS && !run.allow_clock_skew {
        return Some(Refusal::new(
            Guard::Clock,
            format!(
                "the clocks of this machine and of the server are {} s apart, {} s are allowed; set the wrong one, or pass `--allow-clock-skew`: the server's clock decides",
                skew.abs() / 1000,
                CLOCK_SKEW_GUARD_MS / 1000
            ),
        ));
    }
    None
}

/// Refuses a rule that may delete documents for the lack of a field that no document was found to have. With a wrong name the
/// rule would delete what it is to keep. `--strict` refuses a rule for any field.
pub fn unknown_field(unknown: &[UnknownField]) -> Option<Refusal> {
    let refused = || unknown.iter().filter(|unknown| unknown.is_refused() && unknown.field.compared.is_none());
    refused().next()?;
    let findings: Vec<String> = refused().map(UnknownField::finding).collect();
    let names: Vec<&str> = refused().map(|unknown| unknown.field.shown.as_str()).collect();
    let why = match refused().any(|unknown| unknown.field.is_guarded) {
        true => "a misspelt name would delete documents that are meant to be kept",
        false => "`--strict` does not let that pass",
    };
    Some(Refusal::new(
        Guard::UnknownField,
        format!(
            "{}; {why}: correct it or, if no document needs the field, set `allowUnknownFields: [{}]`",
            findings.join("; "),
            names.join(", ")
        ),
    ))
}

/// Refuses a rule that may delete documents because it compares a field with a type that no document was found to have there.
/// The comparison is never true, so that its negation always is. `--strict` refuses a rule for any such comparison.
pub fn unknown_type(unknown: &[UnknownField]) -> Option<Refusal> {
    let refused = || unknown.iter().filter(|unknown| unknown.is_refused() && unknown.field.compared.is_some());
    refused().next()?;
    let findings: Vec<String> = refused().map(UnknownField::finding).collect();
    let mut names: Vec<&str> = refused().map(|unknown| unknown.field.shown.as_str()).collect();
    names.dedup();
    let why = match refused().any(|unknown| unknown.field.is_guarded) {
        true => "with a wrong type the rule does not select what it says",
        false => "`--strict` does not let that pass",
    };
    Some(Refusal::new(
        Guard::UnknownType,
        format!(
            "{}; {why}: correct the value or, if documents may come to have the type, set `allowUnknownTypes: [{}]`",
            findings.join("; "),
            names.join(", ")
        ),
    ))
}

/// Refuses a rule under `--strict` whose namespace does not exist.
pub fn no_such_namespace(namespace: &Namespace) -> Refusal {
    let detail = format!("no such namespace: `{namespace}`; `--strict` does not let that pass: correct it, or disable the rule");
    Refusal::new(Guard::NoSuchNamespace, detail)
}

/// Refuses to search a large collection for dates without an index.
pub fn scan(
    rule: &Rule,
    namespace: &Namespace,
    field: &str,
    index: Option<&IndexChoice>,
    document_count: u64,
) -> Option<Refusal> {
    let refusal = search(rule, namespace, field, index, document_count)?;
    if !rule.date_format.is_none_or(DateFormat::is_sorted_by_index) {
        return Some(Refusal::new(
            Guard::CollectionScan,
            format!(
                "no index serves dates in strings (`dateFormat: iso8601`), and the collection has {document_count} documents; at most \
                 {SCAN_GUARD_DOCUMENTS} are searched without one; set `allowCollectionScan: true`, or hint at an index that serves the `filter`"
            ),
        ));
    }
    Some(refusal)
}

/// Refuses to search a large collection for the values of a field without an index.
pub fn search(
    rule: &Rule,
    namespace: &Namespace,
    field: &str,
    index: Option<&IndexChoice>,
    document_count: u64,
) -> Option<Refusal> {
    let is_bounded = index.is_some_and(|index| index.bounded);
    if is_bounded || document_count <= SCAN_GUARD_DOCUMENTS || rule.allow_collection_scan {
        return None;
    }
    Some(Refusal::new(
        Guard::CollectionScan,
        format!(
            "no index serves `{field}`, and the collection has {document_count} documents; at most {SCAN_GUARD_DOCUMENTS} are searched without one; \
             create it: {create}, or set `allowCollectionScan: true`",
            create = create_index(namespace, field),
        ),
    ))
}

/// Returns a number of documents in a collection from which on so many expired documents are a share that `maxDeletePercent`
/// allows; `None` if it allows any share of them.
pub fn enough_documents(max_delete_percent: Option<f64>, expired_count: u64) -> Option<u64> {
    let limit = max_delete_percent?;
    share(max_delete_percent, expired_count, expired_count, DOCUMENT)?;
    // One more than the quotient, which is rounded. A cast from float saturates.
    Some(((expired_count as f64 * 100.0 / limit).ceil() as u64).saturating_add(1))
}

/// Refuses a rule if its expired documents are a larger share of the collection than `maxDeletePercent`. `noun` is what is
/// counted: `document` or `bucket`.
///
/// If `document_count` is less than the expired count, the share is 100 %.
pub fn share(max_delete_percent: Option<f64>, expired_count: u64, document_count: u64, noun: &str) -> Option<Refusal> {
    let limit = max_delete_percent?;
    let percent = percent(expired_count, document_count)?;
    (percent > limit).then(|| {
        Refusal::new(
            Guard::MaxDeletePercent,
            format!(
                "{} of {} {noun}s have expired, {percent:.2} %, and {limit} % may be deleted; raise `maxDeletePercent` if that is \
                 intended",
                count(expired_count),
                count(document_count)
            ),
        )
    })
}
