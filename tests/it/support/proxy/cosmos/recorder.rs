//! The record of what commands cost, for tests to ask.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::charges::METADATA;

/// Units that a command was charged. A command that had to wait for further seconds is charged in several of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Charge {
    pub command: String,
    /// `database.collection`; empty for a command without a collection.
    pub namespace: String,
    pub units: f64,
    pub at: Instant,
    /// Whether the units belong to the account's metadata.
    pub of_metadata: bool,
}

/// The consumption of request units by all clients.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Usage {
    /// All charges, in the order of time.
    pub charges: Vec<Charge>,
    /// Commands that were refused, or stopped half-way.
    pub refused: u64,
    /// Commands received before the `RetryAfterMs` of an earlier reply had passed.
    pub early: u64,
}

impl Usage {
    /// Returns the units charged for all commands, metadata included.
    pub(crate) fn charged(&self) -> f64 {
        self.charges.iter().map(|charge| charge.units).sum()
    }

    /// Returns the units charged for commands of one name.
    pub(crate) fn charged_for(&self, command: &str) -> f64 {
        self.charges.iter().filter(|charge| charge.command == command).map(|charge| charge.units).sum()
    }

    /// Returns the most units that containers charged within a time of this length, wherever it begins.
    pub(crate) fn most_within(&self, time: Duration) -> f64 {
        let charges: Vec<&Charge> = self.charges.iter().filter(|charge| !charge.of_metadata).collect();
        let within = |begin: Instant| {
            let inside = charges.iter().filter(|charge| charge.at >= begin && charge.at < begin + time);
            inside.map(|charge| charge.units).sum::<f64>()
        };
        charges.iter().map(|charge| within(charge.at)).fold(0.0, f64::max)
    }
}

/// The record of one account.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Usage>);

impl Recorder {
    pub(super) fn charge(&self, command: &str, namespace: &str, units: f64) {
        let of_metadata = METADATA.contains(&command);
        let (command, namespace) = (command.to_owned(), namespace.to_owned());
        self.usage().charges.push(Charge { command, namespace, units, at: Instant::now(), of_metadata });
    }

    pub(super) fn refused(&self) {
        self.usage().refused += 1;
    }

    pub(super) fn early(&self) {
        self.usage().early += 1;
    }

    pub(super) fn usage(&self) -> MutexGuard<'_, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
