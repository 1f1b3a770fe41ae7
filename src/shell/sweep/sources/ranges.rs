//! Ranges of the date along its index, oldest first, or of the `_id`: `lo < key <= hi`, with about as many documents as a batch
//! may take.
//!
//! The ends are found by reading only the index, or guessed and confirmed by a count, and no cursor stays open between batches. A
//! range says nothing about expiry: the delete repeats the rule's predicate next to it.

mod density;

use bson::{Bson, Document, RawDocument, doc};

use density::Density;

use super::candidates::Candidates;
use crate::base::values::float;
use crate::base::values::raw::RawValue;
use crate::core::facts::Topology;
use crate::core::plan::Storage;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::plan::is_in_order;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// Counts for one range: after as many the end is read from the index.
const MAX_GUESSES: u32 = 3;

/// One pass over the keys of an index.
pub(crate) struct Ranges<'a> {
    sweep: &'a RuleSweep,
    rate: Option<u32>,
    /// Path of the key.
    pub field: &'a str,
    /// The index, by its name or its key.
    hint: Bson,
    /// Whether several documents may have one key.
    has_ties: bool,
    /// Condition for the keys that are not done; empty at the beginning of dates.
    begin: Document,
    /// The density of the keys in the last range, if the end of the next one is guessed from it.
    density: Option<Density>,
    /// The last key: documents with later ones have not expired, or are for another run.
    last: Bson,
    /// The documents of one date, if there are more than a batch may take: they are found one by one.
    tie: Option<Box<Candidates<'a>>>,
    /// The remaining documents, once the index has come to hold arrays: no range can be bounded from both sides any more.
    rest: Option<Box<Candidates<'a>>>,
    exhausted: bool,
}

impl<'a> Ranges<'a> {
    /// Opens a pass over the index on the date. Returns `None` if the index does not allow ranges: it is multikey, does not begin
    /// with the date, or has not the order of the dates.
    pub(crate) async fn of_dates(sweep: &'a RuleSweep, rate: Option<u32>) -> Result<Option<Self>, ServerError> {
        let expiry = &sweep.rule.expiry;
        let is_sorted = expiry.format.is_sorted_by_index();
        let Some(index) = sweep.rule.selection.index.as_ref().filter(|_| is_sorted) else { return Ok(None) };
        let (field, last, hint) = (expiry.field.as_str(), expiry.latest_key(), Bson::from(index.name.as_str()));
        let begin = Document::new();
        let (density, tie, rest) = (None, None, None);
        let ranges = Self { sweep, rate, field, hint, has_ties: true, begin, density, last, tie, rest, exhausted: false };
        let plan = ranges.keys(doc! { "$lte": &ranges.last }).explain(&sweep.deployment, "queryPlanner").await?;
        Ok(is_in_order(&plan).then_some(ranges))
    }

