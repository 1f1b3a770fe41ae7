//! `sweep --every`: keeps running and sweeps at every multiple of an interval, as the TTL monitor does.
//!
//! Each sweep is a run of its own, and a failed one does not end the process.

#[cfg(target_os = "linux")]
mod ready;
pub(crate) mod schedule;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::confirm;
use super::run::listen::{self, StatusPage};
use super::run::record::{self, Record};
use super::session::connection::Uri;
use super::session::load;
use super::session::outputs::{self, Output};
use super::session::{Session, new_id, refuse_invisible};
use super::sweep::{self, EndedSweep};
use crate::base::failure::{self, Failure};
use crate::base::stop::{self, Stop};
use crate::base::{exit, instant, log, watch};
use crate::commands::cli::{Common, SweepArgs};
use crate::core::policy::loosened::loosened;
use crate::core::policy::reread::not_taken;
use crate::core::policy::{Policy, RunLimits};
use schedule::Schedule;

/// Interval between two looks at the clock during a wait, because the clock may be set and the machine may sleep.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The input of a run that SIGHUP reads again, and the page that shows how the last one ended.
struct Reloadable {
    policy: Policy,
    uri: Uri,
    page: Option<Arc<StatusPage>>,
    /// Tells a run about the policy that was read while it lasts.
    read: watch::Sender<Option<Arc<Policy>>>,
}

/// Sweeps until a signal comes, and returns the exit code.
///
/// Errors: a usage error found before or during the first run, or a signal before the first report.
pub(super) async fn command(options: &Common, args: &SweepArgs, every: Duration, id: &str) -> anyhow::Result<u8> {
    outputs::check_conflicts(options, Some(args))?;
    // A service manager may ask for the policy to be read again as soon as the process is there.
    let hangup = signal(SignalKind::hangup())?;
    let stop = Stop::listen_but_to_hangups()?;
    #[cfg(target_os = "linux")]
    if let Err(cause) = ready::tell() {
        warn!("telling the service manager that the process is ready: {cause}; it may end a process that it waits for");
    }
    let earlier = args.metrics_file.as_deref().map(|path| record::earlier(path, bson::DateTime::now()));
    let page = Arc::new(StatusPage::new(&earlier.unwrap_or_default()));
    let mut record = Record::new(args, args.listen.map(|_| page.clone()));
    record.open()?;
    let started = async {
        let started = start(stop, options, args, id, &page).await?;
        if let Some(address) = args.listen {
            listen::listen(address, page.clone()).await?;
        }
        Ok(started)
    };
    let (reloadable, stop, outputs) = started.await.inspect_err(|cause: &anyhow::Error| record.failed(cause))?;
    let first = First { record, id: id.to_owned(), outputs };
    page.moving(repeat(options, args, every, reloadable, &stop, hangup, first)).await
}

/// Sweeps at once and again and again, until a signal comes. Returns the exit code.
///
/// Errors: as for the command.
async fn repeat(
    options: &Common,
    args: &SweepArgs,
    every: Duration,
    mut reloadable: Reloadable,
    stop: &Stop,
    mut hangup: Signal,
    first: First,
) -> anyhow::Result<u8> {
    let schedule = Schedule::new(every);
    let (mut first, mut is_first, mut is_held_back) = (Some(first), true, false);
    loop {
        let mut ended = None;
        if hangup.recv().now_or_never().is_some() {
            reloadable.take(reading(options).await, args, None);
        }
        if let Some(why) = args.stop_file.as_deref().and_then(|path| stop::find_file("stop", path)) {
            if !is_held_back {
                warn!("{why}: no run begins until it is gone");
            }
            is_held_back = true;
        } else {
            is_held_back = false;
            match reloadable.run(options, args, stop, &mut hangup, first.take()).await {
                Ok(run) => ended = Some(run),
                Err(cause) if stop.exit_code().is_some() => return Err(cause),
                Err(cause) if is_first && failure::exit_code(&cause) == exit::USAGE => return Err(cause),
                // Two services may share a lock: the other one is at work, and nothing is wrong.
                Err(cause) if failure::exit_code(&cause) == exit::LOCKED => warn!("{}", failure::message(&cause)),
                Err(cause) => failure::log(&cause, options.quiet),
            }
            is_first = false;
        }
        if let Some(code) = stop.exit_code() {
            return Ok(code);
        }
        let (next, begun) = (schedule.next(since_1970(), fastrand::f64()), Instant::now());
        match ended {
            // A run that did not end well has said so itself.
            Some(EndedSweep { exit_code: exit::DONE | exit::FOUND, said }) => {
                info!(target: log::PROGRESS, "{said}; the next run begins at {}", shown(next.at));
            }
            _ => info!("the next run begins at {}", shown(next.at)),
        }
        let wait = async {
            while let Some(left) = next.left(since_1970(), begun.elapsed()).filter(|_| stop.exit_code().is_none()) {
                tokio::select! {
                    () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
                    _ = hangup.recv() => reloadable.take(reading(options).await, args, None),
                    () = stop.asked() => {}
                }
            }
        };
        stop.idle(wait).await;
        if let Some(code) = stop.exit_code() {
            info!(target: log::PROGRESS, "stopped between two runs; nothing was in flight");
            return Ok(code);
        }
    }
}

/// Parts of the first run, which are opened before the schedule begins.
struct First {
    record: Record,
    id: String,
    outputs: Vec<Output>,
}

