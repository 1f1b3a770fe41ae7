//! Everything that talks to MongoDB. Reading is open to every command; deleting needs a [`delete::grant::DeleteGrant`].

pub(crate) mod compact;
pub(crate) mod connect;
pub(crate) mod delete;
pub(crate) mod look;
pub(crate) mod own;
pub(crate) mod pass;
pub(crate) mod watch;
pub(crate) mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc};
use tracing::debug;

use crate::core::facts::ServerFacts;
use look::bound::Bound;
use wire::error::ServerError;
use wire::meter::Billing;
use wire::retry::{Retries, retry};
use wire::transport::{Batches, Patience, ReadPreference, ServerCommand, Transport};

/// Maximum time to close the connection at the end of a run.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(5);

/// Maximum time to find out whether the deployment can be reached: longer than a server is waited for.
const MAX_PING_TIME: Duration = Duration::from_secs(60);

/// Maximum number of databases or collections read at the same time.
const MAX_CONCURRENT_READS: usize = 8;

/// Commands that `serverStatus` counts in `opLatencies` as reads or writes, but for those that continue a cursor.
const OPERATIONS: [&str; 8] = ["aggregate", "count", "delete", "distinct", "find", "findAndModify", "insert", "update"];

/// Returns 1 for an operation, 0 for any other command.
fn is_operation(command: &ServerCommand) -> u64 {
    let name = command.body.iter().next().and_then(Result::ok).map(|(name, _)| name);
    u64::from(name.is_some_and(|name| OPERATIONS.contains(&name.as_ref())))
}

/// Options of the counts and samples of a run.
///
/// The default is for guards: a count on a secondary would be compared with a count on the primary.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadOptions {
    pub preference: ReadPreference,
    /// Time that the server may work on one query; `None` for no limit.
    pub max_time: Option<Duration>,
}

/// One connection to one deployment, for one run.
#[derive(Clone)]
pub(crate) struct Deployment {
    transport: Arc<dyn Transport>,
    pub facts: ServerFacts,
    /// The comment of every command, by which the server's log and profiler name the run.
    pub comment: String,
    /// Write concern of every delete: the connection string's, or majority.
    pub write_concern: Document,
    /// Read concern of every query, if the connection string names one.
    pub read_concern: Option<Document>,
    /// Time after which the reply to a command counts as lost, unless the server says that it is at work on it.
    pub command_timeout: Duration,
    pub read_options: ReadOptions,
    /// The collections that reads and deletes name by their UUIDs.
    bound: Bound,
    /// Number of operations that were answered, see [`OPERATIONS`].
    answered: Arc<AtomicU64>,
    /// The connections and the bill of a service that charges each request; `transport` is one of them.
    billing: Option<Billing>,
}

impl Deployment {
    /// Creates a deployment whose commands go to this transport, and whose deletes are confirmed by a majority.
    pub(crate) fn over(transport: Arc<dyn Transport>, facts: ServerFacts, comment: String) -> Self {
        Self {
            transport,
            facts,
            comment,
            write_concern: bson::doc! { "w": "majority" },
            read_concern: None,
            command_timeout: wire::timeout::MAX_COMMAND_TIME,
            read_options: ReadOptions::default(),
            bound: Bound::default(),
            answered: Arc::default(),
            billing: None,
        }
    }

    /// Returns the same deployment with a bill for each request.
    pub(crate) fn billed_by(self, billing: Billing) -> Self {
        Self { transport: billing.transport(), billing: Some(billing), ..self }
    }

    /// Runs one command that changes nothing on the primary, and retries it as [`Retries::several`] says. Carries the run's
    /// comment if the flavor supports comments.
    pub(crate) async fn read(&self, database: &str, command: Document) -> Result<Document, ServerError> {
        let command = ServerCommand::of(database, &self.marked(command), self.patience())?;
        let mut retries = Retries::several();
        retry(|cause| retries.wait(cause), || self.send_once(command.clone())).await
    }

