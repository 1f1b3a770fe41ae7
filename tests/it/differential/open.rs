//! The cases that the comparison leaves open: the oracle does not play them, or a document may go by several rules.

use std::collections::BTreeSet;

use super::databases::Databases;
use super::oracle::Expected;
use super::policies::{Policy, Rule};

/// Guards that may refuse a rule whose filter compares a field with a type that no document has there: the oracle does not know
/// all that the server's comparisons know.
pub(super) const UNKNOWN_TYPE: &[&str] = &["unknownType"];

/// Guards that may refuse a rule with `orphans`: the oracle does not tell which orphans are old.
pub(super) const ORPHANS: &[&str] = &["children", "maxDeletePercent"];

/// Whether rules share a collection: each counts a document that both take, and one of them deletes it.
pub(super) fn overlap(expected: &[Expected]) -> bool {
    let namespaces: BTreeSet<&str> = expected.iter().map(|one| one.namespace.as_str()).collect();
    namespaces.len() < expected.len()
}

/// Whether a limit may keep orphans.
pub(super) fn limits_orphans(rule: &Rule) -> bool {
    rule.orphans && rule.max_deletes.is_some()
}

/// Whether the texts say `at most`, or count orphans as well.
pub(super) fn has_words_of_its_own(policy: &Policy, expected: &[Expected]) -> bool {
    overlap(expected) || policy.rules.iter().any(|rule| rule.orphans)
}

/// Whether a sweep is in no order although it says `oldestFirst`: along a descending index that is multikey.
pub(super) fn is_newest_first(databases: &Databases, expected: &Expected) -> bool {
    let place = databases.places.iter().find(|place| place.namespace() == expected.namespace);
    let key = place.and_then(|place| place.index.as_ref()?.get_document("key").ok());
    key.is_some_and(|key| key.values().any(|direction| *direction == (-1).into()))
}
