//! A model of a server, for simulations of whole runs: a primary whose writes a majority has after a while, on the clock of the
//! runtime.
//!
//! A [`Client`] of the model is a transport of the program. The model carries out the commands that the program sends, on
//! documents and indexes of its own; a command or an operator that it does not know is an error, never a quiet "no match". A
//! delete lets others run between two documents and looks at each document as it is then, as a server does. A write is known to a
//! majority after a while, and a fail-over takes back some of those that are not. Commands and replies get lost, come late, or
//! are errors, as [`Faults`] says.
//!
//! Everything that is not given follows from one seed: the model uses no clock but tokio's, and no other chance. It runs on a
//! runtime with `start_paused` and one thread.
//!
//! Every document that a command deletes is shown to an [`Observer`] in that moment. What the model itself is worth is tested in
//! `conformance`, which compares it with a mongod.

mod arithmetic;
mod call;
mod catalog;
mod collection;
mod concern;
mod conformance;
mod cursor;
mod decimal;
mod dispatch;
mod expression;
mod failure;
mod faults;
mod filter;
mod functions;
mod index;
mod network;
mod order;
mod path;
mod pipeline;
mod plan;
mod projection;
mod query;
mod reading;
mod sort;
mod state;
mod tests;
mod text;
mod updates;
mod value;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::shell::server::wire::codes;
pub(crate) use faults::{Faults, Pace};
pub(crate) use network::Client;
pub(crate) use state::BEGINNING;
use state::State;

/// Watches the deletes of the model's clients. It is called while the model is locked, and must not call the model.
pub(crate) trait Observer: Send + Sync {
    /// Takes notice of a document that a command of a client has just deleted.
    fn deleted(&self, deletion: &Deletion<'_>);

    /// Takes notice of a document that a command of a client has just inserted.
    fn inserted(&self, _insertion: &Insertion<'_>) {}

    /// Takes notice of a document that a command of a client has just changed.
    fn updated(&self, _update: &Updated<'_>) {}

    /// Takes notice of a collection that the catalog shows to a command, by its number: one that is dropped and created again has
    /// another.
    fn listed(&self, _comment: &str, _namespace: &str, _collection: u64) {}

    /// Takes notice of a write that a fail-over has taken back. It is the number of a [`Deletion`], or of another write.
    fn taken_back(&self, _write: u64) {}
}

/// The deletion of one document.
pub(crate) struct Deletion<'a> {
    /// Number of the write; each write has one of its own, in ascending order.
    pub write: u64,
    /// `database.collection`.
    pub namespace: &'a str,
    /// Number of the collection.
    pub collection: u64,
    /// The document as it was.
    pub document: &'a Document,
    /// The server's clock.
    pub now: DateTime,
    /// The moment at which the command began.
    pub begun: Instant,
    /// Name of the client, as given to [`Model::client`].
    pub client: &'a str,
    /// Comment of the command, which names the run; empty if there is none.
    pub comment: &'a str,
    /// The rest of the server, in the same moment.
    pub server: View<'a>,
}

/// The insertion of one document.
pub(crate) struct Insertion<'a> {
    pub write: u64,
    /// `database.collection`.
    pub namespace: &'a str,
    pub document: &'a Document,
    /// The server's clock.
    pub now: DateTime,
    /// Name of the client, as given to [`Model::client`].
    pub client: &'a str,
    /// The rest of the server, in the same moment.
    pub server: View<'a>,
}

/// The change of one document.
pub(crate) struct Updated<'a> {
    pub write: u64,
    /// `database.collection`.
    pub namespace: &'a str,
    pub before: &'a Document,
    pub after: &'a Document,
    /// The server's clock.
    pub now: DateTime,
    /// Name of the client, as given to [`Model::client`].
    pub client: &'a str,
    /// The rest of the server, in the same moment.
    pub server: View<'a>,
}

/// The data of a server in one moment.
#[derive(Clone, Copy)]
pub(crate) struct View<'a>(&'a State);

impl<'a> View<'a> {
    /// Returns the document with an `_id`.
    pub(crate) fn document(&self, namespace: &str, id: &Bson) -> Option<&'a Document> {
        let collection = self.0.collections.get(namespace)?;
        collection.get(collection.find(id)?)?.as_document()
    }

    /// Returns the number of the collection that has a name.
    pub(crate) fn number(&self, namespace: &str) -> Option<u64> {
        self.0.collections.get(namespace).map(|collection| collection.number)
    }

    /// Returns all documents of a collection.
    pub(crate) fn documents(&self, namespace: &str) -> impl Iterator<Item = &'a Document> + use<'a> {
        self.0.collections.get(namespace).into_iter().flat_map(|collection| collection.documents())
    }

    /// Whether a majority has such a document in a collection.
    pub(crate) fn has_majority(&self, namespace: &str, is_such: impl Fn(&Document) -> bool) -> bool {
        self.0.documents_of_majority(namespace).any(is_such)
    }
}

/// Tells of each document whether a filter selects it.
pub(crate) fn selected(filter: &Document, documents: &[Document]) -> Vec<bool> {
    let filter = filter::Filter::new(filter, DateTime::from_millis(BEGINNING)).expect("a filter that the server takes");
    let matches = |document: &Document| filter.matches(&document.clone().into()).expect("a filter that fails on no document");
    documents.iter().map(matches).collect()
}

