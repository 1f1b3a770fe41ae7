//! Errors of a server and of the connection to it, worded for people: without debug text, and without the values of documents.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bson::{Bson, Document};

use super::codes;
use super::overload::{self, Overload};
use crate::base::{secrets, values};
use crate::shell::server::connect::obstacle::ConnectObstacle;
use crate::shell::server::delete::fence::is_too_late;

const NO_SUCH_HINT: &str = "hint provided does not correspond to an existing index";

/// Name of the setting by which a server refuses to go through a collection, as its messages quote it.
const NO_TABLE_SCAN: &str = "notablescan";

/// Part of the context that a mongod adds to an error of a plan that is being carried out. An error of a filter that it does not
/// understand has none (seen with 6.0.5).
const WHILE_EXECUTING: &str = "xecutor error";

/// The message with which the gateway of the DocumentDB engine says that it cannot reach PostgreSQL (of `tokio_postgres`).
/// Nothing was done.
const NOT_CONNECTED: &str = "error connecting to server";

/// The message of an error of a deployment of which no server could be selected.
pub(crate) const NO_SERVER: &str = "no suitable server answered in time";

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, ServerError>;

/// An error of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerError {
    stage: FailureStage,
    message: String,
    /// The server's own code, if the server reported the error.
    code: Option<i32>,
    overload: Option<Overload>,
    obstacle: Option<ConnectObstacle>,
    /// Whether the command failed before doing anything.
    is_refused: bool,
    /// Whether the error says itself that the command can be sent again: by a label, or by its message.
    is_labelled_retryable: bool,
    /// Whether a delete began too late, by the server's clock.
    is_too_late: bool,
}

/// The stage at which a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureStage {
    /// The server reported the error.
    Reported,
    /// The connection broke.
    Network,
    /// No reply came within the time limit.
    Timeout,
    /// A reply came that cannot be read.
    InvalidReply,
    /// No server could be selected, after waiting for one.
    Unreachable,
    /// The command got no connection, because an error of another command had closed all of them.
    NotSent,
    /// A name of the connection string could not be resolved.
    Dns,
    Other,
}

impl ServerError {
    /// Creates an error from the message and the code of a server.
    pub(crate) fn reported(code: i32, message: &str, code_name: &str) -> Self {
        // Services report failed authentication with codes of their own.
        let is_authentication = code == codes::AUTHENTICATION_FAILED || message.contains("uthentication failed");
        Self {
            code: Some(code),
            overload: overload::read(code, message),
            obstacle: is_authentication.then_some(ConnectObstacle::Authentication),
            is_refused: codes::is_refusal(code)
                || message.contains(NO_SUCH_HINT)
                || is_unconnected(code, message)
                || is_too_late(message),
            is_labelled_retryable: is_unconnected(code, message) || is_too_late(message),
            is_too_late: is_too_late(message),
            ..Self::new(FailureStage::Reported, coded(message, code, code_name))
        }
    }

    /// Creates an error from a sub-document of a reply with `code`, `errmsg` and perhaps `codeName`. Where the shards of a
    /// statement failed for several reasons, one of these decides.
    ///
    /// Source: mongo `src/mongo/s/write_ops/batch_write_op.cpp`, `MultipleErrorsOccurredInfo`.
    pub(crate) fn read(error: &Document) -> Self {
        let causes = error.get_document("errInfo").unwrap_or(error).get_array("causedBy");
        causes.ok().and_then(|causes| Self::decisive(causes)).unwrap_or_else(|| Self::read_one(error))
    }

