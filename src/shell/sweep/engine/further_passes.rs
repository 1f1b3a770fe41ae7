//! Further passes over a collection on shards, for documents that moved from one to another while a delete was on its way.

use super::Engine;
use crate::core::plan::outcome::End;
use crate::shell::server::look::count;
use crate::shell::sweep::RuleSweep;

/// Maximum number of further passes.
const MAX_PASSES: usize = 3;

impl Engine<'_> {
    /// Looks for documents that the deletes missed, and deletes them in further passes. If a chunk moves while a delete goes to
    /// all shards, the router asks those again that did not succeed. The shard that got the chunk is not one of them.
    ///
    /// Along an index a look costs little, and nothing is said to be gone without one. Elsewhere a look may read the whole
    /// collection, and follows only deletes that found fewer documents than they were for.
    ///
    /// Source: mongo `src/mongo/s/write_ops/write_op.cpp`, the set of the shards that succeeded.
    pub(super) async fn sweep_what_moved(&mut self, sweep: &RuleSweep) -> Result<(), End> {
        let has_index = sweep.rule.selection.index.is_some();
        for pass in 0..=MAX_PASSES {
            self.finish_batches().await?;
            let looks = self.is_short || has_index;
            let is_nothing_left = !looks || self.wait(count::has_none(&sweep.deployment, &sweep.rule)).await?;
            let may_delete_more = {
                let mut outcome = self.outcome();
                outcome.may_have_missed = !is_nothing_left;
                // A document that cannot be archived stays, and would be found each time.
                !is_nothing_left && outcome.archived.incomparable == 0
            };
            if !may_delete_more || pass == MAX_PASSES {
                break;
            }
            self.is_short = false;
            let permit = self.wait(self.run.budget.acquire()).await?;
            let mut source = self.open(sweep, permit, true).await?;
            self.start_batches_of(&mut source).await?;
        }
        Ok(())
    }
}
