//! Leases in the database: by the server's clock, at most one run holds the lease of a namespace. Their documents, and how long a
//! holder can rely on one; [`crate::shell::server::own::lease`] sends the commands.
//!
//! A lease is a document: `_id` (the namespace), `runId`, `host`, `pid`, `since`, `heartbeat` and `expiresAt`. It is taken by an
//! update with upsert whose filter matches only an expired document: if the lease has not expired, the insert fails because the
//! `_id` exists. No TTL index is needed, and nothing is ever deleted: a released lease has no `runId` and has expired.
//!
//! Times are the server's, read by `hello` before each command and compared by plain operators. This works on every service,
//! while `$$NOW` in an update needs pipelines. The reading is older than the command, which is the safe direction: another run's
//! lease appears to last longer than it does, and this run's own is written shorter. A command that was late never shortens a
//! lease (`$max`).
//!
//! # No delete takes effect under a lease of another run
//!
//! Let a lease be renewed by a reading R of the server's clock. Its document says R + 60 s, and no other run takes the lease
//! before the server's clock shows that. Its holder uses the lease only until R + 50 s:
//!
//! - Every delete carries a [`Fence`]: by its own clock, the server refuses it from an instant S on (`$$NOW` in the filter, read
//!   as the statement begins). It ends it after a time M (`maxTimeMS`, counted from the arrival of the command, which is
//!   earlier). S + M = R + 50 s. So a command that waited for a server, a connection or the network, or was sent by a process
//!   that had been stopped, deletes nothing after R + 50 s. Only the server's clock counts. The clocks of two members may differ
//!   by the 10 s between the two ends.
//! - A primary that was cut off carries out what it receives, but what no majority confirms is rolled back.
//! - On this side the wait for a reply ends 2 s after the lease, within its margin ([`LAST_REPLY`]). A command that has not been
//!   sent by then never is. This is all there is on services whose deletes know no `$$NOW`.
//! - A delete that the server finds late has the lease renewed at once: the clock may have been set forward. The update matches
//!   the run's own id, whatever the clock shows, so that the run goes on by the new reading, or knows that another has the lease.
//!   A clock that was set back makes leases last longer: the end in a document is never brought forward.
//! - A lease is given back early only if every delete under it was answered. Otherwise one of them may still arrive, and the
//!   lease is left to expire.
//! - A document that was removed, or a collection that was dropped, may have been the lease of a run that goes on. Therefore each
//!   holder looks at its documents every [`LOOK`], and a run that had to create the document waits for [`CREATED`] before it
//!   relies on it. A run that gives the lease back earlier leaves it taken until then.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bson::{Document, doc};
use futures_util::future::{join_all, select_all};
use tokio::sync::Notify;

use super::fence::Fence;
use super::moment::{Moment, ServerTime};
use super::{Holder, Occupant};
use crate::base::watch;
use crate::core::policy::namespace::Namespace;

/// Duration of a lease that is not renewed.
pub(crate) static LEASE: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(lease_seconds()));

/// Duration for which its holder relies on a lease. The rest is a margin for differences between the clocks of a set's members.
static RELIED_ON: LazyLock<Duration> = LazyLock::new(|| *LEASE * 5 / 6);

/// Time between two renewals.
pub(crate) static HEARTBEAT: LazyLock<Duration> = LazyLock::new(|| *LEASE / 3);

/// Time between two looks at the documents of the leases.
pub(crate) static LOOK: LazyLock<Duration> = LazyLock::new(|| *LEASE / 30);

/// Age at which the holder of a lease relies on it if its document did not exist before. That is long enough for another run to
/// find, by two looks, that its own document was removed.
pub(crate) static CREATED: LazyLock<Duration> = LazyLock::new(|| *LEASE / 12);

/// Time for which a reply is waited for after the end of a lease. With a look it is shorter than [`CREATED`], and it is a part of
/// the margin.
pub(crate) static LAST_REPLY: LazyLock<Duration> = LazyLock::new(|| *LEASE / 30);

/// Returns the seconds of a lease: a minute or, in debug builds, a value set by a test that waits for the end of a lease.
fn lease_seconds() -> u64 {
    #[cfg(debug_assertions)]
    if let Some(seconds) = std::env::var("SWEEPER_TEST_LEASE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()) {
        return seconds;
    }
    60
}

