//! The rights to delete and to record, as values.

/// Without this value no document can be deleted: [`super::delete`] asks for it, and only a sweep that is no dry run, confirmed where
/// somebody could be asked, can make one.
pub struct DeleteGrant(());

/// Why a sweep may go on to delete, or has nothing to; without a yes of whoever is at the terminal it ends before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// `--yes`, or nobody to ask.
    NotAsked,
    Given,
    /// There was nothing to ask about, so there is nothing to delete either.
    NothingToDelete,
}

impl DeleteGrant {
    pub fn new(dry_run: bool, consent: Consent) -> Option<Self> {
        (!dry_run && matches!(consent, Consent::NotAsked | Consent::Given)).then_some(Self(()))
    }
}

/// Without this value no run is recorded: [`super::history`] asks for it, and a dry run cannot make one.
pub struct RecordGrant(());

impl RecordGrant {
    pub fn new(dry_run: bool) -> Option<Self> {
        (!dry_run).then_some(Self(()))
    }
}
