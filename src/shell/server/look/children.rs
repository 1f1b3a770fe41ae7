//! The children of a rule's documents, counted, and those without a parent, found. Reads only.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc};

use super::{count, parents};
use crate::base::values::count_in;
use crate::base::values::raw::RawValue;
use crate::core::plan::{ChildRule, Family, OrphanLimits, ParentKey, SweepRule, guard};
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::{Cursor, Query};
use crate::shell::server::wire::retry::restarting;

/// Maximum number of parents whose children are counted.
pub(crate) const MAX_PARENTS: u64 = 1_000_000;

/// Parents whose children one query counts.
const PAGE: usize = 2000;

/// Maximum number of parents that are not there which one pass returns.
const MAX_ABSENT: usize = 200_000;

/// Counts the children of the expired documents of a rule, by collection in the order of the family.
pub(crate) async fn of_expired(deployment: &Deployment, rule: &SweepRule, family: &Family) -> Result<Vec<u64>> {
    restarting(&rule.namespace, || of_expired_once(deployment, rule, family)).await
}

async fn of_expired_once(deployment: &Deployment, rule: &SweepRule, family: &Family) -> Result<Vec<u64>> {
    let selection = &rule.selection;
    let hint = selection.index.as_ref().map(|index| index.name.as_str());
    let keys = family.parent_keys();
    let projection = keys.iter().map(|key| (key.field.clone(), Bson::Int32(1))).collect();
    let find = Query::find(&selection.namespace, selection.without_held(&selection.predicate)?).projection(projection);
    let find = find.hint(hint).batch_size(PAGE as u32).max_time(deployment.read_options.max_time);
    let mut expired = find.cursor(deployment).await?;
    let mut counts = vec![0; family.children.len()];
    loop {
        let mut parents = Vec::new();
        while parents.len() < PAGE {
            let Some(parent) = expired.next().await? else { break };
            parents.push(parent);
        }
        if parents.is_empty() {
            return Ok(counts);
        }
        for (child, count) in family.children.iter().zip(&mut counts) {
            let keys = parents.iter().filter_map(|parent| RawValue::at(parent, &child.parent_key.field));
            let keys: Vec<Bson> = keys.filter(parents::names_one).filter_map(|key| key.decoded()).collect();
            *count += number(deployment, child, doc! { &child.field: { "$in": keys } }).await?;
        }
    }
}

async fn number(deployment: &Deployment, child: &ChildRule, filter: Document) -> Result<u64> {
    let group = doc! { "$group": { "_id": null, "count": { "$sum": 1 } } };
    let found = query(deployment, child, vec![doc! { "$match": filter }, group]).all(deployment).await?;
    Ok(found.first().and_then(|found| count_in(found, "count")).unwrap_or(0))
}

/// Returns a query on a collection of children.
pub(crate) fn query(deployment: &Deployment, child: &ChildRule, stages: Vec<Document>) -> Query {
    let selection = &child.rule.selection;
    let hint = selection.index.as_ref().map(|index| index.name.as_str());
    Query::aggregate(&selection.namespace, stages).hint(hint).max_time(deployment.read_options.max_time)
}

/// The orphans of one collection of children: its documents whose parent is not there.
#[derive(Debug, Default)]
pub(crate) struct FoundOrphans {
    /// Children without a parent, the orphans of uploads in flight among them.
    pub count: u64,
    /// Orphans whose parent has only old children.
    pub old: u64,
    /// Parents of old ones, no more than [`MAX_ABSENT`].
    pub parents: Vec<RawValue>,
    /// Whether there are more such parents.
    pub has_more: bool,
}

/// Finds the orphans of one collection, in one pass over it. Old are the orphans of a parent whose children all have an ObjectId
/// from before `old_before`; without it none is looked for.
pub(crate) async fn orphans(
    deployment: &Deployment,
    rule: &SweepRule,
    child: &ChildRule,
    old_before: Option<ObjectId>,
) -> Result<FoundOrphans> {
    restarting(&child.rule.namespace, || orphans_once(deployment, rule, child, old_before)).await
}

