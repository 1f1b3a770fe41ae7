//! Progress on stderr: a bar on a terminal, a line every ten seconds elsewhere.

use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use tracing::info;

use crate::report::text::{clean, count};

const LINE_EVERY: Duration = Duration::from_secs(10);

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    Nothing,
    Lines,
    Bar,
}

/// The progress of the rule that is being swept.
pub struct Progress {
    show: Show,
    state: Mutex<State>,
}

struct State {
    title: String,
    bar: ProgressBar,
    deleted: u64,
    begun: Instant,
    last_line: Instant,
}

impl Progress {
    pub fn new(show: Show) -> Self {
        let now = Instant::now();
        let state = State { title: String::new(), bar: ProgressBar::hidden(), deleted: 0, begun: now, last_line: now };
        Self { show, state: Mutex::new(state) }
    }

    /// A rule begins; `expected` is how many documents it counted before, if it did.
    pub fn begin(&self, namespace: &str, expected: Option<u64>) {
        let mut state = self.lock();
        state.title = clean(namespace);
        state.deleted = 0;
        state.begun = Instant::now();
        if self.show == Show::Bar {
            let (bar, template) = match expected {
                Some(expected) => (ProgressBar::new(expected), "{msg} {wide_bar} {human_pos}/{human_len} {rate} eta {eta}"),
                None => (ProgressBar::new_spinner(), "{spinner} {msg} {human_pos} deleted, {rate}"),
            };
            // The templates are constants, and a bar without style still counts.
            if let Ok(style) = ProgressStyle::with_template(template) {
                // indicatif's own {per_sec} shows four decimals.
                let rate = |state: &ProgressState, out: &mut dyn Write| {
                    // Writing to a string cannot fail; a cast from float saturates.
                    let _ = write!(out, "{}/s", count(state.per_sec() as u64));
                };
                bar.set_style(style.with_key("rate", rate));
            }
            bar.set_message(state.title.clone());
            bar.enable_steady_tick(Duration::from_millis(200));
            state.bar = bar;
        }
    }

    /// Documents were deleted.
    pub fn deleted(&self, documents: u64) {
        let mut state = self.lock();
        state.deleted += documents;
        state.bar.inc(documents);
        if self.show == Show::Lines && state.last_line.elapsed() >= LINE_EVERY {
            state.last_line = Instant::now();
            let rate = state.deleted as f64 / state.begun.elapsed().as_secs_f64();
            info!(target: "sweeper::progress", "{}: {} deleted, {} per second", state.title, count(state.deleted), count(rate as u64));
        }
    }

    /// The rule has ended; its bar goes away.
    pub fn end(&self) {
        self.lock().bar.finish_and_clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic elsewhere leaves nothing half-done in here.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
