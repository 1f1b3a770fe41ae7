//! Finds out whether the server is a part of a deployment that is connected to without the rest. Reads only.

use bson::{Document, doc};

use crate::core::facts::{ServerRole, Topology};
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Reads the collections that tell which part the server has, unless its hello has told. What the user may not read stays
/// unknown.
///
/// A standalone whose `local.system.replset` has a document is a member of a set, and its TTL monitor does not start (mongo,
/// `mongod_main.cpp`, `getReplSetMemberInStandaloneMode`). A shard has a `shardIdentity` (mongo,
/// `sharding_initialization_mongod.cpp`), which newer config servers have too: they hold a shard of their own if `config.shards`
/// has it under the name `config` (mongo, `ShardId::kConfigServerId`).
///
/// Errors: no answer.
pub(crate) async fn look(deployment: &Deployment) -> Result<ServerRole> {
    let facts = &deployment.facts;
    if !facts.capabilities.member_status || facts.topology == Topology::Sharded {
        return Ok(ServerRole::Whole);
    }
    match facts.role {
        ServerRole::Unknown => {}
        ServerRole::ConfigServers => {
            let holds_shard = has(deployment, ("config", "shards"), doc! { "_id": "config" }).await?;
            return Ok(if holds_shard == Some(true) { ServerRole::Shard } else { ServerRole::ConfigServers });
        }
        known => return Ok(known),
    }
    let is_member = match facts.topology {
        Topology::Standalone => has(deployment, ("local", "system.replset"), doc! {}).await?,
        _ => Some(false),
    };
    if is_member == Some(true) {
        return Ok(ServerRole::Member);
    }
    let is_shard = has(deployment, ("admin", "system.version"), doc! { "_id": "shardIdentity" }).await?;
    Ok(match (is_member, is_shard) {
        (_, Some(true)) => ServerRole::Shard,
        (Some(false), Some(false)) => ServerRole::Whole,
        _ => ServerRole::Unknown,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::flavor::Flavor;
    use crate::shell::server::wire::codes;
    use crate::shell::server::wire::error::ServerError;
    use crate::testing::scripted::{Script, ScriptedReply};

    const FOUND: fn() -> Vec<ScriptedReply> = || vec![ScriptedReply::Batch(vec![doc! { "_id": 1 }]), ScriptedReply::End];
    const NONE: fn() -> Vec<ScriptedReply> = || vec![ScriptedReply::Batch(Vec::new()), ScriptedReply::End];

    fn refused(code: i32) -> Vec<ScriptedReply> {
        vec![ScriptedReply::Error(ServerError::reported(code, "not allowed to do action [find]", ""))]
    }

    /// Returns the part, and the collections that were asked.
    async fn role(
        topology: Topology,
        by_hello: ServerRole,
        answers: Vec<Vec<ScriptedReply>>,
    ) -> (Result<ServerRole>, Vec<String>) {
        let script = Script::new(answers.into_iter().flatten());
        let mut deployment = script.deployment();
        (deployment.facts.topology, deployment.facts.role) = (topology, by_hello);
        let role = look(&deployment).await;
        (role, script.sent().iter().map(|command| command.get_str("find").unwrap().to_owned()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_not_be_read_is_not_known_and_refuses_nobody() {
        use Topology::{ReplicaSet, Sharded, Standalone};
        let atlas = 8000;
        let (both, identity) = (vec!["system.replset", "system.version"], vec!["system.version"]);
        for (topology, by_hello, answers, expected, asked) in [
            (Standalone, ServerRole::Unknown, vec![FOUND()], ServerRole::Member, vec!["system.replset"]),
            (Standalone, ServerRole::Unknown, vec![NONE(), FOUND()], ServerRole::Shard, both.clone()),
            (Standalone, ServerRole::Unknown, vec![NONE(), NONE()], ServerRole::Whole, both.clone()),
            (Standalone, ServerRole::Unknown, vec![refused(codes::UNAUTHORIZED), NONE()], ServerRole::Unknown, both.clone()),
            (Standalone, ServerRole::Unknown, vec![refused(codes::UNAUTHORIZED), FOUND()], ServerRole::Shard, both.clone()),
            (Standalone, ServerRole::Unknown, vec![NONE(), refused(atlas)], ServerRole::Unknown, both),
            (ReplicaSet, ServerRole::Unknown, vec![FOUND()], ServerRole::Shard, identity.clone()),
            (ReplicaSet, ServerRole::Unknown, vec![NONE()], ServerRole::Whole, identity.clone()),
            (ReplicaSet, ServerRole::Unknown, vec![refused(atlas)], ServerRole::Unknown, identity),
            (ReplicaSet, ServerRole::Shard, vec![], ServerRole::Shard, vec![]),
            (ReplicaSet, ServerRole::ConfigServers, vec![NONE()], ServerRole::ConfigServers, vec!["shards"]),
            (
                ReplicaSet,
                ServerRole::ConfigServers,
                vec![refused(codes::UNAUTHORIZED)],
                ServerRole::ConfigServers,
                vec!["shards"],
            ),
            (ReplicaSet, ServerRole::ConfigServers, vec![FOUND()], ServerRole::Shard, vec!["shards"]),
            (Sharded, ServerRole::Unknown, vec![], ServerRole::Whole, vec![]),
        ] {
            let (found, sent) = role(topology, by_hello, answers).await;
            assert_eq!(
                (found, sent),
                (Ok(expected), asked.into_iter().map(str::to_owned).collect()),
                "{topology:?} {by_hello:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_is_an_error_and_trouble_that_passes_is_none() {
        let down = || vec![ScriptedReply::Error(ServerError::reported(codes::SHUTDOWN_IN_PROGRESS, "shutting down", ""))];
        let (found, sent) = role(Topology::ReplicaSet, ServerRole::Unknown, vec![down(), FOUND()]).await;
        assert_eq!((found, sent.len()), (Ok(ServerRole::Shard), 2));
        let (found, _) = role(Topology::ReplicaSet, ServerRole::Unknown, (0..50).map(|_| down()).collect()).await;
        assert!(found.is_err(), "{found:?}");
    }

    #[tokio::test]
    async fn services_that_show_no_members_are_not_asked() {
        let script: Arc<Script> = Script::new([]);
        let mut deployment = script.deployment();
        deployment.facts.capabilities = Flavor::DocumentDb.capabilities(21);
        deployment.facts.role = ServerRole::Unknown;
        assert_eq!((look(&deployment).await, script.sent().len()), (Ok(ServerRole::Whole), 0));
    }
}
