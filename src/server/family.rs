//! The journal of the parents whose children are yet to be deleted, and the look for parents that are there.
//!
//! An entry is a document: `_id`, `namespace` (of the parents), `rule`, `run`, `at` (the server's time), `field` and `parents`, a list of the values
//! that the parents have in that field: their keys. Where these are not their `_id`s, `ids` has those, in the same order.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::raw::{RawBson, cstr};
use bson::spec::ElementType;
use bson::{Bson, DateTime, Document, RawArrayBuf, RawDocumentBuf, doc};
use tokio::time::sleep;

use super::delete::{self, DeleteError};
use super::error::{Result, ServerError};
use super::find::Query;
use super::grant::DeleteGrant;
use super::restriction::Restriction;
use super::retry::{RETRY_WAITS, Retries};
use super::transport::{Patience, ServerCommand};
use super::{Deployment, privileges, recognise};
use crate::facts::Topology;
use crate::plan::family::no_array;
use crate::plan::{ParentKey, Selection, SweepRule};
use crate::policy::namespace::Namespace;
use crate::values::float;
use crate::values::raw::{self, RawValue};

/// Difference between the clocks of the server and of a program that creates children for which a child is not taken for a new one.
pub(crate) const TOLERANCE_SECONDS: i64 = 300;

/// Age of children without a parent at which none is part of an upload in flight.
pub(crate) const ORPHAN_SECONDS: i64 = 24 * 3600;

/// The journal as far as it concerns the parents of one rule.
pub(crate) struct Journal {
    deployment: Deployment,
    /// The entries for these parents.
    selection: Selection,
    parents: Namespace,
    rule: String,
}

/// The parents of a batch, whose children are yet to be deleted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    id: RawValue,
    /// The server's time before the parents were deleted.
    pub at: DateTime,
    /// Path of their keys.
    pub field: String,
    /// Their keys.
    pub parents: Vec<RawValue>,
    /// Their `_id`s in the same order, unless these are the keys.
    pub ids: Vec<RawValue>,
}

impl Entry {
    /// Returns the keys whose parents are all there, where those that are there are given by their `_id`s: another key by now does not make them
    /// parents that are gone.
    pub(crate) fn keys_of_living(&self, living: &[RawValue]) -> Vec<RawValue> {
        let living: HashSet<Vec<u8>> = living.iter().map(compared).collect();
        let of_parents = || self.parents.iter().zip(&self.ids).map(|(key, id)| (key, living.contains(&compared(id))));
        let of_gone: HashSet<Vec<u8>> = of_parents().filter(|(_, is_there)| !is_there).map(|(key, _)| compared(key)).collect();
        let all_there = of_parents().filter(|(key, is_there)| *is_there && !of_gone.contains(&compared(key)));
        all_there.map(|(key, _)| key.clone()).collect()
    }
}

impl Journal {
    pub(crate) fn new(deployment: &Deployment, rule: &SweepRule, journal: &Namespace) -> Self {
        let selection = Selection {
            predicate: doc! { "namespace": rule.namespace.to_string() },
            filter: None,
            collation: None,
            variables: Vec::new(),
            namespace: journal.clone(),
            uuid: None,
            index: None,
            holds: None,
            ..rule.selection.clone()
        };
        Self { deployment: deployment.clone(), selection, parents: rule.namespace.clone(), rule: rule.name.clone() }
    }

    /// Enters parents that are about to be deleted, by the keys in a field, each with its `_id` where that is not the key; they were there at a time of
    /// the server's clock. Once this returns, a majority has the entry.
    ///
    /// Errors: the reason why the entry may not be there.
    pub(crate) async fn enter(
        &self,
        field: &str,
        at: DateTime,
        (parents, ids): (Vec<RawValue>, Vec<RawValue>),
        _grant: &DeleteGrant,
    ) -> std::result::Result<Entry, String> {
        let entered = async {
            let entry = Entry { id: RawValue::of(ObjectId::new())?, at, field: field.to_owned(), parents, ids };
            let mut retries = Retries::patient();
            self.deployment.create(&self.insert(&entry)?, |cause| retries.wait(cause)).await?;
            Ok(entry)
        };
        let namespace = &self.selection.namespace;
        entered.await.map_err(|cause: ServerError| {
            let why = privileges::explain(&cause, namespace, &privileges::NEEDED_FOR_JOURNAL);
            format!("writing to the journal `{namespace}`: {why}")
        })
    }

