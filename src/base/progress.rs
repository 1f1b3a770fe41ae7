//! Progress on standard error: bars on a terminal, a line every ten seconds elsewhere.

pub(crate) mod audit;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{FormattedDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;

use crate::base::log::PROGRESS;
use crate::base::terminal::{self, Terminal};
use crate::base::text::{clean, count, plural};

/// Interval between two lines.
pub(crate) const LINE_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of rules that have a bar, or are named in a line, at the same time.
const MAX_SHOWN: usize = 6;

/// Shortest wait that is shown with its reason.
const MIN_SHOWN_WAIT: Duration = Duration::from_secs(1);

/// Time between two frames of a spinner.
const TICK: Duration = Duration::from_millis(200);

/// Form in which progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Nothing,
    Lines,
    Bars,
}

/// State of a sweep while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ProgressSample {
    pub deleted: u64,
    /// Documents per second since the sample before.
    pub per_second: u64,
    /// Expired documents of all rules together, if each rule counted them beforehand.
    pub expected: Option<u64>,
    /// `None` as long as nothing was deleted, or if it is unknown how much is left.
    pub time_left: Option<Duration>,
    pub rules: usize,
    pub rules_ended: usize,
    /// The rules that wait, each with the reason.
    pub waiting: Vec<WaitingRule>,
}

/// A rule that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingRule {
    pub namespace: String,
    /// Name of the reason in the report.
    pub reason: &'static str,
}

impl ProgressSample {
    /// Returns the expected documents that are not deleted yet.
    fn remaining(&self) -> Option<u64> {
        self.expected.map(|expected| expected.saturating_sub(self.deleted))
    }
}

/// The last sample of the sweep that runs; `None` if none does.
pub(crate) type LastSample = Arc<Mutex<Option<ProgressSample>>>;

/// Progress of a sweep.
pub(crate) struct Progress {
    show: Show,
    bars: MultiProgress,
    state: Mutex<Tally>,
    last: LastSample,
}

struct Tally {
    /// Bar of the whole run, below the bars of the rules; only if there are several rules.
    total: Option<ProgressBar>,
    rules: usize,
    ended: usize,
    deleted: u64,
    /// Expired documents of all rules together, if each rule counted them beforehand.
    expected: Option<u64>,
    begun: Instant,
    /// Instant of each line in the second half of the sweep so far, and the deletes up to then; the first is before that. The
    /// time that is left is expected from these: what begins a sweep, such as a first batch that was too large, says little.
    lines: VecDeque<(Instant, u64)>,
    running: BTreeMap<usize, Running>,
}

/// A rule that is being swept.
struct Running {
    title: String,
    deleted: u64,
    bar: ProgressBar,
    shown: bool,
    waits: Waits,
}

/// A wait: the name of its reason, the reason in words, and its beginning.
type Waits = Arc<Mutex<Option<(&'static str, String, Instant)>>>;

/// Progress of one rule; ends when dropped.
pub(crate) struct RuleProgress<'a> {
    progress: &'a Progress,
    id: usize,
}

impl Progress {
    /// Begins the progress of a sweep. `expected` is the number of expired documents of all rules together, if each rule counted
    /// them.
    pub(crate) fn new(show: Show, rules: usize, expected: Option<u64>) -> Self {
        Self::on(&terminal::stderr(), show, rules, expected)
    }

    fn on(terminal: &Terminal, show: Show, rules: usize, expected: Option<u64>) -> Self {
        let bars = MultiProgress::with_draw_target(terminal.target());
        let total = (show == Show::Bars && rules > 1).then(|| {
            let total = bars.add(bar(expected, &Waits::default()));
            total.enable_steady_tick(TICK);
            total
        });
        let now = Instant::now();
        let running = BTreeMap::new();
        let state =
            Tally { total, rules, ended: 0, deleted: 0, expected, begun: now, lines: VecDeque::from([(now, 0)]), running };
        state.name_total();
        Self { show, bars, state: Mutex::new(state), last: LastSample::default() }
    }

    /// Lets others see a sample of the sweep, from now on and after each [`Self::line`], until its end.
    pub(crate) fn seen_in(mut self, last: &LastSample) -> Self {
        self.last = last.clone();
        *self.last.lock() = Some(self.state.get_mut().sample(Instant::now()));
        self
    }

