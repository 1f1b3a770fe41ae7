//! The look for parents that are there, their keys, and the times by which children are told from new ones.

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::spec::ElementType;
use bson::{Bson, DateTime, Document, doc};

use super::confirmed;
use crate::base::values::float;
use crate::base::values::raw::{self, RawList, RawRef, RawValue};
use crate::core::facts::Topology;
use crate::core::plan::ParentKey;
use crate::core::plan::keys::no_array;
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::moment::ServerTime;
use crate::shell::server::Deployment;
use crate::shell::server::connect::recognise;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::retry::{Retries, retry};

/// Difference between the clocks of the server and of a program that creates children for which a child is not taken for a new
/// one.
pub(crate) const TOLERANCE_SECONDS: i64 = 300;

/// Age of children without a parent at which none is part of an upload in flight.
pub(crate) const ORPHAN_SECONDS: i64 = 24 * 3600;

/// Reads the server's clock.
///
/// Errors: no answer, or an answer without the time.
pub(crate) async fn clock(deployment: &Deployment) -> Result<ServerTime> {
    recognise::clock(deployment, deployment.patience()).await
}

/// Returns all of `keys` that a document has, as a majority knows it. All that happened on the primary before this call is taken
/// into account, and a fail-over takes nothing of it back. On a server without a replica set that is its own state.
///
/// Errors: no answer, or no majority that confirms the primary.
pub(crate) async fn living(
    deployment: &Deployment,
    namespace: &Namespace,
    key: &ParentKey,
    keys: &[RawValue],
) -> Result<Vec<RawValue>> {
    let mut retries = Retries::patient();
    let confirmed = async || present(&confirmed(deployment, namespace).await?, namespace, key, keys).await;
    retry(|cause| retries.wait(cause), confirmed).await
}

/// Returns all of some `_id`s that a document has, as [`living`] does.
///
/// Errors: as for [`living`].
pub(crate) async fn living_ids(deployment: &Deployment, namespace: &Namespace, ids: &RawList) -> Result<RawList> {
    let mut retries = Retries::patient();
    let confirmed = async || present_ids(&confirmed(deployment, namespace).await?, namespace, ids).await;
    retry(|cause| retries.wait(cause), confirmed).await
}

/// Returns a deployment that reads what a majority has confirmed by now.
async fn confirmed(deployment: &Deployment, namespace: &Namespace) -> Result<Deployment> {
    let read_concern = match deployment.facts.topology {
        Topology::ReplicaSet => confirmed::concern(deployment, namespace, "majority").await?,
        Topology::Standalone | Topology::Sharded => doc! { "level": "local" },
    };
    Ok(Deployment { read_concern: Some(read_concern), ..deployment.clone() })
}

/// Returns all of `keys` that a document has. A document with a list on the path has all that are in it.
pub(crate) async fn present(
    deployment: &Deployment,
    namespace: &Namespace,
    key: &ParentKey,
    keys: &[RawValue],
) -> Result<Vec<RawValue>> {
    if key.is_id() {
        let found = present_ids(deployment, namespace, &keys.iter().collect()).await?;
        return Ok(found.iter().map(RawValue::from).collect());
    }
    let Some(decoded) = keys.iter().map(RawValue::decoded).collect::<Option<Vec<Bson>>>() else { return Ok(keys.to_vec()) };
    // Any number of documents may have one key.
    let stages =
        vec![doc! { "$match": { &key.field: { "$in": decoded } } }, doc! { "$group": { "_id": format!("${}", key.field) } }];
    let found = Query::aggregate(namespace, stages).hint(key.hint()).retried_patiently(namespace).all_raw(deployment).await?;
    let mut present = Vec::new();
    for group in &found {
        match RawValue::at(group, "_id") {
            Some(value) => present.extend(elements(value)),
            // It matches all the same.
            None => return Ok(keys.to_vec()),
        }
    }
    Ok(present)
}

