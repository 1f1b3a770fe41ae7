//! Sweeps of a sharded collection while its chunks move and its shards fail: every expired document goes, the oldest first, and
//! what is said of the rest was counted.

use crate::support::audit::read;
use crate::support::cluster::Cluster;
use crate::support::faults::{days, end, start, until_deleted_from};
use crate::support::proxy::errors;
use crate::support::proxy::fault::Fault;
use crate::support::proxy::router::{Move, Sharded};
use crate::support::sweeper::{Report, id_set};
use mongodb::bson::{Bson, DateTime, RawDocumentBuf, doc};

/// Returns a cluster with a collection `c` in four chunks by `t`, of which the shards have two each. Every third of its 400
/// documents is live, and the older half of the expired ones is on the second shard.
async fn quarters(has_index: bool) -> Cluster {
    let cluster = Cluster::new().await;
    let bounds = [Some(vec![100.into()]), Some(vec![200.into()]), Some(vec![300.into()]), None];
    let chunks = bounds.into_iter().zip([0, 1, 0, 1]).collect();
    cluster.shard("c", Sharded { key: doc! { "t": 1 }, collation: None, chunks }).await;
    let documents = (0..400).map(|n| {
        doc! { "_id": n, "t": n, "at": days(if n % 3 == 0 { 3 } else { age(n) }) }
    });
    let documents: Vec<_> = documents.map(|document| RawDocumentBuf::try_from(&document).unwrap()).collect();
    cluster.fill("c", &documents).await;
    if has_index {
        cluster.case.index_on_date("c").await;
    }
    cluster
}

/// Returns the days since the date of an expired document, as a negative number.
fn age(n: i32) -> i64 {
    i64::from(n) - if n / 100 % 2 == 1 { 1000 } else { 500 }
}

/// Returns the `_id`s on all shards, in ascending order.
async fn left(cluster: &Cluster) -> Vec<i32> {
    let mut ids: Vec<i32> = cluster
        .documents("c")
        .await
        .iter()
        .map(|(_, bytes)| RawDocumentBuf::from_bytes(bytes.clone()).unwrap().get_i32("_id").unwrap())
        .collect();
    ids.sort_unstable();
    ids
}

fn live() -> Vec<i32> {
    (0..400).filter(|n| n % 3 == 0).collect()
}

fn rule(keys: &str) -> String {
    format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}}}\n")
}

async fn swept(cluster: &Cluster, keys: &str) -> Report {
    cluster.case.report(&rule(keys), &[]).await
}

#[tokio::test]
async fn documents_that_move_to_a_shard_that_has_carried_out_the_delete_go_as_well() {
    for (has_index, keys) in [(true, ""), (true, ", maxDeletes: 100000"), (false, ""), (false, ", batchSize: 50")] {
        let cluster = quarters(has_index).await;
        let namespace = format!("{}.c", cluster.case.db.name());
        for moved in [Move { chunk: 0, to: 1 }, Move { chunk: 3, to: 0 }] {
            cluster.router.move_in_next_delete(&namespace, moved);
        }
        let report = swept(&cluster, keys).await;
        assert_eq!(left(&cluster).await, live(), "{has_index} {keys}: {report:?}");
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &266.into()), "{report:?}");
        assert_eq!(report.rule(0, "remainingCount"), &serde_json::json!(0), "{report:?}");
    }
}

#[tokio::test]
async fn orphans_stay_and_do_not_keep_a_run_from_its_end() {
    for (has_index, keys) in [(true, ""), (true, ", maxDeletes: 100000"), (false, ""), (false, ", batchSize: 50")] {
        let cluster = quarters(has_index).await;
        cluster.router.expect_orphans();
        // Of the first chunk, which the other shard owns.
        let orphans = (1000..1020).map(|n| doc! { "_id": n, "t": n - 1000, "at": days(-700) });
        cluster.on_shard(1).collection("c").insert_many(orphans).await.unwrap();
        let report = swept(&cluster, keys).await;
        assert_eq!(left(&cluster).await, [live(), (1000..1020).collect()].concat(), "{has_index} {keys}");
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &266.into()), "{report:?}");
        assert_eq!((report.rule(0, "status"), report.rule(0, "remainingCount")), (&"complete".into(), &0.into()), "{report:?}");
    }
}

