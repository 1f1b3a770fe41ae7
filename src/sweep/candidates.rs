//! The `_id`s of expired documents, found in one pass: along the index, or through the collection where there is none.

use std::time::Duration;

use crate::server::error::{Result, ServerError as Error};
use bson::raw::{CString, RawBson};
use bson::{Bson, Document, RawArrayBuf, Regex, doc};
use tracing::warn;

use super::Job;
use super::source::{Taken, explain, explain_find, plan_has};
use crate::plan::index::IndexChoice;
use crate::server::delete::Restriction;
use crate::server::find::{Cursor, Query};
use crate::server::retry::Retries;
use crate::server::timeout::with_reminders;
use crate::server::{codes, error, shard_key};

/// A command may be 16 MB long; `_id`s that are documents can be large.
const MOST_ID_BYTES: usize = 4 * 1024 * 1024;

/// The server takes regular expressions of 32 764 bytes; escaping can double a string.
const MOST_REGEX_BYTES: usize = 16_000;

/// The server closes a cursor that nobody asks for ten minutes. With a rate, no more is fetched than goes in this many seconds.
const FETCH_SECONDS: u32 = 60;

/// An `_id`, and what its document has at the paths of the shard key.
struct Candidate {
    id: RawBson,
    shard_key: Document,
}

pub struct Candidates<'a> {
    job: &'a Job<'a>,
    /// A further predicate that every candidate must match.
    only: Option<Document>,
    cursor: Option<Cursor>,
    fetch: u32,
    /// A candidate that was read but did not go into a batch.
    next: Option<Candidate>,
    exhausted: bool,
    /// For passes begun anew without a single candidate in between.
    retries: Retries,
}

impl<'a> Candidates<'a> {
    /// `rate` is the lowest limit in documents per second that the rule is under.
    pub fn new(job: &'a Job<'a>, rate: Option<u32>, only: Option<Document>) -> Self {
        let by_rate = rate.map_or(u32::MAX, |rate| rate.saturating_mul(FETCH_SECONDS));
        let fetch = job.rule.limits.batch_size.min(by_rate).max(1);
        Self { job, only, cursor: None, fetch, next: None, exhausted: false, retries: Retries::patient() }
    }

    /// The next `_id`s, at most `most` of them.
    ///
    /// Errors: why the pass cannot go on.
    pub async fn take(&mut self, most: u64) -> std::result::Result<Taken, String> {
        let folds = self.job.rule.selection.folds_ids;
        let paths = &self.job.rule.selection.shard_key;
        let mut ids = RawArrayBuf::new();
        let mut keys = Vec::new();
        let mut count = 0;
        while count < most {
            let Some(candidate) = self.next().await? else { break };
            let id = &candidate.id;
            let exact = if folds { exactly(id) } else { Some(id.clone()) };
            match exact {
                None if count == 0 => return Ok(Taken::Batch { restriction: Box::new(Restriction::One(candidate.id)), most: 1 }),
                Some(exact) if count == 0 || ids.as_bytes().len() + size(id) <= MOST_ID_BYTES => ids.push(exact),
                _ => {
                    self.next = Some(candidate);
                    break;
                }
            }
            keys.push(candidate.shard_key);
            count += 1;
        }
        if count > 0 {
            let restriction = match paths.as_slice() {
                [] => Restriction::Ids(ids),
                paths => Restriction::Sharded(vec![(shard_key::any_of(&keys, paths), ids)]),
            };
            return Ok(Taken::Batch { restriction: Box::new(restriction), most: count });
        }
        if most == 0 {
            self.next = self.next().await?;
        }
        Ok(if self.next.is_some() { Taken::More } else { Taken::Exhausted })
    }

    async fn next(&mut self) -> std::result::Result<Option<Candidate>, String> {
        if let Some(candidate) = self.next.take() {
            return Ok(Some(candidate));
        }
        while !self.exhausted {
            match self.advance_patiently().await {
                Ok(Some(candidate)) => {
                    self.retries = Retries::patient();
                    return Ok(Some(candidate));
                }
                Ok(None) => self.exhausted = true,
                Err(cause) => {
                    let lost = error::code(&cause) == Some(codes::CURSOR_NOT_FOUND);
                    let wait = if lost { self.retries.again() } else { self.retries.wait(&cause) };
                    let Some(wait) = wait else { return Err(explain(&cause)) };
                    // What is already deleted does not match any more: the new pass goes on where the old one ended.
                    let (why, millis) = (error::explain(&cause), wait.as_millis());
                    let namespace = &self.job.rule.namespace;
                    warn!(%namespace, "{namespace}: reading: {why}; beginning the pass anew in {millis} ms");
                    self.cursor = None;
                    tokio::time::sleep(wait).await;
                }
            }
        }
        Ok(None)
    }

