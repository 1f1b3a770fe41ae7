//! Connects to a deployment.

pub(crate) mod detached;
pub(super) mod heard;
mod invalid;
mod listening;
pub(super) mod obstacle;
pub(crate) mod recognise;
pub(crate) mod uri;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bson::{DateTime, Document, doc};
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::{Acknowledgment, ClientOptions, ServerAddress, Tls, WriteConcern};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Deployment;
use super::wire::driver::Driver;
use super::wire::error::{FailureStage, NO_SERVER, ServerError};
use super::wire::meter::Billing;
use super::wire::retry::{Retries, retry};
use super::wire::timeout;
use super::wire::transport::{Patience, Transport};
use crate::base::failure::Failure;
use crate::base::machine::wall_clock;
use crate::base::{instant, log, secrets};
use crate::core::flavor::Flavor;
use heard::Heard;
use obstacle::ConnectObstacle;
use recognise::{ask, by_name, need_no_user};

/// Maximum time to select a server unless the connection string sets one (`serverSelectionTimeoutMS`), as in all drivers.
const SELECTION_TIME: Duration = Duration::from_secs(30);

/// Time after which a person at a terminal is told that no server can be used, unless the connection string sets a time limit.
const TERMINAL_TIME: Duration = Duration::from_secs(5);

/// Time after which a person at a terminal is told what is being tried.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Time limit of a command that recognises a deployment, once a server is selected.
const MAX_FIRST_TIME: Duration = Duration::from_secs(30);

/// Seconds since 1970 that an ObjectId has no room for, in 2106.
const END_OF_OBJECT_IDS: Duration = Duration::from_secs(1 << 32);

/// Connects, and checks that the server answers and can be swept by this version.
///
/// Errors: the reason, with the hosts but without user, password or options of the connection string.
pub(crate) async fn connect(given: &str, flavor: Option<Flavor>, run_id: &str) -> Result<Deployment, Failure> {
    connect_to(given, None, flavor, run_id).await
}

/// Connects to one member of a deployment with the user and the options of the deployment's connection string.
///
/// Errors: as for [`connect`].
pub(crate) async fn connect_to_member(
    given: &str,
    member: &str,
    flavor: Option<Flavor>,
    run_id: &str,
) -> Result<Deployment, Failure> {
    connect_to(given, Some(member), flavor, run_id).await
}

