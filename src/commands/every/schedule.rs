//! The schedule of `sweep --every`.

use std::time::Duration;

/// Maximum delay of a run after the full multiple: a share of the interval, and an absolute limit.
const MAX_JITTER: (f64, Duration) = (0.05, Duration::from_secs(30));

/// Start times of runs: the multiples of an interval since 1970, each delayed by a small jitter of its own. Of two services that
/// share a lock, sometimes the one and sometimes the other is first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    every: Duration,
}

impl Schedule {
    /// Creates a schedule.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every }
    }

    /// Returns the start at the first multiple after `now`, which is a time since 1970. Starts that were missed meanwhile are
    /// skipped. `random`, from 0 to 1, decides the jitter.
    pub(crate) fn next(&self, now: Duration, random: f64) -> NextStart {
        let (share, max) = MAX_JITTER;
        let every = self.every.as_nanos().max(1);
        let left = every - now.as_nanos() % every;
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        let wait = left.saturating_add(self.every.mul_f64(share).min(max).mul_f64(random));
        NextStart { at: now.saturating_add(wait), wait }
    }
}

/// Start of the next run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextStart {
    /// Time since 1970.
    pub at: Duration,
    /// Time until then, as the clock showed it once the last run had ended.
    wait: Duration,
}

impl NextStart {
    /// Returns the time that is left at `now`, a time since 1970; `None` if it is time. Under a clock that was set back the wait
    /// is as long as it was to be, of which `waited` is over.
    pub(crate) fn left(&self, now: Duration, waited: Duration) -> Option<Duration> {
        let left = self.at.saturating_sub(now).min(self.wait.saturating_sub(waited));
        Some(left).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn runs_begin_at_multiples_since_1970_and_those_that_are_missed_are_left_out() {
        let exact = Schedule::new(MINUTE);
        for (now, next) in [(0, 60), (59, 60), (60, 120), (61, 120), (1_000_000_019, 1_000_000_020)] {
            assert_eq!(exact.next(Duration::from_secs(now), 0.0).at, Duration::from_secs(next), "{now}");
        }
        // A run that began at 60 and took until 250.
        assert_eq!(exact.next(Duration::from_secs(250), 0.0).at, 5 * MINUTE);
        let weekly = Schedule::new(Duration::from_secs(604_800));
        assert_eq!(weekly.next(Duration::from_secs(1_700_000_000), 0.0).at.as_secs() % 604_800, 0);
    }

    #[test]
    fn the_jitter_is_small_and_its_own_for_each_run() {
        let schedule = Schedule::new(MINUTE);
        let first = schedule.next(Duration::from_secs(1000), 0.5).at;
        assert_eq!(first, Duration::from_millis(1_021_500));
        assert_eq!(schedule.next(first, 1.0).at, Duration::from_secs(1083));
        assert_eq!(schedule.next(Duration::from_secs(1083), 0.0).at, Duration::from_secs(1140));
        let daily = Schedule::new(Duration::from_secs(86_400));
        assert_eq!(daily.next(Duration::ZERO, 1.0).at, Duration::from_secs(86_430));
    }

    #[test]
    fn a_wait_is_as_long_as_the_jitter_makes_it_and_no_longer_under_a_clock_that_was_set_back() {
        let seconds = Duration::from_secs;
        // A run that began without a delay and took no time.
        let next = Schedule::new(MINUTE).next(seconds(1020), 1.0);
        for (now, waited, left) in [
            (1020, 0, Some(63)),
            (1080, 60, Some(3)),
            (1082, 62, Some(1)),
            (1083, 63, None),
            // The clock was set forward, or the machine slept; the clock was set back.
            (5000, 1, None),
            (20, 60, Some(3)),
            (20, 63, None),
        ] {
            assert_eq!(next.left(seconds(now), seconds(waited)), left.map(seconds), "{now} {waited}");
        }
    }
}
