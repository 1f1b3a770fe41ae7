use bson::oid::ObjectId;

use super::*;
use crate::core::plan::ParentKey;
use crate::testing::made_up::with_children;

const MIB: u64 = 1 << 20;

/// An oplog of 1000 MiB in 59 parts whose entries, of this many MiB, cover this many seconds more than one.
fn oplog(used: u64, seconds: u32) -> Oplog {
    let size = Some(OplogSize { used: used * MIB, max: 1000 * MIB });
    Oplog { first: 5000, last: 5001 + seconds, size, min_retention: None }
}

fn kept() -> f64 {
    let size = OplogSize { used: 0, max: 1000 * MIB };
    size.kept() / MIB as f64
}

#[test]
fn an_entry_has_the_size_that_servers_were_seen_to_write() {
    let uuid = Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] });
    let text = Bson::from("aed5bf1d-3eef-46a4-abc4-d364792c18cc");
    for (namespace, id, single, grouped) in [
        ("t.int", Bson::Int32(7), 119.0, Some(84.5)),
        ("t.oid", Bson::ObjectId(ObjectId::new()), 127.0, Some(92.5)),
        ("t.uuid", uuid, 137.0, None),
        ("t.s36", text, 156.0, Some(121.5)),
        ("t.doc", doc! { "a": 0, "b": "xyz" }.into(), 138.0, None),
        ("t.i64", Bson::Int64(7), 123.0, None),
    ] {
        let ids = [id];
        assert_eq!(Entries::of(17).bytes_per_document(namespace, &ids, Some(1024.0)), Some(single), "{namespace}");
        if let Some(grouped) = grouped {
            assert_eq!(Entries::of(21).bytes_per_document(namespace, &ids, Some(1024.0)), Some(grouped), "{namespace}");
        }
    }
    assert_eq!([17, 18].map(Entries::of), [Entries::Single, Entries::Grouped]);
    assert_eq!(Entries::of(17).bytes_per_document("t.int", &[], None), None);
    let mixed = [Bson::Int32(7), Bson::Int64(7)];
    assert_eq!(Entries::Single.bytes_per_document("t.int", &mixed, None), Some(121.0));
}

#[test]
fn fewer_large_documents_share_an_entry() {
    let of = |average: f64| Entries::Grouped.bytes_per_document("t.int", &[Bson::Int32(7)], Some(average)).unwrap();
    assert_eq!(of(200_000.0), of(1.0));
    assert!(of(300_000.0) > of(200_000.0));
    // One document in an entry.
    assert_eq!(of(3e6), 74.0 + 105.0);
}

#[test]
fn the_parts_that_go_at_once_are_a_tenth_to_a_hundredth() {
    for (max, parts) in [(10 * MIB, 10), (160 * MIB, 10), (320 * MIB, 19), (990 * MIB, 61), (1000 * MIB, 62), (50_000 * MIB, 100)]
    {
        assert_eq!(OplogSize { used: 0, max }.part(), max / parts, "{max}");
    }
}

#[test]
fn a_full_oplog_loses_as_much_time_as_the_bytes_took_that_go() {
    let full = oplog(1000, 1000);
    assert_eq!(full.is_full(), Some(true));
    // A MiB a second.
    assert_eq!(full.window_left(0, 0), Some(kept()));
    assert_eq!(full.window_left(0, 100 * MIB), Some(kept() - 100.0));
    assert_eq!(full.window_left(0, 2000 * MIB), Some(0.0));
    // Half of the oplog is the sweep's: others write half as much, and have the other half of it.
    assert_eq!(full.window_left(500 * MIB, 0), Some((kept() - 500.0) * 2.0));
    // One that has grown over its size is judged by what will be left.
    assert_eq!(oplog(2000, 2000).window_left(0, 0), Some(kept()));
}

#[test]
fn an_oplog_that_is_not_full_is_judged_by_what_it_will_be() {
    let young = oplog(10, 100);
    assert_eq!((young.is_full(), young.window()), (Some(false), Duration::from_secs(101)));
    assert_eq!(young.window_left(0, 0), Some(kept() * 10.0));
    // The sweep wrote most of it.
    assert_eq!(young.window_left(9 * MIB, MIB), Some((kept() - 10.0) * 100.0));
    // Nothing of others, of which the least is assumed.
    assert!(young.window_left(10 * MIB, 0).unwrap() > 1e9);
}

#[test]
fn the_retention_of_the_server_is_kept_however_much_is_written() {
    let retains = Oplog { min_retention: Some(Duration::from_secs(700)), ..oplog(1000, 1000) };
    assert_eq!(retains.window_left(0, 900 * MIB), Some(700.0));
    assert_eq!(
        (retains.refusal(Duration::from_secs(700), 900 * MIB), retains.seconds_within(u64::MAX, Duration::from_secs(700))),
        (None, Some(0.0))
    );
    assert!(retains.refusal(Duration::from_secs(701), 900 * MIB).is_some());
}