    /// A read may take long where it goes through a large collection for few documents: it is not given up, but nobody is left wondering.
    async fn advance_patiently(&mut self) -> Result<Option<Candidate>> {
        let Job { deployment, rule, .. } = self.job;
        let namespace = &rule.namespace;
        let remind = |waited: Duration| {
            warn!(%namespace, "{namespace}: reading: no answer for {} s; still waiting", waited.as_secs());
        };
        with_reminders(deployment.command_timeout, self.advance(), remind).await
    }

    async fn advance(&mut self) -> Result<Option<Candidate>> {
        if self.cursor.is_none() {
            self.cursor = Some(self.open().await?);
        }
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let Some(current) = cursor.next().await? else { return Ok(None) };
        let unreadable = |cause: bson::error::Error| Error::from(cause);
        let Some(id) = current.get("_id").map_err(unreadable)? else { return Ok(None) };
        let shard_key = match self.job.rule.selection.shard_key.as_slice() {
            [] => Document::new(),
            paths => shard_key::of(&Document::try_from(&*current).map_err(unreadable)?, paths),
        };
        Ok(Some(Candidate { id: id.into(), shard_key }))
    }

    async fn open(&self) -> Result<Cursor> {
        let Job { deployment, rule, .. } = self.job;
        let selection = &rule.selection;
        let filter = match &self.only {
            Some(only) => doc! { "$and": [only, &selection.predicate] },
            None => selection.predicate.clone(),
        };
        let mut projection = doc! { "_id": 1 };
        projection.extend(selection.shard_key.iter().map(|path| (path.clone(), Bson::Int32(1))));
        let hint =
            selection.index.as_ref().map_or_else(|| Bson::from(doc! { "$natural": 1 }), |index| Bson::from(index.name.as_str()));
        // From the primary: a secondary may be behind, and the deletes go to the primary anyway.
        let mut find = Query::find(&selection.namespace, filter)
            .projection(projection)
            .batch_size(self.fetch)
            .hint(Some(hint))
            .collation(selection.collation.as_ref());
        if let Some(index) = selection.index.as_ref().filter(|index| !index.oldest_first && self.only.is_none())
            && deployment.facts.capabilities.sorts
            && self.sorts_along(index).await?
        {
            find = find.sort(doc! { &rule.expiry.field: 1 });
        }
        find.cursor(deployment).await
    }

    /// Whether an index that is not ascending can be walked so that the oldest dates go first. A multikey one cannot, nor one that begins
    /// with another field: the server would sort everything in memory before the first answer.
    async fn sorts_along(&self, index: &IndexChoice) -> Result<bool> {
        let find = doc! {
            "filter": &self.job.rule.selection.predicate,
            "sort": { &self.job.rule.expiry.field: 1 },
            "hint": &index.name,
        };
        let plan = explain_find(self.job, find).await?;
        Ok(!plan_has(&plan, "stage", &"SORT".into()))
    }
}

/// The `_id` as a condition that no collation loosens, where there is one: a regular expression compares strings byte by byte, and the
/// index on `_id` serves it. Under a collation of the rule's own, plain strings would match other `_id`s too, and every batch would walk
/// the whole index.
fn exactly(id: &RawBson) -> Option<RawBson> {
    let text = match id {
        RawBson::String(text) if text.len() <= MOST_REGEX_BYTES => text,
        RawBson::String(_) | RawBson::Document(_) | RawBson::Symbol(_) | RawBson::JavaScriptCode(_) => return None,
        RawBson::JavaScriptCodeWithScope(_) | RawBson::DbPointer(_) => return None,
        other => return Some(other.clone()),
    };
    let mut pattern = String::from("\\A");
    for c in text.chars() {
        if c.is_ascii() && !c.is_ascii_alphanumeric() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push_str("\\z");
    // No regular expression can hold NUL.
    let pattern = CString::try_from(pattern).ok()?;
    Some(RawBson::RegularExpression(Regex { pattern, options: bson::raw::cstr!("").to_owned() }))
}

/// Bytes of an `_id`, where they can be many.
fn size(id: &RawBson) -> usize {
    match id {
        RawBson::Document(document) => document.as_bytes().len(),
        RawBson::String(text) => text.len(),
        RawBson::Binary(binary) => binary.bytes.len(),
        _ => 0,
    }
}
