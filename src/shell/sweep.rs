//! Sweeps one rule in one namespace: finds its expired documents and deletes them in batches, the oldest dates first if an index
//! has that order.
//!
//! ```text
//! open a source, which finds the documents                                           source
//! until the source is exhausted, or a limit or a person ends the sweep:
//!     ask all gates until they are open, and wait for a permit of the run            gates, engine
//!     reserve n documents, as many as pace, gates and limits leave room for          pace, gates, budget
//!     take the next batch of at most n documents from the source                     candidates, ranges, date_stretches, id_pages, billed_stretches
//!     give back what the batch does not need of the n
//!     ask all gates again                                                            gates, engine
//!     start the batch, up to `concurrency` of them at a time:                        batch
//!         if the rule archives: read the documents, write them to the disk,
//!             and restrict the delete to the states that were written                archived
//!         send `delete {batch} AND {whole predicate of the rule}`                    send, server::delete
//!         after each reply: go on, halve the batch, wait and retry, or give up       attempts
//!         return the permit
//!     record each batch that has finished: counts, pace, refunds                     engine
//!     if the rule has children: delete the batch's children in their own batches     family, child_pages
//! wait for the batches in flight, but not longer than a server that still answers takes, and return the outcome
//! ```
//!
//! Invariants of every step:
//!
//! - A document is deleted only by a statement with the whole predicate of its rule. A document that has changed since it was
//!   found survives, and sending the same batch twice is harmless.
//! - No more documents are asked for than are reserved. Documents that turn out not to be deleted are refunded, except after a
//!   lost reply.
//! - A delete of a rule with holds or periods carries all of their keys, as they were read at most seconds before
//!   ([`crate::shell::server::watch::holds`]).
//! - Nothing takes effect under a lease that is over ([`crate::shell::lock::lease`]), and nothing is sent again once the sweep
//!   has ended.
//! - The counts come from the server's replies. After a lost reply they are a lower bound, and the outcome says so.

mod batch;
mod budget;
mod engine;
mod family;
mod gates;
mod outcome;
mod sources;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use batch::binding::Binding;
use bson::Document;
use parking_lot::Mutex;

pub(crate) use batch::archived::RuleArchive;
pub(crate) use budget::{Permit, RunBudget};
use engine::Engine;
use family::{ParentSweep, confirm_by_majority};
use gates::lag::LagGate;
pub(crate) use gates::oplog::oplog_in_flight;

use crate::base::pause_file::PauseFile;
use crate::base::progress::RuleProgress;
use crate::base::stop::Stop;
use crate::base::values::raw::RawValue;
use crate::base::watch;
use crate::core::plan::findings::GoesBy;
use crate::core::plan::holds::HeldBack;
use crate::core::plan::outcome::Outcome;
use crate::core::plan::{ChildRule, Sizes, StopReason, Storage, SweepRule, order};
use crate::core::policy::Order;
use crate::core::policy::limits::Limits;
use crate::shell::lock::lease::{Lease, Leases};
use crate::shell::server::Deployment;
use crate::shell::server::delete::grant::DeleteGrant;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::holds::HoldsView;

/// The sweep of one rule: all that its batches share.
pub(crate) struct RuleSweep {
    deployment: Deployment,
    rule: SweepRule,
    /// Whether it deletes the children of another rule.
    is_of_children: bool,
    /// The collections that it is bound to, the collections of the children and of their parents included.
    binding: Arc<Binding>,
    /// Whether the `_id`s are in the order of the storage; `None` if that is unknown.
    ids_follow: Option<bool>,
    grant: Arc<DeleteGrant>,
    /// The write concern without the bound that `maxLag` sets.
    write_concern: Document,
    lag: LagGate,
    /// Whether its batches are ranges along the storage, which hold more documents.
    is_along_storage: bool,
    /// Whether there is nothing to delete, because no document was found to have expired.
    nothing_expired: bool,
    /// Bytes that a delete adds to the oplog; `None` if that is unknown.
    oplog_bytes_per_document: Option<f64>,
    pause: PauseFile,
    /// `None` if the run takes no leases.
    lease: Option<Lease>,
    keys: KeysViews,
    /// The archive to write documents to before they are deleted; `None` if the rule does not archive.
    archive: Option<Arc<RuleArchive>>,
    /// Parents whose children stay in the pass that is under way, because they were found to be there; used by the sweeps of
    /// children.
    living: Mutex<Vec<RawValue>>,
    /// Documents that the last batch deleted.
    last_deleted: AtomicU64,
    /// Outcome by now, without the collections of its children, each of which has its own.
    outcome: Mutex<Outcome>,
    /// Children that had been deleted when the first orphan was about to go; empty before. Used by the sweeps of children.
    before_orphans: OnceLock<u64>,
    /// True once the sweep has ended, after which nothing is sent again.
    ended: watch::Sender<bool>,
    /// The sweeps of the children, in the order of the rule's family.
    children: Vec<Arc<RuleSweep>>,
}