async fn orphans_once(
    deployment: &Deployment,
    rule: &SweepRule,
    child: &ChildRule,
    old_before: Option<ObjectId>,
) -> Result<FoundOrphans> {
    let mut found = FoundOrphans::default();
    let mut absent = Absent::open(deployment, rule, child).await?;
    while let Some(parents) = absent.next().await? {
        found.count += parents.iter().map(|(_, children)| children).sum::<u64>();
        let Some(before) = old_before.filter(|_| !parents.is_empty()) else { continue };
        let parents: Vec<RawValue> = parents.into_iter().map(|(parent, _)| parent).collect();
        for (parent, children) in all_before(deployment, child, &parents, before).await? {
            found.old += children;
            if found.parents.len() < MAX_ABSENT {
                found.parents.push(parent);
            } else {
                found.has_more = true;
            }
        }
    }
    Ok(found)
}

/// Returns the number of documents in a collection of children, counted one by one as far as the share of so many orphans is to
/// be known.
pub(crate) async fn documents(deployment: &Deployment, child: &ChildRule, limits: &OrphanLimits, orphans: u64) -> Result<u64> {
    let selection = &child.rule.selection;
    let counted = match guard::enough_documents(limits.max_percent, orphans) {
        Some(enough) => count::documents_up_to(deployment, selection, enough).await?,
        None => None,
    };
    Ok(counted.map_or(selection.document_count, |counted| counted.count))
}

/// Tells whether the collection of the parents has a document, by the primary and by a majority.
pub(crate) async fn has_parents(deployment: &Deployment, parents: &Namespace) -> Result<bool> {
    for by_majority in [true, false] {
        let deployment = parents::reading(deployment, by_majority);
        let any = Query::find(parents, Document::new()).projection(doc! { "_id": 1 }).limit(1).retried_patiently(parents);
        if any.first_batch(&deployment).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The parents of children that are not there, in one pass over the children.
struct Absent<'a> {
    deployment: &'a Deployment,
    namespace: &'a Namespace,
    key: ParentKey,
    groups: Cursor,
}

impl<'a> Absent<'a> {
    /// Begins a pass over a collection of children.
    async fn open(deployment: &'a Deployment, rule: &'a SweepRule, child: &ChildRule) -> Result<Self> {
        let group = doc! { "$group": { "_id": format!("${}", child.field), "count": { "$sum": 1 } } };
        let groups = query(deployment, child, vec![group]).allow_disk_use().batch_size(PAGE as u32).cursor(deployment).await?;
        Ok(Self { deployment, namespace: &rule.namespace, key: child.parent_key.clone(), groups })
    }

    /// Returns the parents of the next children that are not there, each with the number of its children; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<(RawValue, u64)>>> {
        let mut parents = Vec::new();
        while parents.len() < PAGE {
            let Some(group) = self.groups.next().await? else { break };
            let number = Document::try_from(&*group).ok().and_then(|group| count_in(&group, "count")).unwrap_or(0);
            parents.extend(RawValue::at(&group, "_id").map(|parent| (parent, number)));
        }
        if parents.is_empty() {
            return Ok(None);
        }
        parents.retain(|(parent, _)| parents::names_one(parent));
        let keys: Vec<RawValue> = parents.iter().map(|(parent, _)| parent.clone()).collect();
        let on_primary = parents::reading(self.deployment, false);
        let present = parents::present(&on_primary, self.namespace, &self.key, &keys).await?;
        let present: HashSet<Vec<u8>> = present.iter().map(parents::compared).collect();
        parents.retain(|(parent, _)| !present.contains(&parents::compared(parent)));
        Ok(Some(parents))
    }
}

/// Returns all of `parents` whose children all have an ObjectId from before this one, each with the number of its children.
pub(crate) async fn all_before(
    deployment: &Deployment,
    child: &ChildRule,
    parents: &[RawValue],
    before: ObjectId,
) -> Result<Vec<(RawValue, u64)>> {
    let ids: Vec<Bson> = parents.iter().filter_map(RawValue::decoded).collect();
    let ends = doc! { "_id": format!("${}", child.field), "first": { "$min": "$_id" }, "last": { "$max": "$_id" }, "count": { "$sum": 1 } };
    let stages = vec![doc! { "$match": { &child.field: { "$in": ids } } }, doc! { "$group": ends }];
    let groups = query(deployment, child, stages).all_raw(deployment).await?;
    // Between two ObjectIds are only ObjectIds.
    let is_old = |group: &&RawDocumentBuf| matches!((group.get_object_id("first"), group.get_object_id("last")), (Ok(_), Ok(last)) if last < before);
    let number = |group: &RawDocumentBuf| Document::try_from(&**group).ok().and_then(|group| count_in(&group, "count"));
    let old = groups.iter().filter(is_old);
    Ok(old.filter_map(|group| Some((RawValue::at(group, "_id")?, number(group)?))).collect())
}
