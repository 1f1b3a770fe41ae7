//! The one place from which documents are deleted.

pub(crate) mod document_match;
pub(crate) mod fence;
pub(crate) mod grant;
pub(crate) mod restriction;
pub(crate) mod shard_key;
pub(crate) mod statement;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, cstr};
use bson::{Bson, Document, RawDocumentBuf};

use super::Deployment;
use super::look::privileges;
use super::wire::codes;
use super::wire::error::ServerError;
use super::wire::overload::Overload;
use super::wire::transport::{Patience, ServerCommand};
use crate::base::text::bytes;
use crate::base::values::count_in;
use crate::base::values::raw::{self, RawValue};
use crate::core::plan::Selection;
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::fence::Fence;
use grant::DeleteGrant;
use restriction::Restriction;
use statement::{AROUND_QUERY, Statement, statements};

/// Maximum size of a command in bytes; the server takes 16 KB more (`BSONObjMaxInternalSize`).
const MAX_COMMAND_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that a command may take around its statements. One that takes more is moved while it is written.
const AROUND_COMMAND: usize = 1024;

/// The result of one delete command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// The server's `n`: the documents that are known to have been deleted.
    pub deleted: u64,
    /// Whether the write concern was not met: a rollback may restore the documents.
    pub unconfirmed: bool,
    /// The election of the primary that carried the command out: the server's `electionId`, which mongod sends in a replica set.
    pub election: Option<ObjectId>,
    /// The reason why the command did not do all of its work; `None` if it did.
    pub error: Option<DeleteError>,
}

/// The failure of a delete command, or of a part of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct DeleteError {
    pub message: String,
    /// Whether the same command can be sent again.
    pub retryable: bool,
    /// Whether the command may have deleted more than `Reply::deleted`.
    pub reply_lost: bool,
    /// Whether the command may still be on its way, or at work.
    pub unanswered: bool,
    /// Whether the delete was done on the primary, but not confirmed by the members in time.
    pub confirmation_timed_out: bool,
    /// Whether the time that the lease had left ended the wait for the members: it goes on as long as the lease is renewed.
    pub confirmation_cut: bool,
    /// The state of a service under too much load, as it reports it.
    pub overload: Option<Overload>,
    /// Whether a service without room did not say how much it had deleted before: nothing, unless the next attempt finds less
    /// than it asks for.
    pub uncounted: bool,
    /// Whether the reply was no longer waited for, because the sweep had to end.
    pub given_up: bool,
    /// Whether it was too late to begin, by the server's clock. What the delete relies on is then read again, with that clock.
    pub too_late: bool,
}

impl DeleteError {
    /// Creates an error after which the command is not sent again, and nothing was deleted beyond the known number.
    pub(crate) fn fatal(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// Creates the error of a command that no server takes. Parts of it may be small enough.
    fn too_large(size: usize) -> Self {
        let message =
            format!("a delete command of {} is too large, {} are allowed", bytes(size as u64), bytes(MAX_COMMAND_BYTES as u64));
        Self { overload: Some(Overload::TooLarge), ..Self::fatal(message) }
    }

    /// Creates the error of a command whose reply is no longer waited for.
    fn given_up(message: String) -> Self {
        Self { reply_lost: true, unanswered: true, given_up: true, ..Self::fatal(message) }
    }

    /// Creates the error of a command that failed as a whole.
    fn of_command(cause: &ServerError, selection: &Selection) -> Self {
        let message = privileges::explain(cause, &selection.namespace, &["remove"]);
        let uncounted = matches!(cause.overload(), Some(Overload::Throttled { .. })) && !cause.is_refused();
        let (retryable, reply_lost, unanswered) = (cause.is_retryable_delete(), cause.is_reply_lost(), cause.is_unanswered());
        let too_late = cause.is_too_late();
        Self { retryable, reply_lost, unanswered, uncounted, too_late, ..Self::fatal(message) }.overloaded(cause)
    }

    /// Creates the error of a statement that failed.
    fn of_statement(cause: &ServerError) -> Self {
        // An overloaded service reports the number of documents that it deleted before.
        let reply_lost = cause.overload().is_none() && !cause.is_refused();
        let (retryable, unanswered) = (cause.is_retryable_delete(), cause.is_unanswered());
        let too_late = cause.is_too_late();
        Self { retryable, reply_lost, unanswered, too_late, ..Self::fatal(cause.to_string()) }.overloaded(cause)
    }

    /// Creates the error of a write concern that was not met.
    fn of_write_concern(cause: &ServerError) -> Self {
        let message = format!(
            "deleted on the primary, but the write concern was not reached, and a fail-over may bring documents back: {cause}"
        );
        let confirmation_timed_out = cause.has_code(codes::WRITE_CONCERN_TIMEOUT);
        // Deletes have no other time limit than the limit of a lease.
        let confirmation_cut = cause.has_code(codes::MAX_TIME_MS_EXPIRED);
        Self { retryable: cause.is_retryable(), confirmation_timed_out, confirmation_cut, ..Self::fatal(message) }
    }

    /// Adds the service's report on its load, and the conclusions from it.
    fn overloaded(self, cause: &ServerError) -> Self {
        // A batch that was too large for the time of its lease may succeed in parts.
        let overload = cause.overload().or(cause.has_code(codes::MAX_TIME_MS_EXPIRED).then_some(Overload::TimedOut));
        let lost = matches!(overload, Some(Overload::TimedOut | Overload::CacheFull));
        Self { overload, retryable: self.retryable || overload.is_some(), reply_lost: self.reply_lost || lost, ..self }
    }
}

/// Deletes the documents that the restriction names and that match the whole predicate of their rule.
///
/// Every statement repeats the predicate next to the restriction: a document whose date, ttl or filter field has changed since
/// it was found survives. A document with the same `_id` on another shard is deleted only if it has expired too. Sending the
/// command twice is harmless. With a fence the command takes effect only within the time of a lease, as far as the flavor can
/// tell. On every flavor the command ends when the returned future is dropped.
pub(crate) async fn delete(
    deployment: &Deployment,
    selection: &Selection,
    restriction: &Restriction,
    write_concern: &Document,
    fence: Option<&Fence>,
    _grant: &DeleteGrant,
) -> Reply {
    let command = match command(deployment, selection, restriction, write_concern, fence) {
        Ok(command) => command,
        Err(cause) => return failed(DeleteError::fatal(format!("building the delete command: {cause}"))),
    };
    if command.as_bytes().len() > MAX_COMMAND_BYTES {
        return failed(DeleteError::too_large(command.as_bytes().len()));
    }
    // A batch is bounded, so a delete that takes longer is not waited for.
    let patience = Patience::Limit(deployment.command_timeout);
    let command = ServerCommand::new(&selection.namespace.database, command, patience);
    let command = command.extent(restriction.extent()).ends_unawaited();
    match deployment.send_once(command).await {
        Ok(reply) => read(&reply),
        Err(cause) => failed(DeleteError::of_command(&cause, selection)),
    }
}

impl Reply {
    /// Creates the reply to a command that may have been carried out or not, and is no longer waited for. `waited` is the time
    /// since the sweep had to end.
    pub(crate) fn given_up(waited: Duration) -> Self {
        failed(DeleteError::given_up(format!("no answer to a delete within {} s after the sweep had to end", waited.as_secs())))
    }