async fn present_ids(deployment: &Deployment, namespace: &Namespace, ids: &RawList) -> Result<RawList> {
    let filter = raw::written(ids.as_bytes().len(), |filter| filter.document(cstr!("_id"), |id| id.list(cstr!("$in"), ids)))?;
    let one_reply = u32::try_from(ids.len() + 1).unwrap_or(u32::MAX);
    let find = Query::find(namespace, filter).projection(doc! { "_id": 1 }).hint(ParentKey::id().hint()).batch_size(one_reply);
    let found = find.retried_patiently(namespace).all_raw(deployment).await?;
    Ok(found.iter().filter_map(|document| RawRef::at(document, "_id")).collect())
}

/// Returns a deployment that reads what a majority has, where there is one, or else what the primary has.
pub(crate) fn reading(deployment: &Deployment, by_majority: bool) -> Deployment {
    let level = if by_majority && deployment.facts.topology == Topology::ReplicaSet { "majority" } else { "local" };
    Deployment { read_concern: Some(doc! { "level": level }), ..deployment.clone() }
}

/// Returns the values that a query finds a list by; any other value is found by itself.
fn elements(value: RawValue) -> Vec<RawValue> {
    match value.kind() {
        ElementType::Array => value.items().into_iter().flat_map(elements).collect(),
        _ => vec![value],
    }
}

/// Returns bytes that are equal for values that are equal to the server: numbers of any type are compared by their value.
pub(crate) fn compared(id: &RawValue) -> Vec<u8> {
    match id.decoded().as_ref().and_then(float) {
        Some(number) => [&[ElementType::Double as u8], number.to_le_bytes().as_slice()].concat(),
        None => [&[id.kind() as u8], id.as_bytes()].concat(),
    }
}

/// Whether a value names one parent. In a query, null is also a field that is missing, a list matches by its elements, and a
/// regular expression matches texts.
pub(crate) fn names_one(key: &RawValue) -> bool {
    use ElementType::{Array, Null, RegularExpression, Undefined};
    !matches!(key.kind(), Null | Undefined | Array | RegularExpression)
}

/// Parents that are about to be deleted, and the keys by which their children name them.
pub(crate) struct Keyed {
    /// Parents whose key is one value or missing.
    pub ids: RawList,
    /// The keys that name one parent, each with its `_id`.
    pub keys: Vec<(RawValue, RawValue)>,
    /// Condition on documents with one of these keys, or without a key if one of the parents has none.
    pub condition: Document,
}

/// Reads the keys of parents. One with a list or a regular expression on the path is left out, and stays.
///
/// Errors: the parents cannot be read.
pub(crate) async fn keyed(deployment: &Deployment, namespace: &Namespace, key: &ParentKey, ids: &RawList) -> Result<Keyed> {
    let ids: Vec<Bson> = ids.iter().filter_map(|id| RawValue::from(id).decoded()).collect();
    let stages = vec![doc! { "$match": { "_id": { "$in": ids } } }, doc! { "$project": { "key": format!("${}", key.field) } }];
    let hint = Some(doc! { "_id": 1 });
    let found = Query::aggregate(namespace, stages).hint(hint).retried_patiently(namespace).all_raw(deployment).await?;
    let mut keyed = Keyed { ids: RawList::default(), keys: Vec::new(), condition: Document::new() };
    let mut values = Vec::new();
    for parent in &found {
        let (Some(id), of_parent) = (RawRef::at(parent, "_id"), RawValue::at(parent, "key")) else { continue };
        match of_parent {
            None => values.push(Bson::Null),
            Some(of_parent) if matches!(of_parent.kind(), ElementType::Null | ElementType::Undefined) => values.push(Bson::Null),
            Some(of_parent) if names_one(&of_parent) => {
                let Some(value) = of_parent.decoded() else { continue };
                values.push(value);
                keyed.keys.push((of_parent, id.into()));
            }
            Some(_) => continue,
        }
        keyed.ids.push(id);
    }
    // A parent whose key changes meanwhile to one that is not in the journal stays.
    keyed.condition = doc! { "$and": [{ &key.field: { "$in": values } }, no_array(&key.field)] };
    Ok(keyed)
}

