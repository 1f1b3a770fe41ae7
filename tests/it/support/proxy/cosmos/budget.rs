//! Request units per second: of each container, and of the metadata of the account.
//!
//! Microsoft, "Optimize request cost": a server honors requests until the units of the second are used up, and refuses those that
//! follow in the same second. Nothing is saved for later. That seconds begin with the account, and that units spent beyond the
//! last one of a second are missing in the next, are assumptions.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::recorder::Recorder;

/// One budget, shared by all connections.
pub(super) struct Budget {
    /// `None` for no limit.
    per_second: Option<f64>,
    /// Length of a second of the service.
    second: Duration,
    /// Whether refusals name the time after which the second is over.
    names_wait: bool,
    state: Mutex<State>,
}

struct State {
    /// Beginning of the current second.
    begun: Instant,
    used: f64,
    closed_until: Option<Instant>,
}

/// The reason why a command cannot go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stop {
    /// The units of this second are used up; the wait is the one that the reply names.
    Throttled(Option<Duration>),
    /// The time of a command is over.
    TimedOut,
}

impl Budget {
    pub(super) fn new(per_second: Option<f64>, second: Duration, names_wait: bool) -> Self {
        assert!(per_second.is_none_or(|units| units > 0.0), "no units: {per_second:?}");
        let state = State { begun: Instant::now(), used: 0.0, closed_until: None };
        Self { per_second, second, names_wait, state: Mutex::new(state) }
    }

    /// Whether a command that arrives now is sent before the time that an earlier reply named.
    fn is_early(&self) -> bool {
        self.now().0.closed_until.is_some_and(|until| Instant::now() < until)
    }

    /// Spends all of these units if one is left in this second; otherwise returns the wait until one is.
    fn spend(&self, units: f64) -> Result<(), Duration> {
        let (mut state, left) = self.now();
        if left > 0.0 {
            state.used += units;
            return Ok(());
        }
        Err(self.until_room(&state))
    }

    /// Spends as many of these units as are left in this second, and returns the number.
    fn spend_part(&self, units: f64) -> Result<f64, Duration> {
        let (mut state, left) = self.now();
        let part = units.min(left);
        if part > 0.0 || units <= 0.0 {
            state.used += part;
            return Ok(part);
        }
        Err(self.until_room(&state))
    }

    fn close(&self, wait: Duration) -> Option<Duration> {
        // Whole milliseconds, after which there is room.
        let wait = Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) + 1);
        let mut state = self.now().0;
        let until = Instant::now() + wait;
        self.names_wait.then(|| {
            state.closed_until = Some(state.closed_until.map_or(until, |earlier| earlier.max(until)));
            wait
        })
    }

    /// Returns the state of the current second, and the units left in it.
    fn now(&self) -> (MutexGuard<'_, State>, f64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seconds = 0.0;
        while state.begun.elapsed() >= self.second {
            state.begun += self.second;
            seconds += 1.0;
        }
        let Some(per_second) = self.per_second else { return (state, f64::INFINITY) };
        state.used = (state.used - per_second * seconds).max(0.0);
        let left = per_second - state.used;
        (state, left)
    }

    fn until_room(&self, state: &State) -> Duration {
        let per_second = self.per_second.unwrap_or(f64::INFINITY);
        // Units spent in advance fill further seconds.
        let seconds = (state.used / per_second).floor().max(1.0);
        (state.begun + self.second.mul_f64(seconds)).saturating_duration_since(Instant::now())
    }
}

/// The units that one command spends.
pub(super) struct Purse<'a> {
    budget: &'a Budget,
    recorder: &'a Recorder,
    command: &'a str,
    namespace: &'a str,
    deadline: Instant,
    /// Whether the service repeats throttled requests itself.
    repeats: bool,
    /// Units spent since the last entry of the recorder.
    unrecorded: f64,
    spent: f64,
}

impl<'a> Purse<'a> {
    pub(super) fn new(
        budget: &'a Budget,
        recorder: &'a Recorder,
        (command, namespace): (&'a str, &'a str),
        (time_limit, repeats): (Duration, bool),
    ) -> Self {
        if budget.is_early() {
            recorder.early();
        }
        let deadline = Instant::now() + time_limit;
        Self { budget, recorder, command, namespace, deadline, repeats, unrecorded: 0.0, spent: 0.0 }
    }

    /// Returns the namespace that the command names.
    pub(super) fn namespace(&self) -> &'a str {
        self.namespace
    }

    /// Returns the units spent so far.
    pub(super) fn spent(&self) -> f64 {
        self.spent
    }

    /// Spends units, or refuses to if none are left in this second. With "server-side retry" ("Prevent rate-limiting errors") the
    /// service waits instead.
    pub(super) async fn spend(&mut self, units: f64) -> Result<(), Stop> {
        while let Err(wait) = self.budget.spend(units) {
            if !self.repeats {
                self.recorder.refused();
                return Err(Stop::Throttled(self.budget.close(wait)));
            }
            self.sleep(wait).await?;
        }
        self.note(units);
        Ok(())
    }

    /// Spends units of this second and, if they do not suffice, of the seconds that follow. Microsoft, "Optimize request cost": a
    /// query runs in pages as fast as the available units allow. That the gateway waits between them is an assumption.
    pub(super) async fn spend_in_pages(&mut self, units: f64) -> Result<(), Stop> {
        let mut left = units;
        while left > 0.0 {
            match self.budget.spend_part(left) {
                Ok(part) => {
                    self.note(part);
                    left -= part;
                }
                Err(wait) => self.sleep(wait).await?,
            }
        }
        Ok(())
    }

    /// Waits, at most until the time of the command is over.
    async fn sleep(&mut self, wait: Duration) -> Result<(), Stop> {
        self.record();
        let left = self.deadline.saturating_duration_since(Instant::now());
        tokio::time::sleep(wait.min(left)).await;
        if wait >= left { Err(Stop::TimedOut) } else { Ok(()) }
    }

    fn note(&mut self, units: f64) {
        self.unrecorded += units;
        self.spent += units;
    }

    fn record(&mut self) {
        let units = std::mem::take(&mut self.unrecorded);
        if units > 0.0 {
            self.recorder.charge(self.command, self.namespace, units);
        }
    }
}

impl Drop for Purse<'_> {
    fn drop(&mut self) {
        self.record();
    }
}
