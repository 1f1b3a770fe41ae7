//! Converts the driver's errors into errors of this program.

use std::io;

use mongodb::error::{Error, ErrorKind, RETRYABLE_WRITE_ERROR, WriteFailure};

use crate::shell::server::connect::obstacle::{ConnectObstacle, known, refused_user};
use crate::shell::server::wire::error::{FailureStage, NO_SERVER, ServerError, brief};

/// Labels of an error with which a server that has too much to do refused a command.
///
/// Source: mongodb/specifications, "Client Backpressure"; Atlas, "Handle Overload Errors".
const OVERLOADED: [&str; 2] = ["SystemOverloadedError", "RetryableError"];

impl From<Error> for ServerError {
    fn from(error: Error) -> Self {
        let is_labelled = error.contains_label(RETRYABLE_WRITE_ERROR);
        let is_refused = OVERLOADED.iter().all(|label| error.contains_label(label));
        converted(&error).labelled_retryable(is_labelled).labelled_overloaded(is_refused)
    }
}

/// An error of a connection that the driver did not make is worded as the driver's are.
impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        Error::from(error).into()
    }
}

fn converted(error: &Error) -> ServerError {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => ServerError::reported(command.code, &command.message, &command.code_name),
        ErrorKind::Write(WriteFailure::WriteError(write)) => {
            ServerError::reported(write.code, &write.message, write.code_name.as_deref().unwrap_or_default())
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
            ServerError::reported(concern.code, &concern.message, &concern.code_name)
        }
        ErrorKind::Authentication { message, .. } => {
            ServerError::new(FailureStage::Other, refused_user(message)).with_obstacle(Some(ConnectObstacle::Authentication))
        }
        ErrorKind::Io(io) => {
            let stage = if io.kind() == io::ErrorKind::TimedOut { FailureStage::Timeout } else { FailureStage::Network };
            let (obstacle, why) = explained(&io.to_string());
            ServerError::new(stage, format!("network error: {why}")).with_obstacle(obstacle)
        }
        ErrorKind::ConnectionPoolCleared { message, .. } => pool_cleared(message),
        ErrorKind::ServerSelection { message, .. } => selection(message),
        ErrorKind::DnsResolve { message, .. } => ServerError::new(FailureStage::Dns, format!("DNS: {}", unresolved(message)))
            .with_obstacle(Some(ConnectObstacle::Unresolved)),
        ErrorKind::InvalidTlsConfig { message, .. } => ServerError::other(format!("TLS: {}", brief(message))),
        // Concerns the connection string; the code that reads the string makes sure that no value of it is shown.
        ErrorKind::InvalidArgument { message, .. } if is_of_length(message) => unread(message),
        ErrorKind::InvalidArgument { message, .. } => ServerError::other(message.trim_end_matches('.')),
        ErrorKind::IncompatibleServer { message, .. } => {
            let (obstacle, why) = explained(&brief(message));
            ServerError::other(why).with_obstacle(obstacle)
        }
        ErrorKind::InvalidResponse { message, .. } => unread(message),
        // Commands go out as bytes, so what is not valid came in. The driver's words may quote a value.
        ErrorKind::Bson(_) => unreadable("it is not valid BSON, or lacks a field"),
        ErrorKind::SessionsNotSupported => ServerError::other("the server has no sessions"),
        _ => ServerError::other("an unexpected error of the driver"),
    }
}

/// Whether the driver's words are of a reply whose length is too short or negative (mongo-rust-driver 3.8 `checked.rs`).
fn is_of_length(message: &str) -> bool {
    ["checked arithmetic failure", "out of range integral type conversion"].iter().any(|words| message.contains(words))
}

/// Converts the error of a reply that the driver cannot read. What the command did is then unknown.
fn unread(message: &str) -> ServerError {
    if let Some((obstacle, why)) = known(message) {
        return ServerError::invalid_reply(&why).with_obstacle(Some(obstacle));
    }
    let says = |words: &str| message.contains(words);
    unreadable(if says("'ok' value") || says("ok value") {
        "it does not say whether the command succeeded"
    } else if is_of_length(message) {
        "its length is wrong"
    } else {
        "it has another form than a MongoDB server gives it"
    })
}

/// Returns the error of a reply that cannot be read for this reason.
fn unreadable(why: &str) -> ServerError {
    let why = format!("the reply cannot be read: {why}; a proxy in between may have changed it");
    ServerError::invalid_reply(&why).with_obstacle(Some(ConnectObstacle::UnreadableReply))
}

/// Converts the error of a command whose connection was given up. The driver has one kind for two cases and tells them apart only
/// by its words (mongo-rust-driver 3.8 `cmap/conn.rs`, `error.rs`).
fn pool_cleared(message: &str) -> ServerError {
    if message.contains("interrupted") {
        let message = "the connection was given up: the server did not answer its heartbeat";
        ServerError::new(FailureStage::Network, message.into())
    } else {
        let message = "no connection: all of them were given up after an error of another command";
        ServerError::new(FailureStage::NotSent, message.into())
    }
}

/// Returns the words of an error of the network, without debug text and without the number of the operating system, and the
/// obstacle that they name.
fn explained(words: &str) -> (Option<ConnectObstacle>, String) {
    match known(words) {
        Some((obstacle, said)) => (Some(obstacle), said),
        None => (None, brief(words.split(" (os error").next().unwrap_or(words)).trim_start_matches("I/O error: ").to_owned()),
    }
}

