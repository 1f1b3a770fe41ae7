//! Stretches of the dates of a rule, for servers that sort in memory and delete along an index. The ends come from a sample of
//! the dates that can have expired.
//!
//! In a small collection a delete of a stretch costs less than deletes of its documents by `_id`, even where it examines the
//! whole collection.
//!
//! The sample is read once. What the stretches leave, such as more documents of one date than a batch may take, is found by `_id`
//! afterwards.

use bson::{Bson, DateTime, doc};

use super::candidates::Candidates;
use crate::base::values;
use crate::core::expiry::stretch::Stretch;
use crate::core::plan::SweepRule;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::overload::Overload;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// Maximum number of sampled dates, and so of documents up to which all dates are read.
const MAX_DATES: u64 = 50_000;

/// Sampled dates for each batch: it then has some hundredths more or fewer documents than it is meant to have.
const DATES_PER_BATCH: u64 = 500;

/// Documents that a delete examines in the time that the delete of one document by its `_id` takes. Measured with version 0.108
/// of the engine: 0.4 and 35 microseconds; a quarter of that, because not all batches are as large as they may be.
const EXAMINED_PER_ID: u64 = 20;

/// Number of dates per reply.
const DATES_PER_REPLY: u32 = 25_000;

/// One pass over the expired documents of a rule.
pub(crate) struct DateStretches<'a> {
    sweep: &'a RuleSweep,
    ends: Ends,
    /// The remaining documents, once no stretch is left.
    rest: Option<Box<Candidates<'a>>>,
}

impl<'a> DateStretches<'a> {
    /// Opens a pass; `None` if the rule has no stretches, the deletes would examine too much, or the service cannot read the
    /// dates in its time.
    ///
    /// Errors: the dates cannot be read.
    pub(crate) async fn open(sweep: &'a RuleSweep) -> Result<Option<Self>> {
        let SweepRule { selection, expiry, sizes, .. } = &sweep.rule;
        let (documents, batch) = (selection.document_count.max(1), u64::from(sizes.batch.max(1)));
        let Some(examined) = examined(sweep) else { return Ok(None) };
        let field = &expiry.field;
        let dates = documents.div_ceil(batch).saturating_mul(DATES_PER_BATCH).min(MAX_DATES);
        let rate = (dates as f64 / documents as f64).min(1.0);
        // Along the index a delete examines all dates of its stretch, whichever of the documents the rule selects. Without one it
        // examines the collection, so that as few deletes as possible are to have all that the filter selects.
        let mut selected = doc! { field: { "$lte": expiry.latest_key() } };
        if let Some(filter) = expiry.filter.as_ref().filter(|_| examined == ExaminedDocuments::All) {
            selected = doc! { "$and": [selected, filter.clone()] };
        }
        let mut stages = vec![doc! { "$match": selected }];
        if rate < 1.0 {
            stages.push(doc! { "$match": { "$sampleRate": rate } });
        }
        stages.push(doc! { "$project": { "_id": 0, field: 1 } });
        let query = Query::aggregate(&selection.namespace, stages).batch_size(DATES_PER_REPLY);
        let found = match query.retried_patiently(&sweep.rule.namespace).all(&sweep.deployment).await {
            // Found by `_id`, the documents come in replies that each take less time.
            Err(cause) if cause.overload() == Some(Overload::TimedOut) => return Ok(None),
            found => found?,
        };
        let dates = found.iter().filter_map(|document| values::at(document, field).and_then(Bson::as_datetime).copied());
        Ok(Some(Self { sweep, ends: Ends::new(dates.collect(), rate), rest: None }))
    }

    /// Returns the next batch, of about `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn take(&mut self, max: u64) -> std::result::Result<NextBatch, String> {
        if let Some(rest) = &mut self.rest {
            return rest.take(max).await;
        }
        while let Some((from, to, documents)) = self.ends.next(max) {
            if let Some(stretch) = self.sweep.rule.expiry.stretch(from, to) {
                return Ok(batch(stretch, documents));
            }
        }
        self.rest = Some(Box::new(Candidates::new(self.sweep, None, None)));
        Ok(NextBatch::AfterOthers)
    }
}

/// The documents that each delete of a stretch examines.
#[derive(Clone, Copy, PartialEq)]
enum ExaminedDocuments {
    /// The documents of the stretch, along the index.
    Stretch,
    /// The whole collection.
    All,
}

