//! Recognises a deployment: its product, version, topology and clock, and whether it asks for a user.

use bson::{Bson, DateTime, Document, doc};

use crate::base::machine::wall_clock;
use crate::base::values::integer_in;
use crate::core::facts::{ServerFacts, ServerRole, Topology, TtlMonitor};
use crate::core::flavor::Flavor;
use crate::shell::lock::moment::{Moment, ServerTime};
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::retry::{Retries, retry};
use crate::shell::server::wire::transport::{Patience, ServerCommand, Transport};

/// Returns the flavor that the policy or a host name indicates, and which of the two did.
pub(crate) fn by_name(flavor: Option<Flavor>, seeds: &[String]) -> Option<(Flavor, String)> {
    if let Some(flavor) = flavor {
        return Some((flavor, "`flavor` of the policy".to_owned()));
    }
    seeds.iter().find_map(|host| Some((Flavor::of_host(host)?, "the name of its host".to_owned())))
}

/// Runs a command that is not allowed without a user, if the server asks for one; those that [`ask`] runs are.
pub(crate) async fn need_no_user(transport: &dyn Transport, patience: Patience) -> Result<(), ServerError> {
    let list = doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": true };
    asked(transport, ServerCommand::of("admin", &list, patience)?).await.map(|_| ())
}

/// Asks a deployment for its facts. Changes nothing.
pub(crate) async fn ask(
    transport: &dyn Transport,
    patience: Patience,
    seeds: Vec<String>,
    by_name: Option<(Flavor, String)>,
) -> Result<ServerFacts, ServerError> {
    // The first command opens the connection; the clocks are compared by the round trip of the second.
    let knows_hello = by_name.as_ref().is_none_or(|(flavor, _)| *flavor != Flavor::CosmosRu);
    let build = asked(transport, ServerCommand::of("admin", &doc! { "buildInfo": 1 }, patience)?).await?;
    let mut retries = Retries::several();
    let timed = retry(
        |cause| retries.wait(cause),
        || async {
            let before = wall_clock();
            let hello = hello(transport, patience, knows_hello).await?;
            Ok((hello, before + wall_clock().duration_since(before).unwrap_or_default() / 2))
        },
    );
    let (hello, middle) = timed.await?;
    let local_time = local_time(&hello)?;
    let set_name = hello.get_str("setName").ok().map(str::to_owned);
    let hosts: Vec<String> =
        ["hosts", "passives", "arbiters"].iter().flat_map(|key| strings(&hello, key)).map(|host| host.to_lowercase()).collect();
    let (flavor, recognised_by) = by_name
        .or_else(|| Flavor::of_hello(&hello).map(|(flavor, why)| (flavor, why.to_owned())))
        .unwrap_or_else(|| (Flavor::MongoDb, "no sign of another product".to_owned()));
    let wire_version = integer_in(&hello, "maxWireVersion").and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
    Ok(ServerFacts {
        version: build.get_str("version").unwrap_or("unknown").to_owned(),
        flavor,
        recognised_by,
        capabilities: flavor.capabilities(wire_version),
        wire_version,
        topology: match (&set_name, hello.get_str("msg")) {
            (Some(_), _) => Topology::ReplicaSet,
            (None, Ok("isdbgrid")) => Topology::Sharded,
            _ => Topology::Standalone,
        },
        set_name,
        hosts: if hosts.is_empty() { seeds } else { hosts },
        local_time,
        clock_skew_ms: DateTime::from_system_time(middle).timestamp_millis() - local_time.timestamp_millis(),
        role: role(flavor, &hello),
        ttl_monitor: TtlMonitor::Unknown,
    })
}

/// Reads from a hello what it tells of the server's part in a deployment. A config server names itself (mongo,
/// `replication_info.cpp`). A member of a shard adds to each reply the time up to which a majority has confirmed (mongo,
/// `service_entry_point_mongod.cpp`, `appendReplyMetadata`), and needs no privilege for it. A server that was started for a
/// set, and has none yet or no longer, takes no writes.
fn role(flavor: Flavor, hello: &Document) -> ServerRole {
    if flavor != Flavor::MongoDb {
        ServerRole::Unknown
    } else if hello.contains_key("configsvr") {
        ServerRole::ConfigServers
    } else if hello.contains_key("lastCommittedOpTime") {
        ServerRole::Shard
    } else if hello.get_bool("isreplicaset").unwrap_or(false) {
        ServerRole::Whole
    } else {
        ServerRole::Unknown
    }
}

/// Runs a command that changes nothing, and retries it as [`Retries::several`] says.
async fn asked(transport: &dyn Transport, command: ServerCommand) -> Result<Document, ServerError> {
    let mut retries = Retries::several();
    retry(|cause| retries.wait(cause), || transport.run(command.clone())).await
}

/// Asks the server for its role and its time, once: an answer after a retry would be compared with the wrong moment.
/// `knows_hello` says whether it may know the newer name of the command.
async fn hello(transport: &dyn Transport, patience: Patience, knows_hello: bool) -> Result<Document, ServerError> {
    let command = |name: &str| ServerCommand::of("admin", &doc! { name: 1 }, patience);
    if !knows_hello {
        return transport.run(command("isMaster")?).await;
    }
    match transport.run(command("hello")?).await {
        // MongoDB 4.2 knows only the older name, and so did accounts of Azure Cosmos DB (RU) with API version 7.0
        // (MicrosoftDocs/azure-databases-docs#180, eclipse-basyx/basyx-java-server-sdk#452, spring-projects/spring-boot#41101).
        Err(cause) if cause.is_unsupported() => transport.run(command("isMaster")?).await,
        answer => answer,
    }
}