#[tokio::test]
async fn the_clock_of_the_router_decides_while_it_is_near_that_of_the_machine() {
    const MINUTE: i64 = 60_000;
    for (ahead, code) in [(0, 0), (2 * MINUTE, 0), (-2 * MINUTE, 0), (6 * MINUTE, 5), (-6 * MINUTE, 5)] {
        let cluster = quarters(true).await;
        cluster.router.set_ahead(ahead);
        let report = swept(&cluster, "").await;
        assert_eq!(report.ran.code, Some(code), "{ahead}: {report:?}");
        let as_of = DateTime::parse_rfc3339_str(report.json["asOf"].as_str().unwrap()).unwrap();
        let from_now = as_of.timestamp_millis() - DateTime::now().timestamp_millis() - ahead;
        assert!((-MINUTE..=0).contains(&from_now), "{ahead}: {from_now}");
        if code == 5 {
            assert_eq!((report.rule(0, "reason"), left(&cluster).await.len()), (&"clock".into(), 400), "{ahead}: {report:?}");
        } else {
            assert_eq!(left(&cluster).await, live(), "{ahead}: {report:?}");
        }
    }
}

#[tokio::test]
async fn a_batch_along_an_index_takes_at_most_two_round_trips_to_each_shard() {
    let cluster = quarters(true).await;
    cluster.router.take_trips("c");
    let report = swept(&cluster, ", batchSize: 10").await;
    assert_eq!((report.ran.code, left(&cluster).await), (Some(0), live()), "{report:?}");
    let batches = cluster.proxy.requests_of("delete").len();
    assert!(batches >= 26, "{batches}");
    let trips = cluster.router.take_trips("c");
    for shard in [0, 1] {
        let of_shard: Vec<&str> = trips.iter().filter(|trip| trip.shard == shard).map(|trip| trip.kind.as_str()).collect();
        // The looks before the first batch and after the last one come on top.
        assert!(of_shard.len() <= 2 * batches + 12, "{} for {batches} batches: {of_shard:?}", of_shard.len());
    }
}

#[tokio::test]
async fn the_ends_of_large_batches_are_guessed_where_the_dates_are_dense_gone_and_the_same() {
    let cluster = Cluster::new().await;
    let chunks = vec![(Some(vec![2000.into()]), 0), (None, 1)];
    cluster.shard("c", Sharded { key: doc! { "t": 1 }, collation: None, chunks }).await;
    // In turn: one a second, ten a second, none for a month, 900 of one moment, one a second again, and none that has expired.
    let now = DateTime::now().timestamp_millis();
    let at = |n: i32| match i64::from(n) {
        n @ 0..2000 => n * 1000,
        n @ 2000..4000 => 2_000_000 + (n - 2000) * 100,
        4000..4900 => 2_500_000_000,
        n @ 4900..6400 => 2_500_000_000 + (n - 4900) * 1000,
        _ => now,
    };
    let documents = (0..6500).map(|n| doc! { "_id": n, "t": n * 7 % 4000, "at": DateTime::from_millis(at(n)) });
    let documents: Vec<_> = documents.map(|document| RawDocumentBuf::try_from(&document).unwrap()).collect();
    cluster.fill("c", &documents).await;
    cluster.case.index_on_date("c").await;
    let report = swept(&cluster, ", batchSize: 400").await;
    assert_eq!((report.ran.code, left(&cluster).await), (Some(0), (6400..6500).collect()), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), 6400);
    let [counts, finds] = ["count", "find"].map(|name| cluster.proxy.requests_of(name).len());
    assert!(counts >= 8 && counts > finds, "{counts} {finds}");
}

