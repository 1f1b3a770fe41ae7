//! The children of a document, and its parent, as `sweeper why` shows them.

use serde::Serialize;
use serde_json::Value;

use super::{ByRule, RuleWhy, goes};
use crate::base::text;
use crate::core::plan::judgement::{ChildrenWhy, Orphan};
use crate::core::policy::Child;

/// The document as a child, by one rule for its parent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildWhy {
    pub rule: String,
    /// Collection of the parents.
    pub parents: String,
    /// Path that holds the key of the parent.
    pub field: String,
    /// Path of the key in the parent: `_id` unless the policy names another.
    pub parent_field: String,
    /// The key of the parent as canonical Extended JSON; null if the field names none.
    pub parent: Option<Value>,
    /// Whether the parent is there; null if the field names none.
    pub parent_exists: Option<bool>,
    /// One sentence: when the document goes, or why it stays.
    pub verdict: String,
    /// Whether the next sweep by the rule deletes the document.
    pub taken: bool,
}

/// The parent of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Parent {
    /// The field names none.
    Unnamed,
    /// It is there, and this becomes of it.
    There {
        id: Value,
        why: Box<RuleWhy>,
    },
    Gone {
        id: Value,
        orphan: Orphan,
    },
}

impl ChildWhy {
    /// Explains a document by the rule of its parent.
    pub fn of(by_rule: &ByRule, child: &Child, parent: &Parent) -> Self {
        let (planned, not_swept) = (by_rule.planned, by_rule.not_swept());
        let (id, exists) = match parent {
            Parent::Unnamed => (None, None),
            Parent::There { id, .. } => (Some(id), Some(true)),
            Parent::Gone { id, .. } => (Some(id), Some(false)),
        };
        let goes = match parent {
            Parent::There { why, .. } => why.taken,
            Parent::Gone { orphan, .. } => matches!(orphan, Orphan::InJournal | Orphan::Old),
            Parent::Unnamed => false,
        };
        Self {
            rule: planned.rule.name.clone(),
            parents: planned.namespace.to_string(),
            field: child.field.clone(),
            parent_field: child.parent_field.clone(),
            parent: id.cloned(),
            parent_exists: exists,
            verdict: verdict(&child.field, parent, not_swept.as_deref(), &by_rule.limits()),
            taken: goes && not_swept.is_none(),
        }
    }

    /// Returns the facts, each with its name.
    pub(super) fn details(&self) -> Vec<[String; 2]> {
        let (Some(parent), Some(exists)) = (&self.parent, self.parent_exists) else { return Vec::new() };
        let id = format!("{} with the `{}` {} (`{}`)", self.parents, self.parent_field, text::id(parent), self.field);
        let exists = if exists { "there" } else { "gone" };
        vec![["child of".to_owned(), id], ["the parent".to_owned(), exists.to_owned()]]
    }
}

fn verdict(field: &str, parent: &Parent, not_swept: Option<&str>, limits: &[&str]) -> String {
    let goes = || match not_swept {
        None => goes(limits),
        Some(why) => format!("stays, because the rule deletes nothing: {why}"),
    };
    match parent {
        Parent::Unnamed => {
            format!("is no child, because `{field}` names no parent: it is missing or null, or has a list on its path")
        }
        Parent::There { why, .. } => format!("goes once its parent is gone, and not before; of the parent: {}", why.verdict),
        Parent::Gone { orphan, .. } => match orphan {
            Orphan::InJournal => format!("its parent is gone, as the journal says: {}", goes()),
            Orphan::CreatedLater => {
                "stays: its parent is gone, but by its `_id` it was created later, as a child of a new parent is".to_owned()
            }
            Orphan::LeftAlone => format!(
                "stays: its parent is not there, and the journal does not name it; {}",
                not_swept.map_or_else(
                    || "an audit counts such children, and `orphans: true` deletes those that are a day old".to_owned(),
                    |why| format!("the rule deletes nothing: {why}")
                )
            ),
            Orphan::Old => format!("its parent is not there, and all its children are a day old (`orphans`): {}", goes()),
            Orphan::WithoutParents => {
                "stays: its parent is not there, and neither is any other, without which no child is taken for an orphan"
                    .to_owned()
            }
            Orphan::MaybeInFlight => {
                "stays: its parent is not there, but not every child of that parent has an ObjectId that is a day \
                                      old, so that an upload may be adding to them"
                    .to_owned()
            }
        },
    }
}

/// Returns the number of the children of a document in one collection, in words.
pub(super) fn children(found: &ChildrenWhy) -> String {
    let of = format!("in `{}` (`{}`)", found.namespace, found.field);
    match found.count {
        None => format!("not counted in time {of}"),
        Some(0) => format!("none {of}"),
        Some(count) if found.more => format!("more than {} {of}; they go after it", text::count(count)),
        Some(1) => format!("1 {of}; it goes after it"),
        Some(count) => format!("{} {of}; they go after it", text::count(count)),
    }
}
