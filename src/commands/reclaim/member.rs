//! One member: what it would give back, and its compaction.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use crate::base::failure::Failure;
use crate::base::instant::millis;
use crate::base::log;
use crate::base::stop::Stop;
use crate::base::text::{bytes, duration};
use crate::commands::session::Session;
use crate::core::facts::FileSize;
use crate::core::policy::namespace::Namespace;
use crate::core::report::reclaim::{MemberRole, ReclaimRow, ReclaimStatus, reclaimable};
use crate::shell::server::Deployment;
use crate::shell::server::compact;
use crate::shell::server::connect::connect_to_member;
use crate::shell::server::look::privileges;
use crate::shell::server::watch::lag;
use crate::shell::sweep::asked_reason;

/// Maximum time to wait until all members are in step.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Time between two looks at the members, and at a member that is being compacted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum time of one look at a member that is being compacted.
const MAX_LOOK: Duration = Duration::from_secs(2);

/// Maximum time to wait for the end of a command that was ended on the server.
const MAX_LAST_WAIT: Duration = Duration::from_secs(6);

/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A member of the deployment.
pub(super) struct ReclaimMember {
    /// `host:port`.
    name: String,
    role: MemberRole,
    /// Connection to the member only, or the reason why it could not be reached.
    connection: Result<Deployment, String>,
}

impl ReclaimMember {
    /// Connects to each member by itself.
    pub(super) async fn connect_all(session: &Session, members: Vec<(String, MemberRole)>) -> Vec<Self> {
        let mut connected = Vec::new();
        for (name, role) in members {
            let connection = Self::connect(session, &name).await.map_err(|failure| failure.message);
            connected.push(Self { name, role, connection });
        }
        connected
    }

    async fn connect(session: &Session, name: &str) -> Result<Deployment, Failure> {
        let Session { uri, id, policy, stop, .. } = session;
        connect_to_member(&uri.with_password(stop).await?, name, policy.connection.flavor, id).await
    }

    /// Closes the connections.
    pub(super) async fn close_all(members: Vec<Self>) {
        for connection in members.into_iter().filter_map(|member| member.connection.ok()) {
            connection.close().await;
        }
    }
}