    fn insert(&self, entry: &Entry) -> Result<ServerCommand> {
        let text = |text: &str| RawValue::of(text);
        let ids = RawValue::list(&entry.ids)?;
        let ids = (entry.field != ParentKey::ID).then_some(("ids", &ids));
        let fields = [
            ("_id", &entry.id),
            ("namespace", &text(&self.parents.to_string())?),
            ("rule", &text(&self.rule)?),
            ("run", &text(&self.deployment.comment)?),
            ("at", &RawValue::of(entry.at)?),
            ("field", &text(&entry.field)?),
            ("parents", &RawValue::list(&entry.parents)?),
        ];
        let mut documents = RawArrayBuf::new();
        documents.push(RawBson::Document(raw::document(fields.into_iter().chain(ids))?));
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("insert"), self.selection.namespace.collection.as_str());
        command.append(cstr!("documents"), RawBson::Array(documents));
        // An entry is worthless if a fail-over can roll it back.
        command.append(cstr!("writeConcern"), RawBson::Document(RawDocumentBuf::try_from(&majority_write())?));
        let patience = Patience::Limit(self.deployment.command_timeout);
        Ok(ServerCommand::new(&self.selection.namespace.database, command, patience))
    }

    /// Returns the entry that follows another one, or the first, without those of the run's other rules, which are at work on them.
    ///
    /// Errors: the reason why the journal cannot be read.
    pub(crate) async fn next(&self, last: Option<&Entry>) -> std::result::Result<Option<Entry>, String> {
        let namespace = &self.selection.namespace;
        let unread = |cause: &dyn std::fmt::Display| format!("reading the journal `{namespace}`: {cause}");
        let after = last.map_or_else(Document::new, |last| doc! { "_id": { "$gt": last.id.decoded() } });
        let of_other_rules = doc! { "run": &self.deployment.comment, "rule": { "$ne": &self.rule } };
        let find = Query::find(namespace, doc! { "$and": [&self.selection.predicate, after, { "$nor": [of_other_rules] }] });
        let find = find.sort(doc! { "_id": 1 }).limit(1).retried_patiently(&self.parents);
        let found = find
            .first_batch(&self.deployment)
            .await
            .map_err(|cause| unread(&privileges::explain(&cause, namespace, &privileges::NEEDED_FOR_JOURNAL)))?;
        let Some(found) = found.first() else { return Ok(None) };
        let (id, parents) = (RawValue::at(found, "_id"), RawValue::at(found, "parents"));
        let (parents, ids) = (parents.map(|list| list.items()), RawValue::at(found, "ids").map(|list| list.items()));
        match (id, found.get_datetime("at"), found.get_str("field"), parents, ids) {
            (Some(id), Ok(at), Ok(field @ ParentKey::ID), Some(parents), None) => {
                Ok(Some(Entry { id, at, field: field.to_owned(), parents, ids: Vec::new() }))
            }
            (Some(id), Ok(at), Ok(field), Some(parents), Some(ids)) if ids.len() == parents.len() => {
                Ok(Some(Entry { id, at, field: field.to_owned(), parents, ids }))
            }
            _ => Err(unread(&"a document in it is not one of sweeper's; nothing was deleted")),
        }
    }

    /// Removes an entry.
    ///
    /// Errors: the reason why it may still be there.
    pub(crate) async fn remove(&self, entry: &Entry, grant: &DeleteGrant) -> std::result::Result<(), String> {
        let of_entry = Restriction::Ids(vec![entry.id.clone()]);
        let mut waits = RETRY_WAITS.iter();
        loop {
            let reply = delete::delete(&self.deployment, &self.selection, &of_entry, &majority_write(), None, grant).await;
            match (reply.error, waits.next()) {
                (None, _) => return Ok(()),
                (Some(DeleteError { retryable: true, .. }), Some(wait)) => sleep(*wait).await,
                (Some(error), _) => {
                    return Err(format!("removing an entry from the journal `{}`: {}", self.selection.namespace, error.message));
                }
            }
        }
    }
}

/// Whether the journal names parents of a rule, whose children are yet to be deleted.
pub(crate) async fn has_entry(deployment: &Deployment, rule: &SweepRule, journal: &Namespace) -> Result<bool> {
    let of_parents = doc! { "namespace": rule.namespace.to_string() };
    let found = Query::find(journal, of_parents).projection(doc! { "_id": 1 }).limit(1).first_batch(deployment).await?;
    Ok(!found.is_empty())
}

fn majority_write() -> Document {
    doc! { "w": "majority" }
}

/// Reads the server's clock.
///
/// Errors: no answer, or an answer without the time.
pub(crate) async fn clock(deployment: &Deployment) -> Result<DateTime> {
    recognise::local_time(&recognise::hello(deployment.transport.as_ref(), deployment.patience()).await?)
}

