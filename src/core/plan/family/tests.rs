//! Tests of how children are bound to the rule of their parents.

use super::*;
use crate::core::policy::parse::parse;
use crate::testing::made_up::planned;

/// Binds a rule with children to collections with so many documents; the children have an index on their field if
/// `is_indexed`.
fn bound(server: &ServerFacts, keys: &str, documents: u64, is_indexed: bool) -> Result<Option<Family>, Refusal> {
    let indexes: Vec<IndexFacts> = is_indexed.then(|| plain(&["p"])).into_iter().collect();
    bound_by(server, (keys, ""), documents, [indexes, Vec::new()])
}

/// Binds such a rule, with keys of the rule and of the children, and with indexes of the children and of the parents.
fn bound_by(
    server: &ServerFacts,
    (keys, of_child): (&str, &str),
    documents: u64,
    [of_children, of_parents]: [Vec<IndexFacts>; 2],
) -> Result<Option<Family>, Refusal> {
    let text = format!(
        "version: 1\njournal: {{collection: ops.j}}\ncollections: [{{namespace: app.c, field: at, expireAfter: 1d{keys}, \
         children: [{{namespace: app.d, field: p{of_child}}}]}}]"
    );
    let rule = parse("p", &text, &|_| None, true).unwrap().rules.remove(0);
    let sweep = planned("", documents).decision.countable().unwrap().clone();
    let collection =
        |name: &str| Collection::new(Namespace { database: "app".into(), collection: name.into() }, CollectionKind::Plain);
    let (mut parents, mut children) = (collection("c"), collection("d"));
    parents.indexes.extend(of_parents);
    children.indexes.extend(of_children);
    let figures = Figures { document_count: documents, ..Figures::default() };
    let child = rule.family.as_ref().unwrap().children[0].clone();
    let seen = SeenChild {
        child,
        seen: NamespaceFacts::Collection(Box::new(children), figures),
        field: SeenField::default(),
        parent_field: SeenField::default(),
    };
    bind(server, &rule, &sweep, &parents, &[seen])
}

#[test]
fn a_rule_is_refused_where_its_children_cannot_be_found_or_no_majority_can_be_asked() {
    let set = ServerFacts::made_up(Flavor::MongoDb, "7.0.0", 21);
    let guard = |bound: Result<Option<Family>, Refusal>| bound.err().map(|refusal| refusal.guard);
    let many = guard::SCAN_GUARD_DOCUMENTS + 1;
    assert_eq!(guard(bound(&set, "", many, false)), Some(Guard::CollectionScan));
    for (keys, documents, is_indexed) in [("", many, true), ("", many - 1, false), (", allowCollectionScan: true", many, false)] {
        let family = bound(&set, keys, documents, is_indexed).unwrap().unwrap();
        let rule = &family.children[0].rule;
        assert_eq!((rule.namespace.to_string(), rule.selection.namespace.to_string()), ("app.c".into(), "app.d".into()));
        assert_eq!((rule.selection.index.is_some(), rule.limits.max_deletes), (is_indexed, None));
    }
    for (flavor, topology) in [
        (Flavor::MongoDb, Topology::Sharded),
        (Flavor::CosmosRu, Topology::ReplicaSet),
        (Flavor::DocumentDb, Topology::ReplicaSet),
        (Flavor::AmazonDocumentDb, Topology::ReplicaSet),
    ] {
        let server = ServerFacts { topology, ..ServerFacts::made_up(flavor, "7.0.0", 21) };
        assert_eq!(guard(bound(&server, "", 5, true)), Some(Guard::Children), "{flavor:?}");
    }
}

#[test]
fn the_field_by_which_parents_are_named_has_an_index_too() {
    let set = ServerFacts::made_up(Flavor::MongoDb, "7.0.0", 21);
    let many = guard::SCAN_GUARD_DOCUMENTS + 1;
    let bound = |of_child, documents, of_parents: Vec<IndexFacts>| {
        bound_by(&set, (", dateFormat: iso8601", of_child), documents, [vec![plain(&["p"])], of_parents])
    };
    let refusal = bound(", parentField: n", many, Vec::new()).unwrap_err();
    assert!(refusal.detail.starts_with("`children`: `app.c`: no index serves `n`"), "{}", refusal.detail);
    for (of_child, documents, of_parents, index) in [
        (", parentField: n", many, vec![plain(&["n", "at"])], Some("n_at")),
        (", parentField: n", many - 1, Vec::new(), None),
        (", parentField: _id", many, Vec::new(), None),
        ("", many, Vec::new(), None),
    ] {
        let family = bound(of_child, documents, of_parents).unwrap().unwrap();
        let key = &family.children[0].parent_key;
        assert_eq!((key.index.as_deref(), key.is_id()), (index, !of_child.ends_with('n')), "{of_child}");
    }
}

