//! The journal of the parents whose children are yet to be deleted.
//!
//! An entry is a document with `_id`, `namespace` (of the parents), `rule`, `run`, `at` (the server's time), `field` and
//! `parents`. The list `parents` has the keys of the parents, which are their values in that field. Where the keys are not the
//! `_id`s, `ids` has the `_id`s, in the same order. `children` are the collections whose children are yet to be deleted, each
//! with the field that names the parent. The entry is removed with the last of them.
//!
//! Only the run that holds the lease on the namespace of the parents, in the same collection, uses its entries. A delete of
//! parents begins under that lease and ends with it ([`crate::shell::lock::lease`]): once another run holds it, no delete that an
//! entry was made for can arrive any more.

use std::collections::{BTreeSet, HashSet};

use bson::oid::ObjectId;
use bson::raw::{RawBson, cstr};
use bson::spec::ElementType;
use bson::{Bson, DateTime, Document, RawArrayBuf, RawDocumentBuf, doc};

use crate::base::values::raw::{self, RawValue};
use crate::core::plan::{ChildRule, ParentKey, SweepRule};
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::delete::grant::DeleteGrant;
use crate::shell::server::look::parents::compared;
use crate::shell::server::look::privileges;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::retry::Retries;
use crate::shell::server::wire::transport::{Patience, ServerCommand};

/// The journal as far as it concerns the parents of one rule.
pub(crate) struct Journal {
    deployment: Deployment,
    namespace: Namespace,
    parents: Namespace,
    rule: String,
    run_id: String,
}

/// The parents of a batch, whose children are yet to be deleted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JournalEntry {
    id: RawValue,
    /// The server's time before the parents were deleted.
    pub at: DateTime,
    /// Path of the keys in the parents.
    pub field: String,
    /// Keys of the parents.
    pub parents: Vec<RawValue>,
    /// `_id`s of the parents in the same order, unless these are the keys.
    pub ids: Vec<RawValue>,
    /// The collections whose children are yet to be deleted.
    pub children: Vec<ChildPlace>,
}

/// A collection of children, and the field in it that names the parent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildPlace {
    pub namespace: String,
    pub field: String,
}

impl ChildPlace {
    /// Returns the place of a rule's children.
    pub(crate) fn of(child: &ChildRule) -> Self {
        Self { namespace: child.rule.selection.namespace.to_string(), field: child.field.clone() }
    }

    fn read(place: &Bson) -> Option<Self> {
        let place = place.as_document()?;
        let text = |key| place.get_str(key).ok().map(str::to_owned);
        Some(Self { namespace: text("namespace")?, field: text("field")? })
    }

    fn document(&self) -> Document {
        doc! { "namespace": &self.namespace, "field": &self.field }
    }
}

impl JournalEntry {
    /// Reads an entry; `None` if it is not one.
    fn read(found: &RawDocumentBuf) -> Option<Self> {
        let list = |key| RawValue::at(found, key).filter(|list| list.kind() == ElementType::Array).map(|list| list.items());
        let field = found.get_str("field").ok()?.to_owned();
        let parents = list("parents")?;
        let ids = list("ids").unwrap_or_default();
        let has_ids = field != ParentKey::ID;
        let children = Document::try_from(&**found).ok()?;
        let children = children.get_array("children").ok()?.iter().map(ChildPlace::read).collect::<Option<_>>()?;
        let is_whole = ids.len() == if has_ids { parents.len() } else { 0 };
        is_whole.then_some(())?;
        Some(Self { id: RawValue::at(found, "_id")?, at: found.get_datetime("at").ok()?, field, parents, ids, children })
    }

    /// Returns the keys whose parents are all there, where those that are there are given by their `_id`s: another key by now
    /// does not make them parents that are gone.
    pub(crate) fn keys_of_living(&self, living: &[RawValue]) -> Vec<RawValue> {
        let living: HashSet<Vec<u8>> = living.iter().map(compared).collect();
        let of_parents = || self.parents.iter().zip(&self.ids).map(|(key, id)| (key, living.contains(&compared(id))));
        let of_gone: HashSet<Vec<u8>> = of_parents().filter(|(_, is_there)| !is_there).map(|(key, _)| compared(key)).collect();
        let all_there = of_parents().filter(|(key, is_there)| *is_there && !of_gone.contains(&compared(key)));
        all_there.map(|(key, _)| key.clone()).collect()
    }
}

