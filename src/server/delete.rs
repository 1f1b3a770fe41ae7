//! The one place from which documents are deleted.

use bson::raw::{RawBson, RawBsonRef};
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc};

use super::exact::{self, Along, Exact};
use super::grant::DeleteGrant;
use super::meter::Charges;
use super::overload::{self, Overload};
use super::transport::Command;
use super::{Deployment, error, privileges};
use crate::plan::Selection;
use crate::values::{count_in, integer_in};

/// The members did not confirm in the time that the write concern gives them.
const WRITE_CONCERN_TIMEOUT: i32 = 64;

/// What one delete command is aimed at, beside the whole predicate of its rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Restriction {
    /// The documents with these `_id`s.
    Ids(RawArrayBuf),
    /// Lists of `_id`s, each with a condition on the shard key and in a statement of its own.
    Sharded(Vec<(Document, RawArrayBuf)>),
    /// One document of those whose `_id` equals this one under the rule's collation.
    One(RawBson),
    /// A stretch of an index.
    Range {
        bounds: Document,
        /// The index, by its name or its key.
        hint: Bson,
    },
    /// Documents in the states in which they were archived, and in no other.
    Exact {
        documents: Vec<Exact>,
        /// The index on which they follow each other closely; `None` where they are to be found by `_id`.
        along: Option<Along>,
    },
}

impl Restriction {
    /// Documents that it names at most; of a stretch nobody knows.
    pub fn most(&self) -> usize {
        match self {
            Restriction::Ids(ids) => ids.into_iter().count(),
            Restriction::Sharded(groups) => groups.iter().map(|(_, ids)| ids.into_iter().count()).sum(),
            Restriction::One(_) => 1,
            Restriction::Exact { documents, .. } => documents.len(),
            Restriction::Range { .. } => usize::MAX,
        }
    }

    /// Two restrictions that name the same documents together; `None` where there is nothing to halve.
    pub fn halves(&self) -> Option<(Self, Self)> {
        match self {
            Restriction::Ids(ids) => halves(ids).map(|(first, second)| (Self::Ids(first), Self::Ids(second))),
            Restriction::Sharded(groups) => match groups.as_slice() {
                [(key, ids)] => {
                    let part = |ids| Self::Sharded(vec![(key.clone(), ids)]);
                    halves(ids).map(|(first, second)| (part(first), part(second)))
                }
                groups => {
                    let (first, second) = groups.split_at(groups.len() / 2);
                    Some((Self::Sharded(first.to_vec()), Self::Sharded(second.to_vec())))
                }
            },
            Restriction::Exact { documents, along } => {
                let (first, second) = documents.split_at(documents.len() / 2);
                let part = |documents: &[Exact]| Self::Exact { documents: documents.to_vec(), along: along.clone() };
                (!first.is_empty()).then(|| (part(first), part(second)))
            }
            Restriction::One(_) | Restriction::Range { .. } => None,
        }
    }
}

/// Two lists of the same `_id`s; `None` of one `_id` or none.
fn halves(ids: &RawArrayBuf) -> Option<(RawArrayBuf, RawArrayBuf)> {
    let all: Vec<RawBsonRef> = ids.into_iter().collect::<Result<_, _>>().ok()?;
    let (first, second) = all.split_at(all.len() / 2);
    let list = |ids: &[RawBsonRef]| {
        let mut list = RawArrayBuf::new();
        ids.iter().for_each(|id| list.push(*id));
        list
    };
    (!first.is_empty()).then(|| (list(first), list(second)))
}

/// What became of one delete command.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The server's `n`: what is known to have been deleted.
    pub deleted: u64,
    /// Whether the members are not known to have it: a fail-over may bring the documents back.
    pub weak: bool,
    pub trouble: Option<Trouble>,
}

/// Why a delete command did not do all it was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Trouble {
    pub why: String,
    /// Whether the same command can be sent again.
    pub retryable: bool,
    /// Whether it may have deleted more than `Reply::deleted`.
    pub reply_lost: bool,
    /// Whether it is done on the primary, and the members have not confirmed it in time.
    pub unconfirmed: bool,
    /// What a service under too much load says of it.
    pub overload: Option<Overload>,
}

