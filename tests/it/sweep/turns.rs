//! Several rules in one run: they take turns, within the run's limits for commands in flight and documents per second.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::faults::{alone, dated, days, end, fill_many, heal, removed, running, slow_down, start};
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, id_set, run, sweeper};
use mongodb::bson::{Bson, DateTime, Document, doc};

#[tokio::test]
async fn a_backlog_in_one_collection_does_not_keep_the_others_waiting() {
    let (_mongod, case) = alone().await;
    fill_many(&case, "backlog", 20_000, days(-3)).await;
    for name in ["a", "b", "c"] {
        case.fill(name, dated(0..20, days(-3)).chain(dated(20..25, days(3)))).await;
    }
    slow_down(&case.client, "delete", 200).await;
    let rules = "  - {namespace: DB.backlog, field: at, expireAfter: 1d, batchSize: 100}
  - {namespace: DB.a, field: at, expireAfter: 1d}
  - {namespace: DB.b, field: at, expireAfter: 1d}
  - {namespace: DB.c, field: at, expireAfter: 1d}
run: {maxDuration: 8s}\n";
    let swept = case.report(rules, &[]).await;
    assert_eq!(swept.ran.code, Some(4), "{swept:?}");
    assert_eq!((swept.rule(0, "status"), swept.rule(0, "reason")), (&"partial".into(), &"maxDuration".into()));
    assert_eq!(swept.rule(0, "deletedCount"), 20_000 - case.ids("backlog").await.len());
    for (index, name) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(swept.rule(index, "status"), "complete", "{swept:?}");
        assert_eq!(case.ids(name).await, id_set(20..25));
    }
}