async fn connect_to(given: &str, member: Option<&str>, flavor: Option<Flavor>, run_id: &str) -> Result<Deployment, Failure> {
    let shown = uri::redacted(given);
    check_clock(&shown, wall_clock())?;
    for secret in uri::secrets(given) {
        secrets::withhold(&secret, "<redacted>");
    }
    let prepared = uri::prepare(given)
        .map_err(|why| Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted")))?;
    // They were said when the deployment was connected to.
    for warning in prepared.warnings.iter().filter(|_| member.is_none()) {
        warn!("{warning}");
    }
    for (option, path) in uri::files(&prepared.uri) {
        uri::check_file(option, &path).map_err(|cause| {
            // In a string whose hosts cannot be shown, even this may be part of a password.
            let file = if is_ambiguous(&shown) { option.to_owned() } else { format!("{option}={path}") };
            Failure::usage(format!("reading the connection string `{shown}`: `{file}`: {cause}; nothing was contacted"))
        })?;
    }
    let limit = (std::io::stderr().is_terminal() && !uri::sets_time(&prepared.uri)).then_some(TERMINAL_TIME);
    let mut options = read(&prepared.uri, limit, &shown).await.map_err(|cause| unreadable(&shown, &prepared.uri, &cause))?;
    let mut shown = shown;
    if let Some(member) = member {
        only(&mut options, member).map_err(|cause| unreadable(&shown, &prepared.uri, &cause))?;
        shown = member.to_owned();
    }
    if options.app_name.is_none() {
        options.app_name = Some("sweeper".into());
    }
    if options.max_idle_time.is_none() {
        // Load balancers in front of cloud services drop connections that are idle for some four minutes.
        options.max_idle_time = Some(Duration::from_secs(120));
    }
    let write_concern = write_concern(options.write_concern.as_ref())
        .map_err(|why| Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted")))?;
    let seeds: Vec<String> = options.hosts.iter().map(shown_address).collect();
    let by_name = by_name(flavor, &seeds);
    if matches!(by_name, Some((Flavor::CosmosRu | Flavor::DocumentDb | Flavor::AmazonDocumentDb, _))) {
        // The driver retries no command of this program, and Cosmos DB and Amazon DocumentDB refuse the transaction number that
        // retryable writes add.
        options.retry_writes = Some(false);
    }
    let heard = Arc::new(Heard::new(options.repl_set_name.clone()));
    options.sdam_event_handler = Some(listener(heard.clone()));
    let with = With { user: options.credential.is_some(), tls: matches!(options.tls, Some(Tls::Enabled(_))) };
    let read_concern = options.read_concern.as_ref().map(bson::serialize_to_document).transpose();
    let read_concern = read_concern.map_err(|cause| unreadable(&shown, &prepared.uri, &cause.into()))?;

    let command_timeout = prepared.command_timeout.unwrap_or(timeout::MAX_COMMAND_TIME);
    let patience = first_patience(&options, command_timeout);
    let driver = |options| Driver::new(options).map_err(|cause| unreadable(&shown, &prepared.uri, &cause));
    let transport: Arc<dyn Transport> = Arc::new(driver(options.clone())?);
    let asked = tried(&shown, limit, || heard.is_hopeless(), ask(transport.as_ref(), patience, seeds.clone(), by_name)).await;
    let (facts, time) = match asked {
        Some(facts) => (facts, options.server_selection_timeout.unwrap_or(SELECTION_TIME)),
        None => (Err(ServerError::new(FailureStage::Unreachable, NO_SERVER.into())), TERMINAL_TIME),
    };
    if facts.as_ref().is_err_and(ServerError::is_unreachable) {
        for (address, cause) in listening::look(heard.silent(&seeds)).await {
            heard.failed(address, cause);
        }
    }
    let facts = facts.map_err(|cause| cannot_connect(&shown, with, &explained(cause, &heard, time, &shown)))?;
    let billing = match facts.capabilities.request_charge {
        true => {
            transport.close().await;
            options.max_pool_size = Some(1);
            options.min_pool_size = None;
            Some(Billing::new(Arc::new(driver(options.clone())?), Arc::new(driver(options)?)))
        }
        false => None,
    };
    let deployment = Deployment {
        write_concern,
        read_concern,
        command_timeout,
        ..Deployment::over(transport, facts, format!("sweeper {run_id}"))
    };
    let deployment = match billing {
        Some(billing) => deployment.billed_by(billing),
        None => deployment,
    };
    if !with.user {
        need_no_user(deployment.transport.as_ref(), patience).await.map_err(|cause| cannot_connect(&shown, with, &cause))?;
    }
    let facts = &deployment.facts;
    if let Some(why) = facts.weakness_of(&deployment.write_concern) {
        warn!(
            "`{shown}`: {why}: a fail-over may take back what was written or deleted; leave `w` and `journal` out for a majority"
        );
    }
    info!("connected to {shown}: {} {} ({}), {}", facts.flavor.name(), facts.version, facts.recognised_by, facts.topology.name());
    Ok(deployment)
}

/// Wishes of a connection string on which hints depend.
#[derive(Debug, Clone, Copy)]
struct With {
    user: bool,
    tls: bool,
}

/// Lets the driver speak to one member only, and wait for it for a short time.
///
/// Errors: the member has no valid address.
fn only(options: &mut ClientOptions, member: &str) -> Result<(), ServerError> {
    options.hosts = vec![ServerAddress::parse(member)?];
    options.direct_connection = Some(true);
    options.repl_set_name = None;
    options.server_selection_timeout = Some(options.server_selection_timeout.unwrap_or(SELECTION_TIME).min(TERMINAL_TIME));
    Ok(())
}

/// Returns the handler by which the driver tells what the servers answer.
fn listener(heard: Arc<Heard>) -> EventHandler<SdamEvent> {
    EventHandler::callback(move |event| match event {
        SdamEvent::ServerHeartbeatSucceeded(event) => heard.answered(shown_address(&event.server_address), &event.reply),
        SdamEvent::ServerHeartbeatFailed(event) => heard.failed(shown_address(&event.server_address), event.failure.into()),
        SdamEvent::ServerClosed(event) => heard.left_out(&shown_address(&event.address)),
        _ => {}
    })
}

/// Returns the address of a server as a connection string has it. The driver leaves out the brackets around one of IPv6.
fn shown_address(address: &ServerAddress) -> String {
    match address {
        ServerAddress::Tcp { host, port } if host.contains(':') => format!("[{host}]:{}", port.unwrap_or(27017)),
        other => other.to_string(),
    }
}

/// Reads a connection string. One of a seed list is looked up in the DNS, and that is retried as [`Retries::several`] says, but
/// not beyond the limit.
async fn read(uri: &str, limit: Option<Duration>, shown: &str) -> Result<ClientOptions, ServerError> {
    let (begun, mut retries) = (Instant::now(), Retries::several());
    let is_in_time = |wait: &Duration| limit.is_none_or(|limit| begun.elapsed() + *wait < limit);
    let wait = |cause: &ServerError| retries.wait(cause).filter(is_in_time);
    let read = retry(wait, || async { Ok(ClientOptions::parse(uri).await?) });
    let no_answer = || ServerError::new(FailureStage::Dns, "DNS: no answer in time".into());
    tried(shown, limit, || true, read).await.unwrap_or_else(|| Err(no_answer()))
}

/// Does some work of connecting. With a limit it says what is being tried, and gives up after that time if it is hopeless; the
/// result is `None` then.
async fn tried<T>(
    shown: &str,
    limit: Option<Duration>,
    is_hopeless: impl Fn() -> bool,
    work: impl Future<Output = T>,
) -> Option<T> {
    let given_up = async {
        let Some(limit) = limit else { return std::future::pending().await };
        tokio::time::sleep(QUIET_TIME).await;
        info!(target: log::PROGRESS, "connecting to `{shown}`: no answer yet; trying for {} s", limit.as_secs());
        tokio::time::sleep(limit.saturating_sub(QUIET_TIME)).await;
        if !is_hopeless() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = given_up => None,
    }
}

/// Returns the patience with the commands that recognise a deployment: they take no time, but the first one waits for a server to
/// be selected.
fn first_patience(options: &ClientOptions, command_timeout: Duration) -> Patience {
    let selection = options.server_selection_timeout.unwrap_or(SELECTION_TIME);
    Patience::Limit(selection + command_timeout.min(MAX_FIRST_TIME))
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
    let is_aws = given.to_ascii_uppercase().contains("AUTHMECHANISM=MONGODB-AWS");
    let why = if is_aws && !cfg!(feature = "cloud-auth") {
        "AWS IAM is not part of this program; expected one built with the cargo feature `cloud-auth`".to_owned()
    } else if cause.is_dns() && !is_ambiguous(shown) {
        let failure = Failure::cannot_run(format!("connecting to `{shown}`: {cause}; nothing was deleted"));
        return failure.hint(ConnectObstacle::Unresolved.hint(false));
    } else {
        invalid::why(given, &cause.to_string(), is_ambiguous(shown))
    };
    Failure::usage(format!("reading the connection string `{shown}`: {why}; nothing was contacted"))
}

/// Says why no server could be selected, by what the servers answered. A host is named only if all hosts may be shown.
fn explained(cause: ServerError, heard: &Heard, time: Duration, shown: &str) -> ServerError {
    if !cause.is_unreachable() || cause.obstacle() == Some(ConnectObstacle::WireVersion) {
        return cause;
    }
    let why = heard.why(time);
    if is_ambiguous(shown) {
        return ServerError::new(FailureStage::Unreachable, NO_SERVER.into()).with_obstacle(why.obstacle());
    }
    why
}

/// Whether the hosts of a connection string cannot be told from a password, so that none of them is shown.
fn is_ambiguous(shown: &str) -> bool {
    shown.ends_with("<redacted>")
}

fn cannot_connect(shown: &str, with: With, cause: &ServerError) -> Failure {
    let failure = Failure::cannot_run(format!("connecting to `{shown}`: {cause}; nothing was deleted"));
    match cause.obstacle() {
        // A connection that breaks later is no matter of the connection string, but what answers in another way may be.
        Some(obstacle @ (ConnectObstacle::OtherProtocol | ConnectObstacle::UnreadableReply)) => {
            failure.hint(obstacle.hint(with.tls))
        }
        Some(obstacle) if !cause.is_reply_lost() => failure.hint(obstacle.hint(with.tls)),
        _ if cause.is_unauthorized() && !with.user => {
            failure.hint("the server asks for a user; name one in the connection string")
        }
        _ if cause.is_timeout() => failure.hint("the server answers heartbeats, but no command: look at its load and at its log"),
        _ if cause.is_unreachable() => failure
            .hint("check host and port, that the server runs, and that firewalls and access lists let this machine through"),
        _ => failure,
    }
}

/// Checks that the clock of this machine shows a time for which there are ObjectIds. The driver makes one, and would panic.
///
/// Errors: it shows another time.
fn check_clock(shown: &str, now: SystemTime) -> Result<(), Failure> {
    if now.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since < END_OF_OBJECT_IDS) {
        return Ok(());
    }
    let now = instant::rfc3339(DateTime::from_system_time(now));
    let failure = Failure::cannot_run(format!(
        "connecting to `{shown}`: the clock of this machine shows {now}; expected a time from 1970 to 2106, as ObjectIds have; nothing was contacted"
    ));
    Err(failure.hint("set the clock of this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::server::wire::codes;

    #[test]
    fn a_clock_that_no_object_id_can_show_is_an_error_before_anything_is_contacted() {
        let at = |seconds: i64| DateTime::from_millis(seconds * 1000).to_system_time();
        for seconds in [0, 1_800_000_000, (1 << 32) - 1] {
            assert_eq!(check_clock("mongodb://h", at(seconds)), Ok(()), "{seconds}");
        }
        for (seconds, shown) in [(-1, "1969-12-31T23:59:59.000Z"), (1 << 32, "2106-02-07T06:28:16.000Z")] {
            let failure = check_clock("mongodb://h", at(seconds)).unwrap_err();
            let said = format!(
                "connecting to `mongodb://h`: the clock of this machine shows {shown}; expected a time from 1970 to 2106"
            );
            assert!(failure.message.starts_with(&said), "{failure:?}");
        }
    }

    #[test]
    fn the_hint_follows_from_the_kind_of_the_error() {
        let unreachable = |obstacle| ServerError::new(FailureStage::Unreachable, "nobody".into()).with_obstacle(obstacle);
        let reported = |code| ServerError::reported(code, "no", "");
        let reset = ServerError::new(FailureStage::Network, "reset".into());
        let unreadable = ServerError::invalid_reply("broken").with_obstacle(Some(ConnectObstacle::UnreadableReply));
        for (cause, user, part) in [
            (unreachable(None), true, Some("check host and port")),
            (unreachable(Some(ConnectObstacle::WireVersion)), true, Some("upgrade the account's API version")),
            (unreachable(Some(ConnectObstacle::Authority)), true, Some("tlsCAFile=")),
            (unreachable(Some(ConnectObstacle::Closed)), true, Some("add `tls=true`")),
            (reported(codes::AUTHENTICATION_FAILED), true, Some("check user, password")),
            (reported(codes::UNAUTHORIZED), false, Some("asks for a user")),
            (reported(codes::UNAUTHORIZED), true, None),
            (unreadable, true, Some("what lies in between")),
            (ServerError::timeout(TERMINAL_TIME), true, Some("answers heartbeats, but no command")),
            (reset.with_obstacle(Some(ConnectObstacle::Closed)), true, None),
        ] {
            let failure = cannot_connect("mongodb://h", With { user, tls: false }, &cause);
            assert_eq!(failure.message, format!("connecting to `mongodb://h`: {cause}; nothing was deleted"));
            let is_said = failure.hint.as_deref().map(|hint| part.is_some_and(|part| hint.contains(part)));
            assert_eq!(is_said, part.map(|_| true), "{cause:?}");
        }
    }

    #[test]
    fn an_address_of_ipv6_is_shown_in_brackets() {
        for (text, shown) in
            [("[::1]:27018", "[::1]:27018"), ("[::1]", "[::1]:27017"), ("db1", "db1:27017"), ("10.0.0.1:5", "10.0.0.1:5")]
        {
            assert_eq!(shown_address(&ServerAddress::parse(text).unwrap()), shown);
        }
    }

    #[test]
    fn a_host_that_may_be_part_of_a_password_is_not_named() {
        let heard = Heard::new(None);
        heard.failed("secret:27017".into(), ServerError::other("no").with_obstacle(Some(ConnectObstacle::Unresolved)));
        let selected = || ServerError::new(FailureStage::Unreachable, "none".into());
        let said = |shown: &str| explained(selected(), &heard, TERMINAL_TIME, shown).to_string();
        assert!(said("mongodb://secret").contains("secret:27017"));
        assert_eq!(said("mongodb://<redacted>"), NO_SERVER);
        let too_old = selected().with_obstacle(Some(ConnectObstacle::WireVersion));
        assert_eq!(explained(too_old.clone(), &heard, TERMINAL_TIME, "mongodb://secret"), too_old);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hopeless_attempt_is_given_up_after_the_limit_and_any_other_goes_on() {
        let begun = Instant::now();
        let work = || async { tokio::time::sleep(Duration::from_secs(20)).await };
        assert_eq!(tried("h", Some(TERMINAL_TIME), || true, work()).await, None);
        assert_eq!(begun.elapsed(), TERMINAL_TIME);
        assert_eq!(tried("h", Some(TERMINAL_TIME), || false, work()).await, Some(()));
        assert_eq!(tried("h", None, || true, work()).await, Some(()));
    }
}
