//! The server as a simulation holds it: the data in a lock, and what can be done to them from outside.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::faults::{Faults, Pace};
use crate::observer::{Observer, View};
use crate::release::Release;
use crate::state::State;

/// A server, shared by all of its clients.
pub struct Model {
    pub(crate) state: Mutex<State>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Wakes the commands that wait, in the order in which they began to, whenever they have to look again. (A `watch` wakes its
    /// receivers by chance.)
    pub(crate) changes: Notify,
}

impl Model {
    /// Creates a server without any collection. The seed decides all that is left to chance.
    pub fn new(seed: u64, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::new(seed)), observer, changes: Notify::new() })
    }

    /// Returns the server's clock.
    pub fn now(&self) -> DateTime {
        self.state.lock().now()
    }

    /// Sets the chances of faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Sets the speed of the servers from now on.
    pub fn set_pace(&self, pace: Pace) {
        self.state.lock().pace = pace;
    }

    /// Sets the release of the servers from now on.
    pub fn set_release(&self, release: Release) {
        self.state.lock().release = release;
    }

    /// Sets the difference of the server's clock to the clock of the runtime, in milliseconds, as another primary's clock has
    /// one.
    pub fn set_skew(&self, millis: i64) {
        self.state.lock().skew = millis;
    }

    /// Sets the sections of `serverStatus` from now on, besides those about the host.
    pub fn set_status(&self, sections: Document) {
        self.state.lock().status = sections;
    }

    /// Ends all faults, so that everything that is left must succeed.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults = Faults::default();
        state.primary_from = state.primary_from.min(Instant::now());
        state.commit_all();
        drop(state);
        self.changes.notify_waiters();
    }

    /// Keeps a majority from getting any further write for a while.
    pub fn hold_replication(&self, time: Duration) {
        self.state.lock().hold_replication(Instant::now() + time);
    }

    /// Ends the primary. Another one is elected after a while, without some of the writes that no majority has. All commands
    /// under way and all cursors end with errors.
    pub fn fail_over(&self, without_primary: Duration) {
        let mut state = self.state.lock();
        state.primary_from = Instant::now() + without_primary;
        let taken_back = state.fail_over();
        drop(state);
        taken_back.into_iter().for_each(|write| self.observer.taken_back(write));
        self.changes.notify_waiters();
    }

    /// Creates an index on one field, ascending if `direction` is 1, under the usual name (`at_1`).
    pub fn create_index(&self, namespace: &str, field: &str, direction: i32) {
        let name = format!("{field}_{direction}");
        let spec = doc! { "v": 2, "key": { field: direction }, "name": name };
        self.state.lock().collection(namespace).create_index(spec).expect("an index that the documents fit into");
    }

    /// Drops a collection, as another client of the server may.
    pub fn drop_collection(&self, namespace: &str) {
        self.state.lock().drop_collection(namespace);
    }

    /// Gives a collection another name, as another client of the server may.
    pub fn rename_collection(&self, namespace: &str, to: &str) {
        self.state.lock().rename_collection(namespace, to);
    }

    /// Returns the number of the collection that has a name.
    pub fn number(&self, namespace: &str) -> Option<u64> {
        self.state.lock().collections.get(namespace).map(|collection| collection.number)
    }

    /// Lets a collection's own count (`count` without a query) differ from the truth, as after a crash.
    pub fn miscount(&self, namespace: &str, by: i64) {
        self.state.lock().collection(namespace).miscount = by;
    }

    /// Writes as another client of the server does, and at once: inserts, replaces or, with `None`, deletes the document with an
    /// `_id`. Returns the number of the write; `None` if there was nothing to delete.
    pub fn put(&self, namespace: &str, id: &Bson, document: Option<Document>) -> Option<u64> {
        let mut state = self.state.lock();
        if document.is_none() && !state.collections.contains_key(namespace) {
            return None;
        }
        let write = match (state.collection(namespace).find(id), document) {
            (Some(record), document) => state.write(namespace, record, document.map(Bson::from)),
            (None, Some(document)) => state.insert(namespace, document),
            (None, None) => return None,
        };
        Some(write.expect("a document that the indexes take"))
    }

    /// Waits until a majority has a write; false if a fail-over takes it back.
    pub async fn has_majority(&self, write: u64) -> bool {
        loop {
            let changed = self.changes.notified();
            let due = {
                let state = self.state.lock();
                match state.committed_at(write) {
                    Some(due) if due > Instant::now() => due,
                    _ => return !state.taken_back.contains(&write),
                }
            };
            let _ = tokio::time::timeout_at(due, changed).await;
        }
    }

    /// Returns the document with an `_id`.
    pub fn document(&self, namespace: &str, id: &Bson) -> Option<Document> {
        View(&self.state.lock()).document(namespace, id).cloned()
    }

    /// Returns all documents of a collection, in the order of their insertion.
    pub fn documents(&self, namespace: &str) -> Vec<Document> {
        let state = self.state.lock();
        state.collections.get(namespace).map(|collection| collection.documents().cloned().collect()).unwrap_or_default()
    }
}
