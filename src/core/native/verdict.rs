//! Comparison of a rule with native TTL in one sentence, for audits: a reader can decide whether both are needed.

use bson::Bson;

use super::diff::{DiffState, Difference};
use super::{notes, own_ttl};
use crate::core::audit::figures::{NativeComparison, NativeState};
use crate::core::facts::{CollectionKind, NativeTtl, ServerFacts};
use crate::core::plan::PlannedRule;

/// Returns whether native TTL does what the rule does, with a sentence; `None` if the two were not compared.
pub fn verdict(planned: &PlannedRule, differences: &[Difference], server: &ServerFacts) -> Option<NativeComparison> {
    let is_mine = |difference: &&Difference| {
        difference.namespace == planned.namespace && difference.rule.as_ref().is_some_and(|rule| rule.name == planned.rule.name)
    };
    let difference = differences.iter().find(is_mine)?;
    let reason = match (difference.state, &difference.reason) {
        (DiffState::Impossible, Some(why)) => Some(format!("no native TTL does what the rule does: {why}")),
        (_, reason) => reason.clone(),
    };
    let collection = planned.collection.as_deref();
    let obeyed =
        planned.rule.ttl_field.as_ref().zip(collection).and_then(|(field, collection)| own_ttl::obeyed(field, collection));
    let cost = collection.filter(|collection| collection.kind == CollectionKind::CosmosRu).map(|_| notes::COST.to_owned());
    let reason: Vec<String> = [reason, obeyed, cost].into_iter().flatten().collect();
    let reason = (!reason.is_empty()).then(|| reason.join("; "));
    let with_reason = |text: String| match &reason {
        Some(reason) => format!("{text}; {reason}"),
        None => text,
    };
    let idle = |native: &NativeTtl| planned.collection.as_ref().and_then(|collection| native.idle(collection, server));
    let deletes_nothing = |native: &NativeTtl| {
        idle(native)
            .map(|idle| said(NativeState::None, with_reason(format!("{} deletes nothing: {}", native.name(), idle.detail))))
    };
    let wanted = planned.rule.expire_after_seconds.map_or(-1, i64::from);
    let meant = match (difference.state, &difference.native) {
        (DiffState::Same | DiffState::Differs, native) => native.clone(),
        _ => other(planned).map(|(native, _)| native),
    };
    if let Some(idle) = meant.as_ref().and_then(deletes_nothing) {
        return Some(idle);
    }
    Some(match (difference.state, &difference.native, other(planned)) {
        (DiffState::Same, Some(native), _) => {
            said(NativeState::Same, with_reason(format!("{} deletes after {} s", place(native), value(native))))
        }
        (DiffState::Differs, Some(native), _) => {
            let text = format!("{} deletes after {} s, the rule says {wanted}", place(native), value(native));
            said(NativeState::Differs, with_reason(text))
        }
        // No setting corresponds to the rule, but the server deletes by the same field.
        (_, _, Some((other, after))) => {
            said(NativeState::Differs, with_reason(format!("{} deletes after {after} s, whatever the rule says", place(&other))))
        }
        (DiffState::Impossible, ..) => said(NativeState::None, reason.unwrap_or_default()),
        _ => said(NativeState::None, with_reason("no TTL setting; `sweeper native apply` makes one".to_owned())),
    })
}

/// Finds a setting on the rule's field with any filter, and returns it with its value.
fn other(planned: &PlannedRule) -> Option<(NativeTtl, i64)> {
    let field = planned.field.as_deref()?;
    planned.collection.as_ref()?.ttl().into_iter().find_map(|ttl| {
        let after = ttl.value().filter(|after| *after >= 0 && ttl.field_names() == field)?;
        Some((ttl, after))
    })
}

fn said(state: NativeState, detail: String) -> NativeComparison {
    NativeComparison { state, detail }
}

fn place(native: &NativeTtl) -> String {
    native.index.as_ref().map_or_else(|| "the collection".to_owned(), |index| format!("index {index}"))
}

fn value(native: &NativeTtl) -> String {
    match &native.expire_after_seconds {
        Bson::String(text) => text.clone(),
        other => other.clone().into_relaxed_extjson().to_string(),
    }
}
