//! Effects of a change that no count shows: most of them on Azure Cosmos DB (RU).

use super::change::Change;
use super::target::TtlTarget;
use crate::core::facts::{NativeTtl, Scope};

/// The cost of the service's own deletes. Source: Microsoft, "Time to Live (TTL) in Azure Cosmos DB".
pub const COST: &str = "the service's own deletes take request units that are left over; a serverless account is billed for them";

/// Returns sentences about the effects of a change; none of one that only modifies an index.
///
/// A document that has expired is invisible at once and deleted later, so that it reappears if TTL is switched off in between
/// (MicrosoftDocs/azure-docs#24025).
pub fn notes(change: &Change, native: Option<&NativeTtl>, target: &TtlTarget) -> Vec<String> {
    if target.scope != Scope::LastChange && !change.drops() {
        return Vec::new();
    }
    if target.scope == Scope::Index && native.is_none() {
        return vec!["until the index is there again, queries go without it".into()];
    }
    let mut notes = Vec::new();
    match target.seconds {
        None => notes.push("documents that have expired, but that the service has not deleted yet, reappear, and stay"),
        Some(_) if change.drops() && native.is_some() => notes.push(
            "until the index is there again, documents that have expired, but that the service has not deleted yet, reappear; those that have \
             not expired by the new value stay",
        ),
        Some(_) => {}
    }
    if let (Scope::LastChange, Some(seconds)) = (target.scope, target.seconds) {
        notes.push("how many documents go at once cannot be counted: `_ts` is not visible");
        let no_default = seconds < 0;
        notes.push(if no_default {
            "only documents with their own `ttl` expire"
        } else {
            "a document's own `ttl` overrides the value"
        });
    }
    notes.extend(target.seconds.map(|_| COST));
    notes.into_iter().map(str::to_owned).collect()
}
