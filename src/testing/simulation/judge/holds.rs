//! Judges holds: what a majority has held for 20 s when a delete begins must not go by it.

use bson::{Bson, Document};
use server_model::View;

use crate::testing::simulation::relations::{HELD_KEY, HOLDS, Holds};

/// Time after which a hold that a majority knows of is respected, in milliseconds.
const PROMISED: i64 = 20_000;

/// The holds of a simulation, in all their states.
pub(super) struct HoldsJudge {
    holds: Holds,
    states: Vec<State>,
}

/// One state of a hold. All times are milliseconds since the simulation began.
struct State {
    write: u64,
    id: Bson,
    /// The document, which no other state has.
    hold: Document,
    key: Option<Bson>,
    /// The time from which on a majority was sure to know it.
    known: Option<i64>,
    /// The write that ended it, and its time.
    ended: Option<(u64, i64)>,
}

impl State {
    /// Whether the key of the hold is one that a document can be compared with.
    fn has_proper_key(&self) -> bool {
        self.key.as_ref().is_some_and(|key| !matches!(key, Bson::Null | Bson::Array(_)))
    }

    fn is_at_end(&self) -> bool {
        self.ended.is_none()
    }
}

impl HoldsJudge {
    pub(super) fn new(holds: &Holds) -> Self {
        Self { holds: holds.clone(), states: Vec::new() }
    }

    /// Notes a hold that others placed, changed or removed.
    pub(super) fn wrote(&mut self, write: u64, id: &Bson, hold: Option<&Document>, now: i64) {
        for state in self.states.iter_mut().filter(|state| state.id == *id && state.ended.is_none()) {
            state.ended = Some((write, now));
        }
        if let Some(hold) = hold.filter(|hold| self.holds.counts(hold)) {
            self.states.push(State {
                write,
                id: id.clone(),
                hold: hold.clone(),
                key: hold.get(HELD_KEY).cloned(),
                known: None,
                ended: None,
            });
        }
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

    /// Returns the hold that forbids that a delete takes a document; `None` if none does. `begun` is the time at which the delete
    /// began; one that is gone from the primary is in force as long as a majority has it.
    pub(super) fn forbids(&self, document: &Document, begun: i64, server: &View<'_>) -> Option<String> {
        let is_in_force = |state: &State| match state.ended {
            Some((_, ended)) if ended <= begun => server.has_majority(HOLDS, &|hold| *hold == state.hold),
            _ => true,
        };
        let is_promised = |state: &&State| state.known.is_some_and(|known| known <= begun - PROMISED) && is_in_force(state);
        let forbids = |state: &&State| match &state.key {
            Some(key) if state.has_proper_key() => self.holds.has(document, key),
            // What is not a key may mean any document.
            _ => true,
        };
        let found = self.states.iter().filter(is_promised).find(forbids)?;
        let known = found.known.unwrap_or_default();
        Some(format!("the hold {} on {:?}, which a majority knew {} ms before", found.id, found.key, begun.saturating_sub(known)))
    }

    /// Whether a document is held now, or was so at any time since then.
    pub(super) fn held_since(&self, document: &Document, since: i64) -> bool {
        let was_there = |state: &&State| state.is_at_end() || state.ended.is_some_and(|(_, ended)| ended >= since);
        let holds = |state: &State| state.key.as_ref().is_some_and(|key| state.has_proper_key() && self.holds.has(document, key));
        self.states.iter().filter(was_there).any(holds)
    }
}