async fn start(
    stop: Stop,
    options: &Common,
    args: &SweepArgs,
    id: &str,
    page: &Arc<StatusPage>,
) -> anyhow::Result<(Reloadable, Stop, Vec<Output>)> {
    if !args.dry_run && confirm::can_ask(args.yes) {
        let failure = Failure::usage("--every: does not ask before each run; nothing was contacted");
        return Err(failure.hint("say --yes, once `sweep --dry-run` shows what you expect").into());
    }
    let (session, outputs) = Session::begin_under(stop, options, id).await?;
    session.need_uri()?;
    let Session { policy, uri, stop, .. } = session;
    let page = args.listen.map(|_| page.clone());
    Ok((Reloadable { policy: with_rate(policy, args), uri, page, read: watch::Sender::new(None) }, stop, outputs))
}

impl Reloadable {
    /// Runs once, delivers the report and records the run. Only the log and the metrics show how it ended. A hang-up in the
    /// meantime reads the policy again.
    async fn run(
        &mut self,
        options: &Common,
        args: &SweepArgs,
        stop: &Stop,
        hangup: &mut Signal,
        first: Option<First>,
    ) -> anyhow::Result<EndedSweep> {
        let (record, id, outputs) = match first {
            Some(First { record, id, outputs }) => (record, id, Ok(outputs)),
            None => {
                let mut record = Record::new(args, self.page.clone());
                let opened = record.open();
                (record, new_id(), opened.and_then(|()| outputs::open(outputs::pair(options)?)))
            }
        };
        self.read.send_replace(None);
        let begin = |outputs| {
            let mut session = Session::new(options, &id, self.policy.clone(), self.uri.clone(), stop.clone());
            session.last_sample = self.page.as_ref().map(|page| page.running.clone()).unwrap_or_default();
            session.policies = self.read.subscribe();
            (session, outputs)
        };
        // A dry run has no pace.
        let begun = (!args.dry_run).then(|| self.policy.clone());
        let run = sweep::once(&record, options, args, outputs.map(begin).map_err(anyhow::Error::from));
        tokio::pin!(run);
        let mut reads = None;
        let ended = loop {
            let has_read = async {
                match &mut reads {
                    Some(reads) => reads.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                ended = &mut run => break ended,
                _ = hangup.recv() => reads = Some(Box::pin(reading(options))),
                read = has_read => {
                    reads = None;
                    self.take(read, args, begun.as_ref());
                }
            }
        };
        if let (Some(reads), None) = (reads, stop.exit_code()) {
            self.take(reads.await, args, None);
        }
        ended
    }

    /// Takes a policy that was read again. An invalid one is logged, and so is one that keeps back less than the current one did:
    /// it may have been read while it was being written. The runs keep the current one then. A run under way, which began with
    /// the policy `begun`, takes over pace and windows.
    fn take(&mut self, read: Result<(Policy, Uri), Failure>, args: &SweepArgs, begun: Option<&Policy>) {
        match read.and_then(|read| self.accept(read)) {
            Ok((policy, uri)) => {
                (self.policy, self.uri) = (with_rate(policy, args), uri);
                let Policy { path, sha256, .. } = &self.policy;
                info!(target: log::PROGRESS, "policy {path} read again (sha256 {})", &sha256[..12]);
                let Some(begun) = begun else { return };
                let not_taken = not_taken(begun, &self.policy);
                if !not_taken.is_empty() {
                    warn!(
                        "the run under way takes over pace and windows only; not before the next run: {}",
                        not_taken.join("; ")
                    );
                }
                self.read.send_replace(Some(Arc::new(self.policy.clone())));
            }
            Err(failure) => {
                // The runs themselves contact the server.
                let message = failure.message.strip_suffix("; nothing was contacted").unwrap_or(&failure.message);
                let running = &self.policy.sha256[..12];
                let message = format!("{message}; the runs keep using the previous policy (sha256 {running})");
                log::error_with(&message, None, &failure.below());
            }
        }
    }

    /// Checks a policy that was read again.
    ///
    /// Errors: it keeps fewer documents than the current one, or no run can go by it.
    fn accept(&self, (policy, uri): (Policy, Uri)) -> Result<(Policy, Uri), Failure> {
        let lost = loosened(&self.policy, &policy);
        if !lost.is_empty() {
            let failure = Failure::usage(format!(
                "reading the policy `{}` again: it keeps fewer documents than before, as one does that is half written",
                policy.path
            ));
            let hint =
                "if that is meant, look at `sweep --dry-run`, then restart the service: at its start it takes any valid policy";
            return Err(failure.details(lost).hint(hint));
        }
        refuse_invisible(&policy)?;
        uri.require()?;
        Ok((policy, uri))
    }
}

/// Reads the policy again, on a thread of its own: a sweep does not wait for the disk.
async fn reading(options: &Common) -> Result<(Policy, Uri), Failure> {
    let options = options.clone();
    let read = tokio::task::spawn_blocking(move || load::load(&options)).await;
    read.unwrap_or_else(|cause| Err(Failure::cannot_run(format!("reading the policy again: {cause}"))))
}

/// Returns a policy with the rate of the command line, which wins.
fn with_rate(policy: Policy, args: &SweepArgs) -> Policy {
    let run = RunLimits { rate: args.rate.or(policy.run.rate), ..policy.run };
    Policy { run, ..policy }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn shown(since_1970: Duration) -> String {
    instant::rfc3339(bson::DateTime::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)))
}
