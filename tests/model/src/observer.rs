//! Observers of the model: each write is shown to them at the moment at which it happens.

use bson::{Bson, DateTime, Document};
use tokio::time::Instant;

use crate::collection::Collection;
use crate::state::State;

/// Watches the writes of the model's clients. It is called while the model is locked, and must not call the model.
pub trait Observer: Send + Sync {
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
pub struct Deletion<'a> {
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
    /// Name of the client, as given to [`Model::send`](crate::Model::send).
    pub client: &'a str,
    /// Comment of the command, which names the run; empty for a command without a comment.
    pub comment: &'a str,
    /// The rest of the server, in the same moment.
    pub server: View<'a>,
}

/// The insertion of one document.
pub struct Insertion<'a> {
    /// Number of the write.
    pub write: u64,
    /// `database.collection`.
    pub namespace: &'a str,
    /// The document as it is from now on.
    pub document: &'a Document,
    /// The server's clock.
    pub now: DateTime,
    /// Name of the client, as given to [`Model::send`](crate::Model::send).
    pub client: &'a str,
    /// The rest of the server, in the same moment.
    pub server: View<'a>,
}

/// The change of one document.
pub struct Updated<'a> {
    /// Number of the write.
    pub write: u64,
    /// `database.collection`.
    pub namespace: &'a str,
    /// The document as it was.
    pub before: &'a Document,
    /// The document as it is from now on.
    pub after: &'a Document,
    /// The server's clock.
    pub now: DateTime,
    /// Name of the client, as given to [`Model::send`](crate::Model::send).
    pub client: &'a str,
    /// The rest of the server, in the same moment.
    pub server: View<'a>,
}

/// The data of a server in one moment.
#[derive(Clone, Copy)]
pub struct View<'a>(pub(crate) &'a State);

impl<'a> View<'a> {
    /// Returns the document with an `_id`.
    pub fn document(&self, namespace: &str, id: &Bson) -> Option<&'a Document> {
        let collection = self.0.collections.get(namespace)?;
        collection.get(collection.find(id)?)?.as_document()
    }

    /// Returns the number of the collection that has a name.
    pub fn number(&self, namespace: &str) -> Option<u64> {
        self.0.collections.get(namespace).map(|collection| collection.number)
    }

    /// Returns all documents of a collection.
    pub fn documents(&self, namespace: &str) -> Box<dyn Iterator<Item = &'a Document> + 'a> {
        Box::new(self.0.collections.get(namespace).into_iter().flat_map(Collection::documents))
    }

    /// Whether a majority has such a document in a collection.
    pub fn has_majority(&self, namespace: &str, is_such: &dyn Fn(&Document) -> bool) -> bool {
        self.0.documents_of_majority(namespace).any(is_such)
    }
}
