use bson::Timestamp;

use super::*;
use crate::shell::lock::moment::Moment;
use crate::testing::made_up::planned;
use crate::testing::scripted::{Script, ScriptedReply};

const S: Duration = Duration::from_secs(1);

fn held_back() -> HeldBack {
    let rule = planned("    holds: {collection: legal.holds, key: t}\n", 4);
    rule.decision.countable().unwrap().selection.holds.clone().unwrap()
}

fn hello() -> Document {
    doc! { "isWritablePrimary": true, "localTime": DateTime::from_millis(5_000), "ok": 1.0 }
}

fn page(keys: &[&str]) -> ScriptedReply {
    ScriptedReply::Batch(keys.iter().map(|key| doc! { "t": *key }).collect())
}

fn list(keys: &[&str]) -> KeptKeys {
    KeptKeys::of(keys.iter().map(|key| RawValue::of(*key).unwrap()).collect()).unwrap()
}

/// Returns a deployment that answers from a script.
fn deployment(script: &Arc<Script>, topology: Topology) -> Deployment {
    let mut deployment = script.deployment();
    deployment.facts.topology = topology;
    deployment
}

#[tokio::test(start_paused = true)]
async fn holds_are_read_page_by_page_at_a_point_in_time_that_a_majority_confirmed() {
    let confirmed = Timestamp { time: 77, increment: 3 };
    let found = doc! { "cursor": { "firstBatch": [] }, "operationTime": confirmed, "ok": 1.0 };
    let script = Script::new([
        ScriptedReply::Reply(hello()),
        ScriptedReply::Reply(found),
        page(&["b", "a"]),
        page(&["c"]),
        ScriptedReply::End,
    ]);
    let read = read(&deployment(&script, Topology::ReplicaSet), &held_back()).await.unwrap();
    assert_eq!(*read.keys, list(&["a", "b", "c"]));
    assert_eq!(read.too_late(), DateTime::from_millis(5_000 + 18_000));
    let sent = script.sent();
    let [hello, confirming, reading] = &sent[..] else { panic!("{sent:?}") };
    assert!(hello.contains_key("hello"), "{hello}");
    assert_eq!(confirming.get_document("readConcern").unwrap(), &doc! { "level": "linearizable" });
    assert_eq!(reading.get_document("readConcern").unwrap(), &doc! { "level": "snapshot", "afterClusterTime": confirmed });
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_no_majority_confirms_has_no_holds() {
    let denied = crate::shell::server::wire::error::ServerError::reported(codes::UNAUTHORIZED, "not authorized", "");
    let script = Script::new([ScriptedReply::Reply(hello()), ScriptedReply::Error(denied), page(&["a"]), ScriptedReply::End]);
    let why = read(&deployment(&script, Topology::ReplicaSet), &held_back()).await.unwrap_err();
    assert!(why.contains("without them nothing may be deleted"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn holds_are_read_again_in_time_and_a_delete_that_finds_them_old_waits_for_the_next() {
    let script = Script::new([
        ScriptedReply::Reply(hello()),
        page(&["a"]),
        ScriptedReply::End,
        // The second read begins after 8 s, and ends after 18 s.
        ScriptedReply::Late(10 * S, hello()),
        page(&["b"]),
        ScriptedReply::End,
        ScriptedReply::Silence,
    ]);
    let begun = Instant::now();
    let view = HoldsWatches::new(&deployment(&script, Topology::Standalone), Vec::new()).of(&held_back());
    assert_eq!(*view.fresh().await.unwrap().keys, list(&["a"]));
    tokio::time::sleep(14 * S).await;
    assert_eq!(*view.fresh().await.unwrap().keys, list(&["a"]));
    tokio::time::sleep(S + S / 2).await;
    assert_eq!(*view.last().unwrap(), list(&["a"]));
    assert_eq!(*view.fresh().await.unwrap().keys, list(&["b"]));
    // By the clock of the test.
    assert_eq!(begun.elapsed().as_secs(), 18);
}

#[tokio::test(start_paused = true)]
async fn holds_that_are_asked_for_are_read_at_once_with_a_new_reading_of_the_clock() {
    let stepped = doc! { "isWritablePrimary": true, "localTime": DateTime::from_millis(605_000), "ok": 1.0 };
    let script = Script::new([
        ScriptedReply::Reply(hello()),
        page(&["a"]),
        ScriptedReply::End,
        ScriptedReply::Reply(stepped),
        page(&["b"]),
        ScriptedReply::End,
        ScriptedReply::Silence,
    ]);
    let begun = Instant::now();
    let view = HoldsWatches::new(&deployment(&script, Topology::Standalone), Vec::new()).of(&held_back());
    assert_eq!(view.fresh().await.unwrap().too_late(), DateTime::from_millis(23_000));
    view.read_again().await;
    let read = view.fresh().await.unwrap();
    assert_eq!((&*read.keys, read.too_late(), begun.elapsed()), (&list(&["b"]), DateTime::from_millis(623_000), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_with_holds_that_were_read_before_and_reads_them_again_in_time() {
    // After how long the watch begins, when it reads, and when a delete after 10 s has its keys, in seconds since the read
    // before.
    for (begins, reads, deletes) in [(0, 8, 10), (5, 8, 10), (12, 12, 12), (60, 60, 60)] {
        let script = Script::new([
            ScriptedReply::Reply(hello()),
            page(&["a"]),
            ScriptedReply::End,
            ScriptedReply::Reply(hello()),
            page(&["b"]),
            ScriptedReply::End,
            ScriptedReply::Silence,
        ]);
        let deployment = deployment(&script, Topology::Standalone);
        let begun = Instant::now();
        let first = read(&deployment, &held_back()).await.unwrap();
        tokio::time::sleep(begins * S).await;
        let view = HoldsWatches::new(&deployment, vec![(held_back(), first)]).of(&held_back());
        if begins < 8 {
            assert_eq!(*view.fresh().await.unwrap().keys, list(&["a"]));
            assert_eq!(script.sent().len(), 2);
        }
        tokio::time::sleep_until(begun + reads * S + S / 10).await;
        assert_eq!(script.sent().len(), 4, "{begins}");
        tokio::time::sleep_until(begun + 10 * S).await;
        assert_eq!(*view.fresh().await.unwrap().keys, list(&["b"]));
        assert_eq!(begun.elapsed().as_secs(), deletes);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_read_again_share_their_memory_and_others_replace_them() {
    let read_of = |keys: &[&str]| {
        let time = ServerTime { now: DateTime::from_millis(0), asked: Moment::now() };
        Ok(ReadHolds { keys: Arc::new(list(keys)), time })
    };
    let first = read_of(&["a", "b"]);
    let before = first.as_ref().map(|read| read.keys.clone()).unwrap();
    let mut state = HoldsState::Reading;
    state.enter(first);
    let is_shared = |state: &HoldsState| matches!(state, HoldsState::Read(read) if Arc::ptr_eq(&read.keys, &before));
    for _ in 0..2 {
        state.enter(read_of(&["b", "a"]));
        assert!(is_shared(&state), "{state:?}");
    }
    state.enter(read_of(&["b", "c"]));
    assert!(matches!(&state, HoldsState::Read(read) if *read.keys == list(&["b", "c"])), "{state:?}");
    state.enter(Err("gone".to_owned()));
    assert!(matches!(&state, HoldsState::Failed(why) if why == "gone"), "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn as_many_keys_are_held_as_a_delete_can_carry_and_not_one_byte_more() {
    // A key of one letter takes its length, the letter and its end.
    let each = 4 + 2 + AROUND_KEY;
    for (most, is_refused) in [(2 * each, false), (2 * each - 1, true)] {
        let script = Script::new([ScriptedReply::Reply(hello()), page(&["a", "b"]), ScriptedReply::End]);
        let mut deployment = deployment(&script, Topology::Standalone);
        deployment.facts.capabilities.held_bytes = most;
        let read = read(&deployment, &held_back()).await;
        assert_eq!(read.is_err(), is_refused, "{most}");
        assert!(read.err().is_none_or(|why| why.contains("more holds than a delete command can carry: 2 keys")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_serves_holds_that_are_read_at_one_point_in_time_and_the_storage_those_that_are_not() {
    for (topology, has_hint) in [(Topology::Standalone, true), (Topology::ReplicaSet, false)] {
        let confirming = (topology == Topology::ReplicaSet).then(|| ScriptedReply::Reply(doc! { "ok": 1.0 }));
        let replies = [ScriptedReply::Reply(hello())].into_iter().chain(confirming);
        let script = Script::new(replies.chain([page(&["a"]), ScriptedReply::End]));
        read(&deployment(&script, topology), &held_back()).await.unwrap();
        let reading = script.sent().pop().unwrap();
        assert_eq!(reading.get_document("hint").ok(), has_hint.then(|| doc! { "$natural": 1 }).as_ref(), "{reading}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_collection_without_holds_has_to_exist() {
    for (listed, expected) in [(vec![doc! { "name": "holds" }], None), (vec![], Some("does not exist"))] {
        let script =
            Script::new([ScriptedReply::Reply(hello()), ScriptedReply::End, ScriptedReply::Batch(listed), ScriptedReply::End]);
        let read = read(&deployment(&script, Topology::Standalone), &held_back()).await;
        assert_eq!(read.as_ref().err().is_some(), expected.is_some());
        assert!(read.err().zip(expected).is_none_or(|(why, expected)| why.contains(expected)));
        assert_eq!(script.sent().pop().unwrap().get_document("filter").unwrap(), &doc! { "name": "holds" });
    }
    for (is_shown, asks) in [(true, Some(true)), (false, None)] {
        let script = Script::new([ScriptedReply::End]);
        let mut deployment = deployment(&script, Topology::Standalone);
        deployment.facts.capabilities.shows_privileges = is_shown;
        assert!(!exists(&deployment, &held_back().collection).await.unwrap());
        assert_eq!(script.sent()[0].get_bool("authorizedCollections").ok(), asks);
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_or_a_type_that_no_hold_has_is_told_unless_there_are_no_holds() {
    let collection = held_back().collection;
    let found = || ScriptedReply::Batch(vec![doc! { "_id": 1 }]);
    let nothing = || ScriptedReply::Batch(vec![]);
    let slow = || {
        ScriptedReply::Error(crate::shell::server::wire::error::ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "too long", ""))
    };
    let other = || {
        ScriptedReply::Error(crate::shell::server::wire::error::ServerError::reported(codes::UNAUTHORIZED, "not authorized", ""))
    };
    let paths = ["a".to_owned(), "b".to_owned()];
    let path = |replies: Vec<ScriptedReply>| {
        let (collection, paths) = (&collection, &paths);
        async move {
            let script = Script::new(replies);
            unknown_path(&deployment(&script, Topology::Standalone), collection, paths).await
        }
    };
    assert_eq!(path(vec![nothing()]).await.unwrap(), None);
    assert_eq!(path(vec![found(), found(), found()]).await.unwrap(), None);
    assert_eq!(path(vec![found(), nothing()]).await.unwrap().as_deref(), Some("a"));
    assert_eq!(path(vec![found(), found(), nothing()]).await.unwrap().as_deref(), Some("b"));
    // A search that takes too long has found nothing.
    assert_eq!(path(vec![found(), found(), slow()]).await.unwrap().as_deref(), Some("b"));
    assert!(path(vec![found(), other()]).await.is_err());

    let comparisons = crate::core::policy::comparisons::of_filter(&doc! { "s": { "$ne": "x" }, "n": { "$ne": 4 } }, &[]);
    let unknown = |replies: Vec<ScriptedReply>| {
        let (collection, comparisons) = (&collection, &comparisons);
        async move {
            let script = Script::new(replies);
            let deployment = deployment(&script, Topology::Standalone);
            unknown_type(&deployment, collection, comparisons).await.unwrap().map(|comparison| comparison.path.clone())
        }
    };
    assert_eq!(unknown(vec![found(), found()]).await, None);
    assert_eq!(unknown(vec![nothing(), nothing(), found()]).await, None);
    assert_eq!(unknown(vec![nothing(), found()]).await.as_deref(), Some("s"));
    assert_eq!(unknown(vec![found(), nothing(), found()]).await.as_deref(), Some("n"));
}

#[tokio::test(start_paused = true)]
async fn a_rule_whose_holds_are_read_too_slowly_three_times_in_a_row_ends() {
    let read = |late: Duration| [ScriptedReply::Late(late, hello()), page(&["a"]), ScriptedReply::End];
    for (times, ends) in [([15, 16, 16, 15, 16], false), ([1, 16, 16, 16, 1], true)] {
        let replies = times.into_iter().flat_map(|late| read(u32::try_from(late).unwrap() * S + S / 100 * u32::from(late > 15)));
        let script = Script::new(replies.chain([ScriptedReply::Silence]));
        let view = HoldsWatches::new(&deployment(&script, Topology::Standalone), Vec::new()).of(&held_back());
        tokio::time::sleep(120 * S).await;
        let states = view.0.as_ref().unwrap().states.clone();
        let state = states.borrow();
        let failed = matches!(&*state, HoldsState::Failed(why) if why.contains("takes longer than"));
        assert_eq!(failed, ends, "{times:?} {state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_with_the_same_holds_share_a_watch_which_ends_with_the_last_of_them() {
    let replies = (0..9).flat_map(|_| [ScriptedReply::Reply(hello()), page(&["a"]), ScriptedReply::End]);
    let script = Script::new(replies);
    let watches = HoldsWatches::new(&deployment(&script, Topology::Standalone), Vec::new());
    let (first, second) = (watches.of(&held_back()), watches.of(&held_back()));
    assert!(Arc::ptr_eq(first.0.as_ref().unwrap(), second.0.as_ref().unwrap()));
    first.fresh().await.unwrap();
    drop(first);
    tokio::time::sleep(9 * S).await;
    assert_eq!((script.sent().len(), watches.open.lock().len()), (4, 1));
    drop(second);
    tokio::time::sleep(60 * S).await;
    assert_eq!(script.sent().len(), 4, "nothing is read for nobody");
    // One that has ended is forgotten.
    let third = watches.of(&held_back());
    assert_eq!(watches.open.lock().len(), 1);
    third.fresh().await.unwrap();
}
