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

/// Returns the pressure in percent of the limit, by figures two seconds after the figures of an idle server; `None` if they show
/// none.
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
    check(|load, value| load.cached = Some(value), [880, 915, 950], 100, "95.0 % of the server's cache is in use, 95 % may be");
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
    let load = |dirty: u64, written: Option<u64>| Load { dirty: Some(dirty * MIB), written: written.map(|n| n * MIB), ..idle() };
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
