//! The oplog of the primary: its window and its size, before a sweep and during one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc};

use crate::base::machine::Task;
use crate::base::values::{count_in, float};
use crate::base::watch;
use crate::core::facts::{Oplog, OplogLook, OplogSize, Topology};
use crate::core::plan::oplog::OwnBytes;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::timeout::reply_within;
use crate::shell::server::wire::transport::{Patience, ServerCommand};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of one look: an answer that takes longer is not worth relying on.
const MAX_LOOK_TIME: Duration = Duration::from_secs(5);

const LOOK: Patience = Patience::Limit(MAX_LOOK_TIME);

/// Looks at the oplog once.
///
/// Errors: the server does not answer.
pub(crate) async fn look(deployment: &Deployment) -> Result<OplogLook> {
    if let Some(look) = without_look(deployment) {
        return Ok(look);
    }
    let status = match deployment.read("admin", status()).await {
        Ok(status) => status,
        Err(cause) if cause.is_unreachable() => return Err(cause),
        Err(cause) => return Ok(OplogLook::Unknown(refused(&cause))),
    };
    let size = deployment.read("local", stats()).await.ok();
    Ok(read(&status, size.as_ref()).map_or_else(OplogLook::Unknown, OplogLook::Known))
}

/// Returns the look at a deployment that has no oplog to look at.
fn without_look(deployment: &Deployment) -> Option<OplogLook> {
    let facts = &deployment.facts;
    match facts.topology {
        _ if !facts.capabilities.member_status => Some(OplogLook::None),
        Topology::Standalone => Some(OplogLook::None),
        Topology::Sharded => Some(OplogLook::Unknown("mongos does not show the oplogs of the shards".into())),
        Topology::ReplicaSet => None,
    }
}

/// Returns the command that shows the window. Sections that are large and not needed are left out.
fn status() -> Document {
    doc! { "serverStatus": 1, "oplog": 1, "wiredTiger": 0, "metrics": 0, "locks": 0, "tcmalloc": 0, "transactions": 0 }
}

fn stats() -> Document {
    doc! { "collStats": "oplog.rs" }
}

fn refused(cause: &ServerError) -> String {
    match cause.is_unauthorized() {
        true => "`serverStatus` needs the role `clusterMonitor`".into(),
        false => cause.to_string(),
    }
}

/// Reads the replies to [`status`] and [`stats`].
///
/// Errors: the reason why the window is unknown.
fn read(status: &Document, stats: Option<&Document>) -> std::result::Result<Oplog, String> {
    let oplog = status.get_document("oplog").map_err(|_| "the server does not tell it".to_owned())?;
    let time = |key| oplog.get_timestamp(key).map(|time| time.time).map_err(|_| format!("the server does not tell the `{key}`"));
    let hours = status.get_document("oplogTruncation").ok().and_then(|of| float(of.get("oplogMinRetentionHours")?));
    Ok(Oplog {
        first: time("earliestOptime")?,
        last: time("latestOptime")?,
        size: stats.and_then(|stats| Some(OplogSize { used: count_in(stats, "size")?, max: count_in(stats, "maxSize")? })),
        min_retention: hours.and_then(|hours| Duration::try_from_secs_f64(hours * 3600.0).ok()),
    })
}

/// Returns the members that hold documents, the primary last; `None` outside of a replica set.
pub(crate) async fn members(deployment: &Deployment) -> Option<Vec<String>> {
    if deployment.facts.topology != Topology::ReplicaSet || !deployment.facts.capabilities.member_status {
        return None;
    }
    let hello = deployment.read("admin", doc! { "hello": 1 }).await.ok()?;
    let primary = hello.get_str("primary").ok()?;
    let hosts = ["hosts", "passives"].into_iter().filter_map(|key| hello.get_array(key).ok()).flatten();
    let mut members: Vec<String> = hosts.filter_map(Bson::as_str).map(str::to_owned).collect();
    members.sort_by_key(|member| member == primary);
    Some(members)
}

/// The oplog as it was last seen, and the bytes of this run in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenOplog {
    pub oplog: Oplog,
    /// Bytes of this run that the oplog holds.
    pub own: u64,
    /// Bytes that this run had written when the look began.
    pub written: u64,
}

/// A look at the oplog, or the reason why nothing is known of it.
pub(crate) type LastLook = std::result::Result<SeenOplog, String>;

/// A task that watches the oplog until it is dropped.
pub(crate) struct OplogWatch {
    _task: Task,
    receiver: watch::Receiver<LastLook>,
    written: Arc<AtomicU64>,
}

impl OplogWatch {
    /// Begins to watch the oplog; `None` if the deployment has none.
    pub(crate) async fn open(deployment: &Deployment) -> Option<Self> {
        if without_look(deployment) == Some(OplogLook::None) {
            return None;
        }
        let written = Arc::new(AtomicU64::new(0));
        let mut looking = Looking { deployment: deployment.clone(), written: written.clone(), own: OwnBytes::default() };
        let (sender, receiver) = watch::channel(looking.look().await);
        let task = Task::begin(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                drop(sender.send_replace(looking.look().await));
            }
        });
        Some(Self { _task: task, receiver, written })
    }

    /// Returns a receiver of the latest look.
    pub(crate) fn subscribe(&self) -> watch::Receiver<LastLook> {
        self.receiver.clone()
    }

    /// Returns the counter of the bytes that the run has written.
    pub(crate) fn written(&self) -> Arc<AtomicU64> {
        self.written.clone()
    }
}

struct Looking {
    deployment: Deployment,
    written: Arc<AtomicU64>,
    own: OwnBytes,
}

impl Looking {
    async fn look(&mut self) -> LastLook {
        let written = self.written.load(Ordering::Relaxed);
        let oplog = self.ask().await?;
        let own = self.own.in_oplog(&oplog, written);
        Ok(SeenOplog { oplog, own, written })
    }

    async fn ask(&self) -> std::result::Result<Oplog, String> {
        let deployment = self.deployment.clone();
        let ask = async move {
            let status = deployment.send_once(ServerCommand::of("admin", &status(), LOOK)?).await?;
            let stats = deployment.send_once(ServerCommand::of("local", &stats(), LOOK)?).await?;
            Ok((status, stats))
        };
        match reply_within(MAX_LOOK_TIME, ask).await {
            Ok((status, stats)) => read(&status, Some(&stats)),
            Err(cause) if cause.is_timeout() => Err("the server does not answer".into()),
            Err(cause) => Err(refused(&cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::Timestamp;

    use super::*;

    #[test]
    fn the_window_and_the_size_are_read_apart() {
        let at = |time| Timestamp { time, increment: 7 };
        let status = doc! { "oplog": { "earliestOptime": at(100), "latestOptime": at(400) }, "oplogTruncation": { "oplogMinRetentionHours": 1.5 } };
        let stats = doc! { "size": 900, "maxSize": 1000_i64 };
        let expected = Oplog {
            first: 100,
            last: 400,
            size: Some(OplogSize { used: 900, max: 1000 }),
            min_retention: Some(Duration::from_secs(5400)),
        };
        assert_eq!(read(&status, Some(&stats)), Ok(expected));
        assert_eq!(expected.window(), Duration::from_secs(300));
        assert_eq!(read(&status, None), Ok(Oplog { size: None, ..expected }));
        assert!(read(&doc! {}, Some(&stats)).is_err());
        assert_eq!(
            read(&doc! { "oplog": { "latestOptime": at(1) } }, None),
            Err("the server does not tell the `earliestOptime`".into())
        );
    }
}
