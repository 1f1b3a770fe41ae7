//! Reads: one builder for `find`, `aggregate` and the listings of collections and indexes.

mod command;
#[cfg(test)]
mod tests;

use std::time::Duration;
use std::vec::IntoIter;

use bson::{Bson, Document, RawDocumentBuf, doc};

use super::error::ServerError;
use super::overload::Overload;
use super::retry::{Retries, log_retry, retry};
use super::transport::{Batches, ReadPreference};
use crate::base::values::count_in;
use crate::base::values::raw;
use crate::core::plan::holds::KeyCondition;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;

/// A read that is yet to be sent: by default to the primary, with [`Deployment::patience`], and retried as [`Retries::several`]
/// says.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    database: String,
    kind: QueryKind,
    /// Further options of the command, by their names.
    options: Document,
    batch_size: Option<u32>,
    hint: Option<Bson>,
    max_time: Option<Duration>,
    read_preference: ReadPreference,
    /// Time after which a reply counts as lost in any case.
    time_limit: Option<Duration>,
    attempts: RetryMode,
    /// Whether a query for which the service had no time is an error at once.
    shrinks: bool,
    /// Request units that the query will cost, by the caller's estimate.
    units: Option<f64>,
    /// `None` for the read concern of the connection string.
    read_concern: Option<Document>,
    /// A condition of an aggregation that comes before its stages.
    only: Option<KeyCondition>,
}

#[derive(Debug, Clone)]
enum QueryKind {
    Find {
        collection: String,
        filter: QueryFilter,
    },
    Aggregate {
        collection: String,
        stages: Vec<Document>,
    },
    Count {
        collection: String,
        filter: QueryFilter,
    },
    /// A whole command, such as `listIndexes`.
    Listing(Document),
}

/// A filter, decoded or not.
#[derive(Debug, Clone)]
pub(crate) enum QueryFilter {
    Document(Document),
    Raw(RawDocumentBuf),
}

#[derive(Debug, Clone)]
enum RetryMode {
    Several,
    /// Each retry is logged, under this name.
    Patient(Namespace),
}

impl Query {
    pub(crate) fn find(namespace: &Namespace, filter: impl Into<QueryFilter>) -> Self {
        Self::new(&namespace.database, QueryKind::Find { collection: namespace.collection.clone(), filter: filter.into() })
    }

    /// Creates a query for the number of documents, which [`Self::number`] sends. It names no collection by its UUID, which a
    /// count does not take.
    pub(crate) fn count(namespace: &Namespace, filter: impl Into<QueryFilter>) -> Self {
        Self::new(&namespace.database, QueryKind::Count { collection: namespace.collection.clone(), filter: filter.into() })
    }

    pub(crate) fn aggregate(namespace: &Namespace, stages: Vec<Document>) -> Self {
        Self::new(&namespace.database, QueryKind::Aggregate { collection: namespace.collection.clone(), stages })
    }

    /// Creates a query from a command that opens a cursor and takes no options of a query: `listCollections` or `listIndexes`.
    pub(crate) fn listing(database: &str, command: Document) -> Self {
        Self::new(database, QueryKind::Listing(command))
    }

    fn new(database: &str, kind: QueryKind) -> Self {
        Self {
            database: database.to_owned(),
            kind,
            options: Document::new(),
            batch_size: None,
            hint: None,
            max_time: None,
            read_preference: ReadPreference::Primary,
            time_limit: None,
            attempts: RetryMode::Several,
            shrinks: false,
            units: None,
            read_concern: None,
            only: None,
        }
    }

    pub(crate) fn projection(self, projection: Document) -> Self {
        self.option("projection", projection)
    }

    /// Asks for one path only, so that an index on it is all that the server reads: the `_id` is left out unless the path is in
    /// it.
    pub(crate) fn covered(self, path: &str) -> Self {
        self.projection(match path.split('.').next() {
            Some("_id") => doc! { "_id": 1 },
            _ => doc! { "_id": 0, path: 1 },
        })
    }