impl Journal {
    pub(crate) fn new(deployment: &Deployment, rule: &SweepRule, journal: &Namespace, run_id: &str) -> Self {
        let (deployment, namespace, run_id) = (deployment.clone(), journal.clone(), run_id.to_owned());
        Self { deployment, namespace, parents: rule.namespace.clone(), rule: rule.name.clone(), run_id }
    }

    /// Enters parents that are about to be deleted, by the keys in a field, and the places of the children that name them so.
    /// Each has its `_id` where that is not the key. They were there at a time of the server's clock. Once this returns, a
    /// majority has the entry.
    ///
    /// Errors: the reason why the entry may not be there.
    pub(crate) async fn enter(
        &self,
        field: &str,
        at: DateTime,
        (parents, ids): (Vec<RawValue>, Vec<RawValue>),
        children: Vec<ChildPlace>,
        _grant: &DeleteGrant,
    ) -> std::result::Result<JournalEntry, String> {
        let entered = async {
            let entry = JournalEntry { id: RawValue::of(ObjectId::new())?, at, field: field.to_owned(), parents, ids, children };
            let mut retries = Retries::patient();
            self.deployment.create(&self.insert(&entry)?, |cause| retries.wait(cause)).await?;
            Ok(entry)
        };
        entered.await.map_err(|cause| self.explained("writing to", &cause))
    }

    /// Returns the reason why something could not be done with the journal.
    fn explained(&self, what: &str, cause: &ServerError) -> String {
        let why = privileges::explain(cause, &self.namespace, &privileges::NEEDED_FOR_JOURNAL);
        format!("{what} the journal `{}`: {why}", self.namespace)
    }

