//! The leases of a sweep: takes them, renews them while it runs, gives them back.

mod keeper;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use keeper::{Keeper, NotTaken, held_by};
use tokio::task::JoinHandle;

use super::locks::LockWait;
use crate::base::failure::Failure;
use crate::base::machine;
use crate::core::plan::{Decision, Guard, Plan, PlannedRule, Refusal, SweepRule};
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::lease::Leases;
use crate::shell::server::Deployment;
use crate::shell::server::look::privileges;
use crate::shell::server::wire::error::ServerError;

/// The leases of one run, renewed until they are released.
pub(crate) struct HeldLeases(Vec<Held>);

/// The leases in one collection.
struct Held {
    keeper: Arc<Keeper>,
    heartbeat: JoinHandle<()>,
}

/// A collection of leases.
struct LeaseCollection {
    namespace: Namespace,
    /// Whether it is the collection of `lock`, in which each rule has a lease; otherwise it is a journal, in which only rules
    /// with children have one.
    is_lock: bool,
}

impl LeaseCollection {
    /// Returns the collections that a plan needs. Every run takes them in the order of their names, so that two runs never wait
    /// for each other.
    fn all(lock: Option<&Namespace>, plan: &Plan) -> Vec<Self> {
        let swept = plan.rules.iter().filter_map(|planned| planned.decision.swept());
        let journals = swept.filter_map(|rule| rule.family.as_ref()).map(|family| &family.journal);
        let namespaces: BTreeSet<&Namespace> = journals.chain(lock).collect();
        let collection = |namespace: &Namespace| Self { namespace: namespace.clone(), is_lock: Some(namespace) == lock };
        namespaces.into_iter().map(collection).collect()
    }

    /// Whether a rule needs a lease in it.
    fn is_needed_by(&self, planned: &PlannedRule) -> bool {
        let has_parents = |rule: &SweepRule| rule.family.as_ref().is_some_and(|family| family.journal == self.namespace);
        planned.decision.swept().is_some_and(|rule| self.is_lock || has_parents(rule))
    }

    /// Decides otherwise of the rules that need the lease of a namespace in it.
    fn deny(&self, plan: &mut Plan, namespace: &Namespace, decision: impl Fn(&Decision) -> Decision) {
        let rules = plan.rules.iter_mut().filter(|planned| planned.namespace == *namespace && self.is_needed_by(planned));
        rules.for_each(|planned| planned.decision = decision(&planned.decision));
    }

    fn cannot_take(&self, cause: &ServerError) -> String {
        let Self { namespace, is_lock } = self;
        let key = if *is_lock { "lock" } else { "journal" };
        let why = privileges::explain(cause, namespace, &privileges::NEEDED_FOR_LEASES);
        format!("taking a lease in `{namespace}` (`{key}` of the policy): {why}")
    }
}

impl HeldLeases {
    /// Takes the leases that the plan needs: of every namespace in the collection of `lock`, if there is one, and of the parents
    /// of children in their journal. Refuses the rules whose lease another run holds.
    ///
    /// Leases are taken in the order of their names, so that two runs never wait for each other.
    ///
    /// Errors: the collection of `lock` cannot be used, or the run was asked to stop; all leases are released then. Where a
    /// journal cannot be used, its rules fail.
    pub(crate) async fn take(
        deployment: &Deployment,
        lock: Option<&Namespace>,
        wait: &LockWait<'_>,
        plan: &mut Arc<Plan>,
    ) -> Result<Self, Failure> {
        let mut held = Self(Vec::new());
        for collection in LeaseCollection::all(lock, plan) {
            let of_collection = Held::open(deployment, &collection, &wait.session.id);
            let taken = of_collection.take_all(&collection, wait, plan).await;
            held.0.push(of_collection);
            if let Err(failure) = taken {
                held.release().await;
                return Err(failure);
            }
        }
        Ok(held)
    }

    /// Returns the leases, for checks before each delete.
    pub(crate) fn leases(&self) -> Leases {
        self.0.iter().map(|held| held.keeper.leases()).fold(Leases::default(), Leases::and)
    }

    /// Releases the leases under which every delete was answered; the others expire, and so do all if that fails.
    pub(crate) async fn release(self) {
        join_all(self.0.into_iter().map(Held::release)).await;
    }
}

impl Held {
    fn open(deployment: &Deployment, collection: &LeaseCollection, run_id: &str) -> Self {
        let keeper = Arc::new(Keeper::new(deployment, &collection.namespace, run_id));
        let heartbeat = tokio::spawn(machine::here(Keeper::keep(keeper.clone())));
        Self { keeper, heartbeat }
    }

    /// Takes the leases of a collection, and waits until they can be relied on.
    async fn take_all(&self, collection: &LeaseCollection, wait: &LockWait<'_>, plan: &mut Arc<Plan>) -> Result<(), Failure> {
        let needing = plan.rules.iter().filter(|planned| collection.is_needed_by(planned));
        let namespaces: BTreeSet<Namespace> = needing.map(|planned| planned.namespace.clone()).collect();
        let mut clock = None;
        for namespace in namespaces {
            match self.keeper.take(&namespace, wait, &mut clock).await {
                Ok(None) => {}
                Ok(Some(occupant)) => {
                    let refusal = Refusal::new(Guard::Lock, held_by("the namespace", &occupant));
                    // Its documents tell the same of a name, whoever holds the lease.
                    let refused = |decision: &Decision| Decision::Refuse {
                        refusal: refusal.clone(),
                        countable: decision.countable().cloned(),
                    };
                    collection.deny(Arc::make_mut(plan), &namespace, refused);
                }
                Err(NotTaken::Asked(failure)) => return Err(failure),
                Err(NotTaken::Failed(cause)) if collection.is_lock => {
                    return Err(Failure::cannot_run(format!("{}; nothing was deleted", collection.cannot_take(&cause))));
                }
                Err(NotTaken::Failed(cause)) => {
                    collection.deny(Arc::make_mut(plan), &namespace, |_| Decision::Fail(collection.cannot_take(&cause)));
                }
            }
        }
        self.keeper.until_reliable(&collection.namespace, wait).await
    }

    async fn release(self) {
        self.heartbeat.abort();
        self.keeper.release().await;
    }
}
