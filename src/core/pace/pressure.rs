//! The pressure on a server, by the figures that it tells of itself, and the rest that it needs. Arithmetic only: figures and
//! times come in as values.
//!
//! WiredTiger sets the limits: its own threads begin to write when 5 % of the cache is dirty, 2.5 % holds updates,
//! or 80 % is full. At 20, 10 and 95 % the threads of the clients have to help, each of which then waits (WiredTiger, "Cache and
//! eviction tuning"; MongoDB keeps the defaults).

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{ENOUGH, MAX_REST};

/// The share of the cache in percent that may wait to be written, unless the policy sets one.
const MAX_DIRTY: f64 = 18.0;

/// Value of `maxDirty` that switches the watch off.
pub(crate) const UNWATCHED: f64 = 100.0;

/// The part of `maxDirty` at which the rests begin: with the default, where WiredTiger begins to write.
const FIRST_REST: f64 = 0.5;

/// Fill of the cache in percent from which it is as full as WiredTiger lets it become: that begins to make room at 80 %.
const FULL: f64 = 75.0;

/// Part of what was seen that is kept at the next look.
const GROWTH_MEMORY: f64 = 0.8;

/// Highest pressure under which batches go on without a word from the server.
const MAX_OPEN: f64 = 0.95;

/// Figures of a server at one moment. `None` is what it does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Load {
    /// Size that the cache may have, in bytes.
    pub cache_size: Option<u64>,
    /// Bytes in the cache.
    pub cached: Option<u64>,
    /// Bytes in the cache that wait to be written.
    pub dirty: Option<u64>,
    /// Bytes in the cache that hold updates.
    pub updates: Option<u64>,
    /// Bytes that were written from the cache since the server began.
    pub written: Option<u64>,
    /// Pages that the threads of clients had to evict since the server began.
    pub evicted_by_clients: Option<u64>,
    /// Share of the tickets for writes or reads that is in use, 0 to 1; only where their number is fixed.
    pub tickets_used: Option<f64>,
    /// Operations that wait for a ticket or a lock.
    pub queued: Option<u64>,
    /// Whether the server slows down all writes because its members lag.
    pub is_flow_controlled: Option<bool>,
    /// Time for which writes have waited for that since the server began.
    pub flow_waited: Option<Duration>,
    /// Operations of all clients since the server began, without those that continue a cursor.
    pub operations: Option<u64>,
    pub is_checkpoint_running: Option<bool>,
    pub last_checkpoint: Option<Duration>,
}

impl Load {
    /// Returns names for the figures that the server does not tell.
    pub(crate) fn unknown(&self) -> Vec<&'static str> {
        let Self { cache_size, cached, dirty, updates, written: _, evicted_by_clients, tickets_used, queued, .. } = *self;
        let Self { is_flow_controlled, flow_waited, operations, is_checkpoint_running, last_checkpoint, .. } = *self;
        let of_cache = |figure: Option<u64>| figure.is_some() && cache_size.is_some();
        [
            ("the fill of the cache", of_cache(cached)),
            ("dirty bytes", of_cache(dirty)),
            ("bytes of updates", of_cache(updates)),
            ("pages evicted by clients", evicted_by_clients.is_some()),
            ("tickets and queues", tickets_used.is_some() || queued.is_some()),
            ("flow control", is_flow_controlled.is_some() && flow_waited.is_some()),
            ("operations of others", operations.is_some()),
            ("checkpoints", is_checkpoint_running.is_some() && last_checkpoint.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_known)| (!is_known).then_some(name))
        .collect()
    }

    /// Whether the server tells nothing that shows pressure.
    pub(crate) fn is_unknown(&self) -> bool {
        Self { written: None, cache_size: None, operations: None, ..*self } == Self::default()
    }

    fn percent(&self, part: Option<u64>) -> Option<f64> {
        let size = self.cache_size.filter(|size| *size > 0)?;
        Some(part? as f64 * 100.0 / size as f64)
    }
}

/// Two looks at the figures of a server.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Looks {
    pub last: Load,
    /// The look before, and the time between both.
    pub before: Option<(Load, Duration)>,
    /// Whether no client but the run is known to use the server.
    pub is_unshared: bool,
}

