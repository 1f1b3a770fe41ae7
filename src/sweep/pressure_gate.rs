//! Holds a rule back while the server is under pressure.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::pace::pressure::{Growth, Pressure, UNWATCHED};
use crate::server::load::{LoadSource, Seen};

/// A gate that narrows with the pressure on the server, and closes at its limit. It is open while nothing is known.
pub(super) struct PressureGate {
    /// `None` if the policy does not set it.
    max_dirty: Option<f64>,
    seen: watch::Receiver<Seen>,
    deletes: Mutex<Deletes>,
}

/// The deletes of the rule beside the looks at the server.
struct Deletes {
    growth: Growth,
    /// Documents sent to be deleted since the last look.
    since: u64,
    /// Number of the last look, and the bytes that were to be written then.
    look: (u64, Option<u64>),
}

impl PressureGate {
    /// Creates a gate; `None` if the server tells nothing, or the policy wants no gate.
    pub(super) fn new(max_dirty: Option<f64>, source: &LoadSource) -> Option<Self> {
        let LoadSource::Watched(watch) = source else { return None };
        let deletes = Mutex::new(Deletes { growth: Growth::ASSUMED, since: 0, look: (0, None) });
        (max_dirty != Some(UNWATCHED)).then(|| Self { max_dirty, seen: watch.subscribe(), deletes })
    }

    /// Returns the pressure at the last look; `None` if there was none, or nothing is known.
    pub(super) fn pressure(&self) -> Option<Pressure> {
        let seen = self.seen.borrow();
        Pressure::of(seen.looks.as_ref()?, self.max_dirty)
    }

    /// Returns the number of documents that a batch may have where the pace allows `size`.
    pub(super) fn batch_limit(&self, size: u32) -> u32 {
        let size = self.pressure().map_or(size, |pressure| pressure.batch_limit(size));
        let looks = self.seen.borrow().looks;
        looks.map_or(size, |looks| self.deletes.lock().growth.batch_limit(&looks, self.max_dirty, size))
    }

    /// Takes notice of a batch that is sent.
    pub(super) fn sent(&self, documents: u64) {
        let seen = self.seen.borrow();
        let mut deletes = self.deletes.lock();
        if let Some(looks) = seen.looks.filter(|_| seen.succeeded != deletes.look.0) {
            let dirty = looks.last.dirty;
            let (before, since) = (deletes.look.1, deletes.since);
            deletes.growth.observe(before, dirty, since);
            (deletes.since, deletes.look) = (0, (seen.succeeded, dirty));
        }
        deletes.since += documents;
    }

    /// Whether the gate stays closed as long as the pressure lasts. Otherwise a small batch may pass now and then: the policy does not ask for a gate, and a
    /// server that is always under pressure would never be swept.
    pub(super) fn is_strict(&self) -> bool {
        self.max_dirty.is_some()
    }
}
