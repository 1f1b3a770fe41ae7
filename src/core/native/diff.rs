//! Differences between the rules of a policy and the native TTL settings of a deployment.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::change::{self, Change, is_same_filter};
use super::target::{TtlTarget, target};
use crate::core::facts::{Catalog, Collection, CollectionKind, IdleReason, NativeTtl, Scope, ServerFacts};
use crate::core::flavor::PlainToTtl;
use crate::core::policy::Rule;
use crate::core::policy::namespace::Namespace;

/// Result of comparing a rule with the native settings of one collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "state")]
pub enum DiffState {
    /// The server deletes what the rule deletes.
    Same,
    /// The setting exists with another value.
    Differs,
    Missing,
    /// No rule corresponds to the setting.
    Extra,
    /// No native setting does what the rule does.
    Impossible,
}

impl fmt::Display for DiffState {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// One rule in one namespace, or one setting without a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub rule: Option<Rule>,
    pub namespace: Namespace,
    pub state: DiffState,
    pub native: Option<NativeTtl>,
    pub target: Option<TtlTarget>,
    /// Explanation in addition to the values.
    pub reason: Option<String>,
    /// Change that removes the difference; `None` if there is nothing to do, or nothing that can be done.
    pub change: Option<Change>,
}

/// A rule in one of its collections, while it is compared.
struct Pair<'a> {
    rule: &'a Rule,
    /// Index into the collections of the catalog.
    collection: usize,
    target: Result<TtlTarget, String>,
    /// The corresponding setting, as an index into the settings of the collection.
    found: Option<usize>,
}

/// Compares rules with settings. The result is in the order of the rules, then of the namespaces; settings without a rule come
/// last.
pub fn diff(rules: &[&Rule], catalog: &Catalog, wire_version: i32, plain_to_ttl: PlainToTtl) -> Vec<Difference> {
    let settings: Vec<Vec<NativeTtl>> = catalog.collections.iter().map(Collection::ttl).collect();
    let mut pairs = pairs(rules, catalog, wire_version);
    let taken = assign(&mut pairs, &settings);

    let mut differences = Vec::new();
    let mut planned: Vec<Vec<(TtlTarget, Change)>> = vec![Vec::new(); catalog.collections.len()];
    for rule in rules {
        let mut mine = pairs.iter().filter(|pair| std::ptr::eq(pair.rule, *rule)).peekable();
        if mine.peek().is_none() {
            differences.push(nowhere(rule));
        }
        for pair in mine {
            let planned = &mut planned[pair.collection];
            let native = pair.found.map(|found| &settings[pair.collection][found]);
            let difference = compare(pair, &catalog.collections[pair.collection], native, plain_to_ttl, planned);
            planned.extend(difference.target.clone().zip(difference.change.clone()));
            differences.push(difference);
        }
    }
    for (n, (collection, settings)) in catalog.collections.iter().zip(&settings).enumerate() {
        let left = settings.iter().enumerate().filter(|(m, _)| !taken.contains(&(n, *m)));
        differences.extend(left.map(|(_, native)| extra(collection, native)));
    }
    differences
}

/// Adds to each setting what its value by itself does not show. The server may delete nothing by the setting, although it
/// equals its rule or differs from it. Or the server deletes by a setting that seems to be switched off. A monitor that is off
/// concerns every setting, and is left to the caller.
pub fn note(differences: &mut [Difference], catalog: &Catalog, server: &ServerFacts) {
    for difference in differences.iter_mut() {
        let collection = catalog.collections.iter().find(|collection| collection.namespace == difference.namespace);
        let Some((native, collection)) = difference.native.as_ref().zip(collection) else { continue };
        let is_meant = matches!(difference.state, DiffState::Same | DiffState::Differs);
        let idle = native.idle(collection, server).filter(|idle| is_meant && idle.reason != IdleReason::MonitorOff);
        let idle = idle.map(|idle| format!("the server deletes nothing by it: {}", idle.detail));
        if let Some(note) = idle.or_else(|| native.by_largest(server.local_time)) {
            difference.reason = Some(difference.reason.take().map_or(note.clone(), |reason| format!("{reason}; {note}")));
        }
    }
}

fn pairs<'a>(rules: &[&'a Rule], catalog: &Catalog, wire_version: i32) -> Vec<Pair<'a>> {
    let mut pairs: Vec<Pair> = Vec::new();
    for rule in rules {
        for (n, collection) in catalog.collections.iter().enumerate() {
            if !rule.stands_for(&collection.namespace) {
                continue;
            }
            let mut target = target(rule, collection, wire_version);
            if let Ok(mine) = &target
                && let Some(other) = pairs.iter().find(|pair| pair.collection == n && is_in_the_way(pair, mine))
            {
                target = Err(format!(
                    "the rule `{}` wants the same setting with another value, and the server takes one of them",
                    other.rule.name
                ));
            }
            pairs.push(Pair { rule, collection: n, target, found: None });
        }
    }
    pairs
}

