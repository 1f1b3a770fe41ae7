//! The children of a rule: documents of other collections that hold the key of a document of the rule, its `_id` or another
//! field, and go once it is gone.
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
//! - A child is deleted only by a command that names its `_id` and the key of its parent. A look ([`parents::living`]) at most
//!   two seconds before did not find that parent: the server refuses a command that comes later. A parent that comes back keeps
//!   every child that is there two seconds later.
//! - A child whose `_id` is an ObjectId created more than [`parents::TOLERANCE_SECONDS`] after the entry stays: an upload that
//!   uses an `_id` again writes its chunks before its file. Within that time such an upload may lose chunks. Drivers give every
//!   file a new ObjectId.
//! - Wherever a run ends, an entry names each parent that is gone and may have children, and where these are: it was there before
//!   the parent went, and goes after them. The next run of the rule begins with the journal.
//! - The lease makes sure that no delete of an earlier run can arrive any more: of its entries, parents that are there were not
//!   deleted, and are forgotten. Children that this rule does not have, as after `--only` or with an older policy, stay in the
//!   entry for a run that has them.
//! - An entry of this run stays if a delete of its batch had no whole answer, because that may still take effect.
//! - Parents and children take turns, so that both keep to the rate, and every batch of children waits as the batches of the rule
//!   do. The children have a pace of their own, because their size is another one. The limits on the count are the limits of the
//!   parents.
//! - Orphans come last, within what the parents have left of the limits on the count. None goes unless the collection of the
//!   parents has a document, and what was found of them is compared with the rule's share again: parents that others delete or
//!   lose meanwhile would make all their children orphans.
//! - A parent whose key is null or missing has no children: null in a query is also a field that is missing. One with a list on
//!   the path of its key stays.
//! - Several parents may have one key that is not the `_id`: the children go with the last of them. A parent whose key changes
//!   before it is deleted stays, and so do the children with the old key, which may be about to follow. An entry has the `_id`s
//!   as well, and a key is done once one of its parents is gone.
//!
//! Without children none of this runs.

mod children;
mod orphans;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use tracing::{info, warn};

use super::budget::Permit;
use super::engine::{Admitted, Engine};
use super::{RuleSweep, RunContext};
use crate::base::text::plural;
use crate::base::values::raw::RawValue;
use crate::core::plan::outcome::{Children, End, Outcome};
use crate::core::plan::{Family, ParentKey};
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::look::parents::{self, Keyed};
use crate::shell::server::look::privileges;
use crate::shell::server::own::journal::{ChildPlace, Journal, JournalEntry};
use children::ChildSweep;

/// The sweep of a rule with children: the sweep of the parents, and one for each collection of children.
pub(super) struct ParentSweep<'a> {
    family: &'a Family,
    engine: Engine<'a>,
    journal: Journal,
    children: Vec<ChildSweep<'a>>,
}

/// Makes a majority confirm. A parent that only the primary has deleted may come back, and its children would be gone. Children
/// may come back, and the entry of their parent would be gone.
pub(super) fn confirm_by_majority(write_concern: &mut Document) {
    if write_concern.get("w") != Some(&Bson::from("majority")) {
        write_concern.insert("w", "majority");
    }
}

impl<'a> ParentSweep<'a> {
    /// Creates the sweep of a rule and of its children. `of_children` is the run as it is for the children.
    pub(super) fn new(sweep: &Arc<RuleSweep>, family: &'a Family, run: RunContext<'a>, of_children: RunContext<'a>) -> Self {
        let engine = Engine::new(sweep.clone(), run);
        engine.outcome().children = Some(Children::default());
        let children = family.children.iter().zip(&sweep.children);
        Self {
            family,
            journal: Journal::new(&sweep.deployment, &sweep.rule, &family.journal, run.run_id),
            engine,
            children: children.map(|(child, sweep)| ChildSweep::new(child, Engine::new(sweep.clone(), of_children))).collect(),
        }
    }

    pub(super) async fn run(mut self, permit: Permit) -> Outcome {
        let swept = self.sweep(permit).await;
        self.engine.end(swept).await;
        for of_child in &mut self.children {
            of_child.engine.wait_for_last().await;
        }
        self.engine.into_outcome().await
    }

