//! Errors that end a run, worded for the person who has to act on them.

use std::fmt;

use tracing::error;

use crate::exit;

/// An error that ends a run: `what was being done: why`, in lower case and without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// Suggested next step, shown on a line of its own.
    pub hint: Option<String>,
    pub exit_code: u8,
}

impl Failure {
    /// Returns the failure of a run that could not take place.
    pub fn cannot_run(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit_code: exit::CANNOT_RUN }
    }

    /// Returns the failure of a wrong command line or policy; nothing was contacted.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit_code: exit::USAGE, ..Self::cannot_run(message) }
    }

    /// Replaces the exit code.
    pub fn exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }

    /// Appends to the message.
    pub fn also(self, more: &str) -> Self {
        Self { message: format!("{}; {more}", self.message), ..self }
    }

    /// Sets the hint.
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

/// Logs why a run ended without a report.
pub fn log(cause: &anyhow::Error, quiet: bool) {
    let text = format!("{cause:#}");
    let text = if quiet { brief(&text) } else { text };
    error!(event = "runEnds", exitCode = exit_code(cause), "{text}");
}

/// Returns the one line of a quiet run: the first two lines of a failure, such as the number of a policy's problems and the first of them.
fn brief(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take(2).map(str::trim).collect();
    lines.join("; ")
}

/// Returns the exit code of an error that ended a run.
pub fn exit_code(cause: &anyhow::Error) -> u8 {
    cause.downcast_ref::<Failure>().map_or(exit::CANNOT_RUN, |failure| failure.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_a_line_of_its_own() {
        let failure =
            Failure::usage("reading the policy `p`: no such file").also("nothing was contacted").hint("name one with -p");
        assert_eq!(failure.to_string(), "reading the policy `p`: no such file; nothing was contacted\nhint: name one with -p");
        assert_eq!(Failure::cannot_run("a").to_string(), "a");
    }

    #[test]
    fn a_quiet_run_shows_two_lines_as_one() {
        assert_eq!(
            brief("invalid policy `p`: 2 problems\n  p:1:1: first\n  p:2:1: second"),
            "invalid policy `p`: 2 problems; p:1:1: first"
        );
        assert_eq!(brief("a\nhint: b"), "a; hint: b");
        assert_eq!(brief("a"), "a");
    }

    #[test]
    fn the_exit_code_is_that_of_the_failure_and_1_for_any_other_error() {
        let code = |cause: anyhow::Error| exit_code(&cause);
        assert_eq!(code(Failure::usage("a").into()), exit::USAGE);
        assert_eq!(code(Failure::cannot_run("a").into()), exit::CANNOT_RUN);
        assert_eq!(code(Failure::cannot_run("a").exit_code(exit::LOCKED).into()), exit::LOCKED);
        assert_eq!(code(anyhow::Error::from(Failure::usage("a")).context("b")), exit::USAGE);
        assert_eq!(code(anyhow::anyhow!("a")), exit::CANNOT_RUN);
    }
}
