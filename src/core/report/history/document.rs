//! Document that records a run in the history.

use bson::{Bson, Document};
use serde::Serialize;

use crate::core::plan::Status;
use crate::core::report::{Report, RuleReport};

/// Maximum size of a document in bytes: Azure Cosmos DB accepts 2 MB, MongoDB 16 MB.
const MAX_BYTES: usize = 1_900_000;

/// Returns the document of a run: the report with instants as dates, `_id` in place of `runId`, the version of sweeper and, for a
/// run without a report, the error. The rules lack their predicates. If the report is too long, rules are left out, beginning
/// with those that had nothing to do; `rulesOmitted` is their number.
///
/// Errors: the report holds a number that BSON has no type for.
pub fn document(report: &Report, error: Option<&str>) -> bson::error::Result<Document> {
    let mut document = Document::from_iter([("_id".to_owned(), Bson::from(report.run_id.as_str()))]);
    let head = Report { rules: Vec::new(), ..report.clone() };
    document.extend(to_document(&head)?);
    document.remove("runId");
    document.insert("version", env!("CARGO_PKG_VERSION"));
    document.insert("error", error);
    let mut room = MAX_BYTES.saturating_sub(bson::serialize_to_vec(&document)?.len());
    let mut kept = Vec::new();
    for (place, rule) in by_weight(&report.rules) {
        let mut entry = to_document(rule)?;
        // Operators would become names of fields, and not every server stores fields with such names.
        entry.remove("predicate");
        // An element of an array also takes its type and its index in digits.
        let length = bson::serialize_to_vec(&entry)?.len() + 12;
        let Some(rest) = room.checked_sub(length) else { break };
        room = rest;
        kept.push((place, Bson::from(entry)));
    }
    kept.sort_by_key(|(place, _)| *place);
    document.insert("rulesOmitted", (report.rules.len() - kept.len()) as i64);
    document.insert("rules", kept.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>());
    Ok(document)
}

/// Word for the status of a run that has not ended.
pub(super) const RUNNING: &str = "running";

/// Returns the document of a run that begins, without `_id`: what a report says at the end is null. `report` has no rules yet.
///
/// Errors: the report holds a number that BSON has no type for.
pub fn opening(report: &Report) -> bson::error::Result<Document> {
    let mut opening = document(report, None)?;
    opening.remove("_id");
    for unknown in ["durationMs", "exitCode", "totals"] {
        opening.insert(unknown, Bson::Null);
    }
    opening.insert("status", RUNNING);
    Ok(opening)
}

/// Returns the rules with their indexes, the most important first.
fn by_weight(rules: &[RuleReport]) -> Vec<(usize, &RuleReport)> {
    let mut rules: Vec<_> = rules.iter().enumerate().collect();
    let is_idle = |rule: &RuleReport| !rule.has_deleted() && rule.status <= Status::Complete;
    rules.sort_by_key(|(_, rule)| (is_idle(rule), std::cmp::Reverse(rule.status), std::cmp::Reverse(rule.deleted_count)));
    rules
}

/// Returns a value as a document in which instants are dates. Goes through the binary form, because only that tells serde that
/// the form is not meant for people.
fn to_document(value: &impl Serialize) -> bson::error::Result<Document> {
    bson::deserialize_from_slice(&bson::serialize_to_vec(value)?)
}