    pub(crate) fn sort(self, sort: Document) -> Self {
        self.option("sort", sort)
    }

    pub(crate) fn skip(self, documents: u64) -> Self {
        self.option("skip", whole(documents))
    }

    pub(crate) fn limit(self, documents: u64) -> Self {
        self.option("limit", whole(documents))
    }

    pub(crate) fn collation(self, collation: Option<&Document>) -> Self {
        match collation {
            Some(collation) => self.option("collation", collation.clone()),
            None => self,
        }
    }

    /// Adds the RecordId of each document, its place in the storage, as `$recordId`.
    pub(crate) fn record_ids(self) -> Self {
        self.option("showRecordId", true)
    }

    /// Lets a query use the server's disk.
    pub(crate) fn allow_disk_use(self) -> Self {
        self.option("allowDiskUse", true)
    }

    fn option(mut self, name: &str, value: impl Into<Bson>) -> Self {
        self.options.insert(name, value);
        self
    }

    /// Sets the number of documents per batch.
    pub(crate) fn batch_size(self, documents: u32) -> Self {
        Self { batch_size: Some(documents), ..self }
    }

    /// Sets the hint, an index by its name or its key. It is followed if the flavor supports hints.
    pub(crate) fn hint(self, index: Option<impl Into<Bson>>) -> Self {
        Self { hint: index.map(Into::into), ..self }
    }

    /// Sets the time that the server may work on the query; `None` for no limit.
    pub(crate) fn max_time(self, max_time: Option<Duration>) -> Self {
        Self { max_time, ..self }
    }

    /// Sets the read preference, which is otherwise the primary.
    pub(crate) fn read_preference(self, read_preference: ReadPreference) -> Self {
        Self { read_preference, ..self }
    }

    /// Sets the read concern; `None` for the read concern of the connection string.
    pub(crate) fn read_concern(self, read_concern: Option<Document>) -> Self {
        Self { read_concern, ..self }
    }

    /// Sets a condition that comes before the stages of an aggregation; `None` for none.
    pub(crate) fn only(self, only: Option<KeyCondition>) -> Self {
        Self { only, ..self }
    }

    /// Sets the time after which a reply counts as lost in any case.
    pub(crate) fn time_limit(self, limit: Duration) -> Self {
        Self { time_limit: Some(limit), ..self }
    }

    /// Retries as [`Retries::patient`] says, and logs each retry under this name.
    pub(crate) fn retried_patiently(self, reported_as: &Namespace) -> Self {
        Self { attempts: RetryMode::Patient(reported_as.clone()), ..self }
    }

    /// Leaves it to the caller to ask for less after the service had no time for the query, which would cost as much again.
    pub(crate) fn shrunk_by_caller(self) -> Self {
        Self { shrinks: true, ..self }
    }

    /// Sets the request units that the query will cost, by the caller's estimate.
    pub(crate) fn costing(self, units: f64) -> Self {
        Self { units: Some(units), ..self }
    }

    /// Returns the first batch, undecoded, and leaves no cursor open. The length of the batch is the limit or the batch size.
    pub(crate) async fn first_batch(&self, deployment: &Deployment) -> Result<Vec<RawDocumentBuf>, ServerError> {
        let mut single = self.clone().option("singleBatch", true);
        // Without a batch size, MongoDB ends the first batch of a find at 101 documents, whatever the limit. A router asks each
        // shard for those that it skips as well, and fetches them by this number.
        let number = |name| self.options.get(name).and_then(Bson::as_i64);
        if let (None, Some(limit)) = (self.batch_size, number("limit")) {
            single = single.option("batchSize", limit.saturating_add(number("skip").unwrap_or(0)));
        }
        let command = single.command(deployment)?;
        let batch = self.retrying(|| async { deployment.open_once(command.clone()).await?.next().await }).await?;
        Ok(batch.unwrap_or_default())
    }

