//! The oplog of the primary as it was seen.

use std::time::Duration;

/// The look at the oplog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OplogLook {
    /// The deployment has no oplog, or is a service that does not show one.
    None,
    Known(Oplog),
    /// The reason why the oplog cannot be seen.
    Unknown(String),
}

impl OplogLook {
    /// Returns the oplog, if it was seen.
    pub fn known(&self) -> Option<&Oplog> {
        match self {
            Self::Known(oplog) => Some(oplog),
            Self::None | Self::Unknown(_) => None,
        }
    }
}

/// An oplog: the time that it covers, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oplog {
    /// Time of the first entry, in seconds since 1970.
    pub first: u32,
    /// Time of the last entry, in seconds since 1970.
    pub last: u32,
    /// `None` if the user may not see it.
    pub size: Option<OplogSize>,
    /// The time that the server keeps each entry at least, however large the oplog gets (`oplogMinRetentionHours`).
    pub min_retention: Option<Duration>,
}

/// Size of an oplog, in bytes of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OplogSize {
    pub used: u64,
    /// The size from which on the server removes the oldest entries.
    pub max: u64,
}

impl Oplog {
    /// Returns the time from the first entry to the last.
    pub fn window(&self) -> Duration {
        Duration::from_secs(u64::from(self.last.saturating_sub(self.first)))
    }
}
