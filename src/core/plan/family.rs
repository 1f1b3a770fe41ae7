//! Binds the children of a rule to their collections, or refuses the rule: a parent never goes where its children would be left
//! behind.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};

use super::archive::is_simple;
use super::index::IndexChoice;
use super::orphans::OrphanLimits;
use super::{Guard, Refusal, Selection, Storage, SweepRule, guard};
use crate::base::values::float;
use crate::core::facts::{
    Collection, CollectionKind, Figures, IndexFacts, NamespaceFacts, SeenChild, SeenField, ServerFacts, Topology,
};
use crate::core::flavor::Flavor;
use crate::core::policy::limits::Limits;
use crate::core::policy::namespace::Namespace;
use crate::core::policy::{Child, Rule};

/// The children of the documents of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Namespace of the journal.
    pub journal: Namespace,
    /// Never empty.
    pub children: Vec<ChildRule>,
    /// The limits of children that have been without a parent before; `None` if these stay.
    pub orphans: Option<OrphanLimits>,
    /// The rule's own filter: without the conditions that each parent has one key.
    pub filter: Option<Document>,
}

/// A collection of children.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRule {
    /// Path that holds the key of the parent.
    pub field: String,
    pub parent_key: ParentKey,
    /// The rule as it applies to the children. Its predicate is only what a child has to be; its namespace, that of the leases,
    /// is the parents'.
    pub rule: SweepRule,
}

/// The values by which children name their parents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentKey {
    /// Their path in the documents of the rule.
    pub field: String,
    /// The index that serves them; `None` if there is none.
    pub index: Option<String>,
}

impl ParentKey {
    /// The key of parents unless the policy names another.
    pub const ID: &str = "_id";

    /// Returns the `_id`, which each collection has an index on.
    pub fn id() -> Self {
        Self { field: Self::ID.to_owned(), index: None }
    }

    /// Whether it is the `_id`, which each parent has for itself and which never changes.
    pub fn is_id(&self) -> bool {
        self.field == Self::ID
    }

    /// Returns the index as a hint.
    pub fn hint(&self) -> Option<Bson> {
        match &self.index {
            _ if self.is_id() => Some(doc! { "_id": 1 }.into()),
            name => name.as_deref().map(Bson::from),
        }
    }
}

impl Family {
    /// Returns the different keys by which the children name their parents.
    pub fn parent_keys(&self) -> Vec<&ParentKey> {
        let mut keys: Vec<&ParentKey> = Vec::new();
        for child in &self.children {
            if !keys.contains(&&child.parent_key) {
                keys.push(&child.parent_key);
            }
        }
        keys
    }

    /// Returns the condition for parents whose keys are clear; `None` if they are always, as an `_id` is.
    pub fn one_key(&self) -> Option<Document> {
        one_key(self.children.iter().map(|child| child.parent_key.field.as_str()))
    }
}

/// Returns the children of a rule; `None` if it names none. `sweep` is the rule, bound to its own collection.
///
/// Errors: the refusal of a rule whose children cannot go with their parents.
pub(super) fn bind(
    server: &ServerFacts,
    rule: &Rule,
    sweep: &SweepRule,
    collection: &Collection,
    children: &[SeenChild],
) -> Result<Option<Family>, Refusal> {
    let Some(family) = &rule.family else { return Ok(None) };
    let refuse = |detail: String| Err(Refusal::new(Guard::Children, format!("`children`: {detail}")));
    // Whether a parent is gone for good is asked of a majority of a replica set's members.
    if server.flavor != Flavor::MongoDb || server.topology == Topology::Sharded {
        let what = if server.flavor == Flavor::MongoDb { "sharded clusters" } else { server.flavor.product() };
        return refuse(format!("this version deletes them on replica sets and single servers of MongoDB only, not on {what}"));
    }
    if sweep.selection.is_buckets() {
        return refuse("a time-series collection has no parents: its documents have no `_id` of their own".to_owned());
    }
    if !is_simple(collection.collation.as_ref()) {
        return refuse(collated(&collection.namespace));
    }
    if rule.holds.is_some() && family.orphans {
        return refuse(
            "`orphans` with `holds`: a child without a parent has no key by which a hold could keep it; leave one of the two out"
                .to_owned(),
        );
    }
    let children = children.iter().map(|seen| bind_child(rule, sweep, collection, seen)).collect::<Result<_, _>>()?;
    let orphans = family.orphans.then(|| OrphanLimits::of(&sweep.limits));
    Ok(Some(Family { journal: family.journal.clone(), children, orphans, filter: rule.filter.clone() }))
}

