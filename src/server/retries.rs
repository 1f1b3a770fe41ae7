//! How often something that only reads is asked again.

use std::slice::Iter;
use std::time::Duration;

use mongodb::error::Error;

use super::error;
use super::overload::Overload;
use crate::pace;

/// Waits before the same command is sent again; there are as many further tries as waits.
pub const RETRY_WAITS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// Times that a service may say in a row that it has no room, and has done nothing, before it is taken at its word.
pub const MOST_REFUSALS: u32 = 20;

/// The tries of one command.
pub struct Retries {
    waits: Iter<'static, Duration>,
    refusals: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Self { waits: RETRY_WAITS.iter(), refusals: 0 }
    }
}

impl Retries {
    /// How long to wait before the next try; `None` where there is none.
    pub fn wait(&mut self, cause: &Error) -> Option<Duration> {
        match error::overload(cause) {
            Some(Overload::Throttled { retry_after }) if self.refusals < MOST_REFUSALS => {
                self.refusals += 1;
                Some(retry_after.unwrap_or_else(|| pace::back_off(self.refusals, fastrand::f64())))
            }
            Some(Overload::Throttled { .. } | Overload::TooLarge) => None,
            Some(Overload::TimedOut | Overload::Unavailable) => self.again(),
            None if error::is_retryable(cause) => self.again(),
            None => None,
        }
    }

    /// As [`Self::wait`], after trouble that may pass.
    pub fn again(&mut self) -> Option<Duration> {
        self.waits.next().copied()
    }
}
