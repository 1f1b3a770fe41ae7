//! Ranges of the index on the date, oldest first: `lo < date <= hi`, with about as many documents as a batch may take.
//!
//! The ends are found by reading only the index, and no cursor stays open between batches. A range says nothing about expiry: the
//! delete repeats the rule's predicate next to it.

use bson::{Bson, Document, RawDocument, doc};

use super::candidates::Candidates;
use crate::base::values::raw::RawValue;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::find::Query;
use crate::shell::sweep::batch::reading::plan_has;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// One pass over the index on the date.
pub(crate) struct DateSlices<'a> {
    sweep: &'a RuleSweep,
    rate: Option<u32>,
    index: &'a str,
    /// Every date up to and including this one is done; `None` at the beginning.
    done: Option<Bson>,
    /// The documents of one date, if there are more than a batch may take: they are found one by one.
    tie: Option<Box<Candidates<'a>>>,
    /// The remaining documents, once the index has come to hold arrays: no range can be bounded from both sides any more.
    rest: Option<Box<Candidates<'a>>>,
    exhausted: bool,
}

impl<'a> DateSlices<'a> {
    /// Opens a pass; `None` if the index does not allow ranges: it is multikey, does not begin with the date, or has not the order of the dates.
    pub(crate) async fn open(sweep: &'a RuleSweep, rate: Option<u32>) -> Result<Option<Self>, ServerError> {
        let is_sorted = sweep.rule.expiry.format.is_sorted_by_index();
        let Some(index) = sweep.rule.selection.index.as_ref().filter(|_| is_sorted) else { return Ok(None) };
        let slices = Self { sweep, rate, index: &index.name, done: None, tie: None, rest: None, exhausted: false };
        let plan = slices.keys_after(None).explain(&sweep.deployment, "queryPlanner").await?;
        let usable = !plan_has(&plan, "stage", &"SORT".into()) && plan_has(&plan, "isMultiKey", &false.into());
        Ok(usable.then_some(slices))
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
        let ends = self.keys_after(self.done.as_ref()).skip(max.saturating_sub(1)).limit(2);
        let keys = ends.first_batch(&self.sweep.deployment).await?;
        let field = &self.sweep.rule.expiry.field;
        let keys: Vec<Option<Bson>> = keys.iter().map(|key| at_path(key, field)).collect();
        let (end, next) = match keys.as_slice() {
            [] | [_] => {
                self.exhausted = true;
                return Ok(Some(self.range(None, max)));
            }
            [Some(end), Some(next), ..] => (end.clone(), next),
            _ => {
                self.rest = Some(Box::new(Candidates::new(self.sweep, self.rate, None)));
                return Ok(None);
            }
        };
        if !is_same_key(&end, next) {
            let range = self.range(Some(doc! { "$lte": &end }), max);
            self.done = Some(end);
            return Ok(Some(range));
        }
        // The batch would end in the middle of a date. Older documents go first.
        let older = self.range(Some(doc! { "$lt": &end }), max);
        let before = self.keys(self.done.as_ref(), doc! { "$lt": &end }).limit(1);
        let is_older = !before.first_batch(&self.sweep.deployment).await?.is_empty();
        self.tie = Some(Box::new(Candidates::new(self.sweep, self.rate, Some(doc! { field: &end }))));
        self.done = Some(end);
        Ok(is_older.then_some(older))
    }

    /// Returns a batch of the dates that are not done, up to `end` or, if that is `None`, to the latest date that can have
    /// expired.
    fn range(&self, end: Option<Document>, documents: u64) -> NextBatch {
        let end = end.unwrap_or_else(|| doc! { "$lte": self.sweep.rule.expiry.latest_key() });
        let mut bounds = self.done.as_ref().map(|done| doc! { "$gt": done }).unwrap_or_default();
        bounds.extend(end);
        let bounds = doc! { &self.sweep.rule.expiry.field: bounds };
        let restriction = Box::new(Restriction::Range { bounds, hint: Bson::from(self.index) });
        NextBatch::Batch { restriction, documents }
    }

    /// Returns a query for the keys of the index after a date, up to the latest that can have expired.
    fn keys_after(&self, done: Option<&Bson>) -> Query {
        self.keys(done, doc! { "$lte": self.sweep.rule.expiry.latest_key() })
    }

    /// Returns a query for the keys of the index after a date, up to an end.
    fn keys(&self, done: Option<&Bson>, end: Document) -> Query {
        let field = &self.sweep.rule.expiry.field;
        let mut bounds = done.map(|done| doc! { "$gt": done }).unwrap_or_default();
        bounds.extend(end);
        self.sweep.query(doc! { field: bounds }).covered(field).sort(doc! { field: 1 }).hint(Some(self.index))
    }
}

