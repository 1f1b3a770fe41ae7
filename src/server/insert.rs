//! Puts documents back: inserts those that are missing, and keeps or replaces those that are there.

use std::collections::HashMap;

use super::document_match::DocumentState;
use super::error::{Result, ServerError};
use super::find::Query;
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
        let failed = insert(deployment, namespace, &missing, put).await?;
        put.inserted += (missing.len() - failed.len()) as u64;
        for (index, cause) in failed {
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
    let mut cursor = Query::find(namespace, filter).cursor(deployment).await?;
    let mut found = HashMap::new();
    while let Some(document) = cursor.next().await? {
        found.insert(key(&document), document);
    }
    Ok(found)
}

/// Inserts documents; returns the index of each that was refused, with the error.
async fn insert(
    deployment: &Deployment,
    namespace: &Namespace,
    documents: &[&RawDocumentBuf],
    put: &mut Put,
) -> Result<Vec<(usize, ServerError)>> {
    let mut failed = Vec::new();
    // The server replaces an empty timestamp by its time, unless the document is the result of an expression.
    let (empty, plain): (Vec<_>, Vec<_>) = documents.iter().enumerate().partition(|(_, document)| has_empty_timestamp(document));
    if !plain.is_empty() {
        let list: RawArrayBuf = plain.iter().map(|(_, document)| RawBson::Document((**document).clone())).collect();
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("insert"), namespace.collection.as_str());
        command.append(cstr!("documents"), RawBson::Array(list));
        command.append(cstr!("ordered"), false);
        for (index, cause) in write(deployment, namespace, command, put).await?.1 {
            failed.extend(plain.get(index).map(|(index, _)| (*index, cause)));
        }
    }
    for (index, document) in empty {
        // Matches nothing, so that it can only insert.
        let never = RawDocumentBuf::try_from(&doc! { "$nor": [{}] })?;
        let update = update(namespace, never, as_it_is(document), true);
        let errors = write(deployment, namespace, update, put).await?.1;
        failed.extend(errors.into_iter().map(|(_, cause)| (index, cause)));
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
    let (n, mut errors) = write(deployment, namespace, update(namespace, filter, with, false), put).await?;
    Ok(match errors.pop() {
        Some((_, cause)) => Err(cause),
        None => Ok(n),
    })
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

/// Runs a write command; returns the server's `n`, and the index of each document that was refused, with the error.
async fn write(
    deployment: &Deployment,
    namespace: &Namespace,
    mut command: RawDocumentBuf,
    put: &mut Put,
) -> Result<(u64, Vec<(usize, ServerError)>)> {
    let concern = RawDocumentBuf::try_from(&deployment.write_concern)?;
    command.append(cstr!("writeConcern"), RawBson::Document(concern));
    if let Some(Bson::String(comment)) = deployment.comment() {
        command.append(cstr!("comment"), comment);
    }
    let reply: Document = deployment.send(ServerCommand::new(&namespace.database, command)).await?;
    if let Some(why) = ServerError::of_write_concern(&reply) {
        put.unconfirmed = Some(why.to_string());
    }
    let errors = reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document).map(|failed| {
        let index = count_in(failed, "index").and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
        (index, ServerError::read(failed))
    });
    Ok((count_in(&reply, "n").unwrap_or(0), errors.collect()))
}
