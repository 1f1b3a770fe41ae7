//! Locks, so that two runs never sweep the same at the same time: a file on one machine, leases in the database between several.

pub mod file;
pub mod lease;

use std::fmt;

use bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::instant::rfc3339;
use crate::text::clean;

/// Who has a lock, for those who do not get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub run_id: String,
    pub host: String,
    pub pid: u32,
    /// RFC 3339.
    pub since: String,
}

impl Holder {
    /// This process, from an instant on.
    pub fn me(run_id: &str, since: DateTime) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { run_id: run_id.to_owned(), host, pid: std::process::id(), since: rfc3339(since) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { run_id, host, pid, since } = self;
        write!(f, "run {} on {}, process {pid}, since {}", clean(run_id), clean(host), clean(since))
    }
}

/// As [`Holder`] shows it; one that does not say who it is has no name.
pub fn named(holder: Option<&Holder>) -> String {
    holder.map_or_else(|| "a run that does not say who it is".to_owned(), Holder::to_string)
}
