//! The pressure on a server, by the figures that it tells of itself, and the rest that it needs. Arithmetic only: figures and times come in as values.
//!
//! The limits are those of WiredTiger: its own threads begin to write when 5 % of the cache is dirty, 2.5 % holds updates, or 80 % is full. At 20, 10
//! and 95 % the threads of the clients have to help, each of which then waits (WiredTiger, "Cache and eviction tuning"; MongoDB keeps the defaults).

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

/// Bytes of the cache that each deleted document makes wait to be written, by the looks so far, of which later ones count more. Dates in no order change a
/// page for each document, and ordered ones a small part of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    bytes: f64,
    documents: f64,
}

impl Growth {
    /// Assumes a page of documents and one of an index for each of a few documents (MongoDB lets WiredTiger write pages of 32 kB).
    pub(crate) const ASSUMED: Self = Self { bytes: 65_536.0 * ENOUGH as f64, documents: ENOUGH as f64 };

    /// Takes in two looks, and the number of documents that were deleted between them. What others change meanwhile counts as well.
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

    /// Returns the number of documents that may be deleted until the next look; `None` if any number may. They leave half of the room up to the limit, or
    /// none of it where the commands are short and go one after another.
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

/// The pressure on a server: that of the figure which is nearest to its limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pressure {
    /// 0 for none, 1 at the limit.
    level: f64,
    why: String,
}