/// Returns what an aggregation makes of some documents.
pub(crate) fn aggregated(stages: &[Document], documents: &[Document]) -> Vec<Document> {
    let stages: Vec<&Document> = stages.iter().collect();
    let stages = pipeline::compile(&stages, DateTime::from_millis(BEGINNING)).expect("stages that the server takes");
    let documents = documents.iter().map(|document| Arc::new(document.clone().into())).collect();
    let found = pipeline::run(&stages, documents).expect("stages that fail on no document");
    found.iter().map(|document| document.as_document().expect("a document").clone()).collect()
}

/// A server, shared by all of its clients.
pub(crate) struct Model {
    state: Mutex<State>,
    observer: Box<dyn Observer>,
    /// Wakes the commands that wait, in the order in which they began to, whenever they have to look again. (A `watch` wakes its
    /// receivers by chance.)
    changes: Notify,
}

impl Model {
    pub(crate) fn new(seed: u64, observer: Box<dyn Observer>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::new(seed)), observer, changes: Notify::new() })
    }

    /// Returns a client, which is a [`crate::shell::server::wire::transport::Transport`]. Each process has its own, and a name of
    /// its own.
    pub(crate) fn client(self: &Arc<Self>, name: &str) -> Arc<Client> {
        Client::new(self, name)
    }

    /// Returns the server's clock.
    pub(crate) fn now(&self) -> DateTime {
        self.state.lock().now()
    }

    /// Sets the chances of faults from now on.
    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Sets the speed of the servers from now on.
    pub(crate) fn set_pace(&self, pace: Pace) {
        self.state.lock().pace = pace;
    }

    /// Sets the difference of the server's clock to the clock of the runtime, in milliseconds, as another primary's clock has
    /// one.
    pub(crate) fn set_skew(&self, millis: i64) {
        self.state.lock().skew = millis;
    }

    /// Sets the sections of `serverStatus` from now on, besides those about the host.
    pub(crate) fn set_status(&self, sections: Document) {
        self.state.lock().status = sections;
    }

    /// Ends all faults, so that everything that is left must succeed.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock();
        state.faults = Faults::default();
        state.primary_from = state.primary_from.min(Instant::now());
        state.commit_all();
        drop(state);
        self.changes.notify_waiters();
    }

    /// Keeps a majority from getting any further write for a while.
    pub(crate) fn hold_replication(&self, time: Duration) {
        self.state.lock().hold_replication(Instant::now() + time);
    }

    /// Ends the primary. Another one is elected after a while, without some of the writes that no majority has. All commands
    /// under way and all cursors end with errors.
    pub(crate) fn fail_over(&self, without_primary: Duration) {
        let mut state = self.state.lock();
        state.primary_from = Instant::now() + without_primary;
        let taken_back = state.fail_over();
        drop(state);
        taken_back.into_iter().for_each(|write| self.observer.taken_back(write));
        self.changes.notify_waiters();
    }

    /// Creates an index on one field, ascending if `direction` is 1, under the usual name (`at_1`).
    pub(crate) fn create_index(&self, namespace: &str, field: &str, direction: i32) {
        let name = format!("{field}_{direction}");
        let spec = bson::doc! { "v": 2, "key": { field: direction }, "name": name };
        self.state.lock().collection(namespace).create_index(spec).expect("an index that the documents fit into");
    }

    /// Drops a collection, as another client of the server may.
    pub(crate) fn drop_collection(&self, namespace: &str) {
        self.state.lock().drop_collection(namespace);
    }

    /// Gives a collection another name, as another client of the server may.
    pub(crate) fn rename_collection(&self, namespace: &str, to: &str) {
        self.state.lock().rename_collection(namespace, to);
    }

    /// Returns the number of the collection that has a name.
    pub(crate) fn number(&self, namespace: &str) -> Option<u64> {
        self.state.lock().collections.get(namespace).map(|collection| collection.number)
    }

    /// Lets a collection's own count (`count` without a query) differ from the truth, as after a crash.
    pub(crate) fn miscount(&self, namespace: &str, by: i64) {
        self.state.lock().collection(namespace).miscount = by;
    }

    /// Writes as another client of the server does, and at once: inserts, replaces or, with `None`, deletes the document with an
    /// `_id`. Returns the number of the write; `None` if there was nothing to delete.
    pub(crate) fn put(&self, namespace: &str, id: &Bson, document: Option<Document>) -> Option<u64> {
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
    pub(crate) async fn has_majority(&self, write: u64) -> bool {
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
    pub(crate) fn document(&self, namespace: &str, id: &Bson) -> Option<Document> {
        View(&self.state.lock()).document(namespace, id).cloned()
    }

    /// Returns all documents of a collection, in the order of their insertion.
    pub(crate) fn documents(&self, namespace: &str) -> Vec<Document> {
        let state = self.state.lock();
        state.collections.get(namespace).map(|collection| collection.documents().cloned().collect()).unwrap_or_default()
    }
}