    /// Opens a pass over the `_id`s of a collection without a usable index, or of buckets: the server examines each document
    /// once, while it deletes. Returns `None` if ranges would be worse than one read of the collection. The order of `_id`s
    /// that are not ObjectIds may be unrelated to the order in which the documents are stored. A comparison covers values of
    /// one type only.
    pub(crate) async fn of_ids(sweep: &'a RuleSweep, rate: Option<u32>) -> Result<Option<Self>, ServerError> {
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
            let found = ids(sweep, filter, direction).limit(1).first_batch(deployment).await?;
            ends.extend(found.first().and_then(|document| at_path(document, "_id")));
        }
        let [first, last] = ends.as_slice() else { return Ok(None) };
        let is_range = match (first, last) {
            (Bson::ObjectId(_), Bson::ObjectId(_)) => true,
            // All between two numbers are numbers. NaN comes first among them, and compares only with itself.
            (first, last) => sweep.ids_follow == Some(true) && is_finite(first) && is_finite(last),
        };
        let (last, hint) = (last.clone(), Bson::Document(doc! { "_id": 1 }));
        let begin = doc! { "$gte": first };
        let (field, has_ties) = ("_id", false);
        let (density, tie, rest) = (None, None, None);
        Ok(is_range.then(|| Self { sweep, rate, field, hint, has_ties, begin, density, last, tie, rest, exhausted: false }))
    }

    /// Returns the next batch, of about `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn take(&mut self, max: u64) -> Result<NextBatch, String> {
        loop {
            if let Some(rest) = self.rest.as_mut().or(self.tie.as_mut()) {
                match rest.take(max).await? {
                    NextBatch::Exhausted if self.rest.is_none() => self.tie = None,
                    taken => return Ok(taken),
                }
            }
            if self.exhausted {
                return Ok(NextBatch::Exhausted);
            }
            if let Some(taken) = self.next(max).await.map_err(|cause| self.sweep.explain_read(&cause))? {
                return Ok(taken);
            }
        }
    }

    /// Returns the next range, or `None` if the next documents are to be found one by one.
    async fn next(&mut self, max: u64) -> Result<Option<NextBatch>, ServerError> {
        if let Some(range) = self.guessed(max).await? {
            return Ok(Some(range));
        }
        let ends = self.keys(doc! { "$lte": &self.last }).skip(max.saturating_sub(1)).limit(2);
        let keys = ends.first_batch(&self.sweep.deployment).await?;
        let keys: Vec<Option<Bson>> = keys.iter().map(|key| at_path(key, self.field)).collect();
        let (end, next) = match keys.as_slice() {
            [] | [_] => {
                self.exhausted = true;
                return Ok(Some(self.range(doc! { "$lte": &self.last }, max)));
            }
            [Some(end), Some(next), ..] => (end.clone(), next),
            _ => {
                self.rest = Some(Box::new(Candidates::new(self.sweep, self.rate, None)));
                return Ok(None);
            }
        };
        if !(self.has_ties && is_same_key(&end, next)) {
            return Ok(Some(self.up_to(end, max)));
        }
        // The batch would end in the middle of a date. Older documents go first.
        let older = self.range(doc! { "$lt": &end }, max);
        let before = self.keys(doc! { "$lt": &end }).limit(1);
        let is_older = !before.first_batch(&self.sweep.deployment).await?.is_empty();
        self.tie = Some(Box::new(Candidates::new(self.sweep, self.rate, Some(doc! { self.field: &end }))));
        (self.begin, self.density) = (doc! { "$gt": end }, None);
        Ok(is_older.then_some(older))
    }

    /// Returns the next range by a guess that a count confirms; `None` if nothing can be guessed, or the guesses were wrong. One
    /// with too many documents is followed by a closer one.
    ///
    /// Behind a router a guess is cheaper: for a sorted find each shard sends as many keys as the whole batch may have
    /// (s/query/cluster_find.cpp), for a count one number (s/commands/cluster_count_cmd.h).
    async fn guessed(&mut self, max: u64) -> Result<Option<NextBatch>, ServerError> {
        let Some((begin, mut density)) = self.begin.get("$gt").cloned().zip(self.density.take()) else { return Ok(None) };
        for _ in 0..MAX_GUESSES {
            let Some(end) = density.end(&begin, &self.last, max) else { return Ok(None) };
            let (sweep, filter) = (self.sweep, self.bounds(doc! { "$lte": &end }));
            // The limit is twice the batch: what is too much tells where a closer guess has to end.
            let query = Query::count(&sweep.rule.selection.namespace, filter).hint(Some(self.hint.clone())).limit(max * 2);
            let count = query.retried_patiently(&sweep.rule.namespace).number(&sweep.deployment).await?;
            self.exhausted = end == self.last && count <= max;
            if count == 0 {
                return Ok(self.exhausted.then_some(NextBatch::Exhausted));
            }
            if count <= max {
                return Ok(Some(self.up_to(end, count)));
            }
            let Some(closer) = Density::of(&begin, &end, count) else { return Ok(None) };
            density = closer;
        }
        Ok(None)
    }

    /// Returns a batch of so many keys that are not done, up to and including an end, and goes on behind it.
    fn up_to(&mut self, end: Bson, documents: u64) -> NextBatch {
        let range = self.range(doc! { "$lte": &end }, documents);
        let is_guessed_from_here = self.sweep.deployment.facts.is_behind_router();
        let begin = self.begin.get("$gt").filter(|_| is_guessed_from_here);
        self.density = begin.and_then(|begin| Density::of(begin, &end, documents));
        self.begin = doc! { "$gt": end };
        range
    }

    /// Returns a batch of the keys that are not done, up to an end.
    fn range(&self, end: Document, documents: u64) -> NextBatch {
        let restriction = Restriction::Range { bounds: self.bounds(end), hint: self.hint.clone() };
        NextBatch::Batch { restriction: Box::new(restriction), documents }
    }

    /// Returns a query for the keys that are not done, up to an end.
    fn keys(&self, end: Document) -> Query {
        self.sweep.query(self.bounds(end)).covered(self.field).sort(doc! { self.field: 1 }).hint(Some(self.hint.clone()))
    }

    fn bounds(&self, end: Document) -> Document {
        let mut bounds = self.begin.clone();
        bounds.extend(end);
        doc! { self.field: bounds }
    }
}

/// Returns a query for `_id`s, ascending if `direction` is 1 and descending if it is -1.
fn ids(sweep: &RuleSweep, filter: Document, direction: i32) -> Query {
    sweep.query(filter).projection(doc! { "_id": 1 }).sort(doc! { "_id": direction }).hint(Some(doc! { "_id": 1 }))
}

/// Whether a value is a number that can bound a range.
fn is_finite(value: &Bson) -> bool {
    float(value).is_some_and(f64::is_finite)
}

/// Returns the value at a path; `None` if it is an array, or in one.
fn at_path(document: &RawDocument, path: &str) -> Option<Bson> {
    RawValue::decoded_at(document, path).filter(|value| value.as_array().is_none())
}

/// Whether two keys can be the same to the server, as numbers of different types can. If in doubt they count as the same, which
/// only costs speed.
fn is_same_key(a: &Bson, b: &Bson) -> bool {
    let number = |value: &Bson| match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    };
    match (a, b) {
        (Bson::Decimal128(_), _) | (_, Bson::Decimal128(_)) => true,
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

#[cfg(test)]
mod tests;
