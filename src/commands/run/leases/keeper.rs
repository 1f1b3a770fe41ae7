//! Takes and renews the leases in one collection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::base::failure::Failure;
use crate::base::instant::{millis, rfc3339};
use crate::base::log;
use crate::base::text::duration;
use crate::commands::run::locks::LockWait;
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::lease::{CREATED, HEARTBEAT, LEASE, LOOK, Leases, Renewals};
use crate::shell::lock::moment::{Moment, ServerTime};
use crate::shell::lock::{Attempt, Occupant};
use crate::shell::server::Deployment;
use crate::shell::server::own::lease::{LeaseStore, Taken};
use crate::shell::server::wire::error::ServerError;

/// Interval between two attempts to renew the leases after one has failed.
const RENEW_EVERY: Duration = Duration::from_millis(500);

/// Time after a signal to wait for a lease request already sent. If it succeeds, the lease is released.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Maximum time to give leases back at the end of a run. They expire without it.
const MAX_RELEASE: Duration = Duration::from_secs(3);

/// The leases in one collection and their renewal, shared with the task that renews them.
pub(super) struct Keeper {
    store: LeaseStore,
    leases: Mutex<BTreeMap<Namespace, Renewals>>,
    /// Moment at which a document was last created for a lease.
    created: Mutex<Option<Moment>>,
    /// Wakes the task that renews the leases before it is time.
    wanted: Arc<Notify>,
}

/// The reason why it is unknown whether a lease could be taken.
pub(super) enum NotTaken {
    /// The run was asked to stop.
    Asked(Failure),
    Failed(ServerError),
}

impl Keeper {
    pub(super) fn new(deployment: &Deployment, collection: &Namespace, run_id: &str) -> Self {
        let store = LeaseStore::new(deployment, collection, run_id);
        Self { store, leases: Mutex::default(), created: Mutex::default(), wanted: Arc::default() }
    }

    /// Takes the lease of a namespace. Returns the other run that still holds it when the wait is over, if there is one.
    ///
    /// Errors: the collection cannot be used, or the run was asked to stop.
    pub(super) async fn take(
        &self,
        namespace: &Namespace,
        wait: &LockWait<'_>,
        clock: &mut Option<ServerTime>,
    ) -> Result<Option<Occupant>, NotTaken> {
        let mut is_logged = false;
        loop {
            let attempt = self.store.attempt(namespace, clock);
            tokio::pin!(attempt);
            let attempt = tokio::select! {
                biased;
                attempt = &mut attempt => attempt.map_err(NotTaken::Failed)?,
                () = wait.session.stop.asked() => {
                    if let Ok(Ok(Attempt::Taken(taken))) = tokio::time::timeout(LAST_ANSWER, attempt).await {
                        self.enter(namespace, taken);
                    }
                    return Err(NotTaken::Asked(wait.interrupted()));
                }
            };
            let occupant = match attempt {
                Attempt::Taken(taken) => {
                    self.enter(namespace, taken);
                    return Ok(None);
                }
                Attempt::Held(occupant) => occupant,
            };
            if !wait.again(&mut is_logged, || held_by(&format!("`{namespace}`"), &occupant)).await.map_err(NotTaken::Asked)? {
                return Ok(Some(occupant));
            }
        }
    }

    /// Waits until the leases whose documents had to be created can be relied on.
    ///
    /// Errors: the run was asked to stop.
    pub(super) async fn until_reliable(&self, lock: &Namespace, wait: &LockWait<'_>) -> Result<(), Failure> {
        let left = self.time_to_rely();
        if left.is_zero() {
            return Ok(());
        }
        info!(
            target: log::PROGRESS,
            "waiting for {}: leases in `{lock}` are new, and could replace some that were removed under another run",
            duration(millis(left))
        );
        tokio::select! {
            biased;
            () = wait.session.stop.asked() => Err(wait.interrupted()),
            () = tokio::time::sleep(left) => Ok(()),
        }
    }

    /// Returns the leases, for checks before each delete.
    pub(super) fn leases(&self) -> Leases {
        let leases = self.leases.lock();
        Leases::new(leases.iter().map(|(namespace, renewals)| (namespace.clone(), renewals.lease())).collect())
    }

    /// Releases the leases under which every delete was answered; the others expire, and so do all if that fails.
    pub(super) async fn release(&self) {
        let seconds = LEASE.as_secs();
        let (unanswered, namespaces): (Vec<_>, Vec<_>) =
            self.namespaces().into_iter().partition(|namespace| self.is_unanswered(namespace));
        for namespace in &unanswered {
            warn!(
                "the lease on `{namespace}` is left to expire within {seconds} s: a delete had no answer, and may still arrive"
            );
        }
        if namespaces.is_empty() {
            return;
        }
        let are_new = !self.time_to_rely().is_zero();
        let why = match tokio::time::timeout(MAX_RELEASE, self.store.release(&namespaces, are_new)).await {
            Ok(Ok(())) => return,
            Ok(Err(cause)) => cause.to_string(),
            Err(_) => format!("no answer within {} s", MAX_RELEASE.as_secs()),
        };
        warn!("giving the leases back: {why}; they expire within {seconds} s");
    }