    /// Whether bars are shown, so that an expected count would be seen.
    pub(crate) fn shows_bars(&self) -> bool {
        self.show == Show::Bars
    }

    /// Begins the progress of a rule. `expected` is the number of its expired documents, if it counted them.
    pub(crate) fn begin(&self, namespace: &str, expected: Option<u64>) -> RuleProgress<'_> {
        let mut state = self.state.lock();
        let id = state.running.last_key_value().map_or(0, |(last, _)| last + 1);
        let waits = Waits::default();
        let title = namespace.to_owned();
        let bar = bar(expected, &waits);
        bar.set_prefix(clean(&title));
        state.running.insert(id, Running { title, deleted: 0, bar, shown: false, waits });
        self.fill(&mut state);
        RuleProgress { progress: self, id }
    }

    /// Gives a bar to each of the rules that have run longest.
    fn fill(&self, state: &mut Tally) {
        if self.show != Show::Bars {
            return;
        }
        for running in state.running.values_mut().take(MAX_SHOWN).filter(|running| !running.shown) {
            running.bar = match &state.total {
                Some(total) => self.bars.insert_before(total, running.bar.clone()),
                None => self.bars.add(running.bar.clone()),
            };
            running.bar.enable_steady_tick(TICK);
            running.shown = true;
        }
    }

    /// Takes a sample, and writes a line if progress is shown as lines. To be called every [`LINE_EVERY`].
    pub(crate) fn line(&self) {
        let mut state = self.state.lock();
        let sample = state.sample(Instant::now());
        *self.last.lock() = Some(sample.clone());
        if self.show != Show::Lines {
            return;
        }
        let mut line = format!("{} deleted, {} per second", count(sample.deleted), count(sample.per_second));
        if let Some(remaining) = sample.remaining() {
            let _ = write!(line, ", {} remaining", count(remaining));
        }
        if let Some(left) = sample.time_left {
            let _ = write!(line, ", eta {}", FormattedDuration(left));
        }
        if state.rules > 1 {
            let _ = write!(line, ", {} of {} done", state.ended, plural(state.rules as u64, "rule"));
        }
        for running in state.running.values().take(MAX_SHOWN) {
            let _ = write!(line, "; {} {}", running.title, count(running.deleted));
            if let Some((_, why)) = waiting(&running.waits) {
                let _ = write!(line, " (waiting: {why})");
            }
        }
        if state.running.len() > MAX_SHOWN {
            let _ = write!(line, "; and {} more", state.running.len() - MAX_SHOWN);
        }
        let waiting: Vec<String> =
            sample.waiting.iter().map(|waiting| format!("{}: {}", waiting.namespace, waiting.reason)).collect();
        info!(
            target: PROGRESS,
            event = "progress",
            expectedCount = sample.expected,
            deletedCount = sample.deleted,
            deletedPerSecond = sample.per_second,
            remainingCount = sample.remaining(),
            remainingSeconds = sample.time_left.map(|left| left.as_secs()),
            rules = sample.rules,
            rulesEnded = sample.rules_ended,
            waiting = (!waiting.is_empty()).then(|| waiting.join(", ")),
            "{line}"
        );
    }
}

impl Drop for Progress {
    /// Removes the bars at the end of the run.
    fn drop(&mut self) {
        if let Some(total) = &self.state.get_mut().total {
            total.finish_and_clear();
        }
        *self.last.lock() = None;
    }
}

impl Tally {
    /// Takes a sample.
    fn sample(&mut self, now: Instant) -> ProgressSample {
        let (since, before) = self.lines.back().copied().unwrap_or((self.begun, 0));
        let rate = per_second(self.deleted - before, now - since);
        let middle = self.begun + (now - self.begun) / 2;
        while self.lines.get(1).is_some_and(|(line, _)| *line <= middle) {
            self.lines.pop_front();
        }
        let (since, before) = self.lines.front().copied().unwrap_or((self.begun, 0));
        self.lines.push_back((now, self.deleted));
        let waiting = self
            .running
            .values()
            .filter_map(|running| Some(WaitingRule { namespace: running.title.clone(), reason: waiting(&running.waits)?.0 }));
        let sample = ProgressSample {
            deleted: self.deleted,
            per_second: rate,
            expected: self.expected,
            time_left: None,
            rules: self.rules,
            rules_ended: self.ended,
            waiting: waiting.collect(),
        };
        let left = sample.remaining().and_then(|remaining| time_left(remaining, self.deleted - before, now - since));
        ProgressSample { time_left: left, ..sample }
    }

