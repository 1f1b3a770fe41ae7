//! Pages of `_id`s, each of which is a batch.

use bson::RawDocumentBuf;

use crate::base::values::raw::RawValue;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::delete::shard_key;
use crate::shell::server::pass::id_pages::PagedIds;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// One pass over the expired documents of a rule, in the order of the `_id`.
pub(crate) struct IdPages<'a> {
    sweep: &'a RuleSweep,
    pages: PagedIds<'a>,
}

impl<'a> IdPages<'a> {
    pub(crate) fn new(sweep: &'a RuleSweep) -> Self {
        let RuleSweep { deployment, rule, .. } = sweep;
        Self { sweep, pages: PagedIds::new(deployment, &rule.selection, &rule.namespace, true) }
    }

    /// Returns the next page, of at most `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn take(&mut self, max: u64) -> Result<NextBatch, String> {
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

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::shell::lock::lease::Leases;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::Batch;

    #[tokio::test]
    async fn a_page_is_a_batch_and_documents_of_one_shard_key_are_in_one_statement() {
        for is_sharded in [false, true] {
            let ends = || [1, 9].map(|id| Batch(vec![doc! { "_id": id, "k": 1 }]));
            let page = Batch([(1, 5), (2, 6), (3, 5)].map(|(id, key)| doc! { "_id": id, "k": key }).into());
            let replies = ends().into_iter().chain([page]).chain((0..9).map(|_| Batch(vec![])));
            let script = Script::new(replies);
            let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            if is_sharded {
                sweep.rule.selection.shard_key = vec!["k".into()];
            }
            let ids = |ids: &[i32]| ids.iter().map(|id| RawValue::of(*id).unwrap()).collect::<Vec<_>>();
            let mut pages = IdPages::new(&sweep);
            let NextBatch::Batch { restriction, documents: 3 } = pages.take(5).await.unwrap() else { panic!("a page") };
            if is_sharded {
                let Restriction::Sharded(groups) = *restriction else { panic!("{restriction:?}") };
                assert_eq!(groups.into_iter().map(|(_, ids)| ids).collect::<Vec<_>>(), [ids(&[1, 3]), ids(&[2])]);
            } else {
                assert_eq!(*restriction, Restriction::Ids(ids(&[1, 2, 3])));
            }
            assert!(matches!(pages.take(5).await.unwrap(), NextBatch::Exhausted));
        }
    }

    #[tokio::test]
    async fn a_page_that_nobody_asked_for_says_that_there_are_more() {
        let script = Script::new([1, 9, 1].map(|id| Batch(vec![doc! { "_id": id }])));
        let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        assert!(matches!(IdPages::new(&sweep).take(0).await.unwrap(), NextBatch::More));
    }
}
