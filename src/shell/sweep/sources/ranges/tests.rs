//! Ranges of dates and of `_id`s, by a server that answers from a list.

use bson::oid::ObjectId;

use super::*;
use crate::core::plan::index::IndexChoice;
use crate::core::policy::DateFormat;
use crate::shell::lock::lease::Leases;
use crate::testing::made_up::sweep::sweep as made_up_sweep;
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{self, Batch, End, Reply};

fn plan(stage: &str, is_multikey: bool) -> ScriptedReply {
    Reply(doc! { "plan": { "stage": stage, "isMultiKey": is_multikey } })
}

fn sweep(replies: Vec<ScriptedReply>) -> RuleSweep {
    sweep_by(&Script::new(replies))
}

fn sweep_by(script: &std::sync::Arc<Script>) -> RuleSweep {
    let mut sweep = made_up_sweep(script, 100, &Leases::default(), None);
    sweep.rule.selection.index = Some(IndexChoice { name: "at_1".into(), oldest_first: true, bounded: true });
    sweep
}

/// Returns the replies to a query for dates, with the documents that hold them.
fn dates(dates: Vec<Bson>) -> ScriptedReply {
    Batch(dates.into_iter().map(|at| doc! { "at": at }).collect())
}

/// Takes batches until the pass has ended, and returns each in short.
async fn all(sweep: &RuleSweep, max: u64) -> Vec<String> {
    let mut slices = Ranges::of_dates(sweep, None).await.unwrap().unwrap();
    let mut taken = Vec::new();
    loop {
        taken.push(match slices.take(max).await.unwrap() {
            NextBatch::Batch { restriction, .. } => match *restriction {
                Restriction::Range { bounds, hint } if hint == Bson::from("at_1") => bounds
                    .get_document("at")
                    .unwrap()
                    .to_string()
                    .replace("{ \"$lte\": DateTime(\"2027-01-15T07:00:00.0Z\") }", "end"),
                Restriction::Ids { lists, .. } => format!("{} ids", lists[0].ids.len()),
                other => panic!("{other:?}"),
            },
            NextBatch::Exhausted => return taken,
            NextBatch::More | NextBatch::AfterOthers => panic!("{taken:?}"),
        });
    }
}

#[tokio::test]
async fn an_index_serves_ranges_unless_it_holds_lists_or_is_not_in_the_order_of_the_dates() {
    for (stage, is_multikey, expected) in [("IXSCAN", false, true), ("IXSCAN", true, false), ("SORT", false, false)] {
        let sweep = sweep(vec![plan(stage, is_multikey)]);
        assert_eq!(Ranges::of_dates(&sweep, None).await.unwrap().is_some(), expected, "{stage} {is_multikey}");
    }
    let mut strings = sweep(vec![]);
    strings.rule.expiry.format = DateFormat::Iso8601;
    assert!(Ranges::of_dates(&strings, None).await.unwrap().is_none());
}

#[tokio::test]
async fn ranges_end_with_a_date_and_the_last_with_the_threshold() {
    let numbers = |values: &[i32]| dates(values.iter().map(|value| Bson::from(*value)).collect());
    let end = "{ \"$lte\": 5 }";
    let rest = |found: &[String]| found.last().unwrap().starts_with("{ \"$gt\": ");
    // One key or none after the batch: it is the last.
    for last in [vec![], vec![7]] {
        let found = all(&sweep(vec![plan("IXSCAN", false), numbers(&[5, 6]), numbers(&last)]), 3).await;
        assert_eq!((found.len(), found[0].as_str(), rest(&found)), (2, end, true), "{found:?}");
    }
}

fn date(millis: i64) -> Bson {
    bson::DateTime::from_millis(millis).into()
}

/// Returns documents that hold a date and the next one.
fn found_end(millis: i64) -> ScriptedReply {
    dates(vec![date(millis), date(millis + 1)])
}

