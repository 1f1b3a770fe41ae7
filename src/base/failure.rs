//! Errors that end a run, worded for the person who has to act on them.

use std::fmt;

use crate::base::{exit, log};

/// An error that ends a run: `what was being done: why`, in lower case and without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// Lines below the message, such as the problems of a policy.
    pub details: Vec<String>,
    /// Suggested next step, shown on a line of its own.
    pub hint: Option<String>,
    pub exit_code: u8,
    /// Whether the run was asked to stop before it did anything: no error, and a sweep has a report of it.
    pub is_stop: bool,
}

impl Failure {
    /// Returns the failure of a run that could not take place.
    pub fn cannot_run(message: impl Into<String>) -> Self {
        Self { message: message.into(), details: Vec::new(), hint: None, exit_code: exit::CANNOT_RUN, is_stop: false }
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

    /// Sets the lines below the message.
    pub fn details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    /// Returns the lines below the message: the details, each indented, and the hint.
    pub fn below(&self) -> Vec<String> {
        let details = self.details.iter().map(|line| format!("  {line}"));
        details.chain(self.hint.iter().map(|hint| format!("hint: {hint}"))).collect()
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
        self.below().iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// Logs why a run ended without a report. A quiet run shows one line: the message, and the first of the lines below it.
pub fn log(cause: &anyhow::Error, quiet: bool) {
    let (message, below) = match cause.downcast_ref::<Failure>() {
        Some(failure) => (failure.message.clone(), failure.below()),
        None => (format!("{cause:#}"), Vec::new()),
    };
    match below.first().filter(|_| quiet) {
        Some(first) => log::error_with(&format!("{message}; {}", first.trim_start()), Some(exit_code(cause)), &[]),
        None => log::error_with(&message, Some(exit_code(cause)), &below),
    }
}

/// Returns the message of an error without the lines below it.
pub fn message(cause: &anyhow::Error) -> String {
    cause.downcast_ref::<Failure>().map_or_else(|| format!("{cause:#}"), |failure| failure.message.clone())
}

/// Whether an error is the answer to a request to stop.
pub fn is_stop(cause: &anyhow::Error) -> bool {
    cause.downcast_ref::<Failure>().is_some_and(|failure| failure.is_stop)
}

/// Returns the exit code of an error that ended a run.
pub fn exit_code(cause: &anyhow::Error) -> u8 {
    cause.downcast_ref::<Failure>().map_or(exit::CANNOT_RUN, |failure| failure.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_and_the_hint_are_lines_of_their_own() {
        let failure = Failure::usage("reading `p`: no such file").also("nothing was contacted").hint("name one with -p");
        assert_eq!(failure.to_string(), "reading `p`: no such file; nothing was contacted\nhint: name one with -p");
        let failure = failure.details(vec!["p:1:1: first".into(), "p:2:1: second".into()]);
        let shown = "reading `p`: no such file; nothing was contacted\n  p:1:1: first\n  p:2:1: second\nhint: name one with -p";
        assert_eq!(failure.to_string(), shown);
        assert_eq!(Failure::cannot_run("a").to_string(), "a");
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
