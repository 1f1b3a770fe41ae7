//! Puts documents back: inserts those that are missing, and keeps or replaces those that are there.

use std::collections::{BTreeMap, HashMap};

use super::document_match::DocumentState;
use super::error::{Result, ServerError};
use super::find::Query;
use super::retry::Retries;
use super::transport::ServerCommand;
use super::{Deployment, catalog, codes};
use crate::facts::CollectionKind;
use crate::policy::namespace::Namespace;
use crate::values::count_in;
use bson::raw::{RawBson, RawBsonRef, cstr};
use bson::{Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, Timestamp, doc};

/// The treatment of documents whose `_id` exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    Keep,
    Replace,
}

/// The outcome of putting documents back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Put {
    pub inserted: u64,
    pub replaced: u64,
    /// Present already, and the same byte by byte.
    pub same: u64,
    /// Present already, but different, and kept as it is.
    pub different: u64,
    /// Another document has the same value in a unique index.
    pub conflicts: u64,
    /// Refused by the server.
    pub refused: u64,
    /// The reason why the first of them was refused.
    pub why: Option<String>,
    /// Whether a reply was lost, so that more may have been inserted or replaced.
    pub is_uncertain: bool,
    /// The reason why the members have not confirmed the writes.
    pub unconfirmed: Option<String>,
}

/// Returns the reason why documents should not be put back into this collection; `None` if they can be, or the collection is
/// missing.
pub(crate) async fn unsuitable(deployment: &Deployment, namespace: &Namespace) -> Result<Option<&'static str>> {
    let found = catalog::collection(deployment, namespace).await?;
    Ok(match found.map(|collection| collection.kind) {
        Some(CollectionKind::Capped) => Some("the collection is capped, and would drop other documents to make room"),
        Some(CollectionKind::View) => Some("a view holds no documents of its own"),
        Some(CollectionKind::TimeSeries(_)) => Some("a time-series collection does not keep documents as they are"),
        Some(CollectionKind::Plain | CollectionKind::Clustered | CollectionKind::CosmosRu) | None => None,
    })
}

/// Puts documents back, no two of which have the same `_id`. With `dry` nothing is written, only counted.
pub(crate) async fn put(
    deployment: &Deployment,
    namespace: &Namespace,
    documents: &[RawDocumentBuf],
    present: Present,
    dry: bool,
    put: &mut Put,
) -> Result<()> {
    let there = existing(deployment, namespace, documents).await?;
    let mut missing = Vec::new();
    let mut different = Vec::new();
    for document in documents {
        match there.get(&key(document)) {
            Some(existing) if existing == document => put.same += 1,
            Some(_) => different.push(document),
            None => missing.push(document),
        }
    }
    if dry {
        put.inserted += missing.len() as u64;
    } else {
        for Failed { index, cause } in insert(deployment, namespace, &missing, put).await? {
            let Some(document) = missing.get(index) else { continue };
            if !cause.has_code(codes::DUPLICATE_KEY) {
                put.refused += 1;
                put.why.get_or_insert_with(|| cause.to_string());
                continue;
            }
            // Servers name the index in different ways, so the documents are compared instead.
            let found = existing(deployment, namespace, std::slice::from_ref(*document)).await?;
            match found.into_values().next() {
                Some(existing) if existing == **document => put.same += 1,
                Some(_) => different.push(document),
                None => put.conflicts += 1,
            }
        }
    }
    if present == Present::Keep {
        put.different += different.len() as u64;
    } else if dry {
        put.replaced += different.len() as u64;
    } else {
        for document in different {
            match replace(deployment, namespace, document, put).await? {
                Ok(replaced) => put.replaced += replaced,
                Err(cause) if cause.has_code(codes::DUPLICATE_KEY) => put.conflicts += 1,
                Err(cause) => {
                    put.refused += 1;
                    put.why.get_or_insert_with(|| cause.to_string());
                }
            }
        }
    }
    Ok(())
}

/// Returns the bytes of the `_id`, with its type.
fn key(document: &RawDocument) -> Vec<u8> {
    let mut key = RawDocumentBuf::new();
    if let Ok(Some(id)) = document.get("_id") {
        key.append(cstr!(""), id);
    }
    key.into_bytes()
}

/// Reads the documents of the collection that have the same `_id`s as these.
async fn existing(
    deployment: &Deployment,
    namespace: &Namespace,
    documents: &[RawDocumentBuf],
) -> Result<HashMap<Vec<u8>, RawDocumentBuf>> {
    let ids: RawArrayBuf = documents.iter().filter_map(|document| Some(RawBson::from(document.get("_id").ok()??))).collect();
    let mut of_ids = RawDocumentBuf::new();
    of_ids.append(cstr!("$in"), RawBson::Array(ids));
    let mut filter = RawDocumentBuf::new();
    filter.append(cstr!("_id"), RawBson::Document(of_ids));
    let found = Query::find(namespace, filter).all_raw(deployment).await?;
    Ok(found.into_iter().map(|document| (key(&document), document)).collect())
}

