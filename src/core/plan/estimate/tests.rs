use std::time::Duration;

use super::*;
use crate::core::facts::{Oplog, OplogSize};
use crate::core::policy::RunLimits;
use crate::testing::made_up::{planned, with_children};

const MIB: u64 = 1 << 20;

fn rule(keys: &str) -> SweepRule {
    let mut rule = planned(keys, 100_000).decision.countable().unwrap().clone();
    rule.selection.indexes = 1;
    rule.selection.size.file = Some(FileSize { size: 12 * MIB, free: 2 * MIB });
    rule
}

fn facts<'a>(expired: u64, oplog: &'a OplogLook, ids: &'a [Bson]) -> EstimateFacts<'a> {
    let run = RunLimits::default();
    let children = Some(&[][..]);
    let measured_speed = Some(1000.0);
    EstimateFacts { expired, ids, children, oplog, wire_version: 17, cache: None, measured_speed, members: None, run }
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
    let none = RunLimits::default();
    assert_eq!(capped("", none), (50_000, Some(50.0)));
    assert_eq!(capped("    maxDeletes: 20000\n", none), (20_000, Some(20.0)));
    assert_eq!(capped("    maxDeletes: 20000\n", RunLimits { max_deletes: Some(10_000), ..none }), (10_000, Some(10.0)));
    assert_eq!(capped("    rate: 500\n", none), (50_000, Some(100.0)));
    assert_eq!(capped("    rate: 500\n", RunLimits { rate: Some(250), ..none }), (50_000, Some(200.0)));
    assert_eq!(capped("    rate: 5000\n", none), (50_000, Some(50.0)));
    let ten = RunLimits { max_duration: Some(Duration::from_secs(10)), ..none };
    assert_eq!(capped("", ten), (10_000, Some(10.0)));
    let longer = RunLimits { max_duration: Some(Duration::from_secs(51)), ..none };
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
    (rule.selection.size.average_bytes, rule.selection.size.file) = (None, None);
    let unknown = OplogLook::Unknown("mongos".into());
    let estimate = Estimate::of(&rule, &facts(50_000, &unknown, &[Bson::Int32(1)]));
    assert_eq!((estimate.bytes, estimate.seconds, estimate.oplog_bytes), (None, None, Some(5_950_000)));
    assert_eq!((estimate.oplog_window_seconds, estimate.oplog_window_after_seconds), (None, None));
    assert_eq!((estimate.reusable_bytes, estimate.compact_bytes, estimate.oplog_unknown), (None, None, Some("mongos".into())));
    let unsized_oplog = OplogLook::Known(Oplog { first: 0, last: 1001, size: None, min_retention: None });
    let why = |oplog: &OplogLook| Estimate::of(&rule, &facts(1, oplog, &[Bson::Int32(1)])).oplog_unknown;
    assert_eq!(
        [unsized_oplog, full()].map(|oplog| why(&oplog)),
        [Some("its size needs `collStats` of `local.oplog.rs` (role `clusterMonitor`)".into()), None]
    );
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

/// Returns the children of a rule with children: so many of the expired documents, and so many orphans.
fn counted(rule: &SweepRule, of_expired: u64, orphans: u64) -> [CountedChildren<'_>; 1] {
    let child = &rule.family.as_ref().unwrap().children[0];
    [CountedChildren { child, of_expired, orphans, ids: vec![Bson::Int32(1)] }]
}

#[test]
fn children_go_in_the_proportion_of_their_parents_and_orphans_within_what_the_limits_leave() {
    let (oplog, ids) = (full(), [Bson::Int32(1)]);
    let rule = with_children();
    let children = counted(&rule, 5000, 100);
    let estimate = |rule: &SweepRule, most| {
        let run = RunLimits { max_deletes: most, ..RunLimits::default() };
        Estimate::of(rule, &EstimateFacts { children: Some(&children), run, ..facts(1000, &oplog, &ids) })
    };
    let whole = estimate(&rule, None);
    // Documents of parents and children have 100 bytes, their `_id`s the same size.
    assert_eq!((whole.documents, whole.children, whole.bytes), (1000, Some(5100), Some(610_000)));
    let deletes = 119.0 * (1000.0 + 5100.0);
    let journal = whole.oplog_bytes.unwrap() as f64 - deletes;
    // A key in a list of numbers below 2000 takes 6 to 9 bytes more than its value's, and the only batch has two entries.
    assert!(journal > 1000.0 * 9.0 && journal < 1000.0 * 10.0, "{journal}");
    let of = |most| {
        let estimate = estimate(&rule, Some(most));
        (estimate.documents, estimate.children)
    };
    assert_eq!([of(1050), of(1000), of(500), of(0)], [(1000, Some(5050)), (1000, Some(5000)), (500, Some(2500)), (0, Some(0))]);
    assert_eq!(whole.oplog_unknown, None);
}

#[test]
fn children_that_were_not_counted_leave_bytes_and_oplog_unknown_and_the_time_as_well_without_a_history() {
    let (oplog, ids) = (full(), [Bson::Int32(1)]);
    let estimate = |speed| {
        Estimate::of(&with_children(), &EstimateFacts { children: None, measured_speed: speed, ..facts(1000, &oplog, &ids) })
    };
    let known = estimate(Some(100.0));
    assert_eq!((known.children, known.bytes, known.oplog_bytes, known.seconds), (None, None, None, Some(10.0)));
    assert_eq!(known.oplog_unknown.as_deref(), Some("the children were not counted"));
    assert_eq!(estimate(None).seconds, None);
}

#[test]
fn parents_and_children_share_the_rate_and_each_takes_its_time_without_a_history() {
    let ids = [Bson::Int32(1)];
    let mut rule = with_children();
    let estimate = |rule: &SweepRule, of_expired, orphans, speed| {
        let children = counted(rule, of_expired, orphans);
        let facts = EstimateFacts { children: Some(&children), measured_speed: speed, ..facts(87_000, &OplogLook::None, &ids) };
        Estimate::of(rule, &facts)
    };
    // A child takes the time of eight documents.
    let assumed = estimate(&rule, 87_000 * 3, 0, None);
    assert_eq!((assumed.seconds, assumed.documents_per_second), (Some(25.004), 3480.0));
    let orphaned = estimate(&rule, 0, 87_000 * 2, None);
    assert_eq!(
        (orphaned.seconds, orphaned.documents_per_second),
        (Some(17.004), 87_000.0),
        "no document takes its time from orphans"
    );
    // Earlier sweeps had children as well, but the orphans are gone by them.
    assert_eq!(estimate(&rule, 87_000 * 4, 87_000, Some(8700.0)).seconds, Some(18.0));
    rule.limits.rate = Some(8700);
    assert_eq!(estimate(&rule, 87_000 * 4, 0, None).seconds, Some(50.0));
}

#[test]
fn space_is_told_of_a_file_that_has_been_written() {
    let mut rule = rule("");
    let mut reusable = |used| {
        rule.selection.size.file = Some(FileSize { size: used + MIB, free: MIB });
        let estimate = Estimate::of(&rule, &facts(50_000, &OplogLook::None, &[]));
        (estimate.reusable_bytes, estimate.compact_bytes)
    };
    // Ten million bytes of documents.
    assert_eq!(reusable(1_000_000), (Some(500_000), Some(500_000 + MIB)));
    assert_eq!(reusable(999_999), (None, None));
}

#[test]
fn each_batch_of_parents_has_its_entries_in_the_journal_and_the_last_one_fewer_parents() {
    let (oplog, ids) = (full(), [Bson::Int32(1)]);
    let rule = with_children();
    let batch = u64::from(rule.sizes.batch);
    let journal = |documents: u64| {
        let children = counted(&rule, 0, 0);
        let estimate = Estimate::of(&rule, &EstimateFacts { children: Some(&children), ..facts(documents, &oplog, &ids) });
        estimate.oplog_bytes.unwrap() - 119 * documents
    };
    let (whole, one) = (journal(batch), journal(1));
    assert_eq!([journal(0), journal(batch * 3), journal(batch * 2 + 1)], [0, whole * 3, whole * 2 + one]);
    // The entries of one parent: names, run, time, and the delete of the entry.
    assert!(one > 300 && one < 700 && one < whole, "{one} {whole}");
}

#[test]
fn a_large_document_takes_longer() {
    let mut rule = rule("");
    let mut seconds = |bytes| {
        rule.selection.size.average_bytes = Some(bytes);
        let facts = EstimateFacts { measured_speed: None, ..facts(87_000, &OplogLook::None, &[]) };
        Estimate::of(&rule, &facts).seconds.unwrap()
    };
    // 87,000 documents take a second, each byte beyond a thousand two nanoseconds, and the rule four milliseconds.
    assert_eq!([seconds(10.0), seconds(1000.0), seconds(251_000.0)], [1.004, 1.004, 44.504]);
}

#[test]
fn a_rule_takes_its_time_for_a_few_documents_and_none_for_nothing() {
    let seconds = |expired| {
        let facts = EstimateFacts { measured_speed: None, ..facts(expired, &OplogLook::None, &[]) };
        Estimate::of(&rule(""), &facts).seconds
    };
    assert_eq!([seconds(0), seconds(3)], [Some(0.0), Some(0.004)]);
}

#[test]
fn each_document_and_each_byte_of_it_takes_time_to_archive() {
    let mut rule = rule("    archive: {directory: /a}\n");
    let mut seconds = |bytes| {
        rule.selection.size.average_bytes = bytes;
        let facts = EstimateFacts { measured_speed: None, ..facts(1_740_000, &OplogLook::None, &[]) };
        Estimate::of(&rule, &facts).seconds.unwrap()
    };
    // The deletes take twenty seconds.
    assert_eq!([seconds(None), seconds(Some(400.0)), seconds(Some(1000.0))], [28.704, 32.184, 37.404]);
}

#[test]
fn where_nothing_goes_the_speed_is_that_of_one_document_and_the_oplog_stays_as_it_is() {
    let oplog = full();
    let of = |expired| {
        let estimate = Estimate::of(&rule(""), &EstimateFacts { measured_speed: None, ..facts(expired, &oplog, &[]) });
        (estimate.documents_per_second, estimate.oplog_bytes)
    };
    // Without an `_id`, the bytes of a delete are unknown.
    assert_eq!([of(0), of(5)], [(87_000.0, Some(0)), (87_000.0, None)]);
}

#[test]
fn the_oldest_go_first_under_a_limit_of_the_run_and_it_is_named() {
    let none = RunLimits::default();
    let named = [
        none,
        RunLimits { max_duration: Some(Duration::from_secs(1)), ..none },
        RunLimits { rate: Some(5), ..none },
        RunLimits { max_deletes: Some(5), rate: Some(5), ..none },
    ];
    assert_eq!(named.map(|caps| caps.oldest_first()), [None, None, Some("rate"), Some("--max-deletes")]);
}