    fn insert(&self, entry: &JournalEntry) -> Result<ServerCommand> {
        let text = |text: &str| RawValue::of(text);
        let ids = RawValue::list(&entry.ids)?;
        let ids = (entry.field != ParentKey::ID).then_some(("ids", &ids));
        let fields = [
            ("_id", &entry.id),
            ("namespace", &text(&self.parents.to_string())?),
            ("rule", &text(&self.rule)?),
            ("run", &text(&self.run_id)?),
            ("at", &RawValue::of(entry.at)?),
            ("field", &text(&entry.field)?),
            ("parents", &RawValue::list(&entry.parents)?),
            ("children", &RawValue::of(Bson::Array(entry.children.iter().map(|place| place.document().into()).collect()))?),
        ];
        let mut documents = RawArrayBuf::new();
        documents.push(RawBson::Document(raw::document(fields.into_iter().chain(ids))?));
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("insert"), self.namespace.collection.as_str());
        command.append(cstr!("documents"), RawBson::Array(documents));
        // An entry is worthless if a fail-over can roll it back.
        command.append(cstr!("writeConcern"), RawBson::Document(RawDocumentBuf::try_from(&majority_write())?));
        if let Some(Bson::String(comment)) = self.deployment.comment() {
            command.append(cstr!("comment"), comment);
        }
        Ok(ServerCommand::new(&self.namespace.database, command, self.patience()))
    }

    /// Returns the entry of an earlier run that follows another one, or the first. The entries of this run are left to the rule
    /// that made them.
    ///
    /// Errors: the reason why the journal cannot be read.
    pub(crate) async fn next(&self, last: Option<&JournalEntry>) -> std::result::Result<Option<JournalEntry>, String> {
        let after = last.map_or_else(Document::new, |last| doc! { "_id": { "$gt": last.id.decoded() } });
        let of_earlier_runs = doc! { "namespace": self.parents.to_string(), "run": { "$ne": &self.run_id } };
        let find = Query::find(&self.namespace, doc! { "$and": [of_earlier_runs, after] });
        let find = find.sort(doc! { "_id": 1 }).limit(1).retried_patiently(&self.parents);
        let found = find.first_batch(&self.deployment).await.map_err(|cause| self.explained("reading", &cause))?;
        let Some(found) = found.first() else { return Ok(None) };
        let unread = || {
            format!("reading the journal `{}`: it has a document that sweeper did not write; nothing was deleted", self.namespace)
        };
        JournalEntry::read(found).map(Some).ok_or_else(unread)
    }

    /// Takes the places that are done out of an entry, and removes it with the last one.
    ///
    /// Errors: the reason why it may still be there.
    pub(crate) async fn done(
        &self,
        entry: &JournalEntry,
        done: &[ChildPlace],
        _grant: &DeleteGrant,
    ) -> std::result::Result<(), String> {
        let is_last = entry.children.iter().all(|place| done.contains(place));
        let written = async {
            let collection = self.namespace.collection.as_str();
            let it = doc! { "_id": entry.id.decoded(), "namespace": self.parents.to_string() };
            let body = if is_last {
                doc! { "delete": collection, "deletes": [{ "q": it, "limit": 1 }], "writeConcern": majority_write() }
            } else {
                let places: Vec<Document> = done.iter().map(ChildPlace::document).collect();
                let pulled = doc! { "q": it, "u": { "$pullAll": { "children": places } } };
                doc! { "update": collection, "updates": [pulled], "writeConcern": majority_write() }
            };
            let command = ServerCommand::of(&self.namespace.database, &self.deployment.marked(body), self.patience())?;
            let mut retries = Retries::patient();
            self.deployment.write(&command, |cause| retries.wait(cause)).await.map(drop)
        };
        written.await.map_err(|cause| self.explained("removing an entry from", &cause))
    }

    fn patience(&self) -> Patience {
        Patience::Limit(self.deployment.command_timeout)
    }
}

/// Children that an entry of the journal names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Named {
    /// Namespace of the parents.
    pub parents: String,
    /// Path of the keys of the parents.
    pub key: String,
    pub place: ChildPlace,
}

/// Returns all children that the journal names.
///
/// Errors: the journal cannot be read.
pub(crate) async fn named(deployment: &Deployment, journal: &Namespace) -> Result<BTreeSet<Named>> {
    let entries = Query::find(journal, doc! { "namespace": { "$exists": true } });
    let entries = entries.projection(doc! { "namespace": 1, "field": 1, "children": 1 });
    let mut named = BTreeSet::new();
    for entry in entries.all(deployment).await? {
        let (Ok(parents), Ok(key)) = (entry.get_str("namespace"), entry.get_str("field")) else { continue };
        let places = entry.get_array("children").into_iter().flatten().filter_map(ChildPlace::read);
        named.extend(places.map(|place| Named { parents: parents.to_owned(), key: key.to_owned(), place }));
    }
    Ok(named)
}

/// Tells whether the journal names parents of a rule whose children are yet to be deleted.
pub(crate) async fn has_entry(deployment: &Deployment, rule: &SweepRule, journal: &Namespace) -> Result<bool> {
    let of_parents = doc! { "namespace": rule.namespace.to_string() };
    let found = Query::find(journal, of_parents).projection(doc! { "_id": 1 }).limit(1).first_batch(deployment).await?;
    Ok(!found.is_empty())
}