fn plain(keys: &[&str]) -> IndexFacts {
    IndexFacts::made_up(&keys.join("_"), keys)
}

#[test]
fn a_child_has_no_array_on_the_way_to_its_parent() {
    let not = doc! { "$not": { "$type": "array" } };
    assert_eq!(no_array("files_id"), doc! { "files_id": &not });
    assert_eq!(no_array("a.b.c"), doc! { "a": &not, "a.b": &not, "a.b.c": &not });
}

#[test]
fn an_index_that_leaves_out_children_or_compares_otherwise_is_not_taken() {
    let chosen = |indexes: Vec<IndexFacts>| index_of("p", &indexes).map(|index| index.name);
    assert_eq!(chosen(vec![plain(&["_id"]), plain(&["p", "n"]), plain(&["p"])]), Some("p".into()));
    assert_eq!(chosen(vec![plain(&["p", "n"])]), Some("p_n".into()));
    for other in [
        plain(&["n", "p"]),
        IndexFacts { partial: Some(doc! { "n": 1 }), ..plain(&["p"]) },
        IndexFacts { hidden: true, ..plain(&["p"]) },
        IndexFacts { collation: Some(doc! { "locale": "en" }), ..plain(&["p"]) },
        IndexFacts { key: vec![("p".into(), "hashed".into())], ..plain(&["p"]) },
    ] {
        assert_eq!(chosen(vec![other.clone()]), None, "{other:?}");
    }
}

#[test]
fn each_key_is_found_by_the_index_that_serves_it() {
    let key = |field: &str, index: Option<&str>| ParentKey { field: field.into(), index: index.map(str::to_owned) };
    assert_eq!(ParentKey::id().hint(), Some(doc! { "_id": 1 }.into()));
    assert_eq!((key("n", Some("n_1")).hint(), key("n", None).hint()), (Some("n_1".into()), None));
}

#[test]
fn parents_whose_keys_may_be_several_are_told_apart() {
    let family = |fields: &[&str]| {
        let rule = crate::testing::made_up::with_children();
        let family = rule.family.unwrap();
        let child = family.children[0].clone();
        let key = |field: &&str| ParentKey { field: (*field).into(), index: None };
        let children = fields.iter().map(|field| ChildRule { parent_key: key(field), ..child.clone() }).collect();
        Family { children, ..family }
    };
    let no_list = |field: &str| doc! { field: { "$not": { "$type": "array" } } };
    let no_pattern = |field: &str| doc! { field: { "$not": { "$type": "regex" } } };
    for (fields, clear) in [
        (&["_id"][..], None),
        (&["n", "_id"], Some(doc! { "$and": [no_list("n"), no_pattern("n")] })),
        (&["n", "m", "n"], Some(doc! { "$and": [no_list("m"), no_pattern("m"), no_list("n"), no_pattern("n")] })),
    ] {
        assert_eq!(family(fields).one_key(), clear, "{fields:?}");
    }
    assert_eq!(family(&["n", "_id", "n"]).parent_keys().len(), 2);
}

#[test]
fn a_field_that_no_document_has_is_refused_unless_it_may_be_missing() {
    let text = |allowed: &str| {
        format!(
            "version: 1\njournal: {{collection: ops.j}}\ncollections: [{{namespace: app.c, field: at, expireAfter: 1d{allowed}, \
             children: [{{namespace: app.d, field: p}}]}}]"
        )
    };
    let namespace = Namespace { database: "app".into(), collection: "d".into() };
    let of = |allowed: &str, documents, is_found| {
        let rule = parse("p", &text(allowed), &|_| None, true).unwrap().rules.remove(0);
        let seen = SeenField { is_found, similar: Some("P".into()) };
        unknown(&rule, &namespace, documents, "p", &seen).map(|refusal| refusal.detail)
    };
    for (allowed, documents, is_found) in [
        ("", 1, Some(true)),
        ("", 1, None),
        ("", 0, Some(false)),
        (", allowUnknownFields: [p]", 1, Some(false)),
        (", allowUnknownFields: [q, p]", 1, Some(false)),
    ] {
        assert_eq!(of(allowed, documents, is_found), None, "{allowed} {documents} {is_found:?}");
    }
    for allowed in ["", ", allowUnknownFields: [q]"] {
        let detail = of(allowed, 1, Some(false)).unwrap();
        assert!(detail.starts_with("`children`: no document of `app.d` has `p`, but some have `P`"), "{detail}");
    }
}

