//! Finds out whether the server is a part of a deployment that is connected to without the rest. Reads only.

use bson::{Document, doc};

use super::Deployment;
use super::error::Result;
use super::find::Query;
use crate::facts::{Part, Topology};
use crate::policy::namespace::Namespace;

/// Reads the collections that tell which part the server has, unless its hello has told. What the user may not read stays unknown.
///
/// A standalone whose `local.system.replset` has a document is a member of a set, and its TTL monitor does not start (mongo, `mongod_main.cpp`,
/// `getReplSetMemberInStandaloneMode`). A shard has a `shardIdentity` (mongo, `sharding_initialization_mongod.cpp`), which newer config servers have
/// too: they hold a shard of their own if `config.shards` has it under the name `config` (mongo, `ShardId::kConfigServerId`).
///
/// Errors: no answer.
pub(crate) async fn look(deployment: &Deployment) -> Result<Part> {
    let facts = &deployment.facts;
    if !facts.capabilities.member_status || facts.topology == Topology::Sharded {
        return Ok(Part::Whole);
    }
    match facts.part {
        Part::Unknown => {}
        Part::ConfigServers => {
            let holds_shard = has(deployment, ("config", "shards"), doc! { "_id": "config" }).await?;
            return Ok(if holds_shard == Some(true) { Part::Shard } else { Part::ConfigServers });
        }
        known => return Ok(known),
    }
    let is_member = match facts.topology {
        Topology::Standalone => has(deployment, ("local", "system.replset"), doc! {}).await?,
        _ => Some(false),
    };
    if is_member == Some(true) {
        return Ok(Part::Member);
    }
    let is_shard = has(deployment, ("admin", "system.version"), doc! { "_id": "shardIdentity" }).await?;
    Ok(match (is_member, is_shard) {
        (_, Some(true)) => Part::Shard,
        (Some(false), Some(false)) => Part::Whole,
        _ => Part::Unknown,
    })
}

/// Tells whether a collection has such a document; `None` if the server does not let this user see it.
async fn has(deployment: &Deployment, (database, collection): (&str, &str), filter: Document) -> Result<Option<bool>> {
    let namespace = Namespace { database: database.into(), collection: collection.into() };
    // Its own documents are meant, whatever the connection string asks for.
    let local = doc! { "level": "local" };
    let query = Query::find(&namespace, filter).projection(doc! { "_id": 1 }).limit(1).read_concern(Some(local));
    match query.all(deployment).await {
        Ok(found) => Ok(Some(!found.is_empty())),
        // Hosted services refuse what belongs to the server with codes of their own.
        Err(cause) if cause.code().is_some() && !cause.may_pass() => Ok(None),
        Err(cause) => Err(cause),
    }
}
