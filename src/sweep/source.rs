//! Where batches come from. Each way meets every expired document once; which one is taken depends on the index and on the limits.

use crate::server::error::{Result, ServerError as Error};
use bson::{Bson, Document, doc};
use tracing::warn;

use super::Job;
use super::candidates::Candidates;
use super::date_slices::DateSlices;
use super::id_pages::IdPages;
use super::id_slices::IdSlices;
use crate::server::delete::Restriction;
use crate::server::error;
use crate::server::retry::Retries;
use crate::server::transport::Command;

/// The batches of one rule, one after another.
pub enum Source<'a> {
    /// `_id`s of documents that were found: never more than were asked for.
    Ids(Box<Candidates<'a>>),
    /// Pages of `_id`s of documents that were found.
    Pages(IdPages<'a>),
    /// Stretches of the index on the date.
    Dates(Box<DateSlices<'a>>),
    /// Stretches of the collection.
    Scan(Box<IdSlices<'a>>),
}

/// What a source gives.
pub enum Taken {
    Batch {
        restriction: Box<Restriction>,
        /// Documents in it, at most, when it was made.
        most: u64,
    },
    /// No document is left.
    Exhausted,
    /// There is at least one more document, but none was asked for.
    More,
}

impl<'a> Source<'a> {
    /// Chooses the fastest way that the collection allows. `exact`: no batch may ever hold more than is asked for, whatever others insert.
    pub async fn open(job: &'a Job<'a>, rate: Option<u32>, exact: bool) -> std::result::Result<Self, String> {
        let ids = || Ok(Self::Ids(Box::new(Candidates::new(job, rate, None))));
        // Under a rate, batches are small: a scan in such small stretches would be one of very many commands.
        let capabilities = &job.deployment.facts.capabilities;
        if !capabilities.cursors {
            return Ok(Self::Pages(IdPages::new(job)));
        }
        let scans = job.rule.selection.index.is_none() && !job.rule.selection.is_buckets();
        if exact || (rate.is_some() && scans) || !capabilities.sorts {
            return ids();
        }
        let opened = match &job.rule.selection.index {
            Some(_) => DateSlices::open(job, rate).await.map(|slices| slices.map(|slices| Self::Dates(Box::new(slices)))),
            None => IdSlices::open(job).await.map(|slices| slices.map(|slices| Self::Scan(Box::new(slices)))),
        };
        match opened {
            Ok(Some(source)) => Ok(source),
            Ok(None) => ids(),
            Err(cause) => Err(explain(&cause)),
        }
    }

    /// The next batch, of at most `most` documents.
    ///
    /// Errors: why the pass cannot go on.
    pub async fn take(&mut self, most: u64) -> std::result::Result<Taken, String> {
        match self {
            Self::Ids(candidates) => candidates.take(most).await,
            Self::Pages(pages) => pages.take(most).await,
            Self::Dates(slices) => slices.take(most).await,
            Self::Scan(slices) => slices.take(most).await.map_err(|cause| explain(&cause)),
        }
    }
}

/// Says why documents could not be read.
pub fn explain(cause: &Error) -> String {
    let why = error::explain(cause);
    match error::code(cause) {
        Some(175) => format!("the collection or the index was dropped or renamed during the run: {why}"),
        Some(13) => format!("{why}; the user needs `find` on this collection"),
        _ => format!("reading candidates: {why}"),
    }
}

/// Runs a find command that needs no cursor and gives its documents.
pub async fn find(job: &Job<'_>, mut find: Document, limit: i64) -> Result<Vec<Document>> {
    find.insert("limit", limit);
    find.insert("singleBatch", true);
    let mut command = doc! { "find": &job.rule.selection.namespace.collection };
    command.extend(job.deployment.marked(find));
    let command = Command::of(&job.rule.selection.namespace.database, &command)?;
    let reply = persist(job, || job.deployment.charged(command.clone(), job.charges)).await?;
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    Ok(batch.into_iter().flatten().filter_map(Bson::as_document).cloned().collect())
}

/// Shows how the server would run a find command, without running it.
pub async fn explain_find(job: &Job<'_>, find: Document) -> Result<Document> {
    let mut command = doc! { "find": &job.rule.selection.namespace.collection };
    command.extend(find);
    let explain = doc! { "explain": command, "verbosity": "queryPlanner" };
    let explain = Command::of(&job.rule.selection.namespace.database, &explain)?;
    persist(job, || job.deployment.send(explain.clone())).await
}

/// Asks until there is an answer, as often as that can help.
async fn persist<T, F: Future<Output = Result<T>>>(job: &Job<'_>, ask: impl Fn() -> F) -> Result<T> {
    let mut retries = Retries::patient();
    loop {
        let cause = match ask().await {
            Ok(reply) => return Ok(reply),
            Err(cause) => cause,
        };
        let Some(wait) = retries.wait(&cause) else { return Err(cause) };
        let why = error::explain(&cause);
        let namespace = &job.rule.namespace;
        warn!(%namespace, "{namespace}: reading: {why}; trying again in {} ms", wait.as_millis());
        tokio::time::sleep(wait).await;
    }
}

/// Whether a key has this value anywhere in an explained plan.
pub fn plan_has(plan: &Document, key: &str, value: &Bson) -> bool {
    plan.iter().any(|(k, v)| {
        (k == key && v == value)
            || v.as_document().is_some_and(|inner| plan_has(inner, key, value))
            || v.as_array()
                .is_some_and(|items| items.iter().filter_map(Bson::as_document).any(|inner| plan_has(inner, key, value)))
    })
}
