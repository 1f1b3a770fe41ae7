//! How long deleting takes: sweeper beside what else people use, on one fresh mongod, as ratios of one run.
//!
//! `cargo bench --bench sweep` runs every case; `-- --case random --documents 100000 --rounds 1` a part of it.

#![allow(clippy::print_stdout)]

#[path = "../tests/support/mongod.rs"]
mod mongod;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::TryStreamExt;
use mongod::ReplicaSet;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::WriteConcern;
use mongodb::{Client, Collection};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NOW: &str = "2026-01-01T00:00:00Z";
const NOW_MILLIS: i64 = 1_767_225_600_000;

#[derive(Parser)]
struct Args {
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    case: String,
    /// Documents in each collection; about half of them have expired
    #[arg(long, default_value_t = 400_000)]
    documents: i64,
    /// Rounds of which the median is taken
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// One layout of a collection.
struct Case {
    name: &'static str,
    document: fn(i64, i64, &mut StdRng) -> Document,
    indexes: &'static [&'static str],
    /// Further keys of sweeper's rule.
    rule: &'static str,
    /// What one `deleteMany` of the same documents takes as its filter.
    filter: fn() -> Document,
    peers: &'static [Peer],
}

#[derive(Clone, Copy, PartialEq)]
enum Peer {
    DeleteMany,
    TtlMonitor,
    /// Finds 1000 ids, deletes them with the date beside, and again.
    Script,
    Sweeper,
}

fn date(seconds: i64) -> DateTime {
    DateTime::from_millis(NOW_MILLIS + seconds * 1000)
}

fn body(mut document: Document, length: usize, random: &mut StdRng) -> Document {
    document.extend(
        doc! { "a": random.random::<f64>(), "b": random.random::<f64>(), "c": random.random::<f64>(), "p": "x".repeat(length) },
    );
    document
}

fn random_date(_: i64, _: i64, random: &mut StdRng) -> Document {
    body(doc! { "at": date(random.random_range(-1_000_000..1_000_000)) }, 150, random)
}

fn expired() -> Document {
    doc! { "at": { "$lte": date(0) } }
}

/// The per-document rule as people write it by hand: safe on every type, 3600 s where the document says nothing.
fn expired_by_ttl() -> Document {
    let ttl = doc! { "$cond": [{ "$in": [{ "$type": "$ttl" }, ["int", "long"]] }, "$ttl", 3600] };
    doc! { "at": { "$lte": date(-1) }, "$expr": { "$and": [
        { "$eq": [{ "$type": "$at" }, "date"] },
        { "$lte": ["$at", { "$subtract": [date(0), { "$multiply": [ttl, 1000] }] }] },
    ] } }
}

const TWO: &[Peer] = &[Peer::DeleteMany, Peer::Sweeper];
const THREE: &[Peer] = &[Peer::DeleteMany, Peer::TtlMonitor, Peer::Sweeper];

