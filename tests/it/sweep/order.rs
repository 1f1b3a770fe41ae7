//! The order of the deletes: what is chosen for which layout of the storage, and that either order deletes the same documents.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use mongodb::IndexModel;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::support::sweeper::{Case, ids};

const NOW: &str = "2026-01-31T02:00:00Z";
const NOW_MS: i64 = 1_769_824_800_000;
const THRESHOLD_MS: i64 = NOW_MS - 60_000;

/// Documents of a test, in as many batches as there can be.
const DOCUMENTS: i32 = 400;

/// Returns an `_id` of a kind for the nth document that is stored.
fn id(kind: &str, n: i32, random: &mut StdRng) -> Bson {
    match kind {
        "objectId" => ObjectId::new().into(),
        "counter" => n.into(),
        "numbers" if n % 3 == 0 => Bson::Double(f64::from(n)),
        "numbers" => Bson::Int64(n.into()),
        "descending" => (DOCUMENTS - n).into(),
        "uuid" => Binary { subtype: BinarySubtype::Uuid, bytes: random.random::<[u8; 16]>().to_vec() }.into(),
        // The first and the last are numbers, and NaN is the least of them.
        "nan" if n == 200 => Bson::Double(f64::NAN),
        "nan" => n.into(),
        "mixed" if n % 2 == 0 => n.into(),
        "mixed" => format!("x{n}").into(),
        other => panic!("{other}"),
    }
}

/// Returns a date at, just before, just after or far from the threshold.
fn date(random: &mut StdRng) -> DateTime {
    let offsets = [-1, 0, 1, -50_000, 50_000];
    DateTime::from_millis(THRESHOLD_MS + offsets[random.random_range(0..offsets.len())])
}

async fn index(case: &Case, key: Document) {
    case.collection("c").create_index(IndexModel::builder().keys(key).build()).await.unwrap();
}

/// Sweeps by a rule in an order, and compares the survivors with those that the server's own comparison leaves.
async fn assert_exact(case: &Case, keys: &str, order: &str, expired: Document) {
    let c = case.collection("c");
    let before = ids(&c).await;
    let gone: Vec<Document> = c.find(expired).projection(doc! { "_id": 1 }).await.unwrap().try_collect().await.unwrap();
    let gone: BTreeSet<String> =
        gone.iter().map(|document| document["_id"].clone().into_canonical_extjson().to_string()).collect();
    assert!(!gone.is_empty() && gone.len() < before.len());
    let rule = format!("  - {{namespace: DB.c, field: at, expireAfterSeconds: 60, batchSize: 7, order: {order}, {keys}}}\n");
    let report = case.report(&rule, &["--as-of", NOW]).await;
    assert_eq!((report.ran.code, report.rule(0, "order")), (Some(0), &order.into()), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), gone.len(), "{report:?}");
    assert_eq!(ids(&c).await, &before - &gone, "{keys} {order}");
}

#[tokio::test]
async fn either_order_deletes_the_same_documents_whatever_their_ids_are() {
    let mut random = StdRng::seed_from_u64(15);
    for kind in ["objectId", "counter", "numbers", "descending", "uuid", "nan", "mixed"] {
        for order in ["storage", "oldestFirst"] {
            let case = Case::new().await;
            let documents = (0..DOCUMENTS).map(|n| doc! { "_id": id(kind, n, &mut random), "at": date(&mut random), "n": n % 3 });
            case.fill("c", documents.collect::<Vec<_>>()).await;
            index(&case, doc! { "at": 1 }).await;
            let expired = doc! { "at": { "$lte": DateTime::from_millis(THRESHOLD_MS) }, "n": { "$ne": 2 } };
            assert_exact(&case, "filter: {n: {$ne: 2}}", order, expired).await;
        }
    }
}

