//! Judgement of the server on one document, its children and its parent.

use bson::DateTime;
use serde::Serialize;

/// The server's judgement on a document by one rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judgement {
    pub date: Option<DateTime>,
    pub dates: i64,
    /// The ttl, if it counts.
    pub ttl: Option<i64>,
    /// Whether the document matches the whole predicate.
    pub is_taken: bool,
    /// Whether a hold keeps it.
    pub is_held: bool,
    /// Whether it matches each clause of the filter.
    pub clauses: Vec<bool>,
    pub never: Option<String>,
}

/// A collection of children of the document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildrenWhy {
    pub namespace: String,
    /// Path that holds the key of the document.
    pub field: String,
    /// Children of the document; null if they could not be counted in time.
    pub count: Option<u64>,
    /// Whether there are more than `count`.
    pub more: bool,
}

/// A child whose parent is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphan {
    /// The journal names the parent.
    InJournal,
    /// The journal names the parent, but by its `_id` the child was created later.
    CreatedLater,
    /// No entry names the parent, and the rule does not delete such children.
    LeftAlone,
    /// No entry names the parent. All children of it are old enough to go by `orphans`.
    Old,
    /// The same, but the collection of the parents has no document, and then none goes.
    WithoutParents,
    /// No entry names the parent. Some children of it are not, or tell no time.
    MaybeInFlight,
}
