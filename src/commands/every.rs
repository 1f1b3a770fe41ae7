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
use crate::schedule::Schedule;
use crate::stop::{self, Stop};
use crate::{exit, instant, log};

/// A wait looks at the clock this often: it may be set, and the machine may sleep.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the runs go by.
struct Going {
    policy: Policy,
    uri: String,
}

/// Runs until a signal comes; gives the exit code.
///
/// Errors: what makes no sense, found before or by the first run; or a signal that came before a run had anything to report.
pub(super) async fn stay(record: Record, common: &Common, args: &SweepArgs, every: Duration, id: &str) -> anyhow::Result<u8> {
    let (mut going, stop, outputs) = start(common, args, id).inspect_err(|cause| record.failed(cause))?;
    let mut hangup = signal(SignalKind::hangup())?;
    let schedule = Schedule::new(every, fastrand::f64());
    let (mut first, mut is_first, mut skips) = (Some((record, id.to_owned(), outputs)), true, false);
    loop {
        if hangup.recv().now_or_never().is_some() {
            going.read_anew(common);
        }
        if let Some(why) = args.stop_file.as_deref().and_then(stop::find_file) {
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
                Err(cause) => failure::log(&cause, common.quiet),
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

fn start(common: &Common, args: &SweepArgs, id: &str) -> anyhow::Result<(Going, Stop, Vec<Output>)> {
    if !args.dry_run && confirm::can_ask(args.yes) {
        let failure = Failure::usage("--every: there is nobody to ask each time; nothing was contacted");
        return Err(failure.hint("say --yes, once `sweep --dry-run` shows what you expect").into());
    }
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
                info!(target: log::PROGRESS, "policy {path} read anew (sha256 {})", &sha256[..12]);
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
    instant::rfc3339(bson::DateTime::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)))
}