/// A document that was not inserted.
struct Failed {
    index: usize,
    cause: ServerError,
}

impl Failed {
    /// Notes a refusal. A document that is there after an attempt without a whole reply was inserted by that attempt, or by somebody else.
    fn new(index: usize, cause: ServerError, was_sent_before: bool, put: &mut Put) -> Self {
        put.is_uncertain |= was_sent_before && cause.has_code(codes::DUPLICATE_KEY);
        Self { index, cause }
    }
}

/// Inserts documents, and counts those that a reply calls inserted; returns those that were refused.
async fn insert(
    deployment: &Deployment,
    namespace: &Namespace,
    documents: &[&RawDocumentBuf],
    put: &mut Put,
) -> Result<Vec<Failed>> {
    // The server replaces an empty timestamp by its time, unless the document is the result of an expression.
    let (empty, plain): (Vec<_>, Vec<_>) = documents.iter().enumerate().partition(|(_, document)| has_empty_timestamp(document));
    let mut failed = insert_plain(deployment, namespace, &plain, put).await?;
    for (index, document) in empty {
        // Matches nothing, so that it can only insert.
        let never = RawDocumentBuf::try_from(&doc! { "$nor": [{}] })?;
        let update = update(namespace, never, as_it_is(document), true);
        let Updated { n, refused, was_sent_before } = update_one(deployment, namespace, update, put).await?;
        put.inserted += n;
        failed.extend(refused.map(|cause| Failed::new(index, cause, was_sent_before, put)));
    }
    Ok(failed)
}

/// Inserts documents as they are, each given with its index. Those that a service had no room for are sent again, as long as it takes some of
/// them each time.
async fn insert_plain(
    deployment: &Deployment,
    namespace: &Namespace,
    documents: &[(usize, &&RawDocumentBuf)],
    put: &mut Put,
) -> Result<Vec<Failed>> {
    let (mut left, mut failed) = (documents.to_vec(), Vec::new());
    let (mut retries, mut was_sent_before, mut is_reply_lost) = (Retries::several(), false, false);
    while !left.is_empty() {
        let list: RawArrayBuf = left.iter().map(|(_, document)| RawBson::Document((***document).clone())).collect();
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("insert"), namespace.collection.as_str());
        command.append(cstr!("documents"), RawBson::Array(list));
        command.append(cstr!("ordered"), false);
        let (inserted, mut errors) = match write_once(deployment, namespace, command, put).await {
            Ok(written) => written,
            Err(cause) => {
                is_reply_lost |= cause.is_reply_lost();
                if !cause.may_pass() {
                    put.is_uncertain |= is_reply_lost;
                    return Err(cause);
                }
                (0, (0..left.len()).map(|at| (at, cause.clone())).collect())
            }
        };
        let passing = errors.values().find(|cause| cause.may_pass()).cloned();
        // A service that ran out of room may leave the rest of a command out, without a word about each document.
        let is_silent_on_some = passing.is_some() && inserted + errors.len() as u64 != left.len() as u64;
        let mut again = Vec::new();
        for (at, (index, document)) in left.into_iter().enumerate() {
            match errors.remove(&at) {
                Some(cause) if !cause.may_pass() => failed.push(Failed::new(index, cause, was_sent_before, put)),
                None if !is_silent_on_some => put.inserted += 1,
                _ => again.push((index, document)),
            }
        }
        left = again;
        if let Some(cause) = passing {
            if inserted > 0 {
                retries = Retries::several();
            }
            let Some(wait) = retries.wait(&cause) else {
                put.is_uncertain |= is_reply_lost;
                return Err(cause);
            };
            tokio::time::sleep(wait).await;
            was_sent_before = true;
        }
    }
    Ok(failed)
}

fn has_empty_timestamp(document: &RawDocument) -> bool {
    let empty = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });
    document.iter().flatten().any(|(_, value)| value == empty)
}

