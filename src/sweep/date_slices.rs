//! Stretches of the index on the date, oldest first: `lo < date <= hi`, with about as many documents as a batch may take.
//!
//! The ends are found on the index alone, and no cursor stays open between batches. A stretch says nothing about expiry: the delete
//! repeats the rule's predicate beside it.

use crate::server::error::Result;
use bson::{Bson, Document, doc};

use super::Job;
use super::candidates::Candidates;
use super::source::{Taken, explain, explain_find, find, plan_has};
use crate::server::delete::Restriction;
use crate::values;

pub struct DateSlices<'a> {
    job: &'a Job<'a>,
    rate: Option<u32>,
    index: &'a str,
    /// Every date up to this one, included, is done; `None` at the beginning.
    done: Option<Bson>,
    /// More documents share one date than a batch may take: they are found one by one.
    tie: Option<Box<Candidates<'a>>>,
    /// The index came to hold arrays: no stretch can be bounded from both sides any more.
    rest: Option<Box<Candidates<'a>>>,
    exhausted: bool,
}

impl<'a> DateSlices<'a> {
    /// `None` where the index does not allow stretches: it is multikey, or does not begin with the date.
    pub async fn open(job: &'a Job<'a>, rate: Option<u32>) -> Result<Option<Self>> {
        let Some(index) = &job.rule.selection.index else { return Ok(None) };
        let slices = Self { job, rate, index: &index.name, done: None, tie: None, rest: None, exhausted: false };
        let plan = explain_find(job, slices.keys_after(None)).await?;
        let usable = !plan_has(&plan, "stage", &"SORT".into()) && plan_has(&plan, "isMultiKey", &false.into());
        Ok(usable.then_some(slices))
    }

    pub async fn take(&mut self, most: u64) -> std::result::Result<Taken, String> {
        loop {
            if let Some(rest) = self.rest.as_mut().or(self.tie.as_mut()) {
                match rest.take(most).await? {
                    Taken::Exhausted if self.rest.is_none() => self.tie = None,
                    taken => return Ok(taken),
                }
            }
            if self.exhausted {
                return Ok(Taken::Exhausted);
            }
            if let Some(taken) = self.next(most).await.map_err(|cause| explain(&cause))? {
                return Ok(taken);
            }
        }
    }

    /// The next stretch, or `None` where the next documents are to be found one by one.
    async fn next(&mut self, most: u64) -> Result<Option<Taken>> {
        let mut ends = self.keys_after(self.done.as_ref());
        ends.insert("skip", i64::try_from(most.saturating_sub(1)).unwrap_or(i64::MAX));
        let keys = find(self.job, ends, 2).await?;
        let field = &self.job.rule.expiry.field;
        let keys: Vec<Option<Bson>> = keys.iter().map(|key| at_path(key, field)).collect();
        let (end, next) = match keys.as_slice() {
            [] | [_] => {
                self.exhausted = true;
                return Ok(Some(self.stretch(None, most)));
            }
            [Some(end), Some(next), ..] => (end.clone(), next),
            _ => {
                self.rest = Some(Box::new(Candidates::new(self.job, self.rate, None)));
                return Ok(None);
            }
        };
        if !is_same_key(&end, next) {
            let stretch = self.stretch(Some(doc! { "$lte": &end }), most);
            self.done = Some(end);
            return Ok(Some(stretch));
        }
        // The documents of this date do not end with the batch. What is older goes first.
        let older = self.stretch(Some(doc! { "$lt": &end }), most);
        let mut before = self.keys_after(self.done.as_ref());
        let mut bounds = self.done.as_ref().map(|done| doc! { "$gt": done }).unwrap_or_default();
        bounds.insert("$lt", &end);
        before.insert("filter", doc! { field: bounds });
        let is_older = !find(self.job, before, 1).await?.is_empty();
        self.tie = Some(Box::new(Candidates::new(self.job, self.rate, Some(doc! { field: &end }))));
        self.done = Some(end);
        Ok(is_older.then_some(older))
    }

    fn stretch(&self, end: Option<Document>, most: u64) -> Taken {
        let end = end.unwrap_or_else(|| doc! { "$lte": self.job.rule.expiry.latest_key() });
        let mut bounds = self.done.as_ref().map(|done| doc! { "$gt": done }).unwrap_or_default();
        bounds.extend(end);
        let bounds = doc! { &self.job.rule.expiry.field: bounds };
        Taken::Batch { restriction: Box::new(Restriction::Range { bounds, hint: Bson::from(self.index) }), most }
    }

    /// A find command for the keys of the index after a date and up to the latest that can have expired.
    fn keys_after(&self, done: Option<&Bson>) -> Document {
        let field = &self.job.rule.expiry.field;
        let mut bounds = done.map(|done| doc! { "$gt": done }).unwrap_or_default();
        bounds.insert("$lte", self.job.rule.expiry.latest_key());
        // Without the `_id` the index alone answers.
        let in_id = field.split('.').next() == Some("_id");
        let projection = if in_id {
            doc! { "_id": 1 }
        } else {
            doc! { "_id": 0, field: 1 }
        };
        doc! { "filter": { field: bounds }, "projection": projection, "sort": { field: 1 }, "hint": self.index }
    }
}

/// The value at a path; `None` where it is a list, or behind one.
fn at_path(document: &Document, path: &str) -> Option<Bson> {
    values::at(document, path).filter(|value| value.as_array().is_none()).cloned()
}

/// Whether two keys can be one to the server, as numbers of different types can. Where it is not sure they count as one, which only costs
/// speed.
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
