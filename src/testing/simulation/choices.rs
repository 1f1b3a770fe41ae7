//! The decisions of a seed about policies, fates, pauses, moves and restores. The file that carries out a decision also draws it.

use std::ops::Range;

/// One of those that sweep.
#[derive(Debug, Clone)]
pub(super) struct Sweeper {
    /// Milliseconds after the start at which it begins.
    pub begins: u64,
    /// Error of its wall clock, in milliseconds.
    pub clock: i64,
    pub fate: Fate,
    /// Times for which its way to the server is cut off, in milliseconds.
    pub cuts: Range<u64>,
}

/// The fate of a sweeper.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    Nothing,
    /// Signals, in milliseconds after its beginning. The second one ends it at once.
    Signals(Vec<u64>),
    /// Killed, and begun once more afterwards.
    Killed {
        after: u64,
    },
    /// Its machine sleeps.
    Sleeps {
        after: u64,
        time: u64,
    },
    /// Its wall clock is set.
    ClockSet {
        after: u64,
        by: i64,
    },
    /// Its disk has room for so many bytes.
    DiskFull {
        bytes: usize,
    },
}

/// The rules that a run has, each with its children.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Edition {
    /// For each rule the collections of its children, by their numbers in the family; `None` if the policy does not have the
    /// rule.
    pub rules: Vec<Option<Vec<usize>>>,
    /// The rule that `--only` names.
    pub only: Option<usize>,
}

/// Change that others make to a collection as a whole.
#[derive(Debug, Clone)]
pub(super) struct Moved {
    pub what: What,
    /// Milliseconds after the start.
    pub after: u64,
    /// Whether it gets another name; otherwise it is dropped.
    pub is_renamed: bool,
    /// Milliseconds until another collection has the name; 0 for the same moment.
    pub taken_after: u64,
}

/// The collection that is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The collection of the first rule.
    Rule,
    /// One of children, by its number.
    Children(usize),
    Journal,
}

/// The times at which the pause file is there.
#[derive(Debug, Clone)]
pub(super) struct Pauses {
    pub number: u32,
    /// Longest time between two, and longest time of one, in milliseconds.
    pub every: u64,
    pub longest: u64,
    /// Before one in so many deletes of children others create parents again, after the look at them.
    pub looks: Option<u8>,
}

/// The times at which runs read other paces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rereads {
    pub number: u32,
    /// Longest time between two, in milliseconds.
    pub every: u64,
    pub seed: u64,
}

/// The runs of `restore`.
#[derive(Debug, Clone)]
pub(super) struct Restores {
    /// Runs while others write, and the longest time before each, in milliseconds.
    pub number: u32,
    pub every: u64,
    /// The collection that is restored, among the collections of the archive; `None` for all.
    pub only: Option<usize>,
    /// Number of times at which others write documents again that were archived.
    pub again: u32,
    /// Whether documents that differ are replaced.
    pub replace: bool,
}
