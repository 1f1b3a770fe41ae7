//! Progress of an audit.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tracing::info;

use super::{LINE_EVERY, Show, TICK};
use crate::base::log::PROGRESS;
use crate::base::terminal;
use crate::base::text::{clean, plural};

/// Progress of an audit, which examines one rule after another.
pub(crate) struct AuditProgress {
    show: Show,
    rules: usize,
    spinner: ProgressBar,
    message: Mutex<String>,
}

impl AuditProgress {
    pub(crate) fn new(show: Show, rules: usize) -> Self {
        let target = if show == Show::Bars { terminal::stderr().target() } else { ProgressDrawTarget::hidden() };
        let spinner = ProgressBar::with_draw_target(None, target);
        // The template is a constant, and a spinner without style still turns.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            spinner.set_style(style);
        }
        spinner.enable_steady_tick(TICK);
        Self { show, rules, spinner, message: Mutex::new(String::new()) }
    }

    /// Notes that the rule with this number, counted from 0, is examined for `what`.
    pub(crate) fn at(&self, rule: usize, namespace: &str, what: &str) {
        let message = format!("{} of {}: {}: {what}", rule + 1, plural(self.rules as u64, "rule"), namespace);
        self.spinner.set_message(clean(&message));
        *self.message.lock() = message;
    }

    /// Writes a line every [`LINE_EVERY`], if progress is shown as lines. Never returns.
    pub(crate) async fn lines(&self) {
        loop {
            tokio::time::sleep(LINE_EVERY).await;
            if self.show == Show::Lines {
                info!(target: PROGRESS, "{}", self.message.lock());
            }
        }
    }
}

impl Drop for AuditProgress {
    fn drop(&mut self) {
        self.spinner.finish_and_clear();
    }
}