    /// Returns the time until leases whose documents had to be created can be relied on.
    fn time_to_rely(&self) -> Duration {
        let created = *self.created.lock();
        created.map_or(Duration::ZERO, |created| CREATED.saturating_sub(created.elapsed()))
    }

    /// Returns the namespaces whose lease is not lost.
    fn namespaces(&self) -> Vec<Namespace> {
        self.leases.lock().iter().filter(|(_, lease)| !lease.is_lost()).map(|(namespace, _)| namespace.clone()).collect()
    }

    /// Whether a delete under the lease of a namespace had no answer.
    fn is_unanswered(&self, namespace: &Namespace) -> bool {
        self.leases.lock().get(namespace).is_some_and(Renewals::is_unanswered)
    }

    /// Adds a lease that was just taken.
    fn enter(&self, namespace: &Namespace, taken: Taken) {
        if taken.is_created {
            *self.created.lock() = Some(Moment::now());
        }
        self.leases.lock().insert(namespace.clone(), Renewals::new(taken.time, self.wanted.clone()));
    }

    /// Renews all leases at every heartbeat and whenever one of them asks for it, and looks in between whether their documents
    /// are still there. Never returns.
    pub(super) async fn keep(self: Arc<Self>) {
        // A look that hangs must not delay a renewal.
        tokio::join!(self.renew_again_and_again(), self.look_again_and_again());
    }

    async fn renew_again_and_again(&self) {
        loop {
            let _ = tokio::time::timeout(*HEARTBEAT, self.wanted.notified()).await;
            let mut is_logged = false;
            while let Err(cause) = self.renew().await {
                match is_logged {
                    true => info!("renewing the leases: {cause}"),
                    false => warn!("renewing the leases: {cause}; trying again"),
                }
                is_logged = true;
                tokio::time::sleep(RENEW_EVERY).await;
            }
        }
    }

    async fn look_again_and_again(&self) {
        loop {
            tokio::time::sleep(*LOOK).await;
            let namespaces = self.namespaces();
            // Only an update tells for certain: a read may be answered by a member that is behind. A look that fails changes
            // nothing.
            if !namespaces.is_empty() && self.store.are_mine(&namespaces).await == Ok(false) {
                let _ = self.renew().await;
            }
        }
    }

    /// Renews all leases once, and notes which are lost.
    async fn renew(&self) -> Result<(), ServerError> {
        let namespaces = self.namespaces();
        if namespaces.is_empty() {
            return Ok(());
        }
        let (time, lost) = self.store.renew(&namespaces).await?;
        let leases = self.leases.lock();
        for namespace in namespaces {
            let Some(lease) = leases.get(&namespace) else { continue };
            if lost.contains(&namespace) {
                warn!("the lease on `{namespace}` was lost: another run has it, or its document was removed");
                lease.lost();
            } else {
                lease.renewed(time);
            }
        }
        Ok(())
    }
}

