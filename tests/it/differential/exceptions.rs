//! What the tool is known to do otherwise, each with the number of the finding: temporary, to be deleted once it is mended.

use std::collections::BTreeSet;

use super::databases::Databases;
use super::oracle::{Expected, Unknown, Verdict};
use super::policies::{Policy, Rule};

/// Issue 29, 1: the guard `unknownType`, which may be there or not.
pub(super) const UNKNOWN_TYPE: &[&str] = &["unknownType"];

/// fuzz.md, 1: whether a field is known in another namespace of the rule depends on the way to run, where that namespace is refused.
pub(super) fn unknown_here(elsewhere: usize) -> Unknown {
    if elsewhere > 0 { Unknown::Open } else { Unknown::Refused }
}

/// fuzz.md, 2: parents whose `parentField` holds a list stay, and are counted as if they would go.
pub(super) fn counts_parents_that_stay(counted: u64, expected: &Expected) -> bool {
    counted == expected.expired.len() as u64 + expected.parents_that_stay
}

/// fuzz.md, 3: rules that share a collection count a document once for each of them.
pub(super) fn counts_twice(expected: &[Expected]) -> bool {
    let namespaces: BTreeSet<&str> = expected.iter().map(|one| one.namespace.as_str()).collect();
    namespaces.len() < expected.len()
}

/// fuzz.md, 1: a rule that a sweep refuses, and a dry run does not.
pub(super) fn is_judged_twice(expected: &Expected) -> bool {
    matches!(&expected.verdict, Verdict::Sweeps(guards) | Verdict::Refuses(guards) if guards.contains("unknownField") && guards.len() > 1)
        || matches!(&expected.verdict, Verdict::Sweeps(guards) if guards.contains("unknownField"))
}

/// fuzz.md, 7: where `holds` and `unknownField` both refuse, dry run and sweep name different ones.
pub(super) fn guard(guard: &str) -> &str {
    if guard == "unknownField" { "holds" } else { guard }
}

/// Issue 29, 4: children without a parent are not counted, limited or refused, so that it is left open whether they go.
pub(super) fn orphans(without_parent: BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
    without_parent
}

/// Issue 29, 4: a rule with `orphans` may come to be refused by guards that look at the children.
pub(super) const ORPHANS: &[&str] = &["children", "orphans", "maxDeletePercent"];

/// Issue 29, 4: `maxDeletes` may come to bind children without a parent.
pub(super) fn limits_orphans(rule: &Rule) -> bool {
    rule.orphans && rule.max_deletes.is_some()
}

/// fuzz.md, 3, and issue 29, 4: the last line may come to say `at most`, or to count children without a parent.
pub(super) fn has_words_of_its_own(policy: &Policy, expected: &[Expected]) -> bool {
    counts_twice(expected) || policy.rules.iter().any(|rule| rule.orphans)
}

/// fuzz.md, 7: under `--max-deletes` the text says what would go within it, and wouldDeleteCount what would go without it.
pub(super) fn is_limited_by_run(policy: &Policy, said: u64, would_go: u64) -> bool {
    policy.line.max_deletes.is_some_and(|most| said <= would_go.min(most))
}

/// New, 1: along a descending index that is multikey a sweep is in no order, and reports `oldestFirst`.
pub(super) fn is_newest_first(databases: &Databases, expected: &Expected) -> bool {
    let place = databases.places.iter().find(|place| place.namespace() == expected.namespace);
    let key = place.and_then(|place| place.index.as_ref()?.get_document("key").ok());
    key.is_some_and(|key| key.values().any(|direction| *direction == (-1).into()))
}
