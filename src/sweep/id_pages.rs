//! Pages of `_id`s, for servers whose cursors do not last: each page is one find that begins after the last `_id` of the page before.

use crate::server::error::Result;
use bson::raw::RawBson;
use bson::{Bson, Document, RawArrayBuf, doc};

use super::Job;
use super::source::{Taken, explain, find};
use crate::server::delete::Restriction;
use crate::server::shard_key;

pub struct IdPages<'a> {
    job: &'a Job<'a>,
    /// The last `_id` that was read, of the type that is being read.
    after: Option<Bson>,
    /// Types of `_id` that are done: a comparison sees values of one type alone.
    done: Vec<&'static str>,
}

impl<'a> IdPages<'a> {
    pub fn new(job: &'a Job<'a>) -> Self {
        Self { job, after: None, done: Vec::new() }
    }

    /// The next page, of at most `most` documents.
    ///
    /// Errors: why the pass cannot go on.
    pub async fn take(&mut self, most: u64) -> std::result::Result<Taken, String> {
        let page = self.page(most.max(1)).await.map_err(|cause| explain(&cause))?;
        if page.is_empty() {
            return Ok(Taken::Exhausted);
        }
        if most == 0 {
            return Ok(Taken::More);
        }
        let paths = &self.job.rule.selection.shard_key;
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
            // A statement may aim at one value of the key alone.
            last => Restriction::Sharded(groups.into_iter().chain(last).collect()),
        };
        Ok(Taken::Batch { restriction: Box::new(restriction), most: page.len() as u64 })
    }

    /// The first documents after the last `_id`; empty where none is left.
    async fn page(&mut self, most: u64) -> Result<Vec<Document>> {
        let mut projection = doc! { "_id": 1 };
        projection.extend(self.job.rule.selection.shard_key.iter().map(|path| (path.clone(), Bson::Int32(1))));
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        loop {
            let mut all = vec![self.job.rule.selection.predicate.clone()];
            if let Some(after) = &self.after {
                all.push(doc! { "_id": { "$gt": after } });
            } else if !self.done.is_empty() {
                let done = self.done.iter().map(|name| doc! { "_id": { "$type": *name } });
                all.push(doc! { "$nor": done.collect::<Vec<_>>() });
            }
            let page = find(self.job, doc! { "filter": { "$and": all }, "projection": &projection, "sort": { "_id": 1 } }, limit)
                .await?;
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

/// The type that a value is compared within, as `$type` names it.
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
