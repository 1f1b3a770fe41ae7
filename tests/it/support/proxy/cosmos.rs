//! The differences between Azure Cosmos DB for MongoDB (RU) and mongod.
//!
//! Sources are Microsoft's pages on it: "Supported features and syntax", "Use MongoDB extension commands", "Indexing", "Time to
//! live", "Troubleshoot common issues" (error codes). Then "Prevent rate-limiting errors", "Optimize request cost", and the
//! issues named next to the facts that come from them. What no source says is marked as an assumption.

mod budget;
mod charges;
mod containers;
mod delete;
mod indexes;
mod operators;
mod reads;
mod recorder;
mod refusals;
mod replies;
mod writes;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mongodb::bson::Document;

use super::upstream::Upstream;
use super::{Call, errors};
use budget::{Budget, Purse, Stop};
use charges::METADATA;
use containers::Containers;
use indexes::Indexes;
pub(crate) use indexes::TtlOnTs;
use recorder::Recorder;
pub(crate) use recorder::Usage;
pub(crate) use replies::Statistics;

/// Commands that cost nothing here, which is an assumption: drivers send them on their own, or they say nothing about documents.
const FREE: [&str; 9] =
    ["currentOp", "explain", "hostInfo", "killCursors", "logout", "ping", "saslContinue", "saslStart", "whatsmyuri"];

/// Commands that mongod runs on collections, but not on views.
const STORED_ONLY: [&str; 8] = ["collStats", "createIndexes", "delete", "drop", "dropIndexes", "insert", "listIndexes", "update"];

/// Settings of an account. Maps are by namespace.
#[derive(Debug, Clone)]
pub(crate) struct CosmosRu {
    /// `3.6` to `7.0`; the driver of these tests needs 4.2.
    pub api_version: &'static str,
    /// Whether `hello` is refused, as accounts of version 7.0 do: eclipse-basyx/basyx-java-server-sdk#452.
    pub refuses_hello: bool,
    /// Whether `hello` and `buildInfo` have `_t`. The replies that show it are the replies of versions 3.2 and 3.4; that later
    /// versions keep it is an assumption.
    pub shows_types: bool,
    /// Units per second of each container; `None` for no limit.
    pub units_per_second: Option<f64>,
    /// Units per second for the account's metadata. "Azure Cosmos DB service quotas": 240.
    pub metadata_units_per_second: Option<f64>,
    /// Length of a second in which units are counted, for tests that shall be fast, or shall not depend on the time.
    pub second: Duration,
    /// Whether refusals contain `RetryAfterMs`. Without: spring-projects/spring-data-mongodb#3196.
    pub names_wait: bool,
    /// Whether the account has `DisableRateLimitingResponses`: the service repeats throttled requests itself ("Prevent
    /// rate-limiting errors").
    pub repeats_requests: bool,
    /// Time after which a command ends with error 50. "Troubleshoot common issues": 60 seconds.
    pub time_limit: Duration,
    /// Number of documents after which the account forgets a cursor.
    pub rows_of_a_cursor: Option<u64>,
    /// Shard keys of sharded collections.
    pub shard_keys: BTreeMap<String, Document>,
    /// Native TTL settings at the start. A collection that is missing here has no index on `_ts`, and TTL is off.
    pub ttl: BTreeMap<String, TtlOnTs>,
    /// Time since the last change of the documents that are there at the start.
    pub age: Duration,
    /// Whether the account has `EnableTtlOnCustomPath`.
    pub ttl_on_custom_path: bool,
    /// Whether the account has `EnableMongoRetryableWrites`.
    pub retryable_writes: bool,
}

impl Default for CosmosRu {
    fn default() -> Self {
        Self {
            api_version: "4.2",
            refuses_hello: false,
            shows_types: true,
            units_per_second: None,
            metadata_units_per_second: Some(240.0),
            second: Duration::from_secs(1),
            names_wait: true,
            repeats_requests: false,
            time_limit: Duration::from_secs(60),
            rows_of_a_cursor: None,
            shard_keys: BTreeMap::new(),
            ttl: BTreeMap::new(),
            age: Duration::ZERO,
            ttl_on_custom_path: false,
            retryable_writes: false,
        }
    }
}

/// A running account.
pub(crate) struct Account {
    settings: CosmosRu,
    /// By namespace.
    budgets: Mutex<HashMap<String, Arc<Budget>>>,
    metadata: Arc<Budget>,
    recorder: Recorder,
    indexes: Indexes,
    containers: Containers,
    /// Number of documents that each open cursor has returned.
    cursors: Mutex<HashMap<i64, u64>>,
}

impl Account {
    pub(crate) fn new(settings: CosmosRu) -> Self {
        let indexes = Indexes::new(settings.ttl.clone(), settings.ttl_on_custom_path);
        let metadata = Arc::new(Budget::new(settings.metadata_units_per_second, settings.second, settings.names_wait));
        let containers = Containers::new(settings.shard_keys.clone(), settings.age);
        let (budgets, cursors) = Default::default();
        Self { budgets, metadata, recorder: Recorder::default(), indexes, containers, settings, cursors }
    }

