//! Further passes over a collection on shards, for documents that moved from one to another while a delete was on its way.

use super::Engine;
use crate::core::plan::StopReason;
use crate::core::plan::outcome::End;
use crate::shell::server::look::count;
use crate::shell::sweep::RuleSweep;
use crate::shell::sweep::batch::fresh::fresh;

/// Maximum number of further passes.
const MAX_PASSES: usize = 3;

impl Engine<'_> {
    /// Looks for documents that the deletes missed, and deletes them in further passes. If a chunk moves while a delete goes to
    /// all shards, the router asks those again that did not succeed. The shard that got the chunk is not one of them.
    ///
    /// Along an index nothing is said to be gone without a look. Elsewhere a look may read the whole collection, and follows
    /// only deletes that found fewer documents than they were for. A pass that finds nothing to delete is itself a look.
    ///
    /// Source: mongo `src/mongo/s/write_ops/write_op.cpp`, the set of the shards that succeeded.
    ///
    /// Errors: the end of the sweep, which is partial if documents may be left.
    pub(super) async fn sweep_what_moved(&mut self, sweep: &RuleSweep) -> Result<(), End> {
        let has_index = sweep.rule.selection.index.is_some();
        // A look that took too long once would do so again.
        let mut may_look = true;
        // Whether a look saw a document that the pass after it did not find, such as one whose hold was lifted meanwhile.
        let mut has_overlooked = false;
        for pass in 0..=MAX_PASSES {
            self.finish_batches().await?;
            // Documents that cannot be archived stay, and would be seen each time.
            let keeps_some = self.outcome().archived.incomparable > 0;
            let needs_look = self.is_short || has_overlooked || has_index && !keeps_some;
            if !needs_look {
                return Ok(());
            }
            if may_look && !keeps_some {
                match self.has_some(sweep).await? {
                    Some(true) => {}
                    Some(false) => {
                        self.outcome().seen_none = true;
                        return Ok(());
                    }
                    None => may_look = false,
                }
            }
            if keeps_some || pass == MAX_PASSES {
                break;
            }
            let before = self.outcome().batches;
            self.is_short = false;
            let permit = self.wait(self.run.budget.acquire()).await?;
            let mut source = self.open(sweep, permit, true).await?;
            self.start_batches_of(&mut source).await?;
            self.finish_batches().await?;
            let has_found_none = self.outcome().batches == before;
            if has_found_none && !may_look && !has_overlooked {
                self.outcome().seen_none = true;
                return Ok(());
            }
            has_overlooked = has_found_none;
        }
        Err(End::Partial(StopReason::Missed))
    }

    /// Whether the rule has an expired document that no hold keeps by now; `None` if that is unknown.
    async fn has_some(&mut self, sweep: &RuleSweep) -> Result<Option<bool>, End> {
        let fresh = self.wait(fresh(sweep, None)).await?.map_err(End::Failed)?;
        let selection = fresh.as_ref().map_or(&sweep.rule.selection, |fresh| &fresh.selection);
        self.wait(count::has_some(&sweep.deployment, selection)).await
    }
}
