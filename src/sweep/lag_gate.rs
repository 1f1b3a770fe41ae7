//! Whether a rule has to wait for the members of the replica set.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::{Bson, Document};
use tokio::sync::watch;

use crate::server::lag::{Lag, LagSource};

/// Open while every member is near enough, as far as anybody can tell.
pub struct LagGate {
    most: Duration,
    members: Option<watch::Receiver<Lag>>,
    /// Batches that no majority has confirmed in time.
    unconfirmed: AtomicUsize,
}

/// A batch that no majority has confirmed in time; confirmed, or given up, when dropped.
pub struct Unconfirmed<'a>(&'a LagGate);

impl LagGate {
    /// `None` where the deployment has nobody who could lag.
    pub fn new(most: Duration, source: &LagSource) -> Option<Self> {
        let members = match source {
            LagSource::NoSecondary => return None,
            LagSource::Members(watch) => Some(watch.subscribe()),
            LagSource::Majority(_) => None,
        };
        Some(Self { most, members, unconfirmed: AtomicUsize::new(0) })
    }

    /// How long a batch may wait for a majority.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// Says why the rule has to wait; `None` where it need not.
    pub fn behind(&self) -> Option<String> {
        if self.unconfirmed.load(Ordering::Relaxed) > 0 {
            return Some(format!("no majority of the members has confirmed a batch within {} s", self.most.as_secs()));
        }
        self.members.as_ref()?.borrow().behind(self.most)
    }

    pub fn unconfirmed(&self) -> Unconfirmed<'_> {
        self.unconfirmed.fetch_add(1, Ordering::Relaxed);
        Unconfirmed(self)
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        self.0.unconfirmed.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The deployment's write concern; under `maxLag` the wait for it is bounded, and where nothing else can be known, it is for a majority.
pub fn write_concern(of_deployment: &Document, lag: Option<&LagGate>, source: &LagSource) -> Document {
    let mut concern = of_deployment.clone();
    let Some(lag) = lag else { return concern };
    if matches!(source, LagSource::Majority(_)) && !matches!(concern.get("w"), Some(Bson::String(_))) {
        concern.insert("w", "majority");
    }
    let most = i64::try_from(lag.most().as_millis()).unwrap_or(i64::MAX);
    let own = concern.get_i64("wtimeout").ok().filter(|own| *own > 0);
    concern.insert("wtimeout", own.map_or(most, |own| own.min(most)));
    concern
}