/// Returns the condition for children that are not taken for new ones, where their parent was deleted at this time. A range of
/// ObjectIds is only of ObjectIds: another `_id` tells no time.
pub(crate) fn not_after(at: DateTime) -> Document {
    doc! { "_id": { "$not": { "$gte": object_id((at.timestamp_millis() / 1000).saturating_add(TOLERANCE_SECONDS)) } } }
}

/// Returns the first ObjectId that may belong to an upload in flight at this time.
pub(crate) fn oldest_upload(as_of: DateTime) -> ObjectId {
    object_id(as_of.timestamp_millis() / 1000 - ORPHAN_SECONDS)
}

/// Returns the first ObjectId of a second since 1970.
fn object_id(seconds: i64) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&u32::try_from(seconds.max(0)).unwrap_or(u32::MAX).to_be_bytes());
    ObjectId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_no_time_is_not_new() {
        let at = DateTime::from_millis(1_000_000_000_000);
        let first = ObjectId::parse_str("3b9acb2c0000000000000000").unwrap();
        assert_eq!(i64::from(0x3b9a_cb2c), 1_000_000_000 + TOLERANCE_SECONDS);
        assert_eq!(not_after(at), doc! { "_id": { "$not": { "$gte": first } } });
        let day = ObjectId::parse_str("3b9978800000000000000000").unwrap();
        assert_eq!(i64::from(0x3b99_7880), 1_000_000_000 - 24 * 3600);
        assert_eq!(oldest_upload(at), day);
    }

    fn value(value: impl Into<Bson>) -> RawValue {
        RawValue::of(value.into()).unwrap()
    }

    #[test]
    fn parents_are_read_from_a_majority_where_there_is_one_and_that_was_asked_for() {
        use crate::testing::scripted::Script;
        for (topology, by_majority, level) in [
            (Topology::ReplicaSet, true, "majority"),
            (Topology::ReplicaSet, false, "local"),
            (Topology::Standalone, true, "local"),
        ] {
            let mut deployment = Script::new([]).deployment();
            deployment.facts.topology = topology;
            assert_eq!(reading(&deployment, by_majority).read_concern, Some(doc! { "level": level }), "{topology:?}");
        }
    }

    #[test]
    fn a_list_is_found_by_each_of_its_values() {
        assert_eq!(elements(value(5)), [value(5)]);
        assert_eq!(elements(value(vec![Bson::from(5), vec![Bson::from("a")].into()])), [value(5), value("a")]);
        assert_eq!(elements(value(Vec::<Bson>::new())), []);
    }

    #[tokio::test]
    async fn a_parent_with_several_keys_stays_and_one_without_has_no_children() {
        use crate::testing::scripted::Script;
        use crate::testing::scripted::ScriptedReply::{Batch, End};
        let pattern = bson::Regex { pattern: bson::raw::cstr!("x").to_owned(), options: bson::raw::cstr!("").to_owned() };
        let found = [
            doc! { "_id": 1, "key": 10 },
            doc! { "_id": 2 },
            doc! { "_id": 3, "key": Bson::Null },
            doc! { "_id": 4, "key": Bson::Undefined },
            doc! { "_id": 5, "key": [10] },
            doc! { "_id": 6, "key": pattern },
            doc! { "_id": 7, "key": "a" },
        ];
        let script = Script::new([Batch(found.into()), End]);
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        let key = ParentKey { field: "n".into(), index: None };
        let ids: Vec<RawValue> = (1..=7).map(value).collect();
        let keyed = keyed(&script.deployment(), &namespace, &key, &ids.iter().collect()).await.unwrap();
        assert_eq!(keyed.ids, [1, 2, 3, 4, 7].map(value).iter().collect());
        assert_eq!(keyed.keys, [(value(10), value(1)), (value("a"), value(7))]);
        let values: Vec<Bson> = vec![10.into(), Bson::Null, Bson::Null, Bson::Null, "a".into()];
        assert_eq!(keyed.condition, doc! { "$and": [{ "n": { "$in": values } }, no_array("n")] });
    }
}