    /// Gives the collections that are there, and need it, the form in which mongod can hold them.
    pub(crate) async fn prepare(&self, upstream: &mut Upstream) -> io::Result<()> {
        for namespace in self.settings.shard_keys.keys().chain(self.settings.ttl.keys()) {
            self.containers.hold(upstream, namespace, self.indexes.ttl(namespace)).await?;
        }
        Ok(())
    }

    /// Deletes what native TTL has expired.
    pub(crate) async fn purge(&self, upstream: &mut Upstream) -> io::Result<()> {
        for namespace in self.indexes.namespaces() {
            self.containers.purge(upstream, &namespace, self.indexes.ttl(&namespace)).await?;
        }
        Ok(())
    }

    pub(crate) fn usage(&self) -> Usage {
        self.recorder.usage().clone()
    }

    pub(crate) async fn answer(&self, call: &mut Call<'_>) -> io::Result<Document> {
        if let Some(refusal) = refusals::refusal(&self.settings, call) {
            return Ok(refusal);
        }
        // A quorum confirms every write ("Supported features"); with the capability for retryable writes, a retry is treated like
        // a first try.
        for key in ["writeConcern", "txnNumber"] {
            call.command.remove(key);
        }
        match call.name.as_str() {
            "hello" | "isMaster" | "ismaster" => {
                let theirs = call.forward().await?;
                Ok(replies::hello(&self.settings, call, &theirs))
            }
            "buildInfo" | "buildinfo" => Ok(replies::build_info(&self.settings)),
            "getLastRequestStatistics" => Ok(replies::statistics(call.last.as_ref())),
            "explain" => Ok(replies::explained(call)),
            name if FREE.contains(&name) => call.forward().await,
            _ => self.charged(call).await,
        }
    }

    /// Runs commands that cost request units.
    async fn charged(&self, call: &mut Call<'_>) -> io::Result<Document> {
        let begun = Instant::now();
        let (name, namespace) = (call.name.clone(), refusals::namespace(call));
        let budget = if METADATA.contains(&name.as_str()) { Arc::clone(&self.metadata) } else { self.budget(&namespace) };
        if STORED_ONLY.contains(&name.as_str()) {
            call.command.insert(&name, self.containers.place(&namespace).1);
        }
        let limits = (self.settings.time_limit, self.settings.repeats_requests);
        let mut purse = Purse::new(&budget, &self.recorder, (&name, &namespace), limits);
        let reply = match name.as_str() {
            "delete" => self.delete(call, &mut purse).await?,
            "insert" => self.insert(call, &mut purse).await?,
            "update" | "findAndModify" => self.update(call, &mut purse).await?,
            name if METADATA.contains(&name) => self.metadata(call, &mut purse).await?,
            _ => self.read(call, &mut purse).await?,
        };
        *call.last = Some(Statistics { units: purse.spent(), took: begun.elapsed(), name: name.clone() });
        Ok(reply)
    }

    async fn metadata(&self, call: &mut Call<'_>, purse: &mut Purse<'_>) -> io::Result<Document> {
        let namespace = purse.namespace();
        match purse.spend(charges::OF_METADATA).await {
            Err(Stop::Throttled(wait)) => return Ok(errors::throttled_metadata(wait)),
            Err(Stop::TimedOut) => return Ok(errors::timed_out_throttled()),
            Ok(()) => {}
        }
        match call.name.as_str() {
            "customAction" => Ok(replies::custom_action(&self.settings, call)),
            "createIndexes" => self.indexes.create(call, namespace, &self.containers).await,
            "dropIndexes" => self.indexes.drop(call, namespace, &self.containers).await,
            "listIndexes" => self.indexes.list(call, namespace).await,
            "listCollections" => {
                let reply = call.forward().await?;
                Ok(self.containers.listed(call.command.get_str("$db").unwrap_or_default(), reply))
            }
            // That the count includes documents which have expired and are not deleted yet is an assumption.
            "collStats" => {
                let mut reply = call.forward().await?;
                reply.insert("ns", namespace);
                Ok(reply)
            }
            _ => call.forward().await,
        }
    }

    /// Returns the budget of a container. Databases that share their units among containers are not simulated.
    fn budget(&self, namespace: &str) -> Arc<Budget> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        let CosmosRu { units_per_second, second, names_wait, .. } = self.settings;
        let new = || Arc::new(Budget::new(units_per_second, second, names_wait));
        Arc::clone(budgets.entry(namespace.to_owned()).or_insert_with(new))
    }

    /// Adds to the number of documents that a cursor has returned, and returns the sum.
    fn given(&self, cursor: i64, documents: u64) -> u64 {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let given = cursors.entry(cursor).or_default();
        *given += documents;
        *given
    }
}

/// Returns the reply to a command of which nothing was done.
fn stopped(stop: Stop) -> Document {
    match stop {
        Stop::Throttled(wait) => errors::throttled(wait),
        Stop::TimedOut => errors::timed_out_throttled(),
    }
}