fn bind_child(
    rule: &Rule,
    sweep: &SweepRule,
    parents: &Collection,
    SeenChild { child, seen, field: of_child, parent_field: of_parent }: &SeenChild,
) -> Result<ChildRule, Refusal> {
    let Child { namespace, field, parent_field } = child;
    let refuse = |detail: String| Err(Refusal::new(Guard::Children, format!("`children`: {detail}")));
    let (collection, figures) = match seen {
        NamespaceFacts::Collection(collection, figures) => (collection, figures),
        NamespaceFacts::Missing | NamespaceFacts::NotLookedFor => {
            return refuse(format!(
                "there is no collection `{namespace}`; a wrong name would leave the children behind without their parents"
            ));
        }
        NamespaceFacts::Unreadable { error } => return refuse(error.clone()),
    };
    let storage = match collection.kind {
        CollectionKind::Plain => Storage::Plain,
        CollectionKind::Clustered => Storage::Clustered,
        CollectionKind::View | CollectionKind::Capped | CollectionKind::CosmosRu | CollectionKind::TimeSeries(_) => {
            return refuse(format!("`{namespace}` is no ordinary collection, and its documents cannot be deleted one by one"));
        }
    };
    if !is_simple(collection.collation.as_ref()) {
        return refuse(collated(namespace));
    }
    let index = index_of(field, &collection.indexes);
    // Each batch of parents is looked for by their key, too.
    let of_key = index_of(parent_field, &parents.indexes);
    let is_id = parent_field == ParentKey::ID;
    let count = sweep.selection.document_count;
    let search =
        guard::search(rule, namespace, field, index.as_ref(), figures.document_count).map(|refusal| (namespace, refusal));
    let search_of_parents = || {
        guard::search(rule, &parents.namespace, parent_field, of_key.as_ref(), count)
            .filter(|_| !is_id)
            .map(|refusal| (&parents.namespace, refusal))
    };
    if let Some((namespace, refusal)) = search.or_else(search_of_parents) {
        return Err(Refusal { detail: format!("`children`: `{namespace}`: {}", refusal.detail), ..refusal });
    }
    let unknown_child = unknown(rule, namespace, figures.document_count, field, of_child);
    if let Some(refusal) = unknown_child.or_else(|| unknown(rule, &parents.namespace, count, parent_field, of_parent)) {
        return Err(refusal);
    }
    let parent_key = ParentKey { field: parent_field.clone(), index: of_key.map(|index| index.name) };
    Ok(ChildRule { field: field.clone(), parent_key, rule: rule_of(sweep, child, storage, figures, index, collection) })
}

/// Refuses a rule with the name of a field that no document has.
fn unknown(rule: &Rule, namespace: &Namespace, documents: u64, field: &str, seen: &SeenField) -> Option<Refusal> {
    if seen.is_found != Some(false) || documents == 0 || rule.allow_unknown_fields.iter().any(|allowed| allowed == field) {
        return None;
    }
    let other = seen.similar.as_ref().map(|similar| format!(", but some have `{similar}`, which is another field"));
    Some(Refusal::new(
        Guard::UnknownField,
        format!(
            "`children`: no document of `{namespace}` has `{field}`{}; with a wrong name the children would be left behind without their \
             parents: correct it or, if there are no children yet, set `allowUnknownFields: [{field}]`",
            other.unwrap_or_default()
        ),
    ))
}