#[test]
fn a_rule_is_refused_from_the_first_second_that_cannot_be_kept() {
    let full = oplog(1000, 1000);
    let left = full.window_left(0, 100 * MIB).unwrap();
    let refusal = |seconds: f64| full.refusal(Duration::from_secs_f64(seconds), 100 * MIB);
    assert_eq!(refusal(left - 0.001), None);
    let why = refusal(left + 0.001).unwrap();
    assert!(
        why.starts_with("the oplog of 1000.00 MiB covers 16m 41s now, and would cover 14m 11s after the next batches;"),
        "{why}"
    );
    let young = oplog(10, 1).refusal(Duration::from_secs(3600), 0).unwrap();
    assert!(young.contains("would cover 1m 35s once it is full; 1h 00m have to be kept"), "{young}");
    let unknown = Oplog { size: None, ..full };
    assert!(unknown.refusal(Duration::from_secs(1), 0).unwrap().starts_with("the size of the oplog is unknown"));
    assert_eq!((unknown.window_left(0, 0), unknown.is_full()), (None, None));
}

#[test]
fn a_slow_sweep_leaves_more_than_a_fast_one() {
    let full = oplog(1000, 1000);
    assert_eq!(full.window_after(0, 0.0), Some(kept()));
    assert_eq!(full.window_after(100 * MIB, 10.0), Some(kept() - 100.0));
    // In ten windows' time a tenth of it is in the oplog at once.
    let slow = full.window_after(1000 * MIB, 10_000.0).unwrap();
    assert!((slow - kept() / 1.1).abs() < 1e-6, "{slow}");
    assert!(full.window_after(2000 * MIB, 1.0).is_some_and(|left| left < 1.0));
}

#[test]
fn a_sweep_takes_as_long_as_the_room_in_each_window_lets_it() {
    let full = oplog(1000, 1000);
    let least = Duration::from_secs(500);
    let room = kept() - 500.0;
    let seconds = |mib: f64| full.seconds_within((mib * MIB as f64) as u64, least);
    assert_eq!(seconds(room.floor()), Some(0.0));
    assert!((seconds(room * 4.0).unwrap() - 2000.0).abs() < 1.0);
    // Over that time the window is what was asked for.
    let after = full.window_after((room * 4.0 * MIB as f64) as u64, 2000.0).unwrap();
    assert!((after - 500.0).abs() < 1.0, "{after}");
    assert_eq!(full.seconds_within(1, Duration::from_secs(990)), None);
}

#[test]
fn own_bytes_leave_with_the_entries_before_the_first() {
    let mut own = OwnBytes::default();
    let at = |first, last| Oplog { first, last, ..oplog(1000, 1) };
    assert_eq!(own.in_oplog(&at(10, 100), 0), 0);
    assert_eq!(own.in_oplog(&at(20, 110), 300), 300);
    assert_eq!(own.in_oplog(&at(30, 110), 350), 350);
    assert_eq!(own.in_oplog(&at(100, 120), 500), 500);
    // What had been written by second 110 may be in that second.
    assert_eq!(own.in_oplog(&at(110, 130), 600), 600);
    assert_eq!(own.in_oplog(&at(111, 140), 600), 300);
    assert_eq!(own.in_oplog(&at(141, 150), 600), 0);
}

#[test]
fn a_journal_has_an_entry_for_each_key_of_parents_with_the_children_that_name_them_by_it() {
    let ids = [Bson::Int32(1)];
    let rule = with_children();
    let child = rule.family.as_ref().unwrap().children[0].clone();
    let also = |child: ChildRule| {
        let mut rule = rule.clone();
        rule.family.as_mut().unwrap().children.push(child);
        Entries::Single.journal_bytes(&rule, &ids, 1)
    };
    let one = Entries::Single.journal_bytes(&rule, &ids, 1);
    // A place more in the list, with its type and its name of one digit.
    let place = size(&doc! { "namespace": "app.d", "field": "p" }) + 3.0;
    assert_eq!(also(child.clone()), one + place);
    // An entry more, whose key has a name of one letter in place of `_id`, and a list of the `_id`s with a name of three.
    let by_key = ChildRule { parent_key: ParentKey { field: "k".into(), ..child.parent_key.clone() }, ..child };
    assert_eq!(also(by_key), one * 2.0 - 2.0 + 5.0 + size(&doc! { "0": 1 }));
    // Each entry is removed by a delete.
    let delete = |entries: Entries| entries.bytes_per_document("app.j", &[ObjectId::from_bytes([0; 12]).into()], None).unwrap();
    let grouped = Entries::Grouped.journal_bytes(&rule, &ids, 1);
    assert_eq!(one - grouped, delete(Entries::Single) - delete(Entries::Grouped));
}

#[test]
fn an_oplog_is_full_from_the_byte_at_which_only_one_part_is_missing() {
    let at = |used| Oplog { size: Some(OplogSize { used, max: 1000 * MIB }), ..oplog(0, 1) }.is_full();
    let part = OplogSize { used: 0, max: 1000 * MIB }.part();
    assert_eq!([at(1000 * MIB - part - 1), at(1000 * MIB - part)], [Some(false), Some(true)]);
}
