//! The family of one document: its children, counted, and what is known of its parent. Reads only.

use std::time::Duration;

use bson::{Bson, RawDocumentBuf, doc};

use super::children;
use super::parents::{compared, names_one, not_after, oldest_upload};
use crate::base::values::count_in;
use crate::base::values::raw::RawValue;
use crate::core::plan::judgement::{ChildrenWhy, Orphan};
use crate::core::plan::{ChildRule, Decision, PlannedRule, SweepRule};
use crate::core::policy::Child;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::{Deployment, ReadOptions};

/// Maximum number of children of a document that are counted in one collection.
const MAX_CHILDREN: u64 = 100_000;

/// Time after which a read is given up.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Counts the children of a document of a rule.
///
/// Errors: a collection cannot be read.
pub(crate) async fn children_of(deployment: &Deployment, rule: &SweepRule, id: &Bson) -> Result<Vec<ChildrenWhy>> {
    let mut counted = Vec::new();
    for child in rule.family.iter().flat_map(|family| &family.children) {
        let key = match &child.parent_key {
            // Null in a query is also a field that is missing.
            key if key.is_id() => Some(id.clone()).filter(|id| *id != Bson::Null),
            key => value(deployment, &rule.selection.namespace, id, &key.field).await?,
        };
        let count = match count(deployment, child, key).await {
            Ok(count) => Some(count),
            Err(cause) if cause.has_code(codes::MAX_TIME_MS_EXPIRED) => None,
            Err(cause) => return Err(cause),
        };
        counted.push(ChildrenWhy {
            namespace: child.rule.selection.namespace.to_string(),
            field: child.field.clone(),
            count: count.map(|count| count.min(MAX_CHILDREN)),
            more: count.is_some_and(|count| count > MAX_CHILDREN),
        });
    }
    Ok(counted)
}

async fn count(deployment: &Deployment, child: &ChildRule, key: Option<Bson>) -> Result<u64> {
    let Some(key) = key else { return Ok(0) };
    let of_it = doc! { "$and": [{ &child.field: { "$eq": key } }, &child.rule.selection.predicate] };
    let stages = vec![
        doc! { "$match": of_it },
        doc! { "$limit": i64::try_from(MAX_CHILDREN + 1).unwrap_or(i64::MAX) },
        doc! { "$group": { "_id": null, "count": { "$sum": 1 } } },
    ];
    let found = children::query(deployment, child, stages).max_time(Some(MAX_TIME)).all(deployment).await?;
    Ok(found.first().and_then(|found| count_in(found, "count")).unwrap_or(0))
}

/// Returns the key of the parent that a child names; `None` if it names none.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn named_parent(deployment: &Deployment, child: &Child, id: &Bson) -> Result<Option<Bson>> {
    value(deployment, &child.namespace, id, &child.field).await
}

/// Returns the `_id` of a document that has a key of parents; `None` if none has.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn parent_with(deployment: &Deployment, parents: &Namespace, child: &Child, key: &Bson) -> Result<Option<Bson>> {
    let find = Query::find(parents, doc! { &child.parent_field: { "$eq": key } }).projection(doc! { "_id": 1 }).limit(1);
    let found = find.max_time(Some(MAX_TIME)).all_raw(deployment).await?;
    Ok(found.first().and_then(|parent| RawValue::decoded_at(parent, "_id")))
}

/// Returns the value of a document that names one parent, its own key or the key of another; `None` if it has none.
async fn value(deployment: &Deployment, namespace: &Namespace, id: &Bson, path: &str) -> Result<Option<Bson>> {
    let find = Query::find(namespace, doc! { "_id": { "$eq": id } }).projection(doc! { "_id": 1, path: 1 });
    let found = find.max_time(Some(MAX_TIME)).all_raw(deployment).await?;
    // By the collection's collation the `_id`s of other documents may equal this one.
    let is_it = |document: &&RawDocumentBuf| RawValue::decoded_at(document, "_id").as_ref() == Some(id);
    let value = found.iter().find(is_it).and_then(|document| RawValue::at(document, path));
    Ok(value.filter(names_one).and_then(|value| value.decoded()))
}

