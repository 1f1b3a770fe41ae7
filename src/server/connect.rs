//! Opens the connection and asks the server who it is.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bson::{Bson, DateTime, Document, doc};
use mongodb::error::ErrorKind;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::{Acknowledgment, ClientOptions, ServerAddress, WriteConcern};
use mongodb::{Client, Database};
use tracing::{debug, info, warn};

use super::meter::Meter;
use super::{Deployment, Reading, answer, error, uri};
use crate::facts::{ServerFacts, Topology};
use crate::failure::Failure;
use crate::flavor::Flavor;
use crate::values::integer_in;

/// Connects, checks that the server answers and is one this version can sweep.
///
/// Errors: why not, with the hosts but without user, password or options of the connection string.
pub async fn connect(given: &str, flavor: Option<Flavor>, run_id: &str) -> Result<Deployment, Failure> {
    let shown = uri::redacted(given);
    let prepared = uri::prepare(given)
        .map_err(|why| Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted")))?;
    for warning in &prepared.warnings {
        warn!("{warning}");
    }
    for (option, path) in uri::files(&prepared.uri) {
        std::fs::File::open(&path).map_err(|cause| {
            Failure::usage(format!("reading the connection string `{shown}`: `{option}={path}`: {cause}; nothing was contacted"))
        })?;
    }
    let mut options = ClientOptions::parse(&prepared.uri).await.map_err(|cause| unreadable(&shown, given, &cause))?;
    if options.app_name.is_none() {
        options.app_name = Some("sweeper".into());
    }
    if options.max_idle_time.is_none() {
        // Load balancers in front of cloud services drop connections that are idle for some four minutes.
        options.max_idle_time = Some(Duration::from_secs(120));
    }
    options.command_event_handler = Some(EventHandler::callback(log_command));
    let write_concern = write_concern(options.write_concern.as_ref())
        .map_err(|why| Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted")))?;
    let seeds: Vec<String> = options.hosts.iter().map(ServerAddress::to_string).collect();
    let by_name = by_name(flavor, &seeds);
    if matches!(by_name, Some((Flavor::CosmosRu | Flavor::DocumentDb, _))) {
        // A delete command is never retried by the driver here; Cosmos DB refuses the transaction number that would go with it.
        options.retry_writes = Some(false);
    }
    let user = options.credential.clone();

    let client = Client::with_options(options.clone()).map_err(|cause| unreadable(&shown, given, &cause))?;
    let facts = ask(&client, seeds, by_name, user.is_none()).await;
    let facts = facts.map_err(|cause| cannot_connect(&shown, user.is_some(), &cause))?;
    info!("connected to {shown}: {} {} ({}), {}", facts.flavor.name(), facts.version, facts.recognised_by, facts.topology.name());
    let meter = match facts.capabilities.request_charge {
        true => Some(Arc::new(Meter::open(options).map_err(|cause| unreadable(&shown, given, &cause))?)),
        false => None,
    };
    let patience = prepared.patience.unwrap_or(answer::LONGEST_SILENCE);
    Ok(Deployment {
        client,
        facts,
        comment: format!("sweeper {run_id}"),
        write_concern,
        patience,
        reading: Reading::default(),
        meter,
    })
}

/// Returns the flavor that the policy or a host name says, and which of them did.
fn by_name(flavor: Option<Flavor>, seeds: &[String]) -> Option<(Flavor, String)> {
    if let Some(flavor) = flavor {
        return Some((flavor, "`flavor` of the policy".to_owned()));
    }
    seeds.iter().find_map(|host| Some((Flavor::of_host(host)?, "the name of its host".to_owned())))
}

async fn ask(
    client: &Client,
    seeds: Vec<String>,
    by_name: Option<(Flavor, String)>,
    anonymous: bool,
) -> mongodb::error::Result<ServerFacts> {
    let admin = client.database("admin");
    // The first command opens the connection; the second one's round trip is what the clocks are compared by.
    let build = admin.run_command(doc! { "buildInfo": 1 }).await?;
    let before = SystemTime::now();
    let hello = hello(&admin).await?;
    let middle = before + before.elapsed().unwrap_or_default() / 2;
    if anonymous {
        // The commands above are open to everybody; this one is not, where the server asks for a user.
        admin.run_command(doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": true }).await?;
    }
    let local_time = hello.get_datetime("localTime").copied().unwrap_or_else(|_| DateTime::from_system_time(middle));
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
    })
}

/// Asks the server who and when it is.
pub async fn hello(admin: &Database) -> mongodb::error::Result<Document> {
    match admin.run_command(doc! { "hello": 1 }).await {
        // MongoDB 4.2 knows only the older name.
        Err(cause) if error::code(&cause) == Some(59) => admin.run_command(doc! { "isMaster": 1 }).await,
        answer => answer,
    }
}

fn strings<'a>(document: &'a Document, key: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    document.get_array(key).into_iter().flatten().filter_map(Bson::as_str)
}

/// The write concern that every delete carries: majority where the connection string names none.
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

fn unreadable(shown: &str, given: &str, cause: &mongodb::error::Error) -> Failure {
    let why = error::explain(cause);
    if matches!(cause.kind.as_ref(), ErrorKind::DnsResolve { .. }) {
        return Failure::cannot_run(format!("connecting to `{shown}`: {why}; nothing was deleted"));
    }
    // The driver's words may quote the string: they are shown only where they quote none of its values.
    let quotes = uri::values(given).iter().any(|value| value.len() > 2 && why.contains(value.as_str()));
    let why = if quotes || shown.ends_with("<redacted>") {
        "it is not valid; expected `mongodb://user:password@host:port/?options`, user and password percent-encoded"
    } else {
        &why
    };
    Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted"))
}

fn cannot_connect(shown: &str, with_user: bool, cause: &mongodb::error::Error) -> Failure {
    let failure = Failure::cannot_run(format!("connecting to `{shown}`: {}; nothing was deleted", error::explain(cause)));
    let text = failure.message.clone();
    if text.contains("wire version") {
        failure
            .hint("the server is older than MongoDB 4.2, and so are accounts of Azure Cosmos DB with the API version 3.6 (wire version 6) or 4.0 (7): \
                   upgrade the account's API version to 4.2 or later, under Features in the Azure portal")
    } else if text.contains("uthentication failed") || error::code(cause) == Some(18) {
        failure.hint("check user, password and `authSource` of the connection string")
    } else if error::code(cause) == Some(13) && !with_user {
        failure.hint("the server asks for a user; name one in the connection string")
    } else if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        failure.hint("name the authority that signed the server's certificate with `tlsCAFile=` in the connection string")
    } else if text.contains("no suitable server answered") {
        failure.hint("check host and port, that the server runs, and that firewalls and access lists let this machine through")
    } else {
        failure
    }
}

/// Names each command in the log, without its body: bodies hold filters and documents.
fn log_command(event: CommandEvent) {
    match event {
        CommandEvent::Started(event) => {
            let target = event.command.get_str(&event.command_name).unwrap_or_default();
            debug!(target: "sweeper::command", "command {} {}.{target}", event.command_name, event.db);
        }
        CommandEvent::Failed(event) => {
            debug!(target: "sweeper::command", "command {} failed: {}", event.command_name, error::explain(&event.failure))
        }
        _ => {}
    }
}
