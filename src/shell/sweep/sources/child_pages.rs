//! The children of parents that are gone, found page by page along the index on the field that names the parent.
//!
//! Nothing is said here of the parents: each delete of a page looks for them at its last moment
//! ([`crate::shell::sweep::batch::fresh`]).

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};

use super::pass::Pass;
use crate::base::values::raw::{self, RawList, RawRef, RawValue};
use crate::core::plan::ParentKey;
use crate::shell::server::delete::restriction::{Ids, Parents, Restriction};
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::{Cursor, Query};
use crate::shell::sweep::{NextBatch, RuleSweep};

/// Bytes of the documents that the server goes through for one reply.
const FETCH_BYTES: f64 = 32.0 * 1024.0 * 1024.0;

/// One pass over the children of some parents.
pub(crate) struct ChildPages<'a> {
    sweep: &'a RuleSweep,
    field: &'a str,
    /// The key by which the field names them.
    key: &'a ParentKey,
    /// The keys of the parents.
    parents: &'a [RawValue],
    /// The parents among them that were there when the cursor was opened, and keep their children.
    living: Vec<RawValue>,
    /// Further condition, on the `_id`, which tells the time at which a child was created.
    in_time: Document,
    pass: Pass<'a>,
}

impl<'a> ChildPages<'a> {
    /// Creates a pass. `sweep` is the sweep of the collection of children.
    pub(crate) fn new(
        sweep: &'a RuleSweep,
        field: &'a str,
        key: &'a ParentKey,
        parents: &'a [RawValue],
        in_time: Document,
    ) -> Self {
        let pass = Pass::new(sweep, &sweep.rule.selection.namespace);
        Self { sweep, field, key, parents, living: Vec::new(), in_time, pass }
    }

    /// Returns the next page, of at most `max` children.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn take(&mut self, max: u64) -> std::result::Result<NextBatch, String> {
        if self.sweep.living.lock().len() > self.living.len() {
            // The rest of the pass leaves out their children.
            self.pass.begin_again();
        }
        let (mut ids, mut parents) = (RawList::default(), Vec::<RawValue>::new());
        while (ids.len() as u64) < max {
            let Some(child) = self.next(!ids.is_empty()).await? else { break };
            let (Some(id), Some(parent)) = (RawRef::at(&child, "_id"), RawRef::at(&child, self.field)) else { continue };
            ids.push(id);
            // Along the index the children of one parent follow each other.
            if parents.last().map(RawRef::from) != Some(parent) {
                parents.push(parent.into());
            }
        }
        if ids.is_empty() {
            let next = self.next(false).await?;
            return Ok(self.pass.keep(next));
        }
        let documents = ids.len() as u64;
        let parents = Parents { field: self.field.to_owned(), key: self.key.clone(), keys: parents };
        let condition = parents.condition().map_err(|cause| format!("naming the parents of children: {cause}"))?;
        let restriction = Restriction::Ids { lists: vec![Ids { condition, ids }], parents: Some(Arc::new(parents)) };
        Ok(NextBatch::Batch { restriction: Box::new(restriction), documents })
    }

    /// Returns the next child; `None` after the last one, and if the pass has to begin again while a page is being put together
    /// (`has_page`).
    async fn next(&mut self, has_page: bool) -> std::result::Result<Option<RawDocumentBuf>, String> {
        let Self { sweep, field, parents, living, in_time, pass, .. } = self;
        let open = async || {
            *living = sweep.living.lock().clone();
            open(sweep, field, parents, living, in_time).await
        };
        pass.next(has_page, open).await
    }
}

/// Opens a cursor on the children of the parents that are not living.
async fn open(sweep: &RuleSweep, field: &str, parents: &[RawValue], living: &[RawValue], in_time: &Document) -> Result<Cursor> {
    let RuleSweep { deployment, rule, .. } = sweep;
    let selection = &rule.selection;
    let (listed, kept) = (RawValue::list(parents)?, RawValue::list(living)?);
    let mut of_parents = vec![("$in", &listed)];
    if !living.is_empty() {
        of_parents.push(("$nin", &kept));
    }
    let of_parents = raw::document([(field, &raw::document(of_parents)?.into())])?;
    let others = [RawDocumentBuf::try_from(in_time)?, RawDocumentBuf::try_from(&selection.predicate)?];
    let [in_time, predicate] = others.map(RawValue::from);
    let filter = raw::document([("$and", &RawValue::list(&[of_parents.into(), in_time, predicate])?)])?;
    let hint = match &selection.index {
        Some(index) => bson::Bson::from(index.name.as_str()),
        None => doc! { "$natural": 1 }.into(),
    };
    let find = Query::find(&selection.namespace, filter).projection(doc! { "_id": 1, field: 1 });
    find.hint(Some(hint)).batch_size(fetch(sweep)).cursor(deployment).await
}

