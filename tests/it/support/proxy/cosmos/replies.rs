//! Replies of Cosmos DB for MongoDB (RU) that have nothing to do with documents.

use std::time::Duration;

use mongodb::bson::{Document, doc};

use super::super::{Call, errors, writable};
use super::CosmosRu;
use super::refusals::{self, MAX_MESSAGE_BYTES, MAX_WRITES};

/// The cost of a command, as in `getLastRequestStatistics`. Which request counts as the last is not documented; here it is the
/// last on the connection.
pub(crate) struct Statistics {
    pub name: String,
    pub units: f64,
    pub took: Duration,
}

/// Returns the wire version of an API version. Sources of 3.6 and 4.0: microsoft/vscode-documentdb#453,
/// clearlydefined/service#1431. The others are the wire versions of MongoDB, which is an assumption.
fn wire_version(api_version: &str) -> i32 {
    match api_version {
        "3.6" => 6,
        "4.0" => 7,
        "4.2" => 8,
        "5.0" => 13,
        "6.0" => 17,
        "7.0" => 21,
        version => panic!("no API version: {version}"),
    }
}

/// Returns the reply to `hello`. The shape is from laravel-mongodb#1492. `helloOk` is omitted, so that drivers keep sending
/// `isMaster`: some accounts do not know `hello` before the user has authenticated (MicrosoftDocs/azure-dev-docs#1260).
pub(super) fn hello(settings: &CosmosRu, call: &Call<'_>, theirs: &Document) -> Document {
    let reply = doc! {
        writable(&call.name): true, "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": MAX_MESSAGE_BYTES, "maxWriteBatchSize": MAX_WRITES, "localTime": theirs.get("localTime"),
        "logicalSessionTimeoutMinutes": 30, "minWireVersion": 0, "maxWireVersion": wire_version(settings.api_version),
        "tags": { "region": "West Europe" }, "hosts": [call.host], "setName": "globaldb", "setVersion": 1,
        "primary": call.host, "me": call.host, "readOnly": false, "ok": 1.0,
    };
    typed(settings, "IsMasterResponse", reply)
}

/// Puts the type of a reply in front, if the account shows it.
fn typed(settings: &CosmosRu, name: &str, reply: Document) -> Document {
    let name = settings.shows_types.then(|| ("_t".to_owned(), name.into()));
    name.into_iter().chain(reply).collect()
}

/// Returns the reply to `buildInfo`. Source of `_t`: mongolite#167.
pub(super) fn build_info(settings: &CosmosRu) -> Document {
    let version = format!("{}.0", settings.api_version);
    let parts: Vec<i32> = version.split('.').filter_map(|part| part.parse().ok()).chain([0]).collect();
    let reply = doc! { "version": version, "versionArray": parts, "bits": 64, "maxBsonObjectSize": 16_777_216, "ok": 1.0 };
    typed(settings, "BuildInfoResponse", reply)
}

/// Answers `GetCollection`. Source: "Use MongoDB extension commands".
pub(super) fn custom_action(settings: &CosmosRu, call: &Call<'_>) -> Document {
    let collection = call.command.get_str("collection").unwrap_or_default();
    if call.command.get_str("customAction").ok() != Some("GetCollection") {
        return errors::of_cosmos(115, "CommandNotSupported", "Command customAction not supported.");
    }
    let mut reply = doc! { "database": call.command.get("$db"), "collection": collection };
    if let Some(key) = settings.shard_keys.get(&refusals::namespace(call)) {
        reply.insert("shardKeyDefinition", key);
    }
    if let Some(units) = settings.units_per_second {
        // A cast from float saturates.
        reply.insert("provisionedThroughput", units as i32);
    }
    reply.insert("maxContentLength", 2_097_152);
    reply.insert("ok", 1.0);
    reply
}

/// Returns the reply to `getLastRequestStatistics`. Source: "Find the request unit charge".
pub(super) fn statistics(last: Option<&Statistics>) -> Document {
    let mut reply = doc! { "_t": "GetRequestStatisticsResponse", "ok": 1 };
    if let Some(last) = last {
        reply.insert("CommandName", &last.name);
        reply.insert("RequestCharge", last.units);
        reply.insert("RequestDurationInMilliSeconds", last.took.as_secs_f64() * 1000.0);
    }
    reply
}

/// Returns a plan in the service's own form, which a reader of MongoDB's plans cannot use. Source: "Troubleshoot query issues".
pub(super) fn explained(call: &Call<'_>) -> Document {
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