#[test]
fn children_have_the_pace_of_their_parents_but_none_of_the_limits_on_their_number() {
    let keys = "    maxDeletes: 7\n    maxDeletePercent: 5\n    minOplogWindow: 1h\n";
    let mut parents = planned(keys, 9).decision.countable().unwrap().clone();
    parents.head_index = Some("at_1".into());
    parents.approved = Some(crate::core::plan::Approved::of(5));
    parents.family = crate::testing::made_up::with_children().family;
    let namespace = Namespace { database: "app".into(), collection: "d".into() };
    let child = Child { namespace: namespace.clone(), field: "p".into(), parent_field: "_id".into() };
    let collection = Collection::new(namespace, CollectionKind::Plain);
    let rule = rule_of(&parents, &child, Storage::Plain, &Figures::default(), None, &collection);
    let limits = &rule.limits;
    assert_eq!((limits.max_deletes, limits.max_delete_percent, &rule.head_index), (None, None, &None));
    assert_eq!((limits.min_oplog_window, rule.sizes), (parents.limits.min_oplog_window, parents.sizes));
    assert_eq!((rule.approved, rule.family), (None, None));
}

#[test]
fn what_makes_parents_or_children_alike_or_leaves_no_key_is_refused() {
    let set = ServerFacts::made_up(Flavor::MongoDb, "7.0.0", 21);
    let of = |keys: &str, collation: Option<Document>, of_children: Option<Document>| {
        let text = format!(
            "version: 1\njournal: {{collection: ops.j}}\ncollections: [{{namespace: app.c, field: at, expireAfter: 1d{keys}, \
             children: [{{namespace: app.d, field: p}}]}}]"
        );
        let rule = parse("p", &text, &|_| None, true).unwrap().rules.remove(0);
        let sweep = planned("", 5).decision.countable().unwrap().clone();
        let collection = |name: &str, collation| Collection {
            collation,
            ..Collection::new(Namespace { database: "app".into(), collection: name.into() }, CollectionKind::Plain)
        };
        let seen = SeenChild {
            child: rule.family.as_ref().unwrap().children[0].clone(),
            seen: NamespaceFacts::Collection(Box::new(collection("d", of_children)), Figures::default()),
            field: SeenField::default(),
            parent_field: SeenField::default(),
        };
        bind(&set, &rule, &sweep, &collection("c", collation), &[seen]).map_err(|refusal| refusal.detail)
    };
    let folding = || Some(doc! { "locale": "en", "strength": 2 });
    let holds = "holds: {collection: app.holds, key: t}";
    for (keys, orphans) in [(String::new(), false), (", orphans: true".into(), true), (format!(", {holds}"), false)] {
        assert_eq!(of(&keys, None, None).unwrap().unwrap().orphans.is_some(), orphans, "{keys}");
    }
    for (keys, parents, children, why) in [
        (String::new(), folding(), None, "the collation of `app.c` treats different texts as equal"),
        (String::new(), None, folding(), "the collation of `app.d` treats different texts as equal"),
        (format!(", orphans: true, {holds}"), None, None, "`orphans` with `holds`"),
    ] {
        let detail = of(&keys, parents, children).unwrap_err();
        assert!(detail.starts_with(&format!("`children`: {why}")), "{detail}");
    }
    for (flavor, topology, what) in
        [(Flavor::MongoDb, Topology::Sharded, "not on sharded clusters"), (Flavor::CosmosRu, Topology::Sharded, "(RU)")]
    {
        let server = ServerFacts { topology, ..ServerFacts::made_up(flavor, "7.0.0", 21) };
        let detail = bound(&server, "", 5, true).unwrap_err().detail;
        assert!(detail.ends_with(what), "{detail}");
    }
}
