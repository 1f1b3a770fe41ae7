use super::*;
use crate::core::facts::{Oplog, OplogSize};
use crate::testing::made_up::planned;

const MIB: u64 = 1 << 20;

fn rule(keys: &str) -> SweepRule {
    let mut rule = planned(keys, 100_000).decision.countable().unwrap().clone();
    rule.selection.indexes = 1;
    rule.selection.file = Some(FileSize { size: 12 * MIB, free: 2 * MIB });
    rule
}

fn facts<'a>(expired: u64, oplog: &'a OplogLook, ids: &'a [Bson]) -> EstimateFacts<'a> {
    let run = RunCaps::default();
    EstimateFacts { expired, ids, oplog, wire_version: 17, cache: None, measured_speed: Some(1000.0), members: None, run }
}

fn full() -> OplogLook {
    let size = Some(OplogSize { used: 1000 * MIB, max: 1000 * MIB });
    OplogLook::Known(Oplog { first: 0, last: 1001, size, min_retention: None })
}

#[test]
fn the_strictest_limit_decides_how_much_one_run_deletes_and_how_long_it_takes() {
    let ids = [Bson::Int32(1)];
    let capped = |keys, run| {
        let rule = rule(keys);
        let estimate = Estimate::of(&rule, &EstimateFacts { run, ..facts(50_000, &OplogLook::None, &ids) });
        (estimate.documents, estimate.seconds)
    };
    let none = RunCaps::default();
    assert_eq!(capped("", none), (50_000, Some(50.0)));
    assert_eq!(capped("    maxDeletes: 20000\n", none), (20_000, Some(20.0)));
    assert_eq!(capped("    maxDeletes: 20000\n", RunCaps { max_deletes: Some(10_000), ..none }), (10_000, Some(10.0)));
    assert_eq!(capped("    rate: 500\n", none), (50_000, Some(100.0)));
    assert_eq!(capped("    rate: 500\n", RunCaps { rate: Some(250), ..none }), (50_000, Some(200.0)));
    assert_eq!(capped("    rate: 5000\n", none), (50_000, Some(50.0)));
    let ten = RunCaps { max_duration: Some(Duration::from_secs(10)), ..none };
    assert_eq!(capped("", ten), (10_000, Some(10.0)));
    let longer = RunCaps { max_duration: Some(Duration::from_secs(51)), ..none };
    assert_eq!(capped("", longer), (50_000, Some(50.0)), "what has expired is done before the time is over");
    assert_eq!(capped("    window: {start: '23:59:50', end: '00:00:15'}\n", none), (25_000, Some(25.0)));
    assert_eq!(capped("    window: {start: '23:59:50', end: '00:00:15'}\n", ten), (10_000, Some(10.0)));
}

#[test]
fn the_oplog_and_the_space_follow_from_the_documents() {
    let (oplog, ids) = (full(), [Bson::Int32(1)]);
    let estimate = Estimate::of(&rule(""), &facts(50_000, &oplog, &ids));
    assert_eq!(
        (estimate.bytes, estimate.oplog_bytes_per_document, estimate.oplog_bytes),
        (Some(5_000_000), Some(119.0), Some(5_950_000))
    );
    assert_eq!(estimate.oplog_window_seconds, Some(1001));
    let expected = oplog.known().unwrap().window_after(5_950_000, 50.0).unwrap() as u64;
    assert_eq!(estimate.oplog_window_after_seconds, Some(expected));
    // Half of what is in use, and on the disk what is free already as well.
    assert_eq!((estimate.reusable_bytes, estimate.compact_bytes, estimate.compact_members), (Some(5 * MIB), Some(7 * MIB), None));
    let members = ["b:1".to_owned(), "a:1".to_owned()];
    let of_set = Estimate::of(&rule(""), &EstimateFacts { members: Some(&members), ..facts(50_000, &oplog, &ids) });
    assert_eq!(of_set.compact_members, Some(members.to_vec()));
}

#[test]
fn what_is_unknown_is_null() {
    let mut rule = rule("    minOplogWindow: 1h\n");
    (rule.selection.average_bytes, rule.selection.file) = (None, None);
    let unknown = OplogLook::Unknown("mongos".into());
    let estimate = Estimate::of(&rule, &facts(50_000, &unknown, &[Bson::Int32(1)]));
    assert_eq!((estimate.bytes, estimate.seconds, estimate.oplog_bytes), (None, None, Some(5_950_000)));
    assert_eq!((estimate.oplog_window_seconds, estimate.oplog_window_after_seconds), (None, None));
    assert_eq!((estimate.reusable_bytes, estimate.compact_bytes, estimate.oplog_unknown), (None, None, Some("mongos".into())));
    let unsized_oplog = OplogLook::Known(Oplog { first: 0, last: 1001, size: None, min_retention: None });
    let why = |oplog: &OplogLook| Estimate::of(&rule, &facts(1, oplog, &[Bson::Int32(1)])).oplog_unknown;
    assert_eq!([unsized_oplog, full()].map(|oplog| why(&oplog)), [Some("the user may not see its size".into()), None]);
    assert_eq!([SpeedSource::History, SpeedSource::Assumption].map(|source| source.to_string()), ["history", "assumption"]);
    // Nothing is written where there is no oplog.
    let without = Estimate::of(&rule, &facts(50_000, &OplogLook::None, &[Bson::Int32(1)]));
    assert_eq!((without.seconds, without.oplog_bytes, without.oplog_unknown), (Some(50.0), None, None));
}

#[test]
fn the_guarded_window_makes_a_sweep_longer() {
    let (oplog, ids) = (full(), [Bson::Int32(1)]);
    let guarded = rule("    minOplogWindow: 935s\n");
    let seconds = |expired| Estimate::of(&guarded, &facts(expired, &oplog, &ids)).seconds.unwrap();
    assert_eq!(seconds(10_000), 10.0);
    let least = oplog.known().unwrap().seconds_within(119_000_000, Duration::from_secs(935)).unwrap();
    assert!((seconds(1_000_000) - least).abs() < 0.1 && least > 1000.0, "{least}");
}

#[test]
fn the_assumed_speed_falls_with_the_indexes_and_beyond_the_cache() {
    let mut rule = rule("");
    let mut speed = |indexes, cache| {
        rule.selection.indexes = indexes;
        let estimate = Estimate::of(&rule, &EstimateFacts { cache, measured_speed: None, ..facts(1, &OplogLook::None, &[]) });
        assert_eq!(estimate.speed_source, SpeedSource::Assumption);
        estimate.documents_per_second
    };
    let of_indexes = [0, 1, 2, 3, 4, 5, 6, 12].map(|indexes| speed(indexes, None));
    assert_eq!(of_indexes, [87_000.0, 87_000.0, 69_000.0, 56_500.0, 44_000.0, 32_500.0, 21_000.0, 10_500.0]);
    // Ten million bytes of documents.
    assert_eq!((speed(1, Some(10_000_000)), speed(1, Some(9_999_999))), (87_000.0, 8_700.0));
}
