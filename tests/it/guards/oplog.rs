//! The oplog on a real replica set: what a sweep is expected to add and adds, and `minOplogWindow`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, Timestamp, doc};
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{Client, IndexModel};

use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, id_set};

const DAY: i64 = 86_400_000;

async fn set(args: &'static [&'static str]) -> (ReplicaSet, Client) {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, args)).await.expect("a replica set");
    let client = set.client().await;
    (set, client)
}

fn case(set: &ReplicaSet, client: &Client) -> Case {
    Case::at(&set.uri(), client.clone(), "app")
}

async fn last_entry(client: &Client) -> Timestamp {
    let oplog = client.database("local").collection::<Document>("oplog.rs");
    let last = oplog.find_one(doc! {}).sort(doc! { "$natural": -1 }).await.unwrap().expect("an entry");
    last.get_timestamp("ts").unwrap()
}

/// Returns the bytes of the deletes in a namespace since an entry. From 7.0 on several deletes share one entry, `applyOps`.
async fn deleted_bytes(client: &Client, namespace: &str, since: Timestamp) -> i64 {
    let stages = [
        doc! { "$match": { "ts": { "$gt": since }, "$or": [{ "op": "d", "ns": namespace }, { "o.applyOps.ns": namespace }] } },
        doc! { "$group": { "_id": null, "bytes": { "$sum": { "$bsonSize": "$$ROOT" } } } },
    ];
    let oplog = client.database("local").collection::<Document>("oplog.rs");
    let sums: Vec<Document> = oplog.aggregate(stages).await.unwrap().try_collect().await.unwrap();
    let bytes = sums[0].get("bytes").unwrap();
    bytes.as_i64().or(bytes.as_i32().map(i64::from)).unwrap()
}

fn id(kind: &str, n: i32) -> Bson {
    match kind {
        "int" => n.into(),
        "objectId" => ObjectId::new().into(),
        "uuid" => Binary {
            subtype: BinarySubtype::Uuid,
            bytes: (0..16).map(|byte| (n >> (byte % 4)) as u8).chain(n.to_le_bytes()).skip(4).collect(),
        }
        .into(),
        "string" => "x".repeat(1 + n as usize % 60).into_bson(n),
        "document" => doc! { "tenant": n, "name": format!("{n:0>12}") }.into(),
        other => panic!("{other}"),
    }
}

trait IntoBson {
    fn into_bson(self, n: i32) -> Bson;
}

impl IntoBson for String {
    fn into_bson(self, n: i32) -> Bson {
        format!("{self}{n}").into()
    }
}

#[tokio::test]
async fn a_sweep_adds_to_the_oplog_what_a_dry_run_expects() {
    let (set, client) = set(&[]).await;
    let case = case(&set, &client);
    let directory = tempfile::tempdir().unwrap();
    let archive = format!("archive: {{directory: {:?}}}", directory.path());
    for kind in ["int", "objectId", "uuid", "string", "document"] {
        for (number, keys) in ["enabled: true", "ttlField: ttl", archive.as_str()].into_iter().enumerate() {
            let name = format!("{kind}{number}");
            let now = DateTime::now().timestamp_millis();
            let at = |n| DateTime::from_millis(if n % 3 == 0 { now } else { now - 9 * DAY });
            case.fill(&name, (0..1500).map(|n| doc! { "_id": id(kind, n), "at": at(n), "ttl": 86_400 })).await;
            case.collection(&name).create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.unwrap();
            let rule = format!("  - {{namespace: app.{name}, field: at, expireAfter: 1d, {keys}}}\n");
            let dry = case.report(&rule, &["--dry-run"]).await;
            let estimate = dry.rule(0, "estimate");
            assert_eq!(
                (estimate["documents"].as_u64(), &estimate["oplogUnknown"]),
                (Some(1000), &serde_json::Value::Null),
                "{dry:?}"
            );
            let expected = estimate["oplogBytes"].as_i64().unwrap();
            assert_eq!(dry.json["totals"]["oplogBytes"], estimate["oplogBytes"]);
            let since = last_entry(&client).await;
            let swept = case.report(&rule, &[]).await;
            assert_eq!(swept.rule(0, "deletedCount"), 1000, "{swept:?}");
            let written = deleted_bytes(&client, &format!("app.{name}"), since).await;
            assert!((expected - written).abs() * 20 <= written, "{name}: expected {expected}, written {written}");
        }
    }
}

/// Writes into the oplog, a given number of bytes ten times a second, until it is dropped. The rate does not depend on the load
/// of the machine: what was missed is made up for, and a busy machine has time for ten writes.
struct Writer {
    stop: Arc<AtomicBool>,
}