    fn read_one(error: &Document) -> Self {
        let code = values::integer_in(error, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
        let message = error.get_str("errmsg").unwrap_or("an error without a message");
        Self::reported(code, message, error.get_str("codeName").unwrap_or_default())
    }

    /// Reads the `writeErrors` of a reply: the first one after which the command cannot be sent again, or else the first.
    pub(crate) fn of_write(reply: &Document) -> Option<Self> {
        Self::decisive(reply.get_array("writeErrors").ok()?)
    }

    /// Reads several errors, and returns the first one after which the command cannot be sent again, or else the first.
    fn decisive(errors: &[Bson]) -> Option<Self> {
        let mut errors = errors.iter().filter_map(Bson::as_document).map(Self::read);
        let first = errors.next()?;
        let may_pass = |error: &Self| error.is_retryable() || error.overload().is_some();
        let is_final = may_pass(&first).then(|| errors.find(|error| !may_pass(error))).flatten();
        Some(is_final.unwrap_or(first))
    }

    /// Reads the `writeConcernError` of a reply: the write is done on the primary, but the members have not confirmed it.
    pub(crate) fn of_write_concern(reply: &Document) -> Option<Self> {
        reply.get_document("writeConcernError").ok().map(|error| Self { overload: None, ..Self::read(error) })
    }

    pub(crate) fn new(stage: FailureStage, message: String) -> Self {
        let message = secrets::without(message);
        Self {
            stage,
            message,
            code: None,
            overload: None,
            obstacle: None,
            is_refused: false,
            is_labelled_retryable: false,
            is_too_late: false,
        }
    }

    /// Takes the error for a refusal by a server that has too much to do, if it has its labels.
    pub(crate) fn labelled_overloaded(self, is_labelled: bool) -> Self {
        let refused = is_labelled.then_some(Overload::Throttled { retry_after: None });
        Self { overload: self.overload.or(refused), is_refused: self.is_refused || is_labelled, ..self }
    }

    pub(crate) fn labelled_retryable(self, is_labelled_retryable: bool) -> Self {
        Self { is_labelled_retryable: self.is_labelled_retryable || is_labelled_retryable, ..self }
    }

    pub(crate) fn timeout(limit: Duration) -> Self {
        Self::new(FailureStage::Timeout, format!("network error: no answer within {} s", limit.as_secs_f64()))
    }

    pub(crate) fn with_obstacle(self, obstacle: Option<ConnectObstacle>) -> Self {
        Self { obstacle, ..self }
    }

    pub(crate) fn invalid_reply(message: &str) -> Self {
        Self::new(FailureStage::InvalidReply, message.to_owned())
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(FailureStage::Other, message.into())
    }

    /// Returns the server's own code, if the server reported the error.
    pub(crate) fn code(&self) -> Option<i32> {
        self.code
    }

    pub(crate) fn has_code(&self, code: i32) -> bool {
        self.code == Some(code)
    }

    /// Tells whether the user lacks a privilege.
    pub(crate) fn is_unauthorized(&self) -> bool {
        self.has_code(codes::UNAUTHORIZED)
    }

    /// Tells whether the server does not have the command, or refuses it for now. Azure Cosmos DB says so with 59 and 115,
    /// older versions of it only in words (MicrosoftDocs/azure-docs#60180, MicrosoftDocs/azure-dev-docs#1260).
    pub(crate) fn is_unsupported(&self) -> bool {
        let says = |words: &str| self.message.contains(words);
        let in_words = says("not supported") || says("no such command") || says("no such cmd");
        matches!(self.code, Some(codes::COMMAND_NOT_FOUND | codes::COMMAND_NOT_SUPPORTED)) || (self.code.is_some() && in_words)
    }

    /// Tells whether the server does not have the command, or the user may not run it.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is_unauthorized() || self.is_unsupported()
    }

    /// Returns the known reason why no connection could be made.
    pub(crate) fn obstacle(&self) -> Option<ConnectObstacle> {
        self.obstacle
    }

    /// Tells whether a name of the connection string could not be resolved.
    pub(crate) fn is_dns(&self) -> bool {
        self.stage == FailureStage::Dns
    }

    /// Tells whether no reply came within the time limit.
    pub(crate) fn is_timeout(&self) -> bool {
        self.stage == FailureStage::Timeout
    }