impl Looks {
    /// Whether there is no other client to spare.
    fn is_harmless(&self, max_dirty: Option<f64>) -> bool {
        self.is_unshared && max_dirty.is_none()
    }

    /// Whether other clients use a cache that is full, so that each command pushes out pages that they read again.
    pub(crate) fn is_cramped(&self, max_dirty: Option<f64>) -> bool {
        !self.is_harmless(max_dirty) && self.last.percent(self.last.cached).is_some_and(|percent| percent >= FULL)
    }

    /// Returns the increase of a counter per second; `None` if it is unknown, also because the server has begun again.
    fn per_second(&self, counter: impl Fn(&Load) -> Option<f64>) -> Option<f64> {
        let (before, elapsed) = self.before.as_ref()?;
        let increase = counter(&self.last)? - counter(before)?;
        (increase >= 0.0 && !elapsed.is_zero()).then(|| increase / elapsed.as_secs_f64())
    }
}

/// Bytes of the cache that each deleted document makes wait to be written, by the looks so far, of which later ones count more.
/// Dates in no order change a page for each document, and ordered ones a small part of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    bytes: f64,
    documents: f64,
}

impl Growth {
    /// Assumes a page of documents and one of an index for each of a few documents (MongoDB lets WiredTiger write pages of 32
    /// kB).
    pub(crate) const ASSUMED: Self = Self { bytes: 65_536.0 * ENOUGH as f64, documents: ENOUGH as f64 };

    /// Takes in two looks, and the number of documents that were deleted between them. What others change meanwhile counts as
    /// well.
    pub(crate) fn observe(&mut self, before: &Load, now: &Load, deleted: u64) {
        let change = |figure: fn(&Load) -> Option<u64>| Some(figure(now)? as f64 - figure(before)? as f64);
        let Some(dirty) = change(|load| load.dirty) else { return };
        let added = match change(|load| load.written) {
            // Bytes that were written no longer wait.
            Some(written) if written >= 0.0 => (dirty + written).max(0.0),
            // The server may have written more than was added, so that nothing can be told.
            _ if dirty < 0.0 => return,
            _ => dirty,
        };
        // The bytes of a batch at work belong to its documents, which count when it ends.
        let kept = if deleted > 0 { GROWTH_MEMORY } else { 1.0 };
        self.bytes = self.bytes * kept + added;
        self.documents = self.documents * kept + deleted as f64;
    }

    fn per_document(self) -> f64 {
        self.bytes / self.documents.max(1.0)
    }

    /// Returns the number of documents that may be deleted until the next look; `None` if any number may. They leave half of the
    /// room up to the limit, or none of it where the commands are short and go one after another.
    pub(crate) fn documents_per_look(self, looks: &Looks, max_dirty: Option<f64>) -> Option<u64> {
        let (Some(cache), Some(dirty), false) = (looks.last.cache_size, looks.last.dirty, looks.is_harmless(max_dirty)) else {
            return None;
        };
        let limit = cache as f64 * max_dirty.unwrap_or(MAX_DIRTY) / 100.0;
        let part = if looks.is_cramped(max_dirty) { 1.0 } else { 0.5 };
        // A cast from float saturates.
        let documents = ((limit - dirty as f64) * part / self.per_document().max(1.0)) as u64;
        Some(documents.max(ENOUGH.into()))
    }
}

/// The pressure on a server: the pressure of the figure which is nearest to its limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pressure {
    /// 0 for none, 1 at the limit.
    level: f64,
    why: String,
}

/// A figure next to the values between which its pressure grows from none to the limit.
struct Signal {
    value: Option<f64>,
    from: f64,
    limit: f64,
    /// Whether the sweep waits at the limit. Otherwise it goes on slowly.
    closes: bool,
    why: fn(f64, f64) -> String,
}

