//! Stretches of an index: small batches over many equal dates, every kind of index, and numbers of several types, exact to the
//! last document.

use std::collections::BTreeSet;

use crate::support::sweeper::{Case, ids};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NOW: &str = "2026-01-31T02:00:00Z";
const NOW_SECONDS: i64 = 1_769_824_800;

/// Sweeps, and compares the survivors with the survivors of the server's own comparison.
async fn assert_exact(case: &Case, keys: &str, expired: Document) {
    let c = case.collection("c");
    let before = ids(&c).await;
    let gone = c.find(expired).projection(doc! { "_id": 1 }).await.unwrap();
    let gone: Vec<Document> = futures_util::TryStreamExt::try_collect(gone).await.unwrap();
    let gone: BTreeSet<String> =
        gone.iter().map(|document| document["_id"].clone().into_canonical_extjson().to_string()).collect();
    assert!(!gone.is_empty() && gone.len() < before.len());
    let rule = format!("  - {{namespace: DB.c, {keys}}}\n");
    let report = case.report(&rule, &["--as-of", NOW]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), gone.len(), "{report:?}");
    assert_eq!(ids(&c).await, &before - &gone, "{keys}");
}

async fn index(case: &Case, key: Document) {
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "name": "i", "key": key }] }).await.unwrap();
}

fn at(seconds: i64) -> DateTime {
    DateTime::from_millis((NOW_SECONDS + seconds) * 1000)
}

#[tokio::test]
async fn equal_dates_before_within_and_at_the_end_of_batches() {
    let mut random = StdRng::seed_from_u64(7);
    for key in [doc! { "at": 1 }, doc! { "at": -1 }, doc! { "at": 1, "n": -1 }] {
        for batch_size in [1, 2, 3, 7] {
            let case = Case::new().await;
            // Few dates for many documents: ties of every length, also at the first date, at the threshold and just after it.
            let dates = [-90, -61, -60, -60, -60, -59, -30, 5];
            let documents = (0..120).map(|n| {
                let pick = random.random_range(0..dates.len());
                let date = if n < 10 { dates[0] } else { dates[pick] };
                doc! { "_id": n, "at": at(date), "n": n % 3 }
            });
            case.fill("c", documents).await;
            index(&case, key.clone()).await;
            let keys = format!("field: at, expireAfterSeconds: 60, batchSize: {batch_size}, filter: {{n: {{$ne: 2}}}}");
            assert_exact(&case, &keys, doc! { "at": { "$lte": at(-60) }, "n": { "$ne": 2 } }).await;
        }
    }
}

#[tokio::test]
async fn numbers_of_several_types_are_one_key_where_they_are_equal() {
    let case = Case::new().await;
    let old = NOW_SECONDS - 100;
    let values: [Bson; 12] = [
        Bson::Int64(old),
        Bson::Int32(i32::try_from(old).unwrap()),
        Bson::Double(old as f64),
        Bson::Double(old as f64 + 0.25),
        Bson::Int64(old - 1),
        Bson::Double(f64::NAN),
        Bson::Double(f64::NEG_INFINITY),
        Bson::Decimal128(old.to_string().parse().unwrap()),
        Bson::Decimal128("NaN".parse().unwrap()),
        Bson::Int64(NOW_SECONDS - 60),
        Bson::Double(NOW_SECONDS as f64 - 59.75),
        Bson::String("x".into()),
    ];
    case.fill("c", (0..240).map(|n| doc! { "_id": n, "at": values[(n as usize * 7) % values.len()].clone() })).await;
    index(&case, doc! { "at": 1 }).await;
    let expired = doc! { "at": { "$lte": NOW_SECONDS - 60, "$gte": 0 }, "$nor": [{ "at": { "$type": "decimal" } }] };
    assert_exact(&case, "field: at, expireAfterSeconds: 60, dateFormat: epochSeconds, batchSize: 3", expired).await;
}

