//! The rights to delete and to record, as values.

/// The right to delete. [`super::delete`] demands it, and only a sweep that is no dry run, and that a person at a terminal has confirmed, can make
/// one.
pub struct DeleteGrant(());

/// The answer to the question before a sweep deletes. A sweep that is refused ends before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// `--yes`, or no person at a terminal to ask.
    NotAsked,
    Given,
    /// Nothing had expired, so there was no question, and there is nothing to delete.
    NothingToDelete,
}

impl DeleteGrant {
    pub fn new(dry_run: bool, consent: Consent) -> Option<Self> {
        (!dry_run && matches!(consent, Consent::NotAsked | Consent::Given)).then_some(Self(()))
    }
}

/// The right to record a run. [`super::history`] demands it, and a dry run cannot make one.
pub struct RecordGrant(());

impl RecordGrant {
    pub fn new(dry_run: bool) -> Option<Self> {
        (!dry_run).then_some(Self(()))
    }
}
