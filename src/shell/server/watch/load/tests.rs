use super::*;
use crate::shell::server::wire::codes;
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{Error, Reply, Silence};

/// Returns the parts of a reply of mongod 6.0.5 that are read.
fn status(more: Document) -> Document {
    let tickets = |out: i32| doc! { "out": out, "available": 128 - out, "totalTickets": 128 };
    let cache = doc! {
        "maximum bytes configured": 268_435_456_i64,
        "bytes currently in the cache": 183_419,
        "tracked dirty bytes in the cache": 156_864,
        "bytes allocated for updates": 167_614,
        "bytes written from cache": 161_591,
        "pages evicted by application threads": 7,
    };
    let transaction =
        doc! { "transaction checkpoint currently running": 1, "transaction checkpoint most recent time (msecs)": 2500 };
    let tickets = doc! { "write": tickets(32), "read": tickets(64) };
    let mut status = doc! {
        "wiredTiger": { "cache": cache, "transaction": transaction, "concurrentTransactions": tickets },
        "globalLock": { "currentQueue": { "total": 3, "readers": 2, "writers": 1 } },
        "flowControl": { "enabled": true, "isLagged": true, "timeAcquiringMicros": 2700 },
        "opLatencies": { "reads": { "latency": 1_i64, "ops": 50_i64 }, "writes": { "latency": 1_i64, "ops": 30_i64 } },
        "opcounters": { "getmore": 20 },
    };
    status.extend(more);
    status
}

fn known() -> Load {
    Load {
        cache_size: Some(268_435_456),
        cached: Some(183_419),
        dirty: Some(156_864),
        updates: Some(167_614),
        written: Some(161_591),
        evicted_by_clients: Some(7),
        tickets_used: Some(0.5),
        queued: Some(3),
        is_flow_controlled: Some(true),
        flow_waited: Some(Duration::from_micros(2700)),
        operations: Some(60),
        is_checkpoint_running: Some(true),
        last_checkpoint: Some(Duration::from_millis(2500)),
    }
}

