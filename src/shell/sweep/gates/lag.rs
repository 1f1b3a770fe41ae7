//! Holds a rule back while the members of the replica set lag behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{Bson, Document};

use crate::base::watch;
use crate::shell::server::watch::lag::{Lag, LagSource};

/// A gate that is open while no member is known to lag more than `max`, and every batch has been confirmed in time.
pub(crate) struct LagGate {
    max: Duration,
    members: Option<watch::Receiver<Lag>>,
    /// Number of batches that no majority has confirmed in time.
    unconfirmed: AtomicUsize,
}

/// A batch that no majority has confirmed in time; it counts until this is dropped, when the batch is confirmed or given up.
pub(crate) struct Unconfirmed<'a>(&'a LagGate);

impl LagGate {
    /// Creates a gate; `None` if the deployment has no members that could lag.
    pub(crate) fn new(max: Duration, source: &LagSource) -> Option<Self> {
        let members = match source {
            LagSource::NoSecondary => return None,
            LagSource::Members(watch) => Some(watch.subscribe()),
            LagSource::Majority(_) => None,
        };
        Some(Self { max, members, unconfirmed: AtomicUsize::new(0) })
    }

    /// Returns the time that a batch may wait for a majority.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }

    /// Returns the reason why the rule has to wait; `None` if it need not.
    pub(crate) fn behind(&self) -> Option<String> {
        if self.unconfirmed.load(Ordering::Relaxed) > 0 {
            return Some(format!("no majority of the members has confirmed a batch within {} s", self.max.as_secs()));
        }
        self.members.as_ref()?.borrow().behind(self.max)
    }

    /// Closes the gate for a batch that no majority has confirmed in time.
    pub(crate) fn unconfirmed(&self) -> Unconfirmed<'_> {
        self.unconfirmed.fetch_add(1, Ordering::Relaxed);
        Unconfirmed(self)
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        self.0.unconfirmed.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the deployment's write concern. Under `maxLag` the wait for it is bounded, and a majority has to confirm if the lag of
/// the members is unknown.
pub(crate) fn write_concern(of_deployment: &Document, lag: Option<&LagGate>, source: &LagSource) -> Document {
    let mut concern = of_deployment.clone();
    let Some(lag) = lag else { return concern };
    if matches!(source, LagSource::Majority(_)) && !matches!(concern.get("w"), Some(Bson::String(_))) {
        concern.insert("w", "majority");
    }
    let max = i64::try_from(lag.max().as_millis()).unwrap_or(i64::MAX);
    let own = concern.get_i64("wtimeout").ok().filter(|own| *own > 0);
    concern.insert("wtimeout", own.map_or(max, |own| own.min(max)));
    concern
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_wait_for_a_majority_is_bounded_and_no_write_concern_is_weakened() {
        let majority = LagSource::Majority("mongos".into());
        let gate = LagGate::new(Duration::from_secs(5), &majority).unwrap();
        for (own, expected) in [
            (doc! {}, doc! { "w": "majority", "wtimeout": 5000_i64 }),
            (doc! { "w": 1, "j": true }, doc! { "w": "majority", "j": true, "wtimeout": 5000_i64 }),
            (doc! { "w": "all", "wtimeout": 0_i64 }, doc! { "w": "all", "wtimeout": 5000_i64 }),
            (doc! { "w": "majority", "wtimeout": 4000_i64 }, doc! { "w": "majority", "wtimeout": 4000_i64 }),
            (doc! { "w": "majority", "wtimeout": 6000_i64 }, doc! { "w": "majority", "wtimeout": 5000_i64 }),
        ] {
            assert_eq!(write_concern(&own, Some(&gate), &majority), expected);
            assert_eq!(write_concern(&own, None, &majority), own);
        }
        // A lag that is seen needs no majority.
        let weak = write_concern(&doc! { "w": 1 }, Some(&gate), &LagSource::NoSecondary);
        assert_eq!(weak, doc! { "w": 1, "wtimeout": 5000_i64 });
    }

    #[test]
    fn the_gate_is_closed_until_the_last_batch_is_confirmed() {
        assert!(LagGate::new(Duration::from_secs(5), &LagSource::NoSecondary).is_none());
        let gate = LagGate::new(Duration::from_secs(5), &LagSource::Majority("mongos".into())).unwrap();
        assert_eq!((gate.max(), gate.behind()), (Duration::from_secs(5), None));
        let (first, second) = (gate.unconfirmed(), gate.unconfirmed());
        drop(first);
        assert!(gate.behind().unwrap().contains("within 5 s"));
        drop(second);
        assert_eq!(gate.behind(), None);
    }
}
