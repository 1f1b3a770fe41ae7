//! Sweeps of collections sharded by different keys: exactly the expired documents go, whichever way they are found, and a batch
//! of `_id`s is sent only to shards that have some of them.

use std::collections::BTreeSet;

use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc, rawdoc};

use crate::support::archives::{archive, directory, restored};
use crate::support::cluster::{Cluster, middle};
use crate::support::faults::days;
use crate::support::proxy::router::Sharded;
use crate::support::sweeper::Report;

/// Documents of the collection; two of them share each `_id` where the shard key tells them apart.
const DOCUMENTS: i32 = 120;

/// A shard key with its chunks, and the kinds of documents that a collection by it can hold.
struct Layout {
    sharded: Sharded,
    /// Whether two documents may have one `_id`.
    has_twins: bool,
    /// Whether a date may be in an array: a shard key may not.
    has_arrays: bool,
}

fn layouts() -> [Layout; 5] {
    let layout =
        |key, split: Vec<Bson>, has_twins, has_arrays| Layout { sharded: Sharded::halves(key, split), has_twins, has_arrays };
    let middle_date = || Bson::DateTime(days(-40));
    [
        layout(doc! { "tenant": 1 }, vec!["t3".into()], true, true),
        layout(doc! { "_id": "hashed" }, middle().to_vec(), false, true),
        layout(doc! { "at": 1 }, vec![middle_date()], false, false),
        layout(doc! { "tenant": 1, "at": 1 }, vec!["t3".into(), middle_date()], true, false),
        layout(doc! { "place.country": 1, "_id": 1 }, vec!["d".into(), 0.into()], true, true),
    ]
}

/// Returns the n-th document and whether it has expired under one day.
fn document(n: i32, layout: &Layout) -> (Document, bool) {
    let old = |more: i64| Bson::DateTime(days(-2 - i64::from(n) - more));
    let live = Bson::DateTime(days(i64::from(n % 3)));
    let (at, has_expired) = match n % 8 {
        0..=3 => (old(0), true),
        4 if layout.has_arrays => (vec![live, old(0)].into(), true),
        5 if layout.has_arrays => (vec![live].into(), false),
        6 => ("2001-01-01".into(), false),
        7 => (Bson::Null, false),
        _ => (live, false),
    };
    // Twins lie on different shards: a shard has an `_id` once.
    let id = if layout.has_twins { n / 2 } else { n };
    let (tenant, country) = if n % 2 == 0 { (n / 2 % 3, "a") } else { (n / 2 % 3 + 4, "k") };
    (doc! { "_id": id, "n": n, "tenant": format!("t{tenant}"), "place": { "country": country }, "at": at }, has_expired)
}

async fn cluster(layout: &Layout, has_index: bool) -> (Cluster, BTreeSet<i32>) {
    let cluster = Cluster::new().await;
    cluster.shard("c", layout.sharded.clone()).await;
    let documents: Vec<(Document, bool)> = (0..DOCUMENTS).map(|n| document(n, layout)).collect();
    let raw: Vec<_> = documents.iter().map(|(document, _)| RawDocumentBuf::try_from(document).unwrap()).collect();
    cluster.fill("c", &raw).await;
    // A shard key begins an index of its own.
    if has_index && layout.sharded.key.keys().next().is_some_and(|first| first != "at") {
        cluster.case.index_on_date("c").await;
    }
    let live = documents.iter().filter(|(_, has_expired)| !has_expired).map(|(document, _)| document.get_i32("n").unwrap());
    (cluster, live.collect())
}

/// Returns the numbers of the documents on all shards.
async fn left(cluster: &Cluster) -> BTreeSet<i32> {
    let documents = cluster.documents("c").await;
    documents.into_iter().map(|(_, bytes)| RawDocumentBuf::from_bytes(bytes).unwrap().get_i32("n").unwrap()).collect()
}

fn assert_all_gone(report: &Report, expired: usize) {
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "remainingCount")), (&expired.into(), &0.into()), "{report:?}");
}

