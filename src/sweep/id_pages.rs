//! Pages of `_id`s, for servers whose cursors do not last: each page is one query that begins after the last `_id` of the page before.

use bson::raw::RawBson;
use bson::{Bson, Document, RawArrayBuf, doc};

use super::{NextBatch, RuleSweep};
use crate::server::error::ServerError;
use crate::server::restriction::Restriction;
use crate::server::shard_key;

/// One pass over the expired documents of a rule, in the order of the `_id`.
pub(super) struct IdPages<'a> {
    sweep: &'a RuleSweep,
    /// The last `_id` that was read; `None` before the first one of a type.
    after: Option<Bson>,
    /// Types of `_id` that are done: a comparison finds values of one type only.
    done: Vec<&'static str>,
}

impl<'a> IdPages<'a> {
    pub(super) fn new(sweep: &'a RuleSweep) -> Self {
        Self { sweep, after: None, done: Vec::new() }
    }

    /// Returns the next page, of at most `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(super) async fn take(&mut self, max: u64) -> Result<NextBatch, String> {
        let page = self.page(max.max(1)).await.map_err(|cause| self.sweep.explain_read(&cause))?;
        if page.is_empty() {
            return Ok(NextBatch::Exhausted);
        }
        if max == 0 {
            return Ok(NextBatch::More);
        }
        let paths = &self.sweep.rule.selection.shard_key;
        let mut groups: Vec<(Document, RawArrayBuf)> = Vec::new();
        for document in &page {
            let Some(id) = document.get("_id") else { continue };
            let key = shard_key::of(document, paths);
            let id = RawBson::try_from(id.clone()).map_err(|cause| format!("reading an `_id`: {cause}"))?;
            match groups.iter_mut().find(|(other, _)| *other == key) {
                Some((_, ids)) => ids.push(id),
                None => groups.push((key, RawArrayBuf::from_iter([id]))),
            }
        }
        self.after = page.last().and_then(|document| document.get("_id")).cloned();
        let restriction = match groups.pop() {
            Some((_, ids)) if paths.is_empty() => Restriction::Ids(ids),
            // A statement may name only one value of the key.
            last => Restriction::Sharded(groups.into_iter().chain(last).collect()),
        };
        Ok(NextBatch::Batch { restriction: Box::new(restriction), documents: page.len() as u64 })
    }

    /// Returns the first documents after the last `_id`; empty if none is left.
    async fn page(&mut self, max: u64) -> Result<Vec<Document>, ServerError> {
        let mut projection = doc! { "_id": 1 };
        projection.extend(self.sweep.rule.selection.shard_key.iter().map(|path| (path.clone(), Bson::Int32(1))));
        loop {
            let mut all = vec![self.sweep.rule.selection.predicate.clone()];
            if let Some(after) = &self.after {
                all.push(doc! { "_id": { "$gt": after } });
            } else if !self.done.is_empty() {
                let done = self.done.iter().map(|name| doc! { "_id": { "$type": *name } });
                all.push(doc! { "$nor": done.collect::<Vec<_>>() });
            }
            let query = self.sweep.query(doc! { "$and": all }).projection(projection.clone()).sort(doc! { "_id": 1 });
            let page = query.limit(max).first_batch(&self.sweep.deployment).await?;
            match self.after.take() {
                Some(after) if page.is_empty() => self.done.push(bracket(&after)),
                after => {
                    self.after = after;
                    return Ok(page);
                }
            }
        }
    }
}

/// Returns the type within which a value is compared, as `$type` names it.
fn bracket(value: &Bson) -> &'static str {
    match value {
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => "number",
        Bson::ObjectId(_) => "objectId",
        Bson::String(_) => "string",
        Bson::Binary(_) => "binData",
        Bson::DateTime(_) => "date",
        Bson::Timestamp(_) => "timestamp",
        Bson::Boolean(_) => "bool",
        Bson::Document(_) => "object",
        Bson::Null => "null",
        Bson::MinKey => "minKey",
        Bson::MaxKey => "maxKey",
        Bson::Symbol(_) => "symbol",
        Bson::JavaScriptCode(_) => "javascript",
        Bson::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        Bson::RegularExpression(_) => "regex",
        Bson::DbPointer(_) => "dbPointer",
        Bson::Undefined => "undefined",
        Bson::Array(_) => "array",
    }
}