    /// Deletes parents and their children until nothing is left, and then the orphans.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn sweep(&mut self, permit: Permit) -> Result<(), End> {
        self.engine.check_stop()?;
        let permit = self.finish_earlier(permit).await?;
        let sweep = self.engine.sweep.clone();
        // Children are found by the `_id`s of their parents.
        let mut source = self.engine.open(&sweep, permit, true).await?;
        while let Some(batch) = self.engine.next(&mut source).await? {
            let (batch, entries) = self.enter(batch).await?;
            self.engine.start(batch);
            self.engine.finish_batches().await?;
            for entry in entries {
                self.delete_children(&entry).await?;
            }
        }
        self.delete_orphans().await
    }

    /// Checks that the user may delete children, and finishes what the journal holds of earlier runs. Returns a permit for the
    /// sweep.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn finish_earlier(&mut self, permit: Permit) -> Result<Permit, End> {
        let sweep = self.engine.sweep.clone();
        let asked = self.engine.wait(privileges::ask(&sweep.deployment)).await?;
        let (granted, _) = asked.map_err(|cause| End::Failed(format!("asking for the user's privileges: {cause}")))?;
        if let Some(missing) = granted.missing(&sweep.rule) {
            return Err(End::Failed(format!("{missing}; nothing was deleted")));
        }
        // The batches of children need it.
        drop(permit);
        self.finish_journal().await?;
        let budget = self.engine.run.budget;
        self.engine.wait(budget.acquire()).await
    }

    /// Finishes what the journal holds of earlier runs.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn finish_journal(&mut self) -> Result<(), End> {
        let sweep = self.engine.sweep.clone();
        let mut last: Option<JournalEntry> = None;
        while let Some(entry) = self.engine.wait(self.journal.next(last.as_ref())).await?.map_err(End::Failed)? {
            let namespace = &sweep.rule.namespace;
            info!(%namespace, "{namespace}: {} in the journal: looking for their children", plural(entry.parents.len() as u64, "parent"));
            self.finish(&entry, true).await?;
            last = Some(entry);
        }
        Ok(())
    }

    /// Enters the parents of a batch in the journal, once for each key by which children name them. Returns the batch, restricted
    /// to the parents that have the keys which were entered.
    ///
    /// Errors: the end of the sweep, because there may be no entry; the batch is taken back.
    async fn enter(&mut self, mut batch: Admitted) -> Result<(Admitted, Vec<JournalEntry>), End> {
        match self.enter_in_journal(&batch.restriction).await {
            Ok((restriction, entries)) => {
                batch.restriction = Box::new(restriction);
                Ok((batch, entries))
            }
            Err(end) => {
                self.engine.run.budget.settle(batch.asked, 0);
                Err(with_state(end, "the parents of this batch were not deleted"))
            }
        }
    }

    async fn enter_in_journal(&mut self, batch: &Restriction) -> Result<(Restriction, Vec<JournalEntry>), End> {
        let listed = batch.only_ids().ok_or_else(|| internal("the parents are not known by their `_id`s only"))?;
        let sweep = self.engine.sweep.clone();
        let (mut conditions, mut entries) = (Vec::new(), Vec::new());
        // A parent that is there after this time is not deleted before it, so that children from long after it belong to another
        // one.
        let at = self.engine.wait(parents::clock(&sweep.deployment)).await?;
        let at = at.map_err(|cause| End::Failed(format!("reading the server's clock: {cause}")))?.now;
        let namespace = &sweep.rule.namespace;
        // Others may have deleted some of them since they were found, and may use their `_id`s again. A fail-over may take back a
        // parent that a majority does not have, and whoever created it may be about to create it again, children first.
        let there = self.engine.wait(parents::living_ids(&sweep.deployment, namespace, listed)).await?;
        let mut ids = there.map_err(|cause| End::Failed(sweep.explain_read(&cause)))?;
        for key in self.family.parent_keys() {
            let keys = if key.is_id() {
                (ids.iter().map(RawValue::from).filter(parents::names_one).collect(), Vec::new())
            } else {
                let read = self.engine.wait(parents::keyed(&sweep.deployment, namespace, key, &ids)).await?;
                let Keyed { ids: left, keys, condition } = read.map_err(|cause| End::Failed(sweep.explain_read(&cause)))?;
                (ids, conditions) = (left, [conditions, vec![condition]].concat());
                keys.into_iter().unzip()
            };
            let entering = self.journal.enter(&key.field, at, keys, self.places(key), &sweep.grant);
            let entry = self.engine.wait(entering).await?.map_err(End::Failed)?;
            self.count_left(|left| left + entry.parents.len() as u64);
            entries.push(entry);
        }
        let condition = if conditions.is_empty() {
            doc! {}
        } else {
            doc! { "$and": conditions }
        };
        let condition = RawDocumentBuf::try_from(&condition).map_err(|cause| internal(&cause.to_string()))?;
        Ok((Restriction::of_ids(condition, ids), entries))
    }

    /// Counts the parents in entries of this run that are not done.
    fn count_left(&self, counted: impl FnOnce(u64) -> u64) {
        if let Some(children) = &mut self.engine.outcome().children {
            children.left = counted(children.left);
        }
    }

    /// Returns the places of the children that name their parents by a key.
    fn places(&self, key: &ParentKey) -> Vec<ChildPlace> {
        let named = self.children.iter().filter(|of_child| of_child.child.parent_key.field == key.field);
        named.map(|of_child| of_child.place.clone()).collect()
    }

    /// Deletes the children of a batch of parents that was sent.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn delete_children(&mut self, entry: &JournalEntry) -> Result<(), End> {
        if self.finish(entry, self.engine.is_settled).await? {
            self.count_left(|left| left.saturating_sub(entry.parents.len() as u64));
        }
        Ok(())
    }

    /// Deletes the children that this rule has of those parents of an entry that are gone, and takes them out of the entry. With
    /// parents that are there, that is done only if `forgets`. Returns whether nothing of it is left to this rule.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    async fn finish(&mut self, entry: &JournalEntry, forgets: bool) -> Result<bool, End> {
        let sweep = self.engine.sweep.clone();
        let mut keys = self.family.parent_keys().into_iter();
        // Without it the rule has lost the children that are named so.
        let Some(key) = keys.find(|key| key.field == entry.field) else { return Ok(false) };
        let mut present = self.look(key, &entry.parents).await?;
        if !key.is_id() {
            let living = self.look(&ParentKey::id(), &entry.ids).await?;
            present.extend(entry.keys_of_living(&living));
        }
        let (mut ended, mut done, mut is_kept) = (Ok(()), Vec::new(), false);
        let is_named =
            |of_child: &&mut ChildSweep<'_>| of_child.child.parent_key == *key && entry.children.contains(&of_child.place);
        for of_child in self.children.iter_mut().filter(is_named) {
            match of_child.delete_found(&entry.parents, &present, parents::not_after(entry.at)).await {
                Ok(0) => done.push(of_child.place.clone()),
                Ok(_) => is_kept = true,
                Err(end) => {
                    ended = Err(with_state(end, AFTER_PARENTS));
                    break;
                }
            }
        }
        let may_forget = present.is_empty() || forgets;
        let noted = match may_forget && (!done.is_empty() || entry.children.is_empty()) {
            true => self.engine.wait(self.journal.done(entry, &done, &sweep.grant)).await,
            false => Ok(Ok(())),
        };
        ended?;
        if let Err(why) = noted? {
            let namespace = &sweep.rule.namespace;
            warn!(%namespace, "{namespace}: {why}; the next run looks at it again");
            return Ok(false);
        }
        Ok(may_forget && !is_kept)
    }

    /// Looks which parents are there.
    ///
    /// Errors: the end of the sweep, if it comes earlier, or the reason why they could not be looked for.
    async fn look(&mut self, key: &ParentKey, parents: &[RawValue]) -> Result<Vec<RawValue>, End> {
        let sweep = self.engine.sweep.clone();
        let living = self.engine.wait(parents::living(&sweep.deployment, &sweep.rule.namespace, key, parents)).await?;
        living.map_err(|cause| with_state(End::Failed(sweep.explain_read(&cause)), AFTER_PARENTS))
    }
}

/// Adds the state that a failure leaves behind to its reason.
fn with_state(end: End, state: &str) -> End {
    match end {
        End::Failed(why) => End::Failed(format!("{why}; {state}")),
        end => end,
    }
}

fn internal(why: &str) -> End {
    End::Failed(format!("an internal error: {why}"))
}

/// The state after parents were deleted, in words.
const AFTER_PARENTS: &str = "the parents of the last batch may be gone, and the next run deletes their children";