/// Tells what becomes of a child whose parent is not there, by the rule for the parents.
///
/// Errors: the journal or the children cannot be read in time.
pub(crate) async fn orphan(
    deployment: &Deployment,
    planned: &PlannedRule,
    child: &Child,
    id: &Bson,
    parent: &Bson,
) -> Result<Orphan> {
    let Some(family) = &planned.rule.family else { return Ok(Orphan::LeftAlone) };
    let named = doc! {
        "namespace": planned.namespace.to_string(),
        "field": &child.parent_field,
        "parents": { "$elemMatch": { "$eq": parent } },
    };
    let last = Query::find(&family.journal, named).projection(doc! { "at": 1 }).sort(doc! { "at": -1 }).limit(1);
    let last = last.max_time(Some(MAX_TIME)).all(deployment).await?;
    if let Some(at) = last.first().and_then(|entry| entry.get_datetime("at").ok()) {
        let in_time = doc! { "$and": [{ "_id": { "$eq": id } }, not_after(*at)] };
        let found = Query::find(&child.namespace, in_time).projection(doc! { "_id": 1 }).limit(1);
        let is_in_time = !found.max_time(Some(MAX_TIME)).all(deployment).await?.is_empty();
        return Ok(if is_in_time { Orphan::InJournal } else { Orphan::CreatedLater });
    }
    let Decision::Sweep(rule) = &planned.decision else { return Ok(Orphan::LeftAlone) };
    let is_it = |bound: &&ChildRule| {
        bound.rule.selection.namespace == child.namespace
            && bound.field == child.field
            && bound.parent_key.field == child.parent_field
    };
    let bound = rule.family.iter().filter(|family| family.orphans.is_some()).flat_map(|family| &family.children).find(is_it);
    let Some(bound) = bound else { return Ok(Orphan::LeftAlone) };
    let read_options = ReadOptions { max_time: Some(MAX_TIME), ..deployment.read_options.clone() };
    let deployment = Deployment { read_options, ..deployment.clone() };
    let parent = RawValue::of(parent.clone())?;
    let old = children::all_before(&deployment, bound, std::slice::from_ref(&parent), oldest_upload(rule.expiry.as_of)).await?;
    let is_old = old.iter().any(|(old, _)| compared(old) == compared(&parent));
    if !is_old {
        return Ok(Orphan::MaybeInFlight);
    }
    let has_parents = children::has_parents(&deployment, &planned.namespace).await?;
    Ok(if has_parents { Orphan::Old } else { Orphan::WithoutParents })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::server::wire::error::ServerError;
    use crate::testing::made_up::with_children;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{Batch, End, Error};

    #[tokio::test]
    async fn a_count_of_children_has_an_end_and_one_that_takes_too_long_is_none() {
        let found = |count: i64| [Batch(vec![doc! { "count": count }]), End];
        let late = ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", "");
        // A reply that is late is asked for several times.
        let late = (0..9).map(|_| Error(late.clone()));
        let script = Script::new(found(100_000).into_iter().chain(found(100_001)).chain(late));
        let (deployment, rule) = (script.deployment(), with_children());
        let mut counted = Vec::new();
        for _ in 0..3 {
            let of_one = children_of(&deployment, &rule, &Bson::from(7)).await.unwrap().remove(0);
            counted.push((of_one.count, of_one.more));
        }
        assert_eq!(counted, [(Some(100_000), false), (Some(100_000), true), (None, false)]);
        let pipeline = script.sent()[0].get_array("pipeline").unwrap().clone();
        assert!(pipeline.contains(&doc! { "$limit": 100_001_i64 }.into()), "{pipeline:?}");
        assert!(script.sent()[0].contains_key("maxTimeMS"));
        // A document whose `_id` is null has no children, so none are counted.
        let sent = script.sent().len();
        assert_eq!(children_of(&deployment, &rule, &Bson::Null).await.unwrap()[0].count, Some(0));
        assert_eq!(script.sent().len(), sent);
    }
}