impl Trouble {
    /// Enters what the service says of its load, and what follows from it.
    fn overloaded(self, overload: Option<Overload>) -> Self {
        let lost = overload == Some(Overload::TimedOut);
        Self { overload, retryable: self.retryable || overload.is_some(), reply_lost: self.reply_lost || lost, ..self }
    }
}

/// Deletes those of the documents that the restriction names that match the whole predicate of their rule.
///
/// The predicate is repeated beside the restriction: a document whose date, ttl or filter field has moved since it was found survives, and a
/// document with the same `_id` on another shard goes only if it has expired itself. Sending the command twice is harmless.
pub async fn delete(
    deployment: &Deployment,
    selection: &Selection,
    restriction: &Restriction,
    write_concern: &Document,
    charges: &Charges,
    _grant: &DeleteGrant,
) -> Reply {
    let command = match command(deployment, selection, restriction, write_concern) {
        Ok(command) => command,
        Err(why) => return failed(format!("building the delete command: {why}"), false, false),
    };
    match deployment.charged(Command::new(&selection.namespace.database, command), charges).await {
        Ok(reply) => read(&reply),
        Err(cause) => {
            let overload = error::overload(&cause);
            let why = privileges::explain(&cause, &selection.namespace, &["remove"]);
            let mut reply = failed(why, error::is_retryable(&cause), error::is_reply_lost(&cause));
            reply.trouble = reply.trouble.map(|trouble| trouble.overloaded(overload));
            reply
        }
    }
}

fn failed(why: String, retryable: bool, reply_lost: bool) -> Reply {
    Reply { deleted: 0, weak: false, trouble: Some(Trouble { why, retryable, reply_lost, unconfirmed: false, overload: None }) }
}

/// What the statements of a restriction are aimed at beside the predicate, each with its limit and hint.
///
/// Built raw: `_id`s go from the server's reply to the command without being decoded.
pub fn aims(restriction: &Restriction, selection: &Selection) -> Result<Vec<(RawDocumentBuf, i32, RawBson)>, bson::error::Error> {
    let by_id = RawBson::Document(RawDocumentBuf::try_from(&doc! { "_id": 1 })?);
    let mut aims = Vec::new();
    match restriction {
        Restriction::Ids(ids) => aims.push((these(ids, selection), 0, by_id)),
        Restriction::Sharded(groups) => {
            for (key, ids) in groups {
                let mut aim = RawDocumentBuf::try_from(key)?;
                for element in &these(ids, selection) {
                    let (name, value) = element?;
                    aim.append(name, value);
                }
                aims.push((aim, 0, by_id.clone()));
            }
        }
        Restriction::One(id) => {
            let mut aim = RawDocumentBuf::new();
            aim.append(bson::raw::cstr!("_id"), id.clone());
            aims.push((aim, 1, by_id));
        }
        Restriction::Range { bounds, hint } => {
            aims.push((RawDocumentBuf::try_from(bounds)?, 0, RawBson::try_from(hint.clone())?));
        }
        Restriction::Exact { documents, along } => {
            let found = exact::aims(documents, along.as_ref(), selection)?;
            aims.extend(found.into_iter().map(|(aim, hint)| (aim, 0, hint)));
        }
    }
    Ok(aims)
}

fn command(
    deployment: &Deployment,
    selection: &Selection,
    restriction: &Restriction,
    write_concern: &Document,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut statements = RawArrayBuf::new();
    for (aim, limit, hint) in aims(restriction, selection)? {
        let mut statement = RawDocumentBuf::new();
        statement.append(bson::raw::cstr!("q"), RawBson::Document(with_predicate(aim, selection)?));
        statement.append(bson::raw::cstr!("limit"), limit);
        if deployment.facts.capabilities.delete_hints {
            // Without it the planner may walk all that has expired for every batch of `_id`s, or all documents for every stretch.
            statement.append(bson::raw::cstr!("hint"), hint);
        }
        if let Some(collation) = &selection.collation {
            statement.append(bson::raw::cstr!("collation"), RawBson::Document(RawDocumentBuf::try_from(collation)?));
        }
        statements.push(RawBson::Document(statement));
    }

    let mut command = RawDocumentBuf::new();
    command.append(bson::raw::cstr!("delete"), selection.namespace.collection.as_str());
    command.append(bson::raw::cstr!("deletes"), RawBson::Array(statements));
    command.append(bson::raw::cstr!("ordered"), true);
    command.append(bson::raw::cstr!("writeConcern"), RawBson::Document(RawDocumentBuf::try_from(write_concern)?));
    if let Some(Bson::String(comment)) = deployment.comment() {
        command.append(bson::raw::cstr!("comment"), comment);
    }
    Ok(command)
}

