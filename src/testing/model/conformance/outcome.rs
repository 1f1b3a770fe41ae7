//! The outcome of a step, to be compared: replies without the parts that differ from server to server, and from time to time.

use std::fmt;

use bson::{Bson, Document, RawDocumentBuf};
use server_model::number_of_any_type;

use crate::shell::server::wire::error::ServerError;

/// The comparable result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome(String);

impl Outcome {
    /// Takes a reply or an error, which has only its code.
    pub(super) fn of_reply(result: Result<Document, ServerError>) -> Self {
        match result {
            Ok(reply) => Self(shown(&Bson::from(comparable(reply)))),
            Err(cause) => Self::of_error(&cause),
        }
    }

    /// Takes documents in their order or, if that is not defined, in any.
    pub(super) fn of_documents(result: Result<Vec<RawDocumentBuf>, ServerError>, is_ordered: bool) -> Self {
        let documents = match result {
            Ok(documents) => documents,
            Err(cause) => return Self::of_error(&cause),
        };
        let mut documents: Vec<String> = documents
            .iter()
            .map(|document| shown(&with_comparable_ends(Document::try_from(&**document).expect("a document").into())))
            .collect();
        if !is_ordered {
            documents.sort();
        }
        Self(documents.join("\n        "))
    }

    pub(super) fn of_error(cause: &ServerError) -> Self {
        match cause.code() {
            Some(code) => Self(format!("error {code}")),
            None => Self(format!("error: {cause}")),
        }
    }

    /// Takes any result of the program's own code.
    pub(super) fn of(result: impl fmt::Debug) -> Self {
        Self(format!("{result:?}"))
    }
}

impl Outcome {
    /// Returns the same parts in an order of their own.
    pub(super) fn in_no_order(self) -> Self {
        let mut parts: Vec<&str> = self.0.split([',', '[', ']', '{', '}']).map(str::trim).collect();
        parts.sort_unstable();
        Self(parts.join(","))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a value as text that tells all types and bits apart but the bits of a NaN.
pub(super) fn shown(value: &Bson) -> String {
    format!("{value:?}")
}

/// Returns the result of an aggregation with its least and greatest values, if they are numbers, without their types. Which of
/// several equal numbers is kept depends on the engine in which a server runs the stage.
fn with_comparable_ends(value: Bson) -> Bson {
    match value {
        Bson::Document(fields) => {
            let comparable = |(name, value): (String, Bson)| {
                let is_end = ["least", "greatest"].contains(&name.as_str());
                let number = if is_end { number_of_any_type(&value) } else { None };
                (name, number.map_or_else(|| with_comparable_ends(value), Bson::String))
            };
            fields.into_iter().map(comparable).collect::<Document>().into()
        }
        Bson::Array(items) => items.into_iter().map(with_comparable_ends).collect::<Vec<Bson>>().into(),
        other => other,
    }
}

fn comparable(mut reply: Document) -> Document {
    for name in ["operationTime", "$clusterTime", "electionId", "opTime"] {
        reply.remove(name);
    }
    if let Ok(errors) = reply.get_array_mut("writeErrors") {
        for error in errors.iter_mut().filter_map(Bson::as_document_mut) {
            // The words are the server's own.
            let named = ["index", "code", "keyPattern", "keyValue"];
            *error = named.iter().filter_map(|name| Some(((*name).to_owned(), error.get(name)?.clone()))).collect();
        }
    }
    reply
}
