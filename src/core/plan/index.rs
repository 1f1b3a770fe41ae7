//! The choice of the index that a sweep walks.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use crate::base::values::float;
use crate::core::facts::{Collection, IndexFacts};
use crate::core::policy::{DateFormat, Rule, Variable, paths};

/// An index that serves the rule's predicate.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexChoice {
    pub name: String,
    /// Whether walking the index forward reaches the oldest date first.
    pub oldest_first: bool,
    /// Whether the rule's date or filter bounds the walk. A hinted index may serve neither, and is then walked as a whole.
    pub bounded: bool,
}

/// Chooses the index for the rule's field, or none. The policy's `hint` overrides the choice.
///
/// Errors: the reason why the hinted index cannot serve.
pub fn choose(rule: &Rule, field: &str, collection: &Collection) -> Result<Option<IndexChoice>, String> {
    let indexes = &collection.indexes;
    let collation = rule.collation.as_ref().or(collection.collation.as_ref());
    let is_sorted = rule.date_format.is_none_or(DateFormat::is_sorted_by_index);
    if let Some(hint) = &rule.hint {
        let Some(index) = indexes.iter().find(|index| index.name == *hint) else {
            let names: Vec<_> = indexes.iter().map(|index| format!("`{}`", index.name)).collect();
            return Err(format!("the hinted index `{hint}` does not exist; found {}", names.join(", ")));
        };
        if index.hidden {
            return Err(format!("the hinted index `{hint}` is hidden; the server accepts no hidden index as a hint"));
        }
        if let Some(kind) = index.key.iter().find_map(|(_, direction)| direction.as_str()) {
            return Err(format!("the hinted index `{hint}` is of the kind `{kind}`, which cannot serve a range of dates"));
        }
        if !is_sorted && index.key.first().is_some_and(|(name, _)| name == field) {
            return Err(format!(
                "the hinted index `{hint}` begins with `{field}`, whose strings are not in the order of their dates; leave `hint` out, or name \
                 an index that serves the rule's `filter`"
            ));
        }
        if leaves_out(index, field) {
            return Err(format!(
                "the hinted index `{hint}` is sparse or a wildcard and does not hold every document that has `{}`: \
                 expired documents outside of the index would silently be left out",
                field
            ));
        }
        if !covers_rule(index, rule, collation) {
            return Err(format!(
                "the hinted index `{hint}` is partial and the rule's `filter` does not repeat its partialFilterExpression: \
                 expired documents outside of the index would silently be left out"
            ));
        }
        return Ok(Some(choice(index, rule, field)));
    }
    let usable = indexes.iter().filter(|index| {
        is_sorted
            && index.key.first().is_some_and(|(name, direction)| *name == field && is_number(direction))
            && index.key.iter().all(|(_, direction)| is_number(direction))
            && !index.hidden
            && covers_rule(index, rule, collation)
    });
    // Ascending first, because a descending multikey index cannot be walked from the oldest date; then the shortest key.
    Ok(usable
        .map(|index| (choice(index, rule, field), index.key.len()))
        .min_by_key(|(choice, length)| (!choice.oldest_first, *length))
        .map(|(choice, _)| choice))
}

/// Returns the name of an index along which a query for the oldest document of all goes: it begins with the field, and holds
/// every document.
pub fn of_all(field: &str, collection: &Collection) -> Option<String> {
    let serves = |index: &&IndexFacts| {
        index.key.first().is_some_and(|(name, _)| name == field)
            && index.key.iter().all(|(_, direction)| is_number(direction))
            && !(index.hidden || index.sparse)
            && index.partial.is_none()
            && is_same_collation(index.collation.as_ref(), collection.collation.as_ref())
    };
    let shortest = collection.indexes.iter().filter(serves).min_by_key(|index| index.key.len());
    shortest.map(|index| index.name.clone())
}

