//! A report as the document that records the run.

use bson::{Bson, Document};

use crate::instant;
use crate::report::{Report, RuleReport, Status};

/// No document is longer, in bytes: Azure Cosmos DB takes 2 MB, MongoDB 16.
const LONGEST: usize = 1_900_000;

/// What is an instant of the report is a date of the document.
const DATES_OF_RUN: [&str; 2] = ["asOf", "startedAt"];
const DATES_OF_RULE: [&str; 3] = ["threshold", "oldestExpired", "oldestRemaining"];

/// The document of a run: the report with dates as dates, `_id` in place of `runId`, the version of sweeper and, where the run came to no
/// end, why. The rules are without their predicates. Of a report that is too long rules are left out, those that had nothing to do first; `rulesOmitted` says how many.
///
/// Errors: the report holds a number that BSON has no type for.
pub fn document(report: &Report, error: Option<&str>) -> bson::error::Result<Document> {
    let mut document = Document::from_iter([("_id".to_owned(), Bson::from(report.run_id.as_str()))]);
    let head = Report { rules: Vec::new(), ..report.clone() };
    document.extend(bson::serialize_to_document(&head)?);
    document.remove("runId");
    into_dates(&mut document, &DATES_OF_RUN);
    document.insert("version", env!("CARGO_PKG_VERSION"));
    document.insert("error", error);
    let mut room = LONGEST.saturating_sub(bson::serialize_to_vec(&document)?.len());
    let mut kept = Vec::new();
    for (place, rule) in by_weight(&report.rules) {
        let mut entry = bson::serialize_to_document(rule)?;
        into_dates(&mut entry, &DATES_OF_RULE);
        // Its operators would be names of fields, which not every server stores.
        entry.remove("predicate");
        // Beside it an element of an array has its type and its place in digits.
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

/// The rules with their places, those first that are missed most.
fn by_weight(rules: &[RuleReport]) -> Vec<(usize, &RuleReport)> {
    let mut rules: Vec<_> = rules.iter().enumerate().collect();
    let is_idle = |rule: &RuleReport| rule.deleted_count == 0 && rule.status <= Status::Complete;
    rules.sort_by_key(|(_, rule)| (is_idle(rule), std::cmp::Reverse(rule.status), std::cmp::Reverse(rule.deleted_count)));
    rules
}

fn into_dates(document: &mut Document, keys: &[&str]) {
    for key in keys {
        if let Some(date) = document.get_str(key).ok().and_then(instant::parse) {
            document.insert(*key, date);
        }
    }
}
