//! Converts the driver's errors into errors of this program.

use std::io;

use mongodb::error::{Error, ErrorKind, RETRYABLE_WRITE_ERROR, WriteFailure};

use crate::server::error::{ConnectObstacle, FailureStage, ServerError, brief};

impl From<Error> for ServerError {
    fn from(error: Error) -> Self {
        let is_labelled = error.contains_label(RETRYABLE_WRITE_ERROR);
        converted(&error).labelled_retryable(is_labelled)
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
            let message = format!("authentication failed: {}", brief(message));
            ServerError::new(FailureStage::Other, message).with_obstacle(Some(ConnectObstacle::Authentication))
        }
        ErrorKind::Io(io) => {
            let stage = if io.kind() == io::ErrorKind::TimedOut { FailureStage::Timeout } else { FailureStage::Network };
            said(stage, format!("network error: {io}"))
        }
        ErrorKind::ConnectionPoolCleared { message, .. } => pool_cleared(message),
        ErrorKind::ServerSelection { message, .. } => said(FailureStage::Unreachable, selection(message)),
        ErrorKind::DnsResolve { message, .. } => ServerError::new(FailureStage::Dns, format!("DNS: {}", brief(message))),
        ErrorKind::InvalidTlsConfig { message, .. } => said(FailureStage::Other, format!("TLS: {}", brief(message))),
        // Concerns the connection string; the code that reads the string makes sure that no value of it is shown.
        ErrorKind::InvalidArgument { message, .. } => ServerError::other(message.trim_end_matches('.')),
        ErrorKind::IncompatibleServer { message, .. } => said(FailureStage::Other, brief(message)),
        ErrorKind::InvalidResponse { message, .. } => ServerError::invalid_reply(&brief(message)),
        ErrorKind::SessionsNotSupported => ServerError::other("the server has no sessions"),
        _ => ServerError::other("an unexpected error of the driver"),
    }
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

/// Creates an error whose message may name an obstacle.
fn said(stage: FailureStage, message: String) -> ServerError {
    let obstacle = obstacle(&message);
    ServerError::new(stage, message).with_obstacle(obstacle)
}

/// Finds the causes in the driver's description of the topology: `... Error: Kind: I/O error: Connection refused (os error 111),
/// labels: ...`.
fn selection(message: &str) -> String {
    let mut causes: Vec<&str> =
        message.split("Kind: ").skip(1).map(|rest| rest.split(", labels:").next().unwrap_or(rest).trim()).collect();
    causes.sort_unstable();
    causes.dedup();
    match causes.as_slice() {
        // The server is too old or too new for the driver.
        [] if message.contains("wire version") => message.trim_end_matches('.').to_owned(),
        [] => "no suitable server answered in time".into(),
        causes => format!("no suitable server answered in time: {}", brief(&causes.join("; "))),
    }
}

/// Recognises an obstacle by the words of the driver, which reports it in no other way.
fn obstacle(message: &str) -> Option<ConnectObstacle> {
    let says = |words: &str| message.contains(words);
    if says("wire version") {
        Some(ConnectObstacle::WireVersion)
    } else if says("uthentication failed") {
        Some(ConnectObstacle::Authentication)
    } else if says("UnknownIssuer") || says("BadSignature") {
        Some(ConnectObstacle::Certificate)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(message: &str) -> ServerError {
        said(FailureStage::Unreachable, selection(message))
    }

    #[test]
    fn the_causes_of_an_unreachable_server_are_shown_once() {
        let refused =
            |host| format!("{{ Address: {host}, Error: Kind: I/O error: Connection refused (os error 111), labels: {{}} }}");
        let topology =
            format!("Server selection timeout: No available servers. Topology: {}, {}", refused("h:1"), refused("h:2"));
        let error = unreachable(&topology);
        assert_eq!(error.to_string(), "no suitable server answered in time: I/O error: Connection refused (os error 111)");
        assert!(error.is_unreachable() && error.obstacle().is_none());
        let too_old = unreachable("Server at h:1 reports wire version 7, but this version of the driver requires at least 8.");
        assert_eq!(too_old.obstacle(), Some(ConnectObstacle::WireVersion));
        let certificate = unreachable("Kind: I/O error: invalid peer certificate: UnknownIssuer, labels: {}");
        assert_eq!(certificate.obstacle(), Some(ConnectObstacle::Certificate));
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
