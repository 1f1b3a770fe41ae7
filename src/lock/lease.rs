//! Leases in the database: for each namespace at most one run has one, by the server's clock. What they look like, and how long they can
//! be relied on; asking the server is the business of [`crate::server::lease`].
//!
//! A lease is a document: `_id` (the namespace), `runId`, `host`, `pid`, `since`, `heartbeat` and `expiresAt`. It is taken by an update
//! with upsert that finds the document only where it has expired: where it has not, the insert fails by its `_id`. No TTL index is needed,
//! and nothing is ever deleted: a lease that was given back has no `runId` and has expired.
//!
//! Times are the server's, read by `hello` before each command, and plain operators compare them: this works on every service, where
//! `$$NOW` in an update needs pipelines. That the reading is older than the command makes it safer: another's lease looks longer than it
//! is, and one's own is written shorter.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use bson::{DateTime, Document, doc};
use tokio::sync::watch;

use super::Holder;
use crate::policy::namespace::Namespace;

/// Duration of a lease that is not renewed.
pub static LEASE: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(lease_seconds()));

/// Duration for which its holder relies on it: less, so that commands that were sent just before arrive in time, and the clocks of a set's
/// members may differ by the rest.
static RELIED_ON: LazyLock<Duration> = LazyLock::new(|| *LEASE * 5 / 6);

/// Time between two renewals.
pub static HEARTBEAT: LazyLock<Duration> = LazyLock::new(|| *LEASE / 3);

/// Returns the seconds of a lease: a minute, or in debug builds what a test that waits for the end of one asks for.
fn lease_seconds() -> u64 {
    #[cfg(debug_assertions)]
    if let Some(seconds) = std::env::var("SWEEPER_TEST_LEASE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()) {
        return seconds;
    }
    60
}

/// A wait for the end of a lease looks at the clocks this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An instant on both of this machine's clocks: one goes on when the other is set, the other when the machine sleeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    pub fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// The time since, by the clock that says more.
    pub fn elapsed(self) -> Duration {
        self.until(Self::now())
    }

    /// The time from this moment to a later one, by the clock that says more.
    fn until(self, later: Moment) -> Duration {
        let monotonic = later.monotonic.saturating_duration_since(self.monotonic);
        monotonic.max(later.wall.duration_since(self.wall).unwrap_or_default())
    }
}

/// The server's clock.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub server: DateTime,
    /// Before the server was asked.
    pub asked: Moment,
}

impl Reading {
    fn end_of_lease(&self) -> DateTime {
        DateTime::from_millis(self.server.timestamp_millis().saturating_add(millis(*LEASE)))
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Filter and update that take a lease, to be sent with upsert: the update finds one that has expired, or one's own after a lost reply.
pub fn taking(namespace: &Namespace, me: &Holder, now: &Reading) -> (Document, Document) {
    let free = [doc! { "expiresAt": { "$lte": now.server } }, doc! { "runId": &me.run_id }];
    let filter = doc! { "_id": namespace.to_string(), "$or": free };
    let lease = doc! {
        "runId": &me.run_id,
        "host": &me.host,
        "pid": i64::from(me.pid),
        "since": now.server,
        "heartbeat": now.server,
        "expiresAt": now.end_of_lease(),
    };
    (filter, doc! { "$set": lease })
}

/// Those of some namespaces whose leases a run has, expired or not: while no other run took one, it can be renewed.
pub fn owned(namespaces: &[Namespace], run_id: &str) -> Document {
    let ids: Vec<String> = namespaces.iter().map(Namespace::to_string).collect();
    doc! { "_id": { "$in": ids }, "runId": run_id }
}

pub fn renewing(now: &Reading) -> Document {
    doc! { "$set": { "heartbeat": now.server, "expiresAt": now.end_of_lease() } }
}

/// Gives a lease back. `now` may be long past.
pub fn releasing(now: &Reading) -> Document {
    doc! { "$set": { "runId": null, "expiresAt": now.server } }
}

/// A lease that another run has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub holder: Option<Holder>,
    pub expires_at: Option<DateTime>,
}

impl Held {
    /// Reads the document; whatever is not as it should be is left out.
    pub fn read(lease: &Document) -> Self {
        let text = |key| lease.get_str(key).ok().map(str::to_owned);
        let date = |key| lease.get_datetime(key).ok().copied();
        let holder = || {
            let pid = lease.get_i64("pid").ok().and_then(|pid| u32::try_from(pid).ok())?;
            let since = crate::instant::rfc3339(date("since")?);
            Some(Holder { run_id: text("runId")?, host: text("host")?, pid, since })
        };
        Self { holder: holder(), expires_at: date("expiresAt") }
    }
}

/// How long a lease can be relied on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Term {
    /// It was last renewed by a command that was sent after this moment.
    From(Moment),
    /// Another run has it.
    Lost,
}

impl Term {
    fn left(&self, now: Moment) -> Duration {
        match self {
            Term::From(asked) => RELIED_ON.saturating_sub(asked.until(now)),
            Term::Lost => Duration::ZERO,
        }
    }
}

/// A lease of this run, as those see it who delete under it.
#[derive(Debug, Clone)]
pub struct Lease(watch::Receiver<Term>);

impl Lease {
    pub fn new(term: watch::Receiver<Term>) -> Self {
        Self(term)
    }

