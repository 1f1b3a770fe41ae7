//! Inserts and replaces documents as they are, byte by byte, and tells what the server did with each.

use std::collections::BTreeMap;

use super::identity::Identity;
use crate::base::values::{count_in, raw};
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::delete::document_match::DocumentState;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::retry::Retries;
use crate::shell::server::wire::transport::ServerCommand;
use bson::raw::{RawBson, RawBsonRef, cstr};
use bson::{Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, Timestamp, doc};

/// The outcome of putting documents back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Put {
    pub inserted: u64,
    pub replaced: u64,
    /// Present already, and the same byte by byte.
    pub same: u64,
    /// Present already, but different, and kept as it is.
    pub different: u64,
    /// Those of them that have another shard key than the archived document: it was another document.
    pub twins: u64,
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

impl Put {
    /// Returns the number of documents that are in a count. Each is in one.
    pub(crate) fn counted(&self) -> u64 {
        self.inserted + self.replaced + self.same + self.different + self.conflicts + self.refused
    }

    /// Counts a document that was left out for another one with its `_id`.
    pub(crate) fn leave_out(&mut self) {
        (self.different, self.twins) = (self.different + 1, self.twins + 1);
    }

    /// Counts a document that the server refused.
    pub(crate) fn refuse(&mut self, why: impl ToString) {
        self.refused += 1;
        self.why.get_or_insert_with(|| why.to_string());
    }
}

/// A document that was not inserted.
pub(crate) struct Failed {
    pub index: usize,
    pub cause: ServerError,
}

impl Failed {
    /// Notes a refusal. A document that is there after an attempt without a whole reply was inserted by that attempt, or by
    /// somebody else.
    fn new(index: usize, cause: ServerError, was_sent_before: bool, put: &mut Put) -> Self {
        put.is_uncertain |= was_sent_before && cause.has_code(codes::DUPLICATE_KEY);
        Self { index, cause }
    }
}

/// Inserts documents, and counts those that a reply calls inserted; returns those that were refused.
pub(crate) async fn insert(
    deployment: &Deployment,
    namespace: &Namespace,
    identity: &Identity,
    documents: &[&RawDocumentBuf],
    put: &mut Put,
) -> Result<Vec<Failed>> {
    // The server replaces an empty timestamp by its time, unless the document is the result of an expression.
    let (empty, plain): (Vec<_>, Vec<_>) = documents.iter().enumerate().partition(|(_, document)| has_empty_timestamp(document));
    let mut failed = insert_plain(deployment, namespace, &plain, put).await?;
    for (index, document) in empty {
        // Matches nothing, so that it can only insert. A router takes it for the shard key in it: code 61 otherwise (mongo
        // s/chunk_manager_targeter.cpp, `targetUpdate`).
        let never = raw::joined(&[&identity.filter(document)?, &RawDocumentBuf::try_from(&doc! { "$nor": [{}] })?])?;
        let update = update(namespace, identity, never, as_it_is(document), true)?;
        let Updated { n, refused, was_sent_before, .. } = update_one(deployment, namespace, update, put).await?;
        put.inserted += n;
        match refused {
            Some(cause) => failed.push(Failed::new(index, cause, was_sent_before, put)),
            None if n == 1 => {}
            None => return Err(ServerError::invalid_reply(&format!("the reply to an upsert counts {n} documents"))),
        }
    }
    Ok(failed)
}

/// Inserts documents as they are, each given with its index. Those that a service had no room for are sent again, as long as it
/// takes some of them each time.
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
            Ok(written) => (written.n, written.errors),
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
        let is_silent_on_some = inserted + errors.len() as u64 != left.len() as u64;
        if is_silent_on_some && passing.is_none() {
            put.inserted += inserted;
            put.is_uncertain = true;
            let (sent, refused) = (left.len(), errors.len());
            let why = format!("of {sent} documents the reply counts {inserted} as inserted and names {refused} as refused");
            return Err(ServerError::invalid_reply(&why));
        }
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

