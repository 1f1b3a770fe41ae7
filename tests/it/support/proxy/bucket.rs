//! Request units per second: admits commands, refuses them, and counts those that are retried too early.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Charge for deleting one document.
pub(crate) const OF_A_DELETED_DOCUMENT: f64 = 10.0;

/// Charge for any other command, and for a `delete` that finds nothing.
pub(crate) const OF_A_COMMAND: f64 = 1.0;

/// Additional charge for each document that a query returns.
pub(crate) const OF_A_RETURNED_DOCUMENT: f64 = 0.1;

/// The throughput of an account.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Throttle {
    pub units_per_second: f64,
    /// Maximum number of saved units, available from the start; enough for at least one document.
    pub burst: f64,
    /// Whether errors contain `RetryAfterMs`.
    pub names_wait: bool,
}

/// Consumption of request units by clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    /// Units charged so far.
    pub charged: f64,
    /// Units that could have been charged so far. A query is charged once its size is known, so the last queries may exceed this.
    pub allowed: f64,
    /// Commands that were refused, or stopped half-way.
    pub refused: u64,
    /// Commands received before the `RetryAfterMs` of an earlier reply had passed.
    pub early: u64,
}

/// The request units of one account, shared by all its connections.
pub(crate) struct Bucket {
    throttle: Option<Throttle>,
    state: Mutex<State>,
}

struct State {
    begun: Instant,
    filled: Instant,
    units: f64,
    charged: f64,
    refused: u64,
    early: u64,
    closed_until: Option<Instant>,
}

/// A refusal, with the wait that the reply names.
pub(crate) struct Refused(pub Option<Duration>);

impl Bucket {
    /// Creates a bucket; without a throttle it admits and charges every command.
    pub(crate) fn new(throttle: Option<Throttle>) -> Self {
        let units = throttle.map_or(0.0, |throttle| throttle.burst);
        assert!(throttle.is_none() || units >= OF_A_DELETED_DOCUMENT, "a burst of {units} never suffices for a delete");
        let now = Instant::now();
        let state = State { begun: now, filled: now, units, charged: 0.0, refused: 0, early: 0, closed_until: None };
        Self { throttle, state: Mutex::new(state) }
    }

    /// Admits a command if this many units are available. Nothing is charged yet.
    pub(crate) fn admit(&self, units: f64) -> Result<(), Refused> {
        let mut state = self.filled();
        if state.closed_until.is_some_and(|until| Instant::now() < until) {
            state.early += 1;
        }
        match self.throttle {
            Some(throttle) if state.units < units => Err(state.refuse(throttle, units)),
            _ => Ok(()),
        }
    }

    /// Refuses the rest of a command that was admitted.
    pub(crate) fn refuse(&self, units: f64) -> Refused {
        let mut state = self.filled();
        self.throttle.map_or(Refused(None), |throttle| state.refuse(throttle, units))
    }

    /// Returns the number of documents that could be deleted now.
    pub(crate) fn affordable(&self) -> u64 {
        // A cast from float saturates.
        self.throttle.map_or(u64::MAX, |_| (self.filled().units / OF_A_DELETED_DOCUMENT) as u64)
    }

    /// Charges for deleting as many of the documents as the units allow, and returns their number.
    pub(crate) fn reserve(&self, documents: u64) -> u64 {
        let mut state = self.filled();
        let affordable = if self.throttle.is_some() { (state.units / OF_A_DELETED_DOCUMENT) as u64 } else { u64::MAX };
        let granted = documents.min(affordable);
        state.charge(granted as f64 * OF_A_DELETED_DOCUMENT);
        granted
    }

    /// Charges for completed work. A negative number returns units that were charged in excess.
    pub(crate) fn charge(&self, units: f64) {
        self.filled().charge(units);
    }

    pub(crate) fn usage(&self) -> Usage {
        let state = self.filled();
        let allowed = self
            .throttle
            .map_or(f64::INFINITY, |throttle| throttle.burst + throttle.units_per_second * state.begun.elapsed().as_secs_f64());
        Usage { charged: state.charged, allowed, refused: state.refused, early: state.early }
    }

    /// Returns the state with the units gained until now.
    fn filled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(throttle) = self.throttle {
            let gained = (now - state.filled).as_secs_f64() * throttle.units_per_second;
            state.units = (state.units + gained).min(throttle.burst);
        }
        state.filled = now;
        state
    }
}

impl State {
    fn charge(&mut self, units: f64) {
        self.units -= units;
        self.charged += units;
    }

    fn refuse(&mut self, throttle: Throttle, units: f64) -> Refused {
        self.refused += 1;
        if !throttle.names_wait {
            return Refused(None);
        }
        // After this wait the client finds the units that it needs.
        let missing = (units - self.units).max(0.0) / throttle.units_per_second * 1000.0;
        let wait = Duration::from_millis(missing.ceil().max(1.0) as u64);
        let until = Instant::now() + wait;
        self.closed_until = Some(self.closed_until.map_or(until, |earlier| earlier.max(until)));
        Refused(Some(wait))
    }
}
