//! Takes the locks of a sweep, waits for them where that is asked for, and gives them back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bson::DateTime;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::Run;
use super::prepare::interrupted;
use crate::failure::Failure;
use crate::instant::{millis, rfc3339};
use crate::lock::file::{self, FileLock};
use crate::lock::lease::{HEARTBEAT, Held, LEASE, Lease, Leases, Moment, Term};
use crate::lock::{HELD, Holder, named};
use crate::plan::{Decision, Plan, Refusal};
use crate::policy::namespace::Namespace;
use crate::server::error::ServerError;
use crate::server::lease::{Attempt, LeaseStore};
use crate::server::{Deployment, error};
use crate::text::duration;
use crate::{exit, log};

/// How often a lock is tried that another run has.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// What is being asked while a signal comes may be answered so much later: a lease that was just taken is then given back.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// How long a run waits for locks that others have, from its beginning on.
pub struct Wait<'a> {
    pub run: &'a Run,
    pub most: Option<Duration>,
}

impl Wait<'_> {
    /// Waits until it is time to try again; false where the time is over. `said` is whether it was said before why.
    ///
    /// Errors: the run was asked to stop.
    async fn again(&self, said: &mut bool, why: impl FnOnce() -> String) -> Result<bool, Failure> {
        let left = self.most.unwrap_or_default().saturating_sub(self.run.begun.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        if !*said {
            let most = duration(millis(left));
            info!(target: log::PROGRESS, "waiting for at most {most}: {}", why());
            *said = true;
        }
        tokio::select! {
            () = tokio::time::sleep(TRY_EVERY.min(left)) => Ok(true),
            () = self.run.stop.asked() => Err(interrupted(self.run)),
        }
    }
}

/// Takes the lock on a file.
///
/// Errors: another process has it and keeps it, or there can be no lock on such a file.
pub async fn take_file(path: &Path, wait: &Wait<'_>) -> Result<FileLock, Failure> {
    let shown = path.display();
    let mut said = false;
    loop {
        let me = Holder::me(&wait.run.id, DateTime::now());
        let attempt = file::attempt(path, &me)
            .map_err(|cause| Failure::cannot_run(format!("taking the lock `{shown}`: {cause}; nothing was contacted")))?;
        let holder = match attempt {
            file::Attempt::Taken(lock) => return Ok(lock),
            file::Attempt::Held(holder) => holder,
        };
        let why = || format!("the lock `{shown}` is held by {}", named(holder.as_ref()));
        if !wait.again(&mut said, why).await? {
            let failure = Failure::cannot_run(format!("{}; nothing was contacted", why()));
            return Err(Failure { exit_code: exit::LOCKED, ..failure }.hint("`--lock-wait DUR` waits for it"));
        }
    }
}

/// The leases of one run, renewed until they are given back.
pub struct HeldLeases {
    keeper: Arc<Keeper>,
    heartbeat: JoinHandle<()>,
}

struct Keeper {
    store: LeaseStore,
    terms: Mutex<BTreeMap<Namespace, watch::Sender<Term>>>,
}

impl HeldLeases {
    /// Takes the lease of every namespace that is to be swept; rules whose lease another run has, and keeps, are refused.
    ///
    /// One after the other in the order of their names, so that two runs never wait for each other.
    ///
    /// Errors: the collection cannot be used, or the run was asked to stop; what was taken is given back.
    pub async fn take(deployment: &Deployment, lock: &Namespace, wait: &Wait<'_>, plan: &mut Plan) -> Result<Self, Failure> {
        let store = LeaseStore::new(deployment, lock, &wait.run.id);
        let keeper = Arc::new(Keeper { store, terms: Mutex::default() });
        let heartbeat = tokio::spawn(Keeper::renew_all(keeper.clone()));
        let held = Self { keeper, heartbeat };
        match held.take_all(lock, wait, plan).await {
            Ok(()) => Ok(held),
            Err(failure) => {
                held.release().await;
                Err(failure)
            }
        }
    }