/// Returns why a lease cannot be taken. The reason of a rule leaves the namespace out, so that rules behind one run have one
/// reason.
pub(super) fn held_by(namespace: &str, occupant: &Occupant) -> String {
    let until = match occupant.expires_at {
        Some(end) => format!("it ends at {} if it is not renewed", rfc3339(end)),
        None => "its document has no end; delete it once no run is left".to_owned(),
    };
    format!("the lease on {namespace} is held by {}; {until}", occupant.name())
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Document, doc};
    use tokio::time::Instant;

    use super::*;
    use crate::testing::scripted::{Script, ScriptedReply};

    fn namespace(collection: &str) -> Namespace {
        Namespace { database: "app".into(), collection: collection.into() }
    }

    /// Returns the keeper of a lease on each collection, taken just now.
    fn keeper(script: &Arc<Script>, collections: &[&str]) -> Arc<Keeper> {
        let store = LeaseStore::new(&script.deployment(), &namespace("locks"), "me");
        let keeper = Keeper { store, leases: Mutex::default(), created: Mutex::default(), wanted: Arc::default() };
        let time = ServerTime { now: DateTime::from_millis(0), asked: Moment::now() };
        collections.iter().for_each(|name| keeper.enter(&namespace(name), Taken { time, is_created: false }));
        Arc::new(keeper)
    }

    /// Returns the name of a command that was sent.
    fn name(command: &Document) -> &str {
        command.keys().next().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_removed_is_missed_by_the_next_look_and_lost_by_an_update() {
        use ScriptedReply::{Batch, End, Reply};
        let mine = || Batch(vec![doc! { "_id": "app.c", "runId": "me" }]);
        let hello = || Reply(doc! { "localTime": DateTime::from_millis(0) });
        let script = Script::new([
            mine(),
            End,
            // A member that is behind: the update finds the lease.
            Batch(vec![]),
            End,
            hello(),
            Reply(doc! { "n": 1 }),
            // Removed.
            Batch(vec![]),
            End,
            hello(),
            Reply(doc! { "n": 0 }),
            Batch(vec![]),
            End,
        ]);
        let keeper = keeper(&script, &["c"]);
        let lease = keeper.leases.lock()[&namespace("c")].lease();
        let begun = Instant::now();
        tokio::select! {
            () = keeper.clone().keep() => panic!("it never ends"),
            () = lease.over() => {}
        }
        let took = begun.elapsed();
        assert!((3 * *LOOK..*HEARTBEAT).contains(&took), "{took:?}");
        assert!(keeper.namespaces().is_empty());
        let sent: Vec<String> = script.sent().iter().map(|command| name(command).to_owned()).collect();
        assert_eq!(sent, ["find", "find", "hello", "update", "find", "hello", "update", "find"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_renewed_goes_on_by_the_new_reading_and_one_that_is_lost_does_not() {
        use ScriptedReply::{Batch, End, Reply};
        let hello = |millis| Reply(doc! { "localTime": DateTime::from_millis(millis) });
        let mine = || vec![Batch(vec![doc! { "_id": "app.a", "runId": "me" }]), End];
        let script = Script::new([hello(40_000), Reply(doc! { "n": 1 })].into_iter().chain(mine()));
        let keeper = keeper(&script, &["a", "b"]);
        let [a, b] = ["a", "b"].map(|name| keeper.leases.lock()[&namespace(name)].lease());
        tokio::time::advance(*HEARTBEAT * 2).await;
        keeper.renew().await.unwrap();
        assert!(!a.is_over() && b.is_over());
        tokio::time::advance(*HEARTBEAT).await;
        let fence = a.fence().unwrap();
        let end = fence.begins_before.timestamp_millis() + i64::try_from(fence.max_time.unwrap().as_millis()).unwrap();
        // 50 of the 60 seconds that follow the reading.
        assert_eq!(end, 90_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_asked_for_is_renewed_at_once() {
        use ScriptedReply::{Reply, Silence};
        let script = Script::new([Reply(doc! { "localTime": DateTime::from_millis(600_000) }), Reply(doc! { "n": 1 }), Silence]);
        let keeper = keeper(&script, &["c"]);
        let lease = keeper.leases.lock()[&namespace("c")].lease();
        let begun = Instant::now();
        tokio::select! {
            () = keeper.clone().keep() => panic!("it never ends"),
            () = lease.renew() => {}
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(lease.fence().unwrap().begins_before.timestamp_millis() > 600_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_without_an_answer_delays_no_renewal() {
        // The first look never ends; after its time limit it would be repeated.
        let script = Script::new([ScriptedReply::Silence]);
        let keeper = keeper(&script, &["c"]);
        let kept = tokio::time::timeout(*HEARTBEAT + LOOK.mul_f32(0.5), keeper.clone().keep());
        assert!(kept.await.is_err());
        assert!(script.sent().iter().any(|command| name(command) == "hello"), "{:?}", script.sent());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_released_was_answered_and_a_silent_server_is_not_waited_for() {
        let release = async |reply| {
            let script = Script::new([reply]);
            let keeper = keeper(&script, &["a", "b", "c"]);
            keeper.leases.lock()[&namespace("a")].lease().note_unanswered();
            keeper.leases.lock()[&namespace("c")].lost();
            let begun = Instant::now();
            keeper.release().await;
            let update = script.sent()[0].get_array("updates").unwrap()[0].as_document().unwrap().clone();
            assert_eq!(update.get_document("q").unwrap(), &doc! { "_id": { "$in": ["app.b"] }, "runId": "me" });
            begun.elapsed()
        };
        assert_eq!(release(ScriptedReply::Reply(doc! { "n": 1 })).await, Duration::ZERO);
        assert_eq!(release(ScriptedReply::Silence).await, MAX_RELEASE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_could_not_be_relied_on_yet_is_no_other_runs_until_it_could() {
        let now = DateTime::from_millis(7_000);
        let script = Script::new([ScriptedReply::Reply(doc! { "localTime": now }), ScriptedReply::Reply(doc! { "n": 1 })]);
        let keeper = keeper(&script, &[]);
        let time = ServerTime { now: DateTime::from_millis(0), asked: Moment::now() };
        keeper.enter(&namespace("a"), Taken { time, is_created: true });
        keeper.release().await;
        let [hello, update] = &script.sent()[..] else { panic!("{:?}", script.sent()) };
        assert_eq!(name(hello), "hello");
        let update = update.get_array("updates").unwrap()[0].as_document().unwrap().get_document("u").unwrap().clone();
        let end = DateTime::from_millis(12_000);
        assert_eq!(update, doc! { "$set": { "runId": null, "expiresAt": end } });
    }
}