#[tokio::test]
async fn a_limit_takes_the_oldest_of_all_shards() {
    let of_rule = (", maxDeletes: 50, batchSize: 7", &[][..]);
    let of_run = (", batchSize: 7", &["--max-deletes", "50"][..]);
    for (has_lists, (keys, args)) in [(false, of_rule), (true, of_rule), (true, of_run)] {
        let cluster = quarters(true).await;
        if has_lists {
            let in_lists = vec![doc! { "$set": { "at": ["$at"] } }];
            cluster.case.collection("c").update_many(doc! {}, in_lists).await.unwrap();
        }
        let report = cluster.case.report(&rule(keys), args).await;
        let mut expired: Vec<(i64, i32)> = (0..400).filter(|n| n % 3 != 0).map(|n| (age(n), n)).collect();
        expired.sort_unstable();
        let gone: Vec<i32> = expired.iter().take(50).map(|(_, n)| *n).collect();
        let expected: Vec<i32> = (0..400).filter(|n| !gone.contains(n)).collect();
        assert_eq!(left(&cluster).await, expected, "{report:?}");
        assert_eq!((report.ran.code, report.rule(0, "order")), (Some(4), &"oldestFirst".into()), "{report:?}");
    }
}

#[tokio::test]
async fn an_index_that_one_shard_lacks_fails_the_rule_which_says_so_and_counts_what_went() {
    let midway = ", batchSize: 7, rate: 40";
    for keys in ["", ", maxDeletes: 300", ", batchSize: 7", midway] {
        let cluster = quarters(true).await;
        let drops = async || cluster.on_shard(1).run_command(doc! { "dropIndexes": "c", "index": "at_1" }).await.unwrap();
        let report = if keys == midway {
            let child = start(cluster.case.command(&rule(keys), &["sweep", "--format", "json"]));
            until_deleted_from(&cluster.case, "c", 400).await;
            drops().await;
            read(end(child).await)
        } else {
            drops().await;
            swept(&cluster, keys).await
        };
        let error = report.rule(0, "error").as_str().unwrap_or_default();
        assert!(error.contains("is missing on one of the shards"), "{keys}: {report:?}");
        let left = left(&cluster).await;
        assert_eq!(
            (report.ran.code, report.rule(0, "deletedCount")),
            (Some(3), &(400 - left.len()).into()),
            "{keys}: {report:?}"
        );
        assert!(live().iter().all(|id| left.contains(id)), "{keys}: {left:?}");
        assert_eq!((keys == midway, left.len() > live().len()), (left.len() < 400, true), "{keys}: {left:?}");
    }
}

#[tokio::test]
async fn the_oldest_document_is_looked_for_on_every_shard() {
    let cluster = quarters(true).await;
    let all = cluster.documents("c").await;
    let dates = all.iter().map(|(_, bytes)| RawDocumentBuf::from_bytes(bytes.clone()).unwrap().get_datetime("at").unwrap());
    let oldest = dates.min().unwrap();
    for args in [&["sweep", "--dry-run"][..], &["audit"]] {
        let ran = cluster.case.run(&rule(""), &[args, &["--format", "json"]].concat()).await;
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let found = report["rules"][0]["oldestExpired"].as_str().unwrap_or_default();
        assert_eq!(DateTime::parse_rfc3339_str(found).ok(), Some(oldest), "{args:?}: {ran:?}");
        let first = &report["rules"][0]["samples"][0]["date"];
        assert!(args == ["sweep", "--dry-run"] || first == found, "{args:?}: {ran:?}");
    }
}

#[tokio::test]
async fn trouble_of_a_router_that_passes_is_waited_out() {
    let refused = |code: i32, name: &str| errors::failed(code, name, "trouble that passes");
    let several = |codes: [i32; 2]| {
        let causes: Vec<Bson> =
            codes.iter().map(|code| doc! { "index": 0, "code": *code, "errmsg": "of a shard" }.into()).collect();
        let error = doc! { "index": 0, "code": 65, "errmsg": "multiple errors", "errInfo": { "causedBy": causes } };
        doc! { "n": 0, "writeErrors": [error], "ok": 1.0 }
    };
    let looks = ["find c", "delete c", "collStats c", "listIndexes c", "explain find", "aggregate c"];
    for (code, kinds) in [(133, &looks[..]), (112, &looks), (82, &looks[1..2]), (319, &looks[1..2]), (13_388, &looks[..1])] {
        for kind in kinds {
            let cluster = quarters(true).await;
            cluster.proxy.faults().once(kind, 0, Fault::Answer { reply: refused(code, "Passing"), done: false });
            let report = swept(&cluster, ", batchSize: 50").await;
            assert_eq!((report.ran.code, left(&cluster).await), (Some(0), live()), "{code} {kind}: {report:?}");
            assert_eq!(cluster.proxy.faults().outstanding(), [""; 0], "{code}");
        }
    }
    for (codes, expected) in [([133, 6], 0), ([133, 20], 3)] {
        let cluster = quarters(true).await;
        cluster.proxy.faults().once("delete c", 0, Fault::Answer { reply: several(codes), done: false });
        let report = swept(&cluster, ", batchSize: 50").await;
        assert_eq!(report.ran.code, Some(expected), "{codes:?}: {report:?}");
        let left = left(&cluster).await;
        assert!(live().iter().all(|id| left.contains(id)));
    }
}

