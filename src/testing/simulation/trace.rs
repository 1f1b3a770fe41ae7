//! The steps of a simulation: counted and digested always, told in words only for a replay.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The steps so far.
#[derive(Clone)]
pub(super) struct Trace(Arc<Mutex<State>>);

struct State {
    begun: Instant,
    steps: u64,
    digest: u64,
    deleted: u64,
    borders: BTreeMap<String, u64>,
    lines: Option<Vec<String>>,
    violation: Option<Violation>,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    /// Number of the step after which it was seen.
    pub step: u64,
    pub what: String,
}

/// All that is left of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndedSimulation {
    pub steps: u64,
    /// A digest of all steps: two simulations of one seed have the same.
    pub digest: u64,
    /// Documents that runs deleted while there was trouble.
    pub deleted: u64,
    /// Numbers of the documents at the borders of what is promised, by the names of these.
    pub borders: BTreeMap<String, u64>,
    pub lines: Vec<String>,
    pub violation: Option<Violation>,
}

impl Trace {
    /// Begins a trace, in words if `is_told`.
    pub(super) fn new(is_told: bool) -> Self {
        let lines = is_told.then(Vec::new);
        Self(Arc::new(Mutex::new(State {
            begun: Instant::now(),
            steps: 0,
            digest: 0,
            deleted: 0,
            borders: BTreeMap::new(),
            lines,
            violation: None,
        })))
    }

    /// Notes a step: by a number that tells it from others, and in words.
    pub(super) fn step(&self, number: u64, words: impl FnOnce() -> String) {
        let mut state = self.0.lock();
        state.steps += 1;
        let millis = u64::try_from(state.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        for part in [millis, number] {
            // FNV-1a, by words instead of bytes.
            state.digest = (state.digest ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
        let step = state.steps;
        if let Some(lines) = &mut state.lines {
            let line = format!("{step:>5} {:>10.3} {}", millis as f64 / 1000.0, words());
            lines.push(line);
        }
    }

    /// Counts a document that a run deleted while there was trouble.
    pub(super) fn deleted(&self) {
        self.0.lock().deleted += 1;
    }

    /// Counts a document at a border of what is promised.
    pub(super) fn at_border(&self, border: String) {
        *self.0.lock().borders.entry(border).or_default() += 1;
    }

    /// Notes that a promise was broken; the first one counts.
    pub(super) fn violated(&self, what: impl FnOnce() -> String) {
        let mut state = self.0.lock();
        if state.violation.is_none() {
            let violation = Violation { step: state.steps, what: what() };
            if let Some(lines) = &mut state.lines {
                lines.push(format!("      VIOLATION {}", violation.what));
            }
            state.violation = Some(violation);
        }
    }

    pub(super) fn end(&self) -> EndedSimulation {
        let state = self.0.lock();
        EndedSimulation {
            steps: state.steps,
            digest: state.digest,
            deleted: state.deleted,
            borders: state.borders.clone(),
            lines: state.lines.clone().unwrap_or_default(),
            violation: state.violation.clone(),
        }
    }
}

/// Returns a number that tells a text from others.
pub(super) fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
