//! The seam to MongoDB: commands go in, replies and errors come out.
//!
//! [`super::driver::Driver`] speaks to servers; a model of a server can take its place. The seam has no clock and no state of its
//! own.

use std::time::Duration;

use bson::{Document, RawDocumentBuf};
use futures_util::future::BoxFuture;

use super::error::ServerError;

/// Sends commands to a deployment. Nothing is retried at this level, except by the driver what a busy server refuses.
pub(crate) trait Transport: Send + Sync {
    /// Runs one command and returns its reply. A reply with `ok: 1` may still hold `writeErrors` and a `writeConcernError`.
    fn run(&self, command: ServerCommand) -> BoxFuture<'_, Result<Document, ServerError>>;

    /// Runs one command that opens a cursor.
    fn open(&self, command: ServerCommand) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>>;

    /// Ends the sessions on the servers.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A cursor on a server. Every batch comes from the server that opened it, and is waited for like the reply to the command.
pub(crate) trait Batches: Send {
    /// Fetches the next batch, which may be empty; `None` after the last one.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<RawDocumentBuf>>, ServerError>>;
}

/// One command, as a server receives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerCommand {
    pub database: String,
    /// The name of the command is its first key.
    pub body: RawDocumentBuf,
    pub read_preference: ReadPreference,
    pub patience: Patience,
    pub extent: Extent,
    /// Whether the command ends when it is no longer awaited: it is not sent if it has not been, and its connection is closed if
    /// it has. Otherwise it goes on unwatched.
    pub ends_unawaited: bool,
}

/// The time that the reply to a command is waited for. No command is without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The reply counts as lost after this time.
    Limit(Duration),
    /// The reply counts as lost once the server is no longer at work on the command. A server that does not tell is given this
    /// time.
    WhileRunning(Duration),
}

/// The extent of a command, from which its cost can be foretold on a service that bills it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Extent {
    #[default]
    Unknown,
    /// Documents that the command is about.
    Documents(u64),
    /// Request units, by the caller's own estimate.
    Units(f64),
}

impl ServerCommand {
    /// Creates a command for the primary.
    pub(crate) fn new(database: &str, body: RawDocumentBuf, patience: Patience) -> Self {
        Self {
            database: database.to_owned(),
            body,
            read_preference: ReadPreference::Primary,
            patience,
            extent: Extent::Unknown,
            ends_unawaited: false,
        }
    }

    /// Creates a command for the primary from a document.
    ///
    /// Errors: BSON cannot hold the document, such as one with a NUL in a key.
    pub(crate) fn of(database: &str, body: &Document, patience: Patience) -> Result<Self, ServerError> {
        Ok(Self::new(database, RawDocumentBuf::try_from(body)?, patience))
    }

    pub(crate) fn read_preference(self, read_preference: ReadPreference) -> Self {
        Self { read_preference, ..self }
    }

    pub(crate) fn ends_unawaited(self) -> Self {
        Self { ends_unawaited: true, ..self }
    }

    pub(crate) fn extent(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }
}

/// The member of a replica set that a command goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReadPreference {
    #[default]
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
    /// The connection string's, with its tags; the primary if the string names none.
    ConnectionString,
}
