//! The driver's errors in words: what a person needs, without the driver's debug text and without what documents hold.

use mongodb::error::{Error, ErrorKind, WriteFailure};

use super::overload::{self, Overload};

/// Codes after which the same command can be sent again: fail-over, shutdown and network trouble.
///
/// Another document has the same value in a unique index, such as that of the `_id`.
pub const DUPLICATE_KEY: i32 = 11_000;

/// Source: the driver specification "Retryable Reads", list of retryable errors.
const RETRYABLE: [i32; 13] = [6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// Codes with which a server refuses a command before it does anything: no privilege, no primary.
const REFUSED: [i32; 3] = [13, 10107, 13435];

/// Codes that end an operation wherever it is: LockTimeout, MaxTimeMSExpired, QueryPlanKilled, CursorKilled, ClientDisconnect, Interrupted.
///
/// Source: mongo `error_codes.yml`, category Interruption; such a delete fails as a command, and `n` is lost.
const INTERRUPTED: [i32; 6] = [24, 50, 175, 237, 279, 11601];

const NO_SUCH_HINT: &str = "hint provided does not correspond to an existing index";

/// Says why a command failed.
pub fn explain(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => coded(&command.message, command.code, &command.code_name),
        ErrorKind::Write(WriteFailure::WriteError(write)) => {
            coded(&write.message, write.code, write.code_name.as_deref().unwrap_or_default())
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => coded(&concern.message, concern.code, &concern.code_name),
        ErrorKind::Authentication { message, .. } => format!("authentication failed: {}", brief(message)),
        ErrorKind::Io(io) => format!("network error: {io}"),
        ErrorKind::ConnectionPoolCleared { .. } => "the connection was given up: the server did not answer its heartbeat".into(),
        ErrorKind::ServerSelection { message, .. } => selection(message),
        ErrorKind::DnsResolve { message, .. } => format!("DNS: {}", brief(message)),
        ErrorKind::InvalidTlsConfig { message, .. } => format!("TLS: {}", brief(message)),
        // About the connection string: its reader sees to it that no value of it is shown.
        ErrorKind::InvalidArgument { message, .. } => message.trim_end_matches('.').to_owned(),
        ErrorKind::IncompatibleServer { message, .. } | ErrorKind::InvalidResponse { message, .. } => brief(message),
        ErrorKind::SessionsNotSupported => "the server has no sessions".into(),
        _ => "an unexpected error of the driver".into(),
    }
}

/// The server's own code for an error, where it has one.
pub fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        _ => None,
    }
}

/// Whether nobody knows how much of the command was carried out.
pub fn is_reply_lost(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. } | ErrorKind::InvalidResponse { .. })
        || code(error).is_some_and(|code| INTERRUPTED.contains(&code) || (is_retryable_code(code) && !REFUSED.contains(&code)))
}

/// Whether a statement failed before it did anything. One that fails later has deleted documents that the reply's `n` leaves out: it counts
/// statements that were carried out as a whole (mongo `write_ops_exec.cpp`, `performDeletes`).
pub fn is_refused(code: i32, message: &str) -> bool {
    REFUSED.contains(&code) || message.contains(NO_SUCH_HINT)
}

/// What a service under too much load says of it.
pub fn overload(error: &Error) -> Option<Overload> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => overload::read(command.code, &command.message),
        ErrorKind::Write(WriteFailure::WriteError(write)) => overload::read(write.code, &write.message),
        _ => None,
    }
}

/// Whether no server is left to talk to, after waiting for one.
pub fn is_unreachable(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::ServerSelection { .. })
}

/// Whether the command can be sent again.
pub fn is_retryable(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. })
        || is_unreachable(error)
        || error.contains_label("RetryableWriteError")
        || code(error).is_some_and(is_retryable_code)
}

pub fn is_retryable_code(code: i32) -> bool {
    RETRYABLE.contains(&code)
}

/// Puts a server's message and code together.
pub fn coded(message: &str, code: i32, code_name: &str) -> String {
    // An expression that fails on a document names the value it failed on.
    let message = if is_of_expression(code) {
        "an expression of the filter failed on a document"
    } else if message.contains(NO_SUCH_HINT) {
        // Servers list an index from the beginning of its build, long before it serves anybody.
        "the index is still being built, or was dropped during the run; try again when it is ready"
    } else {
        message
    };
    match code_name {
        "" => format!("{} (code {code})", brief(message)),
        name => format!("{} (code {code}, {name})", brief(message)),
    }
}

/// Codes that expressions fail with: ConversionFailure, and the numbered ones of single operators, which begin above those with a name.
fn is_of_expression(code: i32) -> bool {
    code == 241 || code > 16_500
}

/// The part of a server's message that says why. Many messages quote the command or the query, with the values it holds: nothing is shown
/// from the first brace, bracket or quotation mark on.
fn brief(message: &str) -> String {
    // No quotation mark in there: "can't $divide by zero".
    let message = message.replace("can't ", "cannot ");
    let why = message.rsplit("caused by :: ").next().unwrap_or_default();
    let line = why.lines().next().unwrap_or_default();
    let line = line.split(['{', '[', '\'', '"']).next().unwrap_or(line);
    let line = line.split(". labels: ").next().unwrap_or(line);
    let line = line.trim().trim_end_matches(" to execute command").trim_end_matches(['.', ':', ' ']);
    match line.char_indices().nth(300) {
        Some((cut, _)) => format!("{}...", &line[..cut]),
        None => line.to_owned(),
    }
}

/// Takes the causes out of the driver's picture of the topology: `... Error: Kind: I/O error: Connection refused (os error 111), labels: ...`.
fn selection(message: &str) -> String {
    let mut causes: Vec<&str> =
        message.split("Kind: ").skip(1).map(|rest| rest.split(", labels:").next().unwrap_or(rest).trim()).collect();
    causes.sort_unstable();
    causes.dedup();
    match causes.as_slice() {
        // Of a server that is too old, or too new, for the driver.
        [] if message.contains("wire version") => message.trim_end_matches('.').to_owned(),
        [] => "no suitable server answered in time".into(),
        causes => format!("no suitable server answered in time: {}", brief(&causes.join("; "))),
    }
}
