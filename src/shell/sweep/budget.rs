//! The budget of a whole run, shared by its rules: delete commands in flight, deletes, documents per second, and leases. It also
//! has the limits of the rules, whose pace and windows may change while the run lasts.

mod permits;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::base::machine::wall_clock;
use crate::base::watch;
use crate::core::pace::rate::RateLimit;
use crate::core::plan::SweepRule;
use crate::core::policy::RunLimits;
use crate::core::policy::limits::Limits;
use crate::core::policy::reread::Pacing;
use crate::shell::lock::lease::Leases;
pub(crate) use permits::Permit;
use permits::Permits;

/// The limits of rules, by their names, that hold in the place of the planned ones.
type Replaced = BTreeMap<String, Limits>;

/// The limits of a run, and the part of them that is left.
#[derive(Debug)]
pub(crate) struct RunBudget {
    begun: Instant,
    deletes: Option<Deletes>,
    /// `None` without a rate.
    rate: Rc<RefCell<Option<RateLimit>>>,
    permits: Rc<Permits>,
    leases: Leases,
    /// Empty until the pacing is replaced.
    replaced: Rc<watch::Sender<Replaced>>,
}

/// The deletes of a limited run.
#[derive(Debug)]
struct Deletes {
    /// The limit of the whole run.
    limit: u64,
    left: Cell<u64>,
    /// Reserved or asked for, and not yet reported as deleted.
    outstanding: Cell<u64>,
    returned: Notify,
}

impl RunBudget {
    /// Creates the budget of a run that deletes nothing without these leases.
    pub(crate) fn new(begun: Instant, limits: RunLimits, leases: Leases) -> Self {
        let deletes = |limit| Deletes { limit, left: Cell::new(limit), outstanding: Cell::new(0), returned: Notify::new() };
        Self {
            begun,
            deletes: limits.max_deletes.map(deletes),
            rate: Rc::new(RefCell::new(limits.rate.map(RateLimit::new))),
            permits: Rc::new(Permits::new(limits.concurrency)),
            leases,
            replaced: Rc::new(watch::Sender::new(Replaced::new())),
        }
    }

    /// Returns the same budget without the limit of deletes, which counts parents and orphans, and not the children that go with
    /// their parents.
    pub(super) fn of_children(&self) -> Self {
        let (permits, leases, replaced) = (self.permits.clone(), self.leases.clone(), self.replaced.clone());
        Self { begun: self.begun, deletes: None, rate: self.rate.clone(), permits, leases, replaced }
    }

    /// Replaces the pacing of the run and of its rules. `concurrency` is the one of the run.
    pub(crate) fn set_pacing(&self, pacing: &Pacing, concurrency: Option<u32>) {
        set_rate(&mut self.rate.borrow_mut(), pacing.rate);
        self.permits.set(concurrency);
        self.replaced.send_replace(pacing.rules.clone());
    }

    /// Returns a receiver that sees when limits of rules are replaced.
    pub(super) fn replaced(&self) -> watch::Receiver<Replaced> {
        self.replaced.subscribe()
    }

    /// Returns the limits that hold for a rule in the place of the planned ones; `None` if those hold.
    pub(super) fn replaced_limits_of(&self, rule: &SweepRule) -> Option<Limits> {
        self.replaced.borrow().get(&rule.name).map(|now| rule.limits.with_pace_of(now))
    }

    /// Returns the limits that hold for a rule now.
    pub(crate) fn limits_of(&self, rule: &SweepRule) -> Limits {
        self.replaced_limits_of(rule).unwrap_or_else(|| rule.limits.clone())
    }

    /// Whether a rule may not delete at this time.
    pub(super) fn is_window_closed(&self, rule: &SweepRule) -> bool {
        self.replaced.borrow().get(&rule.name).unwrap_or(&rule.limits).is_window_closed(wall_clock().into())
    }

    /// Returns the leases without which nothing may be deleted.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Returns the time since the beginning of the run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits until a delete command may be in flight.
    pub(crate) async fn acquire(&self) -> Permit {
        self.permits.acquire().await
    }

    /// Returns the lower of the run's and the rule's rate.
    pub(crate) fn slowest_rate(&self, of_rule: Option<u32>) -> Option<u32> {
        [self.rate.borrow().as_ref().map(RateLimit::rate), of_rule].into_iter().flatten().min()
    }