#[tokio::test]
async fn arrays_own_ttls_and_archives_go_in_the_order_of_the_storage_as_well() {
    let mut random = StdRng::seed_from_u64(16);
    let expired = doc! { "at": { "$lte": DateTime::from_millis(THRESHOLD_MS) } };
    let case = Case::new().await;
    let lists = (0..DOCUMENTS).map(|n| doc! { "_id": n, "at": [date(&mut random), date(&mut random)] }).collect::<Vec<_>>();
    case.fill("c", lists).await;
    index(&case, doc! { "at": 1 }).await;
    assert_exact(&case, "enabled: true", "storage", expired.clone()).await;

    let case = Case::new().await;
    let ttls = [60, 61, -1, 0];
    let own = (0..DOCUMENTS).map(|n| doc! { "_id": n, "at": date(&mut random), "ttl": ttls[n as usize % 4] });
    case.fill("c", own.collect::<Vec<_>>()).await;
    index(&case, doc! { "at": -1 }).await;
    let by_ttl = |ttl: i64| doc! { "ttl": ttl, "at": { "$lte": DateTime::from_millis(NOW_MS - ttl * 1000) } };
    assert_exact(&case, "ttlField: ttl", "storage", doc! { "$or": [by_ttl(60), by_ttl(61)] }).await;

    let case = Case::new().await;
    case.fill("c", (0..DOCUMENTS).map(|n| doc! { "_id": n, "at": date(&mut random) }).collect::<Vec<_>>()).await;
    index(&case, doc! { "at": 1 }).await;
    let directory = tempfile::tempdir().unwrap();
    let keys = format!("archive: {{directory: {:?}}}", directory.path());
    assert_exact(&case, &keys, "storage", expired).await;
}

#[tokio::test]
async fn a_look_at_the_storage_chooses_the_order_of_a_large_collection() {
    // Large enough to be looked at, and larger than the server can change within its cache.
    let padding = "x".repeat(4_000);
    // Shares far from the border: where half had expired, a sample of 39 % has been drawn, which is on its other side.
    for (is_scattered, expired, order) in [(true, 15_000, "storage"), (false, 15_000, "oldestFirst"), (true, 180, "oldestFirst")]
    {
        let case = Case::new().await;
        let mut ranks: Vec<i64> = (0..18_000).collect();
        if is_scattered {
            ranks.shuffle(&mut StdRng::seed_from_u64(17));
        }
        let at = |rank: i64| DateTime::from_millis(THRESHOLD_MS + (rank - expired) * 1000);
        let documents = ranks.into_iter().zip(0..).map(|(rank, n)| doc! { "_id": n, "at": at(rank), "p": &padding });
        case.fill("c", documents.collect::<Vec<_>>()).await;
        index(&case, doc! { "at": 1 }).await;
        case.db
            .run_command(doc! { "profile": 1, "filter": { "command.pipeline.0.$sample": { "$exists": true } } })
            .await
            .unwrap();
        let profile = case.collection("system.profile");
        let rule = "  - {namespace: DB.c, field: at, expireAfterSeconds: 60}\n";
        // The index on the date does not know the filter, so that documents are drawn by a `$sample` instead.
        for (rule, draws) in [(rule.to_owned(), 0), (rule.replace("60}", "60, filter: {_id: {$gte: 0}}}"), 1)] {
            let report = case.report(&rule, &["--as-of", NOW, "--dry-run"]).await;
            assert_eq!(report.rule(0, "order"), order, "{is_scattered} {expired} {report:?}");
            assert_eq!(profile.count_documents(doc! {}).await.unwrap(), draws, "{is_scattered} {expired}");
        }
        let limited = case.report(rule, &["--as-of", NOW, "--dry-run", "--max-deletes", "10"]).await;
        assert_eq!(limited.rule(0, "order"), "oldestFirst", "{limited:?}");
    }
}

#[tokio::test]
async fn a_look_at_the_storage_copes_with_one_date_for_all_and_with_lists_of_dates() {
    let padding = "x".repeat(4_000);
    let one = |_: i32| Bson::from(DateTime::from_millis(THRESHOLD_MS));
    // Neighbours by date are thousands of documents apart.
    let earliest = |n: i32| DateTime::from_millis(THRESHOLD_MS - i64::from(n) * 7_001 % 18_000);
    let list = |n: i32| Bson::from(vec![earliest(n), DateTime::from_millis(NOW_MS)]);
    for (name, date) in [("one", &one as &dyn Fn(i32) -> Bson), ("lists", &list)] {
        let case = Case::new().await;
        case.fill("c", (0..18_000).map(|n| doc! { "_id": n, "at": date(n), "p": &padding }).collect::<Vec<_>>()).await;
        index(&case, doc! { "at": 1 }).await;
        let report = case.report("  - {namespace: DB.c, field: at, expireAfterSeconds: 60}\n", &["--as-of", NOW]).await;
        // Documents with one date are stored in the order of the index.
        let order = if name == "one" { "oldestFirst" } else { "storage" };
        assert_eq!((report.rule(0, "order"), report.rule(0, "deletedCount")), (&order.into(), &18_000.into()), "{report:?}");
    }
}