const CASES: [Case; 11] = [
    Case {
        name: "random dates",
        document: random_date,
        indexes: &["at"],
        rule: "",
        filter: expired,
        peers: &[Peer::DeleteMany, Peer::TtlMonitor, Peer::Script, Peer::Sweeper],
    },
    Case {
        name: "ordered dates",
        document: |n, of, random| body(doc! { "at": date((n - of / 2) * 5) }, 150, random),
        indexes: &["at"],
        rule: "",
        filter: expired,
        peers: THREE,
    },
    Case {
        name: "four indexes",
        document: random_date,
        indexes: &["at", "a", "b", "c"],
        rule: "",
        filter: expired,
        peers: THREE,
    },
    Case {
        name: "large documents (4 kB)",
        document: |_, _, random| body(doc! { "at": date(random.random_range(-1_000_000..1_000_000)) }, 4000, random),
        indexes: &["at"],
        rule: "",
        filter: expired,
        peers: TWO,
    },
    Case {
        name: "1 % expired",
        document: |_, _, random| body(doc! { "at": date(random.random_range(-10_000..990_000)) }, 150, random),
        indexes: &["at"],
        rule: "",
        filter: expired,
        peers: TWO,
    },
    Case {
        name: "90 % expired",
        document: |_, _, random| body(doc! { "at": date(random.random_range(-900_000..100_000)) }, 150, random),
        indexes: &["at"],
        rule: "",
        filter: expired,
        peers: TWO,
    },
    Case {
        name: "multikey dates",
        document: |_, _, random| {
            let dates = [0, 1].map(|_| date(random.random_range(-1_000_000..1_000_000)));
            body(doc! { "at": dates.to_vec() }, 150, random)
        },
        indexes: &["at"],
        rule: "",
        filter: expired,
        peers: TWO,
    },
    Case {
        name: "one date shared by all",
        document: |n, _, random| body(doc! { "at": date(if n % 2 == 0 { -86_400 } else { 86_400 }) }, 150, random),
        indexes: &["at"],
        rule: "",
        filter: expired,
        peers: TWO,
    },
    Case { name: "no index", document: random_date, indexes: &[], rule: "", filter: expired, peers: TWO },
    Case {
        name: "own ttl, 3 values",
        document: |n, _, random| with_ttl(n, 3, random),
        indexes: &["at"],
        rule: ", ttlField: ttl",
        filter: expired_by_ttl,
        peers: TWO,
    },
    Case {
        name: "own ttl, 100 000 values",
        document: |n, _, random| with_ttl(n, 100_000, random),
        indexes: &["at"],
        rule: ", ttlField: ttl",
        filter: expired_by_ttl,
        peers: TWO,
    },
];

/// Three documents in ten say for themselves how long they live.
fn with_ttl(n: i64, values: i64, random: &mut StdRng) -> Document {
    let mut document = doc! { "at": date(random.random_range(-14_400..14_400)) };
    if n % 10 < 3 {
        document.insert("ttl", i32::try_from(1 + random.random_range(0..values) * (14_400 / values).max(1)).unwrap_or(1));
    }
    body(document, 150, random)
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, &[])).await.expect("a replica set");
    let client = set.client().await;
    println!(
        "{} documents, median of {} rounds, seconds of wall time; mongod 6.0, one-node replica set, majority\n",
        args.documents, args.rounds
    );
    println!(
        "{:<26} {:>10} {:>11} {:>8} {:>8} {:>14} {:>14}",
        "case", "deleteMany", "TTL monitor", "script", "sweeper", "/ deleteMany", "/ TTL monitor"
    );
    for case in CASES.iter().filter(|case| case.name.contains(&args.case)) {
        let mut seconds = [const { Vec::new() }; 4];
        for _ in 0..args.rounds {
            for peer in case.peers {
                let c = fill(&client, case, args.documents).await;
                let expected = c.count_documents((case.filter)()).await.expect("a count");
                let took = run(&set, case, *peer, &c).await;
                let left = c.count_documents((case.filter)()).await.expect("a count");
                let kept = c.estimated_document_count().await.expect("a count");
                // The monitor's clock goes on while it works.
                let right = args.documents as u64 - expected;
                assert!(
                    left == 0 && (kept == right || (*peer == Peer::TtlMonitor && kept < right)),
                    "{left} left, {kept} kept of {right}"
                );
                seconds[*peer as usize].push(took.as_secs_f64());
            }
        }
        let median = |peer: Peer| {
            let mut times = seconds[peer as usize].clone();
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied()
        };
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let ratio = |peer: Peer| median(Peer::Sweeper).zip(median(peer)).map(|(ours, theirs)| ours / theirs);
        println!(
            "{:<26} {:>10} {:>11} {:>8} {:>8} {:>14} {:>14}",
            case.name,
            shown(median(Peer::DeleteMany)),
            shown(median(Peer::TtlMonitor)),
            shown(median(Peer::Script)),
            shown(median(Peer::Sweeper)),
            shown(ratio(Peer::DeleteMany)),
            shown(ratio(Peer::TtlMonitor)),
        );
    }
}

