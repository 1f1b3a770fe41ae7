//! The differences between Azure Cosmos DB for MongoDB (RU) and mongod.
//!
//! Sources are Microsoft's pages on it: "Supported features and syntax", "Use MongoDB extension commands", "Indexing", "Time to
//! live", "Troubleshoot common issues" (error codes), and the issues named next to the facts that come from them.

mod delete;
mod indexes;
mod operators;
mod refusals;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, Document, doc};

use super::bucket::{self, Bucket, Refused, Throttle, Usage};
use super::upstream::{is_ok, whole};
use super::{Call, errors, writable};
use indexes::Indexes;
pub(crate) use indexes::TtlOnTs;

/// Both from a `hello` reply: laravel-mongodb#1492.
const MAX_WRITES: i32 = 1000;
const MAX_MESSAGE_BYTES: i32 = 4 * 1024 * 1024;

/// Commands that cost nothing here: those sent by drivers, and those with a separate budget ("Azure Cosmos DB service quotas").
const FREE: [&str; 5] = ["ping", "hostInfo", "killCursors", "listDatabases", "listCollections"];

/// Settings of an account. Maps are by namespace.
#[derive(Debug, Clone)]
pub(crate) struct CosmosRu {
    /// `3.6` to `7.0`; the driver of these tests needs 4.2.
    pub api_version: &'static str,
    pub throttle: Option<Throttle>,
    /// Number of documents after which the account forgets a cursor.
    pub rows_of_a_cursor: Option<u64>,
    /// Shard keys of sharded collections.
    pub shard_keys: BTreeMap<String, Document>,
    /// Native TTL settings at the start. A collection that is missing here has no index on `_ts`, and TTL is off.
    pub ttl: BTreeMap<String, TtlOnTs>,
    /// Whether the account has `EnableTtlOnCustomPath`.
    pub ttl_on_custom_path: bool,
    /// Whether the account has `EnableMongoRetryableWrites`.
    pub retryable_writes: bool,
}

impl Default for CosmosRu {
    fn default() -> Self {
        Self {
            api_version: "4.2",
            throttle: None,
            rows_of_a_cursor: None,
            shard_keys: BTreeMap::new(),
            ttl: BTreeMap::new(),
            ttl_on_custom_path: false,
            retryable_writes: false,
        }
    }
}

impl CosmosRu {
    /// Returns the wire version of the API version. Sources of 3.6 and 4.0: microsoft/vscode-documentdb#453,
    /// clearlydefined/service#1431. The others are those of MongoDB.
    fn wire_version(&self) -> i32 {
        match self.api_version {
            "3.6" => 6,
            "4.0" => 7,
            "4.2" => 8,
            "5.0" => 13,
            "6.0" => 17,
            "7.0" => 21,
            version => panic!("no API version: {version}"),
        }
    }
}

/// The cost of a command, as in `getLastRequestStatistics`. Which request counts as the last is not documented; here it is the
/// last on the connection.
pub(crate) struct Statistics {
    name: String,
    units: f64,
    took: Duration,
}

/// A running account.
pub(crate) struct Account {
    settings: CosmosRu,
    bucket: Bucket,
    indexes: Indexes,
    /// Number of documents that each open cursor has returned.
    cursors: Mutex<HashMap<i64, u64>>,
}

