//! Policy and deployment side by side: which native TTL setting stands for which rule, and what is different.

use std::collections::BTreeSet;

use super::change::{self, Change, is_same_filter};
use super::possible::{Wanted, wanted};
use super::{Catalog, Collection, NativeTtl, Scope};
use crate::policy::Rule;
use crate::policy::namespace::Namespace;
use crate::values::integer;

/// How a rule and the native settings of one collection stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server deletes what the rule deletes.
    Same,
    /// The setting is there with another value.
    Differs,
    Missing,
    /// A setting that no rule stands for.
    Extra,
    /// No native setting does what the rule does.
    Impossible,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Same => "same",
            State::Differs => "differs",
            State::Missing => "missing",
            State::Extra => "extra",
            State::Impossible => "impossible",
        }
    }
}

/// One rule in one namespace, or one setting without a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub rule: Option<Rule>,
    pub namespace: Namespace,
    pub state: State,
    pub native: Option<NativeTtl>,
    pub wanted: Option<Wanted>,
    /// What a person should know beside the values.
    pub reason: Option<String>,
    /// What makes it the same; `None` where nothing has to be done, or nothing can.
    pub change: Option<Change>,
}

/// A rule in one of its collections, while it is compared.
struct Pair<'a> {
    rule: &'a Rule,
    /// Its place in the catalog.
    collection: usize,
    wanted: Result<Wanted, String>,
    /// The setting that stands for it, by its place among those of the collection.
    found: Option<usize>,
}

/// Holds rules and settings beside each other: in the order of the rules, then of the namespaces; settings without a rule last.
pub fn diff(rules: &[&Rule], catalog: &Catalog, wire_version: i32) -> Vec<Difference> {
    let settings: Vec<Vec<NativeTtl>> = catalog.collections.iter().map(Collection::ttl).collect();
    let mut pairs = pairs(rules, catalog, wire_version);
    let taken = assign(&mut pairs, &settings);

    let mut differences = Vec::new();
    let mut planned: Vec<Vec<(Wanted, Change)>> = vec![Vec::new(); catalog.collections.len()];
    for rule in rules {
        let mut mine = pairs.iter().filter(|pair| std::ptr::eq(pair.rule, *rule)).peekable();
        if mine.peek().is_none() {
            differences.push(nowhere(rule));
        }
        for pair in mine {
            let planned = &mut planned[pair.collection];
            let native = pair.found.map(|found| &settings[pair.collection][found]);
            let difference = compare(pair, &catalog.collections[pair.collection], native, wire_version, planned);
            planned.extend(difference.wanted.clone().zip(difference.change.clone()));
            differences.push(difference);
        }
    }
    for (n, (collection, settings)) in catalog.collections.iter().zip(&settings).enumerate() {
        let left = settings.iter().enumerate().filter(|(m, _)| !taken.contains(&(n, *m)));
        differences.extend(left.map(|(_, native)| extra(collection, native)));
    }
    differences
}

fn pairs<'a>(rules: &[&'a Rule], catalog: &Catalog, wire_version: i32) -> Vec<Pair<'a>> {
    let mut pairs: Vec<Pair> = Vec::new();
    for rule in rules {
        for (n, collection) in catalog.collections.iter().enumerate() {
            if !rule.stands_for(&collection.namespace) {
                continue;
            }
            let mut wanted = wanted(rule, collection, wire_version);
            if let Ok(mine) = &wanted
                && let Some(other) = pairs.iter().find(|pair| pair.collection == n && is_in_the_way(pair, mine))
            {
                wanted = Err(format!(
                    "the rule `{}` wants the same setting with another value, and the server takes one of them",
                    other.rule.name
                ));
            }
            pairs.push(Pair { rule, collection: n, wanted, found: None });
        }
    }
    pairs
}

/// Whether an earlier rule of the same collection leaves no place for this one.
fn is_in_the_way(earlier: &Pair, mine: &Wanted) -> bool {
    earlier.wanted.as_ref().is_ok_and(|other| {
        other.scope == mine.scope
            && other.field == mine.field
            && other.seconds != mine.seconds
            && is_same_filter(other.partial.as_ref(), other.collation.as_ref(), mine)
    })
}

