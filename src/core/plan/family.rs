//! Binds the children of a rule to their collections, or refuses the rule: a parent never goes where its children would be left
//! behind.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};

use super::archive::is_simple;
use super::index::IndexChoice;
use super::keys::no_array;
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
    /// The rule as it applies to the children. Its predicate is only what a child has to be; its namespace, the namespace of the
    /// leases, is the parents'.
    pub rule: SweepRule,
}

/// The values by which children name their parents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentKey {
    /// Path of the keys in the documents of the rule.
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

    /// Returns the collections of the children, each once, by their names.
    pub fn child_namespaces(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.children.iter().map(|child| child.rule.selection.namespace.to_string()).collect();
        names.into_iter().collect()
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
    let by_key = [("holds", rule.holds.is_some()), ("periods", rule.periods.is_some())];
    if let Some((key, _)) = by_key.into_iter().find(|(_, is_there)| *is_there && family.orphans) {
        return refuse(format!(
            "`orphans` with `{key}`: a child without a parent has no key by which it could be kept; leave one of the two out"
        ));
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
    // A child goes only once its parent is gone, which a hold keeps.
    let selection = Selection {
        index,
        uuid: collection.uuid,
        storage,
        document_count: figures.document_count,
        size: figures.size,
        indexes: collection.indexes.len().saturating_sub(1),
        ..Selection::of(namespace, no_array(field))
    };
    // The limits of the count are the limits of the parents, whose dates the children do not have.
    let limits = Limits { max_deletes: None, max_delete_percent: None, ..sweep.limits.clone() };
    SweepRule { selection, limits, head_index: None, approved: None, family: None, ..sweep.clone() }
}

/// Returns the filter of a rule, with the condition that the keys of the parents are clear. A parent of which they are not stays.
pub(super) fn with_one_key(rule: &Rule) -> Option<Document> {
    let fields = rule.family.iter().flat_map(|family| &family.children).map(|child| child.parent_field.as_str());
    match (one_key(fields), rule.filter.clone()) {
        (Some(one_key), Some(filter)) => Some(doc! { "$and": [filter, one_key] }),
        (one_key, filter) => one_key.or(filter),
    }
}

/// Returns the condition that no list and no regular expression is in one of the fields by which children name their parents.
/// Otherwise it is unclear which children the parent has. `None` if all children name their parents by the `_id`.
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