    /// Whether another run may have it by now. Asked before each delete command.
    pub fn is_over(&self) -> bool {
        self.0.borrow().left(Moment::now()).is_zero()
    }

    /// Ends when another run may have it.
    pub async fn over(&self) {
        while !self.is_over() {
            let left = self.0.borrow().left(Moment::now());
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }

    fn why(&self) -> String {
        match *self.0.borrow() {
            Term::Lost => "another run has it".to_owned(),
            Term::From(_) => format!("it could not be renewed within {} s", RELIED_ON.as_secs()),
        }
    }
}

/// The leases of one run; none where the policy asks for none.
#[derive(Debug, Clone, Default)]
pub struct Leases(Arc<BTreeMap<Namespace, Lease>>);

impl Leases {
    pub fn new(leases: BTreeMap<Namespace, Lease>) -> Self {
        Self(Arc::new(leases))
    }

    pub fn of(&self, namespace: &Namespace) -> Option<&Lease> {
        self.0.get(namespace)
    }

    pub fn is_over(&self, namespace: &Namespace) -> bool {
        self.of(namespace).is_some_and(Lease::is_over)
    }

    pub async fn over(&self, namespace: &Namespace) {
        match self.of(namespace) {
            Some(lease) => lease.over().await,
            None => std::future::pending().await,
        }
    }

    /// Says what became of a lease that is over.
    pub fn why_over(&self, namespace: &Namespace) -> String {
        let why = self.of(namespace).map(Lease::why).unwrap_or_default();
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

    fn reading(millis: i64) -> Reading {
        Reading { server: DateTime::from_millis(millis), asked: Moment::now() }
    }

    fn namespace() -> Namespace {
        Namespace { database: "app".into(), collection: "c.d".into() }
    }

    #[test]
    fn a_lease_is_relied_on_for_less_than_it_lasts_by_whichever_clock_says_more() {
        let asked = Moment::now();
        let left = |monotonic, wall| Term::From(asked).left(later(asked, monotonic, wall));
        assert_eq!((*LEASE, *RELIED_ON, *HEARTBEAT), (60 * S, 50 * S, 20 * S));
        assert_eq!(left(Duration::ZERO, Duration::ZERO), 50 * S);
        assert_eq!(left(49 * S, 49 * S), S);
        assert_eq!(left(50 * S, 50 * S), Duration::ZERO);
        // The machine slept, or its clock was set forward: both look the same.
        assert_eq!(left(S, 3600 * S), Duration::ZERO);
        // Its clock was set back.
        let back = Moment { monotonic: asked.monotonic + 51 * S, wall: asked.wall - 3600 * S };
        assert_eq!(Term::From(asked).left(back), Duration::ZERO);
        assert_eq!(Term::Lost.left(asked), Duration::ZERO);
    }

    #[test]
    fn what_is_over_comes_back_only_where_it_was_renewed() {
        let old = Moment { monotonic: Instant::now() - 51 * S, wall: SystemTime::now() - 51 * S };
        let (term, seen) = watch::channel(Term::From(old));
        let leases = Leases::new(BTreeMap::from([(namespace(), Lease::new(seen))]));
        assert!(leases.is_over(&namespace()));
        assert!(leases.why_over(&namespace()).contains("could not be renewed within 50 s"));
        term.send_replace(Term::From(Moment::now()));
        assert!(!leases.is_over(&namespace()));
        term.send_replace(Term::Lost);
        assert!(leases.is_over(&namespace()));
        assert!(leases.why_over(&namespace()).ends_with("`app.c.d` was lost: another run has it"));
        assert!(!Leases::default().is_over(&namespace()));
    }

    #[test]
    fn a_lease_is_taken_where_it_has_expired_by_the_servers_clock_or_is_ones_own() {
        let me = Holder::me("me", DateTime::from_millis(5));
        let (filter, update) = taking(&namespace(), &me, &reading(1_000));
        let expired = doc! { "expiresAt": { "$lte": DateTime::from_millis(1_000) } };
        assert_eq!(filter, doc! { "_id": "app.c.d", "$or": [expired, { "runId": "me" }] });
        let lease = update.get_document("$set").unwrap();
        assert_eq!(lease.get_datetime("expiresAt").unwrap().timestamp_millis(), 61_000);
        let held = Held::read(lease);
        assert_eq!(held.holder, Some(Holder { since: "1970-01-01T00:00:01.000Z".into(), ..me }));
        assert_eq!(held.expires_at, Some(DateTime::from_millis(61_000)));
        assert_eq!(Held::read(&doc! { "expiresAt": "soon", "runId": 5 }), Held { holder: None, expires_at: None });
    }

    #[test]
    fn renewing_and_releasing_touch_ones_own_alone() {
        let filter = owned(&[namespace()], "me");
        assert_eq!(filter, doc! { "_id": { "$in": ["app.c.d"] }, "runId": "me" });
        let now = reading(1_000);
        let at = |millis| DateTime::from_millis(millis);
        assert_eq!(renewing(&now), doc! { "$set": { "heartbeat": at(1_000), "expiresAt": at(61_000) } });
        assert_eq!(releasing(&now), doc! { "$set": { "runId": null, "expiresAt": at(1_000) } });
    }
}
