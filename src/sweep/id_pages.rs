//! Pages of `_id`s, each of which is a batch.

use bson::RawDocumentBuf;

use super::{NextBatch, RuleSweep};
use crate::server::id_pages::PagedIds;
use crate::server::restriction::Restriction;
use crate::server::shard_key;
use crate::values::raw::RawValue;

/// One pass over the expired documents of a rule, in the order of the `_id`.
pub(super) struct IdPages<'a> {
    sweep: &'a RuleSweep,
    pages: PagedIds<'a>,
}

impl<'a> IdPages<'a> {
    pub(super) fn new(sweep: &'a RuleSweep) -> Self {
        let RuleSweep { deployment, rule, .. } = sweep;
        Self { sweep, pages: PagedIds::new(deployment, &rule.selection, &rule.namespace, true) }
    }

    /// Returns the next page, of at most `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(super) async fn take(&mut self, max: u64) -> Result<NextBatch, String> {
        let page = self.pages.next(max.max(1)).await.map_err(|cause| self.sweep.explain_read(&cause))?;
        if page.is_empty() {
            return Ok(NextBatch::Exhausted);
        }
        if max == 0 {
            return Ok(NextBatch::More);
        }
        let paths = &self.sweep.rule.selection.shard_key;
        let mut groups: Vec<(RawDocumentBuf, Vec<RawValue>)> = Vec::new();
        for found in &page {
            let key = shard_key::is(&found.key, paths).map_err(|cause| format!("reading the shard key: {cause}"))?;
            match groups.iter_mut().find(|(other, _)| *other == key) {
                Some((_, ids)) => ids.push(found.id.clone()),
                None => groups.push((key, vec![found.id.clone()])),
            }
        }
        let restriction = match groups.pop() {
            Some((_, ids)) if paths.is_empty() => Restriction::Ids(ids),
            // A statement may name only one value of the key.
            last => Restriction::Sharded(groups.into_iter().chain(last).collect()),
        };
        Ok(NextBatch::Batch { restriction: Box::new(restriction), documents: page.len() as u64 })
    }
}