    /// Returns all documents; a retry starts from the first one again. What is not valid is replaced, as [`raw::shown`] says.
    pub(crate) async fn all(&self, deployment: &Deployment) -> Result<Vec<Document>, ServerError> {
        Ok(self.all_raw(deployment).await?.iter().map(|document| raw::shown(document)).collect())
    }

    /// Returns the same as [`Self::all`], undecoded.
    pub(crate) async fn all_raw(&self, deployment: &Deployment) -> Result<Vec<RawDocumentBuf>, ServerError> {
        self.retrying(|| async {
            let mut cursor = self.cursor(deployment).await?;
            let mut documents = Vec::new();
            while let Some(document) = cursor.next().await? {
                documents.push(document);
            }
            Ok(documents)
        })
        .await
    }

    /// Opens a cursor. Neither the opening nor the batches are retried.
    pub(crate) async fn cursor(&self, deployment: &Deployment) -> Result<Cursor, ServerError> {
        let batches = deployment.open_once(self.command(deployment)?).await?;
        Ok(Cursor { batches, buffered: Vec::new().into_iter() })
    }

    /// Returns the number of documents, no further than to the limit.
    pub(crate) async fn number(&self, deployment: &Deployment) -> Result<u64, ServerError> {
        let command = self.command(deployment)?;
        let reply = self.retrying(|| deployment.send_once(command.clone())).await?;
        count_in(&reply, "n").ok_or_else(|| ServerError::invalid_reply("a count without its number"))
    }

    /// Returns the plan of the query as `explain` shows it.
    pub(crate) async fn explain(&self, deployment: &Deployment, verbosity: &str) -> Result<Document, ServerError> {
        let mut explained = Self { max_time: None, ..self.clone() }.body(deployment)?;
        if let Some(Bson::String(comment)) = deployment.comment() {
            explained.append(bson::raw::cstr!("comment"), comment);
        }
        let mut body = RawDocumentBuf::new();
        body.append(bson::raw::cstr!("explain"), explained);
        body.append(bson::raw::cstr!("verbosity"), verbosity);
        if let Some(max_time) = self.max_time {
            body.append(bson::raw::cstr!("maxTimeMS"), millis(max_time));
        }
        let command = self.addressed(deployment, body);
        self.retrying(|| deployment.send_once(command.clone())).await
    }

    async fn retrying<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, ServerError>
    where
        F: Future<Output = Result<T, ServerError>>,
    {
        let mut retries = match &self.attempts {
            RetryMode::Several => Retries::several(),
            RetryMode::Patient(_) => Retries::patient(),
        };
        let next_wait = |cause: &ServerError| {
            let wait = retries.wait_to_read(cause).filter(|_| !self.shrinks || cause.overload() != Some(Overload::TimedOut))?;
            if let RetryMode::Patient(namespace) = &self.attempts {
                log_retry(namespace, cause, wait);
            }
            Some(wait)
        };
        retry(next_wait, attempt).await
    }
}

impl From<Document> for QueryFilter {
    fn from(filter: Document) -> Self {
        Self::Document(filter)
    }
}

impl From<RawDocumentBuf> for QueryFilter {
    fn from(filter: RawDocumentBuf) -> Self {
        Self::Raw(filter)
    }
}

/// The documents of a query, one after another.
pub(crate) struct Cursor {
    batches: Box<dyn Batches>,
    buffered: IntoIter<RawDocumentBuf>,
}

impl Cursor {
    /// Returns the next document, which may require fetching a batch; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<RawDocumentBuf>, ServerError> {
        loop {
            if let Some(document) = self.buffered.next() {
                return Ok(Some(document));
            }
            match self.batches.next().await? {
                Some(batch) => self.buffered = batch.into_iter(),
                None => return Ok(None),
            }
        }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn whole(documents: u64) -> i64 {
    i64::try_from(documents).unwrap_or(i64::MAX)
}
