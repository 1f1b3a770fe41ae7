//! Readings of clocks: this machine's, and the server's.

use std::time::{Duration, SystemTime};

use bson::DateTime;
use tokio::time::Instant;

use crate::base::machine::{monotonic_clock, wall_clock};

/// An instant on both clocks of this machine. The monotonic clock is not affected when the time is set; the wall clock continues
/// while the machine sleeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { monotonic: monotonic_clock(), wall: wall_clock() }
    }

    /// Returns the time since this moment, by the clock that shows more.
    pub(crate) fn elapsed(self) -> Duration {
        self.until(Self::now())
    }

    /// Returns the time from this moment to a later one, by the clock that shows more.
    pub(super) fn until(self, later: Moment) -> Duration {
        let monotonic = later.monotonic.saturating_duration_since(self.monotonic);
        monotonic.max(later.wall.duration_since(self.wall).unwrap_or_default())
    }
}

/// A reading of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ServerTime {
    pub now: DateTime,
    /// Moment just before the server was asked.
    pub asked: Moment,
}

impl ServerTime {
    /// Returns the instant of the server's clock this long after the reading.
    pub(crate) fn after(&self, time: Duration) -> DateTime {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(self.now.timestamp_millis().saturating_add(millis))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a moment after another one, by each of the clocks.
    pub(in crate::shell::lock) fn later(moment: Moment, monotonic: Duration, wall: Duration) -> Moment {
        Moment { monotonic: moment.monotonic + monotonic, wall: moment.wall + wall }
    }

    /// Returns a moment before now.
    pub(in crate::shell::lock) fn ago(time: Duration) -> Moment {
        let now = Moment::now();
        Moment { monotonic: now.monotonic - time, wall: now.wall - time }
    }

    #[test]
    fn the_clock_that_shows_more_decides() {
        const S: Duration = Duration::from_secs(1);
        let asked = Moment::now();
        assert_eq!(asked.until(later(asked, 49 * S, 49 * S)), 49 * S);
        // The machine slept, or its clock was set forward: both look the same.
        assert_eq!(asked.until(later(asked, S, 3600 * S)), 3600 * S);
        // Its clock was set back.
        let back = Moment { monotonic: asked.monotonic + 51 * S, wall: asked.wall - 3600 * S };
        assert_eq!(asked.until(back), 51 * S);
        let time = ServerTime { now: DateTime::from_millis(1_000), asked };
        assert_eq!(time.after(60 * S), DateTime::from_millis(61_000));
    }
}