/// A figure beside the values between which its pressure grows from none to the limit.
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

    /// Returns the time to leave the server alone after a batch that took so long: at half of the limit as long again.
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

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Returns figures of a server that does nothing, with a cache of 1000 bytes.
    fn idle() -> Load {
        Load {
            cache_size: Some(1000),
            cached: Some(0),
            dirty: Some(0),
            updates: Some(0),
            written: Some(0),
            evicted_by_clients: Some(0),
            tickets_used: Some(0.0),
            queued: Some(0),
            is_flow_controlled: Some(false),
            flow_waited: Some(Duration::ZERO),
            operations: Some(0),
            is_checkpoint_running: Some(false),
            last_checkpoint: Some(Duration::ZERO),
        }
    }

    /// Returns the pressure in percent of the limit, by figures two seconds after those of an idle server; `None` if they show none.
    fn level(change: impl FnOnce(&mut Load), max_dirty: Option<f64>) -> Option<(u32, String)> {
        let mut last = idle();
        change(&mut last);
        let looks = Looks { last, before: Some((idle(), 2 * S)), is_unshared: false };
        let Pressure { level, why } = Pressure::of(&looks, max_dirty)?;
        Some(((level * 100.0).round() as u32, why))
    }

    /// Checks the pressure of one figure below its first mark, half-way, and at its limit.
    fn check(set: impl Fn(&mut Load, u64), [none, half, limit]: [u64; 3], most: u32, why: &str) {
        let at = |value| level(|load| set(load, value), Some(10.0));
        assert_eq!(at(none), None, "{why}");
        let (percent, _) = at(none + 1).unwrap_or_else(|| panic!("{why}: no pressure at {none} + 1"));
        assert!(percent < 60, "{why}: {percent}");
        assert_eq!(at(half).map(|(level, _)| level), Some(50), "{why}");
        let (percent, words) = at(limit).unwrap();
        assert_eq!((percent, words.as_str()), (most, why));
        assert!(at(limit * 99 / 100).unwrap().0 < 100, "{why}");
        assert_eq!(at(limit * 2).unwrap().0, most, "{why}");
    }

    #[test]
    fn each_figure_presses_from_its_first_mark_to_its_limit() {
        check(
            |load, value| load.dirty = Some(value),
            [50, 75, 100],
            100,
            "10.0 % of the server's cache waits to be written, 10 % may",
        );
        check(|load, value| load.updates = Some(value), [50, 70, 90], 100, "9.0 % of the server's cache holds updates, 9 % may");
        check(
            |load, value| load.cached = Some(value),
            [880, 915, 950],
            100,
            "95.0 % of the server's cache is in use, 95 % may be",
        );
        let evicted = "clients of the server have to make room in its cache: 20 pages a second";
        check(|load, value| load.evicted_by_clients = Some(value), [0, 20, 40], 100, evicted);
        let tickets = |load: &mut Load, value: u64| load.tickets_used = Some(value as f64 / 100.0);
        check(tickets, [50, 70, 90], 100, "90 % of the server's tickets are in use");
        check(|load, value| load.queued = Some(value), [2, 6, 10], 100, "10 operations queue at the server");
        let waited = |load: &mut Load, value| load.flow_waited = Some(MS(value));
        check(waited, [100, 550, 1000], 100, "writes wait 500 ms a second for the server's flow control");
        let checkpoint =
            |load: &mut Load, value| (load.is_checkpoint_running, load.last_checkpoint) = (Some(true), Some(value as u32 * S));
        check(checkpoint, [30, 45, 60], 95, "a checkpoint is being written; the last one took 60 s");
        let (percent, why) = level(|load| load.is_flow_controlled = Some(true), None).unwrap();
        assert_eq!((percent, why.as_str()), (100, "the server slows down all writes because its members lag (flow control)"));
        assert_eq!(level(|load| load.last_checkpoint = Some(90 * S), None), None, "no checkpoint is running");
        assert_eq!(level(|_| (), None), None);
    }

    #[test]
    fn the_figure_nearest_to_its_limit_decides() {
        let both = |load: &mut Load| (load.dirty, load.queued) = (Some(75), Some(9));
        assert_eq!(level(both, Some(10.0)), Some((88, "9 operations queue at the server".into())));
        assert_eq!(level(both, Some(8.0)).unwrap().0, 88);
        assert!(level(both, Some(7.6)).unwrap().1.starts_with("7.5 %"));
        let dirty = |percent: u64, max| level(|load| load.dirty = Some(percent * 10), max).map(|(level, _)| level);
        assert_eq!([9, 10, 17, 18].map(|percent| dirty(percent, None)), [None, Some(11), Some(89), Some(100)]);
    }

    #[test]
    fn what_is_unknown_is_no_pressure_and_is_named() {
        assert_eq!(Pressure::of(&Looks::default(), None), None);
        assert_eq!((idle().unknown(), idle().is_unknown()), (vec![], false));
        assert_eq!((Load::default().unknown().len(), Load::default().is_unknown()), (8, true));
        assert!(Load { cache_size: Some(1), written: Some(1), operations: Some(1), ..Load::default() }.is_unknown());
        let without_size = Load { cache_size: None, dirty: Some(1000), ..idle() };
        assert_eq!(without_size.unknown(), ["the fill of the cache", "dirty bytes", "bytes of updates"]);
        assert_eq!(Pressure::of(&Looks { last: without_size, ..Looks::default() }, None), None);
        assert_eq!(Load { tickets_used: None, ..idle() }.unknown(), [""; 0]);
        assert_eq!(Load { tickets_used: None, queued: None, ..idle() }.unknown(), ["tickets and queues"]);
        assert_eq!(Load { flow_waited: None, ..idle() }.unknown(), ["flow control"]);

        // One look is not enough for a counter, and a server that has begun again counts from zero.
        let busy = Load { evicted_by_clients: Some(1_000_000), flow_waited: Some(1000 * S), ..idle() };
        for (last, before) in [(busy, None), (idle(), Some((busy, S))), (busy, Some((idle(), Duration::ZERO)))] {
            assert_eq!(Pressure::of(&Looks { last, before, is_unshared: false }, None), None);
        }
    }

    #[test]
    fn a_cache_is_cramped_where_others_use_it_and_it_is_full() {
        let looks = |percent: u64, is_unshared| {
            let last = Load { cached: Some(percent * 10), ..idle() };
            Looks { last, before: None, is_unshared }
        };
        assert_eq!([0, 74, 75, 100].map(|percent| looks(percent, false).is_cramped(None)), [false, false, true, true]);
        assert_eq!([None, Some(18.0)].map(|max_dirty| looks(90, true).is_cramped(max_dirty)), [false, true]);
        assert!(!Looks::default().is_cramped(Some(18.0)));
    }

    #[test]
    fn a_server_that_nobody_else_uses_is_spared_only_on_request() {
        let looks = Looks { last: Load { dirty: Some(500), ..idle() }, before: None, is_unshared: true };
        assert_eq!(Pressure::of(&looks, None), None);
        assert!(Pressure::of(&looks, Some(18.0)).unwrap().is_closed());
        assert!(Pressure::of(&Looks { is_unshared: false, ..looks }, None).unwrap().is_closed());
    }

    #[test]
    fn the_documents_of_a_look_leave_half_of_the_room_by_what_the_last_ones_took() {
        const MIB: u64 = 1024 * 1024;
        let looks = |dirty: u64, is_unshared| {
            let last = Load { cache_size: Some(1000 * MIB), dirty: Some(dirty * MIB), ..idle() };
            Looks { last, before: None, is_unshared }
        };
        let limit = |growth: Growth, dirty| growth.documents_per_look(&looks(dirty, false), Some(20.0)).unwrap();
        let load =
            |dirty: u64, written: Option<u64>| Load { dirty: Some(dirty * MIB), written: written.map(|n| n * MIB), ..idle() };
        let mut growth = Growth::ASSUMED;
        assert_eq!([0, 100, 150, 187, 188, 999].map(|dirty| limit(growth, dirty)), [1600, 800, 400, 104, 100, 100]);
        // 1000 documents take one mebibyte, whether it still waits or was written; what was assumed is forgotten slowly.
        growth.observe(&load(10, Some(5)), &load(11, Some(5)), 1000);
        assert!((8000..10_000).contains(&limit(growth, 100)), "{growth:?}");
        (0..99).for_each(|_| growth.observe(&load(10, Some(5)), &load(4, Some(12)), 1000));
        assert!((49_990..=50_000).contains(&limit(growth, 100)), "{growth:?}");
        // A fall tells nothing if the written bytes are unknown.
        let known = growth;
        for (before, now) in [(load(10, None), load(9, None)), (load(10, Some(5)), load(9, Some(4))), (idle(), Load::default())] {
            growth.observe(&before, &now, 1000);
        }
        assert_eq!(growth, known);
        // A batch is at work when the first look comes, and has ended at the second.
        growth.observe(&load(0, None), &load(40, None), 0);
        assert!(limit(growth, 100) < 10_000, "{growth:?}");
        growth.observe(&load(40, None), &load(40, None), 40_000);
        assert!(limit(growth, 100) > 40_000, "{growth:?}");
        assert_eq!(growth.documents_per_look(&looks(999, true), None), None);
        // Short commands that go one after another may use up the room.
        let cramped = |dirty| {
            let looks = looks(dirty, false);
            Looks { last: Load { cached: Some(750 * MIB), ..looks.last }, ..looks }
        };
        assert_eq!(Growth::ASSUMED.documents_per_look(&cramped(100), Some(20.0)), Some(1600));
        assert_eq!(growth.documents_per_look(&Looks::default(), Some(20.0)), None);
    }

    #[test]
    fn batches_become_smaller_and_rests_longer_with_the_pressure() {
        let at = |level| {
            let pressure = Pressure { level, why: String::new() };
            (pressure.batch_limit(2000), pressure.rest(MS(100)).as_millis(), pressure.is_closed())
        };
        let steps = [0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0].map(at);
        assert_eq!(steps[1..4], [(1500, 33, false), (1000, 100, false), (500, 300, false)]);
        assert_eq!(steps[5..], [(100, 1900, false), (100, 1900, true)]);
        assert!(steps.is_sorted_by(|one, other| one.0 >= other.0 && one.1 <= other.1));
        let high = Pressure { level: 0.875, why: String::new() };
        assert_eq!([1, 99, 100, 5000].map(|size| high.batch_limit(size)), [1, 99, 100, 625]);
        assert_eq!(high.rest(MS(60_000)), MAX_REST);
    }

    #[test]
    fn figures_that_are_told_in_part_are_unknown() {
        assert_eq!(idle().unknown(), [""; 0]);
        for (load, names) in [
            (Load { flow_waited: None, ..idle() }, vec!["flow control"]),
            (Load { is_flow_controlled: None, ..idle() }, vec!["flow control"]),
            (Load { last_checkpoint: None, ..idle() }, vec!["checkpoints"]),
            (Load { is_checkpoint_running: None, ..idle() }, vec!["checkpoints"]),
            (Load { tickets_used: None, ..idle() }, vec![]),
            (Load { queued: None, ..idle() }, vec![]),
            (Load { queued: None, tickets_used: None, ..idle() }, vec!["tickets and queues"]),
            (Load { cache_size: None, ..idle() }, vec!["the fill of the cache", "dirty bytes", "bytes of updates"]),
        ] {
            assert_eq!(load.unknown(), names, "{load:?}");
        }
        assert_eq!(Load { cache_size: Some(0), ..idle() }.percent(Some(5)), None);
        assert_eq!(Load { cache_size: Some(1), ..idle() }.percent(Some(5)), Some(500.0));
    }

    #[test]
    fn a_pressure_says_why() {
        let looks = Looks { last: Load { queued: Some(10), ..idle() }, before: None, is_unshared: false };
        assert_eq!(Pressure::of(&looks, None).unwrap().why(), "10 operations queue at the server");
    }

    #[test]
    fn what_is_learned_of_a_batch_counts_with_its_documents() {
        let at = |dirty, written| Load { dirty: Some(dirty), written, ..idle() };
        let learned = |before: Load, now: Load, deleted| {
            let mut growth = Growth { bytes: 1000.0, documents: 10.0 };
            growth.observe(&before, &now, deleted);
            (growth.bytes, growth.documents)
        };
        let kept = GROWTH_MEMORY;
        assert_eq!(Growth::ASSUMED.per_document(), 65_536.0);
        for (before, now, deleted, expected) in [
            (at(10, Some(0)), at(60, Some(50)), 4, (1000.0 * kept + 100.0, 10.0 * kept + 4.0)),
            // Nothing was written, and something that waited is gone: nothing was added.
            (at(10, Some(7)), at(5, Some(7)), 4, (1000.0 * kept, 10.0 * kept + 4.0)),
            (at(10, Some(7)), at(5, Some(6)), 4, (1000.0, 10.0)),
            (at(10, None), at(10, None), 4, (1000.0 * kept, 10.0 * kept + 4.0)),
            (at(10, None), at(9, None), 4, (1000.0, 10.0)),
            // No batch has ended: what was added belongs to one that is at work.
            (at(10, Some(0)), at(60, Some(0)), 0, (1050.0, 10.0)),
        ] {
            assert_eq!(learned(before, now, deleted), expected, "{before:?} {now:?} {deleted}");
        }
    }
}