#[tokio::test]
async fn what_a_user_may_not_read_of_a_cluster_and_what_has_no_effect_there_is_said() {
    let cluster = quarters(true).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, order: storage}\n";
    let warnings = async || {
        let report = cluster.case.report(rule, &["--dry-run"]).await;
        serde_json::from_value::<Vec<String>>(report.rule(0, "warnings").clone()).unwrap()
    };
    let before = warnings().await;
    let order = "`order: storage` has no effect here: each shard has a storage of its own, and the oldest go first";
    assert_eq!(before, [order]);
    cluster.router.hide_config();
    let after = warnings().await;
    assert_eq!(after.len(), 2, "{after:?}");
    let said = after.iter().find(|warning| *warning != order).unwrap();
    assert!(said.starts_with("its shard key is not known, so that each batch goes to all shards: "), "{said}");
    assert!(said.contains("`config.collections`") && said.contains("find"), "{said}");
    let report = swept(&cluster, "").await;
    assert_eq!((report.ran.code, left(&cluster).await), (Some(0), live()), "{report:?}");
}

#[tokio::test]
async fn a_document_that_is_named_under_a_collation_is_found_by_its_shard_key() {
    let cluster = Cluster::new().await;
    cluster.shard("c", Sharded::halves(doc! { "t": 1 }, [50.into()])).await;
    // An `_id` with text in it equals others under the collation, so that its document goes by a delete of its own.
    let documents = (0..100).map(|n| {
        let expired = n % 3 != 0;
        doc! { "_id": { "name": format!("{n}") }, "t": n, "s": "Done", "at": days(if expired { -3 } else { 3 }) }
    });
    let documents: Vec<_> = documents.map(|document| RawDocumentBuf::try_from(&document).unwrap()).collect();
    cluster.fill("c", &documents).await;
    let report = swept(&cluster, ", filter: {s: done}, collation: {locale: en, strength: 2}, maxDeletes: 1000").await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &66.into()), "{report:?}");
    let left = cluster.documents("c").await;
    let mut left: Vec<i32> =
        left.iter().map(|(_, bytes)| RawDocumentBuf::from_bytes(bytes.clone()).unwrap().get_i32("t").unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, (0..100).filter(|n| n % 3 == 0).collect::<Vec<_>>());
}

/// Source: SERVER-78763.
#[tokio::test]
async fn a_collection_that_was_moved_to_another_shard_is_not_taken_for_sharded() {
    let cluster = Cluster::new().await;
    let Cluster { case, proxy, .. } = &cluster;
    case.fill("moved", (0..20).map(|n| doc! { "_id": n, "at": days(if n < 10 { -3 } else { 3 }) })).await;
    let namespace = format!("{}.moved", case.db.name());
    let entry = doc! { "_id": namespace, "key": { "_id": 1 }, "unsplittable": true };
    case.client.database("config").collection("collections").insert_one(entry).await.unwrap();
    let rule = "  - {namespace: DB.moved, field: at, expireAfter: 1d, maxDeletePercent: 90}\n";
    let report = case.report(rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &10.into()), "{report:?}");
    assert_eq!(case.ids("moved").await, id_set(10..20));
    // The index on the `_id` holds all that a count needs where no document may be of another shard.
    assert!(proxy.requests_of("aggregate").iter().any(|request| request.body.get_str("hint").is_ok_and(|hint| hint == "_id_")));
}