/// Finds the setting of each rule: one with the same value where there is one, then one with another. Gives those that have a rule.
fn assign(pairs: &mut [Pair], settings: &[Vec<NativeTtl>]) -> BTreeSet<(usize, usize)> {
    let mut taken = BTreeSet::new();
    for exactly in [true, false] {
        for pair in pairs.iter_mut().filter(|pair| pair.found.is_none()) {
            let Ok(wanted) = &pair.wanted else { continue };
            let fits = |native: &NativeTtl| is_place_of(native, wanted) && (!exactly || has_value(native, wanted));
            pair.found = settings[pair.collection].iter().position(fits);
            taken.extend(pair.found.map(|found| (pair.collection, found)));
        }
    }
    taken
}

/// Whether the setting is what the rule's would be, but for its value.
fn is_place_of(native: &NativeTtl, wanted: &Wanted) -> bool {
    native.single
        && native.scope == wanted.scope
        && native.field == wanted.field
        && is_same_filter(native.partial.as_ref(), native.collation.as_ref(), wanted)
}

fn has_value(native: &NativeTtl, wanted: &Wanted) -> bool {
    wanted.seconds.is_some_and(|seconds| integer(&native.expire_after_seconds) == Some(seconds))
}

fn compare(
    pair: &Pair,
    collection: &Collection,
    native: Option<&NativeTtl>,
    wire_version: i32,
    planned: &[(Wanted, Change)],
) -> Difference {
    let row = |state, reason, change| Difference {
        rule: Some(pair.rule.clone()),
        namespace: collection.namespace.clone(),
        state,
        native: native.cloned(),
        wanted: pair.wanted.as_ref().ok().cloned(),
        reason,
        change,
    };
    let wanted = match &pair.wanted {
        Ok(wanted) => wanted,
        Err(why) => return row(State::Impossible, Some(why.clone()), None),
    };
    if planned.iter().any(|(other, _)| other == wanted) {
        let state = if native.is_some() { State::Differs } else { State::Missing };
        return row(state, Some("as a rule before it".into()), None);
    }
    match (native, wanted.seconds) {
        (Some(native), _) if has_value(native, wanted) => row(State::Same, None, None),
        (Some(native), seconds) => match change::alter(collection, native, wanted) {
            Ok(change) => {
                let off = seconds.is_none().then(|| "the rule is disabled".to_owned());
                row(State::Differs, off, Some(change))
            }
            Err(why) => row(State::Differs, Some(why), None),
        },
        (None, None) => row(State::Same, Some("the rule is disabled, and the server does not delete either".into()), None),
        (None, Some(seconds)) => match change::create(collection, wanted, seconds, wire_version, planned) {
            Ok(change) => {
                let plain = (wanted.scope == Scope::Index).then(|| change::plain_index(collection, wanted)).flatten();
                let reason = plain.map(|index| format!("the index `{index}` has no expireAfterSeconds"));
                row(State::Missing, reason, Some(change))
            }
            Err(why) => row(State::Missing, Some(why), None),
        },
    }
}

fn nowhere(rule: &Rule) -> Difference {
    Difference {
        rule: Some(rule.clone()),
        namespace: Namespace { database: rule.namespace.database.clone(), collection: rule.namespace.collection.clone() },
        state: State::Impossible,
        native: None,
        wanted: None,
        reason: Some("no such namespace".into()),
        change: None,
    }
}

fn extra(collection: &Collection, native: &NativeTtl) -> Difference {
    let deletes = || "no rule deletes by it; the server does".to_owned();
    // There a value of -1 stands for the documents' own ttl.
    let why = if native.scope == Scope::LastChange { deletes() } else { native.seconds().err().unwrap_or_else(deletes) };
    Difference {
        rule: None,
        namespace: collection.namespace.clone(),
        state: State::Extra,
        native: Some(native.clone()),
        wanted: None,
        reason: Some(why),
        change: None,
    }
}
