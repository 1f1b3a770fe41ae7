//! The rights to delete and to record, as values.

/// The right to delete, which [`crate::shell::server::delete`] requires. A sweep can create it only if it is not a dry run and if
/// the person at the terminal, if there is one, has confirmed it.
pub(crate) struct DeleteGrant(());

/// The answer to the question that a sweep asks before it deletes. If the answer is no, the sweep ends before this is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// `--yes`, or no person at a terminal to ask.
    NotAsked,
    Given,
    /// Nothing had expired, so there was no question, and there is nothing to delete.
    NothingToDelete,
}

impl DeleteGrant {
    pub(crate) fn new(dry_run: bool, consent: Consent) -> Option<Self> {
        (!dry_run && matches!(consent, Consent::NotAsked | Consent::Given)).then_some(Self(()))
    }
}

/// The right to record a run. [`crate::shell::server::own::history`] requires it, and a dry run cannot create it.
pub(crate) struct RecordGrant(());

impl RecordGrant {
    pub(crate) fn new(dry_run: bool) -> Option<Self> {
        (!dry_run).then_some(Self(()))
    }
}
