//! Leases in the database: by the server's clock, at most one run holds the lease of a namespace. Their documents, and how long a holder
//! can rely on one; [`crate::server::lease`] sends the commands.
//!
//! A lease is a document: `_id` (the namespace), `runId`, `host`, `pid`, `since`, `heartbeat` and `expiresAt`. It is taken by an update
//! with upsert whose filter matches only an expired document: if the lease has not expired, the insert fails because the `_id` exists. No
//! TTL index is needed, and nothing is ever deleted: a released lease has no `runId` and has expired.
//!
//! Times are the server's, read by `hello` before each command and compared by plain operators. This works on every service,
//! while `$$NOW` in an update needs pipelines. The reading is older than the command, which is the safe direction: another run's
//! lease appears to last longer than it does, and this run's own is written shorter.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use bson::{DateTime, Document, doc};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Holder, Occupant};
use crate::machine::{monotonic_clock, wall_clock};
use crate::policy::namespace::Namespace;

/// Duration of a lease that is not renewed.
pub(crate) static LEASE: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(lease_seconds()));

/// Duration for which its holder relies on a lease. The rest is a margin for commands that are sent just before the end, and for
/// differences between the clocks of a set's members.
static RELIED_ON: LazyLock<Duration> = LazyLock::new(|| *LEASE * 5 / 6);

/// Time between two renewals.
pub(crate) static HEARTBEAT: LazyLock<Duration> = LazyLock::new(|| *LEASE / 3);

/// Returns the seconds of a lease: a minute or, in debug builds, a value set by a test that waits for the end of a lease.
fn lease_seconds() -> u64 {
    #[cfg(debug_assertions)]
    if let Some(seconds) = std::env::var("SWEEPER_TEST_LEASE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()) {
        return seconds;
    }
    60
}

/// Interval between two looks at the clocks while waiting for the end of a lease.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An instant on both clocks of this machine. The monotonic clock is not affected when the time is set; the wall clock continues
/// while the machine sleeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { monotonic: monotonic_clock(), wall: wall_clock() }
    }

    /// Returns the time since this moment, by the clock that shows more.
    pub(crate) fn elapsed(self) -> Duration {
        self.until(Self::now())
    }

    /// Returns the time from this moment to a later one, by the clock that shows more.
    fn until(self, later: Moment) -> Duration {
        let monotonic = later.monotonic.saturating_duration_since(self.monotonic);
        monotonic.max(later.wall.duration_since(self.wall).unwrap_or_default())
    }
}

/// A reading of the server's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerTime {
    pub now: DateTime,
    /// Moment just before the server was asked.
    pub asked: Moment,
}

impl ServerTime {
    fn end_of_lease(&self) -> DateTime {
        DateTime::from_millis(self.now.timestamp_millis().saturating_add(millis(*LEASE)))
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

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
        "heartbeat": time.now,
        "expiresAt": time.end_of_lease(),
    };
    (filter, doc! { "$set": lease })
}

/// Returns the filter of the leases that a run holds, expired or not: until another run takes one, it can be renewed.
pub(crate) fn owned(namespaces: &[Namespace], run_id: &str) -> Document {
    let ids: Vec<String> = namespaces.iter().map(Namespace::to_string).collect();
    doc! { "_id": { "$in": ids }, "runId": run_id }
}

/// Returns the update that renews a lease.
pub(crate) fn renewing(time: &ServerTime) -> Document {
    doc! { "$set": { "heartbeat": time.now, "expiresAt": time.end_of_lease() } }
}

/// Returns the update that releases a lease. `time` may be long past.
pub(crate) fn releasing(time: &ServerTime) -> Document {
    doc! { "$set": { "runId": null, "expiresAt": time.now } }
}

/// Returns the run that holds a lease. Fields of the document that are missing or malformed are left out.
pub(crate) fn occupant(lease: &Document) -> Occupant {
    let text = |key| lease.get_str(key).ok().map(str::to_owned);
    let date = |key| lease.get_datetime(key).ok().copied();
    let holder = || {
        let pid = lease.get_i64("pid").ok().and_then(|pid| u32::try_from(pid).ok())?;
        let since = crate::instant::rfc3339(date("since")?);
        Some(Holder { run_id: text("runId")?, host: text("host")?, pid, since })
    };
    Occupant { holder: holder(), expires_at: date("expiresAt") }
}

/// A lease of this run, as the sweep sees it.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    renewed: watch::Receiver<Option<Moment>>,
}

impl Lease {
    /// Creates a lease. `renewed` holds a moment just before the last renewal was sent, or `None` once another run has the lease.
    pub(crate) fn new(renewed: watch::Receiver<Option<Moment>>) -> Self {
        Self { renewed }
    }

    /// Whether another run may hold the lease by now. Checked before each delete command.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Waits until another run may hold the lease.
    pub(crate) async fn over(&self) {
        while !self.is_over() {
            tokio::time::sleep(self.left().min(LOOK_EVERY)).await;
        }
    }

