//! Holds a rule back while the server is under pressure.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use crate::core::pace::ENOUGH;
use crate::core::pace::pressure::{Growth, Load, Pressure, UNWATCHED};
use crate::shell::server::watch::load::{LoadFindings, LoadSource, LoadView};

/// Time between two looks at the server while it is spared: its dirty bytes can fall from the limit to almost none within a
/// quarter of a second.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Time until an early look at the server is expected.
const NEXT_LOOK: Duration = Duration::from_millis(5);

/// Maximum time for which the gate stays closed unless the policy asks for it.
pub(super) const MAX_CLOSED: Duration = Duration::from_secs(10);

/// A gate that narrows with the pressure on the server, and closes at its limit. It is open while nothing is known.
pub(crate) struct PressureGate {
    /// `None` if the policy does not set it.
    max_dirty: Option<f64>,
    view: LoadView,
    deletes: RefCell<OwnDeletes>,
    /// The end of the last batch that was timed, and its latency.
    last_timed: Option<(Instant, Duration)>,
    /// The first of the waits that followed one another since the gate was last open.
    pub(super) spared_since: Option<Instant>,
    /// Whether one batch may go under whatever pressure.
    pub(super) passes: bool,
}

/// The deletes of the rule next to the looks at the server.
struct OwnDeletes {
    growth: Growth,
    /// Documents of the batches in flight.
    in_flight: u64,
    /// Documents of the batches that have ended since the last look.
    since: u64,
    /// The last look and its number.
    look: Option<(u64, Load)>,
}

impl OwnDeletes {
    /// Returns the documents whose deletes the last look cannot have seen.
    fn unseen(&self) -> u64 {
        self.in_flight + self.since
    }

    /// Takes in the last look, if it is a new one.
    fn take_in(&mut self, seen: &LoadFindings) {
        let Some(looks) = seen.looks else { return };
        match &self.look {
            Some((number, _)) if *number == seen.succeeded => return,
            // Others changed what has changed while nothing was deleted.
            Some((_, before)) if self.unseen() > 0 => self.growth.observe(before, &looks.last, self.since),
            _ => {}
        }
        (self.since, self.look) = (0, Some((seen.succeeded, looks.last)));
    }
}

impl PressureGate {
    /// Creates a gate; `None` if the server tells nothing, or the policy wants no gate.
    pub(crate) fn new(max_dirty: Option<f64>, source: &LoadSource) -> Option<Self> {
        let LoadSource::Watched(watch) = source else { return None };
        (max_dirty != Some(UNWATCHED)).then(|| Self::on(max_dirty, watch.view()))
    }

    /// Creates a gate for what is seen in a view.
    pub(in crate::shell::sweep) fn on(max_dirty: Option<f64>, view: LoadView) -> Self {
        let deletes = OwnDeletes { growth: Growth::ASSUMED, in_flight: 0, since: 0, look: None };
        let deletes = RefCell::new(deletes);
        Self { max_dirty, view, deletes, last_timed: None, spared_since: None, passes: false }
    }

    /// Replaces the limit of the policy.
    pub(super) fn set_max_dirty(&mut self, max_dirty: Option<f64>) {
        self.max_dirty = max_dirty;
    }

    /// Returns the pressure at the last look; `None` if there was none, or nothing is known.
    pub(crate) fn pressure(&self) -> Option<Pressure> {
        let seen = self.view.seen.borrow();
        Pressure::of(seen.looks.as_ref()?, self.max_dirty)
    }

    /// Whether others use a cache that is full.
    pub(crate) fn is_cramped(&self) -> bool {
        self.view.seen.borrow().looks.as_ref().is_some_and(|looks| looks.is_cramped(self.max_dirty))
    }

    /// Returns the number of documents that a batch may have where the pace allows `size`.
    pub(crate) fn batch_limit(&self, size: u32) -> u32 {
        let size = self.pressure().map_or(size, |pressure| pressure.batch_limit(size));
        let Some(most) = self.documents_per_look() else { return size };
        let left = most.saturating_sub(self.deletes.borrow_mut().unseen());
        size.min(u32::try_from(left).unwrap_or(u32::MAX).max(ENOUGH))
    }

    /// Whether the documents that were sent since the last look may have used up the room.
    fn is_used_up(&self) -> bool {
        self.documents_per_look().is_some_and(|most| self.deletes.borrow_mut().unseen() >= most)
    }

    /// Returns the time for which the server is to be left in peace before it is looked at again.
    pub(super) fn time_to_spare(&self) -> Duration {
        if self.passes {
            return Duration::ZERO;
        }
        let wait = match self.pressure() {
            Some(pressure) if pressure.is_closed() => CHECK_INTERVAL,
            _ if self.is_used_up() => NEXT_LOOK,
            Some(pressure) => {
                // The pressure may be gone before the rest is over.
                let rested = |(ended, latency): (Instant, Duration)| pressure.rest(latency).saturating_sub(ended.elapsed());
                self.last_timed.map_or(Duration::ZERO, rested).min(CHECK_INTERVAL)
            }
            None => Duration::ZERO,
        };
        if !wait.is_zero() {
            self.view.ask();
        }
        wait
    }