/// Reads the server's clock, once.
///
/// Errors: no answer, or an answer without the time.
pub(crate) async fn clock(deployment: &Deployment, patience: Patience) -> Result<ServerTime, ServerError> {
    let (asked, knows_hello) = (Moment::now(), deployment.facts.capabilities.hello);
    Ok(ServerTime { now: local_time(&hello(deployment.transport.as_ref(), patience, knows_hello).await?)?, asked })
}

/// Reads the server's clock from its reply to `hello`. MongoDB gives a date; the gateway of the DocumentDB engine gives
/// milliseconds (microsoft/documentdb, `ismaster.rs`).
///
/// Errors: the reply holds no time. The clock of this machine is no substitute, because the server's clock decides what has
/// expired.
fn local_time(hello: &Document) -> Result<DateTime, ServerError> {
    let time = match hello.get("localTime") {
        Some(Bson::DateTime(time)) => Some(*time),
        Some(Bson::Int64(millis)) => Some(DateTime::from_millis(*millis)),
        // A cast from float truncates, and saturates.
        Some(Bson::Double(millis)) if millis.is_finite() => Some(DateTime::from_millis(*millis as i64)),
        _ => None,
    };
    time.ok_or_else(|| {
        ServerError::other("the server does not tell its time, which decides what has expired: expected `localTime` in its reply to `hello` as a date or in milliseconds")
    })
}

fn strings<'a>(document: &'a Document, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    document.get_array(key).into_iter().flatten().filter_map(Bson::as_str)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shell::server::wire::codes;
    use crate::testing::scripted::{Script, ScriptedReply};

    const PATIENCE: Patience = Patience::Limit(Duration::from_secs(30));

    #[tokio::test(start_paused = true)]
    async fn a_server_without_hello_is_asked_by_the_older_name_and_throttling_is_waited_out() {
        let error = |code, message: &str| ScriptedReply::Error(ServerError::reported(code, message, ""));
        let throttled = || error(16_500, "Error=16500, RetryAfterMs=30, Details=");
        let now = DateTime::from_millis(5);
        let hello = doc! { "_t": "IsMasterResponse", "setName": "globaldb", "maxWireVersion": 21, "localTime": now };
        for refusal in [
            error(codes::COMMAND_NOT_SUPPORTED, "Command Hello not supported prior to authentication"),
            error(codes::COMMAND_NOT_FOUND, "no such command: 'hello'"),
        ] {
            let script = Script::new([
                throttled(),
                ScriptedReply::Reply(doc! { "version": "7.0.0" }),
                throttled(),
                refusal,
                ScriptedReply::Reply(hello.clone()),
                throttled(),
                ScriptedReply::Reply(doc! { "databases": [] }),
            ]);
            let facts = ask(&script, PATIENCE, vec!["h:1".into()], None).await.unwrap();
            need_no_user(&script, PATIENCE).await.unwrap();
            assert_eq!((facts.flavor, facts.wire_version, facts.hosts), (Flavor::CosmosRu, 21, vec!["h:1".to_owned()]));
            let sent: Vec<String> = script.sent().iter().map(|command| command.keys().next().unwrap().clone()).collect();
            let expected = ["buildInfo", "buildInfo", "hello", "hello", "isMaster", "listDatabases", "listDatabases"];
            assert_eq!(sent, expected);
        }
    }

    #[test]
    fn a_hello_names_shards_and_config_servers() {
        let time = Bson::Timestamp(bson::Timestamp { time: 5, increment: 1 });
        for (hello, flavor, expected) in [
            (doc! { "setName": "rs0" }, Flavor::MongoDb, ServerRole::Unknown),
            (doc! { "setName": "rs0", "lastCommittedOpTime": &time }, Flavor::MongoDb, ServerRole::Shard),
            (doc! { "setName": "rs0", "lastCommittedOpTime": &time, "configsvr": 2 }, Flavor::MongoDb, ServerRole::ConfigServers),
            (doc! { "setName": "rs0", "lastCommittedOpTime": &time }, Flavor::AmazonDocumentDb, ServerRole::Unknown),
            (doc! { "isreplicaset": true }, Flavor::MongoDb, ServerRole::Whole),
            (doc! {}, Flavor::MongoDb, ServerRole::Unknown),
        ] {
            assert_eq!(role(flavor, &hello), expected, "{hello} {flavor:?}");
        }
    }

    #[test]
    fn the_servers_clock_is_a_date_or_a_number_and_never_guessed() {
        const NOW: i64 = 1_800_000_000_123;
        for time in [Bson::DateTime(DateTime::from_millis(NOW)), Bson::Int64(NOW), Bson::Double(NOW as f64 + 0.4)] {
            assert_eq!(local_time(&doc! { "localTime": &time }), Ok(DateTime::from_millis(NOW)), "{time}");
        }
        for hello in
            [doc! {}, doc! { "localTime": "2027-01-15" }, doc! { "localTime": f64::NAN }, doc! { "localTime": Bson::Null }]
        {
            let why = local_time(&hello).unwrap_err().to_string();
            assert!(why.starts_with("the server does not tell its time"), "{hello}: {why}");
        }
    }
}