impl Account {
    pub(crate) fn new(settings: CosmosRu) -> Self {
        let indexes = Indexes::new(settings.ttl.clone(), settings.ttl_on_custom_path);
        Self { bucket: Bucket::new(settings.throttle), indexes, settings, cursors: Mutex::default() }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.bucket.usage()
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
                Ok(self.hello(call, &theirs))
            }
            "buildInfo" | "buildinfo" => Ok(self.build_info()),
            "getLastRequestStatistics" => Ok(statistics(call.last.as_ref())),
            "customAction" => Ok(self.custom_action(call)),
            "explain" => Ok(explained(call)),
            "createIndexes" => self.indexes.create(call).await,
            "dropIndexes" => self.indexes.drop(call).await,
            "listIndexes" => self.indexes.list(call).await,
            name if FREE.contains(&name) => call.forward().await,
            _ => self.charged(call).await,
        }
    }

    /// Returns the reply to `hello`. The shape is from laravel-mongodb#1492. `helloOk` is omitted, so that drivers keep sending
    /// `isMaster`: some accounts do not know `hello` before the user has authenticated (MicrosoftDocs/azure-dev-docs#1260).
    fn hello(&self, call: &Call<'_>, theirs: &Document) -> Document {
        doc! {
            "_t": "IsMasterResponse", writable(&call.name): true, "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": MAX_MESSAGE_BYTES, "maxWriteBatchSize": MAX_WRITES, "localTime": theirs.get("localTime"),
            "logicalSessionTimeoutMinutes": 30, "minWireVersion": 0, "maxWireVersion": self.settings.wire_version(),
            "tags": { "region": "West Europe" }, "hosts": [call.host], "setName": "globaldb", "setVersion": 1,
            "primary": call.host, "me": call.host, "readOnly": false, "ok": 1.0,
        }
    }

    /// Returns the reply to `buildInfo`. Source of `_t`: mongolite#167.
    fn build_info(&self) -> Document {
        let version = format!("{}.0", self.settings.api_version);
        let parts: Vec<i32> = version.split('.').filter_map(|part| part.parse().ok()).chain([0]).collect();
        doc! {
            "_t": "BuildInfoResponse", "version": version, "versionArray": parts, "bits": 64, "maxBsonObjectSize": 16_777_216,
            "ok": 1.0,
        }
    }

    /// Answers `GetCollection`. Source: "Use MongoDB extension commands".
    fn custom_action(&self, call: &Call<'_>) -> Document {
        let collection = call.command.get_str("collection").unwrap_or_default();
        if call.command.get_str("customAction").ok() != Some("GetCollection") {
            return errors::of_cosmos(115, "CommandNotSupported", "Command customAction not supported.");
        }
        let mut reply = doc! { "database": call.command.get("$db"), "collection": collection };
        if let Some(key) = self.settings.shard_keys.get(&refusals::namespace(call)) {
            reply.insert("shardKeyDefinition", key);
        }
        if let Some(throttle) = self.settings.throttle {
            // A cast from float saturates.
            reply.insert("provisionedThroughput", throttle.units_per_second as i32);
        }
        reply.insert("maxContentLength", 2_097_152);
        reply.insert("ok", 1.0);
        reply
    }

    /// Runs commands that cost request units.
    async fn charged(&self, call: &mut Call<'_>) -> io::Result<Document> {
        let begun = Instant::now();
        let first = if call.name == "delete" { bucket::OF_A_DELETED_DOCUMENT } else { bucket::OF_A_COMMAND };
        if let Err(Refused(wait)) = self.bucket.admit(first) {
            return Ok(errors::throttled(wait));
        }
        let (reply, units) = if call.name == "delete" {
            delete::delete(&self.bucket, call).await?
        } else {
            let reply = self.read_or_written(call).await?;
            let returned = returned(&reply).map_or(0, <[_]>::len);
            let units = bucket::OF_A_COMMAND + bucket::OF_A_RETURNED_DOCUMENT * returned as f64;
            self.bucket.charge(units);
            (reply, units)
        };
        *call.last = Some(Statistics { name: call.name.clone(), units, took: begun.elapsed() });
        Ok(reply)
    }

    /// Runs a read or a write, and forgets cursors in time. Source: data-migration-desktop-tool#131, "cursor not found" at row
    /// 18,000.
    async fn read_or_written(&self, call: &mut Call<'_>) -> io::Result<Document> {
        let cursor = whole(&call.command, "getMore");
        if let (true, Some(most)) = (call.name == "getMore", self.settings.rows_of_a_cursor) {
            let left = most.saturating_sub(self.given(cursor, 0));
            if left == 0 {
                let kill =
                    doc! { "killCursors": call.command.get("collection"), "cursors": [cursor], "$db": call.command.get("$db") };
                call.upstream.run(&kill).await?;
                return Ok(errors::of_cosmos(43, "CursorNotFound", &format!("cursor id {cursor} not found")));
            }
            let asked = u64::try_from(whole(&call.command, "batchSize")).unwrap_or(0);
            let batch = if asked == 0 { left } else { left.min(asked) };
            call.command.insert("batchSize", i64::try_from(batch).map_err(io::Error::other)?);
        }
        let reply = call.forward().await?;
        if let (Some(batch), Ok(cursor)) = (returned(&reply), reply.get_document("cursor")) {
            self.given(whole(cursor, "id"), batch.len() as u64);
        }
        Ok(reply)
    }

    /// Adds to the number of documents that a cursor has returned, and returns the sum.
    fn given(&self, cursor: i64, documents: u64) -> u64 {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let given = cursors.entry(cursor).or_default();
        *given += documents;
        *given
    }
}

/// Returns the documents in the reply to a query.
fn returned(reply: &Document) -> Option<&[Bson]> {
    let cursor = reply.get_document("cursor").ok().filter(|_| is_ok(reply))?;
    cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).ok().map(Vec::as_slice)
}

/// Returns the reply to `getLastRequestStatistics`. Source: "Find the request unit charge".
fn statistics(last: Option<&Statistics>) -> Document {
    let mut reply = doc! { "_t": "GetRequestStatisticsResponse", "ok": 1 };
    if let Some(last) = last {
        reply.insert("CommandName", &last.name);
        reply.insert("RequestCharge", last.units);
        reply.insert("RequestDurationInMilliSeconds", last.took.as_secs_f64() * 1000.0);
    }
    reply
}

/// Returns a plan in the service's own form, which a reader of MongoDB's plans cannot use. Source: "Troubleshoot query issues".
fn explained(call: &Call<'_>) -> Document {
    let explained = call.command.get_document("explain").cloned().unwrap_or_default();
    let collection = explained.values().next();
    let metrics = doc! { "retrievedDocumentCount": 0_i64, "outputDocumentCount": 0_i64 };
    doc! {
        "stages": [{ "stage": "$query", "timeInclusiveMS": 1.0, "in": 0_i64, "out": 0_i64, "details": {
            "database": call.command.get("$db"), "collection": collection, "query": explained.get("filter"),
            "pathsIndexed": ["_id"], "pathsNotIndexed": [], "queryMetrics": metrics,
        } }],
        "estimatedDelayFromRateLimitingInMilliseconds": 0.0, "ok": 1.0,
    }
}