fn rule_of(
    sweep: &SweepRule,
    Child { namespace, field, .. }: &Child,
    storage: Storage,
    figures: &Figures,
    index: Option<IndexChoice>,
    collection: &Collection,
) -> SweepRule {
    let selection = Selection {
        predicate: no_array(field),
        filter: None,
        collation: None,
        variables: Vec::new(),
        folds_ids: false,
        index,
        namespace: namespace.clone(),
        uuid: collection.uuid,
        storage,
        shard_key: Vec::new(),
        document_count: figures.document_count,
        average_bytes: figures.average_bytes,
        file: figures.file,
        throughput: None,
        indexes: collection.indexes.len().saturating_sub(1),
        // A child goes only once its parent is gone, which a hold keeps.
        holds: None,
    };
    // The limits of the count are those of the parents, whose dates the children do not have.
    let limits = Limits { max_deletes: None, max_delete_percent: None, ..sweep.limits.clone() };
    SweepRule { selection, limits, head_index: None, approved: None, family: None, ..sweep.clone() }
}

/// Returns the predicate of a child, and of its parent by the path of the key: nowhere on the path is an array, which could name
/// others too.
pub(crate) fn no_array(field: &str) -> Document {
    let ends = field.match_indices('.').map(|(end, _)| end).chain([field.len()]);
    ends.map(|end| (field[..end].to_owned(), doc! { "$not": { "$type": "array" } }.into())).collect()
}

/// Returns the filter of a rule, with the condition that the keys of the parents are clear. A parent of which they are not stays.
pub(super) fn with_one_key(rule: &Rule) -> Option<Document> {
    let fields = rule.family.iter().flat_map(|family| &family.children).map(|child| child.parent_field.as_str());
    match (one_key(fields), rule.filter.clone()) {
        (Some(one_key), Some(filter)) => Some(doc! { "$and": [filter, one_key] }),
        (one_key, filter) => one_key.or(filter),
    }
}

/// Returns the condition that no list and no regular expression is in one of the fields by which children name their parents: it
/// is then unclear which children the parent has. `None` if all of them do it by the `_id`.
fn one_key<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Document> {
    let fields: BTreeSet<&str> = fields.filter(|field| *field != ParentKey::ID).collect();
    let conditions = fields.into_iter().flat_map(|field| [no_array(field), doc! { field: { "$not": { "$type": "regex" } } }]);
    let conditions: Vec<Document> = conditions.collect();
    (!conditions.is_empty()).then(|| doc! { "$and": conditions })
}

/// Chooses the index by which the children of a parent are found: one that begins with the field and holds every child.
fn index_of(field: &str, indexes: &[IndexFacts]) -> Option<IndexChoice> {
    let serves = |index: &&IndexFacts| {
        index.key.first().is_some_and(|(name, _)| name == field)
            && index.key.iter().all(|(_, direction)| float(direction).is_some())
            && !index.hidden
            && index.partial.is_none()
            && is_simple(index.collation.as_ref())
    };
    let shortest = indexes.iter().filter(serves).min_by_key(|index| index.key.len())?;
    Some(IndexChoice { name: shortest.name.clone(), oldest_first: true, bounded: true })
}

fn collated(namespace: &Namespace) -> String {
    format!("the collation of `{namespace}` treats different texts as equal, so that one parent could be taken for another")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::policy::parse::parse;
    use crate::testing::made_up::planned;

    /// Binds a rule with children to collections with so many documents; the children have an index on their field if
    /// `is_indexed`.
    fn bound(server: &ServerFacts, keys: &str, documents: u64, is_indexed: bool) -> Result<Option<Family>, Refusal> {
        let indexes: Vec<IndexFacts> = is_indexed.then(|| plain(&["p"])).into_iter().collect();
        bound_by(server, (keys, ""), documents, [indexes, Vec::new()])
    }

    /// Does the same with keys of the rule and of the children, and with indexes of the children and of the parents.
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
        for (keys, documents, is_indexed) in
            [("", many, true), ("", many - 1, false), (", allowCollectionScan: true", many, false)]
        {
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
}
