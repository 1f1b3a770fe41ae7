//! Stretches of the date along its index, or of the `_id` without an index, for services that bill each document that a command
//! loads. Each stretch is deleted by one command, which loads every document once. How many documents a stretch holds is not
//! known before.

use std::sync::atomic::Ordering;

use bson::{Bson, doc};

use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::pass::id_pages::spent;
use crate::shell::server::pass::stretches::Stretches;
use crate::shell::server::wire::error::Result;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// One pass over a collection.
pub(crate) struct BilledStretches<'a> {
    sweep: &'a RuleSweep,
    stretches: Stretches,
    /// The units that the rule had cost when the last stretch was handed out, and the number of documents that it was meant to
    /// hold.
    handed_out: Option<(f64, u64)>,
}

impl<'a> BilledStretches<'a> {
    /// Opens a pass; `None` if the documents have to be found before, or stretches cannot be guessed. `limits_documents` says
    /// whether the run has a limit that a stretch cannot keep.
    pub(crate) async fn open(sweep: &'a RuleSweep, limits_documents: bool) -> Result<Option<Self>> {
        let RuleSweep { deployment, rule, .. } = sweep;
        if limits_documents || rule.finds_first() {
            return Ok(None);
        }
        let stretches = Stretches::of(deployment, &rule.selection, &rule.expiry).await?;
        Ok(stretches.map(|stretches| Self { sweep, stretches, handed_out: None }))
    }

    /// Returns the next stretch, of about `max` documents at most.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn take(&mut self, max: u64) -> std::result::Result<NextBatch, String> {
        let RuleSweep { deployment, rule, last_deleted, .. } = self.sweep;
        if let Some((before, most)) = self.handed_out.take() {
            let units = spent(deployment) - before;
            let of_documents = last_deleted.load(Ordering::Relaxed) as f64 / most.max(1) as f64;
            let share = (units / self.stretches.target()).max(of_documents);
            let next = self.stretches.next(deployment, &rule.selection, units, share);
            next.await.map_err(|cause| self.sweep.explain_read(&cause))?;
        }
        if self.stretches.is_exhausted() {
            return Ok(NextBatch::Exhausted);
        }
        if max == 0 {
            return Ok(NextBatch::More);
        }
        self.handed_out = Some((spent(deployment), max));
        let restriction =
            Restriction::Range { bounds: self.stretches.condition(), hint: Bson::Document(doc! { &self.stretches.key: 1 }) };
        Ok(NextBatch::Batch { restriction: Box::new(restriction), documents: max })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::plan::findings::GoesBy;
    use crate::shell::lock::lease::Leases;
    use crate::shell::server::delete::grant::{Consent, DeleteGrant};
    use crate::shell::server::watch::Watches;
    use crate::shell::sweep::batch::send::send;
    use crate::testing::made_up::planned;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::ScriptedReply::{self, Batch, Reply};
    use crate::testing::scripted::{Script, cost};

    fn ends() -> impl Iterator<Item = ScriptedReply> {
        [0, 1_000_000].into_iter().map(|id| Batch(vec![doc! { "_id": id }]))
    }

    #[tokio::test]
    async fn stretches_are_opened_unless_documents_have_to_be_found_before() {
        for (limits_documents, max_deletes, expected) in
            [(false, None, true), (true, None, false), (false, Some(5), false), (true, Some(5), false)]
        {
            let script = Script::new(ends());
            let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            sweep.rule.limits.max_deletes = max_deletes;
            let opened = BilledStretches::open(&sweep, limits_documents).await.unwrap();
            assert_eq!((opened.is_some(), script.sent().is_empty()), (expected, !expected), "{limits_documents} {max_deletes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stretch_is_as_long_as_the_last_one_allows_by_its_units_and_by_its_documents() {
        let script = Script::new([0, 1_000_000].into_iter().flat_map(|id| [cost(0.0), Batch(vec![doc! { "_id": id }])]));
        let mut rule = planned("", 4).decision.countable().unwrap().clone();
        let selection = &mut rule.selection;
        (selection.throughput, selection.size.average_bytes, selection.document_count) = (Some(100), Some(1000.0), 1_000_000);
        let grant = Arc::new(DeleteGrant::new(false, Consent::NotAsked).unwrap());
        let (findings, watches, leases) = (GoesBy::default(), Watches::none(), Leases::default());
        let sweep = RuleSweep::new(&script.billed(), &rule, &findings, &grant, &watches, &leases, None);
        let mut stretches = BilledStretches::open(&sweep, false).await.unwrap().unwrap();
        let mut ends = Vec::new();
        // A command may cost 40 units, a part of what the collection has in a second.
        for (units, deleted) in [(20.0, 10), (80.0, 10), (20.0, 400), (20.0, 10)] {
            let NextBatch::Batch { restriction, .. } = stretches.take(100).await.unwrap() else { panic!("a stretch") };
            let Restriction::Range { bounds, .. } = &*restriction else { panic!("{restriction:?}") };
            ends.push(bounds.get_document("_id").unwrap().get("$lte").and_then(crate::base::values::float).unwrap());
            script.then([Reply(doc! { "n": deleted, "ok": 1.0 }), cost(units)]);
            assert_eq!(send(&sweep, restriction, None).await.result.deleted, deleted as u64);
        }
        let lengths: Vec<f64> = [0.0].iter().chain(&ends).zip(&ends).map(|(begin, end)| end - begin).collect();
        assert_eq!(lengths, [40.0, 80.0, 40.0, 10.0]);
    }

    #[tokio::test]
    async fn a_pass_goes_on_behind_an_empty_stretch_until_no_key_is_left() {
        let script = Script::new(ends().chain([Batch(vec![doc! { "_id": 900_000 }]), Batch(vec![])]));
        let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        sweep.rule.selection.document_count = 1_000_000;
        let mut stretches = BilledStretches::open(&sweep, false).await.unwrap().unwrap();
        assert!(matches!(stretches.take(0).await.unwrap(), NextBatch::More));
        let mut ends = Vec::new();
        for _ in 0..2 {
            let NextBatch::Batch { restriction, documents: 100 } = stretches.take(100).await.unwrap() else {
                panic!("a stretch")
            };
            let Restriction::Range { bounds, hint } = *restriction else { panic!("{restriction:?}") };
            assert_eq!(hint, Bson::Document(doc! { "_id": 1 }));
            ends.push(bounds.get_document("_id").unwrap().get("$lte").and_then(crate::base::values::float).unwrap());
        }
        assert!(ends[0] < 900_000.0 && ends[1] > 900_000.0, "{ends:?}");
        assert!(matches!(stretches.take(100).await.unwrap(), NextBatch::Exhausted));
    }
}