/// Whether an index may decide which documents match a filter: it has the field of a condition, or is of a kind whose fields are
/// not known here.
///
/// The DocumentDB engine (0.108, measured) takes what an index holds for the value. The key `a.b` of an index also stands for a
/// field with the literal name `a.b`; a decimal 1.5 is in `{$in: [1.5]}` only by an index. A path with a dot counts as indexed:
/// an index that is created during the sweep then decides nothing either.
pub fn may_decide(filter: &Document, variables: &[Variable], collection: &Collection) -> bool {
    let paths = paths::of_filter(filter, variables);
    let is_of_filter = |name: &str| paths.iter().any(|path| name.split('.').next() == Some(&path.path));
    let partial = |index: &IndexFacts| {
        index.partial.iter().flat_map(Document::keys).any(|name| name.starts_with('$') || is_of_filter(name))
    };
    let decides = |index: &IndexFacts| {
        let has_key = |(name, direction): &(String, Bson)| !is_number(direction) || name.ends_with("$**") || is_of_filter(name);
        index.key.iter().any(has_key) || partial(index)
    };
    let is_unknown = |path: &str| path.contains('.') || path.starts_with('$');
    paths.is_empty() || paths.iter().any(|path| is_unknown(&path.path)) || collection.indexes.iter().any(decides)
}

fn choice(index: &IndexFacts, rule: &Rule, field: &str) -> IndexChoice {
    let first = index.key.first();
    let ascending = |(name, direction): &(String, Bson)| *name == field && float(direction).is_some_and(|n| n >= 0.0);
    let terms = rule.filter.as_ref().map(terms).unwrap_or_default();
    let asked_for = |(name, _): &(String, Bson)| *name == field || terms.iter().any(|(key, _)| *key == name);
    IndexChoice { name: index.name.clone(), oldest_first: first.is_some_and(ascending), bounded: first.is_some_and(asked_for) }
}

/// Whether the kind of an index can leave out a document with a date.
fn leaves_out(index: &IndexFacts, field: &str) -> bool {
    let names: Vec<&str> = index.key.iter().map(|(name, _)| name.as_str()).collect();
    // A compound wildcard index (MongoDB 7.0) has a key for every document, whatever is below the wildcard.
    names.first() != Some(&field) && names.iter().any(|name| name.ends_with("$**")) || (index.sparse && !names.contains(&field))
}

/// Whether the index holds every document that the rule selects: each term of a partial index must be in the rule's filter, and
/// be read under the same collation.
fn covers_rule(index: &IndexFacts, rule: &Rule, collation: Option<&Document>) -> bool {
    let Some(partial) = &index.partial else { return true };
    let Some(filter) = &rule.filter else {
        return partial.is_empty();
    };
    let terms = terms(filter);
    is_same_collation(index.collation.as_ref(), collation)
        && partial.iter().all(|(key, value)| terms.iter().any(|(k, v)| *k == key && *v == value))
}

/// Returns the terms of a filter that all must hold: those at its top and those in a top-level `$and`.
fn terms(filter: &Document) -> Vec<(&String, &Bson)> {
    let nested = filter.get_array("$and").ok().into_iter().flatten().filter_map(Bson::as_document).flat_map(terms);
    filter.iter().chain(nested).collect()
}

/// Whether two collations compare strings alike; `None` is the simple one.
pub fn is_same_collation(a: Option<&Document>, b: Option<&Document>) -> bool {
    spelled_out(a) == spelled_out(b)
}

/// Returns a collation with its defaults filled in, as listIndexes shows one; `None` is the simple one.
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
    Some(sorted.into_iter().map(|(key, value)| (key, float(&value).map_or(value, Bson::Double))).collect())
}