/// Returns the documents that each delete of a stretch examines. `None` if that is too much, or the rule has no stretches, all of
/// whose documents are asked for the filter.
///
/// With an archive a delete may not examine the whole collection: every statement for a few archived documents would do so.
fn examined(sweep: &RuleSweep) -> Option<ExaminedDocuments> {
    let SweepRule { selection, expiry, sizes, .. } = &sweep.rule;
    if selection.filter_is_indexed || expiry.stretch(None, DateTime::MAX).is_none() {
        return None;
    }
    if selection.index.as_ref().is_some_and(|index| index.bounded) {
        return Some(ExaminedDocuments::Stretch);
    }
    let is_small = selection.document_count <= u64::from(sizes.batch).saturating_mul(EXAMINED_PER_ID);
    (is_small && sweep.archive.is_none()).then_some(ExaminedDocuments::All)
}

/// Returns the number of documents of the first batch. Where each batch examines the whole collection, small ones cost as much as
/// larger ones.
pub(crate) fn first_batch(sweep: &RuleSweep) -> u32 {
    let capabilities = &sweep.deployment.facts.capabilities;
    let SweepRule { selection, sizes, .. } = &sweep.rule;
    if !capabilities.deletes_along_range || examined(sweep) != Some(ExaminedDocuments::All) {
        return capabilities.first_batch;
    }
    let documents = u32::try_from(selection.document_count / EXAMINED_PER_ID / 2).unwrap_or(u32::MAX);
    documents.min(sizes.batch / 4).max(capabilities.first_batch)
}

fn batch(stretch: Stretch, documents: u64) -> NextBatch {
    NextBatch::Batch { restriction: Box::new(Restriction::Stretch(stretch)), documents }
}

/// The ends of stretches: sampled dates, ascending.
struct Ends {
    dates: Vec<DateTime>,
    /// Documents for which one sampled date stands.
    weight: f64,
    /// Number of dates that are done.
    done: usize,
    /// The beginning of the next stretch; `None` for no bound.
    begin: Option<DateTime>,
}

impl Ends {
    /// Takes dates in any order, sampled at a rate.
    fn new(mut dates: Vec<DateTime>, rate: f64) -> Self {
        dates.sort_unstable();
        Self { dates, weight: 1.0 / rate, done: 0, begin: None }
    }

    /// Returns the first and the last date of the next stretch, and about how many documents it has: `max` at most. Leaves out
    /// dates with more documents than that.
    fn next(&mut self, max: u64) -> Option<(Option<DateTime>, DateTime, u64)> {
        // A cast from float truncates, and saturates.
        let most = (max as f64 / self.weight) as usize;
        loop {
            let left = &self.dates[self.done..];
            let first = *left.first()?;
            let mut taken = most.min(left.len());
            if let Some(next) = left.get(taken) {
                // All documents of one date are in one stretch.
                taken = left[..taken].partition_point(|date| date < next);
            }
            if taken > 0 {
                let to = left[taken - 1];
                let begin = self.begin.replace(after(to));
                self.done += taken;
                return Some((begin, to, ((taken as f64 * self.weight).round() as u64).clamp(1, max)));
            }
            self.done += left.partition_point(|date| *date == first);
            self.begin = Some(after(first));
        }
    }
}