/// Replaces the document with the same `_id`; returns the number of documents that were there, or the error with which it was
/// refused.
async fn replace(
    deployment: &Deployment,
    namespace: &Namespace,
    document: &RawDocumentBuf,
    put: &mut Put,
) -> Result<std::result::Result<u64, ServerError>> {
    let mut filter = RawDocumentBuf::new();
    if let Ok(Some(id)) = document.get("_id") {
        filter.append(cstr!("_id"), id);
    }
    let is_plain = !has_empty_timestamp(document) && !document.iter().flatten().any(|(name, _)| name.as_str().starts_with('$'));
    let with = if is_plain {
        RawBson::Document(document.clone())
    } else if DocumentState::new(document.clone()).is_none() {
        // No sweep has archived such a document. For the oplog the server computes a difference from the result of an expression,
        // and ends itself (an invariant, seen on 6.0) if a name occurs twice.
        let why = "it has an empty timestamp or a name with `$`, and also two fields of one name or too deep nesting, which the server \
                   cannot write in a replacement";
        return Ok(Err(ServerError::other(why)));
    } else {
        as_it_is(document)
    };
    let Updated { n, refused, was_sent_before } =
        update_one(deployment, namespace, update(namespace, filter, with, false), put).await?;
    // Removed by somebody else, perhaps after the attempt whose reply was lost had replaced it.
    put.is_uncertain |= was_sent_before && n == 0;
    Ok(refused.map_or(Ok(n), Err))
}

/// Returns an expression that yields the document unchanged. With a plain document the server would set empty timestamps, and
/// refuse names that begin with `$`.
fn as_it_is(document: &RawDocumentBuf) -> RawBson {
    let mut literal = RawDocumentBuf::new();
    literal.append(cstr!("$literal"), RawBsonRef::Document(document));
    let mut stage = RawDocumentBuf::new();
    stage.append(cstr!("$replaceWith"), RawBson::Document(literal));
    RawBson::Array(RawArrayBuf::from_iter([RawBson::Document(stage)]))
}

/// Returns an update that replaces the document that the filter names.
fn update(namespace: &Namespace, filter: RawDocumentBuf, with: RawBson, upsert: bool) -> RawDocumentBuf {
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), RawBson::Document(filter));
    statement.append(cstr!("u"), with);
    statement.append(cstr!("upsert"), upsert);
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("update"), namespace.collection.as_str());
    command.append(cstr!("updates"), RawBson::Array(RawArrayBuf::from_iter([RawBson::Document(statement)])));
    command
}

/// The outcome of an update with one statement.
struct Updated {
    /// The server's `n`.
    n: u64,
    /// The error with which the document was refused.
    refused: Option<ServerError>,
    /// Whether an earlier attempt may have written the document.
    was_sent_before: bool,
}

/// Runs an update with one statement.
async fn update_one(deployment: &Deployment, namespace: &Namespace, command: RawDocumentBuf, put: &mut Put) -> Result<Updated> {
    let (mut retries, mut was_sent_before) = (Retries::several(), false);
    loop {
        let (cause, ended) = match write_once(deployment, namespace, command.clone(), put).await {
            Ok((n, mut errors)) => match errors.remove(&0) {
                None => return Ok(Updated { n, refused: None, was_sent_before }),
                Some(cause) => (cause.clone(), Ok(Updated { n, refused: Some(cause), was_sent_before })),
            },
            Err(cause) => (cause.clone(), Err(cause)),
        };
        was_sent_before |= cause.is_reply_lost();
        let Some(wait) = retries.wait(&cause) else {
            put.is_uncertain |= ended.is_err() && was_sent_before;
            return ended;
        };
        tokio::time::sleep(wait).await;
    }
}