/// Returns those of the keys that a document of the primary has: by its own state at this moment, or by what a majority has. On a server without
/// a replica set the two are the same. A document with a list on the path has all that are in it.
pub(crate) async fn present(
    deployment: &Deployment,
    namespace: &Namespace,
    key: &ParentKey,
    keys: &[RawValue],
    by_majority: bool,
) -> Result<Vec<RawValue>> {
    let deployment = reading(deployment, by_majority);
    if key.is_id() {
        let of_list = RawValue::from(raw::document([("$in", &RawValue::list(keys)?)])?);
        let find = Query::find(namespace, raw::document([("_id", &of_list)])?).projection(doc! { "_id": 1 });
        let one_reply = u32::try_from(keys.len() + 1).unwrap_or(u32::MAX);
        let find = find.hint(key.hint()).batch_size(one_reply).retried_patiently(namespace);
        let found = find.all_raw(&deployment).await?;
        return Ok(found.iter().filter_map(|document| RawValue::at(document, "_id")).collect());
    }
    let Some(decoded) = keys.iter().map(RawValue::decoded).collect::<Option<Vec<Bson>>>() else { return Ok(keys.to_vec()) };
    // Any number of documents may have one key.
    let stages =
        vec![doc! { "$match": { &key.field: { "$in": decoded } } }, doc! { "$group": { "_id": format!("${}", key.field) } }];
    let found = Query::aggregate(namespace, stages).hint(key.hint()).retried_patiently(namespace).all_raw(&deployment).await?;
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

/// Returns a deployment that reads what a majority has, where there is one, or else what the primary has.
pub(super) fn reading(deployment: &Deployment, by_majority: bool) -> Deployment {
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

/// Whether two lists of keys have the same keys.
pub(crate) fn are_same(one: &[RawValue], other: &[RawValue]) -> bool {
    let [one, other] = [one, other].map(|keys| keys.iter().map(compared).collect::<HashSet<_>>());
    one == other
}

/// Returns bytes that are equal for values that are equal to the server: numbers of any type are compared by their value.
pub(super) fn compared(id: &RawValue) -> Vec<u8> {
    match id.decoded().as_ref().and_then(float) {
        Some(number) => [&[ElementType::Double as u8], number.to_le_bytes().as_slice()].concat(),
        None => [&[id.kind() as u8], id.as_bytes()].concat(),
    }
}

/// Whether a value names one parent. In a query, null is also a field that is missing, a list matches by its elements, and a regular expression
/// matches texts.
pub(crate) fn names_one(key: &RawValue) -> bool {
    use ElementType::{Array, Null, RegularExpression, Undefined};
    !matches!(key.kind(), Null | Undefined | Array | RegularExpression)
}

/// Parents that are about to be deleted, and the keys by which their children name them.
pub(crate) struct Keyed {
    /// Parents whose key is one value or missing.
    pub ids: Vec<RawValue>,
    /// The keys that name one parent, each with its `_id`.
    pub keys: Vec<(RawValue, RawValue)>,
    /// Condition on documents with one of these keys, or without a key if one of the parents has none.
    pub condition: Document,
}

/// Reads the keys of parents. One with a list or a regular expression on the path is left out, and stays.
///
/// Errors: the parents cannot be read.
pub(crate) async fn keyed(deployment: &Deployment, namespace: &Namespace, key: &ParentKey, ids: &[RawValue]) -> Result<Keyed> {
    let ids: Vec<Bson> = ids.iter().filter_map(RawValue::decoded).collect();
    let stages = vec![doc! { "$match": { "_id": { "$in": ids } } }, doc! { "$project": { "key": format!("${}", key.field) } }];
    let hint = Some(doc! { "_id": 1 });
    let found = Query::aggregate(namespace, stages).hint(hint).retried_patiently(namespace).all_raw(deployment).await?;
    let mut keyed = Keyed { ids: Vec::new(), keys: Vec::new(), condition: Document::new() };
    let mut values = Vec::new();
    for parent in &found {
        let (Some(id), of_parent) = (RawValue::at(parent, "_id"), RawValue::at(parent, "key")) else { continue };
        match of_parent {
            None => values.push(Bson::Null),
            Some(of_parent) if matches!(of_parent.kind(), ElementType::Null | ElementType::Undefined) => values.push(Bson::Null),
            Some(of_parent) if names_one(&of_parent) => {
                let Some(value) = of_parent.decoded() else { continue };
                values.push(value);
                keyed.keys.push((of_parent, id.clone()));
            }
            Some(_) => continue,
        }
        keyed.ids.push(id);
    }
    // A parent whose key changes meanwhile to one that is not in the journal stays.
    keyed.condition = doc! { "$and": [{ &key.field: { "$in": values } }, no_array(&key.field)] };
    Ok(keyed)
}

/// Returns the condition for children that are not taken for new ones, where their parent was deleted at this time. A range of ObjectIds is only
/// of ObjectIds: another `_id` tells no time.
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
    fn a_key_is_that_of_the_living_only_if_none_of_its_parents_is_gone() {
        let values = |numbers: &[f64]| numbers.iter().map(|number| RawValue::of(*number).unwrap()).collect::<Vec<_>>();
        let id = RawValue::of(0).unwrap();
        let (parents, ids) = (values(&[1.0, 2.0, 2.0, 3.0, 4.0]), values(&[10.0, 20.0, 21.0, 30.0, 40.0]));
        let entry = Entry { id, at: DateTime::MIN, field: "n".into(), parents, ids };
        // Numbers of all types are equal.
        let living = [&values(&[10.0, 21.0])[..], &[RawValue::of(30).unwrap()]].concat();
        assert_eq!(entry.keys_of_living(&living), values(&[1.0, 3.0]));
        assert_eq!(entry.keys_of_living(&[]), []);
    }

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
}