fn count(n: i32) -> ScriptedReply {
    Reply(doc! { "n": n })
}

/// Takes batches of 400 documents until the pass has ended. Returns the begin and the end of each with its documents, then the
/// commands in short, and the ends of the counts.
async fn batches(topology: Topology, replies: Vec<ScriptedReply>) -> (Vec<(Option<Bson>, Bson, u64)>, String, Vec<Bson>) {
    let script = Script::new(std::iter::once(plan("IXSCAN", false)).chain(replies).collect::<Vec<_>>());
    let mut sweep = sweep_by(&script);
    sweep.deployment.facts.topology = topology;
    let mut ranges = Ranges::of_dates(&sweep, None).await.unwrap().unwrap();
    let mut taken = Vec::new();
    while let NextBatch::Batch { restriction, documents } = ranges.take(400).await.unwrap() {
        let Restriction::Range { bounds, hint } = *restriction else { panic!("{restriction:?}") };
        let at = bounds.get_document("at").unwrap();
        assert_eq!(hint, "at_1".into());
        taken.push((at.get("$gt").cloned(), at.get("$lte").cloned().unwrap(), documents));
    }
    let sent = script.sent();
    let names: Vec<&str> = sent.iter().map(|command| command.keys().next().unwrap().as_str()).collect();
    let counts = sent.iter().filter(|command| command.contains_key("count"));
    let ends = counts.map(|command| {
        assert_eq!((command.get_i64("limit").unwrap(), command.get_str("hint").unwrap()), (800, "at_1"));
        command.get_document("query").unwrap().get_document("at").unwrap().get("$lte").cloned().unwrap()
    });
    (taken, names.join(" "), ends.collect())
}

#[tokio::test]
async fn behind_a_router_counts_confirm_guessed_ends() {
    // 400 documents in 4,000 ms: 315 are meant to be in the next 3151 ms, and there are 340. In the range after it are twice as
    // many as there may be.
    let replies = vec![found_end(10_000), found_end(14_000), count(340), count(800), count(400), count(0), dates(vec![])];
    let (taken, sent, ends) = batches(Topology::Sharded, replies).await;
    let last = sweep(vec![]).rule.expiry.latest_key();
    let expected = [(None, 10_000, 400), (Some(10_000), 14_000, 400), (Some(14_000), 17_151, 340), (Some(17_151), 18_328, 400)];
    let mut expected: Vec<_> = expected.map(|(begin, end, documents)| (begin.map(date), date(end), documents)).into();
    expected.push((Some(date(18_328)), last, 400));
    assert_eq!(taken, expected);
    assert_eq!(sent, "explain find find count count count count find");
    assert_eq!(ends, [17_151, 17_151 + 2886, 18_328, 18_328 + 927].map(date));
}

#[tokio::test]
async fn after_three_guesses_with_too_many_documents_the_end_is_read() {
    let [first, second, third] = [10_000, 14_000, 14_100].map(found_end);
    let replies = vec![first, second, count(401), count(800), count(401), third, count(0), dates(vec![])];
    let (taken, sent, ends) = batches(Topology::Sharded, replies).await;
    assert_eq!(taken[2], (Some(date(14_000)), date(14_100), 400));
    assert_eq!((sent.as_str(), ends.len()), ("explain find find count count count find count find", 4));
}

#[tokio::test]
async fn the_last_range_is_counted_too() {
    let last = sweep(vec![]).rule.expiry.latest_key();
    let millis = last.as_datetime().unwrap().timestamp_millis();
    for (n, expected) in [(400, Some(400)), (0, None)] {
        let replies = vec![found_end(millis - 7000), found_end(millis - 3000), count(n)];
        let (taken, sent, ends) = batches(Topology::Sharded, replies).await;
        assert_eq!((sent.as_str(), ends), ("explain find find count", vec![last.clone()]));
        assert_eq!(taken.get(2).cloned(), expected.map(|documents| (Some(date(millis - 3000)), last.clone(), documents)));
    }
    // There are more than a batch may have.
    let replies = vec![found_end(millis - 7000), found_end(millis - 3000), count(401), count(300), count(20)];
    let (taken, sent, _) = batches(Topology::Sharded, replies).await;
    let documents: Vec<u64> = taken.iter().map(|(.., documents)| *documents).collect();
    assert_eq!((documents, sent.as_str()), (vec![400, 400, 300, 20], "explain find find count count count"));
}