    /// Returns the patience with a command that may take long: a person may have a large collection, or a slow server.
    pub(crate) fn patience(&self) -> Patience {
        Patience::WhileRunning(self.command_timeout)
    }

    /// Runs a write command as it is, and sends it again after the waits that `next_wait` returns: a command that leaves the same
    /// behind if it is carried out twice. A statement that failed, or a write concern that was not met, is an error.
    pub(crate) async fn write(
        &self,
        command: &ServerCommand,
        next_wait: impl FnMut(&ServerError) -> Option<Duration>,
    ) -> Result<Document, ServerError> {
        retry(next_wait, || self.write_once(command, |_| true)).await
    }

    /// Runs a command that creates a document with an `_id` that no other document has, and sends it again as [`Self::write`]
    /// does. If the document is there already, an attempt without a whole reply has created it.
    pub(crate) async fn create(
        &self,
        command: &ServerCommand,
        next_wait: impl FnMut(&ServerError) -> Option<Duration>,
    ) -> Result<(), ServerError> {
        let is_failure = |cause: &ServerError| !cause.has_code(wire::codes::DUPLICATE_KEY);
        retry(next_wait, || self.write_once(command, is_failure)).await.map(drop)
    }

    /// Runs a write command, without a retry. `is_failure` tells which errors of its statement are one. What the members have not
    /// confirmed, a fail-over can take back, also a document that was there already: the server waits for the members then too
    /// (`LastOpFixer` in `write_ops_exec.cpp`).
    async fn write_once(
        &self,
        command: &ServerCommand,
        is_failure: impl Fn(&ServerError) -> bool,
    ) -> Result<Document, ServerError> {
        let reply = self.send_once(command.clone()).await?;
        match ServerError::of_write(&reply).filter(is_failure).or_else(|| ServerError::of_write_concern(&reply)) {
            Some(cause) => Err(cause),
            None => Ok(reply),
        }
    }

    /// Runs a command as it is, without a retry: for callers that decide on each error themselves. The tests in `retry.rs` list
    /// them.
    async fn send_once(&self, command: ServerCommand) -> Result<Document, ServerError> {
        let is_operation = is_operation(&command);
        let reply = self.transport.run(command).await;
        self.answered.fetch_add(is_operation, Ordering::Relaxed);
        reply
    }

    /// Runs a command that opens a cursor as it is, without a retry.
    async fn open_once(&self, command: ServerCommand) -> Result<Box<dyn Batches>, ServerError> {
        let is_operation = is_operation(&command);
        let reply = self.transport.open(command).await;
        self.answered.fetch_add(is_operation, Ordering::Relaxed);
        reply
    }

    /// Returns the number of operations of this run that were answered.
    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits for the deployment; returns the reason why it can no longer be reached, or `None` if it can.
    pub(crate) async fn unreachable(&self) -> Option<String> {
        let ping =
            ServerCommand::of("admin", &doc! { "ping": 1 }, Patience::Limit(self.command_timeout.min(MAX_PING_TIME))).ok()?;
        self.send_once(ping).await.err().filter(ServerError::is_unreachable).map(|cause| cause.to_string())
    }

    /// Ends the sessions on the server. A failure does not affect the run.
    pub(crate) async fn close(self) {
        let closed = async {
            match &self.billing {
                Some(billing) => billing.close().await,
                None => self.transport.close().await,
            }
        };
        if tokio::time::timeout(MAX_CLOSE_TIME, closed).await.is_err() {
            debug!("the connection did not close in time");
        }
    }

    /// Returns the command with the run's comment, if the flavor supports comments.
    pub(crate) fn marked(&self, mut command: Document) -> Document {
        if let Some(comment) = self.comment() {
            command.insert("comment", comment);
        }
        command
    }

    /// Returns the comment of the run's commands, if the flavor supports comments.
    pub(crate) fn comment(&self) -> Option<Bson> {
        self.facts.capabilities.comments.then(|| Bson::from(self.comment.clone()))
    }
}
