//! The right to delete, as a value.

/// Without this value no document can be deleted: [`super::delete`] asks for it, and only a sweep that is no dry run, confirmed where
/// somebody could be asked, can make one.
pub struct DeleteGrant(());

/// The answer of whoever is at the terminal, or that nobody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// `--yes`, or nobody to ask.
    NotAsked,
    Given,
    Refused,
}

impl DeleteGrant {
    pub fn new(dry_run: bool, consent: Consent) -> Option<Self> {
        (!dry_run && consent != Consent::Refused).then_some(Self(()))
    }
}
