//! Locks that keep two runs from sweeping the same collection at the same time: a file on one machine, leases in the database
//! between several machines.

pub(crate) mod fence;
pub(crate) mod file;
pub(crate) mod lease;
pub(crate) mod moment;

use std::fmt;

use bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::base::instant::rfc3339;

/// The run that holds a lock, as the lock names it to other runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Holder {
    pub run_id: String,
    pub host: String,
    pub pid: u32,
    /// Start of the lock, in RFC 3339.
    pub since: String,
}

impl Holder {
    /// Returns this process as the holder of a lock since an instant.
    pub(crate) fn me(run_id: &str, since: DateTime) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { run_id: run_id.to_owned(), host, pid: std::process::id(), since: rfc3339(since) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { run_id, host, pid, since } = self;
        write!(f, "run {run_id} on {host}, process {pid}, since {since}")
    }
}

/// Outcome of an attempt to take a lock.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    Taken(T),
    Held(Occupant),
}

/// The run that holds a lock, as far as the lock is readable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Occupant {
    pub holder: Option<Holder>,
    /// End of the lock if it is not renewed; `None` for a file, or if the lease does not name it.
    pub expires_at: Option<DateTime>,
}

impl Occupant {
    /// Formats the holder, or a placeholder if the lock does not name one.
    pub(crate) fn name(&self) -> String {
        self.holder.as_ref().map_or_else(|| "an unidentified run".to_owned(), Holder::to_string)
    }
}
