//! Pages of `_id`s, each of which is a batch.

use crate::base::values::raw::RawList;
use crate::shell::server::delete::restriction::{Ids, Restriction};
use crate::shell::server::delete::shard_key::{self, KeyValues};
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
        // A statement may name only one value of the key.
        let mut of_keys: Vec<(&KeyValues, RawList)> = Vec::new();
        for found in &page {
            match of_keys.iter_mut().find(|(key, _)| **key == found.key) {
                Some((_, ids)) => ids.push(found.id()),
                None => of_keys.push((&found.key, RawList::from_iter([found.id()]))),
            }
        }
        let list = |(key, ids)| Ok(Ids { condition: shard_key::is(key, paths)?, ids });
        let lists = of_keys.into_iter().map(list).collect::<Result<_, bson::error::Error>>();
        let lists = lists.map_err(|cause| format!("reading the shard key: {cause}"))?;
        let restriction = Box::new(Restriction::Ids { lists, parents: None });
        Ok(NextBatch::Batch { restriction, documents: page.len() as u64 })
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::base::values::raw::RawValue;
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
            let ids =
                |ids: &[i32]| ids.iter().map(|id| RawValue::of(*id).unwrap()).collect::<Vec<_>>().iter().collect::<RawList>();
            let mut pages = IdPages::new(&sweep);
            let NextBatch::Batch { restriction, documents: 3 } = pages.take(5).await.unwrap() else { panic!("a page") };
            let Restriction::Ids { lists, parents: None } = *restriction else { panic!("{restriction:?}") };
            assert!(lists.iter().all(|list| list.condition.is_empty() != is_sharded), "{lists:?}");
            let expected = if is_sharded { vec![ids(&[1, 3]), ids(&[2])] } else { vec![ids(&[1, 2, 3])] };
            assert_eq!(lists.into_iter().map(|list| list.ids).collect::<Vec<_>>(), expected);
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