/// An aim together with the whole predicate of the rule.
pub fn with_predicate(aim: RawDocumentBuf, selection: &Selection) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut all = RawArrayBuf::new();
    all.push(RawBson::Document(aim));
    all.push(RawBson::Document(RawDocumentBuf::try_from(&selection.predicate)?));
    let mut query = RawDocumentBuf::new();
    query.append(bson::raw::cstr!("$and"), RawBson::Array(all));
    Ok(query)
}

/// The condition for a list of `_id`s.
fn these(ids: &RawArrayBuf, selection: &Selection) -> RawDocumentBuf {
    let mut of_batch = RawDocumentBuf::new();
    of_batch.append(bson::raw::cstr!("$in"), RawBson::Array(ids.clone()));
    if selection.is_buckets() {
        // The server walks a clustered collection from the first to the last only where it is told both.
        let ids = || ids.into_iter().filter_map(|id| id.ok()?.as_object_id());
        if let (Some(first), Some(last)) = (ids().min(), ids().max()) {
            of_batch.append(bson::raw::cstr!("$gte"), first);
            of_batch.append(bson::raw::cstr!("$lte"), last);
        }
    }
    let mut by_id = RawDocumentBuf::new();
    by_id.append(bson::raw::cstr!("_id"), RawBson::Document(of_batch));
    by_id
}

/// Reads `n` whatever else the reply says: a command of which a statement failed has carried out those before.
pub fn read(reply: &Document) -> Reply {
    let deleted = count_in(reply, "n").unwrap_or(0);
    let concern = reply.get_document("writeConcernError").ok();
    let first = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()).and_then(Bson::as_document);
    let trouble = if let Some(write) = first {
        let code = integer_in(write, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
        let message = write.get_str("errmsg").unwrap_or("write error");
        let why = error::coded(message, code, write.get_str("codeName").unwrap_or_default());
        let overload = overload::read(code, message);
        // A service that has no room says how many it did before.
        let reply_lost = overload.is_none() && !error::is_refused(code, message);
        let trouble = Trouble { why, retryable: error::is_retryable_code(code), reply_lost, unconfirmed: false, overload: None };
        Some(trouble.overloaded(overload))
    } else if let Some(concern) = concern {
        let code = integer_in(concern, "code").and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
        let why = error::coded(
            concern.get_str("errmsg").unwrap_or("write concern error"),
            code,
            concern.get_str("codeName").unwrap_or_default(),
        );
        let why = format!(
            "deleted on the primary, but the write concern was not reached, and a fail-over may bring documents back: {why}"
        );
        let unconfirmed = code == WRITE_CONCERN_TIMEOUT;
        Some(Trouble { why, retryable: error::is_retryable_code(code), reply_lost: false, unconfirmed, overload: None })
    } else {
        None
    };
    Reply { deleted, weak: concern.is_some(), trouble }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n_counts_in_every_reply() {
        let plain = read(&doc! { "n": 3, "ok": 1.0 });
        assert_eq!(plain, Reply { deleted: 3, weak: false, trouble: None });
        let half = read(&doc! { "n": 2.0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 189, "errmsg": "stepped down" }] });
        assert_eq!(half.deleted, 2);
        let trouble = half.trouble.unwrap();
        assert_eq!((trouble.why.as_str(), trouble.retryable, trouble.reply_lost), ("stepped down (code 189)", true, true));
        let refused = read(&doc! { "n": 0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 10107, "errmsg": "not primary" }] });
        assert!(!refused.trouble.unwrap().reply_lost);
        let weak = read(
            &doc! { "n": 7_i64, "ok": 1.0, "writeConcernError": { "code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting" } },
        );
        assert_eq!((weak.deleted, weak.weak, half.weak), (7, true, false));
        let trouble = weak.trouble.unwrap();
        assert!(trouble.why.contains("WriteConcernTimeout") && !trouble.retryable && trouble.unconfirmed, "{trouble:?}");
    }
}
