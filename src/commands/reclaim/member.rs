//! One member: what it would give back, and its compaction.

use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info};

use crate::base::instant::millis;
use crate::base::log;
use crate::base::stop::{self, Stop};
use crate::base::text::{bytes, duration};
use crate::commands::session::Session;
use crate::core::facts::{FileSize, Topology};
use crate::core::policy::namespace::Namespace;
use crate::core::report::reclaim::{MemberRole, ReclaimRow, ReclaimStatus, reclaimable};
use crate::shell::server::Deployment;
use crate::shell::server::compact;
use crate::shell::server::connect::connect_to_member;
use crate::shell::server::look::privileges;
use crate::shell::server::watch::lag::{self, Lag};
use crate::shell::sweep::asked_reason;

/// Maximum time to wait until all members are in step.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Time between two looks at the members, and at a member that is being compacted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The work on all members.
pub(super) struct Reclaim<'a> {
    pub session: &'a Session,
    pub stop: &'a Stop,
    /// The deployment as a whole, whose primary knows how far the members are behind.
    pub set: &'a Deployment,
    pub max_lag: Duration,
    /// Whether a member that all clients write to is compacted as well.
    pub primary: bool,
}

/// Reason why a namespace was not compacted to the end.
struct Unfinished {
    status: ReclaimStatus,
    why: String,
}

