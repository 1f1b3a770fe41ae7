//! The locks of a sweep: takes them, waits for them up to `--lock-wait`, renews leases, releases them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::session::Session;
use crate::failure::Failure;
use crate::instant::{millis, rfc3339};
use crate::lock::file::{self, FileLock};
use crate::lock::lease::{HEARTBEAT, LEASE, Lease, Leases, Moment, ServerTime};
use crate::lock::{Attempt, Holder, Occupant};
use crate::plan::{Decision, Guard, Plan, Refusal};
use crate::policy::namespace::Namespace;
use crate::server::error::ServerError;
use crate::server::lease::LeaseStore;
use crate::server::{Deployment, privileges};
use crate::text::duration;
use crate::{exit, log, machine};

/// Interval between two attempts to take a lock that another run holds.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// Time after a signal to wait for a lease request already sent. If it succeeds, the lease is released.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Limit on the time that a run waits for locks that other runs hold.
pub(super) struct LockWait<'a> {
    pub session: &'a Session,
    /// Maximum time, counted from the start of the run; `None`: no wait.
    pub max: Option<Duration>,
}

impl LockWait<'_> {
    /// Waits until the next attempt is due. Returns false once the time is over. Logs the reason, unless `is_logged` says that this was
    /// done before.
    ///
    /// Errors: the run was asked to stop.
    async fn again(&self, is_logged: &mut bool, why: impl FnOnce() -> String) -> Result<bool, Failure> {
        let left = self.max.unwrap_or_default().saturating_sub(self.session.begun.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        if !*is_logged {
            let max = duration(millis(left));
            info!(target: log::PROGRESS, "waiting for at most {max}: {}", why());
            *is_logged = true;
        }
        tokio::select! {
            biased;
            () = self.session.stop.asked() => Err(self.interrupted()),
            () = tokio::time::sleep(TRY_EVERY.min(left)) => Ok(true),
        }
    }

    fn interrupted(&self) -> Failure {
        self.session.stop.failure("nothing was deleted")
    }
}

/// Takes the lock on a file.
///
/// Errors: another process holds it, or the file cannot serve as a lock.
pub(super) async fn take_file(path: &Path, wait: &LockWait<'_>) -> Result<FileLock, Failure> {
    let shown = path.display();
    let mut is_logged = false;
    loop {
        let me = Holder::me(&wait.session.id, DateTime::now());
        let attempt = file::attempt(path, &me)
            .map_err(|cause| Failure::cannot_run(format!("taking the lock `{shown}`: {cause}; nothing was contacted")))?;
        let occupant = match attempt {
            Attempt::Taken(lock) => return Ok(lock),
            Attempt::Held(occupant) => occupant,
        };
        let why = || format!("the lock `{shown}` is held by {}", occupant.name());
        if !wait.again(&mut is_logged, why).await? {
            let failure = Failure::cannot_run(format!("{}; nothing was contacted", why()));
            return Err(failure.exit_code(exit::LOCKED).hint("`--lock-wait DUR` waits for it"));
        }
    }
}

/// The leases of one run, renewed until they are released.
pub(super) struct HeldLeases {
    keeper: Arc<Keeper>,
    heartbeat: JoinHandle<()>,
}

/// The leases and their renewal, shared with the task that renews them.
struct Keeper {
    store: LeaseStore,
    /// Moment just before the last renewal of each lease was sent; `None` once another run holds it.
    renewed: Mutex<BTreeMap<Namespace, watch::Sender<Option<Moment>>>>,
}

impl HeldLeases {
    /// Takes the lease of every namespace that the plan sweeps, and refuses the rules whose lease another run holds.
    ///
    /// Leases are taken in the order of their names, so that two runs never wait for each other.
    ///
    /// Errors: the collection cannot be used, or the run was asked to stop; all leases are released then.
    pub(super) async fn take(
        deployment: &Deployment,
        lock: &Namespace,
        wait: &LockWait<'_>,
        plan: &mut Plan,
    ) -> Result<Self, Failure> {
        let store = LeaseStore::new(deployment, lock, &wait.session.id);
        let keeper = Arc::new(Keeper { store, renewed: Mutex::default() });
        let heartbeat = tokio::spawn(machine::here(Keeper::renew_all(keeper.clone())));
        let held = Self { keeper, heartbeat };
        match held.take_all(lock, wait, plan).await {
            Ok(()) => Ok(held),
            Err(failure) => {
                held.release().await;
                Err(failure)
            }
        }
    }

    async fn take_all(&self, lock: &Namespace, wait: &LockWait<'_>, plan: &mut Plan) -> Result<(), Failure> {
        let is_swept = |decision: &Decision| matches!(decision, Decision::Sweep(_));
        let swept = plan.rules.iter().filter(|planned| is_swept(&planned.decision));
        let namespaces: BTreeSet<Namespace> = swept.map(|planned| planned.namespace.clone()).collect();
        let mut clock = None;
        for namespace in namespaces {
            let Some(occupant) = self.keeper.take(&namespace, lock, wait, &mut clock).await? else { continue };
            let detail = held_by(&namespace, &occupant);
            let rules = plan.rules.iter_mut().filter(|planned| planned.namespace == namespace && is_swept(&planned.decision));
            for planned in rules {
                let refusal = Refusal::new(Guard::Lock, detail.clone());
                planned.decision = Decision::Refuse { refusal, countable: None };
            }
        }
        Ok(())
    }