/// Interval between two looks at the clocks while waiting for the end of a lease.
const CLOCKS_EVERY: Duration = Duration::from_secs(1);

/// Returns the filter and the update that take a lease, to be sent with upsert. They match an expired lease or, after a lost
/// reply, the one that this run has already taken.
pub(crate) fn taking(namespace: &Namespace, me: &Holder, time: &ServerTime) -> (Document, Document) {
    let free = [doc! { "expiresAt": { "$lte": time.now } }, doc! { "runId": &me.run_id }];
    let filter = doc! { "_id": namespace.to_string(), "$or": free };
    let lease = doc! {
        "runId": &me.run_id,
        "host": &me.host,
        "pid": i64::from(me.pid),
        "since": time.now,
    };
    (filter, doc! { "$set": lease, "$max": lasting(time) })
}

/// Returns the fields that say how long a lease lasts.
fn lasting(time: &ServerTime) -> Document {
    doc! { "heartbeat": time.now, "expiresAt": time.after(*LEASE) }
}

/// Returns the filter of the leases that a run holds, expired or not: until another run takes one, it can be renewed.
pub(crate) fn owned(namespaces: &[Namespace], run_id: &str) -> Document {
    let ids: Vec<String> = namespaces.iter().map(Namespace::to_string).collect();
    doc! { "_id": { "$in": ids }, "runId": run_id }
}

/// Returns the update that renews a lease.
pub(crate) fn renewing(time: &ServerTime) -> Document {
    doc! { "$max": lasting(time) }
}

/// Returns the update that releases a lease. `time` may be long past.
pub(crate) fn releasing(time: &ServerTime) -> Document {
    doc! { "$set": { "runId": null, "expiresAt": time.now } }
}

/// Returns the update that releases leases that could not be relied on yet. Until they could, no other run may take them: it
/// would find their documents, and rely on them at once.
pub(crate) fn releasing_new(time: &ServerTime) -> Document {
    doc! { "$set": { "runId": null, "expiresAt": time.after(*CREATED) } }
}

/// Returns the run that holds a lease. Fields of the document that are missing or malformed are left out.
pub(crate) fn occupant(lease: &Document) -> Occupant {
    let text = |key| lease.get_str(key).ok().map(str::to_owned);
    let date = |key| lease.get_datetime(key).ok().copied();
    let holder = || {
        let pid = lease.get_i64("pid").ok().and_then(|pid| u32::try_from(pid).ok())?;
        let since = crate::base::instant::rfc3339(date("since")?);
        Some(Holder { run_id: text("runId")?, host: text("host")?, pid, since })
    };
    Occupant { holder: holder(), expires_at: date("expiresAt") }
}

/// The leases of this run on one namespace, as the sweep sees them: each of them has to stand. There are two where the policy has
/// `lock`, and the journal of the rule's children is another collection.
#[derive(Debug, Clone)]
pub(crate) struct Lease(Vec<ClockPart>);

/// A lease in one collection.
#[derive(Debug, Clone)]
struct ClockPart {
    renewed: watch::Receiver<Option<ServerTime>>,
    unanswered: Arc<AtomicBool>,
    wanted: Arc<Notify>,
}

impl Lease {
    /// Returns what a delete that is sent now may do; `None` if another run may hold the lease by now. Called before each delete
    /// command.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let renewed: Option<Vec<ServerTime>> = self.0.iter().map(|part| *part.renewed.borrow()).collect();
        let end = renewed?.iter().map(|renewed| renewed.after(*RELIED_ON)).min()?;
        Fence::new(end, self.left(), *LEASE)
    }

    /// Notes that a delete under this lease had no answer: it may still arrive, so that the lease is not given back early.
    pub(crate) fn note_unanswered(&self) {
        self.0.iter().for_each(|part| part.unanswered.store(true, Ordering::Relaxed));
    }

    /// Has the lease renewed at once, with a new reading of the server's clock, and waits for that or for the end of the lease.
    pub(crate) async fn renew(&self) {
        join_all(self.0.iter().map(ClockPart::renew)).await;
    }

    /// Whether another run may hold the lease by now.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Waits until another run may hold the lease.
    pub(crate) async fn over(&self) {
        select_all(self.0.iter().map(|part| Box::pin(part.over()))).await;
    }

    fn left(&self) -> Duration {
        self.0.iter().map(ClockPart::left).min().unwrap_or_default()
    }

    fn why_over(&self) -> String {
        match self.0.iter().any(|part| part.renewed.borrow().is_none()) {
            true => "another run has it, or its document was removed".to_owned(),
            false => format!("it could not be renewed within {} s", RELIED_ON.as_secs()),
        }
    }
}