impl Reclaim<'_> {
    /// Returns what a member would give back of each namespace.
    pub(super) async fn measure(&self, member: &str, role: MemberRole, namespaces: &[Namespace]) -> Vec<ReclaimRow> {
        let mut rows = Vec::new();
        let connected = self.connect(member).await;
        for namespace in namespaces {
            let mut row = ReclaimRow {
                member: member.to_owned(),
                role,
                namespace: namespace.to_string(),
                file_bytes: None,
                reclaimable_bytes: None,
                freed_bytes: None,
                duration_ms: 0,
                status: ReclaimStatus::NotDone,
                reason: None,
            };
            let files = match &connected {
                Ok(connected) => compact::files(connected, namespace).await.map_err(|cause| {
                    let why = privileges::explain(&cause, namespace, &["collStats"]);
                    format!("looking at the files of `{namespace}`: {why}")
                }),
                Err(why) => Err(why.clone()),
            };
            match files {
                Ok(files) => {
                    row.file_bytes = Some(size(&files));
                    row.reclaimable_bytes = Some(reclaimable(&files));
                    row.status = match reclaimable(&files) {
                        0 => ReclaimStatus::Nothing,
                        _ if role.serves_all() && !self.primary => ReclaimStatus::Skipped,
                        _ => ReclaimStatus::Planned,
                    };
                }
                Err(why) => row.reason = Some(why),
            }
            if row.status == ReclaimStatus::Skipped {
                row.reason = Some("only with `--primary`: all clients write to it".to_owned());
            }
            rows.push(row);
        }
        if let Ok(connected) = connected {
            connected.close().await;
        }
        rows
    }

    /// Compacts the namespaces of a member that are planned, and enters the outcomes.
    pub(super) async fn compact(&self, member: &str, rows: &mut [ReclaimRow]) {
        let mut planned = rows.iter_mut().filter(|row| row.member == member && row.status == ReclaimStatus::Planned).peekable();
        if planned.peek().is_none() {
            return;
        }
        let connected = if self.stop.is_asked() { Err(self.stopped()) } else { self.connected(member).await };
        for row in planned {
            let begun = Instant::now();
            let ended = match &connected {
                Ok(connected) => self.one(connected, row).await,
                Err(Unfinished { status, why }) => Err(Unfinished { status: *status, why: why.clone() }),
            };
            row.duration_ms = millis(begun.elapsed());
            match ended {
                Ok(()) => row.status = ReclaimStatus::Done,
                Err(Unfinished { status, why }) => (row.status, row.reason) = (status, Some(why)),
            }
        }
        if let Ok(connected) = connected {
            connected.close().await;
        }
    }

    async fn connected(&self, member: &str) -> Result<Deployment, Unfinished> {
        tokio::select! {
            biased;
            connected = self.connect(member) => connected.map_err(|why| Unfinished { status: ReclaimStatus::NotDone, why }),
            () = self.stop.asked() => Err(self.stopped()),
        }
    }

    /// Connects to one member. A server without a replica set is the deployment.
    async fn connect(&self, member: &str) -> Result<Deployment, String> {
        let Session { uri, id, policy, stop, .. } = self.session;
        let uri = uri.with_password(stop).await.map_err(|failure| failure.message)?;
        connect_to_member(&uri, member, policy.connection.flavor, id).await.map_err(|failure| failure.message)
    }

    /// Compacts one namespace, once all members are in step.
    async fn one(&self, member: &Deployment, row: &mut ReclaimRow) -> Result<(), Unfinished> {
        let Some((database, collection)) = row.namespace.split_once('.') else { return Ok(()) };
        let namespace = Namespace { database: database.to_owned(), collection: collection.to_owned() };
        self.in_step().await?;
        let ended = self.command(member, row, &namespace).await;
        let after = compact::files(member, &namespace).await;
        row.freed_bytes = row.file_bytes.zip(after.ok()).map(|(before, after)| before.saturating_sub(size(&after)));
        ended
    }

    /// Waits until no member is far behind.
    async fn in_step(&self) -> Result<(), Unfinished> {
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            if self.stop.is_asked() {
                return Err(self.stopped());
            }
            let lag = match self.set.facts.topology {
                Topology::Standalone => Lag::NoSecondary,
                Topology::ReplicaSet | Topology::Sharded => lag::now(self.set).await,
            };
            let Some(why) = lag.behind(self.max_lag) else { return Ok(()) };
            if begun.elapsed() >= MAX_WAIT {
                let why = format!("the members were not in step for {}: {why}", duration(millis(MAX_WAIT)));
                return Err(Unfinished { status: ReclaimStatus::NotDone, why });
            }
            if !is_told {
                info!(target: log::PROGRESS, "waiting until the members are in step: {why}");
                is_told = true;
            }
            tokio::select! {
                () = self.stop.asked() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Sends the command, and ends it on the server if the run is asked to stop or the member has become primary.
    async fn command(&self, member: &Deployment, row: &ReclaimRow, namespace: &Namespace) -> Result<(), Unfinished> {
        let not_done = |why: String| Unfinished { status: ReclaimStatus::NotDone, why };
        let takes_writes = compact::takes_writes(member).await.map_err(|cause| not_done(cause.to_string()))?;
        if takes_writes && !self.primary {
            return Err(not_done("it has become the primary, which is compacted only with `--primary`".to_owned()));
        }
        info!(target: log::PROGRESS, "{namespace} on {}: compacting", row.member);
        let mut compacting = pin!(compact::compact(member, namespace, takes_writes));
        let (begun, mut told) = (Instant::now(), Instant::now());
        let unfinished = loop {
            tokio::select! {
                biased;
                done = &mut compacting => {
                    let Err(cause) = done else { return Ok(()) };
                    // A connection that broke may have left the command behind.
                    self.kill(member, row).await;
                    return Err(not_done(privileges::explain(&cause, namespace, &["compact"])));
                }
                () = self.stop.asked() => break self.stopped(),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if !takes_writes && !self.primary && matches!(compact::takes_writes(member).await, Ok(true)) {
                break not_done("it became the primary meanwhile, which is compacted only with `--primary`".to_owned());
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                self.tell(member, row, namespace, begun).await;
            }
        };
        self.kill(member, row).await;
        // MongoDB 6.0.5 ends it only when it is through with a file, which may have been the last one.
        match tokio::time::timeout(stop::MAX_TIME_TO_END, compacting).await {
            Ok(ended) => ended.map_err(|_| unfinished),
            Err(_) => {
                let why = format!("{}; the server has not ended the command yet", unfinished.why);
                Err(Unfinished { why, ..unfinished })
            }
        }
    }

    /// Ends the command of this run on a member.
    async fn kill(&self, member: &Deployment, row: &ReclaimRow) {
        let ended = tokio::time::timeout(stop::MAX_TIME_TO_END, compact::kill(member)).await;
        if !matches!(ended, Ok(Ok(()))) {
            debug!("`compact` on {} could not be ended: {ended:?}", row.member);
        }
    }

    /// Says how far a compaction is.
    async fn tell(&self, member: &Deployment, row: &ReclaimRow, namespace: &Namespace, begun: Instant) {
        let Ok(files) = compact::files(member, namespace).await else { return };
        let freed = row.file_bytes.unwrap_or_default().saturating_sub(size(&files));
        let of = bytes(row.reclaimable_bytes.unwrap_or_default());
        let time = duration(millis(begun.elapsed()));
        info!(target: log::PROGRESS, "{namespace} on {}: {} of {of} given back in {time}", row.member, bytes(freed));
    }

    fn stopped(&self) -> Unfinished {
        Unfinished { status: ReclaimStatus::Interrupted, why: asked_reason(self.stop).to_string() }
    }
}

/// Returns the size of all files.
fn size(files: &[FileSize]) -> u64 {
    files.iter().map(|file| file.size).sum()
}
