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
    /// Its period; `None` in a rule without periods.
    pub period: Option<PeriodWhy>,
    /// Whether it matches each clause of the filter.
    pub clauses: Vec<bool>,
    pub never: Option<String>,
}

/// The time after which a document without a ttl of its own expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodWhy {
    /// Seconds of its longest period.
    Period(i64),
    /// The rule's own time, which is longer than every period that it has.
    OfRule(u32),
    /// A period of it never ends.
    Never,
    /// A period of it is no whole number above 0, or documents with its key differ.
    Unclear,
    /// It has none, and the rule has no time of its own.
    Missing,
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