impl Pressure {
    /// Returns the pressure on a server; `None` if its figures show none, or are unknown.
    ///
    /// `max_dirty` is in percent. With `None`, the default, a server that has no other clients is not spared.
    pub(crate) fn of(looks: &Looks, max_dirty: Option<f64>) -> Option<Self> {
        if looks.is_harmless(max_dirty) {
            return None;
        }
        let load = &looks.last;
        let max_dirty = max_dirty.unwrap_or(MAX_DIRTY);
        let is_long = load.is_checkpoint_running == Some(true);
        let signals = [
            Signal {
                value: load.percent(load.dirty),
                from: max_dirty * FIRST_REST,
                limit: max_dirty,
                closes: true,
                why: |value, limit| format!("{value:.1} % of the server's cache waits to be written, {limit} % may"),
            },
            Signal {
                // Documents that were inserted count as updates until their page is evicted, so that 2.5 % may stay for good.
                value: load.percent(load.updates),
                from: 5.0,
                limit: 9.0,
                closes: true,
                why: |value, limit| format!("{value:.1} % of the server's cache holds updates, {limit} % may"),
            },
            Signal {
                value: load.percent(load.cached),
                from: 88.0,
                limit: 95.0,
                closes: true,
                why: |value, limit| format!("{value:.1} % of the server's cache is in use, {limit} % may be"),
            },
            Signal {
                value: looks.per_second(|load| load.evicted_by_clients.map(|pages| pages as f64)),
                from: 0.0,
                limit: 20.0,
                closes: true,
                why: |value, _| format!("clients of the server have to make room in its cache: {value:.0} pages a second"),
            },
            Signal {
                value: load.tickets_used.map(|share| share * 100.0),
                from: 50.0,
                limit: 90.0,
                closes: true,
                why: |value, _| format!("{value:.0} % of the server's tickets are in use"),
            },
            Signal {
                // Two may be the sweep's own.
                value: load.queued.map(|number| number as f64),
                from: 2.0,
                limit: 10.0,
                closes: true,
                why: |value, _| format!("{value:.0} operations queue at the server"),
            },
            Signal {
                value: load.is_flow_controlled.map(|is| if is { 1.0 } else { 0.0 }),
                from: 0.0,
                limit: 1.0,
                closes: true,
                why: |_, _| "the server slows down all writes because its members lag (flow control)".to_owned(),
            },
            Signal {
                value: looks.per_second(|load| load.flow_waited.map(|time| time.as_secs_f64() * 1000.0)),
                from: 50.0,
                limit: 500.0,
                closes: true,
                why: |value, _| format!("writes wait {value:.0} ms a second for the server's flow control"),
            },
            Signal {
                // Waiting would not end it sooner than the next one begins.
                value: load.last_checkpoint.filter(|_| is_long).map(|time| time.as_secs_f64()),
                from: 30.0,
                limit: 60.0,
                closes: false,
                why: |value, _| format!("a checkpoint is being written; the last one took {value:.0} s"),
            },
        ];
        let levels = signals.into_iter().filter_map(|Signal { value, from, limit, closes, why }| {
            let value = value?;
            let level = ((value - from) / (limit - from)).clamp(0.0, if closes { 1.0 } else { MAX_OPEN });
            (level > 0.0).then_some((level, value, limit, why))
        });
        let (level, value, limit, why) = levels.max_by(|(one, ..), (other, ..)| one.total_cmp(other))?;
        Some(Self { level, why: why(value, limit) })
    }

    /// Returns the reason in words.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Whether nothing is to be sent until the server has been looked at again.
    pub(crate) fn is_closed(&self) -> bool {
        self.level >= 1.0
    }

    /// Returns the time to leave the server in peace after a batch that took so long: at half of the limit as long again.
    pub(crate) fn rest(&self, latency: Duration) -> Duration {
        let level = self.level.min(MAX_OPEN);
        latency.mul_f64(level / (1.0 - level)).min(MAX_REST)
    }

    /// Returns the number of documents that a batch may have where the pace allows `size`.
    pub(crate) fn batch_limit(&self, size: u32) -> u32 {
        // A cast from float saturates.
        ((f64::from(size) * (1.0 - self.level)) as u32).max(ENOUGH.min(size))
    }
}
