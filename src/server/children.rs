//! The children of a rule's documents, counted, and those without a parent, found. Reads only.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc};

use super::error::Result;
use super::find::{Cursor, Query};
use super::{Deployment, family};
use crate::plan::{ChildRule, Family, ParentKey, SweepRule};
use crate::policy::namespace::Namespace;
use crate::values::count_in;
use crate::values::raw::RawValue;

/// Maximum number of parents whose children are counted.
pub(crate) const MAX_PARENTS: u64 = 1_000_000;

/// Parents whose children one query counts.
const PAGE: usize = 2000;

/// Counts the children of the expired documents of a rule.
pub(crate) async fn of_expired(deployment: &Deployment, rule: &SweepRule, family: &Family) -> Result<u64> {
    let selection = &rule.selection;
    let hint = selection.index.as_ref().map(|index| index.name.as_str());
    let keys = family.parent_keys();
    let projection = keys.iter().map(|key| (key.field.clone(), Bson::Int32(1))).collect();
    let find = Query::find(&selection.namespace, selection.without_held(&selection.predicate)?).projection(projection);
    let find = find.hint(hint).batch_size(PAGE as u32).max_time(deployment.read_options.max_time);
    let mut expired = find.cursor(deployment).await?;
    let mut children = 0;
    loop {
        let mut parents = Vec::new();
        while parents.len() < PAGE {
            let Some(parent) = expired.next().await? else { break };
            parents.push(parent);
        }
        if parents.is_empty() {
            return Ok(children);
        }
        for child in &family.children {
            let keys = parents.iter().filter_map(|parent| RawValue::at(parent, &child.parent_key.field));
            let keys: Vec<Bson> = keys.filter(family::names_one).filter_map(|key| key.decoded()).collect();
            children += count(deployment, child, doc! { &child.field: { "$in": keys } }).await?;
        }
    }
}

async fn count(deployment: &Deployment, child: &ChildRule, filter: Document) -> Result<u64> {
    let group = doc! { "$group": { "_id": null, "count": { "$sum": 1 } } };
    let found = query(deployment, child, vec![doc! { "$match": filter }, group]).all(deployment).await?;
    Ok(found.first().and_then(|found| count_in(found, "count")).unwrap_or(0))
}

/// Returns a query on a collection of children.
pub(super) fn query(deployment: &Deployment, child: &ChildRule, stages: Vec<Document>) -> Query {
    let selection = &child.rule.selection;
    let hint = selection.index.as_ref().map(|index| index.name.as_str());
    Query::aggregate(&selection.namespace, stages).hint(hint).max_time(deployment.read_options.max_time)
}

/// Counts the documents of the collections of children whose parent is not there.
pub(crate) async fn orphans(deployment: &Deployment, rule: &SweepRule, family: &Family) -> Result<u64> {
    let mut orphans = 0;
    for child in &family.children {
        let mut absent = Absent::open(deployment, rule, child).await?;
        while let Some(parents) = absent.next().await? {
            orphans += parents.iter().map(|(_, children)| children).sum::<u64>();
        }
    }
    Ok(orphans)
}

/// The parents of children that are not there, in one pass over the children.
pub(crate) struct Absent<'a> {
    deployment: &'a Deployment,
    namespace: &'a Namespace,
    key: ParentKey,
    groups: Cursor,
}

impl<'a> Absent<'a> {
    /// Begins a pass over a collection of children.
    pub(crate) async fn open(deployment: &'a Deployment, rule: &'a SweepRule, child: &ChildRule) -> Result<Self> {
        let group = doc! { "$group": { "_id": format!("${}", child.field), "count": { "$sum": 1 } } };
        let groups = query(deployment, child, vec![group]).allow_disk_use().batch_size(PAGE as u32).cursor(deployment).await?;
        Ok(Self { deployment, namespace: &rule.namespace, key: child.parent_key.clone(), groups })
    }

    /// Returns the parents of the next children that are not there, each with the number of its children; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<(RawValue, u64)>>> {
        let mut parents = Vec::new();
        while parents.len() < PAGE {
            let Some(group) = self.groups.next().await? else { break };
            let number = Document::try_from(&*group).ok().and_then(|group| count_in(&group, "count")).unwrap_or(0);
            parents.extend(RawValue::at(&group, "_id").map(|parent| (parent, number)));
        }
        if parents.is_empty() {
            return Ok(None);
        }
        parents.retain(|(parent, _)| family::names_one(parent));
        let keys: Vec<RawValue> = parents.iter().map(|(parent, _)| parent.clone()).collect();
        let present = family::present(self.deployment, self.namespace, &self.key, &keys, false).await?;
        let present: HashSet<Vec<u8>> = present.iter().map(family::compared).collect();
        parents.retain(|(parent, _)| !present.contains(&family::compared(parent)));
        Ok(Some(parents))
    }
}

/// Returns those of the parents whose children all have an ObjectId from before this one.
pub(crate) async fn all_before(
    deployment: &Deployment,
    child: &ChildRule,
    parents: &[RawValue],
    before: ObjectId,
) -> Result<Vec<RawValue>> {
    let ids: Vec<Bson> = parents.iter().filter_map(RawValue::decoded).collect();
    let ends = doc! { "_id": format!("${}", child.field), "first": { "$min": "$_id" }, "last": { "$max": "$_id" } };
    let stages = vec![doc! { "$match": { &child.field: { "$in": ids } } }, doc! { "$group": ends }];
    let groups = query(deployment, child, stages).all_raw(deployment).await?;
    // Between two ObjectIds are only ObjectIds.
    let is_old = |group: &&RawDocumentBuf| matches!((group.get_object_id("first"), group.get_object_id("last")), (Ok(_), Ok(last)) if last < before);
    Ok(groups.iter().filter(is_old).filter_map(|group| RawValue::at(group, "_id")).collect())
}
