//! The load of a server, by the figures of `serverStatus`.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::debug;

use crate::base::machine::Task;
use crate::base::values::{at, count_in, integer};
use crate::base::watch;
use crate::core::facts::Topology;
use crate::core::pace::pressure::{Load, Looks};
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::timeout::reply_within;
use crate::shell::server::wire::transport::{Patience, ServerCommand};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// Time between the first two looks; each later one takes as much longer, up to [`INTERVAL`], so that others are soon noticed.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);

/// Time until the next look after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Time limit of one look: older figures say little about the moment.
const MAX_LOOK_TIME: Duration = Duration::from_secs(2);

/// Minimum time between two looks, however often one is asked for.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Time in which others have to do more than [`FEW_OPERATIONS`] to count.
const TIME_FOR_OTHERS: Duration = Duration::from_secs(1);

/// The replies to some operations of the run itself are on their way when the server counts them, and every server is watched by
/// somebody.
const FEW_OPERATIONS: u64 = 10;

/// Returns the command without the sections that are large and not needed; what a server does not know it leaves out as well.
fn command() -> Document {
    doc! {
        "serverStatus": 1, "metrics": 0, "tcmalloc": 0, "locks": 0, "repl": 0, "network": 0, "transactions": 0, "indexStats": 0,
        "security": 0, "shardingStatistics": 0, "readConcernCounters": 0, "electionMetrics": 0,
    }
}

/// Asks for the figures; `None` if the user may not ask (`clusterMonitor` may).
pub(crate) async fn figures(deployment: &Deployment) -> Option<Load> {
    deployment.read("admin", command()).await.ok().map(|status| read(&status))
}

/// The load of the server of a run.
pub(crate) enum LoadSource {
    /// No figure is known. Holds the reason; `None` where nothing is to be watched.
    Unknown(Option<String>),
    Watched(LoadWatch),
}

/// A task that looks at the server until it is dropped.
pub(crate) struct LoadWatch {
    _task: Task,
    view: LoadView,
}

/// The latest figures.
#[derive(Clone)]
pub(crate) struct LoadView {
    pub seen: watch::Receiver<LoadFindings>,
    asks: Arc<Notify>,
}

impl LoadView {
    /// Creates the view of the figures that are sent to a channel.
    pub(crate) fn new(seen: watch::Receiver<LoadFindings>) -> Self {
        Self { seen, asks: Arc::new(Notify::new()) }
    }

    /// Asks for a look before the next one is due.
    pub(crate) fn ask(&self) {
        self.asks.notify_one();
    }

    /// Resolves once a look was asked for.
    pub(crate) async fn asked(&self) {
        self.asks.notified().await;
    }
}

/// The findings of the watch so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadFindings {
    /// `None` if the last look failed.
    pub looks: Option<Looks>,
    pub succeeded: u64,
    failed: u64,
    /// The error of the last look that failed.
    error: Option<String>,
    /// The time since the first look.
    clock: Duration,
    /// Operations of others since the server began, at the looks of the last second.
    others: VecDeque<(Duration, u64)>,
    /// Names for the figures that the server did not tell in the last look that succeeded.
    unknown: Vec<&'static str>,
}

impl LoadWatch {
    /// Returns a view of the latest figures.
    pub(crate) fn view(&self) -> LoadView {
        self.view.clone()
    }
}

impl LoadSource {
    /// Begins to watch the server, if it tells anything to the connected user.
    pub(crate) async fn open(deployment: &Deployment) -> Self {
        if !deployment.facts.capabilities.server_load {
            return Self::Unknown(None);
        }
        if deployment.facts.topology == Topology::Sharded {
            return Self::Unknown(Some("all, as mongos does not show the load of the shards".into()));
        }
        let mut seen = LoadFindings::default();
        match look(deployment).await {
            Err(cause) if cause.is_unauthorized() => {
                return Self::Unknown(Some("all, as `serverStatus` needs the role `clusterMonitor`".into()));
            }
            Err(cause) if cause.is_unsupported() => {
                return Self::Unknown(Some("all, as the server has no `serverStatus`".into()));
            }
            Ok(load) if load.is_unknown() => return Self::Unknown(Some("all, as `serverStatus` does not tell them".into())),
            first => seen.note(first, None, deployment.answered()),
        }
        let mut last = Instant::now();
        let (sender, receiver) = watch::channel(seen);
        let view = LoadView::new(receiver);
        let asking = view.clone();
        let deployment = deployment.clone();
        let task = Task::begin(async move {
            loop {
                let (wait, is_known) = (sender.borrow().wait(), sender.borrow().looks.is_some());
                let due = Instant::now() + wait;
                tokio::time::sleep(MIN_INTERVAL).await;
                tokio::select! {
                    // A look that was asked for is not made twice.
                    biased;
                    () = asking.asked(), if is_known => {}
                    () = tokio::time::sleep_until(due) => {}
                }
                let looked = look(&deployment).await;
                let elapsed = last.elapsed();
                last = Instant::now();
                let own = deployment.answered();
                sender.send_modify(|seen| seen.note(looked, Some(elapsed), own));
            }
        });
        Self::Watched(LoadWatch { _task: task, view })
    }

    /// Returns what was unknown, and why; `None` if nothing was.
    pub(crate) fn unknown(&self) -> Option<String> {
        match self {
            Self::Unknown(why) => why.clone(),
            Self::Watched(watch) => watch.view.seen.borrow().words(),
        }
    }
}

