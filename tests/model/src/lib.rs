//! A model of a server, for simulations of whole runs: a primary whose writes a majority has after a while, on the clock of the
//! runtime.
//!
//! The model carries out the commands that the program sends, on documents and indexes of its own; a command or an operator that
//! it does not know is an error, never a quiet "no match". A delete lets others run between two documents and looks at each
//! document as it is then, as a server does. A write is known to a majority after a while, and a fail-over takes back some of
//! those that are not. Commands and replies get lost, come late, or are errors, as [`Faults`] says.
//!
//! Everything that is not given follows from one seed: the model uses no clock but tokio's, and no other chance. It runs on a
//! runtime with `start_paused` and one thread.
//!
//! Every document that a command deletes is shown to an [`Observer`] in that moment.
//!
//! The model is a crate of its own, so that builds for tests optimise it. It uses nothing of the program that it judges, not even
//! a constant: it would share its mistakes. In `src/testing/model` are the clients by which the program sends commands to it, and
//! `conformance`, which compares it with a mongod.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
// A test may fail by a panic; nothing else may.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arithmetic;
mod call;
mod catalog;
mod codes;
mod collection;
mod concern;
mod cursor;
mod decimal;
mod dispatch;
mod expression;
mod failure;
mod faults;
mod filter;
mod functions;
mod index;
mod model;
mod network;
mod observer;
mod order;
mod path;
mod pipeline;
mod plan;
mod projection;
mod query;
mod reading;
mod release;
mod sort;
mod state;
mod text;
mod updates;
mod value;
mod writes;

use std::sync::Arc;

use bson::{Bson, DateTime, Document};

pub use failure::Failure;
pub use faults::{Faults, Pace};
pub use model::Model;
pub use network::{CommandError, Sent};
pub use observer::{Deletion, Insertion, Observer, Updated, View};
pub use order::compare;
pub use release::Release;
pub use state::BEGINNING;

/// Tells of each document whether a filter selects it.
pub fn selected(filter: &Document, documents: &[Document]) -> Vec<bool> {
    let filter = filter::Filter::new(filter, DateTime::from_millis(BEGINNING)).expect("a filter that the server takes");
    let matches = |document: &Document| filter.matches(&document.clone().into()).expect("a filter that fails on no document");
    documents.iter().map(matches).collect()
}

/// Returns what an aggregation makes of some documents.
pub fn aggregated(stages: &[Document], documents: &[Document]) -> Vec<Document> {
    let stages: Vec<&Document> = stages.iter().collect();
    let stages = pipeline::compile(&stages, DateTime::from_millis(BEGINNING)).expect("stages that the server takes");
    let documents = documents.iter().map(|document| Arc::new(document.clone().into())).collect();
    let found = pipeline::run(&stages, documents).expect("stages that fail on no document");
    found.iter().map(|document| document.as_document().expect("a document").clone()).collect()
}

/// Returns a number as text that is the same for equal numbers of different types; `None` for everything else.
pub fn number_of_any_type(value: &Bson) -> Option<String> {
    order::is_number(value).then(|| format!("{:?}", decimal::Decimal::of(value)))
}
