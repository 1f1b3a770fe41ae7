use bson::Timestamp;

use super::*;
use crate::report::made_up::planned;
use crate::server::scripted::{Script, ScriptedReply};

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

fn list(keys: &[&str]) -> KeyList {
    KeyList::of(keys.iter().map(|key| RawValue::of(*key).unwrap()).collect()).unwrap()
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
    let denied = crate::server::error::ServerError::reported(codes::UNAUTHORIZED, "not authorized", "");
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
    // After how long the watch begins, when it reads, and when a delete after 10 s has its keys, in seconds since the read before.
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