#[tokio::test]
async fn without_a_router_each_end_is_read() {
    let replies = vec![found_end(10_000), found_end(14_000), found_end(18_000), dates(vec![])];
    let (taken, sent, _) = batches(Topology::ReplicaSet, replies).await;
    assert_eq!(taken[2], (Some(date(14_000)), date(18_000), 400));
    assert_eq!(sent, "explain find find find find");
}

#[tokio::test]
async fn the_documents_of_a_date_that_fill_a_batch_are_found_one_by_one_after_older_ones() {
    let same = || dates(vec![5.into(), 5.into()]);
    for (before, expected) in [(vec![Bson::from(4)], 4), (vec![], 3)] {
        let replies = vec![
            plan("IXSCAN", false),
            same(),
            dates(before.clone()),
            Batch(vec![doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]),
            End,
            dates(vec![]),
        ];
        let found = all(&sweep(replies), 2).await;
        assert_eq!(found.len(), expected, "{found:?}");
        let found = if before.is_empty() {
            found
        } else {
            assert_eq!(found[0], "{ \"$lt\": 5 }");
            found[1..].to_vec()
        };
        assert_eq!(found[..2], ["2 ids", "1 ids"]);
        assert!(found[2].starts_with("{ \"$gt\": 5"), "{found:?}");
    }
}

#[tokio::test]
async fn once_the_index_holds_a_list_the_rest_is_found_one_by_one() {
    let list = || Bson::from(vec![Bson::from(5)]);
    for keys in [vec![5.into(), list()], vec![list(), 5.into()]] {
        let replies = vec![plan("IXSCAN", false), dates(keys), Batch(vec![doc! { "_id": 1 }]), End];
        assert_eq!(all(&sweep(replies), 2).await, ["1 ids"]);
    }
}

#[test]
fn keys_that_the_server_may_take_for_one_count_as_one() {
    let decimal = || Bson::Decimal128("7".parse().unwrap());
    for (a, b, expected) in [
        (Bson::Int32(5), Bson::Int64(5), true),
        (Bson::Int64(5), Bson::Double(5.0), true),
        (Bson::Double(5.0), Bson::Int32(5), true),
        (Bson::Int32(5), Bson::Int32(6), false),
        (Bson::Double(0.0), Bson::Double(-0.0), true),
        (decimal(), Bson::Int32(5), true),
        (Bson::Int32(5), decimal(), true),
        (Bson::DateTime(bson::DateTime::from_millis(5)), Bson::DateTime(bson::DateTime::from_millis(5)), true),
        (Bson::DateTime(bson::DateTime::from_millis(5)), Bson::DateTime(bson::DateTime::from_millis(6)), false),
        ("a".into(), "a".into(), true),
        ("a".into(), Bson::Int32(5), false),
    ] {
        assert_eq!(is_same_key(&a, &b), expected, "{a} {b}");
    }
}

fn id(n: u8) -> Bson {
    ObjectId::from_bytes([n; 12]).into()
}

fn found(id: Option<Bson>) -> ScriptedReply {
    Batch(id.into_iter().map(|id| doc! { "_id": id }).collect())
}