    /// Returns the number of documents that one batch may take at most under the run's rate ([`RateLimit::batch_limit`]).
    pub(crate) fn rate_limit(&self, enough: u32, gentle: u32) -> Option<u64> {
        self.rate.borrow().as_ref().map(|limit| u64::from(limit.batch_limit(enough, gentle)))
    }

    /// Returns the time that the next batch has to wait for the run's rate.
    pub(crate) fn rate_wait(&self) -> Duration {
        self.rate.borrow().as_ref().map_or(Duration::ZERO, |limit| limit.wait(self.elapsed()))
    }

    /// Charges documents that are about to be asked for to the run's rate.
    pub(crate) fn take_rate(&self, documents: u64) {
        if let Some(limit) = &mut *self.rate.borrow_mut() {
            limit.take(documents, self.elapsed());
        }
    }

    /// Returns the number of documents that the whole run may delete; `None` without a limit.
    pub(crate) fn max_deletes(&self) -> Option<u64> {
        self.deletes.as_ref().map(|deletes| deletes.limit)
    }

    /// Reserves up to this many of the deletes that are left; returns the number reserved.
    pub(crate) fn reserve(&self, documents: u64) -> u64 {
        let Some(deletes) = &self.deletes else { return documents };
        let granted = documents.min(deletes.left.get());
        deletes.left.set(deletes.left.get() - granted);
        deletes.outstanding.set(deletes.outstanding.get() + granted);
        granted
    }

    /// Gives back deletes that were reserved and not asked for.
    pub(crate) fn give_back(&self, documents: u64) {
        self.settle(documents, 0);
    }

    /// Returns a future that resolves when a batch in flight may have returned part of a delete limit that is used up. Returns
    /// `None` if the limit is not used up, or no batch is in flight.
    pub(crate) fn returned(&self) -> Option<Notified<'_>> {
        let deletes = self.deletes.as_ref()?;
        (deletes.left.get() == 0 && deletes.outstanding.get() > 0).then(|| deletes.returned.notified())
    }

    /// Settles a batch that was asked for: refunds documents that were not deleted, and charges those that others inserted into
    /// its range meanwhile.
    pub(crate) fn settle(&self, asked: u64, deleted: u64) {
        if let Some(deletes) = &self.deletes {
            deletes.outstanding.set(deletes.outstanding.get().saturating_sub(asked));
            deletes.left.set((deletes.left.get() + asked).saturating_sub(deleted));
            deletes.returned.notify_waiters();
        }
    }

    /// Corrects an earlier [`Self::take_rate`] by the number of documents that were deleted.
    pub(crate) fn settle_rate(&self, taken: u64, deleted: u64) {
        if let Some(limit) = &mut *self.rate.borrow_mut() {
            limit.settle(taken, deleted);
        }
    }
}