#[tokio::test]
async fn exactly_the_expired_documents_go_by_every_key_and_in_every_way() {
    for layout in layouts() {
        for (has_index, keys) in [(true, "batchSize: 15"), (true, "maxDeletes: 1000, batchSize: 15"), (false, "batchSize: 15")] {
            let (cluster, live) = cluster(&layout, has_index).await;
            let expired = DOCUMENTS as usize - live.len();
            assert!(expired >= 60, "{expired}");
            cluster.router.take_trips("c");
            let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {keys}}}\n");
            let report = cluster.case.report(&rule, &[]).await;
            assert_all_gone(&report, expired);
            assert_eq!(left(&cluster).await, live, "{} {keys}: {report:?}", layout.sharded.key);
            // A twin goes with the batch of the other one if both of their shards are asked, and its own batch finds nothing.
            if keys.starts_with("maxDeletes") && !layout.has_twins {
                let trips = cluster.router.take_trips("c");
                let in_vain = trips.iter().filter(|trip| trip.kind == "delete c" && trip.n == 0).count();
                assert_eq!(in_vain, 0, "{}: {trips:?}", layout.sharded.key);
            }
        }
    }
}

#[tokio::test]
async fn ends_of_batches_are_guessed_where_dates_are_dense_and_sparse_in_turn() {
    // Documents and the milliseconds from each to the next.
    let parts = [(1000, 1), (400, 10_000), (200, 0), (1500, 100), (1100, 3)];
    let steps = parts.into_iter().flat_map(|(documents, step)| std::iter::repeat_n(step, documents));
    // The youngest of them has just expired.
    let as_of = days(0);
    let threshold = as_of.timestamp_millis() - 86_400_000;
    let expired: Vec<i64> = steps.scan(threshold, |at, step| Some(std::mem::replace(at, *at - step))).collect();
    let live = (1..=100).map(|n| threshold + n);
    let dates = expired.iter().copied().chain(live).map(DateTime::from_millis);
    let documents: Vec<_> = (0..).zip(dates).map(|(n, at)| rawdoc! { "_id": n, "n": n, "at": at }).collect();
    for (batch, commands) in [(300, [36, 10, 40]), (1000, [10, 8, 16])] {
        let cluster = Cluster::new().await;
        cluster.shard("c", Sharded::halves(doc! { "_id": "hashed" }, middle().to_vec())).await;
        cluster.fill("c", &documents).await;
        cluster.case.index_on_date("c").await;
        cluster.router.take_trips("c");
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: {batch}, targetBatchMs: 60000}}\n");
        let report = cluster.case.report(&rule, &["--as-of", &as_of.try_to_rfc3339_string().unwrap()]).await;
        assert_all_gone(&report, expired.len());
        assert_eq!(left(&cluster).await, (4200..4300).collect(), "{batch}: {report:?}");
        let trips = cluster.router.take_trips("c");
        let sent = |kind: &str| trips.iter().filter(|trip| trip.kind == kind).count();
        // On both shards together, those of the looks among them.
        assert_eq!([sent("count c"), sent("find c"), sent("delete c")], commands, "{batch}: {trips:?}");
        // Nothing is said to be gone without a look after the last delete.
        let last = trips.iter().rev().map(|trip| trip.kind.as_str()).find(|kind| ["aggregate c", "delete c"].contains(kind));
        assert_eq!(last, Some("aggregate c"), "{trips:?}");
    }
}

#[tokio::test]
async fn what_is_archived_by_any_key_comes_back_to_its_shard() {
    for layout in layouts() {
        let (cluster, live) = cluster(&layout, true).await;
        let before = cluster.documents("c").await;
        let directory = directory(&cluster.case);
        let keys = format!("archive: {{directory: {:?}}}, batchSize: 15", directory);
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {keys}}}\n");
        let report = cluster.case.report(&rule, &[]).await;
        assert_all_gone(&report, DOCUMENTS as usize - live.len());
        assert_eq!(left(&cluster).await, live, "{}: {report:?}", layout.sharded.key);
        let (json, ran) = restored(&cluster.case, &archive(&directory), &[]).await;
        assert_eq!(ran.code, Some(0), "{json} {ran:?}");
        assert_eq!(cluster.documents("c").await, before, "{}", layout.sharded.key);
    }
}
