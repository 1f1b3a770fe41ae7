//! `sweep --every`: stays, and runs again and again, as the TTL monitor does. Every run is one of its own, and a failed one is not the end.

use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::deliver::{self, Output};
use super::record::Record;
use super::{Begun, Run, begin, confirm, load, new_id, recorded, refuse_invisible, sweep};
use crate::cli::{Common, SweepArgs};
use crate::failure::{self, Failure};
use crate::policy::Policy;
use crate::stop::{Stop, file};
use crate::{exit, report};

/// A wait looks at the clock this often: it may be set, and the machine may sleep.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs begin later than at the full multiple by this share of the interval at most, and by no more than this time.
const JITTER: (f64, Duration) = (0.05, Duration::from_secs(30));

/// When runs begin: at the multiples of an interval since 1970, all later by the same little time.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    every: Duration,
    jitter: Duration,
}

impl Schedule {
    /// `random` is from 0 to 1, and decides how much later.
    fn new(every: Duration, random: f64) -> Self {
        let (share, most) = JITTER;
        Self { every, jitter: every.mul_f64(share).min(most).mul_f64(random) }
    }

    /// The first beginning after an instant; both as times since 1970. Those that have passed meanwhile are left out.
    fn next(&self, now: Duration) -> Duration {
        let every = self.every.as_nanos().max(1);
        let since = now.saturating_sub(self.jitter).as_nanos() % every;
        let left = Duration::from_nanos(u64::try_from(every - since).unwrap_or(u64::MAX));
        now.saturating_add(left)
    }
}

/// What the runs go by.
struct Going {
    policy: Policy,
    uri: String,
}

/// Runs until a signal comes; gives the exit code.
///
/// Errors: what makes no sense, found before or by the first run; or a signal that came before a run had anything to report.
pub(super) async fn stay(record: Record, common: &Common, args: &SweepArgs, every: Duration, id: &str) -> anyhow::Result<u8> {
    if !args.dry_run && confirm::can_ask(args.yes) {
        let failure = Failure::usage("--every: there is nobody to ask each time; nothing was contacted");
        return Err(failure.hint("say --yes, once `sweep --dry-run` shows what you expect").into());
    }
    let (mut going, stop, outputs) = start(common, id).inspect_err(|cause| record.failed(cause))?;
    let mut hangup = signal(SignalKind::hangup())?;
    let schedule = Schedule::new(every, fastrand::f64());
    let (mut first, mut is_first, mut skips) = (Some((record, id.to_owned(), outputs)), true, false);
    loop {
        if hangup.recv().now_or_never().is_some() {
            going.read_anew(common);
        }
        if let Some(why) = args.stop_file.as_deref().and_then(file::found) {
            if !skips {
                warn!("{why}: no run begins until it is gone");
            }
            skips = true;
        } else {
            skips = false;
            match going.once(common, args, &stop, first.take()).await {
                Ok(_) => {}
                Err(cause) if stop.exit_code().is_some() => return Err(cause),
                Err(cause) if is_first && failure::exit_code(&cause) == exit::USAGE => return Err(cause),
                Err(cause) => failure::say(&cause, common.quiet),
            }
            is_first = false;
        }
        let (next, begun) = (schedule.next(since_1970()), Instant::now());
        info!("the next run begins at {}", shown(next));
        while stop.exit_code().is_none() && since_1970() < next && begun.elapsed() <= every {
            tokio::select! {
                () = tokio::time::sleep(next.saturating_sub(since_1970()).min(LOOK_EVERY)) => {}
                _ = hangup.recv() => going.read_anew(common),
                () = stop.asked() => {}
            }
        }
        if let Some(code) = stop.exit_code() {
            return Ok(code);
        }
    }
}

/// What the first run begins with.
type First = (Record, String, Vec<Output>);

fn start(common: &Common, id: &str) -> anyhow::Result<(Going, Stop, Vec<Output>)> {
    let Begun { run: Run { policy, stop, .. }, uri, outputs } = begin(common, id)?;
    refuse_invisible(&policy)?;
    Ok((Going { policy, uri: uri.require()? }, stop, outputs))
}

impl Going {
    /// One run, its report and its records; gives its exit code, which only a log sees.
    async fn once(&self, common: &Common, args: &SweepArgs, stop: &Stop, first: Option<First>) -> anyhow::Result<u8> {
        let (record, id, outputs) = match first {
            Some((record, id, outputs)) => (record, id, Ok(outputs)),
            None => (Record::open(args)?, new_id(), deliver::pair(common).and_then(deliver::open)),
        };
        let swept = async {
            let outputs = outputs?;
            let run = Run::new(&id, self.policy.clone(), stop.clone());
            Ok((sweep::sweep(run, common, args, &self.uri).await?, outputs))
        };
        recorded(&record, common, swept).await
    }

    /// Reads the policy again. Where it is not valid the one from before stays.
    fn read_anew(&mut self, common: &Common) {
        match read(common) {
            Ok(going) => {
                *self = going;
                let Policy { path, sha256, .. } = &self.policy;
                info!(target: "sweeper::progress", "policy {path} read anew (sha256 {})", &sha256[..12]);
            }
            Err(cause) => error!("{cause:#}\nthe runs go on by the policy from before"),
        }
    }
}

fn read(common: &Common) -> anyhow::Result<Going> {
    let (policy, uri) = load::load(common)?;
    refuse_invisible(&policy)?;
    Ok(Going { policy, uri: uri.require()? })
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn shown(since_1970: Duration) -> String {
    report::rfc3339(bson::DateTime::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)))
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