/// Returns the number of children of one reply. The server reads each of them whole, and chunks of files are large.
fn fetch(sweep: &RuleSweep) -> u32 {
    let by_size = sweep.rule.selection.size.average_bytes.map_or(u32::MAX, |average| (FETCH_BYTES / average.max(1.0)) as u32);
    sweep.rule.sizes.batch.min(by_size).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::lock::lease::Leases;
    use crate::shell::server::wire::codes;
    use crate::shell::server::wire::error::ServerError;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{Batch, End, Error};

    #[tokio::test]
    async fn once_a_parent_is_known_to_be_there_the_rest_of_the_pass_leaves_out_its_children() {
        let child = |id: &str, parent: i32| doc! { "_id": id, "p": parent };
        let found = Batch(vec![child("a", 1), child("b", 1), child("c", 2), child("d", 2)]);
        let script = Script::new([found, Batch(vec![child("e", 3)]), End, End]);
        let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        let [one, two, three] = [1, 2, 3].map(|id| RawValue::of(id).unwrap());
        let parents = [one.clone(), two.clone(), three.clone()];
        let key = ParentKey::id();
        let mut pages = ChildPages::new(&sweep, "p", &key, &parents, doc! { "_id": { "$gt": 0 } });
        let mut batches = Vec::new();
        while let NextBatch::Batch { restriction, documents } = pages.take(3).await.unwrap() {
            let Restriction::Ids { lists, parents: Some(parents) } = *restriction else { panic!("{restriction:?}") };
            // The delete names the parents of the page as well.
            assert_eq!(lists[0].condition, parents.condition().unwrap());
            batches.push((parents.keys.clone(), lists[0].ids.len(), documents));
            // As a delete of the page does that has looked for its parents.
            *sweep.living.lock() = vec![two.clone()];
        }
        assert_eq!(batches, [(vec![one, two], 3, 3), (vec![three], 1, 1)]);
        let sent = script.sent();
        assert_eq!(sent.len(), 2);
        let filter = |number: usize| sent[number].get_document("filter").unwrap().get_array("$and").unwrap()[0].clone();
        assert_eq!(filter(0), doc! { "p": { "$in": [1, 2, 3] } }.into());
        assert_eq!(filter(1), doc! { "p": { "$in": [1, 2, 3], "$nin": [2] } }.into());
    }

    #[tokio::test]
    async fn a_pass_without_children_left_has_ended_and_one_that_was_asked_for_none_keeps_what_it_found() {
        let script = Script::new([Batch(vec![doc! { "_id": 1, "p": 1 }, doc! { "_id": 2, "p": 1 }]), End]);
        let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        let (parents, key) = ([RawValue::of(1).unwrap()], ParentKey::id());
        let mut pages = ChildPages::new(&sweep, "p", &key, &parents, Document::new());
        let mut taken = Vec::new();
        for max in [0, 1, 0, 5, 0, 5] {
            taken.push(match pages.take(max).await.unwrap() {
                NextBatch::Batch { documents, .. } => documents.to_string(),
                NextBatch::More => "more".into(),
                NextBatch::Exhausted => "exhausted".into(),
                NextBatch::AfterOthers => "after others".into(),
            });
        }
        assert_eq!(taken, ["more", "1", "more", "1", "exhausted", "exhausted"]);
        assert_eq!(script.sent().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_goes_before_a_pass_begins_again() {
        let lost = || Error(ServerError::reported(codes::CURSOR_NOT_FOUND, "cursor id not found", ""));
        let found = |ids: &[i32]| Batch(ids.iter().map(|id| doc! { "_id": id, "p": 1 }).collect());
        let script = Script::new([lost(), found(&[1, 2]), lost(), found(&[3]), End]);
        let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        sweep.is_of_children = true;
        let (parents, key) = ([RawValue::of(1).unwrap()], ParentKey::id());
        let mut pages = ChildPages::new(&sweep, "p", &key, &parents, Document::new());
        for expected in [2, 1] {
            let NextBatch::Batch { documents, .. } = pages.take(5).await.unwrap() else { panic!("children are left") };
            assert_eq!(documents, expected);
        }
        assert!(matches!(pages.take(5).await.unwrap(), NextBatch::Exhausted));
        assert_eq!(script.sent().len(), 3);
    }

    #[test]
    fn a_reply_has_as_many_children_as_a_batch_but_no_more_than_their_size_allows() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let mut sweep = sweep::sweep(&Script::new([]), 100, &Leases::default(), None);
        for (average, expected) in [(None, 2000), (Some(0.0), 2000), (Some(100.0), 2000), (Some(1_048_576.0), 32), (Some(1e9), 1)]
        {
            sweep.rule.selection.size.average_bytes = average;
            assert_eq!(fetch(&sweep), expected, "{average:?}");
        }
    }
}
