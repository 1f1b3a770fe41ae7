//! The one place from which documents are deleted.

pub(crate) mod document_match;
pub(crate) mod fence;
pub(crate) mod grant;
pub(crate) mod restriction;
pub(crate) mod shard_key;
pub(crate) mod statement;

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
    /// Whether a service without room did not say how much it had deleted before: nothing, unless the next attempt finds less than it asks for.
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
        let uncounted = matches!(cause.overload(), Some(Overload::Throttled { .. }));
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
        // Deletes have no other time limit than that of a lease.
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
/// Every statement repeats the predicate next to the restriction: a document whose date, ttl or filter field has changed since it
/// was found survives, and a document with the same `_id` on another shard is deleted only if it has expired too. Sending the
/// command twice is harmless. With a fence the command takes effect only within the time of a lease, as far as the flavor can tell; on every flavor it
/// ends when the returned future is dropped.
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
    /// Creates the reply to a command that may have been carried out or not, and is no longer waited for. `waited` is the time since the sweep
    /// had to end.
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

/// Reads a reply. Its `n` counts even if there are errors: other statements than a failed one have been carried out.
pub(crate) fn read(reply: &Document) -> Reply {
    let concern = ServerError::of_write_concern(reply);
    let unconfirmed = concern.is_some();
    let error = match (ServerError::of_write(reply), concern) {
        (Some(cause), _) => Some(DeleteError::of_statement(&cause)),
        (None, concern) => concern.as_ref().map(DeleteError::of_write_concern),
    };
    let election = reply.get_object_id("electionId").ok();
    Reply { deleted: count_in(reply, "n").unwrap_or(0), unconfirmed, election, error }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;
    use crate::core::facts::ServerFacts;
    use crate::core::flavor::Flavor;
    use crate::shell::server::delete::grant::Consent;
    use crate::testing::made_up::planned;
    use crate::testing::scripted::{Script, ScriptedReply};

    #[tokio::test]
    async fn a_delete_under_a_lease_says_by_when_it_has_to_be_done() {
        let rule = planned("", 3).decision.countable().unwrap().clone();
        let restriction = Restriction::One(RawValue::of(7).unwrap());
        let fence = Fence { begins_before: DateTime::from_millis(9_000), max_time: Some(Duration::from_secs(20)) };
        for (flavor, fence, is_fenced, max_time) in [
            (Flavor::MongoDb, Some(&fence), true, Some(20_000)),
            // `$$NOW` is refused there.
            (Flavor::DocumentDb, Some(&fence), false, Some(20_000)),
            (Flavor::CosmosRu, Some(&fence), false, None),
            (Flavor::AmazonDocumentDb, Some(&fence), false, None),
            (Flavor::MongoDb, None, false, None),
        ] {
            let script = Script::new([ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 })]);
            let mut deployment = script.deployment();
            deployment.facts.capabilities = flavor.capabilities(21);
            let grant = DeleteGrant::new(false, Consent::NotAsked).unwrap();
            let reply = delete(&deployment, &rule.selection, &restriction, &doc! {}, fence, &grant).await;
            assert_eq!(reply.deleted, 1);
            let sent = &script.sent()[0];
            let query = sent.get_array("deletes").unwrap()[0].as_document().unwrap().get_document("q").unwrap().to_string();
            let predicate = doc! { "$and": [{ "_id": 7 }, &rule.selection.predicate] }.to_string();
            assert!(query.contains(&predicate), "{query}");
            assert_eq!(query.contains("\"$$NOW\""), is_fenced, "{query}");
            assert_eq!(sent.get("maxTimeMS"), max_time.map(Bson::Int64).as_ref(), "{flavor:?}");
        }
    }

    #[test]
    fn a_delete_that_its_lease_cuts_short_is_told_from_one_that_fails() {
        let rule = planned("", 3).decision.countable().unwrap().clone();
        // A whole command that was cut says nothing of what it deleted (seen with 6.0.5); a smaller one may be done in time.
        let cut = ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", "");
        let error = DeleteError::of_command(&cut, &rule.selection);
        assert_eq!((error.overload, error.retryable, error.reply_lost), (Some(Overload::TimedOut), true, true));
        assert!(!error.unanswered && !error.confirmation_cut);
        let waiting = |code| {
            let concern = doc! { "code": code, "errmsg": "operation exceeded time limit" };
            read(&doc! { "n": 7, "ok": 1.0, "writeConcernError": concern })
        };
        let unconfirmed = waiting(codes::MAX_TIME_MS_EXPIRED);
        let error = unconfirmed.error.unwrap();
        assert_eq!((unconfirmed.deleted, unconfirmed.unconfirmed, error.confirmation_cut), (7, true, true));
        assert!(!error.reply_lost && error.overload.is_none() && !error.confirmation_timed_out);
        assert!(!waiting(codes::WRITE_CONCERN_TIMEOUT).error.unwrap().confirmation_cut);
        let lost = DeleteError::of_command(&ServerError::timeout(Duration::from_secs(1)), &rule.selection);
        assert!(lost.unanswered && lost.reply_lost && lost.retryable && !lost.given_up);
        for reply in [Reply::given_up(Duration::from_secs(10)), Reply::out_of_lease()] {
            let error = reply.error.unwrap();
            assert!(error.unanswered && error.given_up && error.reply_lost && !error.retryable, "{error:?}");
        }
    }

    #[test]
    fn every_statement_has_the_collation_of_its_rule_and_the_hint_that_the_service_takes() {
        let mut rule = planned("", 3).decision.countable().unwrap().clone();
        rule.selection.collation = Some(doc! { "locale": "en", "strength": 2 });
        let restriction = Restriction::Ids([1, 2].map(|id| RawValue::of(id).unwrap()).into());
        for (flavor, statements, has_hint) in
            [(Flavor::MongoDb, 1, true), (Flavor::CosmosRu, 1, false), (Flavor::DocumentDb, 2, false)]
        {
            let deployment = Deployment { facts: ServerFacts::made_up(flavor, "7.0.0", 21), ..Script::new([]).deployment() };
            let command = command(&deployment, &rule.selection, &restriction, &doc! { "w": "majority" }, None).unwrap();
            let command = Document::try_from(&*command).unwrap();
            let deletes: Vec<_> = command.get_array("deletes").unwrap().iter().map(|one| one.as_document().unwrap()).collect();
            assert_eq!(deletes.len(), statements, "{flavor:?}");
            for delete in deletes {
                assert_eq!(delete.get_document("collation").ok(), rule.selection.collation.as_ref(), "{flavor:?}");
                assert_eq!((delete.contains_key("hint"), delete.get_i32("limit").unwrap()), (has_hint, 0), "{flavor:?}");
            }
            // One that fails keeps the others from being carried out only where there are no others.
            assert_eq!(command.get_bool("ordered").unwrap(), statements == 1, "{flavor:?}");
            assert_eq!(command.get_document("writeConcern").unwrap(), &doc! { "w": "majority" });
        }
    }

    #[test]
    fn a_delete_names_the_uuid_of_the_collection_to_which_its_rule_is_bound() {
        let rule = planned("", 3).decision.countable().unwrap().clone();
        let restriction = Restriction::One(RawValue::of(7).unwrap());
        let deployment = Script::new([]).deployment();
        for (deployment, uuid) in [(deployment.bound_to(&rule), rule.selection.uuid), (deployment, None)] {
            let command = command(&deployment, &rule.selection, &restriction, &doc! {}, None).unwrap();
            let command = Document::try_from(&*command).unwrap();
            assert_eq!(command.get("collectionUUID"), uuid.map(Bson::from).as_ref());
        }
    }

    #[test]
    fn n_counts_in_every_reply() {
        let plain = read(&doc! { "n": 3, "ok": 1.0 });
        assert_eq!(plain, Reply { deleted: 3, unconfirmed: false, election: None, error: None });
        let election = ObjectId::from_bytes([7; 12]);
        assert_eq!(read(&doc! { "n": 3, "electionId": election, "ok": 1.0 }).election, Some(election));
        let half = read(&doc! { "n": 2.0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 189, "errmsg": "stepped down" }] });
        assert_eq!(half.deleted, 2);
        let error = half.error.unwrap();
        assert_eq!((error.message.as_str(), error.retryable, error.reply_lost), ("stepped down (code 189)", true, true));
        let several = [(9, "cannot be parsed"), (16_777_220, "could not serialize"), (2, "bad value"), (16_908_292, "deadlock")];
        for (skipped, message, retryable) in
            [(0, "cannot be parsed (code 9)", false), (1, "bad value (code 2)", false), (3, "deadlock (SQLSTATE 40P01)", true)]
        {
            let errors = several[skipped..].iter().map(|(code, why)| doc! { "index": 0, "code": *code, "errmsg": *why });
            let reply = read(&doc! { "n": 7, "ok": 1.0, "writeErrors": errors.collect::<Vec<_>>() });
            let error = reply.error.unwrap();
            assert_eq!((reply.deleted, error.message.as_str(), error.retryable), (7, message, retryable));
        }
        let refused = read(&doc! { "n": 0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 10107, "errmsg": "not primary" }] });
        assert!(!refused.error.unwrap().reply_lost);
        let unconfirmed = read(
            &doc! { "n": 7_i64, "ok": 1.0, "writeConcernError": { "code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting" } },
        );
        assert_eq!((unconfirmed.deleted, unconfirmed.unconfirmed, half.unconfirmed), (7, true, false));
        let error = unconfirmed.error.unwrap();
        assert!(error.message.contains("WriteConcernTimeout") && !error.retryable && error.confirmation_timed_out, "{error:?}");
    }

    #[test]
    fn a_command_that_no_server_takes_may_go_in_parts_and_one_without_room_is_not_counted() {
        let error = DeleteError::too_large(MAX_COMMAND_BYTES + 1);
        assert_eq!((error.overload, error.retryable, error.reply_lost), (Some(Overload::TooLarge), false, false));
        assert_eq!(error.message, "a delete command of 16.00 MiB is too large, 16.00 MiB are allowed");
        let rule = planned("", 3).decision.countable().unwrap().clone();
        let of = |code, message: &str| DeleteError::of_command(&ServerError::reported(code, message, ""), &rule.selection);
        let statement = |code, message: &str| DeleteError::of_statement(&ServerError::reported(code, message, ""));
        for (code, message, retryable, reply_lost) in [
            (189, "stepped down", true, true),
            (codes::BAD_VALUE, "bad value", false, true),
            (codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", true, true),
            (16_500, "Request rate is large", true, false),
        ] {
            let error = statement(code, message);
            assert_eq!((error.retryable, error.reply_lost, error.unanswered), (retryable, reply_lost, false), "{message}");
        }
        let late = "Failed to parse number 'sweeper: the time of this delete is over' in $convert with no onError value";
        assert!(of(codes::CONVERSION_FAILURE, late).too_late);
        for (code, message, uncounted) in
            [(16_500, "Request rate is large", true), (50, "Request timed out.", false), (codes::UNAUTHORIZED, "no", false)]
        {
            assert_eq!((of(code, message).uncounted, of(code, message).too_late), (uncounted, false), "{code}");
        }
    }
}
