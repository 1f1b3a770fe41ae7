//! What stands between a rule and its deletes: conditions that a person is to see before anything goes.

use super::{RunFacts, create_index};
use crate::plan::index::IndexChoice;
use crate::policy::Rule;
use crate::policy::namespace::Namespace;
use crate::text::{count, percent};

/// More documents than this are gone through without an index only where the rule allows it.
pub const SCAN_GUARD_DOCUMENTS: u64 = 1_000_000;

/// Clocks of client and server further apart than this stop a sweep, in milliseconds.
pub const CLOCK_SKEW_GUARD_MS: i64 = 300_000;

/// Why a guard does not let a rule run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One word for machines: the guard.
    pub guard: &'static str,
    /// What was found, what was expected and what to do.
    pub detail: String,
}

impl Refusal {
    pub fn new(guard: &'static str, detail: impl Into<String>) -> Self {
        Self { guard, detail: detail.into() }
    }
}

/// Says why nothing at all may be deleted in this run.
pub fn of_run(run: &RunFacts) -> Option<Refusal> {
    if let Some(reason) = run.server.unexpected(run.expect) {
        return Some(Refusal::new("expect", reason));
    }
    let ahead = run.as_of.timestamp_millis() - run.server.local_time.timestamp_millis();
    if ahead > 0 {
        return Some(Refusal::new(
            "asOf",
            format!("`--as-of` is later than the server's clock, by {ahead} ms; expected an earlier instant"),
        ));
    }
    let skew = run.server.clock_skew_ms;
    if skew.abs() > CLOCK_SKEW_GUARD_MS && !run.allow_clock_skew {
        return Some(Refusal::new(
            "clock",
            format!(
                "the clocks of this machine and of the server are {} s apart, {} s are allowed; set the wrong one, or pass `--allow-clock-skew`: the server's clock decides",
                skew.abs() / 1000,
                CLOCK_SKEW_GUARD_MS / 1000
            ),
        ));
    }
    None
}

/// Says why a large collection is not gone through without an index.
pub fn scan(
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
        "collectionScan",
        format!(
            "no index serves `{field}`, and the collection has {document_count} documents; at most {SCAN_GUARD_DOCUMENTS} are gone through without one; \
             create it: {create}, or set `allowCollectionScan: true`",
            create = create_index(namespace, field),
        ),
    ))
}

/// Refuses a rule whose expired documents are too great a share of the collection.
///
/// `document_count` is the collection's own count; an expired count above it makes the share 100 %.
pub fn share(max_delete_percent: Option<f64>, expired_count: u64, document_count: u64) -> Option<Refusal> {
    let limit = max_delete_percent?;
    let percent = percent(expired_count, document_count)?;
    (percent > limit).then(|| {
        Refusal::new(
            "maxDeletePercent",
            format!(
                "{} of {} documents have expired, {percent:.2} %, and {limit} % may be deleted; raise `maxDeletePercent` if that is \
                 intended",
                count(expired_count),
                count(document_count)
            ),
        )
    })
}
