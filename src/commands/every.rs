//! `sweep --every`: keeps running and sweeps at every multiple of an interval, as the TTL monitor does.
//!
//! Each sweep is a run of its own, and a failed one does not end the process.

use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::load::{self, Uri};
use super::outputs::{self, Output};
use super::record::Record;
use super::session::{Session, new_id, refuse_invisible};
use super::{confirm, sweep};
use crate::cli::{Common, SweepArgs};
use crate::failure::{self, Failure};
use crate::policy::Policy;
use crate::schedule::Schedule;
use crate::stop::{self, Stop};
use crate::{exit, instant, log};

/// Interval between two looks at the clock during a wait, because the clock may be set and the machine may sleep.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The input of a run that SIGHUP reads again.
struct Reloadable {
    policy: Policy,
    uri: Uri,
}

/// Sweeps until a signal comes, and returns the exit code.
///
/// Errors: a usage error found before or during the first run, or a signal before the first report.
pub(super) async fn command(options: &Common, args: &SweepArgs, every: Duration, id: &str) -> anyhow::Result<u8> {
    outputs::check_conflicts(options, Some(args))?;
    let record = Record::open(args)?;
    let (mut reloadable, stop, outputs) = start(options, args, id).inspect_err(|cause| record.failed(cause))?;
    let mut hangup = signal(SignalKind::hangup())?;
    let schedule = Schedule::new(every, fastrand::f64());
    let (mut first, mut is_first, mut is_held_back) = (Some((record, id.to_owned(), outputs)), true, false);
    loop {
        if hangup.recv().now_or_never().is_some() {
            reloadable.reload(options);
        }
        if let Some(why) = args.stop_file.as_deref().and_then(stop::find_file) {
            if !is_held_back {
                warn!("{why}: no run begins until it is gone");
            }
            is_held_back = true;
        } else {
            is_held_back = false;
            match reloadable.run(options, args, &stop, first.take()).await {
                Ok(_) => {}
                Err(cause) if stop.exit_code().is_some() => return Err(cause),
                Err(cause) if is_first && failure::exit_code(&cause) == exit::USAGE => return Err(cause),
                Err(cause) => failure::log(&cause, options.quiet),
            }
            is_first = false;
        }
        let (next, begun) = (schedule.next(since_1970()), Instant::now());
        info!("the next run begins at {}", shown(next));
        while stop.exit_code().is_none() && since_1970() < next && begun.elapsed() <= every {
            tokio::select! {
                () = tokio::time::sleep(next.saturating_sub(since_1970()).min(LOOK_EVERY)) => {}
                _ = hangup.recv() => reloadable.reload(options),
                () = stop.asked() => {}
            }
        }
        if let Some(code) = stop.exit_code() {
            return Ok(code);
        }
    }
}

/// The record, the id and the outputs of the first run, which are opened before the schedule begins.
type First = (Record, String, Vec<Output>);

fn start(options: &Common, args: &SweepArgs, id: &str) -> anyhow::Result<(Reloadable, Stop, Vec<Output>)> {
    if !args.dry_run && confirm::can_ask(args.yes) {
        let failure = Failure::usage("--every: nobody to ask before each run; nothing was contacted");
        return Err(failure.hint("say --yes, once `sweep --dry-run` shows what you expect").into());
    }
    let (session, outputs) = Session::begin(options, id)?;
    session.uri()?;
    let Session { policy, uri, stop, .. } = session;
    Ok((Reloadable { policy, uri }, stop, outputs))
}

impl Reloadable {
    /// Runs once, delivers the report and records the run. Returns its exit code, which only the log and the metrics show.
    async fn run(&self, options: &Common, args: &SweepArgs, stop: &Stop, first: Option<First>) -> anyhow::Result<u8> {
        let (record, id, outputs) = match first {
            Some((record, id, outputs)) => (record, id, Ok(outputs)),
            None => (Record::open(args)?, new_id(), outputs::pair(options).and_then(outputs::open)),
        };
        let begin = |outputs| (Session::new(options, &id, self.policy.clone(), self.uri.clone(), stop.clone()), outputs);
        sweep::once(&record, options, args, outputs.map(begin).map_err(anyhow::Error::from)).await
    }

    /// Reads the policy again. An invalid one is logged, and the runs keep the current one.
    fn reload(&mut self, options: &Common) {
        match read(options) {
            Ok(reloadable) => {
                *self = reloadable;
                let Policy { path, sha256, .. } = &self.policy;
                info!(target: log::PROGRESS, "policy {path} read again (sha256 {})", &sha256[..12]);
            }
            Err(failure) => {
                let Failure { message, .. } = &failure;
                log::error_with(&format!("{message}; the runs keep using the previous policy"), None, &failure.below());
            }
        }
    }
}

fn read(options: &Common) -> Result<Reloadable, Failure> {
    let (policy, uri) = load::load(options)?;
    refuse_invisible(&policy)?;
    uri.require()?;
    Ok(Reloadable { policy, uri })
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn shown(since_1970: Duration) -> String {
    instant::rfc3339(bson::DateTime::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)))
}