    fn name_total(&self) {
        if let Some(total) = &self.total {
            total.set_prefix(format!("{} of {} rules", self.ended, self.rules));
        }
    }
}

impl RuleProgress<'_> {
    /// Adds the deleted documents of one reply.
    pub(crate) fn deleted(&self, documents: u64) {
        let mut state = self.progress.state.lock();
        state.deleted += documents;
        if let Some(total) = &state.total {
            total.inc(documents);
        }
        if let Some(running) = state.running.get_mut(&self.id) {
            running.deleted += documents;
            running.bar.inc(documents);
        }
    }

    /// Notes the name of the reason why the rule waits, and the reason in words, or with `None` the end of the wait.
    pub(crate) fn waits(&self, why: Option<(&'static str, &str)>) {
        if let Some(running) = self.progress.state.lock().running.get(&self.id) {
            let mut waits = running.waits.lock();
            let since = waits.take().map(|(.., since)| since);
            *waits = why.map(|(reason, why)| (reason, why.to_owned(), since.unwrap_or_else(Instant::now)));
        }
    }
}

impl Drop for RuleProgress<'_> {
    fn drop(&mut self) {
        let mut state = self.progress.state.lock();
        if let Some(running) = state.running.remove(&self.id) {
            running.bar.finish_and_clear();
            self.progress.bars.remove(&running.bar);
        }
        state.ended += 1;
        state.name_total();
        self.progress.fill(&mut state);
    }
}

/// Returns a bar if the end is known, else a count.
fn bar(expected: Option<u64>, waits: &Waits) -> ProgressBar {
    let (bar, template) = match expected {
        Some(expected) => (ProgressBar::new(expected), "{prefix} {wide_bar} {human_pos}/{human_len} {tail}"),
        None => (ProgressBar::no_length(), "{spinner} {prefix} {human_pos} deleted, {tail}"),
    };
    // It is drawn when it is added to the others.
    bar.set_draw_target(ProgressDrawTarget::hidden());
    let waits = waits.clone();
    // Writing to a string cannot fail; a cast from float saturates.
    let tail = move |state: &ProgressState, out: &mut dyn Write| {
        let _ = match (waiting(&waits), state.len()) {
            (Some((_, why)), _) => write!(out, "waiting: {}", clean(&why)),
            (None, Some(_)) => write!(out, "{}/s eta {}", count(state.per_sec() as u64), FormattedDuration(state.eta())),
            (None, None) => write!(out, "{}/s", count(state.per_sec() as u64)),
        };
    };
    // The templates are constants, and a bar without style still counts.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("tail", tail));
    }
    bar
}

/// Returns the name of the reason for a wait, and the reason in words; `None` if nothing is waited for, or not for long.
fn waiting(waits: &Waits) -> Option<(&'static str, String)> {
    let waits = waits.lock();
    let (reason, why, _) = waits.as_ref().filter(|(.., since)| since.elapsed() >= MIN_SHOWN_WAIT)?;
    Some((reason, why.clone()))
}

/// Returns the time that the remaining documents take if they take as long as those that were deleted in a time; `None` if there
/// were none.
pub(crate) fn time_left(remaining: u64, deleted: u64, elapsed: Duration) -> Option<Duration> {
    (deleted > 0)
        .then(|| Duration::try_from_secs_f64(elapsed.as_secs_f64() * remaining as f64 / deleted as f64).unwrap_or(Duration::MAX))
}

fn per_second(documents: u64, time: Duration) -> u64 {
    // A cast from float saturates.
    (documents as f64 / time.as_secs_f64().max(0.001)) as u64
}

#[cfg(test)]
mod tests;