#[tokio::test]
async fn ranges_are_opened_only_where_all_ids_are_of_one_type_and_in_the_order_of_the_storage() {
    let number = |n: f64| Some(Bson::from(n));
    for (first, last, ids_follow, is_range) in [
        (Some(id(1)), Some(id(9)), None, true),
        (Some(id(1)), Some(id(9)), Some(true), true),
        (Some(1.into()), Some(Bson::Int64(9)), Some(true), true),
        (Some(1.into()), Some(9.into()), None, false),
        (number(f64::NAN), number(9.0), Some(true), false),
        (number(1.0), number(f64::INFINITY), Some(true), false),
        (Some("a".into()), Some("z".into()), Some(true), false),
        (Some(1.into()), Some(id(9)), Some(true), false),
        (None, None, None, false),
    ] {
        let script = Script::new([found(first.clone()), found(last.clone())]);
        let mut sweep = made_up_sweep(&script, 100, &Leases::default(), None);
        sweep.ids_follow = ids_follow;
        let opened = Ranges::of_ids(&sweep, None).await.unwrap();
        assert_eq!(opened.is_some(), is_range, "{first:?} {last:?} {ids_follow:?}");
        let sorted: Vec<_> = script.sent().iter().map(|find| find.get_document("sort").unwrap().clone()).collect();
        assert_eq!(sorted, [doc! { "_id": 1 }, doc! { "_id": -1 }]);
        assert!(script.sent().iter().all(|find| find.get_document("filter").unwrap().is_empty()));
    }
}

#[tokio::test]
async fn nothing_is_read_where_ranges_are_of_no_use_and_only_what_has_expired_among_buckets() {
    let open = |storage: Storage, topology: Topology, ids_follow: Option<bool>| async move {
        let script = Script::new([found(Some(id(1))), found(Some(id(9)))]);
        let mut sweep = made_up_sweep(&script, 100, &Leases::default(), None);
        sweep.rule.selection.storage = storage;
        sweep.deployment.facts.topology = topology;
        sweep.ids_follow = ids_follow;
        let is_open = Ranges::of_ids(&sweep, None).await.unwrap().is_some();
        let predicate = sweep.rule.selection.predicate.clone();
        (is_open, script.sent().iter().filter(|find| find.get_document("filter").unwrap() == &predicate).count())
    };
    let buckets = Storage::Buckets { measurements: "t".into() };
    for (storage, topology, ids_follow, expected) in [
        (Storage::Plain, Topology::ReplicaSet, None, (true, 0)),
        (buckets, Topology::ReplicaSet, None, (true, 2)),
        (Storage::Clustered, Topology::ReplicaSet, None, (false, 0)),
        (Storage::Plain, Topology::Sharded, None, (false, 0)),
        (Storage::Plain, Topology::ReplicaSet, Some(false), (false, 0)),
    ] {
        assert_eq!(open(storage.clone(), topology, ids_follow).await, expected, "{storage:?} {topology:?} {ids_follow:?}");
    }
}

#[tokio::test]
async fn ranges_follow_each_other_up_to_the_last_id_that_was_there() {
    let ends = Batch(vec![doc! { "_id": id(4) }, doc! { "_id": id(5) }]);
    let script = Script::new([found(Some(id(1))), found(Some(id(9))), ends, found(Some(id(9)))]);
    let sweep = made_up_sweep(&script, 100, &Leases::default(), None);
    let mut slices = Ranges::of_ids(&sweep, None).await.unwrap().unwrap();
    for expected in [doc! { "$gte": id(1), "$lte": id(4) }, doc! { "$gt": id(4), "$lte": id(9) }] {
        let NextBatch::Batch { restriction, documents: 50 } = slices.take(50).await.unwrap() else { panic!("a range") };
        let hint = Bson::Document(doc! { "_id": 1 });
        assert_eq!(*restriction, Restriction::Range { bounds: doc! { "_id": expected }, hint });
    }
    assert!(matches!(slices.take(50).await.unwrap(), NextBatch::Exhausted));
    let ends: Vec<_> = script.sent()[2..].iter().map(|find| find.get_i64("skip").unwrap()).collect();
    assert_eq!(ends, [49, 49]);
}