impl RuleSweep {
    pub(crate) fn new(
        deployment: &Deployment,
        rule: &SweepRule,
        findings: &GoesBy,
        grant: &Arc<DeleteGrant>,
        watches: &Watches,
        leases: &Leases,
        archive: Option<Arc<RuleArchive>>,
    ) -> Self {
        let lease = leases.of(&rule.namespace).cloned();
        let deployment = &deployment.of_rule(rule);
        let binding = Arc::new(Binding::new(deployment, rule));
        // Documents are found without these keys; each delete has the keys of its moment.
        let mut rule = findings.sized(rule).with_keys(&findings.keys);
        let mut is_along_storage = false;
        let storage = findings.order.as_ref().filter(|choice| choice.order == Some(Order::Storage));
        if let Some(choice) = storage {
            // Without an index the documents are found as they are stored.
            rule.selection.index = None;
            // Parents are listed by their `_id`s, and so is what the `_id` does not find in this order.
            let goes_along_ids = rule.family.is_none() && choice.ids_follow != Some(false);
            is_along_storage = goes_along_ids && rule.selection.storage == Storage::Plain;
            if is_along_storage {
                rule.sizes.batch = rule.sizes.range;
            }
        }
        let of_child = |child: &ChildRule| {
            let mut sweep = Self::new(deployment, &child.rule, &GoesBy::default(), grant, watches, leases, archive.clone());
            confirm_by_majority(&mut sweep.write_concern);
            Arc::new(Self { is_of_children: true, binding: binding.clone(), ..sweep })
        };
        let children = rule.family.as_ref().map_or_else(Vec::new, |family| family.children.iter().map(of_child).collect());
        let view = |held: &Option<HeldBack>| held.as_ref().map(|held| watches.holds.of(held));
        let keys = KeysViews { holds: view(&rule.selection.holds), periods: view(&rule.selection.periods) };
        let mut write_concern = deployment.write_concern.clone();
        if rule.family.is_some() {
            confirm_by_majority(&mut write_concern);
        }
        Self {
            is_of_children: false,
            write_concern,
            lag: LagGate::new(rule.limits.max_lag, watches.lag.get()),
            is_along_storage,
            nothing_expired: findings.nothing_expired,
            oplog_bytes_per_document: findings.oplog_bytes_per_document,
            pause: watches.pause.clone(),
            deployment: deployment.clone(),
            binding,
            ids_follow: storage.and_then(|choice| choice.ids_follow),
            rule,
            grant: grant.clone(),
            lease,
            keys,
            archive,
            living: Mutex::default(),
            last_deleted: AtomicU64::new(0),
            outcome: Mutex::default(),
            before_orphans: OnceLock::new(),
            ended: watch::Sender::new(false),
            children,
        }
    }

    /// Whether the collection is known to be large enough for a look at its storage.
    pub(crate) fn is_large(&self) -> bool {
        order::is_large(&self.rule.selection)
    }

    /// Returns the maximum number of documents of a batch under these limits.
    fn max_batch(&self, limits: &Limits) -> u32 {
        let capabilities = &self.deployment.facts.capabilities;
        let Sizes { batch, range } = Sizes::of(limits, &self.rule.selection, capabilities);
        if self.is_along_storage { range } else { batch }
    }

    /// Keeps the batches in flight from sending anything again.
    fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Resolves when the sweep has ended.
    async fn ended(&self) {
        // The sender lives as long as this sweep.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Returns the result of a read; `None` if the sweep ends meanwhile.
    async fn unless_ended<T>(&self, read: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            read = read => Some(read),
            () = self.ended() => None,
        }
    }
}

/// The latest keys of holds and periods; `None` if the rule has none.
struct KeysViews {
    holds: Option<HoldsView>,
    periods: Option<HoldsView>,
}

impl KeysViews {
    fn iter(&self) -> impl Iterator<Item = &HoldsView> {
        self.holds.iter().chain(&self.periods)
    }
}

/// The parts of the run that its rules share.
#[derive(Clone, Copy)]
pub(crate) struct RunContext<'a> {
    pub run_id: &'a str,
    pub budget: &'a RunBudget,
    pub progress: &'a RuleProgress<'a>,
    pub stop: &'a Stop,
    pub watches: &'a Watches,
}

/// The next batch of a source.
enum NextBatch {
    Batch {
        restriction: Box<Restriction>,
        /// Maximum number of its documents at the time it was made.
        documents: u64,
    },
    /// No document is left.
    Exhausted,
    /// There is at least one more document, but none was asked for.
    More,
    /// The next batch is to be taken once those in flight have finished, because it would find their documents again.
    AfterOthers,
}

/// Returns the reason of a run that was asked to stop: a signal, its stop file, or its maximum duration.
pub(crate) fn asked_reason(stop: &Stop) -> StopReason {
    if stop.exit_code().is_some() {
        StopReason::Interrupted
    } else if stop.is_file_seen() {
        StopReason::StopFile
    } else {
        StopReason::MaxDuration
    }
}

