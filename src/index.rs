//! Which index a sweep goes along.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use crate::facts::{CollectionFacts, IndexFacts};
use crate::policy::Rule;

/// An index that serves the rule's predicate.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexChoice {
    pub name: String,
    /// Whether the index runs from the newest date to the oldest.
    pub descending: bool,
}

/// Chooses the index for the rule's field, or none. The policy's `hint` stands above the choice.
///
/// Errors: why the hinted index cannot serve.
pub fn choose(rule: &Rule, facts: &CollectionFacts) -> Result<Option<IndexChoice>, String> {
    let indexes = &facts.indexes;
    let collation = rule.collation.as_ref().or(facts.collation.as_ref());
    if let Some(hint) = &rule.hint {
        let Some(index) = indexes.iter().find(|index| index.name == *hint) else {
            let names: Vec<_> = indexes.iter().map(|index| format!("`{}`", index.name)).collect();
            return Err(format!("the hinted index `{hint}` does not exist; found {}", names.join(", ")));
        };
        if index.hidden {
            return Err(format!("the hinted index `{hint}` is hidden; the server takes no hidden index as a hint"));
        }
        if let Some(kind) = index.key.iter().find_map(|(_, direction)| direction.as_str()) {
            return Err(format!("the hinted index `{hint}` is of the kind `{kind}`, which serves no range of dates"));
        }
        if !covers_rule(index, rule, collation) {
            return Err(format!(
                "the hinted index `{hint}` is partial and the rule's `filter` does not repeat its partialFilterExpression: \
                 expired documents outside of the index would be left out in silence"
            ));
        }
        return Ok(Some(choice(index)));
    }
    let usable = indexes.iter().filter(|index| {
        index.key.first().is_some_and(|(name, direction)| *name == rule.field && is_number(direction))
            && index.key.iter().all(|(_, direction)| is_number(direction))
            && !index.hidden
            && covers_rule(index, rule, collation)
    });
    // Ascending first, for a descending index that is multikey cannot be walked from the oldest date; then the shortest key.
    Ok(usable.min_by_key(|index| (choice(index).descending, index.key.len())).map(choice))
}

fn choice(index: &IndexFacts) -> IndexChoice {
    let descending = index.key.first().and_then(|(_, direction)| number(direction)).is_some_and(|n| n < 0.0);
    IndexChoice { name: index.name.clone(), descending }
}

/// Whether every document that the rule selects is in the index: a partial one must have each of its terms in the rule's filter, read
/// under the same collation.
fn covers_rule(index: &IndexFacts, rule: &Rule, collation: Option<&Document>) -> bool {
    let Some(partial) = &index.partial else { return true };
    let Some(filter) = &rule.filter else {
        return partial.is_empty();
    };
    let terms = terms(filter);
    spelled_out(index.collation.as_ref()) == spelled_out(collation)
        && partial.iter().all(|(key, value)| terms.iter().any(|(k, v)| *k == key && *v == value))
}

/// The terms of a filter that all must hold: those at its top and those in a top-level `$and`.
fn terms(filter: &Document) -> Vec<(&String, &Bson)> {
    let nested = filter.get_array("$and").ok().into_iter().flatten().filter_map(Bson::as_document).flat_map(terms);
    filter.iter().chain(nested).collect()
}

/// A collation with its defaults filled in, as listIndexes shows one; `None` is the simple one.
fn spelled_out(collation: Option<&Document>) -> Option<Document> {
    let given = collation.filter(|collation| !matches!(collation.get_str("locale"), Ok("simple")))?;
    let mut all = doc! {
        "strength": 3,
        "caseLevel": false,
        "caseFirst": "off",
        "numericOrdering": false,
        "alternate": "non-ignorable",
        "maxVariable": "punct",
        "normalization": false,
        "backwards": false,
    };
    all.extend(given.clone());
    all.remove("version");
    // Keys in one order, whole numbers of one type, so that documents can be compared.
    let sorted: BTreeMap<_, _> = all.into_iter().collect();
    Some(sorted.into_iter().map(|(key, value)| (key, number(&value).map_or(value, Bson::Double))).collect())
}

fn is_number(direction: &Bson) -> bool {
    number(direction).is_some()
}

fn number(direction: &Bson) -> Option<f64> {
    match direction {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}
