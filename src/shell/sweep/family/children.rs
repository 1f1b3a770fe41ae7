//! The sweep of one collection of children, for the parents that it is told.

use bson::Document;

use crate::base::values::raw::RawValue;
use crate::core::plan::ChildRule;
use crate::core::plan::outcome::End;
use crate::shell::server::own::journal::ChildPlace;
use crate::shell::sweep::engine::Engine;
use crate::shell::sweep::sources::Source;
use crate::shell::sweep::sources::child_pages::ChildPages;

/// Passes over the children of a batch of parents, where some change between being archived and being deleted.
const PASSES: u32 = 3;

/// A collection of children.
pub(super) struct ChildSweep<'a> {
    pub child: &'a ChildRule,
    pub place: ChildPlace,
    pub engine: Engine<'a>,
}

impl<'a> ChildSweep<'a> {
    pub(super) fn new(child: &'a ChildRule, engine: Engine<'a>) -> Self {
        Self { child, place: ChildPlace::of(child), engine }
    }

    /// Deletes the children that a pass finds. Some that were archived change before they are deleted, and are found by another
    /// pass. Returns the number of those that are kept, because they change again and again, or cannot be compared with what was
    /// archived. `in_time` is a further condition on their `_id`s.
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
        let counts = |engine: &Engine<'_>| {
            let outcome = engine.outcome();
            (outcome.deleted, outcome.archived)
        };
        for _ in 0..PASSES {
            let before = counts(engine);
            let pages = ChildPages::new(&sweep, &child.field, &child.parent_key, parents, in_time.clone());
            let mut source = Source::Children(Box::new(pages));
            engine.start_batches_of(&mut source).await?;
            engine.finish_batches().await?;
            let (deleted, archived) = counts(engine);
            let changed = (archived.documents - before.1.documents).saturating_sub(deleted - before.0);
            kept = changed + archived.incomparable - before.1.incomparable;
            if changed == 0 {
                break;
            }
        }
        Ok(kept)
    }
}
