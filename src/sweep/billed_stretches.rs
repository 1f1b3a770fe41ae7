//! Stretches of the date along its index, or of the `_id` without one, for services that bill each document that a command loads: each is
//! deleted by one command, which loads every document once. How many documents it holds is not known before.

use std::sync::atomic::Ordering;

use bson::{Bson, doc};

use super::{NextBatch, RuleSweep};
use crate::server::error::Result;
use crate::server::id_pages::spent;
use crate::server::restriction::Restriction;
use crate::server::stretches::Stretches;

/// One pass over a collection.
pub(super) struct BilledStretches<'a> {
    sweep: &'a RuleSweep,
    stretches: Stretches,
    /// The units that the rule had cost when the last stretch was handed out, and the number of documents that it was meant to hold.
    handed_out: Option<(f64, u64)>,
}

impl<'a> BilledStretches<'a> {
    /// Opens a pass; `None` if the documents have to be found before, or stretches cannot be guessed. `limits_documents` says whether the run has
    /// a limit that a stretch cannot keep.
    pub(super) async fn open(sweep: &'a RuleSweep, limits_documents: bool) -> Result<Option<Self>> {
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
    pub(super) async fn take(&mut self, max: u64) -> std::result::Result<NextBatch, String> {
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