/// Returns the words of an error of the DNS. The resolver's own end in debug text where there is no record (hickory-resolver
/// 0.26).
fn unresolved(message: &str) -> String {
    let why = brief(message);
    match why.trim_start_matches("DNS error: ") {
        why if why.starts_with("no record") => "the name of the seed list has no such record".to_owned(),
        why => why.to_owned(),
    }
}

/// Finds the causes in the driver's description of the topology: `... Error: Kind: I/O error: Connection refused (os error 111),
/// labels: ...`.
fn selection(message: &str) -> ServerError {
    let unreachable = |message| ServerError::new(FailureStage::Unreachable, message);
    let causes = message.split("Kind: ").skip(1).map(|rest| explained(rest.split(", labels:").next().unwrap_or(rest).trim()));
    let (obstacles, mut causes): (Vec<_>, Vec<String>) = causes.unzip();
    causes.sort_unstable();
    causes.dedup();
    let obstacle = obstacles.into_iter().flatten().min();
    match causes.as_slice() {
        // The server is too old or too new for the driver.
        [] if message.contains("wire version") => {
            let (obstacle, why) = explained(message);
            unreachable(why).with_obstacle(obstacle)
        }
        [] => unreachable(NO_SERVER.into()),
        causes => unreachable(format!("{NO_SERVER}: {}", causes.join("; "))).with_obstacle(obstacle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_causes_of_an_unreachable_server_are_shown_once() {
        let refused =
            |host| format!("{{ Address: {host}, Error: Kind: I/O error: Connection refused (os error 111), labels: {{}} }}");
        let topology =
            format!("Server selection timeout: No available servers. Topology: {}, {}", refused("h:1"), refused("h:2"));
        let error = selection(&topology);
        let shown = "no suitable server answered in time: connection refused: nothing listens there";
        assert_eq!((error.to_string().as_str(), error.obstacle()), (shown, Some(ConnectObstacle::Refused)));
        assert!(error.is_unreachable());
        let too_old = selection("Server at h:1 reports wire version 7, but this version of the driver requires at least 8.");
        assert_eq!(too_old.obstacle(), Some(ConnectObstacle::WireVersion));
        // The most telling cause decides on the hint.
        let certificate = ", Error: Kind: I/O error: invalid peer certificate: UnknownIssuer, labels: {}";
        assert_eq!(selection(&(topology + certificate)).obstacle(), Some(ConnectObstacle::Authority));
        let unknown = selection("Topology: {{ Error: Kind: I/O error: No route to host (os error 113), labels: {{}} }}");
        assert_eq!(
            (unknown.to_string().as_str(), unknown.obstacle()),
            ("no suitable server answered in time: No route to host", None)
        );
    }

    #[test]
    fn a_seed_list_without_a_record_is_said_without_debug_text() {
        assert_eq!(
            unresolved("DNS error: no records found for Query { name: Name(..) }"),
            "the name of the seed list has no such record"
        );
        assert_eq!(unresolved("DNS error: request timed out"), "request timed out");
    }

    #[test]
    fn another_program_than_a_server_is_said_to_be_one() {
        let error = unread("Invalid wire protocol opcode: 1347703880");
        let said = "what answers there does not speak MongoDB's protocol";
        assert_eq!((error.to_string().as_str(), error.obstacle()), (said, Some(ConnectObstacle::OtherProtocol)));
        assert!(error.is_reply_lost());
    }

    #[test]
    fn a_reply_that_cannot_be_read_leaves_open_what_was_done_and_shows_no_word_of_the_driver() {
        let bson = bson::deserialize_from_slice::<bson::Document>(&[6, 0, 0, 0, 99, 0]).unwrap_err();
        for (error, said) in [
            (ServerError::from(Error::from(bson)), "it is not valid BSON, or lacks a field"),
            (unread("missing 'ok' value in response"), "it does not say whether the command succeeded"),
            (unread("expected ok value to be a number, instead got String(secret)"), "it does not say whether"),
            (unread("invalid server response"), "it has another form"),
            (unread("checked arithmetic failure"), "its length is wrong"),
        ] {
            assert!(error.is_reply_lost() && error.obstacle() == Some(ConnectObstacle::UnreadableReply), "{error:?}");
            let shown = error.to_string();
            assert!(shown.starts_with("the reply cannot be read: ") && shown.contains(said), "{shown}");
            assert!(!shown.contains("arithmetic") && !shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_command_that_got_no_connection_was_not_sent() {
        let not_sent = pool_cleared("Connection pool for h:1 cleared because another operation failed with: Kind: I/O error");
        assert!(!not_sent.is_reply_lost() && not_sent.is_retryable());
        let interrupted = pool_cleared("Connection to h:1 interrupted due to server monitor timeout");
        assert!(interrupted.is_reply_lost() && interrupted.is_retryable());
    }

    #[test]
    fn a_broken_connection_is_a_lost_reply() {
        let broken = |kind| ServerError::from(Error::from(io::Error::from(kind)));
        let reset = broken(io::ErrorKind::ConnectionReset);
        assert!(reset.is_reply_lost() && reset.is_retryable() && !reset.is_timeout());
        let silent = broken(io::ErrorKind::TimedOut);
        assert!(silent.is_reply_lost() && silent.is_retryable() && silent.is_timeout());
    }
}