fn after(date: DateTime) -> DateTime {
    DateTime::from_millis(date.timestamp_millis().saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the stretches of batches of these sizes, with -1 for no bound.
    fn stretches(dates: &[i64], rate: f64, sizes: &[u64]) -> Vec<(i64, i64, u64)> {
        let mut ends = Ends::new(dates.iter().copied().map(DateTime::from_millis).collect(), rate);
        let millis = |date: DateTime| date.timestamp_millis();
        let stretches = sizes.iter().map_while(|max| ends.next(*max));
        stretches.map(|(from, to, documents)| (from.map_or(-1, millis), millis(to), documents)).collect()
    }

    #[test]
    fn stretches_follow_each_other_and_have_no_more_documents_than_a_batch() {
        let dates = [9, 1, 5, 7, 3];
        assert_eq!(stretches(&dates, 1.0, &[2, 2, 2, 2]), [(-1, 3, 2), (4, 7, 2), (8, 9, 1)]);
        assert_eq!(stretches(&dates, 1.0, &[1, 100]), [(-1, 1, 1), (2, 9, 4)]);
        assert_eq!(stretches(&dates, 0.1, &[25, 49]), [(-1, 3, 20), (4, 9, 30)]);
        assert_eq!(stretches(&[], 1.0, &[1]), []);
    }

    #[test]
    fn a_date_is_never_divided_and_one_with_too_many_documents_is_left() {
        let dates = [1, 2, 5, 5, 5, 8, 9];
        assert_eq!(stretches(&dates, 1.0, &[4, 4, 4]), [(-1, 2, 2), (3, 8, 4), (9, 9, 1)]);
        assert_eq!(stretches(&dates, 1.0, &[2, 2, 2]), [(-1, 2, 2), (6, 9, 2)]);
        assert_eq!(stretches(&dates, 0.5, &[1, 1]), []);
    }

    #[test]
    fn the_first_batch_is_worth_the_examination_of_the_collection() {
        use crate::core::plan::index::IndexChoice;
        use crate::shell::lock::lease::Leases;
        use crate::testing::made_up::sweep;
        use crate::testing::scripted::Script;

        let mut sweep = sweep::sweep(&Script::new([]), 100, &Leases::default(), None);
        sweep.rule.sizes.batch = 25_000;
        let index = Some(IndexChoice { name: "at_1".into(), oldest_first: true, bounded: true });
        for (along_range, index, documents, expected) in [
            (true, None, 1000, 500),
            (true, None, 200_000, 5000),
            (true, None, 500_000, 6250),
            (true, None, 500_001, 500),
            (true, index, 200_000, 500),
            (false, None, 200_000, 500),
        ] {
            sweep.deployment.facts.capabilities.deletes_along_range = along_range;
            (sweep.rule.selection.index, sweep.rule.selection.document_count) = (index, documents);
            assert_eq!(first_batch(&sweep), expected, "{along_range} {documents}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_opens_along_an_index_or_in_a_small_collection_and_reads_at_most_a_sample() {
        use crate::core::plan::index::IndexChoice;
        use crate::shell::lock::lease::Leases;
        use crate::shell::server::wire::error::ServerError;
        use crate::testing::made_up::sweep;
        use crate::testing::scripted::Script;
        use crate::testing::scripted::ScriptedReply::{Batch, End, Error};

        let dates = || Batch((0..3).map(|at| doc! { "at": DateTime::from_millis(at) }).collect());
        let bounded = |bounded| Some(IndexChoice { name: "at_1".into(), oldest_first: true, bounded });
        for (index, filter_is_indexed, documents, sample) in [
            (bounded(true), None, MAX_DATES, Some(None)),
            (bounded(true), None, MAX_DATES + 1, Some(Some(MAX_DATES as f64 / (MAX_DATES + 1) as f64))),
            (bounded(true), None, 4 * MAX_DATES, Some(Some(0.25))),
            (bounded(true), None, 0, Some(None)),
            (bounded(false), None, 100 * EXAMINED_PER_ID, Some(None)),
            (bounded(false), None, 100 * EXAMINED_PER_ID + 1, None),
            (None, None, 100 * EXAMINED_PER_ID, Some(None)),
            (None, None, 100 * EXAMINED_PER_ID + 1, None),
            (bounded(true), Some(false), MAX_DATES, Some(None)),
            (bounded(true), Some(true), 1, None),
            (None, Some(false), 100 * EXAMINED_PER_ID, Some(None)),
            (None, Some(true), 1, None),
        ] {
            let script = Script::new([dates(), End]);
            let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            (sweep.rule.selection.index, sweep.rule.selection.document_count) = (index.clone(), documents);
            sweep.rule.expiry.filter = filter_is_indexed.map(|_| doc! { "kind": "x" });
            sweep.rule.selection.filter_is_indexed = filter_is_indexed == Some(true);
            sweep.rule.sizes.batch = 100;
            let opened = DateStretches::open(&sweep).await.unwrap();
            assert_eq!(opened.is_some(), sample.is_some(), "{documents}");
            let Some(mut opened) = opened else { continue };
            let names_filter = filter_is_indexed.is_some() && index.is_none();
            assert_eq!(script.sent()[0].to_string().contains("kind"), names_filter, "the dates of all documents along an index");
            let stages = script.sent()[0].get_array("pipeline").unwrap().clone();
            let rate =
                stages.iter().find_map(|stage| stage.as_document()?.get_document("$match").ok()?.get_f64("$sampleRate").ok());
            assert_eq!(Some(rate), sample, "{documents}");
            if rate.is_none() {
                let NextBatch::Batch { documents, .. } = opened.take(2).await.unwrap() else { panic!("a stretch") };
                assert_eq!(documents, 2);
            }
        }
        // Long batches need fewer dates.
        let script = Script::new([dates(), End]);
        let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        (sweep.rule.sizes.batch, sweep.rule.selection.document_count) = (25_000, 200_000);
        DateStretches::open(&sweep).await.unwrap().unwrap();
        assert!(script.sent()[0].to_string().contains("\"$sampleRate\": 0.02"), "{}", script.sent()[0]);
        // What takes the service too long is found by `_id`; other errors end the pass.
        for (code, message, is_error) in [(50, "Request timed out.", false), (13, "not authorized", true)] {
            let script = Script::new((0..50).map(|_| Error(ServerError::reported(code, message, ""))));
            let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            sweep.rule.selection.index = bounded(true);
            let opened = DateStretches::open(&sweep).await;
            assert_eq!(opened.is_err(), is_error, "{message}");
            assert!(opened.is_ok_and(|opened| opened.is_none()) != is_error);
        }
    }
}