/// The work on all members.
pub(super) struct Reclaim<'a> {
    pub stop: &'a Stop,
    /// The deployment as a whole, whose primary knows how far the members are behind.
    pub set: &'a Deployment,
    /// In the order in which they are compacted.
    pub members: &'a [ReclaimMember],
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
    /// Returns what a member would give back of a namespace.
    pub(super) async fn measure(&self, member: &ReclaimMember, namespace: &Namespace) -> ReclaimRow {
        let files = match &member.connection {
            Ok(connection) => compact::files(connection, namespace).await.map_err(|cause| {
                let why = privileges::explain(&cause, namespace, &["collStats"]);
                format!("looking at the files of `{namespace}`: {why}")
            }),
            Err(why) => Err(why.clone()),
        };
        let (status, reason) = match files.as_deref().map(reclaimable) {
            Ok(0) => (ReclaimStatus::Nothing, None),
            Ok(_) if member.role.serves_all() && !self.primary => {
                (ReclaimStatus::Skipped, Some("only with `--primary`: all clients write to it".to_owned()))
            }
            Ok(_) => (ReclaimStatus::Planned, None),
            Err(why) => (ReclaimStatus::NotDone, Some(why.clone())),
        };
        ReclaimRow {
            member: member.name.clone(),
            role: member.role,
            namespace: namespace.to_string(),
            file_bytes: files.as_deref().ok().map(size),
            reclaimable_bytes: files.as_deref().ok().map(reclaimable),
            freed_bytes: None,
            duration_ms: 0,
            status,
            reason,
        }
    }

    /// Compacts a namespace on a member if that is planned, and enters the outcome.
    pub(super) async fn compact(&self, member: &ReclaimMember, namespace: &Namespace, row: &mut ReclaimRow) {
        let (Ok(connection), ReclaimStatus::Planned) = (&member.connection, row.status) else { return };
        let begun = Instant::now();
        let ended = self.one(connection, namespace, row).await;
        row.duration_ms = millis(begun.elapsed());
        match ended {
            Ok(()) => row.status = ReclaimStatus::Done,
            Err(Unfinished { status, why }) => (row.status, row.reason) = (status, Some(why)),
        }
    }

    /// Compacts one namespace, once all members are in step.
    async fn one(&self, member: &Deployment, namespace: &Namespace, row: &mut ReclaimRow) -> Result<(), Unfinished> {
        self.in_step().await?;
        let ended = self.command(member, row, namespace).await;
        let after = timeout(MAX_LOOK, compact::files(member, namespace)).await.ok().and_then(Result::ok);
        row.freed_bytes = row.file_bytes.zip(after).map(|(before, after)| before.saturating_sub(size(&after)));
        ended
    }

    /// Waits until no member is far behind, and none is being compacted.
    async fn in_step(&self) -> Result<(), Unfinished> {
        let begun = Instant::now();
        let mut is_told = false;
        loop {
            let Some(why) = self.unless_stopped(self.out_of_step()).await? else { return Ok(()) };
            if begun.elapsed() >= MAX_WAIT {
                let why = format!("the members were not in step for {}: {why}", duration(millis(MAX_WAIT)));
                return Err(Unfinished { status: ReclaimStatus::NotDone, why });
            }
            if !is_told {
                info!(target: log::PROGRESS, "waiting until the members are in step: {why}");
                is_told = true;
            }
            self.unless_stopped(tokio::time::sleep(LOOK_EVERY)).await?;
        }
    }

    /// Returns the reason why the members are not in step; `None` if they are.
    async fn out_of_step(&self) -> Option<String> {
        let behind = lag::now(self.set).await.behind(self.max_lag);
        for member in self.members.iter().filter(|_| behind.is_none()) {
            // Without `clusterMonitor` only the own operations are seen.
            if let Ok(connection) = &member.connection
                && matches!(timeout(MAX_LOOK, compact::is_compacting(connection)).await, Ok(Ok(true)))
            {
                return Some(format!("{} is being compacted by somebody else", member.name));
            }
        }
        behind
    }

    /// Sends the command, and ends it on the server if the run is asked to stop or the member has become primary.
    async fn command(&self, member: &Deployment, row: &ReclaimRow, namespace: &Namespace) -> Result<(), Unfinished> {
        let not_done = |why: String| Unfinished { status: ReclaimStatus::NotDone, why };
        let takes_writes = self.unless_stopped(compact::takes_writes(member)).await?;
        let takes_writes = takes_writes.map_err(|cause| not_done(cause.to_string()))?;
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
            let look = async { matches!(timeout(MAX_LOOK, compact::takes_writes(member)).await, Ok(Ok(true))) };
            if !takes_writes && !self.primary && look.await {
                break not_done("it became the primary meanwhile, which is compacted only with `--primary`".to_owned());
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let _ = timeout(MAX_LOOK, self.tell(member, row, namespace, begun)).await;
            }
        };
        self.kill(member, row).await;
        // MongoDB 6.0.5 ends it only when it is through with a file, which may have been the last one.
        match timeout(MAX_LAST_WAIT, compacting).await {
            Ok(ended) => ended.map_err(|_| unfinished),
            Err(_) => {
                let why = format!("{}; the server has not ended the command yet", unfinished.why);
                Err(Unfinished { why, ..unfinished })
            }
        }
    }

    /// Ends the command of this run on a member.
    async fn kill(&self, member: &Deployment, row: &ReclaimRow) {
        let ended = timeout(MAX_LOOK, compact::kill(member)).await;
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

    /// Waits for something unless the run is asked to stop.
    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Result<T, Unfinished> {
        tokio::select! {
            biased;
            () = self.stop.asked() => Err(self.stopped()),
            waited = wait => Ok(waited),
        }
    }

    fn stopped(&self) -> Unfinished {
        Unfinished { status: ReclaimStatus::Interrupted, why: asked_reason(self.stop).to_string() }
    }
}

/// Returns the size of all files.
fn size(files: &[FileSize]) -> u64 {
    files.iter().map(|file| file.size).sum()
}
