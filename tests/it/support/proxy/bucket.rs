//! Request units by the second: who gets in, who is turned away, and who comes back too early.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What deleting one document costs.
pub const OF_A_DELETED_DOCUMENT: f64 = 10.0;

/// What every other command costs, and a `delete` that finds nothing.
pub const OF_A_COMMAND: f64 = 1.0;

/// What a query costs besides, for each document that it returns.
pub const OF_A_RETURNED_DOCUMENT: f64 = 0.1;

/// The throughput of an account.
#[derive(Debug, Clone, Copy)]
pub struct Throttle {
    pub units_per_second: f64,
    /// The most that can be saved up, and what there is at the start; enough for one document at least.
    pub burst: f64,
    /// Whether errors say `RetryAfterMs`.
    pub names_wait: bool,
}

/// What clients have made of an account.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Request units of all that was done.
    pub charged: f64,
    /// The most that could be charged up to now. A query is charged when its size is known, so the last ones may go beyond.
    pub allowed: f64,
    /// Commands that were turned away, or stopped half-way.
    pub refused: u64,
    /// Commands that came before the `RetryAfterMs` of an earlier answer was over.
    pub early: u64,
}

/// The request units of one account, shared by all its connections.
pub struct Bucket {
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

/// Answered instead of work, with the wait that the answer names.
pub struct Refused(pub Option<Duration>);

impl Bucket {
    /// Without a throttle all is let in and charged.
    pub fn new(throttle: Option<Throttle>) -> Self {
        let units = throttle.map_or(0.0, |throttle| throttle.burst);
        assert!(throttle.is_none() || units >= OF_A_DELETED_DOCUMENT, "a burst of {units} deletes nothing, ever");
        let now = Instant::now();
        let state = State { begun: now, filled: now, units, charged: 0.0, refused: 0, early: 0, closed_until: None };
        Self { throttle, state: Mutex::new(state) }
    }

    /// Lets a command in if there are so many units for it to begin with. Nothing is charged yet.
    pub fn admit(&self, units: f64) -> Result<(), Refused> {
        let mut state = self.filled();
        if state.closed_until.is_some_and(|until| Instant::now() < until) {
            state.early += 1;
        }
        match self.throttle {
            Some(throttle) if state.units < units => Err(state.refuse(throttle, units)),
            _ => Ok(()),
        }
    }

    /// Turns away what is left of a command that was let in.
    pub fn refuse(&self, units: f64) -> Refused {
        let mut state = self.filled();
        self.throttle.map_or(Refused(None), |throttle| state.refuse(throttle, units))
    }

    /// How many documents could be deleted now.
    pub fn affordable(&self) -> u64 {
        // A cast from float saturates.
        self.throttle.map_or(u64::MAX, |_| (self.filled().units / OF_A_DELETED_DOCUMENT) as u64)
    }

    /// Charges for deleting as many of so many documents as there are units for, and returns how many those are.
    pub fn reserve(&self, documents: u64) -> u64 {
        let mut state = self.filled();
        let affordable = if self.throttle.is_some() { (state.units / OF_A_DELETED_DOCUMENT) as u64 } else { u64::MAX };
        let granted = documents.min(affordable);
        state.charge(granted as f64 * OF_A_DELETED_DOCUMENT);
        granted
    }

    /// Charges for what was done. What was charged too much before is given back as a negative number.
    pub fn charge(&self, units: f64) {
        self.filled().charge(units);
    }

    pub fn usage(&self) -> Usage {
        let state = self.filled();
        let allowed = self
            .throttle
            .map_or(f64::INFINITY, |throttle| throttle.burst + throttle.units_per_second * state.begun.elapsed().as_secs_f64());
        Usage { charged: state.charged, allowed, refused: state.refused, early: state.early }
    }

    /// The state as of now.
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
        // A client that waits for so long finds what it asked for.
        let missing = (units - self.units).max(0.0) / throttle.units_per_second * 1000.0;
        let wait = Duration::from_millis(missing.ceil().max(1.0) as u64);
        let until = Instant::now() + wait;
        self.closed_until = Some(self.closed_until.map_or(until, |earlier| earlier.max(until)));
        Refused(Some(wait))
    }
}
