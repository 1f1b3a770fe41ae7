//! Holds a rule back while the members of the replica set lag behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{Bson, Document};
use parking_lot::RwLock;

use crate::base::watch;
use crate::shell::server::watch::lag::{Lag, LagSource};

/// A gate that is open while no member is known to lag too much, and every batch has been confirmed in time. It is open as well
/// while no lag is too much.
#[derive(Default)]
pub(crate) struct LagGate {
    /// `None` until the policy first limits the lag of a deployment whose members could lag.
    bound: RwLock<Option<LagBound>>,
    /// Number of batches that no majority has confirmed in time.
    unconfirmed: AtomicUsize,
}

/// The limit of a lag, and the way to see it.
struct LagBound {
    /// `None` if the policy no longer limits it.
    max: Option<Duration>,
    /// `None` if a majority has to confirm in time instead.
    members: Option<watch::Receiver<Lag>>,
}

/// A batch that no majority has confirmed in time; it counts until this is dropped, when the batch is confirmed or given up.
pub(crate) struct Unconfirmed<'a>(&'a LagGate);

impl LagGate {
    /// Creates a gate for lags of at most `max`.
    pub(crate) fn new(max: Option<Duration>, source: Option<&LagSource>) -> Self {
        let gate = Self::default();
        gate.set(max, source);
        gate
    }

    /// Replaces the limit of the lag; `None` for no limit. The source is needed for the first limit only.
    pub(crate) fn set(&self, max: Option<Duration>, source: Option<&LagSource>) {
        let mut bound = self.bound.write();
        if let Some(bound) = &mut *bound {
            bound.max = max;
            return;
        }
        let members = match source {
            None | Some(LagSource::NoSecondary) => return,
            Some(LagSource::Members(watch)) => Some(watch.subscribe()),
            Some(LagSource::Majority(_)) => None,
        };
        *bound = max.map(|max| LagBound { max: Some(max), members });
    }

    /// Whether batches may lack only their confirmation in time.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.read().is_some()
    }

    /// Returns the reason why the rule has to wait; `None` if it need not.
    pub(crate) fn behind(&self) -> Option<String> {
        let bound = self.bound.read();
        let LagBound { max: Some(max), members } = bound.as_ref()? else { return None };
        if self.unconfirmed.load(Ordering::Relaxed) > 0 {
            return Some(format!("no majority of the members has confirmed a batch within {} s", max.as_secs()));
        }
        members.as_ref()?.borrow().behind(*max)
    }

    /// Closes the gate for a batch that no majority has confirmed in time.
    pub(crate) fn unconfirmed(&self) -> Unconfirmed<'_> {
        self.unconfirmed.fetch_add(1, Ordering::Relaxed);
        Unconfirmed(self)
    }

    /// Returns a write concern with a bound on the wait for it. If the lag of the members is unknown, a majority has to confirm.
    pub(crate) fn write_concern(&self, own: &Document) -> Document {
        let mut concern = own.clone();
        let bound = self.bound.read();
        let Some(LagBound { max: Some(max), members }) = &*bound else { return concern };
        if members.is_none() && !matches!(concern.get("w"), Some(Bson::String(_))) {
            concern.insert("w", "majority");
        }
        let max = i64::try_from(max.as_millis()).unwrap_or(i64::MAX);
        let own = concern.get_i64("wtimeout").ok().filter(|own| *own > 0);
        concern.insert("wtimeout", own.map_or(max, |own| own.min(max)));
        concern
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        self.0.unconfirmed.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    const MAX: Option<Duration> = Some(Duration::from_secs(5));

    fn majority() -> LagSource {
        LagSource::Majority("mongos".into())
    }

    #[test]
    fn the_wait_for_a_majority_is_bounded_and_no_write_concern_is_weakened() {
        let gate = LagGate::new(MAX, Some(&majority()));
        for (own, expected) in [
            (doc! {}, doc! { "w": "majority", "wtimeout": 5000_i64 }),
            (doc! { "w": 1, "j": true }, doc! { "w": "majority", "j": true, "wtimeout": 5000_i64 }),
            (doc! { "w": "all", "wtimeout": 0_i64 }, doc! { "w": "all", "wtimeout": 5000_i64 }),
            (doc! { "w": "majority", "wtimeout": 4000_i64 }, doc! { "w": "majority", "wtimeout": 4000_i64 }),
            (doc! { "w": "majority", "wtimeout": 6000_i64 }, doc! { "w": "majority", "wtimeout": 5000_i64 }),
        ] {
            assert_eq!(gate.write_concern(&own), expected);
            assert_eq!(LagGate::default().write_concern(&own), own);
        }
        // A lag that is seen needs no majority.
        let (_sender, receiver) = watch::channel(Lag::NoSecondary);
        let seen = LagGate { bound: RwLock::new(Some(LagBound { max: MAX, members: Some(receiver) })), ..LagGate::default() };
        assert_eq!(seen.write_concern(&doc! { "w": 1 }), doc! { "w": 1, "wtimeout": 5000_i64 });
    }

    #[test]
    fn the_gate_is_closed_until_the_last_batch_is_confirmed() {
        let gate = LagGate::new(MAX, Some(&majority()));
        assert_eq!((gate.is_bound(), gate.behind()), (true, None));
        let (first, second) = (gate.unconfirmed(), gate.unconfirmed());
        drop(first);
        assert!(gate.behind().unwrap().contains("within 5 s"));
        drop(second);
        assert_eq!(gate.behind(), None);
    }

    #[test]
    fn a_limit_that_is_replaced_holds_at_once_and_a_batch_under_the_one_before_may_still_lack_its_confirmation() {
        for source in [None, Some(&LagSource::NoSecondary)] {
            assert!(!LagGate::new(MAX, source).is_bound());
        }
        let gate = LagGate::new(None, Some(&majority()));
        assert!(!gate.is_bound());
        gate.set(MAX, Some(&majority()));
        let unconfirmed = gate.unconfirmed();
        gate.set(Some(Duration::from_secs(7)), None);
        assert!(gate.behind().unwrap().contains("within 7 s"));
        gate.set(None, None);
        assert_eq!((gate.is_bound(), gate.behind(), gate.write_concern(&doc! {})), (true, None, doc! {}));
        drop(unconfirmed);
    }
}