    /// Creates the reply of a command that may not be sent, for this reason.
    pub(crate) fn not_sent(why: String) -> Self {
        failed(DeleteError::fatal(why))
    }

    /// Creates the reply to a command whose lease ended before it was answered.
    pub(crate) fn out_of_lease() -> Self {
        failed(DeleteError::given_up("no answer to a delete before the end of its lease".to_owned()))
    }
}

fn failed(error: DeleteError) -> Reply {
    Reply { deleted: 0, unconfirmed: false, election: None, error: Some(error) }
}

fn command(
    deployment: &Deployment,
    selection: &Selection,
    restriction: &Restriction,
    write_concern: &Document,
    fence: Option<&Fence>,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let capabilities = &deployment.facts.capabilities;
    let one_by_one = !capabilities.deletes_by_id_list;
    let fenced = fence.filter(|_| capabilities.delete_clocks).map(fence::in_time).transpose()?;
    let collation = selection.collation.as_ref().map(RawDocumentBuf::try_from).transpose()?;
    let statements = statements(restriction, selection, one_by_one)?;
    let options_of = |statement: &Statement| {
        let mut options = RawDocumentBuf::new();
        options.append(cstr!("limit"), statement.limit);
        if capabilities.delete_hints {
            // Without a hint the planner may walk all expired documents for every batch of `_id`s, or all documents for every
            // range.
            options.append(cstr!("hint"), statement.hint.clone());
        }
        if let Some(collation) = &collation {
            options.append(cstr!("collation"), RawBsonRef::Document(collation));
        }
        options
    };
    let mut options = RawDocumentBuf::new();
    // Statements for one document each do not depend on each other: one that fails keeps no other from being carried out.
    options.append(cstr!("ordered"), !one_by_one);
    options.append(cstr!("writeConcern"), RawBson::Document(RawDocumentBuf::try_from(write_concern)?));
    if let Some(max_time) = fence.and_then(|fence| fence.max_time).filter(|_| capabilities.delete_time_limits) {
        options.append(cstr!("maxTimeMS"), i64::try_from(max_time.as_millis()).unwrap_or(i64::from(i32::MAX)));
    }
    let Namespace { database, collection } = &selection.namespace;
    if let Some(uuid) = deployment.bound.uuid(database, collection) {
        options.append(cstr!("collectionUUID"), RawBson::try_from(Bson::from(uuid))?);
    }
    if let Some(Bson::String(comment)) = deployment.comment() {
        options.append(cstr!("comment"), comment);
    }
    let collection = RawValue::of(collection.as_str())?;
    let capacity = statements.iter().map(|statement| statement.bytes() + 2 * AROUND_QUERY).sum::<usize>() + AROUND_COMMAND;
    raw::written(capacity, |command| {
        command.value(cstr!("delete"), &collection);
        command.documents(cstr!("deletes"), statements.len(), |delete, n| {
            delete.document(cstr!("q"), |query| statements[n].write(query, fenced.as_deref()));
            delete.all_of(&options_of(&statements[n]));
        });
        command.all_of(&options);
    })
}

/// Reads a reply. Its `n` counts even if there are errors: other statements than a failed one have been carried out. A reply
/// without `n` leaves open what was deleted.
pub(crate) fn read(reply: &Document) -> Reply {
    let concern = ServerError::of_write_concern(reply);
    let unconfirmed = concern.is_some();
    let deleted = count_in(reply, "n");
    let error = match (ServerError::of_write(reply), concern) {
        (Some(cause), _) => Some(DeleteError::of_statement(&cause)),
        (None, None) if deleted.is_none() => {
            let why = "the reply cannot be read: it does not say how much was deleted";
            Some(DeleteError::of_statement(&ServerError::invalid_reply(why)))
        }
        (None, concern) => concern.as_ref().map(DeleteError::of_write_concern),
    };
    let election = reply.get_object_id("electionId").ok();
    Reply { deleted: deleted.unwrap_or(0), unconfirmed, election, error }
}
