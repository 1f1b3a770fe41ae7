//! Deletes children that have been without a parent before, once the parents are done.

use bson::doc;

use super::ParentSweep;
use crate::base::values::raw::RawValue;
use crate::core::plan::OrphanLimits;
use crate::core::plan::orphans::{self, OldOrphans};
use crate::core::plan::outcome::End;
use crate::shell::server::look::children::{self, FoundOrphans};
use crate::shell::server::look::parents;
use crate::shell::server::wire::error::ServerError;

/// Number of parents that are not there, and whose orphans are deleted at a time.
const ABSENT_AT_ONCE: usize = 1000;

impl ParentSweep<'_> {
    /// Deletes the orphans, if the rule asks for it. By the times in their ObjectIds no orphan of the same parent is younger
    /// than [`parents::ORPHAN_SECONDS`], so that none belongs to an upload in flight. They go within what the parents have left
    /// of the limits.
    ///
    /// Errors: the end of the sweep, if it comes earlier, or the reason why no child may be taken for an orphan any more.
    pub(super) async fn delete_orphans(&mut self) -> Result<(), End> {
        let Some(limits) = &self.family.orphans else { return Ok(()) };
        // The allowance of the parents is theirs: it may be what was approved of them.
        let (most, left) = (self.engine.sweep.rule.limits.max_deletes, self.engine.allowance);
        let parents = most.zip(left).map_or(0, |(most, left)| most.saturating_sub(left));
        self.engine.allowance = limits.after(parents);
        for index in 0..self.children.len() {
            while self.delete_orphans_of(index, limits).await? {}
        }
        Ok(())
    }

    /// Deletes the orphans of one collection that a pass over it finds. Returns whether there are more, and a further pass may
    /// get on.
    ///
    /// Errors: as for [`Self::delete_orphans`].
    async fn delete_orphans_of(&mut self, index: usize, limits: &OrphanLimits) -> Result<bool, End> {
        let (sweep, child) = (self.engine.sweep.clone(), self.children[index].child);
        let before = parents::oldest_upload(sweep.rule.expiry.as_of);
        let search = children::orphans(&sweep.deployment, &sweep.rule, child, Some(before));
        let found = self.engine.wait(search).await?.map_err(|cause| search_failed(&cause))?;
        self.may_be_orphans(index, limits, found.old).await?;
        self.delete_found_orphans(index, &found).await
    }

    /// Deletes the orphans that still are old ones. Returns what [`Self::delete_orphans_of`] does.
    pub(super) async fn delete_found_orphans(&mut self, index: usize, found: &FoundOrphans) -> Result<bool, End> {
        let (sweep, child) = (self.engine.sweep.clone(), self.children[index].child);
        let before = parents::oldest_upload(sweep.rule.expiry.as_of);
        let mut deleted = 0;
        for parents in found.parents.chunks(ABSENT_AT_ONCE) {
            // The parents may be lost while the sweep waits.
            self.may_have_orphans(found.old).await?;
            let old = children::all_before(&sweep.deployment, child, parents, before);
            let old = self.engine.wait(old).await?.map_err(|cause| search_failed(&cause))?;
            let old: Vec<RawValue> = old.into_iter().map(|(parent, _)| parent).collect();
            let present = self.look(&child.parent_key, &old).await?;
            let in_time = doc! { "_id": { "$lt": before } };
            let Self { engine: of_parents, children, .. } = self;
            let of_child = &mut children[index];
            let begun = of_child.engine.outcome().deleted;
            of_child.engine.sweep.before_orphans.get_or_init(|| begun);
            // Unlike other children they count towards the limits, the limits of the run included.
            (of_child.engine.run, of_child.engine.allowance) = (of_parents.run, of_parents.allowance);
            let ended = of_child.delete_found(&old, &present, in_time).await;
            of_parents.allowance = of_child.engine.allowance;
            deleted += of_child.engine.outcome().deleted - begun;
            ended?;
        }
        Ok(found.has_more && deleted > 0)
    }

    /// Checks, before the first of them goes, that the orphans which were found are still no larger a share of their collection
    /// than the rule allows.
    ///
    /// Errors: the end of the sweep, with the reason.
    async fn may_be_orphans(&mut self, index: usize, limits: &OrphanLimits, found: u64) -> Result<(), End> {
        let (sweep, child) = (self.engine.sweep.clone(), self.children[index].child);
        let documents = self.engine.wait(children::documents(&sweep.deployment, child, limits, found)).await?;
        let documents = documents.map_err(|cause| End::Failed(format!("counting children: {cause}; {AFTER_RULE}")))?;
        let namespace = child.rule.selection.namespace.clone();
        match limits.refusal(&[OldOrphans { namespace, count: found, documents }]) {
            Some(refusal) => Err(End::Failed(format!("{} ({}); {AFTER_RULE}", refusal.detail, refusal.guard))),
            None => Ok(()),
        }
    }

    /// Checks that a parent is there, without which every child would be taken for an orphan.
    ///
    /// Errors: the end of the sweep, with the reason.
    async fn may_have_orphans(&mut self, found: u64) -> Result<(), End> {
        let sweep = self.engine.sweep.clone();
        let namespace = &sweep.rule.namespace;
        match self.engine.wait(children::has_parents(&sweep.deployment, namespace)).await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Failed(format!("{}; {AFTER_RULE}", orphans::no_parent(namespace, found).detail))),
            Err(cause) => Err(End::Failed(format!("looking for a parent: {}; {AFTER_RULE}", sweep.explain_read(&cause)))),
        }
    }
}

fn search_failed(cause: &ServerError) -> End {
    End::Failed(format!("looking for children without a parent: {cause}; {AFTER_RULE}"))
}

/// The state after parents and their children were deleted, in words.
const AFTER_RULE: &str = "the rule was swept before, but for its orphans";
