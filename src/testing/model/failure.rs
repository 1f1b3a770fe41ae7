//! Errors as the model's server reports them.

use bson::{Document, doc};

use crate::shell::server::wire::error::ServerError;

/// An error of a command or of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub code: i32,
    pub message: String,
    /// Further fields of the error of a statement.
    pub details: Document,
}

impl Failure {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Document::new() }
    }

    /// Creates the error of a command that is not well formed.
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(super::codes::BAD_VALUE, message)
    }

    /// Returns the entry in `writeErrors` of the statement at a place.
    pub(super) fn of_statement(&self, index: usize) -> Document {
        let mut error = doc! { "index": i32::try_from(index).expect("few statements"), "code": self.code };
        error.extend(self.details.clone());
        error.insert("errmsg", &self.message);
        error
    }
}

impl From<Failure> for ServerError {
    fn from(failure: Failure) -> Self {
        Self::reported(failure.code, &failure.message, "")
    }
}