    /// Returns the number of documents that may be deleted from one look to the next; `None` if any number may.
    fn documents_per_look(&self) -> Option<u64> {
        let seen = self.view.seen.borrow();
        let looks = seen.looks.as_ref()?;
        let mut deletes = self.deletes.borrow_mut();
        deletes.take_in(&seen);
        deletes.growth.documents_per_look(looks, self.max_dirty)
    }

    /// Records a batch that is sent.
    pub(crate) fn sent(&mut self, documents: u64) {
        self.passes = false;
        self.deletes.borrow_mut().in_flight += documents;
    }

    /// Records the end of a batch that was sent.
    pub(crate) fn ended(&self, documents: u64) {
        let seen = self.view.seen.borrow();
        let mut deletes = self.deletes.borrow_mut();
        deletes.take_in(&seen);
        // The gate may be younger than the batch.
        deletes.in_flight = deletes.in_flight.saturating_sub(documents);
        deletes.since += documents;
    }

    /// Records the latency of a batch that has just ended.
    pub(crate) fn timed(&mut self, latency: Duration) {
        self.last_timed = Some((Instant::now(), latency));
    }

    /// Whether the gate stays closed as long as the pressure lasts. Otherwise a small batch may pass now and then: the policy
    /// does not ask for a gate, and a server that is always under pressure would never be swept.
    pub(crate) fn is_strict(&self) -> bool {
        self.max_dirty.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::watch;
    use crate::core::pace::pressure::Looks;

    const MIB: u64 = 1024 * 1024;

    /// Returns what is seen of a server that others use, with a cache of 1000 MiB.
    fn seen(number: u64, dirty: u64) -> LoadFindings {
        let last = Load { cache_size: Some(1000 * MIB), dirty: Some(dirty * MIB), ..Load::default() };
        LoadFindings::made_up(number, Some(Looks { last, before: None, is_unshared: false }))
    }

    #[test]
    fn what_a_look_cannot_have_seen_counts_until_the_next_one() {
        let (sender, receiver) = watch::channel(seen(1, 100));
        let mut gate = PressureGate::on(Some(20.0), LoadView::new(receiver));
        assert_eq!((gate.batch_limit(2000), gate.is_used_up()), (800, false));
        gate.sent(500);
        assert_eq!((gate.batch_limit(2000), gate.is_used_up()), (300, false));
        gate.sent(300);
        assert_eq!((gate.batch_limit(2000), gate.is_used_up()), (100, true));
        gate.ended(500);
        assert!(gate.is_used_up());

        // The second batch is still in flight; the first one took half as much as was assumed, which counts for more than what
        // was assumed.
        sender.send_replace(seen(2, 116));
        let (bytes, documents) = (65_536.0 * 80.0 + 16.0 * MIB as f64, 80.0 + 500.0);
        let most = (84.0 * MIB as f64 / 2.0 / (bytes / documents)) as u32;
        assert_eq!((gate.batch_limit(2000), gate.is_used_up()), (most - 300, false));
        gate.ended(300);
        // Nothing is known.
        sender.send_replace(LoadFindings::made_up(2, None));
        gate.sent(9000);
        assert_eq!((gate.batch_limit(2000), gate.is_used_up()), (2000, false));
    }
    #[test]
    fn what_others_change_while_nothing_is_deleted_says_nothing_of_the_deletes() {
        let (sender, receiver) = watch::channel(seen(1, 100));
        let gate = PressureGate::on(Some(20.0), LoadView::new(receiver));
        let most = |dirty: u64| u32::try_from((200 - dirty) * 8).unwrap();
        assert_eq!(gate.batch_limit(2000), most(100));
        sender.send_replace(seen(2, 50));
        assert_eq!(gate.batch_limit(2000), most(50));
        sender.send_replace(seen(3, 90));
        assert_eq!(gate.batch_limit(2000), most(90));
    }

    #[test]
    fn batches_shrink_under_pressure_and_a_gate_that_the_policy_asks_for_stays_closed() {
        let (sender, receiver) = watch::channel(seen(1, 50));
        let [strict, other] = [Some(20.0), None].map(|max_dirty| PressureGate::on(max_dirty, LoadView::new(receiver.clone())));
        assert!(strict.is_strict() && !other.is_strict());
        assert!(strict.pressure().is_none() && !strict.is_cramped());
        sender.send_replace(seen(2, 250));
        assert!(strict.pressure().is_some_and(|pressure| pressure.is_closed()));
        // Most of the cache is in use, and nothing of it waits to be written.
        let last = Load { cache_size: Some(1000 * MIB), cached: Some(800 * MIB), ..Load::default() };
        sender.send_replace(LoadFindings::made_up(3, Some(Looks { last, before: None, is_unshared: false })));
        assert!(strict.pressure().is_none() && strict.is_cramped());
    }
}
