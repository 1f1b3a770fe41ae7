//! The children of a rule: documents of other collections that hold the key of a document of the rule, its `_id` or another field, and go once it is gone.
//!
//! ```text
//! under the lease on the namespace of the parents, in the collection of the journal:    commands::leases
//! finish what the journal holds of earlier runs
//! for each batch of parents, whose `_id`s are known beforehand:
//!     look which of them are there, after a look at the clock
//!     enter their keys in the journal, confirmed by a majority                 server::journal
//!     delete the parents, by `_id`, key and the whole predicate, confirmed by a majority    engine
//!     look which of them are there
//!     for each collection of children, until no page is left:                  child_pages
//!         find a page of children along the index on the field
//!         look again whether their parents are there, right before each command    fresh
//!         delete the page by `_id` and by the field                            an engine of its own
//!     remove the entry
//! ```
//!
//! - A child is deleted only by a command that names its `_id` and the key of its parent. A look ([`parents::living`]) at most two seconds before did not find
//!   that parent: the server refuses a command that comes later. A parent that comes back keeps every child that is there two seconds later.
//! - A child whose `_id` is an ObjectId created more than [`parents::TOLERANCE_SECONDS`] after the entry stays: an upload that uses an `_id` again writes its chunks
//!   before its file. Within that time such an upload may lose chunks. Drivers give every file a new ObjectId.
//! - Wherever a run ends, an entry names each parent that is gone and may have children, and where these are: it was there before the parent went, and goes
//!   after them. The next run of the rule begins with the journal.
//! - The lease makes sure that no delete of an earlier run can arrive any more: of its entries, parents that are there were not deleted, and are forgotten. Children
//!   that this rule does not have, as after `--only` or with an older policy, stay in the entry for a run that has them.
//! - An entry of this run stays if a delete of its batch had no whole answer, because that may still take effect.
//! - Parents and children take turns, so that both keep to the rate, and every batch of children waits as those of the rule do. The children have a pace of
//!   their own, because their size is another one. The limits on the count are those of the parents.
//! - Orphans come last, within what the parents have left of the limits on the count. None goes unless the collection of the parents has a document, and what
//!   was found of them is compared with the rule's share again: parents that others delete or lose meanwhile would make all their children orphans.
//! - A parent whose key is null or missing has no children: null in a query is also a field that is missing. One with a list on the path of its key stays.
//! - Several parents may have one key that is not the `_id`: the children go with the last of them. A parent whose key changes before it is deleted stays,
//!   and so do the children with the old one, which may be about to follow: an entry has the `_id`s as well, and a key is done once one of its parents is gone.
//!
//! Without children none of this runs.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use tracing::{info, warn};

use super::super::budget::Permit;
use super::super::sources::Source;
use super::super::sources::child_pages::ChildPages;
use super::super::{RuleSweep, RunContext};
use super::Engine;
use crate::base::text::plural;
use crate::base::values::raw::RawValue;
use crate::core::plan::orphans::{self, OldOrphans};
use crate::core::plan::outcome::{ChildCollection, Children, End, Outcome};
use crate::core::plan::{self, ChildRule, OrphanLimits, ParentKey};
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::look::children::{self, FoundOrphans};
use crate::shell::server::look::parents::{self, Keyed};
use crate::shell::server::look::privileges;
use crate::shell::server::own::journal::{ChildPlace, Entry, Journal};
use crate::shell::server::wire::error::ServerError;

/// Number of parents that are not there, and whose orphans are deleted at a time.
const ABSENT_AT_ONCE: usize = 1000;

/// Passes over the children of a batch of parents, where some change between being archived and being deleted.
const PASSES: u32 = 3;

/// The children of the documents of a rule, during its sweep.
pub(in crate::shell::sweep) struct Family<'a> {
    journal: Journal,
    members: Vec<Member<'a>>,
    /// Parents in entries of this run that are not done.
    left: u64,
}

