//! What became of a rule by now: the same at the end of its sweep, and in the report of a run that is cut short.

use bson::Document;

use super::RuleSweep;
use crate::core::plan::outcome::{ChildCollection, Outcome};

impl RuleSweep {
    /// Returns what became of the rule and of its children by now.
    pub(crate) fn outcome_by_now(&self) -> Outcome {
        let mut outcome = Outcome { weak_write_concern: self.weak_write_concern(), ..self.outcome.lock().clone() };
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

    /// Returns the write concern of a delete that is sent now.
    pub(super) fn write_concern(&self) -> Document {
        self.lag.write_concern(&self.write_concern)
    }

    /// Returns the reason why no majority is asked to confirm a delete; `None` if one is.
    pub(super) fn weak_write_concern(&self) -> Option<String> {
        self.deployment.facts.weakness_of(&self.write_concern())
    }

    /// Returns the directory of the rule in the archive, for the report; `None` if the rule does not archive.
    pub(crate) fn archive_directory(&self) -> Option<String> {
        self.archive.as_ref().map(|archive| archive.archive.path().display().to_string())
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