/// Returns the value at a path; `None` if it is an array, or in one.
fn at_path(document: &RawDocument, path: &str) -> Option<Bson> {
    RawValue::at(document, path)?.decoded().filter(|value| value.as_array().is_none())
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
mod tests {
    use super::*;
    use crate::core::plan::index::IndexChoice;
    use crate::core::policy::DateFormat;
    use crate::shell::lock::lease::Leases;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{self, Batch, End, Reply};

    fn plan(stage: &str, is_multikey: bool) -> ScriptedReply {
        Reply(doc! { "plan": { "stage": stage, "isMultiKey": is_multikey } })
    }

    fn sweep(replies: Vec<ScriptedReply>) -> RuleSweep {
        let mut sweep = sweep::sweep(&Script::new(replies), 100, &Leases::default(), None);
        sweep.rule.selection.index = Some(IndexChoice { name: "at_1".into(), oldest_first: true, bounded: true });
        sweep
    }

    /// Returns the replies to a query for dates, with the documents that hold them.
    fn dates(dates: Vec<Bson>) -> ScriptedReply {
        Batch(dates.into_iter().map(|at| doc! { "at": at }).collect())
    }

    /// Takes batches until the pass has ended, and returns each in short.
    async fn all(sweep: &RuleSweep, max: u64) -> Vec<String> {
        let mut slices = DateSlices::open(sweep, None).await.unwrap().unwrap();
        let mut taken = Vec::new();
        loop {
            taken.push(match slices.take(max).await.unwrap() {
                NextBatch::Batch { restriction, .. } => match *restriction {
                    Restriction::Range { bounds, hint } if hint == Bson::from("at_1") => bounds
                        .get_document("at")
                        .unwrap()
                        .to_string()
                        .replace("{ \"$lte\": DateTime(\"2027-01-15T07:00:00.0Z\") }", "end"),
                    Restriction::Ids { lists, .. } => format!("{} ids", lists[0].ids.len()),
                    other => panic!("{other:?}"),
                },
                NextBatch::Exhausted => return taken,
                NextBatch::More | NextBatch::AfterOthers => panic!("{taken:?}"),
            });
        }
    }

    #[tokio::test]
    async fn an_index_serves_ranges_unless_it_holds_lists_or_is_not_in_the_order_of_the_dates() {
        for (stage, is_multikey, expected) in [("IXSCAN", false, true), ("IXSCAN", true, false), ("SORT", false, false)] {
            let sweep = sweep(vec![plan(stage, is_multikey)]);
            assert_eq!(DateSlices::open(&sweep, None).await.unwrap().is_some(), expected, "{stage} {is_multikey}");
        }
        let mut strings = sweep(vec![]);
        strings.rule.expiry.format = DateFormat::Iso8601;
        assert!(DateSlices::open(&strings, None).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn ranges_end_with_a_date_and_the_last_with_the_threshold() {
        let numbers = |values: &[i32]| dates(values.iter().map(|value| Bson::from(*value)).collect());
        let end = "{ \"$lte\": 5 }";
        let rest = |found: &[String]| found.last().unwrap().starts_with("{ \"$gt\": ");
        // One key or none after the batch: it is the last.
        for last in [vec![], vec![7]] {
            let found = all(&sweep(vec![plan("IXSCAN", false), numbers(&[5, 6]), numbers(&last)]), 3).await;
            assert_eq!((found.len(), found[0].as_str(), rest(&found)), (2, end, true), "{found:?}");
        }
    }

    #[tokio::test]
    async fn the_documents_of_a_date_that_fill_a_batch_are_found_one_by_one_after_older_ones() {
        let same = || dates(vec![5.into(), 5.into()]);
        for (before, expected) in [(vec![Bson::from(4)], 4), (vec![], 3)] {
            let replies = vec![
                plan("IXSCAN", false),
                same(),
                dates(before.clone()),
                Batch(vec![doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]),
                End,
                dates(vec![]),
            ];
            let found = all(&sweep(replies), 2).await;
            assert_eq!(found.len(), expected, "{found:?}");
            let found = if before.is_empty() {
                found
            } else {
                assert_eq!(found[0], "{ \"$lt\": 5 }");
                found[1..].to_vec()
            };
            assert_eq!(found[..2], ["2 ids", "1 ids"]);
            assert!(found[2].starts_with("{ \"$gt\": 5"), "{found:?}");
        }
    }

    #[tokio::test]
    async fn once_the_index_holds_a_list_the_rest_is_found_one_by_one() {
        let list = || Bson::from(vec![Bson::from(5)]);
        for keys in [vec![5.into(), list()], vec![list(), 5.into()]] {
            let replies = vec![plan("IXSCAN", false), dates(keys), Batch(vec![doc! { "_id": 1 }]), End];
            assert_eq!(all(&sweep(replies), 2).await, ["1 ids"]);
        }
    }

    #[test]
    fn keys_that_the_server_may_take_for_one_count_as_one() {
        let decimal = || Bson::Decimal128("7".parse().unwrap());
        for (a, b, expected) in [
            (Bson::Int32(5), Bson::Int64(5), true),
            (Bson::Int64(5), Bson::Double(5.0), true),
            (Bson::Double(5.0), Bson::Int32(5), true),
            (Bson::Int32(5), Bson::Int32(6), false),
            (Bson::Double(0.0), Bson::Double(-0.0), true),
            (decimal(), Bson::Int32(5), true),
            (Bson::Int32(5), decimal(), true),
            (Bson::DateTime(bson::DateTime::from_millis(5)), Bson::DateTime(bson::DateTime::from_millis(5)), true),
            (Bson::DateTime(bson::DateTime::from_millis(5)), Bson::DateTime(bson::DateTime::from_millis(6)), false),
            ("a".into(), "a".into(), true),
            ("a".into(), Bson::Int32(5), false),
        ] {
            assert_eq!(is_same_key(&a, &b), expected, "{a} {b}");
        }
    }
}