/// Runs a write command, without a retry; returns the server's `n`, and the error of each document that was refused, by its index.
async fn write_once(
    deployment: &Deployment,
    namespace: &Namespace,
    mut command: RawDocumentBuf,
    put: &mut Put,
) -> Result<(u64, BTreeMap<usize, ServerError>)> {
    let concern = RawDocumentBuf::try_from(&deployment.write_concern)?;
    command.append(cstr!("writeConcern"), RawBson::Document(concern));
    if let Some(Bson::String(comment)) = deployment.comment() {
        command.append(cstr!("comment"), comment);
    }
    let reply: Document = deployment.send_once(ServerCommand::new(&namespace.database, command, deployment.patience())).await?;
    if let Some(why) = ServerError::of_write_concern(&reply) {
        put.unconfirmed = Some(why.to_string());
    }
    let errors = reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document).map(|failed| {
        let index = count_in(failed, "index").and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
        (index, ServerError::read(failed))
    });
    Ok((count_in(&reply, "n").unwrap_or(0), errors.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::scripted::{Script, ScriptedReply};

    fn documents(ids: &[i32]) -> Vec<RawDocumentBuf> {
        ids.iter().map(|id| RawDocumentBuf::try_from(&doc! { "_id": *id }).unwrap()).collect()
    }

    fn found(ids: &[i32]) -> [ScriptedReply; 2] {
        [ScriptedReply::Batch(ids.iter().map(|id| doc! { "_id": *id }).collect()), ScriptedReply::End]
    }

    fn throttled() -> Document {
        doc! { "code": 16500, "errmsg": "Error=16500, RetryAfterMs=30, Details=" }
    }

    fn reply(n: i32, errors: Vec<(i32, Document)>) -> ScriptedReply {
        let errors = errors.into_iter().map(|(index, mut error)| {
            error.insert("index", index);
            error
        });
        ScriptedReply::Reply(doc! { "n": n, "ok": 1.0, "writeErrors": errors.collect::<Vec<_>>() })
    }

    /// Restores the documents against a script; returns the outcome, and the `_id`s of each insert.
    async fn restored(ids: &[i32], answers: Vec<ScriptedReply>) -> (Result<Put>, Vec<Vec<i32>>) {
        let script = Script::new(found(&[]).into_iter().chain(answers));
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        let mut outcome = Put::default();
        let ended = put(&script.deployment(), &namespace, &documents(ids), Present::Keep, false, &mut outcome).await;
        let inserts = script.sent().into_iter().filter_map(|sent| {
            let documents = sent.get_array("documents").ok()?.iter();
            Some(documents.map(|document| document.as_document().unwrap().get_i32("_id").unwrap()).collect())
        });
        (ended.map(|()| outcome), inserts.collect())
    }

    #[tokio::test(start_paused = true)]
    async fn documents_that_the_service_had_no_room_for_are_sent_again() {
        let answers = vec![
            ScriptedReply::Error(ServerError::read(&throttled())),
            reply(1, vec![(1, throttled()), (2, throttled())]),
            reply(1, vec![(1, throttled())]),
            reply(1, vec![]),
        ];
        let (put, inserts) = restored(&[1, 2, 3], answers).await;
        assert_eq!(put, Ok(Put { inserted: 3, ..Put::default() }));
        assert_eq!(inserts, [vec![1, 2, 3], vec![1, 2, 3], vec![2, 3], vec![3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn documents_of_which_nothing_is_said_are_sent_again_and_not_called_inserted() {
        let duplicate = || doc! { "code": codes::DUPLICATE_KEY, "errmsg": "E11000 duplicate key error" };
        let lost = ServerError::new(crate::server::error::FailureStage::Network, "reset".into());
        let mut answers = vec![reply(1, vec![(1, throttled())]), ScriptedReply::Error(lost)];
        answers.push(reply(1, vec![(0, duplicate()), (2, doc! { "code": 121, "errmsg": "Document failed validation" })]));
        answers.extend(found(&[1]));
        let (put, inserts) = restored(&[1, 2, 3], answers).await;
        let why = Some("Document failed validation (code 121)".to_owned());
        assert_eq!(put, Ok(Put { inserted: 1, same: 1, refused: 1, why, is_uncertain: true, ..Put::default() }));
        assert_eq!(inserts, [vec![1, 2, 3], vec![1, 2, 3], vec![1, 2, 3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_inserted_before_an_error_stays_counted() {
        let script = Script::new(found(&[]).into_iter().chain([
            reply(1, vec![(1, throttled()), (2, throttled())]),
            ScriptedReply::Error(ServerError::reported(codes::UNAUTHORIZED, "no", "")),
        ]));
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        let mut outcome = Put::default();
        let ended = put(&script.deployment(), &namespace, &documents(&[1, 2, 3]), Present::Keep, false, &mut outcome).await;
        assert!(ended.is_err_and(|cause| cause.has_code(codes::UNAUTHORIZED)));
        assert_eq!(outcome, Put { inserted: 1, ..Put::default() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_that_is_gone_after_a_lost_reply_may_have_been_replaced() {
        let lost = || ScriptedReply::Error(ServerError::new(crate::server::error::FailureStage::Network, "reset".into()));
        let mut outcome = Put::default();
        for (n, is_uncertain) in [(1, false), (0, true)] {
            let there = [ScriptedReply::Batch(vec![doc! { "_id": 1, "other": true }]), ScriptedReply::End];
            let script = Script::new(there.into_iter().chain([lost(), reply(n, vec![])]));
            let namespace = Namespace { database: "app".into(), collection: "c".into() };
            outcome = Put::default();
            put(&script.deployment(), &namespace, &documents(&[1]), Present::Replace, false, &mut outcome).await.unwrap();
            assert_eq!((outcome.replaced, outcome.is_uncertain), (u64::try_from(n).unwrap(), is_uncertain));
        }
        assert_eq!(outcome, Put { is_uncertain: true, ..Put::default() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_takes_nothing_is_given_up() {
        let refusals = (0..100).map(|_| reply(0, vec![(0, throttled())])).collect();
        let (put, inserts) = restored(&[1], refusals).await;
        assert!(put.is_err() && inserts.len() == 21, "{put:?} {inserts:?}");
    }
}
