//! Connects to a deployment, and recognises it.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions, ServerAddress, WriteConcern};
use tracing::{info, warn};

use super::driver::Driver;
use super::error::{ConnectObstacle, ServerError};
use super::meter::Billing;
use super::retry::{Retries, retry};
use super::transport::{Patience, ServerCommand, Transport};
use super::{Deployment, ReadOptions, timeout, uri};
use crate::facts::{ServerFacts, Topology, TtlMonitor};
use crate::failure::Failure;
use crate::flavor::Flavor;
use crate::machine::wall_clock;
use crate::secrets;
use crate::values::integer_in;

/// Maximum time to select a server unless the connection string sets one (`serverSelectionTimeoutMS`), as in all drivers.
const SELECTION_TIME: Duration = Duration::from_secs(30);

/// Time limit of a command that recognises a deployment, once a server is selected.
const MAX_FIRST_TIME: Duration = Duration::from_secs(30);

/// Connects, and checks that the server answers and can be swept by this version.
///
/// Errors: the reason, with the hosts but without user, password or options of the connection string.
pub(crate) async fn connect(given: &str, flavor: Option<Flavor>, run_id: &str) -> Result<Deployment, Failure> {
    let shown = uri::redacted(given);
    for secret in uri::secrets(given) {
        secrets::withhold(&secret, "<redacted>");
    }
    let prepared = uri::prepare(given)
        .map_err(|why| Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted")))?;
    for warning in &prepared.warnings {
        warn!("{warning}");
    }
    for (option, path) in uri::files(&prepared.uri) {
        std::fs::File::open(&path).map_err(|cause| {
            // In a string whose hosts cannot be shown, even this may be part of a password.
            let file = if shown.ends_with("<redacted>") { option.to_owned() } else { format!("{option}={path}") };
            Failure::usage(format!("reading the connection string `{shown}`: `{file}`: {cause}; nothing was contacted"))
        })?;
    }
    let mut options = read(&prepared.uri).await.map_err(|cause| unreadable(&shown, given, &cause))?;
    if options.app_name.is_none() {
        options.app_name = Some("sweeper".into());
    }
    if options.max_idle_time.is_none() {
        // Load balancers in front of cloud services drop connections that are idle for some four minutes.
        options.max_idle_time = Some(Duration::from_secs(120));
    }
    let write_concern = write_concern(options.write_concern.as_ref())
        .map_err(|why| Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted")))?;
    let seeds: Vec<String> = options.hosts.iter().map(ServerAddress::to_string).collect();
    let by_name = by_name(flavor, &seeds);
    if matches!(by_name, Some((Flavor::CosmosRu | Flavor::DocumentDb | Flavor::AmazonDocumentDb, _))) {
        // The driver retries no command of this program, and Cosmos DB and Amazon DocumentDB refuse the transaction number that retryable
        // writes add.
        options.retry_writes = Some(false);
    }
    let with_user = options.credential.is_some();
    let read_concern = options.read_concern.as_ref().map(bson::serialize_to_document).transpose();
    let read_concern = read_concern.map_err(|cause| unreadable(&shown, given, &cause.into()))?;

    let command_timeout = prepared.command_timeout.unwrap_or(timeout::MAX_COMMAND_TIME);
    let patience = first_patience(&options, command_timeout);
    let driver = |options| Driver::new(options).map_err(|cause| unreadable(&shown, given, &cause));
    let transport: Arc<dyn Transport> = Arc::new(driver(options.clone())?);
    let facts = ask(transport.as_ref(), patience, seeds, by_name).await;
    let facts = facts.map_err(|cause| cannot_connect(&shown, with_user, &cause))?;
    let billing = match facts.capabilities.request_charge {
        true => {
            transport.close().await;
            options.max_pool_size = Some(1);
            options.min_pool_size = None;
            Some(Billing::new(Arc::new(driver(options.clone())?), Arc::new(driver(options)?)))
        }
        false => None,
    };
    let transport = billing.as_ref().map_or(transport, Billing::transport);
    if !with_user {
        need_no_user(transport.as_ref(), patience).await.map_err(|cause| cannot_connect(&shown, with_user, &cause))?;
    }
    if let Some(why) = facts.weakness_of(&write_concern) {
        warn!(
            "`{shown}`: {why}: a fail-over may take back what was written or deleted; leave `w` and `journal` out for a majority"
        );
    }
    info!("connected to {shown}: {} {} ({}), {}", facts.flavor.name(), facts.version, facts.recognised_by, facts.topology.name());
    Ok(Deployment {
        transport,
        facts,
        comment: format!("sweeper {run_id}"),
        write_concern,
        read_concern,
        command_timeout,
        read_options: ReadOptions::default(),
        answered: Arc::default(),
        billing,
    })
}

/// Connects to a model of a server.
#[cfg(test)]
pub(crate) async fn through(transport: Arc<dyn Transport>, run_id: &str) -> Result<Deployment, Failure> {
    let asked = async {
        let patience = first_patience(&ClientOptions::default(), timeout::MAX_COMMAND_TIME);
        let facts = ask(transport.as_ref(), patience, vec!["model:27017".into()], None).await?;
        need_no_user(transport.as_ref(), patience).await.map(|()| facts)
    };
    let facts = asked.await.map_err(|cause| cannot_connect("mongodb://model", false, &cause))?;
    Ok(Deployment {
        transport,
        facts,
        comment: format!("sweeper {run_id}"),
        write_concern: doc! { "w": "majority" },
        read_concern: None,
        command_timeout: timeout::MAX_COMMAND_TIME,
        read_options: ReadOptions::default(),
        answered: Arc::default(),
        billing: None,
    })
}

/// Reads a connection string. One of a seed list is looked up in the DNS, and that is retried as [`Retries::several`] says.
async fn read(uri: &str) -> Result<ClientOptions, ServerError> {
    let mut retries = Retries::several();
    retry(|cause| retries.wait(cause), || async { Ok(ClientOptions::parse(uri).await?) }).await
}

/// Returns the flavor that the policy or a host name indicates, and which of the two did.
fn by_name(flavor: Option<Flavor>, seeds: &[String]) -> Option<(Flavor, String)> {
    if let Some(flavor) = flavor {
        return Some((flavor, "`flavor` of the policy".to_owned()));
    }
    seeds.iter().find_map(|host| Some((Flavor::of_host(host)?, "the name of its host".to_owned())))
}

/// Returns the patience with the commands that recognise a deployment: they take no time, but the first one waits for a server to be selected.
fn first_patience(options: &ClientOptions, command_timeout: Duration) -> Patience {
    let selection = options.server_selection_timeout.unwrap_or(SELECTION_TIME);
    Patience::Limit(selection + command_timeout.min(MAX_FIRST_TIME))
}

/// Runs a command that is not allowed without a user, if the server asks for one; those that [`ask`] runs are.
async fn need_no_user(transport: &dyn Transport, patience: Patience) -> Result<(), ServerError> {
    let list = doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": true };
    asked(transport, ServerCommand::of("admin", &list, patience)?).await.map(|_| ())
}

async fn ask(
    transport: &dyn Transport,
    patience: Patience,
    seeds: Vec<String>,
    by_name: Option<(Flavor, String)>,
) -> Result<ServerFacts, ServerError> {
    // The first command opens the connection; the clocks are compared by the round trip of the second.
    let build = asked(transport, ServerCommand::of("admin", &doc! { "buildInfo": 1 }, patience)?).await?;
    let mut retries = Retries::several();
    let timed = retry(
        |cause| retries.wait(cause),
        || async {
            let before = wall_clock();
            let hello = hello(transport, patience).await?;
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
        .unwrap_or_else(|| (Flavor::MongoDb, "nothing says otherwise".to_owned()));
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
        ttl_monitor: TtlMonitor::Unknown,
    })
}

/// Runs a command that changes nothing, and retries it as [`Retries::several`] says.
async fn asked(transport: &dyn Transport, command: ServerCommand) -> Result<Document, ServerError> {
    let mut retries = Retries::several();
    retry(|cause| retries.wait(cause), || transport.run(command.clone())).await
}

/// Asks the server for its role and its time, once: an answer after a retry would be compared with the wrong moment.
pub(crate) async fn hello(transport: &dyn Transport, patience: Patience) -> Result<Document, ServerError> {
    let command = |name: &str| ServerCommand::of("admin", &doc! { name: 1 }, patience);
    match transport.run(command("hello")?).await {
        // MongoDB 4.2 knows only the older name, and so did accounts of Azure Cosmos DB (RU) with API version 7.0
        // (MicrosoftDocs/azure-databases-docs#180, eclipse-basyx/basyx-java-server-sdk#452, spring-projects/spring-boot#41101).
        Err(cause) if cause.is_unsupported() => transport.run(command("isMaster")?).await,
        answer => answer,
    }
}

/// Reads the server's clock from its reply to `hello`. MongoDB gives a date; the gateway of the DocumentDB engine gives milliseconds
/// (microsoft/documentdb, `ismaster.rs`).
///
/// Errors: the reply holds no time. The clock of this machine is no substitute, because the server's clock decides what has expired.
pub(crate) fn local_time(hello: &Document) -> Result<DateTime, ServerError> {
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

/// Returns the write concern of every delete: majority unless the connection string names one.
fn write_concern(from_uri: Option<&WriteConcern>) -> Result<Document, String> {
    let mut document = doc! { "w": "majority" };
    let Some(concern) = from_uri else { return Ok(document) };
    match &concern.w {
        Some(Acknowledgment::Nodes(0)) => {
            return Err("`w=0`: deletes that are not acknowledged cannot be counted; leave `w` out for majority".into());
        }
        Some(Acknowledgment::Nodes(nodes)) => document.insert("w", i64::from(*nodes)),
        Some(Acknowledgment::Custom(tag)) => document.insert("w", tag),
        _ => None,
    };
    if let Some(journal) = concern.journal {
        document.insert("j", journal);
    }
    if let Some(limit) = concern.w_timeout {
        document.insert("wtimeout", i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
    }
    Ok(document)
}

fn unreadable(shown: &str, given: &str, cause: &ServerError) -> Failure {
    let why = cause.to_string();
    // The driver's message may quote the connection string, and is shown only if it quotes none of the string's values.
    let quotes = uri::values(given).iter().any(|value| value.len() > 2 && why.contains(value.as_str()));
    let why = if quotes || shown.ends_with("<redacted>") {
        "it is not valid; expected `mongodb://user:password@host:port/?options`, user and password percent-encoded"
    } else if cause.is_dns() {
        return Failure::cannot_run(format!("connecting to `{shown}`: {why}; nothing was deleted"));
    } else {
        &why
    };
    Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted"))
}

fn cannot_connect(shown: &str, with_user: bool, cause: &ServerError) -> Failure {
    let failure = Failure::cannot_run(format!("connecting to `{shown}`: {cause}; nothing was deleted"));
    match cause.obstacle() {
        Some(ConnectObstacle::WireVersion) => failure
            .hint("the server is older than MongoDB 4.2, and so are accounts of Azure Cosmos DB with the API version 3.6 (wire version 6) or 4.0 (7): \
                   upgrade the account's API version to 4.2 or later, under Features in the Azure portal"),
        Some(ConnectObstacle::Authentication) => failure.hint("check user, password and `authSource` of the connection string"),
        None if cause.is_unauthorized() && !with_user => {
            failure.hint("the server asks for a user; name one in the connection string")
        }
        Some(ConnectObstacle::Certificate) => {
            failure.hint("name the authority that signed the server's certificate with `tlsCAFile=` in the connection string")
        }
        None if cause.is_unreachable() => failure
            .hint("check host and port, that the server runs, and that firewalls and access lists let this machine through"),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::codes;
    use crate::server::error::FailureStage;
    use crate::server::scripted::{Script, ScriptedReply};

    const PATIENCE: Patience = Patience::Limit(MAX_FIRST_TIME);

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

    #[test]
    fn the_hint_follows_from_the_kind_of_the_error() {
        let unreachable = |obstacle| ServerError::new(FailureStage::Unreachable, "nobody".into()).with_obstacle(obstacle);
        let reported = |code| ServerError::reported(code, "no", "");
        for (cause, with_user, part) in [
            (unreachable(None), true, Some("check host and port")),
            (unreachable(Some(ConnectObstacle::WireVersion)), true, Some("upgrade the account's API version")),
            (unreachable(Some(ConnectObstacle::Authentication)), true, Some("check user, password")),
            (unreachable(Some(ConnectObstacle::Certificate)), true, Some("tlsCAFile=")),
            (reported(codes::AUTHENTICATION_FAILED), true, Some("check user, password")),
            (reported(codes::UNAUTHORIZED), false, Some("asks for a user")),
            (reported(codes::UNAUTHORIZED), true, None),
            (ServerError::new(FailureStage::Network, "reset".into()), true, None),
        ] {
            let failure = cannot_connect("mongodb://h", with_user, &cause);
            assert_eq!(failure.message, format!("connecting to `mongodb://h`: {cause}; nothing was deleted"));
            let is_said = failure.hint.as_deref().map(|hint| part.is_some_and(|part| hint.contains(part)));
            assert_eq!(is_said, part.map(|_| true), "{cause:?}");
        }
    }
}
