//! The states of a collection whose documents decide what others may delete: holds, and periods.

use bson::{Bson, Document};
use server_model::View;

/// Time after which a state that a majority knows of is respected, in milliseconds.
const PROMISED: i64 = 20_000;

/// All states of the documents of one collection.
pub(super) struct Settings {
    namespace: &'static str,
    key: &'static str,
    states: Vec<State>,
}

/// One state of a document. All times are milliseconds since the simulation began.
pub(super) struct State {
    write: u64,
    pub id: Bson,
    /// The document, which no other state has.
    pub document: Document,
    pub key: Option<Bson>,
    begun: i64,
    /// The time from which on a majority was sure to know it.
    known: Option<i64>,
    /// The write that ended it, and its time.
    ended: Option<(u64, i64)>,
}

impl State {
    /// Whether the key is one that a document can be compared with.
    pub(super) fn has_proper_key(&self) -> bool {
        self.key.as_ref().is_some_and(|key| !matches!(key, Bson::Null | Bson::Array(_)))
    }

    /// Whether it has been there at every moment since then, or since the simulation began.
    pub(super) fn is_there_since(&self, since: i64) -> bool {
        self.begun <= since.max(0) && self.ended.is_none()
    }

    /// Returns the time from which on a majority knew it.
    pub(super) fn known(&self) -> i64 {
        self.known.unwrap_or_default()
    }
}

impl Settings {
    pub(super) fn new(namespace: &'static str, key: &'static str) -> Self {
        Self { namespace, key, states: Vec::new() }
    }

    /// Notes a document that others wrote, changed or removed; `document` is what it left, if it counts.
    pub(super) fn wrote(&mut self, write: u64, id: &Bson, document: Option<&Document>, now: i64) {
        for state in self.states.iter_mut().filter(|state| state.id == *id && state.ended.is_none()) {
            state.ended = Some((write, now));
        }
        self.states.extend(document.map(|document| State {
            write,
            id: id.clone(),
            document: document.clone(),
            key: document.get(self.key).cloned(),
            begun: now,
            known: None,
            ended: None,
        }));
    }

    /// Notes that a majority knows of a write.
    pub(super) fn known(&mut self, write: u64, now: i64) {
        for state in self.states.iter_mut().filter(|state| state.write == write) {
            state.known = Some(now);
        }
    }

    /// Notes that a fail-over took back a write: no majority ever knew of it.
    pub(super) fn took_back(&mut self, write: u64) {
        self.states.retain(|state| state.write != write);
        for state in self.states.iter_mut().filter(|state| state.ended.is_some_and(|(ended, _)| ended == write)) {
            state.ended = None;
        }
    }

    /// Returns the states that a delete has to respect. `begun` is the time at which it began; a state that is gone from the
    /// primary is in force as long as a majority has it.
    pub(super) fn promised(&self, begun: i64, server: &View<'_>) -> Vec<&State> {
        let is_in_force = |state: &State| match state.ended {
            Some((_, ended)) if ended <= begun => server.has_majority(self.namespace, &|found| *found == state.document),
            _ => true,
        };
        let is_promised = |state: &&State| state.known.is_some_and(|known| known <= begun - PROMISED) && is_in_force(state);
        self.states.iter().filter(is_promised).collect()
    }

    /// Returns the states that are there now, or were so at any time since then.
    pub(super) fn since(&self, since: i64) -> impl Iterator<Item = &State> {
        self.states.iter().filter(move |state| state.ended.is_none_or(|(_, ended)| ended >= since))
    }

    /// Returns all states.
    pub(super) fn ever(&self) -> impl Iterator<Item = &State> {
        self.states.iter()
    }
}