    fn left(&self) -> Duration {
        left(*self.renewed.borrow(), Moment::now())
    }

    fn why_over(&self) -> String {
        match *self.renewed.borrow() {
            None => "another run has it".to_owned(),
            Some(_) => format!("it could not be renewed within {} s", RELIED_ON.as_secs()),
        }
    }
}

/// Returns how long a lease can still be relied on.
fn left(renewed: Option<Moment>, now: Moment) -> Duration {
    renewed.map_or(Duration::ZERO, |renewed| RELIED_ON.saturating_sub(renewed.until(now)))
}

/// The leases of one run; empty if the policy has no `lock`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases(Arc<BTreeMap<Namespace, Lease>>);

impl Leases {
    pub(crate) fn new(leases: BTreeMap<Namespace, Lease>) -> Self {
        Self(Arc::new(leases))
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
            None => std::future::pending().await,
        }
    }

    /// Returns the reason why a lease is over.
    pub(crate) fn why_over(&self, namespace: &Namespace) -> String {
        let why = self.of(namespace).map(Lease::why_over).unwrap_or_default();
        format!("the lease on `{namespace}` was lost: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn later(moment: Moment, monotonic: Duration, wall: Duration) -> Moment {
        Moment { monotonic: moment.monotonic + monotonic, wall: moment.wall + wall }
    }

    fn time(millis: i64) -> ServerTime {
        ServerTime { now: DateTime::from_millis(millis), asked: Moment::now() }
    }

    fn namespace() -> Namespace {
        Namespace { database: "app".into(), collection: "c.d".into() }
    }

    #[test]
    fn a_lease_is_relied_on_for_less_than_it_lasts_by_whichever_clock_says_more() {
        let asked = Moment::now();
        let left = |monotonic, wall| left(Some(asked), later(asked, monotonic, wall));
        assert_eq!((*LEASE, *RELIED_ON, *HEARTBEAT), (60 * S, 50 * S, 20 * S));
        assert_eq!(left(Duration::ZERO, Duration::ZERO), 50 * S);
        assert_eq!(left(49 * S, 49 * S), S);
        assert_eq!(left(50 * S, 50 * S), Duration::ZERO);
        // The machine slept, or its clock was set forward: both look the same.
        assert_eq!(left(S, 3600 * S), Duration::ZERO);
        // Its clock was set back.
        let back = Moment { monotonic: asked.monotonic + 51 * S, wall: asked.wall - 3600 * S };
        assert_eq!(super::left(Some(asked), back), Duration::ZERO);
        assert_eq!(super::left(None, asked), Duration::ZERO);
    }

    #[test]
    fn what_is_over_comes_back_only_where_it_was_renewed() {
        let old = Moment { monotonic: Instant::now() - 51 * S, wall: SystemTime::now() - 51 * S };
        let (renewed, seen) = watch::channel(Some(old));
        let leases = Leases::new(BTreeMap::from([(namespace(), Lease::new(seen))]));
        assert!(leases.is_over(&namespace()));
        assert!(leases.why_over(&namespace()).contains("could not be renewed within 50 s"));
        renewed.send_replace(Some(Moment::now()));
        assert!(!leases.is_over(&namespace()));
        renewed.send_replace(None);
        assert!(leases.is_over(&namespace()));
        assert!(leases.why_over(&namespace()).ends_with("`app.c.d` was lost: another run has it"));
        assert!(!Leases::default().is_over(&namespace()));
    }

    #[test]
    fn a_lease_is_taken_where_it_has_expired_by_the_servers_clock_or_is_ones_own() {
        let me = Holder::me("me", DateTime::from_millis(5));
        let (filter, update) = taking(&namespace(), &me, &time(1_000));
        let expired = doc! { "expiresAt": { "$lte": DateTime::from_millis(1_000) } };
        assert_eq!(filter, doc! { "_id": "app.c.d", "$or": [expired, { "runId": "me" }] });
        let lease = update.get_document("$set").unwrap();
        assert_eq!(lease.get_datetime("expiresAt").unwrap().timestamp_millis(), 61_000);
        let occupant = occupant(lease);
        assert_eq!(occupant.holder, Some(Holder { since: "1970-01-01T00:00:01.000Z".into(), ..me }));
        assert_eq!(occupant.expires_at, Some(DateTime::from_millis(61_000)));
        assert_eq!(super::occupant(&doc! { "expiresAt": "soon", "runId": 5 }), Occupant::default());
    }

    #[test]
    fn renewing_and_releasing_touch_ones_own_only() {
        let filter = owned(&[namespace()], "me");
        assert_eq!(filter, doc! { "_id": { "$in": ["app.c.d"] }, "runId": "me" });
        let now = time(1_000);
        let at = |millis| DateTime::from_millis(millis);
        assert_eq!(renewing(&now), doc! { "$set": { "heartbeat": at(1_000), "expiresAt": at(61_000) } });
        assert_eq!(releasing(&now), doc! { "$set": { "runId": null, "expiresAt": at(1_000) } });
    }
}
