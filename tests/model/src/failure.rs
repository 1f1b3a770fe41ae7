//! Errors as the model's server reports them.

use bson::{Document, doc};

use crate::codes;

/// An error of a command or of a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Code of the error.
    pub code: i32,
    /// The words of the error.
    pub message: String,
    /// Further fields of the error of a statement.
    pub(crate) details: Document,
}

impl Failure {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Document::new() }
    }

    /// Creates the error of a command that is not well formed.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(codes::BAD_VALUE, message)
    }

    /// Returns the entry in `writeErrors` of the statement at a place.
    pub(crate) fn of_statement(&self, index: usize) -> Document {
        let mut error = doc! { "index": i32::try_from(index).expect("few statements"), "code": self.code };
        error.extend(self.details.clone());
        error.insert("errmsg", &self.message);
        error
    }
}
