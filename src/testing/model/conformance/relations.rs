//! Calls of the program's own code about what belongs together: children of parents with their journal, and holds.

use std::fmt;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use fastrand::Rng;

use super::Server;
use super::outcome::{Outcome, shown};
use super::values::{self, NOW, Shape, likely_id};
use super::{one_of, rules};
use crate::base::values::raw::{self, RawList, RawRef, RawValue};
use crate::core::plan::holds::HeldBack;
use crate::core::plan::index::IndexChoice;
use crate::core::plan::keys::no_array;
use crate::core::plan::periods::KeptKeys;
use crate::core::plan::{ChildRule, Family, ParentKey, Selection, SweepRule};
use crate::core::policy::namespace::Namespace;
use crate::shell::server::delete;
use crate::shell::server::delete::grant::{Consent, DeleteGrant};
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::look::children;
use crate::shell::server::look::parents::{self, Keyed};
use crate::shell::server::own::journal::{self, ChildPlace, Journal};
use crate::shell::server::watch::holds;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::transport::{Patience, ServerCommand};
use crate::testing::made_up::planned;

/// A call, with everything that it is made with.
pub(super) struct Call {
    namespace: Namespace,
    rule: SweepRule,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Writes children, some of which are there already.
    Add(Vec<Document>),
    Index(&'static str),
    Present {
        key: &'static str,
        keys: Vec<Bson>,
    },
    Keyed {
        key: &'static str,
        ids: Vec<Bson>,
    },
    /// The way of an entry through the journal.
    Journal(Vec<Bson>),
    /// The children of parents, found and deleted.
    Children {
        field: &'static str,
        parents: Vec<Bson>,
        living: Vec<Bson>,
    },
    CountOfExpired(&'static str),
    Orphans(&'static str),
    AllBefore(&'static str, Vec<Bson>),
    /// Places a hold, or changes one.
    Hold(Document),
    ReadHolds,
    DeleteUnheld(Vec<Bson>),
    CountHeld(Vec<Bson>),
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} by {}", self.what, shown(&self.rule.selection.predicate.clone().into()))
    }
}

const FIELDS: [&str; 3] = ["p", "q.r", "q"];

fn ids(random: &mut Rng) -> Vec<Bson> {
    (0..random.u8(1..12)).map(|_| likely_id(random)).collect()
}

fn raw(values: &[Bson]) -> Vec<RawValue> {
    values.iter().map(|value| RawValue::of(value.clone()).expect("a value")).collect()
}

/// Returns a child, whose parent may be named in ways that name none.
fn child(random: &mut Rng) -> Document {
    let id = match random.u8(0..4) {
        0 => Bson::Int32(random.i32(0..30)),
        _ => {
            let mut bytes = [0; 12];
            let seconds = NOW / 1000 + one_of(random, &[-100_000, -86_400, 0, 299, 300, 301, 1000]);
            bytes[..4].copy_from_slice(&u32::try_from(seconds).expect("a time before 2106").to_be_bytes());
            bytes[11] = random.u8(0..8);
            ObjectId::from_bytes(bytes).into()
        }
    };
    let parent = |random: &mut Rng| match random.u8(0..8) {
        0 => Bson::Array(vec![likely_id(random), likely_id(random)]),
        1 => Bson::Null,
        2 => Bson::Double(f64::from(random.u8(0..25))),
        _ => likely_id(random),
    };
    let mut child = doc! { "_id": id, "p": parent(random) };
    match random.u8(0..5) {
        0 => {}
        1 => drop(child.insert("q", vec![doc! { "r": parent(random) }])),
        _ => drop(child.insert("q", doc! { "r": parent(random) })),
    }
    child
}

fn hold(random: &mut Rng) -> Document {
    let key = match random.u8(0..12) {
        0 => Bson::Null,
        1 => values::value(random, 1),
        2 => values::number(random),
        3 => doc! { "a": random.i32(0..3) }.into(),
        _ => (*one_of(random, &["x", "y", "z"])).into(),
    };
    doc! { "_id": random.i32(0..6), "kind": key, "active": random.u8(0..4) > 0 }
}

impl Call {
    pub(super) fn any(random: &mut Rng, namespace: &Namespace, shape: Shape, rule: SweepRule) -> Self {
        let field = *one_of(random, &FIELDS);
        let key = *one_of(random, &["_id", "kind", "a.b", "at"]);
        let what = match random.u8(0..20) {
            0..5 => What::Add((0..random.u8(1..20)).map(|_| child(random)).collect()),
            5 => What::Index(field),
            6..8 => What::Present { key, keys: ids(random).into_iter().chain([shape.date(random), "x".into()]).collect() },
            8..10 => What::Keyed { key, ids: ids(random) },
            10 => What::Journal(ids(random)),
            11..14 => {
                What::Children { field, parents: ids(random), living: if random.bool() { ids(random) } else { Vec::new() } }
            }
            14 => What::CountOfExpired(field),
            15 => match random.bool() {
                true => What::Orphans(field),
                false => What::AllBefore(field, ids(random)),
            },
            16 => What::Hold(hold(random)),
            17 => What::ReadHolds,
            18 => What::DeleteUnheld(ids(random)),
            _ => What::CountHeld((0..random.u8(0..5)).map(|_| values::value(random, 1)).collect()),
        };
        Self { namespace: namespace.clone(), rule, what }
    }

    pub(super) async fn run(&self, deployment: &Server) -> Outcome {
        let key = |field: &str| ParentKey { field: field.to_owned(), index: None };
        match &self.what {
            What::Add(children) => self.insert(deployment, "children", children).await,
            What::Index(field) => {
                let index = doc! { "key": { *field: 1 }, "name": *field };
                let body = doc! { "createIndexes": &self.aside("children").collection, "indexes": [index] };
                self.send(deployment, &body).await
            }
            What::Present { key: field, keys } => {
                let by_majority = keys.len() % 2 == 0;
                let deployment = parents::reading(deployment, by_majority);
                let found = parents::present(&deployment, &self.namespace, &key(field), &raw(keys)).await;
                in_any_order(found)
            }
            What::Keyed { key: field, ids } => {
                let found = parents::keyed(deployment, &self.namespace, &key(field), &raw(ids).iter().collect()).await;
                Outcome::of(found.map(|Keyed { ids, keys, condition }| (ids, keys, shown(&condition.into()))))
            }
            What::Journal(parents) => self.journal(deployment, parents).await,
            What::Children { field, parents, living } => self.children(deployment, field, parents, living).await,
            What::CountOfExpired(field) => {
                let family = self.family(deployment, field).await;
                Outcome::of(children::of_expired(deployment, &self.rule, &family).await)
            }
            What::Orphans(field) => {
                let family = self.family(deployment, field).await;
                let before = parents::oldest_upload(DateTime::from_millis(NOW));
                let found = children::orphans(deployment, &self.rule, &family.children[0], Some(before)).await;
                Outcome::of(found.map(|found| (found.count, found.old, in_order(&found.parents))))
            }
            What::AllBefore(field, parents) => {
                let family = self.family(deployment, field).await;
                let before = parents::oldest_upload(DateTime::from_millis(NOW));
                let found = children::all_before(deployment, &family.children[0], &raw(parents), before).await;
                Outcome::of(found.map(|found| {
                    let (parents, numbers): (Vec<RawValue>, Vec<u64>) = found.into_iter().unzip();
                    (in_order(&parents), numbers.iter().sum::<u64>())
                }))
            }
            What::Hold(hold) => {
                let replaced = doc! { "q": { "_id": hold.get_i32("_id").expect("a number") }, "u": hold, "upsert": true };
                self.send(deployment, &doc! { "update": self.aside("holds").collection, "updates": [replaced] }).await
            }
            What::ReadHolds => Outcome::of(holds::read(deployment, &self.held_back()).await.map(|read| read.keys)),
            What::DeleteUnheld(ids) => match holds::read(deployment, &self.held_back()).await {
                Ok(read) => {
                    let held_back = self.held_back().with(&read.keys);
                    let selection = Selection { holds: Some(held_back), ..self.rule.selection.clone() };
                    let ids = raw(ids).iter().collect();
                    Self::delete(deployment, &selection, Restriction::of_ids(RawDocumentBuf::new(), ids)).await
                }
                Err(why) => Outcome::of(why),
            },
            What::CountHeld(keys) => {
                let keys = raw(keys).into_iter().filter(|key| crate::core::plan::keys::malformed(Some(key)).is_none()).collect();
                let held_back = self.held_back().with(&Arc::new(KeptKeys::of(keys).expect("keys")));
                let conditions = [held_back.held(), held_back.unheld()].map(|condition| condition.expect("keys"));
                let mut counts = Vec::new();
                for condition in conditions.into_iter().flatten() {
                    let query = Query::find(&self.namespace, condition.document().expect("a condition"));
                    counts.push(query.all_raw(deployment).await.map(|found| found.len()));
                }
                Outcome::of(counts)
            }
        }
    }

    /// Returns a collection of this sequence.
    fn aside(&self, name: &str) -> Namespace {
        Namespace { database: self.namespace.database.clone(), collection: format!("{}_{name}", self.namespace.collection) }
    }

    async fn send(&self, deployment: &Server, body: &Document) -> Outcome {
        let patience = Patience::Limit(crate::shell::server::wire::timeout::MAX_COMMAND_TIME);
        let command = ServerCommand::of(&self.namespace.database, body, patience).expect("a command");
        Outcome::of_reply(deployment.transport.run(command).await)
    }

    async fn insert(&self, deployment: &Server, name: &str, documents: &[Document]) -> Outcome {
        self.send(deployment, &doc! { "insert": self.aside(name).collection, "documents": documents, "ordered": false }).await
    }

    fn held_back(&self) -> HeldBack {
        let made_up = planned("    holds: {collection: legal.holds, key: kind, filter: {active: true}}\n", 4);
        let mut held_back = made_up.decision.countable().expect("a rule").selection.holds.clone().expect("holds");
        held_back.collection = self.aside("holds");
        held_back
    }

    /// Returns the children of the rule, along an index if there is one.
    async fn family(&self, deployment: &Server, field: &str) -> Family {
        let namespace = self.aside("children");
        let indexes = rules::indexes(deployment, &namespace).await;
        let serves =
            |index: &Document| index.get_document("key").is_ok_and(|key| key.keys().next().is_some_and(|of| of == field));
        let index = indexes.iter().any(serves).then(|| IndexChoice { name: field.to_owned(), oldest_first: true, bounded: true });
        let selection = Selection { namespace, index, predicate: no_array(field), filter: None, ..self.rule.selection.clone() };
        let rule = SweepRule { selection, ..self.rule.clone() };
        let parent_key = ParentKey::id();
        let child = ChildRule { field: field.to_owned(), parent_key, rule };
        Family { journal: self.aside("journal"), children: vec![child], orphans: None, filter: None }
    }

    async fn journal(&self, deployment: &Server, parents: &[Bson]) -> Outcome {
        let journal = Journal::new(deployment, &self.rule, &self.aside("journal"), "other");
        let [lines, notes] = ["lines", "notes"].map(|name| ChildPlace { namespace: format!("app.{name}"), field: "p".into() });
        let places = [lines.clone(), notes.clone()];
        let next = Journal::new(deployment, &self.rule, &self.aside("journal"), "next");
        let grant = DeleteGrant::new(false, Consent::NotAsked).expect("no dry run");
        let at = DateTime::from_millis(NOW);
        let mut told = Vec::new();
        let first = match journal.enter("_id", at, (raw(parents), Vec::new()), places.to_vec(), &grant).await {
            Ok(entry) => entry,
            Err(why) => return Outcome::of(why),
        };
        let second = journal.enter("kind", at, (raw(parents), raw(parents)), vec![lines.clone()], &grant).await;
        // Each server has its own `_id`s, in the order of their making.
        for after in [None, Some(&first), second.as_ref().ok()] {
            let found = next.next(after).await;
            told.push(found.map(|entry| entry.map(|entry| (entry.at, entry.field, entry.parents, entry.ids, entry.children))));
        }
        let own = journal.next(None).await.map(|entry| entry.is_some());
        let named = journal::named(deployment, &self.aside("journal")).await;
        let named = named.map(|named| named.into_iter().map(|named| (named.key, named.place)).collect::<Vec<_>>());
        let mut done = vec![next.done(&first, std::slice::from_ref(&lines), &grant).await];
        let left = next.next(None).await.map(|entry| entry.map(|entry| entry.children));
        for places in [&places[1..], &places] {
            done.push(next.done(&first, places, &grant).await);
        }
        if let Ok(second) = &second {
            done.push(next.done(second, &[lines], &grant).await);
        }
        Outcome::of((told, own, named.ok(), done, left, next.next(None).await.map(|next| next.map(|entry| entry.children))))
    }

    /// Finds the children of parents as the sweep does, and deletes those that it found.
    async fn children(&self, deployment: &Server, field: &str, parents: &[Bson], living: &[Bson]) -> Outcome {
        let family = self.family(deployment, field).await;
        let selection = &family.children[0].rule.selection;
        let mut condition = doc! { "$in": parents };
        if !living.is_empty() {
            condition.insert("$nin", living);
        }
        let of_parents = doc! { field: condition };
        let in_time = parents::not_after(DateTime::from_millis(NOW));
        let filter = doc! { "$and": [of_parents.clone(), in_time, selection.predicate.clone()] };
        let hint = selection.index.as_ref().map_or(doc! { "$natural": 1 }.into(), |index| Bson::from(index.name.as_str()));
        let query =
            Query::find(&selection.namespace, filter).projection(doc! { "_id": 1, field: 1 }).hint(Some(hint)).batch_size(5);
        let found = match query.all_raw(deployment).await {
            Ok(found) => found,
            Err(cause) => return Outcome::of_error(&cause),
        };
        let ids: RawList = found.iter().filter_map(|child| RawRef::at(child, "_id")).collect();
        let number = ids.len();
        if ids.is_empty() {
            return Outcome::of("no children");
        }
        let condition =
            raw::document([(field, &RawValue::of(of_parents[field].clone()).expect("a value"))]).expect("a condition");
        let deleted = Self::delete(deployment, selection, Restriction::of_ids(condition, ids)).await;
        Outcome::of((number, deleted))
    }

    async fn delete(deployment: &Server, selection: &Selection, restriction: Restriction) -> Outcome {
        let grant = DeleteGrant::new(false, Consent::NotAsked).expect("no dry run");
        let reply = delete::delete(deployment, selection, &restriction, &doc! { "w": "majority" }, None, &grant).await;
        Outcome::of((reply.deleted, reply.error.map(|error| (error.retryable, error.reply_lost))))
    }
}

/// Takes values whose order is not defined.
fn in_any_order(found: Result<Vec<RawValue>, crate::shell::server::wire::error::ServerError>) -> Outcome {
    match found {
        Ok(found) => Outcome::of(in_order(&found)),
        Err(cause) => Outcome::of_error(&cause),
    }
}

fn in_order(values: &[RawValue]) -> Vec<String> {
    let mut shown: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    shown.sort();
    shown
}