    /// Returns the leases, for checks before each delete.
    pub(super) fn leases(&self) -> Leases {
        let renewed = self.keeper.renewed.lock();
        Leases::new(renewed.iter().map(|(namespace, last)| (namespace.clone(), Lease::new(last.subscribe()))).collect())
    }

    /// Releases all leases. If that fails, they expire.
    pub(super) async fn release(self) {
        self.heartbeat.abort();
        let namespaces = self.keeper.namespaces();
        if namespaces.is_empty() {
            return;
        }
        if let Err(cause) = self.keeper.store.release(&namespaces).await {
            warn!("giving the leases back: {cause}; they expire within {} s", LEASE.as_secs());
        }
    }
}

impl Keeper {
    /// Takes the lease of a namespace. Returns the other run that still holds it when the wait is over, if there is one.
    ///
    /// Errors: the collection cannot be used, or the run was asked to stop.
    async fn take(
        &self,
        namespace: &Namespace,
        lock: &Namespace,
        wait: &LockWait<'_>,
        clock: &mut Option<ServerTime>,
    ) -> Result<Option<Occupant>, Failure> {
        let mut is_logged = false;
        loop {
            let attempt = self.store.attempt(namespace, clock);
            tokio::pin!(attempt);
            let attempt = tokio::select! {
                biased;
                attempt = &mut attempt => attempt.map_err(|cause| cannot_take(lock, &cause))?,
                () = wait.session.stop.asked() => {
                    if let Ok(Ok(Attempt::Taken(since))) = tokio::time::timeout(LAST_ANSWER, attempt).await {
                        self.enter(namespace, since);
                    }
                    return Err(wait.interrupted());
                }
            };
            let occupant = match attempt {
                Attempt::Taken(since) => {
                    self.enter(namespace, since);
                    return Ok(None);
                }
                Attempt::Held(occupant) => occupant,
            };
            if !wait.again(&mut is_logged, || held_by(namespace, &occupant)).await? {
                return Ok(Some(occupant));
            }
        }
    }

    /// Returns the namespaces whose lease is not lost.
    fn namespaces(&self) -> Vec<Namespace> {
        self.renewed.lock().iter().filter(|(_, last)| last.borrow().is_some()).map(|(namespace, _)| namespace.clone()).collect()
    }

    /// Adds a lease that was just taken.
    fn enter(&self, namespace: &Namespace, since: Moment) {
        self.renewed.lock().insert(namespace.clone(), watch::Sender::new(Some(since)));
    }

    /// Renews all leases at every heartbeat, and retries a renewal that fails. Never returns.
    async fn renew_all(self: Arc<Self>) {
        loop {
            tokio::time::sleep(*HEARTBEAT).await;
            let namespaces = self.namespaces();
            let mut is_logged = false;
            while !namespaces.is_empty() {
                match self.store.renew(&namespaces).await {
                    Ok((since, lost)) => {
                        self.note(&namespaces, since, &lost);
                        break;
                    }
                    Err(cause) if is_logged => info!("renewing the leases: {cause}"),
                    Err(cause) => {
                        warn!("renewing the leases: {cause}; trying again");
                        is_logged = true;
                    }
                }
                tokio::time::sleep(TRY_EVERY).await;
            }
        }
    }

    /// Notes that the leases of the namespaces were renewed at `since`, except for those that are lost.
    fn note(&self, namespaces: &[Namespace], since: Moment, lost: &[Namespace]) {
        let renewed = self.renewed.lock();
        for namespace in namespaces {
            let Some(last) = renewed.get(namespace) else { continue };
            if lost.contains(namespace) {
                warn!("the lease on `{namespace}` was lost: another run has it");
                last.send_replace(None);
            } else {
                last.send_replace(Some(since));
            }
        }
    }
}

/// Returns why a lease cannot be taken.
fn held_by(namespace: &Namespace, occupant: &Occupant) -> String {
    let until = match occupant.expires_at {
        Some(end) => format!("it ends at {} if it is not renewed", rfc3339(end)),
        None => "it does not say until when; delete its document once no run is left".to_owned(),
    };
    format!("the lease on `{namespace}` is held by {}; {until}", occupant.name())
}

fn cannot_take(lock: &Namespace, cause: &ServerError) -> Failure {
    let why = privileges::explain(cause, lock, &privileges::NEEDED_FOR_LEASES);
    Failure::cannot_run(format!("taking a lease in `{lock}` (`lock` of the policy): {why}; nothing was deleted"))
}