fn majority_write() -> Document {
    doc! { "w": "majority" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_that_of_the_living_only_if_none_of_its_parents_is_gone() {
        let values = |numbers: &[f64]| numbers.iter().map(|number| RawValue::of(*number).unwrap()).collect::<Vec<_>>();
        let id = RawValue::of(0).unwrap();
        let (parents, ids) = (values(&[1.0, 2.0, 2.0, 3.0, 4.0]), values(&[10.0, 20.0, 21.0, 30.0, 40.0]));
        let entry = JournalEntry { id, at: DateTime::MIN, field: "n".into(), parents, ids, children: Vec::new() };
        // Numbers of all types are equal.
        let living = [&values(&[10.0, 21.0])[..], &[RawValue::of(30).unwrap()]].concat();
        assert_eq!(entry.keys_of_living(&living), values(&[1.0, 3.0]));
        assert_eq!(entry.keys_of_living(&[]), []);
    }

    #[tokio::test]
    async fn the_journal_names_parents_of_a_rule_or_not() {
        use crate::testing::scripted::{Script, ScriptedReply};
        for (found, expected) in [(vec![doc! { "_id": 1 }], true), (vec![], false)] {
            let script = Script::new([ScriptedReply::Batch(found)]);
            let rule = crate::testing::made_up::with_children();
            let journal = rule.family.as_ref().unwrap().journal.clone();
            assert_eq!(has_entry(&script.deployment(), &rule, &journal).await.unwrap(), expected);
            assert_eq!(script.sent()[0].get_document("filter").unwrap(), &doc! { "namespace": "app.c" });
        }
    }

    #[tokio::test]
    async fn a_journal_that_cannot_be_read_or_written_is_named_with_the_reason() {
        use crate::shell::server::delete::grant::Consent;
        use crate::testing::scripted::{Script, ScriptedReply};
        let rule = crate::testing::made_up::with_children();
        let namespace = rule.family.as_ref().unwrap().journal.clone();
        let trouble = || ScriptedReply::Error(ServerError::other("trouble"));
        let script = Script::new([trouble(), trouble(), trouble()]);
        let journal = Journal::new(&script.deployment(), &rule, &namespace, "run");
        let grant = DeleteGrant::new(false, Consent::NotAsked).unwrap();
        let id = || vec![RawValue::of(1).unwrap()];
        let children = vec![ChildPlace::read(&doc! { "namespace": "app.d", "field": "p" }.into()).unwrap()];
        let entry = JournalEntry {
            id: id().remove(0),
            at: DateTime::MIN,
            field: "_id".into(),
            parents: id(),
            ids: Vec::new(),
            children: children.clone(),
        };
        let failed = [
            journal.next(None).await.unwrap_err(),
            journal.enter("_id", DateTime::MIN, (id(), Vec::new()), children.clone(), &grant).await.unwrap_err(),
            journal.done(&entry, &children, &grant).await.unwrap_err(),
        ];
        let expected =
            ["reading", "writing to", "removing an entry from"].map(|what| format!("{what} the journal `app.j`: trouble"));
        assert_eq!(failed, expected);
    }

    #[test]
    fn an_entry_names_its_parents_its_run_and_what_is_yet_to_be_done_and_is_written_to_a_majority() {
        use crate::testing::scripted::Script;
        let rule = crate::testing::made_up::with_children();
        let place = || ChildPlace::read(&doc! { "namespace": "app.d", "field": "p" }.into()).unwrap();
        let entry = |field: &str| JournalEntry {
            id: RawValue::of(1).unwrap(),
            at: DateTime::MIN,
            field: field.into(),
            parents: vec![RawValue::of(10).unwrap()],
            ids: vec![RawValue::of(2).unwrap()],
            children: vec![place()],
        };
        let namespace = rule.family.as_ref().unwrap().journal.clone();
        let journal = Journal::new(&Script::new([]).deployment(), &rule, &namespace, "run");
        for (field, ids) in [("_id", None), ("n", Some(vec![Bson::from(2)]))] {
            let command = Document::try_from(&*journal.insert(&entry(field)).unwrap().body).unwrap();
            assert_eq!(command.get_document("writeConcern").unwrap(), &doc! { "w": "majority" });
            let document = command.get_array("documents").unwrap()[0].as_document().unwrap();
            assert_eq!(document.get_array("ids").ok(), ids.as_ref(), "{field}");
            assert_eq!(document.get_array("parents").unwrap(), &vec![Bson::from(10)]);
            assert_eq!(document.get_array("children").unwrap(), &vec![Bson::from(place().document())]);
        }
    }
}