/// Whether an earlier rule of the same collection needs the same setting with another value.
fn is_in_the_way(earlier: &Pair, mine: &TtlTarget) -> bool {
    earlier.target.as_ref().is_ok_and(|other| {
        other.scope == mine.scope
            && other.field == mine.field
            && other.seconds != mine.seconds
            && is_same_filter(other.partial.as_ref(), other.collation.as_ref(), mine)
    })
}

/// Finds the setting of each rule: preferably one with the same value, otherwise one with another value. Returns the settings
/// that have a rule.
fn assign(pairs: &mut [Pair], settings: &[Vec<NativeTtl>]) -> BTreeSet<(usize, usize)> {
    let mut taken = BTreeSet::new();
    for exactly in [true, false] {
        for pair in pairs.iter_mut().filter(|pair| pair.found.is_none()) {
            let Ok(target) = &pair.target else { continue };
            let fits = |native: &NativeTtl| is_place_of(native, target) && (!exactly || has_value(native, target));
            pair.found = settings[pair.collection].iter().position(fits);
            taken.extend(pair.found.map(|found| (pair.collection, found)));
        }
    }
    taken
}

/// Whether the setting differs from the target at most in its value.
fn is_place_of(native: &NativeTtl, target: &TtlTarget) -> bool {
    native.scope == target.scope
        && native.date_field() == Some(&target.field)
        && is_same_filter(native.partial.as_ref(), native.collation.as_ref(), target)
}

fn has_value(native: &NativeTtl, target: &TtlTarget) -> bool {
    target.seconds.is_some() && native.value() == target.seconds
}

fn compare(
    pair: &Pair,
    collection: &Collection,
    native: Option<&NativeTtl>,
    plain_to_ttl: PlainToTtl,
    planned: &[(TtlTarget, Change)],
) -> Difference {
    let row = |state, reason, change| Difference {
        rule: Some(pair.rule.clone()),
        namespace: collection.namespace.clone(),
        state,
        native: native.cloned(),
        target: pair.target.as_ref().ok().cloned(),
        reason,
        change,
    };
    let target = match &pair.target {
        Ok(target) => target,
        Err(why) => return row(DiffState::Impossible, Some(why.clone()), None),
    };
    if planned.iter().any(|(other, _)| other == target) {
        let state = if native.is_some() { DiffState::Differs } else { DiffState::Missing };
        return row(state, Some("as a rule before it".into()), None);
    }
    // Microsoft, "Time to live" (custom TTL): the service expires both, whatever the rule's `dateFormat` is.
    let by_numbers = collection.kind == CollectionKind::CosmosRu && target.scope == Scope::Index;
    let by_numbers = by_numbers.then(|| "the service expires dates in it, and numbers as milliseconds since 1970".to_owned());
    match (native, target.seconds) {
        (Some(native), _) if has_value(native, target) => row(DiffState::Same, by_numbers, None),
        (Some(native), seconds) => match change::alter(collection, native, target) {
            Ok(change) => {
                let off = seconds.is_none().then(|| "the rule is disabled".to_owned());
                row(DiffState::Differs, off.or(by_numbers), Some(change))
            }
            Err(why) => row(DiffState::Differs, Some(why), None),
        },
        (None, None) => row(DiffState::Same, Some("the rule is disabled, and the server does not delete either".into()), None),
        (None, Some(seconds)) => match change::create(collection, target, seconds, plain_to_ttl, planned) {
            Ok(change) => {
                let is_by_index = matches!(target.scope, Scope::Index | Scope::LastChange);
                let plain = is_by_index.then(|| change::plain_index(collection, target)).flatten();
                let reason = plain.map(|index| format!("the index `{index}` has no expireAfterSeconds"));
                row(DiffState::Missing, reason, Some(change))
            }
            Err(why) => row(DiffState::Missing, Some(why), None),
        },
    }
}

/// Returns the difference of a rule whose namespace does not exist.
fn nowhere(rule: &Rule) -> Difference {
    Difference {
        rule: Some(rule.clone()),
        namespace: Namespace { database: rule.namespace.database.clone(), collection: rule.namespace.collection.clone() },
        state: DiffState::Impossible,
        native: None,
        target: None,
        reason: Some("no such namespace".into()),
        change: None,
    }
}

/// Returns the difference of a setting without a rule.
fn extra(collection: &Collection, native: &NativeTtl) -> Difference {
    let deletes = || "no rule deletes by it; the server does".to_owned();
    // On `_ts` a value of -1 stands for the documents' own ttl.
    let why = if native.scope == Scope::LastChange { deletes() } else { native.deletes_after().err().unwrap_or_else(deletes) };
    Difference {
        rule: None,
        namespace: collection.namespace.clone(),
        state: DiffState::Extra,
        native: Some(native.clone()),
        target: None,
        reason: Some(why),
        change: None,
    }
}
