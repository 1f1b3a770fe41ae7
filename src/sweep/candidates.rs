//! The `_id`s of expired documents, found in one pass: along the index, or through the collection where there is none.

use bson::raw::RawBson;
use bson::{Document, RawArrayBuf, RawDocumentBuf, doc};
use mongodb::Cursor;
use mongodb::error::{Error, Result};
use mongodb::options::{Hint, ReadPreference, SelectionCriteria};
use tracing::warn;

use super::Job;
use crate::index::IndexChoice;
use crate::server::{count, error};

/// A command may be 16 MB long; `_id`s that are documents can be large.
const MOST_ID_BYTES: usize = 4 * 1024 * 1024;

/// The server closes a cursor that nobody asks for ten minutes. With a rate, no more is fetched than goes in this many seconds.
const FETCH_SECONDS: u32 = 60;

/// Times that the pass is begun anew without a single candidate in between.
const MOST_RESTARTS: u32 = 3;

pub struct Candidates<'a> {
    job: &'a Job<'a>,
    cursor: Option<Cursor<RawDocumentBuf>>,
    fetch: u32,
    /// A candidate that was read but did not go into a batch.
    next: Option<RawBson>,
    exhausted: bool,
    restarts: u32,
}

impl<'a> Candidates<'a> {
    /// `rate` is the lowest limit in documents per second that the rule is under.
    pub fn new(job: &'a Job<'a>, rate: Option<u32>) -> Self {
        let by_rate = rate.map_or(u32::MAX, |rate| rate.saturating_mul(FETCH_SECONDS));
        let fetch = job.planned.rule.batch_size.min(by_rate).max(1);
        Self { job, cursor: None, fetch, next: None, exhausted: false, restarts: 0 }
    }

    /// The next `_id`s, at most `most` of them, and how many they are. `None` where there are none, or `most` is 0 and there are some:
    /// [`Self::is_exhausted`] tells which.
    ///
    /// Errors: why the pass cannot go on.
    pub async fn take(&mut self, most: u64) -> std::result::Result<Option<(RawArrayBuf, u64)>, String> {
        let mut ids = RawArrayBuf::new();
        let mut count = 0;
        while count < most && ids.as_bytes().len() < MOST_ID_BYTES {
            match self.next().await? {
                Some(id) => ids.push(id),
                None => break,
            }
            count += 1;
        }
        if most == 0 {
            self.next = self.next().await?;
        }
        Ok((count > 0).then_some((ids, count)))
    }

    pub fn is_exhausted(&self) -> bool {
        self.exhausted && self.next.is_none()
    }

    async fn next(&mut self) -> std::result::Result<Option<RawBson>, String> {
        if let Some(id) = self.next.take() {
            return Ok(Some(id));
        }
        while !self.exhausted {
            match self.advance().await {
                Ok(Some(id)) => {
                    self.restarts = 0;
                    return Ok(Some(id));
                }
                Ok(None) => self.exhausted = true,
                Err(cause) if can_restart(&cause) && self.restarts < MOST_RESTARTS => {
                    // What is already deleted does not match any more: the new pass goes on where the old one ended.
                    warn!("{}: reading: {}; beginning the pass anew", self.job.planned.namespace, error::explain(&cause));
                    self.cursor = None;
                    self.restarts += 1;
                }
                Err(cause) => return Err(self.explain(&cause)),
            }
        }
        Ok(None)
    }

    async fn advance(&mut self) -> Result<Option<RawBson>> {
        if self.cursor.is_none() {
            self.cursor = Some(self.open().await?);
        }
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        if !cursor.advance().await? {
            return Ok(None);
        }
        let id = cursor.current().get("_id").map_err(|cause| Error::custom(cause.to_string()))?;
        Ok(id.map(RawBson::from))
    }

    async fn open(&self) -> Result<Cursor<RawDocumentBuf>> {
        let Job { deployment, planned, selection, .. } = self.job;
        let collection = deployment.database(&planned.namespace).collection::<RawDocumentBuf>(&planned.namespace.collection);
        let mut find = collection
            .find(selection.predicate.clone())
            .projection(doc! { "_id": 1 })
            .batch_size(self.fetch)
            // A secondary may be behind; the deletes go to the primary anyway.
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        find = match &selection.index {
            Some(index) => find.hint(Hint::Name(index.name.clone())),
            None => find.hint(Hint::Keys(doc! { "$natural": 1 })),
        };
        if let Some(index) = selection.index.as_ref().filter(|index| !index.oldest_first)
            && self.sorts_along(index).await?
        {
            find = find.sort(doc! { &planned.rule.field: 1 });
        }
        if let Some(collation) = &selection.collation {
            find = find.collation(count::as_options(collation)?);
        }
        if let Some(comment) = deployment.comment() {
            find = find.comment(comment);
        }
        find.await
    }

    /// Whether an index that is not ascending can be walked so that the oldest dates go first. A multikey one cannot, nor one that begins
    /// with another field: the server would sort everything in memory before the first answer.
    async fn sorts_along(&self, index: &IndexChoice) -> Result<bool> {
        let Job { deployment, planned, selection, .. } = self.job;
        let find = doc! {
            "find": &planned.namespace.collection,
            "filter": &selection.predicate,
            "sort": { &planned.rule.field: 1 },
            "hint": &index.name,
        };
        let plan =
            deployment.database(&planned.namespace).run_command(doc! { "explain": find, "verbosity": "queryPlanner" }).await?;
        Ok(!has_stage(&plan, "SORT"))
    }

    fn explain(&self, cause: &Error) -> String {
        let why = error::explain(cause);
        match error::code(cause) {
            Some(175) => format!("the collection or the index was dropped or renamed during the run: {why}"),
            Some(13) => format!("{why}; the user needs `find` on this collection"),
            _ => format!("reading candidates: {why}"),
        }
    }
}

/// Whether another pass can help: the connection broke, the primary changed, or the cursor was lost.
fn can_restart(cause: &Error) -> bool {
    error::is_retryable(cause) || error::code(cause) == Some(43)
}

fn has_stage(plan: &Document, stage: &str) -> bool {
    plan.iter().any(|(key, value)| {
        (key == "stage" && value.as_str() == Some(stage))
            || value.as_document().is_some_and(|inner| has_stage(inner, stage))
            || value
                .as_array()
                .is_some_and(|items| items.iter().filter_map(|item| item.as_document()).any(|inner| has_stage(inner, stage)))
    })
}