#[tokio::test]
async fn commands_in_flight_stay_within_the_limits() {
    // By default the limit of the run is the highest limit of its rules.
    for (of_run, of_rules, most) in [("run: {concurrency: 3}", 2, 3), ("", 2, 2), ("run: {concurrency: 10}", 1, 4)] {
        let (_mongod, case) = alone().await;
        let names = ["a", "b", "c", "d"];
        let mut rules = String::new();
        for name in names {
            case.fill(name, dated(0..40, days(-3)).chain(dated(40..42, days(3)))).await;
            rules +=
                &format!("  - {{namespace: DB.{name}, field: at, expireAfter: 1d, batchSize: 5, concurrency: {of_rules}}}\n");
        }
        slow_down(&case.client, "delete", 300).await;
        let mut child = start(case.command(&format!("{rules}{of_run}\n"), &["sweep", "--format", "json"]));
        let mut seen = 0;
        while child.try_wait().unwrap().is_none() && seen < 60 {
            let now = running(&case.client, "delete").await;
            assert!(now <= most, "{now} in flight, {most} allowed");
            seen += usize::from(now == most);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(seen > 0, "never {most} in flight");
        heal(&case.client).await;
        assert_eq!(end(child).await.code, Some(0));
        for name in names {
            assert_eq!(case.ids(name).await, id_set(40..42));
        }
    }
}

#[tokio::test]
async fn fifty_collections_behind_a_glob_are_swept_to_the_last_document() {
    let case = Case::new().await;
    for n in 0..50 {
        case.fill(&format!("s{n}"), dated(0..n, days(-3)).chain(dated(50..52, days(3)))).await;
    }
    let swept = case.report("  - {namespace: 'DB.s*', field: at, expireAfter: 1d, batchSize: 7}\n", &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.json["totals"]["deletedCount"], (0..50).sum::<i32>());
    for n in 0..50 {
        assert_eq!(case.ids(&format!("s{n}")).await, id_set(50..52));
    }
}

#[tokio::test]
async fn a_latency_that_smaller_batches_cannot_reduce_leaves_them_large_and_is_named() {
    let (mongod, case) = alone().await;
    fill_many(&case, "c", 12_000, days(-3)).await;
    slow_down(&case.client, "delete", 250).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 400, concurrency: 1}\n";
    let report = case.report(rule, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    let sizes: Vec<u64> = removed(&mongod).iter().filter_map(|entry| entry["ndeleted"].as_u64()).collect();
    let (_, but_the_last) = sizes.split_last().expect("deletes");
    assert!(but_the_last.iter().all(|size| (100..=400).contains(size)) && sizes.len() <= 45, "{sizes:?}");
    let warning = report.rule(0, "warnings").to_string();
    assert!(warning.contains("`batchSize` (400 now)") && warning.contains("`concurrency` (1 now)"), "{report:?}");
}

#[tokio::test]
async fn a_server_whose_documents_take_long_gets_small_batches_and_rests() {
    let (mongod, case) = alone().await;
    let numbered = |document: Document| doc! { "_id": document.get_i32("_id").unwrap(), "at": days(-3), "n": 100_000 };
    case.fill("c", dated(0..640, days(-3)).map(numbered)).await;
    // The server computes a sum of `n` numbers for each document.
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, targetBatchMs: 50, concurrency: 1,
     filter: {$expr: {$gt: [{$sum: {$range: [0, $n]}}, 0]}}}\n";
    let report = case.report(rule, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    let sizes: Vec<u64> = removed(&mongod).iter().filter_map(|entry| entry["ndeleted"].as_u64()).collect();
    assert!(sizes[0] == 500 && sizes[1] <= 250 && sizes[2..].iter().all(|size| *size < 100), "{sizes:?}");
    assert!(report.json["rules"][0]["pausedMs"]["latency"].as_u64().unwrap() > 0, "{report:?}");
}

#[tokio::test]
async fn a_rate_holds_in_every_ten_seconds_by_the_oplog() {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, &[])).await.unwrap();
    let client = set.client().await;
    let db = client.database("app");
    for (name, index, multikey) in [("a", true, false), ("b", true, true), ("c", false, false)] {
        let c = db.collection::<Document>(name);
        let date = |n: i64| DateTime::from_millis(DateTime::now().timestamp_millis() - 10 * 86_400_000 + n);
        let at = |n: i64| if multikey { vec![date(n), date(-n)].into() } else { Bson::from(date(n)) };
        c.insert_many((0..8000_i64).map(|n| doc! { "_id": n, "at": at(n) })).await.unwrap();
        if index {
            db.run_command(doc! { "createIndexes": name, "indexes": [{ "key": { "at": 1 }, "name": "at" }] }).await.unwrap();
        }
    }
    // The rate of this rule is lower than its share of the run's rate.
    let policy = "version: 1\nrun: {rate: 1000, maxDuration: 14s}\ncollections:\n  - {namespace: app.a, field: at, expireAfter: 1d, rate: 200}
  - {namespace: app.b, field: at, expireAfter: 1d}\n  - {namespace: app.c, field: at, expireAfter: 1d}\n";
    let path = set.members[0].dir.path().join("policy.yaml");
    std::fs::write(&path, policy).unwrap();
    let mut command = sweeper(&["sweep", "--format", "json", "--uri", &set.uri(), "--policy"]);
    command.arg(path);
    let ran = run(command).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");

    let swept = doc! { "$in": ["app.a", "app.b", "app.c"] };
    // From 7.0 on several deletes share one entry.
    let filter = doc! { "$or": [{ "op": "d", "ns": &swept }, { "op": "c", "o.applyOps.ns": swept, "o.applyOps.op": "d" }] };
    let oplog = client.database("local").collection::<Document>("oplog.rs").find(filter).await.unwrap();
    let entries: Vec<Document> = futures_util::TryStreamExt::try_collect(oplog).await.unwrap();
    let mut times: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for entry in &entries {
        let at = entry.get_datetime("wall").unwrap().timestamp_millis();
        let shared = entry.get_document("o").unwrap().get_array("applyOps");
        let deletes = shared.map_or(vec![entry], |shared| shared.iter().filter_map(Bson::as_document).collect());
        for delete in deletes {
            times.entry(delete.get_str("ns").unwrap()).or_default().push(at);
            times.entry("all").or_default().push(at);
        }
    }
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["totals"]["deletedCount"], times["all"].len());
    for (of, rate) in [("all", 1000), ("app.a", 200)] {
        let times = &times[of];
        // A server that stops for a while does afterwards what was sent to it in time.
        let longest_gap = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        for millis in [10_000, 1000] {
            let most = usize::try_from(rate * (millis + longest_gap) / 1000 * 105 / 100).unwrap();
            let worst = (0..times.len()).map(|n| times[n..].iter().take_while(|at| **at < times[n] + millis).count()).max();
            assert!(worst <= Some(most), "{of}: {worst:?} in {millis} ms, {most} allowed, with a gap of {longest_gap} ms");
        }
    }
    // The lower bound depends on the machine as well, so it is looser. A rule with fewer turns than its rate allows stays below
    // its rate.
    let all = &times["all"];
    let took = all[all.len() - 1] - all[0];
    assert!(all.len() as i64 >= took * 8 / 10, "{} in {took} ms", all.len());
    assert!(times["app.b"].len() > 2000 && times["app.c"].len() > 2000, "they take turns");
}