#[tokio::test]
async fn a_decimal_among_equal_numbers_does_not_make_one_batch_of_them_all() {
    let case = Case::new().await;
    let decimal = |n: i32| if n % 50 == 1 { Bson::Decimal128("5".parse().unwrap()) } else { Bson::Int32(5) };
    case.fill("c", (0..300).map(|n| doc! { "_id": n, "at": decimal(n) })).await;
    index(&case, doc! { "at": 1 }).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfterSeconds: 60, dateFormat: epochSeconds, batchSize: 10}\n";
    let report = case.report(rule, &["--as-of", NOW]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &294.into()), "{report:?}");
    assert!(report.rule(0, "batches").as_u64() >= Some(30), "{report:?}");
    assert_eq!(case.ids("c").await, crate::support::sweeper::id_set((0..300).filter(|n| n % 50 == 1)));
}

#[tokio::test]
async fn an_index_over_arrays_is_swept_without_stretches() {
    let mut random = StdRng::seed_from_u64(8);
    for key in [doc! { "at": 1 }, doc! { "at": -1 }, doc! { "a.at": 1 }] {
        let case = Case::new().await;
        let nested = key.contains_key("a.at");
        let documents = (0..200).map(|n| {
            let dates: Vec<DateTime> = (0..n % 4).map(|_| at(random.random_range(-120..0))).collect();
            if nested {
                let inner: Vec<Document> = dates.iter().map(|date| doc! { "at": *date }).collect();
                doc! { "_id": n, "a": inner }
            } else {
                doc! { "_id": n, "at": dates }
            }
        });
        case.fill("c", documents).await;
        index(&case, key).await;
        let field = if nested { "a.at" } else { "at" };
        assert_exact(
            &case,
            &format!("field: {field}, expireAfterSeconds: 60, batchSize: 5"),
            doc! { field: { "$lte": at(-60) } },
        )
        .await;
    }
}

#[tokio::test]
async fn without_an_index_stretches_of_object_ids_leave_none_out() {
    for batch_size in [1, 2, 9, 500] {
        let case = Case::new().await;
        let documents = (0..151).map(|n| doc! { "_id": ObjectId::new(), "at": at(-(n * 37 % 120)) });
        case.fill("c", documents).await;
        let keys = format!("field: at, expireAfterSeconds: 60, batchSize: {batch_size}");
        assert_exact(&case, &keys, doc! { "at": { "$lte": at(-60) } }).await;
    }
}

#[tokio::test]
async fn one_other_type_of_id_is_enough_to_go_by_document() {
    for odd in [Bson::Null, Bson::Int32(5), Bson::String("x".into()), Bson::DateTime(at(0)), Bson::MaxKey] {
        let case = Case::new().await;
        let documents = (0..50).map(|n| doc! { "_id": ObjectId::new(), "at": at(-(n * 37 % 120)) });
        case.fill("c", documents.chain([doc! { "_id": odd, "at": at(-100) }])).await;
        assert_exact(&case, "field: at, expireAfterSeconds: 60, batchSize: 4", doc! { "at": { "$lte": at(-60) } }).await;
    }
}

#[tokio::test]
async fn a_limit_within_stretches_is_met_to_the_document_and_takes_the_oldest() {
    for (limit, concurrency) in [(1_i64, 1), (99, 2), (150, 4), (199, 2)] {
        let case = Case::new().await;
        case.fill("c", (0..200).map(|n| doc! { "_id": n, "at": at(-1000 + n) })).await;
        index(&case, doc! { "at": 1 }).await;
        let rule = format!(
            "  - {{namespace: DB.c, field: at, expireAfterSeconds: 60, batchSize: 5, concurrency: {concurrency}, maxDeletes: {limit}}}\n"
        );
        let report = case.report(&rule, &["--as-of", NOW]).await;
        assert_eq!(report.ran.code, Some(4), "{report:?}");
        assert_eq!(report.rule(0, "reason"), "maxDeletes");
        assert_eq!(case.ids("c").await, crate::support::sweeper::id_set(limit..200), "{limit}");
    }
}