/// A collection of children.
struct Member<'a> {
    place: ChildPlace,
    key: ParentKey,
    engine: Engine<'a>,
    /// Children that were deleted with their parents, before the first orphan; `None` before the orphans' turn.
    before_orphans: Option<u64>,
}

impl<'a> Family<'a> {
    /// Creates the family of a rule; `None` if it has no children.
    pub(in crate::shell::sweep) fn of(sweep: &Arc<RuleSweep>, run: RunContext<'a>) -> Option<Box<Self>> {
        let family = sweep.rule.family.as_ref()?;
        let members = family.children.iter().zip(&sweep.children).map(|(child, of_child)| {
            let (place, key) = (ChildPlace::of(child), child.parent_key.clone());
            Member { place, key, engine: Engine::new(of_child.clone(), run, None), before_orphans: None }
        });
        let journal = Journal::new(&sweep.deployment, &sweep.rule, &family.journal, run.run_id);
        Some(Box::new(Self { journal, members: members.collect(), left: 0 }))
    }

    /// Returns the places of the children that name their parents by the key in a field.
    fn places(&self, field: &str) -> Vec<ChildPlace> {
        self.members.iter().filter(|member| member.key.field == field).map(|member| member.place.clone()).collect()
    }

    /// Ends the sweeps of the children, and adds them to the outcome of the rule.
    pub(super) async fn end(self, outcome: &mut Outcome) {
        let mut children = Children { collections: Vec::new(), left: self.left };
        for mut member in self.members {
            member.engine.wait_for_last().await;
            let of_child = member.engine.outcome;
            children.collections.push(ChildCollection {
                namespace: member.engine.sweep.rule.selection.namespace.clone(),
                deleted: of_child.deleted,
                orphans: member.before_orphans.map_or(0, |before| of_child.deleted - before),
                uncertain: of_child.uncertain,
                archived: of_child.archived,
            });
            outcome.batches += of_child.batches;
            outcome.uncertain |= of_child.uncertain;
            outcome.unconfirmed += of_child.unconfirmed;
            outcome.paused += of_child.paused;
        }
        outcome.children = Some(children);
    }
}

/// Makes a majority confirm: a parent that only the primary has deleted may come back, and its children would be gone; children may come back, and
/// the entry of their parent would be gone.
pub(in crate::shell::sweep) fn confirm_by_majority(write_concern: &mut Document) {
    if write_concern.get("w") != Some(&Bson::from("majority")) {
        write_concern.insert("w", "majority");
    }
}

