//! Judges holds: what a majority has held for 20 s when a delete begins must not go by it.

use bson::{Bson, Document};
use server_model::View;

use super::settings::{Settings, State};
use crate::testing::simulation::relations::{HELD_KEY, HOLDS, Holds};

/// The holds of a simulation, in all their states.
pub(super) struct HoldsJudge {
    holds: Holds,
    pub settings: Settings,
}

impl HoldsJudge {
    pub(super) fn new(holds: &Holds) -> Self {
        Self { holds: holds.clone(), settings: Settings::new(HOLDS, HELD_KEY) }
    }

    /// Notes a hold that others placed, changed or removed.
    pub(super) fn wrote(&mut self, write: u64, id: &Bson, hold: Option<&Document>, now: i64) {
        self.settings.wrote(write, id, hold.filter(|hold| self.holds.counts(hold)), now);
    }

    /// Returns the hold that forbids that a delete takes a document; `None` if none does. `begun` is the time at which the delete
    /// began.
    pub(super) fn forbids(&self, document: &Document, begun: i64, server: &View<'_>) -> Option<String> {
        let forbids = |state: &&State| match &state.key {
            Some(key) if state.has_proper_key() => self.holds.has(document, key),
            // What is not a key may mean any document.
            _ => true,
        };
        let found = self.settings.promised(begun, server).into_iter().find(forbids)?;
        let before = begun.saturating_sub(found.known());
        Some(format!("the hold {} on {:?}, which a majority knew {before} ms before", found.id, found.key))
    }

    /// Whether a document is held now, or was so at any time since then.
    pub(super) fn held_since(&self, document: &Document, since: i64) -> bool {
        let holds = |state: &State| state.key.as_ref().is_some_and(|key| state.has_proper_key() && self.holds.has(document, key));
        self.settings.since(since).any(holds)
    }
}
