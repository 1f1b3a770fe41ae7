//! The sweep of one collection of children, for the parents that it is told.

use bson::Document;

use crate::base::values::raw::RawValue;
use crate::core::plan::ChildRule;
use crate::core::plan::outcome::{ChildCollection, End};
use crate::shell::server::own::journal::ChildPlace;
use crate::shell::sweep::engine::Engine;
use crate::shell::sweep::sources::Source;
use crate::shell::sweep::sources::child_pages::ChildPages;

/// Passes over the children of a batch of parents, where some change between being archived and being deleted.
const PASSES: u32 = 3;

/// A collection of children.
pub(super) struct Member<'a> {
    pub child: &'a ChildRule,
    pub place: ChildPlace,
    pub engine: Engine<'a>,
    /// Children that were deleted with their parents, before the first orphan; `None` before the orphans' turn.
    pub before_orphans: Option<u64>,
}

impl<'a> Member<'a> {
    pub(super) fn new(child: &'a ChildRule, engine: Engine<'a>) -> Self {
        Self { child, place: ChildPlace::of(child), engine, before_orphans: None }
    }

    /// Returns what became of the children by now.
    pub(super) fn outcome(&self) -> ChildCollection {
        let outcome = &self.engine.outcome;
        ChildCollection {
            namespace: self.child.rule.selection.namespace.clone(),
            deleted: outcome.deleted,
            orphans: self.before_orphans.map_or(0, |before| outcome.deleted - before),
            uncertain: outcome.uncertain,
            archived: outcome.archived,
        }
    }

    /// Deletes the children that a pass finds. Some that were archived change before they are deleted, and are found by another pass. Returns the number of
    /// those that are kept, because they change again and again, or cannot be compared with what was archived. `in_time` is a further condition on their
    /// `_id`s.
    ///
    /// Errors: the end of the sweep, if it comes earlier.
    pub(super) async fn delete_found(
        &mut self,
        parents: &[RawValue],
        present: &[RawValue],
        in_time: Document,
    ) -> Result<u64, End> {
        let Self { child, engine, .. } = self;
        let sweep = engine.sweep.clone();
        let mut kept = 0;
        *sweep.living.lock() = present.to_vec();
        for _ in 0..PASSES {
            let before = (engine.outcome.deleted, engine.outcome.archived);
            let pages = ChildPages::new(&sweep, &child.field, &child.parent_key, parents, in_time.clone());
            let mut source = Source::Children(Box::new(pages));
            engine.start_batches_of(&mut source).await?;
            engine.finish_batches().await?;
            let archived = engine.outcome.archived;
            let changed = (archived.documents - before.1.documents).saturating_sub(engine.outcome.deleted - before.0);
            kept = changed + archived.incomparable - before.1.incomparable;
            if changed == 0 {
                break;
            }
        }
        Ok(kept)
    }
}
