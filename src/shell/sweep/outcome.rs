//! What became of a rule by now: the same at the end of its sweep, and in the report of a run that is cut short.

use super::RuleSweep;
use crate::core::plan::outcome::{ChildCollection, Outcome};

impl RuleSweep {
    /// Returns what became of the rule and of its children by now.
    pub(crate) fn outcome_by_now(&self) -> Outcome {
        let mut outcome = self.outcome.lock().clone();
        for of_children in &self.children {
            let of_child = of_children.outcome.lock();
            outcome.batches += of_child.batches;
            outcome.uncertain |= of_child.uncertain;
            outcome.unconfirmed += of_child.unconfirmed;
            outcome.paused += of_child.paused;
            if let Some(children) = &mut outcome.children {
                children.collections.push(of_children.collection(&of_child));
            }
        }
        outcome
    }

    /// Returns what became of the children that this sweep deletes.
    fn collection(&self, outcome: &Outcome) -> ChildCollection {
        ChildCollection {
            namespace: self.rule.selection.namespace.clone(),
            deleted: outcome.deleted,
            orphans: self.before_orphans.get().map_or(0, |before| outcome.deleted - before),
            uncertain: outcome.uncertain,
            archived: outcome.archived,
        }
    }
}