#[test]
fn the_figures_are_found_where_each_version_has_them() {
    assert_eq!(read(&status(doc! {})), known());
    assert_eq!(read(&doc! { "ok": 1 }), Load::default());
    let off = read(&status(doc! { "flowControl": { "enabled": false, "isLagged": true } }));
    assert_eq!((off.is_flow_controlled, off.flow_waited), (Some(false), None));

    // From 7.0 on the number of tickets adapts, and all of them may be in use.
    let mut newer = status(doc! {});
    let engine = newer.get_document_mut("wiredTiger").unwrap();
    let tickets = |queue: i64| doc! { "out": 13, "available": 0, "totalTickets": 13, "queueLength": queue };
    engine.insert("concurrentTransactions", doc! { "write": tickets(0), "read": tickets(9) });
    assert_eq!(read(&newer), Load { tickets_used: None, queued: Some(9), ..known() });

    let engine = newer.get_document_mut("wiredTiger").unwrap();
    engine.remove("concurrentTransactions");
    engine.remove("transaction");
    engine.insert("checkpoint", doc! { "progress state": 0, "most recent time (msecs)": 70 });
    let cache = engine.get_document_mut("cache").unwrap();
    cache.remove("pages evicted by application threads");
    cache.insert("page evict attempts by application threads", 8_i64);
    let tickets = |queue: i64| doc! { "out": 13, "totalTickets": 13, "normalPriority": { "queueLength": queue } };
    newer.insert("queues", doc! { "execution": { "write": tickets(11), "read": tickets(2) } });
    let expected = Load {
        evicted_by_clients: Some(8),
        tickets_used: None,
        queued: Some(11),
        is_checkpoint_running: Some(false),
        last_checkpoint: Some(Duration::from_millis(70)),
        ..known()
    };
    assert_eq!(read(&newer), expected);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_nothing_is_asked_once() {
    let refused = |code, why: &str| Error(ServerError::reported(code, why, ""));
    for (answer, why) in [
        (refused(codes::UNAUTHORIZED, "not authorized on admin"), "all, as `serverStatus` needs the role `clusterMonitor`"),
        (refused(codes::COMMAND_NOT_FOUND, "no such command"), "all, as the server has no `serverStatus`"),
        (Reply(doc! { "version": "5.0.0", "ok": 1 }), "all, as `serverStatus` does not tell them"),
    ] {
        let script = Script::new([answer]);
        let source = LoadSource::open(&script.deployment()).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((script.sent().len(), source.unknown().as_deref()), (1, Some(why)));
    }
    let script = Script::new([]);
    let mut deployment = script.deployment();
    deployment.facts.topology = Topology::Sharded;
    assert!(LoadSource::open(&deployment).await.unknown().unwrap().starts_with("all, as mongos"));
    deployment.facts.capabilities.server_load = false;
    assert_eq!(LoadSource::open(&deployment).await.unknown(), None);
    assert_eq!(script.sent().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_leaves_nothing_known_until_the_next_one() {
    let script = Script::new([
        Error(ServerError::reported(codes::INTERNAL_ERROR, "trouble", "")),
        Reply(status(doc! {})),
        Silence,
        Reply(status(doc! {})),
        Reply(status(doc! {})),
    ]);
    let source = LoadSource::open(&script.deployment()).await;
    let LoadSource::Watched(watch) = &source else { panic!("it is watched") };
    let mut seen = watch.view().seen;
    assert_eq!((seen.borrow().looks, source.unknown().unwrap().starts_with("all, as 1 of 1 looks failed")), (None, true));
    let mut begun = Instant::now();
    for (looks, millis) in [
        (Some(Looks { last: known(), before: None, is_unshared: true }), 1000),
        (None, 2050),
        (Some(Looks { last: known(), before: None, is_unshared: true }), 1000),
        (Some(Looks { last: known(), before: Some((known(), FIRST_INTERVAL * 2)), is_unshared: true }), 100),
    ] {
        seen.changed().await.unwrap();
        assert_eq!((seen.borrow_and_update().looks, begun.elapsed().as_millis()), (looks, millis));
        begun = Instant::now();
    }
    assert_eq!(source.unknown().as_deref(), Some("for a while, as 2 of 5 looks failed: the server did not answer"));
    drop(source);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(script.sent().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_is_asked_for_comes_at_once_but_not_too_often() {
    let busy = || Reply(status(doc! {}));
    let script =
        Script::new([busy(), busy(), busy(), busy(), Error(ServerError::reported(codes::INTERNAL_ERROR, "trouble", ""))]);
    let source = LoadSource::open(&script.deployment()).await;
    let LoadSource::Watched(watch) = &source else { panic!("it is watched") };
    let mut view = watch.view();
    for (asked_after, millis) in [(Some(5), 10), (Some(30), 30), (None, 150), (Some(40), 40)] {
        let begun = Instant::now();
        if let Some(millis) = asked_after {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            view.ask();
        }
        view.seen.changed().await.unwrap();
        assert_eq!(begun.elapsed().as_millis(), millis);
    }
    // A server in trouble is left in peace.
    let begun = Instant::now();
    view.ask();
    view.seen.changed().await.unwrap();
    assert_eq!(begun.elapsed(), AFTER_FAILURE);
}

#[test]
fn others_are_those_whose_operations_are_not_the_own_ones() {
    let mut seen = LoadFindings::default();
    let mut look = |operations: u64, own| {
        let load = Load { operations: Some(operations), ..known() };
        seen.note(Ok(load), Some(INTERVAL), own);
        seen.looks.unwrap().is_unshared
    };
    // 1000 operations before the run; the replies to some of its own are on their way.
    let own = [(1000, 0), (1104, 100), (1202, 200), (1304, 300), (1404, 400)].map(|(operations, own)| look(operations, own));
    assert_eq!(own, [true; 5]);
    // Others come, and go again.
    let others = [(1407, 400), (1412, 400)].map(|(operations, own)| look(operations, own));
    assert_eq!(others, [true, true]);
    assert!(!look(1520, 500));
    assert_eq!([1520, 1520, 1520, 1520].map(|operations| look(operations, 500)), [false, false, true, true]);
    let unknown = Load { operations: None, ..known() };
    seen.note(Ok(unknown), Some(INTERVAL), 500);
    assert!(!seen.looks.unwrap().is_unshared);
}
