//! Stretches of a collection without a usable index, or of buckets: `lo <= _id < hi`, each looked at once by the server as it deletes.

use crate::server::error::Result;
use bson::{Bson, doc};

use super::Job;
use super::source::{Taken, find};
use crate::facts::Topology;
use crate::plan::Storage;
use crate::server::delete::Restriction;

pub struct IdSlices<'a> {
    job: &'a Job<'a>,
    /// Where the next stretch begins.
    begin: Bson,
    /// The last `_id` when the pass began: what is inserted later is for another run.
    last: Bson,
    exhausted: bool,
}

impl<'a> IdSlices<'a> {
    /// `None` where stretches of `_id`s would not be as good as going through the collection: `_id`s that are not ObjectIds may come in
    /// an order that has nothing to do with where the documents lie, and comparisons are between values of one type only.
    pub async fn open(job: &'a Job<'a>) -> Result<Option<Self>> {
        // The same `_id` can be on two shards: a stretch of one document might have no end after its beginning.
        if job.rule.selection.storage == Storage::Clustered || job.deployment.facts.topology == Topology::Sharded {
            return Ok(None);
        }
        let mut ends = Vec::new();
        for direction in [1, -1] {
            let mut end = doc! { "projection": { "_id": 1 }, "sort": { "_id": direction }, "hint": { "_id": 1 } };
            if job.rule.selection.is_buckets() {
                // The dates are in the order of the `_id`: before the first that has expired, and after the last, is nothing to be done.
                end.insert("filter", &job.rule.selection.predicate);
            }
            ends.extend(find(job, end, 1).await?.into_iter().filter_map(|document| document.get("_id").cloned()));
        }
        match ends.as_slice() {
            [begin @ Bson::ObjectId(_), last @ Bson::ObjectId(_)] => {
                Ok(Some(Self { job, begin: begin.clone(), last: last.clone(), exhausted: false }))
            }
            _ => Ok(None),
        }
    }

    pub async fn take(&mut self, most: u64) -> Result<Taken> {
        if self.exhausted {
            return Ok(Taken::Exhausted);
        }
        let mut next = doc! {
            "filter": { "_id": { "$gte": &self.begin, "$lte": &self.last } },
            "projection": { "_id": 1 },
            "sort": { "_id": 1 },
            "hint": { "_id": 1 },
        };
        next.insert("skip", i64::try_from(most).unwrap_or(i64::MAX));
        let end = find(self.job, next, 1).await?.into_iter().next().and_then(|document| document.get("_id").cloned());
        let bounds = match &end {
            Some(end) => doc! { "$gte": &self.begin, "$lt": end },
            None => doc! { "$gte": &self.begin, "$lte": &self.last },
        };
        match end {
            Some(end) => self.begin = end,
            None => self.exhausted = true,
        }
        let restriction =
            Box::new(Restriction::Range { bounds: doc! { "_id": bounds }, hint: Bson::Document(doc! { "_id": 1 }) });
        Ok(Taken::Batch { restriction, most })
    }
}