impl Engine<'_> {
    /// Checks that the user may delete children, and finishes what the journal holds of earlier runs. Returns a permit for the sweep.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    pub(super) async fn finish_family(&mut self, permit: Permit) -> Result<Permit, End> {
        let sweep = self.sweep.clone();
        let asked = self.wait(privileges::ask(&sweep.deployment)).await?;
        let (granted, _) = asked.map_err(|cause| End::Failed(format!("asking for the user's privileges: {cause}")))?;
        if let Some(missing) = granted.missing(&sweep.rule) {
            return Err(End::Failed(format!("{missing}; nothing was deleted")));
        }
        // The batches of children need it.
        drop(permit);
        self.finish_journal().await?;
        self.wait(self.run.budget.acquire()).await
    }

    /// Finishes what the journal holds of earlier runs.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn finish_journal(&mut self) -> Result<(), End> {
        let sweep = self.sweep.clone();
        let mut last: Option<Entry> = None;
        while let Some(family) = self.family.take() {
            let next = self.wait(family.journal.next(last.as_ref())).await;
            self.family = Some(family);
            let Some(entry) = next?.map_err(End::Failed)? else { break };
            let namespace = &sweep.rule.namespace;
            info!(%namespace, "{namespace}: {} in the journal: looking for their children", plural(entry.parents.len() as u64, "parent"));
            self.finish(&entry, true).await?;
            last = Some(entry);
        }
        Ok(())
    }

    /// Enters the parents of a batch in the journal, once for each key by which children name them. `asked` is their number. Returns the batch, restricted
    /// to the parents that have the keys which were entered.
    ///
    /// Errors: the end of the sweep, because there may be no entry; the batch is taken back.
    pub(super) async fn enter(&mut self, batch: Box<Restriction>, asked: u64) -> Result<(Box<Restriction>, Vec<Entry>), End> {
        let entered = self.enter_in_journal(batch).await;
        if entered.is_err() {
            self.run.budget.settle(asked, 0);
        }
        entered.map_err(|end| match end {
            End::Failed(why) => End::Failed(format!("{why}; the parents of this batch were not deleted")),
            end => end,
        })
    }

    async fn enter_in_journal(&mut self, batch: Box<Restriction>) -> Result<(Box<Restriction>, Vec<Entry>), End> {
        let Restriction::Ids(mut ids) = *batch else {
            return Err(End::Failed("an internal error: the `_id`s of the parents are not known".to_owned()));
        };
        let sweep = self.sweep.clone();
        let Some(rules) = &sweep.rule.family else { return Err(End::Failed("an internal error: no children".to_owned())) };
        let (mut conditions, mut entries) = (Vec::new(), Vec::new());
        // A parent that is there after this time is not deleted before it, so that children from long after it belong to another one.
        let at = self.wait(parents::clock(&sweep.deployment)).await?;
        let at = at.map_err(|cause| End::Failed(format!("reading the server's clock: {cause}")))?.now;
        let namespace = &sweep.rule.namespace;
        // Others may have deleted some of them since they were found, and may use their `_id`s again. A fail-over may take back a parent that a majority does not
        // have, and whoever created it may be about to create it again, children first.
        let there = self.wait(parents::living(&sweep.deployment, namespace, &ParentKey::id(), &ids)).await?;
        ids = there.map_err(|cause| End::Failed(sweep.explain_read(&cause)))?;
        for key in rules.parent_keys() {
            let keys = if key.is_id() {
                (ids.iter().filter(|id| parents::names_one(id)).cloned().collect(), Vec::new())
            } else {
                let read = self.wait(parents::keyed(&sweep.deployment, namespace, key, &ids)).await?;
                let Keyed { ids: left, keys, condition } = read.map_err(|cause| End::Failed(sweep.explain_read(&cause)))?;
                (ids, conditions) = (left, [conditions, vec![condition]].concat());
                keys.into_iter().unzip()
            };
            let Some(mut family) = self.family.take() else { continue };
            let entered = self.wait(family.journal.enter(&key.field, at, keys, family.places(&key.field), &sweep.grant)).await;
            if let Ok(Ok(entry)) = &entered {
                family.left += entry.parents.len() as u64;
            }
            self.family = Some(family);
            entries.push(entered?.map_err(End::Failed)?);
        }
        if conditions.is_empty() {
            return Ok((Box::new(Restriction::Ids(ids)), entries));
        }
        let condition = RawDocumentBuf::try_from(&doc! { "$and": conditions });
        let condition = condition.map_err(|cause| End::Failed(format!("an internal error: {cause}")))?;
        Ok((Box::new(Restriction::Sharded(vec![(condition, ids)])), entries))
    }

    /// Deletes the children of a batch of parents that was sent.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    pub(super) async fn delete_children(&mut self, entry: Entry) -> Result<(), End> {
        let is_finished = self.finish(&entry, self.is_settled).await?;
        if let (true, Some(family)) = (is_finished, &mut self.family) {
            family.left = family.left.saturating_sub(entry.parents.len() as u64);
        }
        Ok(())
    }

    /// Deletes the children that this rule has of those parents of an entry that are gone, and takes them out of the entry. With parents that are there, that is done
    /// only if `forgets`. Returns whether nothing of it is left to this rule.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn finish(&mut self, entry: &Entry, forgets: bool) -> Result<bool, End> {
        let sweep = self.sweep.clone();
        let mut keys = sweep.rule.family.iter().flat_map(plan::Family::parent_keys);
        // Without it the rule has lost the children that are named so.
        let Some(key) = keys.find(|key| key.field == entry.field) else { return Ok(false) };
        let mut present = self.look(key, &entry.parents).await?;
        if !key.is_id() {
            let living = self.look(&ParentKey::id(), &entry.ids).await?;
            present.extend(entry.keys_of_living(&living));
        }
        let Some(mut family) = self.family.take() else { return Ok(false) };
        let (mut ended, mut done, mut is_kept) = (Ok(()), Vec::new(), false);
        let is_named = |member: &&mut Member<'_>| member.key == *key && entry.children.contains(&member.place);
        for Member { place, engine, .. } in family.members.iter_mut().filter(is_named) {
            let deleted = engine.delete_found(&place.field, key, &entry.parents, &present, parents::not_after(entry.at));
            match Box::pin(deleted).await {
                Ok(0) => done.push(place.clone()),
                Ok(_) => is_kept = true,
                Err(end) => {
                    ended = Err(end);
                    break;
                }
            }
        }
        let may_forget = present.is_empty() || forgets;
        let noted = match may_forget && (!done.is_empty() || entry.children.is_empty()) {
            true => self.wait(family.journal.done(entry, &done, &sweep.grant)).await,
            false => Ok(Ok(())),
        };
        self.family = Some(family);
        ended.map_err(|end| match end {
            End::Failed(why) => End::Failed(format!("{why}; {AFTER_PARENTS}")),
            end => end,
        })?;
        if let Err(why) = noted? {
            let namespace = &sweep.rule.namespace;
            warn!(%namespace, "{namespace}: {why}; the next run looks at it again");
            return Ok(false);
        }
        Ok(may_forget && !is_kept)
    }

    /// Deletes children that have been without a parent before, if the rule asks for it: by the times in their ObjectIds none of that parent is younger than
    /// [`parents::ORPHAN_SECONDS`], so that none belongs to an upload in flight. They go within what the parents have left of the limits.
    ///
    /// Errors: the end of the sweep, if it comes earlier, or the reason why no child may be taken for an orphan any more.
    pub(super) async fn delete_orphans(&mut self) -> Result<(), End> {
        let sweep = self.sweep.clone();
        let Some(rules) = &sweep.rule.family else { return Ok(()) };
        let Some(limits) = &rules.orphans else { return Ok(()) };
        // The allowance of the parents is theirs: it may be what was approved of them.
        let parents = sweep.rule.limits.max_deletes.zip(self.allowance).map_or(0, |(most, left)| most.saturating_sub(left));
        self.allowance = limits.after(parents);
        for (index, child) in rules.children.iter().enumerate() {
            while self.delete_orphans_of(index, child, limits).await? {}
        }
        Ok(())
    }

    /// Deletes the orphans of one collection that a pass over it finds. Returns whether there are more, and a further pass may get on.
    ///
    /// Errors: those of [`Self::delete_orphans`].
    async fn delete_orphans_of(&mut self, index: usize, child: &ChildRule, limits: &OrphanLimits) -> Result<bool, End> {
        let sweep = self.sweep.clone();
        let before = parents::oldest_upload(sweep.rule.expiry.as_of);
        let search = children::orphans(&sweep.deployment, &sweep.rule, child, Some(before));
        let found = self.wait(search).await?.map_err(|cause| search_failed(&cause))?;
        self.may_be_orphans(child, limits, found.old).await?;
        self.delete_found_orphans(index, child, &found).await
    }

    /// Deletes those of the orphans that still are old ones. Returns what [`Self::delete_orphans_of`] does.
    async fn delete_found_orphans(&mut self, index: usize, child: &ChildRule, found: &FoundOrphans) -> Result<bool, End> {
        let sweep = self.sweep.clone();
        let before = parents::oldest_upload(sweep.rule.expiry.as_of);
        let mut deleted = 0;
        for parents in found.parents.chunks(ABSENT_AT_ONCE) {
            // The parents may be lost while the sweep waits.
            self.may_have_orphans(found.old).await?;
            let old = children::all_before(&sweep.deployment, child, parents, before);
            let old = self.wait(old).await?.map_err(|cause| search_failed(&cause))?;
            let old: Vec<RawValue> = old.into_iter().map(|(parent, _)| parent).collect();
            let present = self.look(&child.parent_key, &old).await?;
            let Some(mut family) = self.family.take() else { return Ok(false) };
            let in_time = doc! { "_id": { "$lt": before } };
            let member = &mut family.members[index];
            let of_member = &mut member.engine;
            let begun = of_member.outcome.deleted;
            member.before_orphans.get_or_insert(begun);
            // Unlike other children they count towards the limits, those of the run included.
            (of_member.run, of_member.allowance) = (self.run, self.allowance);
            let ended = Box::pin(of_member.delete_found(&child.field, &child.parent_key, &old, &present, in_time)).await;
            self.allowance = of_member.allowance;
            deleted += of_member.outcome.deleted - begun;
            self.family = Some(family);
            ended?;
        }
        Ok(found.has_more && deleted > 0)
    }

    /// Checks, before the first of them goes, that the orphans which were found are still no larger a share of their collection than the rule allows.
    ///
    /// Errors: the end of the sweep, with the reason.
    async fn may_be_orphans(&mut self, child: &ChildRule, limits: &OrphanLimits, found: u64) -> Result<(), End> {
        let sweep = self.sweep.clone();
        let documents = self.wait(children::documents(&sweep.deployment, child, limits, found)).await?;
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
        let sweep = self.sweep.clone();
        let namespace = &sweep.rule.namespace;
        match self.wait(children::has_parents(&sweep.deployment, namespace)).await? {
            Ok(true) => Ok(()),
            Ok(false) => Err(End::Failed(format!("{}; {AFTER_RULE}", orphans::no_parent(namespace, found).detail))),
            Err(cause) => Err(End::Failed(format!("looking for a parent: {}; {AFTER_RULE}", sweep.explain_read(&cause)))),
        }
    }

    /// Looks which parents are there.
    ///
    /// Errors: the end of the sweep, if it comes earlier, or the reason why they could not be looked for.
    async fn look(&mut self, key: &ParentKey, parents: &[RawValue]) -> Result<Vec<RawValue>, End> {
        let sweep = self.sweep.clone();
        let living = self.wait(parents::living(&sweep.deployment, &sweep.rule.namespace, key, parents)).await?;
        living.map_err(|cause| End::Failed(format!("{}; {AFTER_PARENTS}", sweep.explain_read(&cause))))
    }

    /// Deletes the children that a pass finds. Some that were archived change before they are deleted, and are found by another pass. Returns the number of
    /// those that are kept, because they change again and again, or cannot be compared with what was archived.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn delete_found(
        &mut self,
        field: &str,
        key: &ParentKey,
        parents: &[RawValue],
        present: &[RawValue],
        in_time: Document,
    ) -> Result<u64, End> {
        let sweep = self.sweep.clone();
        let mut kept = 0;
        *sweep.living.lock() = present.to_vec();
        for _ in 0..PASSES {
            let before = (self.outcome.deleted, self.outcome.archived);
            let pages = ChildPages::new(&sweep, field, key, parents, in_time.clone());
            let mut source = Source::Children(Box::new(pages));
            self.start_batches_of(&mut source).await?;
            self.finish_batches().await?;
            let archived = self.outcome.archived;
            let changed = (archived.documents - before.1.documents).saturating_sub(self.outcome.deleted - before.0);
            kept = changed + archived.incomparable - before.1.incomparable;
            if changed == 0 {
                break;
            }
        }
        Ok(kept)
    }
}

fn search_failed(cause: &ServerError) -> End {
    End::Failed(format!("looking for children without a parent: {cause}; {AFTER_RULE}"))
}

/// The state after parents were deleted, in words.
const AFTER_PARENTS: &str = "the parents of the last batch may be gone, and the next run deletes their children";

/// The state after parents and their children were deleted, in words.
const AFTER_RULE: &str = "the rule was swept before, but for its orphans";
