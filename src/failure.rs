//! Errors that end a run, worded for the person who has to act on them.

use std::fmt;

use tracing::error;

use crate::exit;
use crate::policy::PolicyError;
use crate::stop::Stop;

/// `what was being done: why`, what to do about it, and the exit code. Lower case, no full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    pub hint: Option<String>,
    pub exit_code: u8,
}

impl Failure {
    /// The run could not take place.
    pub fn cannot_run(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit_code: exit::CANNOT_RUN }
    }

    /// The command line or the policy is wrong; nothing was contacted.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit_code: exit::USAGE }
    }

    /// The run was asked to stop before it did anything. `nothing` says what was not done, such as `nothing was deleted`.
    pub fn interrupted(stop: &Stop, nothing: &str) -> Self {
        let (exit_code, why) = match stop.exit_code() {
            Some(exit_code) => (exit_code, "interrupted"),
            None => (exit::LIMIT, "stopped by the stop file"),
        };
        Self { exit_code, ..Self::cannot_run(format!("{why}; {nothing}")) }
    }

    /// Says at the end of the message what else is known.
    pub fn also(self, more: &str) -> Self {
        Self { message: format!("{}; {more}", self.message), ..self }
    }

    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Says on the log why a run did not take place.
pub fn say(cause: &anyhow::Error, quiet: bool) {
    let text = format!("{cause:#}");
    // A quiet run says one line; of a policy's problems that is their number and the first.
    let lines = if cause.is::<PolicyError>() { 2 } else { usize::MAX };
    let brief: Vec<&str> = text.lines().take(lines).map(str::trim).collect();
    let exit_code = exit_code(cause);
    error!(event = "runEnds", exitCode = exit_code, "{}", if quiet { brief.join("; ") } else { text });
}

/// The exit code of whatever kept a run from taking place.
pub fn exit_code(cause: &anyhow::Error) -> u8 {
    match cause.downcast_ref::<Failure>() {
        Some(failure) => failure.exit_code,
        None if cause.is::<PolicyError>() => exit::USAGE,
        None => exit::CANNOT_RUN,
    }
}
