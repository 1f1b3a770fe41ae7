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

    /// Returns the start at the first multiple after `now`, both as times since 1970. Starts that were missed meanwhile are
    /// skipped. `random`, from 0 to 1, decides the jitter.
    pub(crate) fn next(&self, now: Duration, random: f64) -> Duration {
        let (share, max) = MAX_JITTER;
        let every = self.every.as_nanos().max(1);
        let left = every - now.as_nanos() % every;
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        now.saturating_add(left).saturating_add(self.every.mul_f64(share).min(max).mul_f64(random))
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
            assert_eq!(exact.next(Duration::from_secs(now), 0.0), Duration::from_secs(next), "{now}");
        }
        // A run that began at 60 and took until 250.
        assert_eq!(exact.next(Duration::from_secs(250), 0.0), 5 * MINUTE);
        let weekly = Schedule::new(Duration::from_secs(604_800));
        assert_eq!(weekly.next(Duration::from_secs(1_700_000_000), 0.0).as_secs() % 604_800, 0);
    }

    #[test]
    fn the_jitter_is_small_and_its_own_for_each_run() {
        let schedule = Schedule::new(MINUTE);
        let first = schedule.next(Duration::from_secs(1000), 0.5);
        assert_eq!(first, Duration::from_millis(1_021_500));
        assert_eq!(schedule.next(first, 1.0), Duration::from_secs(1083));
        assert_eq!(schedule.next(Duration::from_secs(1083), 0.0), Duration::from_secs(1140));
        let daily = Schedule::new(Duration::from_secs(86_400));
        assert_eq!(daily.next(Duration::ZERO, 1.0), Duration::from_secs(86_430));
    }
}