/// Makes the collection anew, with the same documents each time.
async fn fill(client: &Client, case: &Case, documents: i64) -> Collection<Document> {
    let c = client.database("bench").collection::<Document>("c");
    c.drop().await.expect("a drop");
    let mut random = StdRng::seed_from_u64(1);
    for begin in (0..documents).step_by(10_000) {
        let batch: Vec<Document> =
            (begin..documents.min(begin + 10_000)).map(|n| (case.document)(n, documents, &mut random)).collect();
        c.insert_many(batch).ordered(false).await.expect("documents go in");
    }
    for field in case.indexes {
        let index = doc! { "createIndexes": "c", "indexes": [{ "key": { *field: 1 }, "name": *field }] };
        client.database("bench").run_command(index).await.expect("an index");
    }
    // What filling left to do is not to be paid for by the first that deletes.
    client.database("admin").run_command(doc! { "fsync": 1 }).await.expect("a checkpoint");
    c
}

async fn run(set: &ReplicaSet, case: &Case, peer: Peer, c: &Collection<Document>) -> Duration {
    let begun = Instant::now();
    match peer {
        Peer::DeleteMany => {
            c.delete_many((case.filter)()).write_concern(WriteConcern::majority()).await.expect("a delete");
        }
        Peer::Script => loop {
            let found = c.find((case.filter)()).projection(doc! { "_id": 1 }).limit(1000).await.expect("a cursor");
            let ids: Vec<Bson> = found.map_ok(|document| document["_id"].clone()).try_collect().await.expect("ids");
            if ids.is_empty() {
                break;
            }
            let mut filter = (case.filter)();
            filter.insert("_id", doc! { "$in": ids });
            c.delete_many(filter).write_concern(WriteConcern::majority()).await.expect("a delete");
        },
        Peer::TtlMonitor => return ttl_monitor(set, case, c).await,
        Peer::Sweeper => {
            let seconds = if case.rule.contains("ttlField") { 3600 } else { 0 };
            let policy = format!(
                "version: 1\ncollections: [{{namespace: bench.c, field: at, expireAfterSeconds: {seconds}, allowCollectionScan: true{}}}]\n",
                case.rule
            );
            let path = set.members[0].dir.path().join("bench.yaml");
            std::fs::write(&path, policy).expect("a policy");
            let mut command = Command::new(env!("CARGO_BIN_EXE_sweeper"));
            command.args(["sweep", "--as-of", NOW, "--uri", &set.uri(), "--policy"]).arg(path).stdin(Stdio::null());
            let output =
                tokio::task::spawn_blocking(move || command.output().expect("sweeper runs")).await.expect("sweeper ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    begun.elapsed()
}

/// Turns the plain index into a TTL index and waits until the monitor has deleted what the other peers delete.
async fn ttl_monitor(set: &ReplicaSet, case: &Case, c: &Collection<Document>) -> Duration {
    let client = set.client().await;
    let admin = client.database("admin");
    let age = (DateTime::now().timestamp_millis() - NOW_MILLIS) / 1000;
    let index = doc! { "collMod": "c", "index": { "name": "at", "expireAfterSeconds": age } };
    client.database("bench").run_command(index).await.expect("a TTL index");
    let whole = c.estimated_document_count().await.expect("a count");
    let target = whole - c.count_documents((case.filter)()).await.expect("a count");
    admin.run_command(doc! { "setParameter": 1, "ttlMonitorSleepSecs": 1 }).await.expect("a parameter");
    admin.run_command(doc! { "setParameter": 1, "ttlMonitorEnabled": true }).await.expect("a parameter");
    // The clock starts with the first deleted document: the monitor's sleep is not its work.
    let mut begun = None;
    loop {
        let left = c.estimated_document_count().await.expect("a count");
        if left < whole && begun.is_none() {
            begun = Some(Instant::now());
        }
        if left <= target {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    admin.run_command(doc! { "setParameter": 1, "ttlMonitorEnabled": false }).await.expect("a parameter");
    begun.map_or(Duration::ZERO, |begun| begun.elapsed())
}
