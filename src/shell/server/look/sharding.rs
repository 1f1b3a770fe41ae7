//! The shard key of a collection, by which its documents are spread.

use bson::{Document, doc};

use super::privileges;
use crate::base::values::integer_in;
use crate::core::flavor::ShardKeys;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::transport::ReadPreference;

/// The shard key of a collection and what the deployment shows with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sharding {
    /// Paths of the shard key; empty if the collection is not sharded or the deployment never shows the key.
    pub key: Vec<String>,
    /// Request units per second that the collection has; `None` if it shares the units of its database, or the service bills
    /// none.
    pub throughput: Option<u32>,
}

/// Reads the shard key of a collection.
///
/// Sources: MongoDB manual, "Config Database"; Microsoft, "Use MongoDB extension commands to manage data", GetCollection.
///
/// Errors: also the errors of a user who may not read it.
pub(crate) async fn of(deployment: &Deployment, namespace: &Namespace) -> Result<Sharding> {
    let facts = &deployment.facts;
    match facts.capabilities.shard_keys {
        ShardKeys::ByGetCollection => {
            let command = doc! { "customAction": "GetCollection", "collection": &namespace.collection };
            let reply = deployment.read(&namespace.database, command).await?;
            Ok(Sharding { key: paths(reply.get_document("shardKeyDefinition").ok()), throughput: throughput(&reply) })
        }
        ShardKeys::InConfig if facts.is_behind_router() => {
            // From 8.0 on a collection that was moved has an entry although it is not sharded (SERVER-78763).
            let is_sharded = doc! { "_id": namespace.to_string(), "dropped": { "$ne": true }, "unsplittable": { "$ne": true } };
            let entry = Query::find(&collections(), is_sharded);
            let entry = entry.limit(1).read_preference(ReadPreference::ConnectionString).first_batch(deployment).await?;
            let key = entry.first().and_then(|entry| Document::try_from(entry.get_document("key").ok()?).ok());
            Ok(Sharding { key: paths(key.as_ref()), throughput: None })
        }
        ShardKeys::InConfig | ShardKeys::Unseen => Ok(Sharding::default()),
    }
}

/// Reads the paths of the shard key of a collection that exists, for a caller to whom a key that is not known is not the same as
/// none. A user who may not read it learns from the statistics of the collection whether it is sharded.
///
/// Errors: the collection is sharded, or may be, by a key that is not known.
pub(crate) async fn certain_key(deployment: &Deployment, namespace: &Namespace) -> Result<Vec<String>> {
    let cause = match of(deployment, namespace).await {
        Ok(sharding) => return Ok(sharding.key),
        Err(cause) if cause.is_unavailable() => cause,
        Err(cause) => return Err(cause),
    };
    // Source: mongo s/commands/cluster_coll_stats_cmd.cpp.
    let stats = deployment.read(&namespace.database, doc! { "collStats": &namespace.collection }).await;
    match stats.as_ref().map(|stats| stats.get_bool("sharded")) {
        Ok(Ok(false)) => Ok(Vec::new()),
        _ => {
            let why = explain(deployment, &cause);
            Err(ServerError::other(format!(
                "its shard key is not known, and documents of a sharded collection are told apart by it and their `_id`: {why}"
            )))
        }
    }
}

/// Says why a shard key could not be read, and what to do.
pub(super) fn explain(deployment: &Deployment, cause: &ServerError) -> String {
    match deployment.facts.capabilities.shard_keys {
        ShardKeys::ByGetCollection => cause.to_string(),
        ShardKeys::InConfig | ShardKeys::Unseen => privileges::explain(cause, &collections(), &["find"]),
    }
}

fn collections() -> Namespace {
    Namespace { database: "config".into(), collection: "collections".into() }
}

fn paths(key: Option<&Document>) -> Vec<String> {
    key.into_iter().flat_map(Document::keys).cloned().collect()
}

/// Returns the throughput in a reply to GetCollection: what is provisioned, or the most that autoscale provides.
fn throughput(reply: &Document) -> Option<u32> {
    let autoscale = reply.get_document("autoScaleSettings").ok().and_then(|settings| integer_in(settings, "maxThroughput"));
    autoscale
        .or_else(|| integer_in(reply, "provisionedThroughput"))
        .and_then(|units| u32::try_from(units).ok())
        .filter(|units| *units > 0)
}