fn is_number(direction: &Bson) -> bool {
    float(direction).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::facts::CollectionKind;
    use crate::core::policy::namespace::Namespace;
    use crate::core::policy::parse;

    fn rule(keys: &str) -> Rule {
        let text = format!("version: 1\ncollections: [{{namespace: a.b, field: at, expireAfter: 1d{keys}}}]");
        parse::parse("p", &text, &|_| None, true).unwrap().rules.remove(0)
    }

    fn index(spec: Document) -> IndexFacts {
        let key = spec.get_document("key").unwrap().clone();
        let name: Vec<String> =
            key.iter().map(|(name, direction)| format!("{name}_{}", direction.to_string().replace('"', ""))).collect();
        IndexFacts {
            name: name.join("_"),
            key: key.into_iter().collect(),
            partial: spec.get_document("partial").ok().cloned(),
            hidden: spec.get_bool("hidden").unwrap_or(false),
            sparse: spec.get_bool("sparse").unwrap_or(false),
            unique: false,
            collation: spec.get_document("collation").ok().cloned(),
            expire_after_seconds: None,
        }
    }

    fn collection(specs: &[Document]) -> Collection {
        let namespace = Namespace { database: "a".into(), collection: "b".into() };
        let indexes = specs.iter().cloned().map(index).collect();
        Collection { indexes, ..Collection::new(namespace, CollectionKind::Plain) }
    }

    fn chosen(keys: &str, specs: &[Document]) -> Result<Option<String>, String> {
        choose(&rule(keys), "at", &collection(specs)).map(|choice| choice.map(|choice| choice.name))
    }

    #[test]
    fn the_oldest_document_of_all_is_found_by_an_index_that_holds_all() {
        let found = |specs: &[Document]| of_all("at", &collection(specs));
        let long = doc! {"key": {"at": -1, "x": 1}};
        for other in [
            doc! {"key": {"x": 1, "at": 1}},
            doc! {"key": {"at": "hashed"}},
            doc! {"key": {"at": 1, "place": "2dsphere"}},
            doc! {"key": {"at": 1}, "hidden": true},
            doc! {"key": {"at": 1}, "sparse": true},
            doc! {"key": {"at": 1}, "partial": {"x": 1}},
            doc! {"key": {"at": 1}, "collation": {"locale": "en"}},
        ] {
            assert_eq!(found(std::slice::from_ref(&other)), None, "{other}");
            assert_eq!(found(&[other, long.clone()]).as_deref(), Some("at_-1_x_1"));
        }
        assert_eq!(found(&[long, doc! {"key": {"at": 1}}]).as_deref(), Some("at_1"));
    }

    #[test]
    fn an_index_with_a_field_of_the_filter_may_decide() {
        let decides = |filter: Document, specs: &[Document]| {
            let own = [doc! {"key": {"_id": 1}}, doc! {"key": {"at": 1}}];
            may_decide(&filter, &[], &collection(&[&own, specs].concat()))
        };
        for filter in
            [doc! {"s": "x"}, doc! {"$or": [{"s": 1}, {"n": 1}]}, doc! {"$nor": [{"s": 1}]}, doc! {"$expr": {"$eq": ["$s", 1]}}]
        {
            assert!(!decides(filter.clone(), &[doc! {"key": {"other": 1, "more.s": 1}}]), "{filter}");
            for spec in [
                doc! {"key": {"s": 1}},
                doc! {"key": {"at": 1, "s": -1}},
                doc! {"key": {"s.inner": 1}},
                doc! {"key": {"$**": 1}},
                doc! {"key": {"other.$**": 1}},
                doc! {"key": {"_fts": "text", "_ftsx": 1}},
                doc! {"key": {"other": 1}, "partial": {"s": 1}},
                doc! {"key": {"other": 1}, "partial": {"$and": [{"s": 1}]}},
            ] {
                assert!(decides(filter.clone(), std::slice::from_ref(&spec)), "{filter} {spec}");
            }
        }
        for filter in
            [doc! {"s.inner": 1}, doc! {"s": {"$elemMatch": {"inner": 1}}}, doc! {"_id": {"$gt": 1}}, doc! {"at": {"$gt": 1}}]
        {
            assert!(decides(filter.clone(), &[]), "{filter}");
        }
        assert!(decides(doc! {"$text": {"$search": "x"}}, &[]), "no path is known");
    }

    #[test]
    fn the_best_index_that_begins_with_the_field_is_chosen() {
        let name = |name: &str| Ok(Some(name.to_owned()));
        for (specs, expected) in [
            (vec![doc! {"key": {"_id": 1}}], Ok(None)),
            (vec![doc! {"key": {"at": 1}}], name("at_1")),
            (vec![doc! {"key": {"at": -1}}, doc! {"key": {"at": 1, "x": 1}}], name("at_1_x_1")),
            (vec![doc! {"key": {"at": 1, "x": 1}}, doc! {"key": {"at": 1}}], name("at_1")),
            (vec![doc! {"key": {"at": -1}}], name("at_-1")),
            (vec![doc! {"key": {"x": 1, "at": 1}}], Ok(None)),
            (vec![doc! {"key": {"at": "hashed"}}], Ok(None)),
            (vec![doc! {"key": {"at": 1, "place": "2dsphere"}}], Ok(None)),
            (vec![doc! {"key": {"$**": 1}}], Ok(None)),
            (vec![doc! {"key": {"at": 1}, "hidden": true}], Ok(None)),
            (vec![doc! {"key": {"at": 1}, "partial": {"s": "x"}}], Ok(None)),
            (vec![doc! {"key": {"at": 1.0}}], name("at_1")),
        ] {
            assert_eq!(chosen("", &specs), expected, "{specs:?}");
        }
        // Strings are not in the order of their dates.
        assert_eq!(chosen(", dateFormat: iso8601", &[doc! {"key": {"at": 1}}]), Ok(None));
    }

    #[test]
    fn a_partial_index_serves_only_where_the_filter_repeats_it_under_its_collation() {
        let partial = [doc! {"key": {"at": 1}, "partial": {"s": "x", "n": {"$gt": 1}}}];
        let folded =
            [doc! {"key": {"at": 1}, "partial": {"s": "x"}, "collation": {"locale": "en", "strength": 2, "version": "57.1"}}];
        for (keys, specs, serves) in [
            (", filter: {s: x, n: {$gt: 1}}", &partial, true),
            (", filter: {$and: [{s: x}, {n: {$gt: 1}, z: 1}]}", &partial, true),
            (", filter: {s: x}", &partial, false),
            (", filter: {s: x, n: {$gt: 0}}", &partial, false),
            (", filter: {$or: [{s: x, n: {$gt: 1}}, {z: 1}]}", &partial, false),
            (", filter: {s: x, n: {$gt: 1}}, collation: {locale: en}", &partial, false),
            (", filter: {s: x}, collation: {locale: en, strength: 2}", &folded, true),
            (", filter: {s: x}, collation: {locale: en, strength: 1}", &folded, false),
            (", filter: {s: x}", &folded, false),
        ] {
            assert_eq!(chosen(keys, specs).unwrap().is_some(), serves, "{keys}");
        }
    }

    #[test]
    fn a_hint_is_obeyed_or_refused_with_the_reason() {
        let specs = [
            doc! {"key": {"s": 1, "at": 1}},
            doc! {"key": {"at": 1}, "hidden": true},
            doc! {"key": {"at": "hashed"}},
            doc! {"key": {"at": -1}, "partial": {"s": 1}},
            doc! {"key": {"at": 1, "x.$**": 1}},
            doc! {"key": {"s": 1, "x.$**": 1}},
        ];
        for served in ["s_1_at_1", "at_1_x.$**_1"] {
            assert_eq!(chosen(&format!(", hint: '{served}'"), &specs), Ok(Some(served.to_owned())));
        }
        for (hint, part) in [
            ("gone_1", "does not exist; found `s_1_at_1`"),
            ("at_1", "is hidden"),
            ("at_hashed", "kind `hashed`"),
            ("at_-1", "is partial"),
            ("s_1_x.$**_1", "a wildcard"),
        ] {
            let why = chosen(&format!(", hint: '{hint}'"), &specs).unwrap_err();
            assert!(why.contains(part), "{hint}: {why}");
        }
    }

    #[test]
    fn a_hint_is_bounded_where_it_begins_with_what_the_rule_asks_for() {
        let of = |keys: &str, key: Document| {
            let collection = collection(&[doc! { "key": key }]);
            let keys = format!("{keys}, hint: '{}'", collection.indexes[0].name);
            choose(&rule(&keys), "at", &collection).map(|choice| choice.map(|choice| (choice.bounded, choice.oldest_first)))
        };
        for (keys, key, expected) in [
            ("", doc! { "at": 1 }, (true, true)),
            ("", doc! { "at": -1 }, (true, false)),
            ("", doc! { "s": 1, "at": 1 }, (false, false)),
            (", filter: {s: x}", doc! { "s": 1, "at": 1 }, (true, false)),
            (", filter: {z: x}", doc! { "s": 1, "at": 1 }, (false, false)),
        ] {
            assert_eq!(of(keys, key.clone()), Ok(Some(expected)), "{keys} {key}");
        }
        // Strings are not in the order of their dates; an index on something else may serve the filter.
        assert!(of(", dateFormat: iso8601", doc! { "at": 1 }).unwrap_err().contains("not in the order of their dates"));
        assert_eq!(of(", dateFormat: iso8601, filter: {s: x}", doc! { "s": 1 }), Ok(Some((true, false))));
    }

    #[test]
    fn a_sparse_index_is_a_hint_only_where_it_holds_every_date() {
        for (key, is_refused) in [(doc! { "at": 1 }, false), (doc! { "s": 1, "at": 1 }, false), (doc! { "s": 1 }, true)] {
            let spec = doc! { "key": key, "sparse": true };
            let hint = index(spec.clone()).name;
            assert_eq!(chosen(&format!(", hint: '{hint}'"), &[spec]).is_err(), is_refused, "{hint}");
        }
    }
}