    /// Tells whether no server could be selected, after waiting for one.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.stage == FailureStage::Unreachable
    }

    /// Tells whether the extent of what the command did is unknown.
    pub(crate) fn is_reply_lost(&self) -> bool {
        matches!(self.stage, FailureStage::Network | FailureStage::Timeout | FailureStage::InvalidReply)
            || self.code.is_some_and(codes::is_reply_lost)
    }

    /// Tells whether the command may still be on its way to the server, or at work there.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.stage, FailureStage::Network | FailureStage::Timeout) || self.code.is_some_and(codes::is_unanswered)
    }

    /// Tells whether a statement failed before doing anything. A statement that fails later has deleted documents that the
    /// reply's `n` leaves out, because `n` counts only statements that were carried out as a whole (mongo `write_ops_exec.cpp`,
    /// `performDeletes`).
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Tells whether a delete began too late, by the server's clock, for what it relies on. It may be sent again with a new
    /// reading of that clock.
    pub(crate) fn is_too_late(&self) -> bool {
        self.is_too_late
    }

    /// Tells whether the command can be sent again.
    pub(crate) fn is_retryable(&self) -> bool {
        use FailureStage::{Dns, Network, NotSent, Timeout, Unreachable};
        matches!(self.stage, Network | Timeout | Unreachable | NotSent | Dns)
            || self.is_labelled_retryable
            || self.code.is_some_and(codes::is_retryable)
    }

    /// Tells whether the same command may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_retryable()
            || self.has_code(codes::INTERNAL_ERROR)
            || self.overload.is_some_and(|overload| overload != Overload::TooLarge)
    }

    /// Tells whether a delete that ended like this can be sent again.
    pub(crate) fn is_retryable_delete(&self) -> bool {
        self.is_retryable() || self.code.is_some_and(codes::is_retryable_delete)
    }

    /// Returns the overload that a service reported, if it did.
    pub(crate) fn overload(&self) -> Option<Overload> {
        self.overload
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServerError {}

/// BSON errors may quote a value; the message does not.
impl From<bson::error::Error> for ServerError {
    fn from(_: bson::error::Error) -> Self {
        Self::other("a document cannot be written or read as BSON")
    }
}

/// Tells whether a gateway could not reach the server behind it.
fn is_unconnected(code: i32, message: &str) -> bool {
    code == codes::INTERNAL_ERROR && message.contains(NOT_CONNECTED)
}

/// Returns words for the error of a filter or of an expression in it. The server's own names the value on which an expression
/// failed.
fn of_expression(code: i32, message: &str) -> &'static str {
    if code == codes::INVALID_REGEX {
        "a regular expression of the filter is not valid"
    } else if codes::OF_FIELDS.contains(&code) {
        "the server does not take the fields of the command"
    } else if message.contains(WHILE_EXECUTING) {
        "an expression of the filter failed on a document"
    } else {
        "the filter is not valid, or an expression of it failed on a document"
    }
}

/// Puts a server's message and code together.
fn coded(message: &str, code: i32, code_name: &str) -> String {
    let message = if is_too_late(message) {
        "it came to the server too late for its lease, its holds or its look at the parents: it was long on its way, or the clock of the server was set, \
         or the clocks of two members differ"
    } else if code == codes::COLLECTION_UUID_MISMATCH {
        "the collection was dropped, renamed or replaced"
    } else if code == codes::SHARD_KEY_CHANGE {
        "the document that is there has another shard key, and a replacement may not change it"
    } else if codes::is_of_expression(code) || (codes::OF_VALUES.contains(&code) && message.contains(WHILE_EXECUTING)) {
        of_expression(code, message)
    } else if message.contains(NO_TABLE_SCAN) {
        "the server goes through no collection (`notablescan`), and no index serves the query; create one on the field of the date"
    } else if message.contains(NO_SUCH_HINT) {
        // Servers list an index from the beginning of its build, long before they can use it.
        "the index is still being built, was dropped during the run, or is missing on one of the shards; try again when it is ready"
    } else {
        message
    };
    if let Some(state) = codes::sqlstate(code) {
        return format!("{} (SQLSTATE {state})", brief(message));
    }
    match code_name {
        "" => format!("{} (code {code})", brief(message)),
        name => format!("{} (code {code}, {name})", brief(message)),
    }
}

/// Returns the part of a server's message that states the cause. Many messages quote the command or the query with its values, so
/// nothing is shown from the first brace, bracket or quotation mark on.
pub(crate) fn brief(message: &str) -> String {
    // Avoids an apostrophe that would count as a quotation mark, as in "can't $divide by zero".
    let message = message.replace("can't ", "cannot ");
    let why = message.rsplit("caused by :: ").next().unwrap_or_default();
    let line = why.lines().next().unwrap_or_default();
    let line = line.split(['{', '[', '\'', '"']).next().unwrap_or(line);
    let line = line.split(". labels: ").next().unwrap_or(line);
    let line = line.trim().trim_end_matches(" to execute command").trim_end_matches(['.', ':', ' ']);
    match line.char_indices().nth(300) {
        Some((cut, _)) => format!("{}...", &line[..cut]),
        None => line.to_owned(),
    }
}