/// Sweeps a rule in one pass. `permit` is for opening the source; each batch acquires one of its own, so that rules take turns.
///
/// Never fails as a whole: the outcome also counts what was deleted before an error.
pub(crate) async fn sweep(sweep: Arc<RuleSweep>, run: RunContext<'_>, permit: Permit) -> Outcome {
    let Some(family) = &sweep.rule.family else { return Engine::new(sweep, run).run(permit).await };
    let budget = run.budget.of_children();
    ParentSweep::new(&sweep, family, run, RunContext { budget: &budget, ..run }).run(permit).await
}

/// Returns the reason why a rule may not begin or go on now; `None` if it may.
pub(crate) fn stop_reason(rule: &SweepRule, budget: &RunBudget, stop: &Stop) -> Option<StopReason> {
    if budget.leases().is_over(&rule.namespace) {
        Some(StopReason::LockLost)
    } else if stop.is_asked() {
        Some(asked_reason(stop))
    } else if budget.is_window_closed(rule) {
        Some(StopReason::Window)
    } else {
        None
    }
}

/// Resolves with the reason once the rule may not go on.
pub(crate) async fn stopped(rule: &SweepRule, budget: &RunBudget, stop: &Stop) -> StopReason {
    let window_closes = async {
        // The clock may be set, and the machine may sleep, so one long sleep would not end at the right time.
        while !budget.is_window_closed(rule) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        // The strongest reason first.
        biased;
        () = budget.leases().over(&rule.namespace) => StopReason::LockLost,
        () = stop.asked() => asked_reason(stop),
        () = window_closes => StopReason::Window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::facts::DataSize;
    use crate::core::plan::order::OrderChoice;
    use crate::core::policy::RunLimits;
    use crate::shell::server::delete::grant::Consent;
    use crate::testing::made_up::{closed_window, planned, with_children};
    use crate::testing::scripted::Script;

    /// Returns the sweep of a rule by these findings.
    fn by(findings: &GoesBy, rule: &SweepRule) -> RuleSweep {
        let grant = Arc::new(DeleteGrant::new(false, Consent::NotAsked).unwrap());
        let (deployment, leases) = (Script::new([]).deployment(), Leases::default());
        RuleSweep::new(&deployment, rule, findings, &grant, &Watches::none(), &leases, None)
    }

    #[test]
    fn only_ranges_along_the_storage_hold_more_documents() {
        let size = |mut rule: SweepRule, storage: Storage, choice: OrderChoice| {
            rule.selection.storage = storage;
            by(&GoesBy { order: Some(choice), ..GoesBy::default() }, &rule).rule.sizes.batch
        };
        let plain = || planned("", 4).decision.countable().unwrap().clone();
        for (rule, storage, order, ids_follow, expected) in [
            (plain(), Storage::Plain, Order::Storage, Some(true), 8000),
            (plain(), Storage::Plain, Order::Storage, None, 8000),
            // The `_id`s of a batch are listed, and each of its documents goes.
            (plain(), Storage::Plain, Order::Storage, Some(false), 2000),
            (with_children(), Storage::Plain, Order::Storage, Some(true), 2000),
            (plain(), Storage::Plain, Order::OldestFirst, Some(true), 2000),
            (plain(), Storage::Clustered, Order::Storage, None, 2000),
        ] {
            let choice = OrderChoice { ids_follow, ..OrderChoice::new(order, "") };
            assert_eq!(size(rule, storage, choice), expected, "{order:?} {ids_follow:?}");
        }
    }

    #[test]
    fn a_sweep_goes_by_the_size_that_was_looked_at_last() {
        let mut rule = planned("", 1_000_000).decision.countable().unwrap().clone();
        rule.selection.size = DataSize::default();
        for (average_bytes, is_large) in [(None, false), (Some(60.0), false), (Some(70.0), true)] {
            let size = average_bytes.map(|bytes| DataSize { average_bytes: Some(bytes), file: None });
            let sweep = by(&GoesBy { size, ..GoesBy::default() }, &rule);
            assert_eq!((sweep.rule.selection.size.average_bytes, sweep.is_large()), (average_bytes, is_large));
        }
    }

    #[test]
    fn a_rule_may_not_go_on_after_a_signal_or_outside_of_its_hours() {
        let (signals, receiver) = watch::channel(None);
        let stop = Stop::by(receiver);
        let budget = RunBudget::new(tokio::time::Instant::now(), RunLimits::default(), Leases::default());
        let rule = |keys: &str| planned(keys, 4).decision.countable().unwrap().clone();
        let far = closed_window();
        assert_eq!(stop_reason(&rule(""), &budget, &stop), None);
        assert_eq!(stop_reason(&rule(&far), &budget, &stop), Some(StopReason::Window));
        signals.send_replace(Some(15));
        assert_eq!(stop_reason(&rule(&far), &budget, &stop), Some(StopReason::Interrupted));
    }
}
