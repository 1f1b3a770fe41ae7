//! The schedule of `sweep --every`.

use std::time::Duration;

/// Maximum delay of a run after the full multiple: a share of the interval, and an absolute limit.
const MAX_JITTER: (f64, Duration) = (0.05, Duration::from_secs(30));

/// Start times of runs: the multiples of an interval since 1970, all delayed by the same small jitter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    every: Duration,
    jitter: Duration,
}

impl Schedule {
    /// Creates a schedule. `random`, from 0 to 1, decides the jitter.
    pub(crate) fn new(every: Duration, random: f64) -> Self {
        let (share, max) = MAX_JITTER;
        Self { every, jitter: every.mul_f64(share).min(max).mul_f64(random) }
    }

    /// Returns the first start after `now`, both as times since 1970. Starts that were missed meanwhile are skipped.
    pub(crate) fn next(&self, now: Duration) -> Duration {
        let every = self.every.as_nanos().max(1);
        let since = now.saturating_sub(self.jitter).as_nanos() % every;
        let left = Duration::from_nanos(u64::try_from(every - since).unwrap_or(u64::MAX));
        now.saturating_add(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn runs_begin_at_multiples_since_1970_and_those_that_are_missed_are_left_out() {
        let exact = Schedule::new(MINUTE, 0.0);
        for (now, next) in [(0, 60), (59, 60), (60, 120), (61, 120), (1_000_000_019, 1_000_000_020)] {
            assert_eq!(exact.next(Duration::from_secs(now)), Duration::from_secs(next), "{now}");
        }
        // A run that began at 60 and took until 250.
        assert_eq!(exact.next(Duration::from_secs(250)), 5 * MINUTE);
        let weekly = Schedule::new(Duration::from_secs(604_800), 0.0);
        assert_eq!(weekly.next(Duration::from_secs(1_700_000_000)).as_secs() % 604_800, 0);
    }

    #[test]
    fn the_jitter_is_the_same_for_every_run_and_small() {
        let late = Schedule::new(MINUTE, 0.5);
        assert_eq!(late.jitter, Duration::from_millis(1500));
        let first = late.next(Duration::from_secs(1000));
        assert_eq!(first, Duration::from_millis(1_021_500));
        assert_eq!(late.next(first), first + MINUTE);
        assert_eq!(late.next(first - Duration::from_nanos(1)), first);
        assert_eq!(late.next(Duration::ZERO), MINUTE);
        assert_eq!(Schedule::new(Duration::from_secs(86_400), 1.0).jitter, Duration::from_secs(30));
    }
}
