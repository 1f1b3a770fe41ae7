//! One rule and the deployment's own TTL in one sentence, for a person who decides whether both are needed.

use bson::Bson;

use super::NativeTtl;
use super::diff::{Difference, State};
use crate::plan::{NativeSetting, PlannedRule};
use crate::report::audit::{NativeComparison, NativeState};

/// Says whether native TTL does what the rule does; `None` where the two were not compared.
pub fn verdict(planned: &PlannedRule, differences: &[Difference]) -> Option<NativeComparison> {
    let is_mine = |difference: &&Difference| {
        difference.namespace == planned.namespace && difference.rule.as_ref().is_some_and(|rule| rule.name == planned.rule.name)
    };
    let difference = differences.iter().find(is_mine)?;
    let reason = match (difference.state, &difference.reason) {
        (State::Impossible, Some(why)) => Some(format!("no native TTL does what the rule does: {why}")),
        (_, reason) => reason.clone(),
    };
    let with_reason = |text: String| match &reason {
        Some(reason) => format!("{text}; {reason}"),
        None => text,
    };
    let wanted = planned.rule.expire_after_seconds.map_or(-1, i64::from);
    Some(match (difference.state, &difference.native, other(planned)) {
        (State::Same, Some(native), _) => {
            said(NativeState::Same, with_reason(format!("{} deletes after {} s", place(native), value(native))))
        }
        (State::Differs, Some(native), _) => {
            let text = format!("{} deletes after {} s, the rule says {wanted}", place(native), value(native));
            said(NativeState::Differs, with_reason(text))
        }
        // Nothing stands for the rule, but the server deletes by the same field.
        (_, _, Some(other)) => {
            let by = other.index.as_ref().map_or_else(|| "the collection".to_owned(), |index| format!("index {index}"));
            let after = other.expire_after_seconds.unwrap_or(0);
            said(NativeState::Differs, with_reason(format!("{by} deletes after {after} s, whatever the rule says")))
        }
        (State::Impossible, ..) => said(NativeState::None, reason.unwrap_or_default()),
        _ => said(NativeState::None, with_reason("no TTL setting; `sweeper native apply` makes one".to_owned())),
    })
}

/// A setting on the rule's field that no rule stands for.
fn other(planned: &PlannedRule) -> Option<&NativeSetting> {
    let field = planned.field.as_deref()?;
    planned
        .native_ttl
        .iter()
        .flatten()
        .find(|setting| setting.field == field && setting.expire_after_seconds.is_some_and(|n| n >= 0))
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