impl Writer {
    fn start(client: &Client, bytes: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (client, stopped) = (client.clone(), stop.clone());
        tokio::spawn(async move {
            let other = client.database("other").collection::<Document>("padding");
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            let padding = "x".repeat(bytes);
            let unconfirmed = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
            let mut n = 0_i64;
            while !stopped.load(Ordering::Relaxed) {
                n += 1;
                let update = doc! { "$set": { "p": format!("{padding}{n}") } };
                other
                    .update_one(doc! { "_id": 0 }, update)
                    .upsert(true)
                    .write_concern(unconfirmed.clone())
                    .await
                    .expect("a write");
                ticks.tick().await;
            }
        });
        Self { stop }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns the times of the first and the last entry of the oplog, in seconds.
async fn times(client: &Client) -> (u32, u32) {
    let status = client.database("admin").run_command(doc! { "serverStatus": 1, "oplog": 1 }).await.expect("serverStatus");
    let oplog = status.get_document("oplog").unwrap();
    (oplog.get_timestamp("earliestOptime").unwrap().time, oplog.get_timestamp("latestOptime").unwrap().time)
}

/// Waits until all entries so far have been removed from the oplog. Returns the seconds that it covers.
async fn renew_oplog(client: &Client) -> u32 {
    let (_, before) = times(client).await;
    loop {
        let (first, last) = times(client).await;
        if first > before {
            return last - first;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Fills `app.c` with documents that have expired and five that have not; the `_id`s are long, so that their deletes are.
async fn fill(case: &Case, expired: i32) {
    let now = DateTime::now().timestamp_millis();
    let at = |n| DateTime::from_millis(if n < expired { now - 9 * DAY } else { now });
    let long = "x".repeat(300);
    let documents: Vec<Document> = (0..expired + 5).map(|n| doc! { "_id": format!("{long}{n}"), "at": at(n) }).collect();
    case.fill("c", documents).await;
    case.collection("c").create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.unwrap();
}

fn survivors(expired: i32) -> std::collections::BTreeSet<String> {
    let long = "x".repeat(300);
    id_set((expired..expired + 5).map(|n| format!("{long}{n}")))
}

#[tokio::test]
async fn the_window_stays_above_its_guard_beside_a_writer_and_a_change_stream_can_be_resumed() {
    const EXPIRED: i32 = 10_000;
    // Entries are removed only up to the last checkpoint.
    let (set, client) = set(&["--oplogSize", "10", "--syncdelay", "1"]).await;
    let case = case(&set, &client);
    fill(&case, EXPIRED).await;
    let writer = Writer::start(&client, 40_000);
    let full = renew_oplog(&client).await;
    // Two tenths of the oplog are for the sweep, as three are left out of the reckoning, and the deletes take four.
    let least = full * 5 / 10;
    let (ended, observed) = (Arc::new(AtomicBool::new(false)), client.clone());
    let seen_end = ended.clone();
    let observer = tokio::spawn(async move {
        let mut shortest = u32::MAX;
        while !seen_end.load(Ordering::Relaxed) {
            let (first, last) = times(&observed).await;
            shortest = shortest.min(last - first);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        shortest
    });
    // A consumer that is away for as long as the guard is for.
    let away = Duration::from_secs(u64::from(least) - 1);
    let (consumed, seen_end) = (case.collection("c"), ended.clone());
    let consumer = tokio::spawn(async move {
        let mut stream = consumed.watch().await.expect("a change stream");
        let (mut resumed, mut events) = (0, 0);
        loop {
            let is_last = seen_end.load(Ordering::Relaxed);
            while stream.next_if_any().await.expect("events").is_some() {
                events += 1;
            }
            let token = stream.resume_token().expect("a token");
            if is_last && resumed > 0 {
                return events;
            }
            drop(stream);
            tokio::time::sleep(away).await;
            stream = consumed.watch().resume_after(token).await.expect("a change stream that is resumed");
            resumed += 1;
        }
    });
    let rule = format!("  - {{namespace: app.c, field: at, expireAfter: 1d, batchSize: 200, minOplogWindow: {least}s}}\n");
    let swept = case.report(&rule, &["--max-duration", "900s"]).await;
    ended.store(true, Ordering::Relaxed);
    let shortest = observer.await.unwrap();
    let events = consumer.await.unwrap();
    drop(writer);
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &EXPIRED.into()), "{swept:?}");
    assert_eq!(case.ids("c").await, survivors(EXPIRED));
    assert!(swept.rule(0, "pausedMs")["oplog"].as_u64().unwrap() > 0, "{least} of {full}: {swept:?}");
    assert!(shortest >= least, "the window fell to {shortest} s, {least} s were to be kept, {full} s at first: {swept:?}");
    assert_eq!(events, EXPIRED);
}

#[tokio::test]
async fn a_window_that_cannot_be_kept_refuses_the_rule_and_without_the_guard_is_not_looked_at() {
    let (set, client) = set(&["--oplogSize", "10", "--syncdelay", "1"]).await;
    let case = case(&set, &client);
    fill(&case, 500).await;
    let writer = Writer::start(&client, 500_000);
    let full = renew_oplog(&client).await;
    drop(writer);
    let rule = |keys: &str| format!("  - {{namespace: app.c, field: at, expireAfter: 1d{keys}}}\n");
    let hour = rule(", minOplogWindow: 1h");
    // Whether or not a document has expired.
    let years = hour.replace("1d", "3650d");
    for (hour, args) in [(&hour, &["--dry-run"][..]), (&hour, &[]), (&years, &["--dry-run"]), (&years, &[])] {
        let refused = case.report(hour, args).await;
        assert_eq!(
            (refused.rule(0, "status"), refused.rule(0, "reason")),
            (&"refused".into(), &"minOplogWindow".into()),
            "{refused:?}"
        );
        assert!(refused.rule(0, "error").as_str().unwrap().contains("1h 00m have to be kept"), "{full} {refused:?}");
        assert_eq!(refused.rule(0, "deletedCount"), 0);
    }
    assert_eq!(case.ids("c").await.len(), 505);
    for format in ["table", "markdown", "html"] {
        let ran = case.run(&rule(""), &["audit", "--format", format]).await;
        let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["would delete 500 documents", "to the oplog", "of oplog, whose window is ", " now, and ", "reusable"] {
            assert!(words.contains(part), "{part} is not in:\n{}", ran.stdout);
        }
    }
    // The server keeps the entries by itself.
    client.database("admin").run_command(doc! { "replSetResizeOplog": 1, "minRetentionHours": 1.0 }).await.unwrap();
    let swept = case.report(&hour, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &500.into()), "{swept:?}");
    assert_eq!(case.ids("c").await, survivors(500));
}

#[tokio::test]
async fn an_unknown_window_refuses_only_a_rule_that_guards_it() {
    let guarded = "  - {namespace: DB.c, field: at, expireAfter: 1d, minOplogWindow: 1s}\n";
    let free = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
    let (set, client) = set(&[]).await;
    let case = case(&set, &client);
    // The reply of the server to a user without `clusterMonitor`.
    for command in ["serverStatus", "collStats"] {
        fill(&case, 50).await;
        let forbidden = doc! {
            "configureFailPoint": "failCommand",
            "mode": "alwaysOn",
            "data": { "failCommands": [command], "errorCode": 13, "appName": "sweeper" },
        };
        client.database("admin").run_command(forbidden).await.unwrap();
        for args in [
            &["check", "--connect", "--format", "json"][..],
            &["sweep", "--dry-run", "--format", "json"],
            &["sweep", "--format", "json"],
        ] {
            let ran = case.run(guarded, args).await;
            let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            let rule = &json["rules"][0];
            assert_eq!((&rule["status"], &rule["reason"]), (&"refused".into(), &"minOplogWindow".into()), "{command}: {ran:?}");
            assert!(rule["error"].as_str().unwrap().contains("clusterMonitor"), "{ran:?}");
            assert_eq!(case.ids("c").await.len(), 55);
        }
        let (namespace, first) = (case.collection("c").namespace().to_string(), format!("'{}0'", "x".repeat(300)));
        let why = case.run(guarded, &["why", &namespace, &first]).await;
        assert!(why.stdout.contains("but the rule deletes nothing: refused (minOplogWindow): "), "{command}: {why:?}");
        let dry = case.report(free, &["--dry-run"]).await;
        let estimate = dry.rule(0, "estimate");
        assert!(estimate["oplogBytes"].as_u64().unwrap() > 0 && estimate["oplogUnknown"].is_string(), "{dry:?}");
        assert_eq!(estimate["oplogWindowAfterSeconds"], serde_json::Value::Null);
        let swept = case.report(free, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &50.into()), "{swept:?}");
        client.database("admin").run_command(doc! { "configureFailPoint": "failCommand", "mode": "off" }).await.unwrap();
        case.collection("c").drop().await.unwrap();
    }

    let sharded = Proxied::new(Service::Mongos, 30).await;
    let refused = sharded.case.report(guarded, &[]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"minOplogWindow".into()), "{refused:?}");
    assert!(refused.rule(0, "error").as_str().unwrap().contains("mongos does not show the oplogs"), "{refused:?}");
    assert_eq!(refused.rule(0, "deletedCount"), 0);
    let dry = sharded.case.report(free, &["--dry-run"]).await;
    assert!(dry.rule(0, "estimate")["oplogUnknown"].as_str().unwrap().contains("mongos"), "{dry:?}");

    // A standalone server has no oplog.
    let case = Case::new().await;
    fill(&case, 50).await;
    let dry = case.report(free, &["--dry-run"]).await;
    let estimate = dry.rule(0, "estimate");
    assert_eq!(
        (&estimate["oplogBytes"], &estimate["oplogUnknown"]),
        (&serde_json::Value::Null, &serde_json::Value::Null),
        "{dry:?}"
    );
    let swept = case.report(guarded, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &50.into()), "{swept:?}");
}