/// Replaces the document with the same identity.
pub(crate) async fn replace(
    deployment: &Deployment,
    namespace: &Namespace,
    identity: &Identity,
    document: &RawDocumentBuf,
    put: &mut Put,
) -> Result<Updated> {
    let is_plain = !has_empty_timestamp(document) && !document.iter().flatten().any(|(name, _)| name.as_str().starts_with('$'));
    let with = if is_plain {
        RawBson::Document(document.clone())
    } else if DocumentState::new(document.clone()).is_none() {
        // No sweep has archived such a document. For the oplog the server computes a difference from the result of an expression,
        // and ends itself (an invariant, seen on 6.0) if a name occurs twice.
        let why = "it has an empty timestamp or a name with `$`, and also two fields of one name or too deep nesting, which the server \
                   cannot write in a replacement";
        return Ok(Updated { refused: Some(ServerError::other(why)), ..Updated::default() });
    } else {
        as_it_is(document)
    };
    let command = update(namespace, identity, identity.filter(document)?, with, false)?;
    update_one(deployment, namespace, command, put).await
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
fn update(
    namespace: &Namespace,
    identity: &Identity,
    filter: RawDocumentBuf,
    with: RawBson,
    upsert: bool,
) -> Result<RawDocumentBuf> {
    let mut statement = RawDocumentBuf::new();
    statement.append(cstr!("q"), RawBson::Document(filter));
    statement.append(cstr!("u"), with);
    statement.append(cstr!("upsert"), upsert);
    if let Some(collation) = identity.collation() {
        statement.append(cstr!("collation"), RawDocumentBuf::try_from(&collation)?);
    }
    let mut command = RawDocumentBuf::new();
    command.append(cstr!("update"), namespace.collection.as_str());
    command.append(cstr!("updates"), RawBson::Array(RawArrayBuf::from_iter([RawBson::Document(statement)])));
    Ok(command)
}

/// The outcome of an update with one statement.
#[derive(Default)]
pub(crate) struct Updated {
    /// The server's `n`.
    pub n: u64,
    /// Whether the server found the document and left it as it was, because it was already what it was to become.
    pub is_unchanged: bool,
    /// The error with which the document was refused.
    pub refused: Option<ServerError>,
    /// Whether an earlier attempt may have written the document.
    pub was_sent_before: bool,
}

/// Runs an update with one statement.
async fn update_one(deployment: &Deployment, namespace: &Namespace, command: RawDocumentBuf, put: &mut Put) -> Result<Updated> {
    let (mut retries, mut was_sent_before) = (Retries::several(), false);
    loop {
        let (cause, ended) = match write_once(deployment, namespace, command.clone(), put).await {
            Ok(mut written) => {
                let (n, is_unchanged) = (written.n, written.n_modified == Some(0));
                match written.errors.remove(&0) {
                    None => return Ok(Updated { n, is_unchanged, refused: None, was_sent_before }),
                    Some(cause) => (cause.clone(), Ok(Updated { n, is_unchanged, refused: Some(cause), was_sent_before })),
                }
            }
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

/// The reply to a write command.
struct WriteReply {
    /// The server's `n`.
    n: u64,
    /// Documents that an update has changed; `None` if the reply does not say.
    n_modified: Option<u64>,
    /// The error of each document that was refused, by its index.
    errors: BTreeMap<usize, ServerError>,
}

/// Runs a write command, without a retry.
async fn write_once(
    deployment: &Deployment,
    namespace: &Namespace,
    mut command: RawDocumentBuf,
    put: &mut Put,
) -> Result<WriteReply> {
    let concern = RawDocumentBuf::try_from(&deployment.write_concern)?;
    command.append(cstr!("writeConcern"), RawBson::Document(concern));
    if let Some(Bson::String(comment)) = deployment.comment() {
        command.append(cstr!("comment"), comment);
    }
    let reply: Document = deployment.send_once(ServerCommand::new(&namespace.database, command, deployment.patience())).await?;
    if let Some(why) = ServerError::of_write_concern(&reply) {
        // The next primary may be without the write. It is made again, as by a driver (specification "Retryable Writes"), before
        // anything follows: an older state of the same document would take the place of one that is lost.
        if why.is_retryable() {
            return Err(why);
        }
        put.unconfirmed = Some(why.to_string());
    }
    let errors = reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document).map(|failed| {
        let index = count_in(failed, "index").and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
        (index, ServerError::read(failed))
    });
    let (n, n_modified) = (count_in(&reply, "n").unwrap_or(0), count_in(&reply, "nModified"));
    Ok(WriteReply { n, n_modified, errors: errors.collect() })
}