impl ClockPart {
    async fn renew(&self) {
        let mut renewed = self.renewed.clone();
        renewed.mark_unchanged();
        self.wanted.notify_one();
        tokio::select! {
            biased;
            _ = renewed.changed() => {}
            () = self.over() => {}
        }
    }

    async fn over(&self) {
        let mut renewed = self.renewed.clone();
        while !self.left().is_zero() {
            let changed = async {
                if renewed.changed().await.is_err() {
                    // Nothing renews the lease any more.
                    pending::<()>().await;
                }
            };
            let _ = tokio::time::timeout(self.left().min(CLOCKS_EVERY), changed).await;
        }
    }

    fn left(&self) -> Duration {
        left(*self.renewed.borrow(), Moment::now())
    }
}

/// Returns how long a lease can still be relied on.
fn left(renewed: Option<ServerTime>, now: Moment) -> Duration {
    renewed.map_or(Duration::ZERO, |renewed| RELIED_ON.saturating_sub(renewed.asked.until(now)))
}

/// The renewals of a lease, which its keeper notes.
#[derive(Debug)]
pub(crate) struct Renewals {
    /// The reading of the clock by which the lease was last renewed; `None` once it is lost.
    last: watch::Sender<Option<ServerTime>>,
    unanswered: Arc<AtomicBool>,
    /// Wakes the keeper, which is to renew the lease at once.
    wanted: Arc<Notify>,
}

impl Renewals {
    /// Begins with a lease that was just taken. `wanted` wakes its keeper.
    pub(crate) fn new(taken: ServerTime, wanted: Arc<Notify>) -> Self {
        Self { last: watch::Sender::new(Some(taken)), unanswered: Arc::default(), wanted }
    }

    /// Returns the lease.
    pub(crate) fn lease(&self) -> Lease {
        let (unanswered, wanted) = (self.unanswered.clone(), self.wanted.clone());
        Lease(vec![ClockPart { renewed: self.last.subscribe(), unanswered, wanted }])
    }

    /// Notes that the lease was renewed. One that is lost stays so.
    pub(crate) fn renewed(&self, time: ServerTime) {
        self.last.send_if_modified(|last| {
            *last = last.and(Some(time));
            last.is_some()
        });
    }

    /// Notes that the lease is lost.
    pub(crate) fn lost(&self) {
        self.last.send_replace(None);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.last.borrow().is_none()
    }

    /// Whether a delete under the lease had no answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed)
    }
}

/// The leases of one run; empty if the policy has no `lock`, and no rule has children.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases(Arc<BTreeMap<Namespace, Lease>>);

impl Leases {
    pub(crate) fn new(leases: BTreeMap<Namespace, Lease>) -> Self {
        Self(Arc::new(leases))
    }

    /// Adds the leases in another collection.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut all = Arc::unwrap_or_clone(self.0);
        for (namespace, Lease(parts)) in Arc::unwrap_or_clone(other.0) {
            all.entry(namespace).or_insert_with(|| Lease(Vec::new())).0.extend(parts);
        }
        Self::new(all)
    }

    /// Returns the lease of a namespace.
    pub(crate) fn of(&self, namespace: &Namespace) -> Option<&Lease> {
        self.0.get(namespace)
    }

    /// Whether another run may hold the lease of a namespace by now; never without leases.
    pub(crate) fn is_over(&self, namespace: &Namespace) -> bool {
        self.of(namespace).is_some_and(Lease::is_over)
    }

    /// Waits until another run may hold the lease of a namespace; forever without leases.
    pub(crate) async fn over(&self, namespace: &Namespace) {
        match self.of(namespace) {
            Some(lease) => lease.over().await,
            None => pending().await,
        }
    }

    /// Returns the reason why a lease is over.
    pub(crate) fn why_over(&self, namespace: &Namespace) -> String {
        let why = self.of(namespace).map(Lease::why_over).unwrap_or_default();
        format!("the lease on `{namespace}` was lost: {why}")
    }
}