/// Replaces a rate. What was charged to the one before is still waited for.
pub(super) fn set_rate(limit: &mut Option<RateLimit>, rate: Option<u32>) {
    match (&mut *limit, rate) {
        (Some(limit), Some(rate)) => limit.set_rate(rate),
        (_, rate) => *limit = rate.map(RateLimit::new),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::testing::made_up::{closed_window, planned};

    fn budget(limits: RunLimits) -> RunBudget {
        RunBudget::new(Instant::now(), limits, Leases::default())
    }

    #[test]
    fn no_more_is_reserved_than_is_left_and_what_was_not_deleted_is_left_again() {
        let budget = budget(RunLimits { max_deletes: Some(10), ..RunLimits::default() });
        assert!(budget.max_deletes() == Some(10) && budget.returned().is_none());
        assert_eq!([6, 6, 6].map(|documents| budget.reserve(documents)), [6, 4, 0]);
        let mut returned = Box::pin(budget.returned().unwrap());
        assert_eq!(returned.as_mut().now_or_never(), None);
        // The first batch needs only 5 of its 6; of these it deletes 3, and all 4 of the second are deleted.
        budget.give_back(1);
        assert_eq!(returned.now_or_never(), Some(()));
        budget.settle(5, 3);
        budget.settle(4, 4);
        assert!(budget.returned().is_none(), "some are left");
        assert_eq!([1, 6].map(|documents| budget.reserve(documents)), [1, 2]);
        budget.settle(1, 1);
        assert!(budget.returned().is_some());
        budget.settle(2, 2);
        assert!(budget.returned().is_none(), "none is left, and none can come back");
        assert_eq!((budget.reserve(1), budget.max_deletes()), (0, Some(10)));
    }

    #[test]
    fn documents_that_others_insert_into_a_range_are_charged() {
        let budget = budget(RunLimits { max_deletes: Some(10), ..RunLimits::default() });
        assert_eq!(budget.reserve(5), 5);
        budget.settle(5, 8);
        assert_eq!(budget.reserve(10), 2);
        budget.settle(2, 3);
        assert_eq!(budget.reserve(10), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn all_rules_share_the_rate_of_the_run() {
        const MS: fn(u64) -> Duration = Duration::from_millis;
        let budget = budget(RunLimits { rate: Some(1000), ..RunLimits::default() });
        assert_eq!(
            [None, Some(999), Some(1001)].map(|of_rule| budget.slowest_rate(of_rule)),
            [Some(1000), Some(999), Some(1000)]
        );
        assert_eq!((budget.rate_limit(100, u32::MAX), budget.rate_wait()), (Some(100), MS(0)));
        budget.take_rate(400);
        budget.settle_rate(400, 300);
        assert_eq!(budget.rate_wait(), MS(300));
        tokio::time::advance(MS(100)).await;
        assert_eq!((budget.elapsed(), budget.rate_wait()), (MS(100), MS(200)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_that_is_replaced_holds_at_once_and_what_was_charged_before_is_waited_for() {
        const MS: fn(u64) -> Duration = Duration::from_millis;
        let budget = budget(RunLimits { rate: Some(1000), ..RunLimits::default() });
        let of_children = budget.of_children();
        let pacing = |rate| Pacing { rate, concurrency: None, rules: Replaced::new() };
        budget.take_rate(400);
        budget.set_pacing(&pacing(Some(100)), None);
        assert_eq!((budget.slowest_rate(None), budget.rate_wait()), (Some(100), MS(400)));
        of_children.take_rate(100);
        assert_eq!((budget.rate_wait(), of_children.rate_wait()), (MS(1400), MS(1400)));
        budget.set_pacing(&pacing(None), None);
        assert_eq!((budget.slowest_rate(None), of_children.rate_wait()), (None, MS(0)));
        budget.set_pacing(&pacing(Some(10)), None);
        of_children.take_rate(1);
        assert_eq!(budget.rate_wait(), MS(100));
    }

    #[test]
    fn only_pace_and_windows_of_a_rule_are_replaced() {
        let budget = budget(RunLimits::default());
        let rule = |keys: &str| planned(keys, 4).decision.countable().unwrap().clone();
        let (before, now) =
            (rule("    maxDeletes: 5\n    rate: 1\n"), rule(&format!("    maxDeletes: 9\n    rate: 2\n{}", closed_window())));
        let seen = budget.replaced();
        assert_eq!((budget.limits_of(&before), budget.is_window_closed(&before)), (before.limits.clone(), false));
        let rules = |name: &str| Replaced::from([(name.to_owned(), now.limits.clone())]);
        let pacing = |name| Pacing { rate: None, concurrency: None, rules: rules(name) };
        budget.set_pacing(&pacing("another"), None);
        assert_eq!((budget.limits_of(&before), budget.is_window_closed(&before)), (before.limits.clone(), false));
        budget.of_children().set_pacing(&pacing(&before.name), None);
        let expected = Limits { max_deletes: Some(5), ..now.limits.clone() };
        assert_eq!((budget.limits_of(&before), budget.is_window_closed(&before)), (expected, true));
        assert!(seen.clone().borrow_and_update().has_changed());
    }

    #[test]
    fn without_limits_everything_is_granted() {
        let budget = budget(RunLimits::default());
        assert!(budget.max_deletes().is_none() && budget.returned().is_none());
        assert_eq!(
            (budget.reserve(u64::MAX), budget.slowest_rate(Some(5)), budget.rate_limit(100, u32::MAX)),
            (u64::MAX, Some(5), None)
        );
    }
}