impl LoadFindings {
    /// Takes in the result of a look, this long after the one before. `own` is the number of operations of the run itself.
    fn note(&mut self, looked: Result<Load, ServerError>, elapsed: Option<Duration>, own: u64) {
        self.clock += elapsed.unwrap_or_default();
        match looked {
            Ok(load) => {
                self.succeeded += 1;
                self.unknown = load.unknown();
                let before = self.looks.map(|looks| looks.last).zip(elapsed);
                self.looks = Some(Looks { last: load, before, is_unshared: self.is_unshared(&load, own) });
            }
            Err(cause) => {
                debug!("the look at the load of the server failed: {cause}");
                self.failed += 1;
                self.error = Some(if cause.is_timeout() { "the server did not answer".to_owned() } else { cause.to_string() });
                self.looks = None;
            }
        }
    }

    /// Returns the time until the next look.
    fn wait(&self) -> Duration {
        match (self.looks, u32::try_from(self.succeeded)) {
            (None, _) => AFTER_FAILURE,
            (Some(_), Ok(looks)) if looks < 5 => FIRST_INTERVAL * looks,
            _ => INTERVAL,
        }
    }

    /// Whether other clients have done little in the last second.
    fn is_unshared(&mut self, load: &Load, own: u64) -> bool {
        let Some(operations) = load.operations else { return false };
        let others = operations.saturating_sub(own);
        self.others.push_back((self.clock, others));
        // The first one that stays is at least as old as the time.
        while self.others.get(1).is_some_and(|(at, _)| *at + TIME_FOR_OTHERS <= self.clock) {
            self.others.pop_front();
        }
        self.others.front().is_some_and(|(_, first)| others.saturating_sub(*first) <= FEW_OPERATIONS)
    }

    fn words(&self) -> Option<String> {
        let failed = self.error.as_ref().map(|cause| {
            let looks = self.succeeded + self.failed;
            let which = if self.succeeded == 0 { "all, as" } else { "for a while, as" };
            format!("{which} {} of {looks} looks failed: {cause}", self.failed)
        });
        let unknown = (!self.unknown.is_empty()).then(|| format!("the server does not tell {}", self.unknown.join(", ")));
        let words: Vec<_> = failed.into_iter().chain(unknown).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

async fn look(deployment: &Deployment) -> Result<Load, ServerError> {
    let command = ServerCommand::of("admin", &deployment.marked(command()), Patience::Limit(MAX_LOOK_TIME))?;
    let deployment = deployment.clone();
    let status = reply_within(MAX_LOOK_TIME, async move { deployment.send_once(command).await }).await?;
    Ok(read(&status))
}

/// Reads the reply to `serverStatus`.
///
/// Versions differ (MongoDB manual, `serverStatus`). Up to 6.0 the number of tickets is fixed. From 7.0 on it adapts, and the
/// length of the queue is told, in 8.0 in a section of its own. From 8.0 on attempts to evict are counted instead of pages, and
/// checkpoints have a section of their own.
fn read(status: &Document) -> Load {
    let number = |path: &str| at(status, path).and_then(integer).and_then(|value| u64::try_from(value).ok());
    let truth = |path: &str| at(status, path).and_then(|value| value.as_bool());
    let cache = status.get_document("wiredTiger").and_then(|engine| engine.get_document("cache")).ok();
    let of_cache = |key: &str| count_in(cache?, key);
    let millis = |path: &str| number(path).map(Duration::from_millis);
    let queues = [
        "wiredTiger.concurrentTransactions.write",
        "wiredTiger.concurrentTransactions.read",
        "queues.execution.write",
        "queues.execution.read",
    ];
    let queue = |path: &str| {
        let parts = ["queueLength", "normalPriority.queueLength", "lowPriority.queueLength"];
        parts.iter().filter_map(|part| number(&format!("{path}.{part}"))).max()
    };
    let for_tickets = queues.iter().filter_map(|path| queue(path)).max();
    let used = |path: &&str| {
        let (out, total) = (number(&format!("{path}.out"))?, number(&format!("{path}.totalTickets"))?);
        (total > 0).then(|| out as f64 / total as f64)
    };
    let tickets_used = queues.iter().filter_map(used).reduce(f64::max);
    let is_flow_controlled = match truth("flowControl.enabled") {
        Some(false) => Some(false),
        _ => truth("flowControl.isLagged"),
    };
    let reads_and_writes = number("opLatencies.reads.ops").zip(number("opLatencies.writes.ops"));
    let operations = reads_and_writes.zip(number("opcounters.getmore"));
    let progress = number("wiredTiger.checkpoint.progress state");
    let running = number("wiredTiger.transaction.transaction checkpoint currently running");
    Load {
        cache_size: of_cache("maximum bytes configured"),
        cached: of_cache("bytes currently in the cache"),
        dirty: of_cache("tracked dirty bytes in the cache"),
        updates: of_cache("bytes allocated for updates"),
        written: of_cache("bytes written from cache"),
        evicted_by_clients: of_cache("pages evicted by application threads")
            .or_else(|| of_cache("page evict attempts by application threads")),
        tickets_used: tickets_used.filter(|_| for_tickets.is_none()),
        queued: for_tickets.into_iter().chain(number("globalLock.currentQueue.total")).max(),
        is_flow_controlled,
        flow_waited: number("flowControl.timeAcquiringMicros").map(Duration::from_micros),
        // Members that follow, and change streams, continue cursors.
        operations: operations.map(|((reads, writes), continued)| (reads + writes).saturating_sub(continued)),
        is_checkpoint_running: running.or(progress).map(|state| state > 0),
        last_checkpoint: millis("wiredTiger.transaction.transaction checkpoint most recent time (msecs)")
            .or_else(|| millis("wiredTiger.checkpoint.most recent time (msecs)")),
    }
}