    async fn take_all(&self, lock: &Namespace, wait: &Wait<'_>, plan: &mut Plan) -> Result<(), Failure> {
        let is_swept = |decision: &Decision| matches!(decision, Decision::Sweep(_));
        let swept = plan.rules.iter().filter(|planned| is_swept(&planned.decision));
        let namespaces: BTreeSet<Namespace> = swept.map(|planned| planned.namespace.clone()).collect();
        let mut clock = None;
        for namespace in namespaces {
            let mut said = false;
            loop {
                let attempt = self.keeper.store.attempt(&namespace, &mut clock);
                tokio::pin!(attempt);
                let attempt = tokio::select! {
                    attempt = &mut attempt => attempt,
                    () = wait.run.stop.asked() => {
                        if let Ok(Ok(Attempt::Taken(since))) = tokio::time::timeout(LAST_ANSWER, attempt).await {
                            self.keeper.enter(&namespace, since);
                        }
                        return Err(interrupted(wait.run));
                    }
                };
                let held = match attempt.map_err(|cause| cannot_take(lock, &cause))? {
                    Attempt::Taken(since) => {
                        self.keeper.enter(&namespace, since);
                        break;
                    }
                    Attempt::Held(held) => held,
                };
                if !wait.again(&mut said, || of_another(&namespace, &held)).await? {
                    let detail = of_another(&namespace, &held);
                    for planned in plan.rules.iter_mut().filter(|planned| planned.namespace == namespace) {
                        if is_swept(&planned.decision) {
                            let refusal = Refusal { guard: HELD, detail: detail.clone() };
                            planned.decision = Decision::Refuse { refusal, countable: None };
                        }
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// The leases as those see them who delete under them.
    pub fn leases(&self) -> Leases {
        let terms = self.keeper.terms.lock();
        Leases::new(terms.iter().map(|(namespace, term)| (namespace.clone(), Lease::new(term.subscribe()))).collect())
    }

    /// Gives all leases back. Where that fails they expire.
    pub async fn release(self) {
        self.heartbeat.abort();
        let namespaces = self.keeper.namespaces();
        if namespaces.is_empty() {
            return;
        }
        if let Err(cause) = self.keeper.store.release(&namespaces).await {
            warn!("giving the leases back: {}; they expire within {} s", error::explain(&cause), LEASE.as_secs());
        }
    }
}

impl Keeper {
    fn namespaces(&self) -> Vec<Namespace> {
        self.terms
            .lock()
            .iter()
            .filter(|(_, term)| *term.borrow() != Term::Lost)
            .map(|(namespace, _)| namespace.clone())
            .collect()
    }

    fn enter(&self, namespace: &Namespace, since: Moment) {
        self.terms.lock().insert(namespace.clone(), watch::Sender::new(Term::From(since)));
    }

    async fn renew_all(self: Arc<Self>) {
        loop {
            tokio::time::sleep(*HEARTBEAT).await;
            let namespaces = self.namespaces();
            let mut said = false;
            while !namespaces.is_empty() {
                match self.store.renew(&namespaces).await {
                    Ok((since, lost)) => {
                        self.renewed(&namespaces, since, &lost);
                        break;
                    }
                    Err(cause) if said => info!("renewing the leases: {}", error::explain(&cause)),
                    Err(cause) => {
                        warn!("renewing the leases: {}; trying again", error::explain(&cause));
                        said = true;
                    }
                }
                tokio::time::sleep(TRY_EVERY).await;
            }
        }
    }

    fn renewed(&self, namespaces: &[Namespace], since: Moment, lost: &[Namespace]) {
        let terms = self.terms.lock();
        for namespace in namespaces {
            let Some(term) = terms.get(namespace) else { continue };
            if lost.contains(namespace) {
                warn!("the lease on `{namespace}` was lost: another run has it");
                term.send_replace(Term::Lost);
            } else {
                term.send_replace(Term::From(since));
            }
        }
    }
}

fn of_another(namespace: &Namespace, held: &Held) -> String {
    let until = match held.expires_at {
        Some(end) => format!("it ends at {} if it is not renewed", rfc3339(end)),
        None => "it does not say until when; delete that document once no run is left".to_owned(),
    };
    format!("the lease on `{namespace}` is held by {}; {until}", named(held.holder.as_ref()))
}

fn cannot_take(lock: &Namespace, cause: &ServerError) -> Failure {
    let failure = Failure::cannot_run(format!(
        "taking a lease in `{lock}` (`lock` of the policy): {}; nothing was deleted",
        error::explain(cause)
    ));
    match error::code(cause) {
        Some(13) => failure.hint("the user needs `find`, `insert` and `update` there; `sweeper check --connect` names the grant"),
        _ => failure,
    }
}
