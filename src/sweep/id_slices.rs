//! Ranges of the `_id`, `lo <= _id < hi`, for a collection without a usable index and for buckets. The server examines each
//! document once, while it deletes.

use bson::{Bson, Document, doc};

use super::{NextBatch, RuleSweep};
use crate::facts::Topology;
use crate::plan::Storage;
use crate::server::error::Result;
use crate::server::find::Query;
use crate::server::restriction::Restriction;
use crate::values::float;
use crate::values::raw::RawValue;

/// One pass over the `_id`s of a collection.
pub(super) struct IdSlices<'a> {
    sweep: &'a RuleSweep,
    /// The beginning of the next range.
    begin: Bson,
    /// The last `_id` when the pass began: documents inserted later are for another run.
    last: Bson,
    exhausted: bool,
}

impl<'a> IdSlices<'a> {
    /// Opens a pass; `None` if ranges would be worse than one read of the collection: the order of `_id`s that are not ObjectIds
    /// may be unrelated to the order in which the documents are stored, and a comparison covers values of one type only.
    pub(super) async fn open(sweep: &'a RuleSweep) -> Result<Option<Self>> {
        let RuleSweep { deployment, rule, .. } = sweep;
        // The same `_id` can be on two shards, and a range of one document might then end where it begins.
        if rule.selection.storage == Storage::Clustered || deployment.facts.topology == Topology::Sharded {
            return Ok(None);
        }
        if sweep.ids_follow == Some(false) {
            return Ok(None);
        }
        let mut ends = Vec::new();
        for direction in [1, -1] {
            // The dates of buckets are in the order of the `_id`: there is nothing to do before the first expired one, nor after
            // the last.
            let filter = if rule.selection.is_buckets() { rule.selection.predicate.clone() } else { Document::new() };
            ends.extend(first_id(sweep, ids(sweep, filter, direction)).await?);
        }
        let [begin, last] = ends.as_slice() else { return Ok(None) };
        let is_range = match (begin, last) {
            (Bson::ObjectId(_), Bson::ObjectId(_)) => true,
            // All between two numbers are numbers. NaN comes first among them, and compares only with itself.
            (begin, last) => sweep.ids_follow == Some(true) && is_finite(begin) && is_finite(last),
        };
        Ok(is_range.then(|| Self { sweep, begin: begin.clone(), last: last.clone(), exhausted: false }))
    }

    /// Returns the next range, of at most `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(super) async fn take(&mut self, max: u64) -> std::result::Result<NextBatch, String> {
        if self.exhausted {
            return Ok(NextBatch::Exhausted);
        }
        let rest = doc! { "_id": { "$gte": &self.begin, "$lte": &self.last } };
        let end = first_id(self.sweep, ids(self.sweep, rest, 1).skip(max)).await;
        let end = end.map_err(|cause| self.sweep.explain_read(&cause))?;
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
        Ok(NextBatch::Batch { restriction, documents: max })
    }
}

/// Whether a value is a number that can bound a range.
fn is_finite(value: &Bson) -> bool {
    float(value).is_some_and(f64::is_finite)
}

/// Returns a query for `_id`s, ascending if `direction` is 1 and descending if it is -1.
fn ids(sweep: &RuleSweep, filter: Document, direction: i32) -> Query {
    sweep.query(filter).projection(doc! { "_id": 1 }).sort(doc! { "_id": direction }).hint(Some(doc! { "_id": 1 }))
}

/// Returns the first `_id`; undefined, which no `_id` is, if it is not valid.
async fn first_id(sweep: &RuleSweep, query: Query) -> Result<Option<Bson>> {
    let found = query.limit(1).first_batch(&sweep.deployment).await?;
    let id = found.first().and_then(|document| RawValue::at(document, "_id"));
    Ok(id.map(|id| id.decoded().unwrap_or(Bson::Undefined)))
}
