//! A cursor on the server.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::Bson;

use crate::collection::Collections;
use crate::failure::Failure;
use crate::projection::Projection;
use crate::query::Query;

/// A cursor on the server.
pub(crate) struct Cursor {
    pub term: u64,
    pub namespace: String,
    pub source: Source,
    pub projection: Projection,
    /// Documents that are still to be skipped, and to be returned.
    pub skip: usize,
    pub left: usize,
    pub client: Arc<str>,
}

pub(crate) enum Source {
    Query(Box<Query>),
    Done(VecDeque<Arc<Bson>>),
}

impl Cursor {
    /// Returns the next documents, at most `size`; fewer only at the end.
    pub(crate) fn batch(&mut self, collections: &Collections, size: usize) -> Result<Vec<Bson>, Failure> {
        let mut batch = Vec::new();
        while batch.len() < size && self.left > 0 {
            let next = match &mut self.source {
                Source::Query(query) => query.next(collections)?,
                Source::Done(documents) => documents.pop_front(),
            };
            let Some(document) = next else {
                self.left = 0;
                break;
            };
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left -= 1;
            batch.push(self.projection.of(&document)?);
        }
        Ok(batch)
    }
}
