//! Progress of a run that looks at one rule after another.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use tracing::info;

use super::{LINE_EVERY, Show};
use crate::text::{clean, plural};

/// Which rule is being looked at, and what for.
pub struct Looking {
    show: Show,
    rules: usize,
    bar: ProgressBar,
    now: Mutex<String>,
}

impl Looking {
    pub fn new(show: Show, rules: usize) -> Self {
        let bar = if show == Show::Bars { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        // The template is a constant, and a spinner without style still turns.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { show, rules, bar, now: Mutex::new(String::new()) }
    }

    /// The rule with this number, from 0 on, is looked at.
    pub fn at(&self, rule: usize, namespace: &str, what: &str) {
        let now = format!("{} of {}: {}: {what}", rule + 1, plural(self.rules as u64, "rule"), clean(namespace));
        self.bar.set_message(now.clone());
        *self.now.lock() = now;
    }

    /// Writes a line every ten seconds, where lines are asked for; never ends.
    pub async fn lines(&self) {
        loop {
            tokio::time::sleep(LINE_EVERY).await;
            if self.show == Show::Lines {
                info!(target: "sweeper::progress", "{}", self.now.lock());
            }
        }
    }
}

/// The spinner goes away.
impl Drop for Looking {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
