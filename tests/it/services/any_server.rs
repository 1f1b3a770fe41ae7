//! Sweeps with known survivors on whatever server the environment names, next to the suites that run there as well
//! (`on_any_server`).

use std::collections::BTreeSet;

use crate::support::archives::{archive, assert_archived, directory, raw, unpacked};
use crate::support::corpus::scalars;
use crate::support::native::{column, index, indexes, native, ttl};
use crate::support::reference::{earliest, has_expired, own_ttl};
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{Bson, DateTime, Document, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

const DAY: i64 = 86_400_000;

fn ago(millis: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() - millis)
}

/// Creates the collections `plain`, `asc` and `desc` with the same documents; the names say how the date is indexed.
async fn three(case: &Case, field: &str, documents: &[Document]) {
    for (name, direction) in [("plain", 0), ("asc", 1), ("desc", -1)] {
        if direction != 0 {
            index(&case.db, name, doc! { field: direction }, "i", doc! {}).await;
        }
        for some in documents.chunks(5000) {
            case.fill(name, some.to_vec()).await;
        }
    }
}

async fn the_server_is_recognised(server: &Server) {
    let case = server.case().await;
    case.fill("c", [doc! { "_id": 1, "at": ago(DAY) }]).await;
    let dry = case.report("  - {namespace: DB.c, field: at, expireAfter: 1h}\n", &["--dry-run"]).await;
    assert_eq!(dry.json["server"]["flavor"], server.flavor().name(), "{dry:?}");
    assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &1.into()), "{dry:?}");
    assert_eq!(dry.rule(0, "warnings"), &json!([]));
}

/// Documents with dates and ttls at random, many more than one batch holds.
async fn a_ttl_in_each_of_many_documents_decides(server: &Server) {
    let mut random = StdRng::seed_from_u64(7);
    let now = DateTime::parse_rfc3339_str("2026-01-31T02:00:00Z").unwrap();
    let odd: Vec<Bson> = scalars().into_iter().filter(|value| server.indexes(value)).collect();
    let mut value = |id: i32| {
        let at = DateTime::from_millis(now.timestamp_millis() - random.random_range(-10_000..200_000) * 1000);
        let at: Bson = match random.random_range(0..20) {
            0 => odd[id as usize % odd.len()].clone(),
            1 => vec![Bson::from(at), "x".into(), now.into()].into(),
            _ => at.into(),
        };
        let mut document = doc! { "_id": id, "at": at, "p": "x".repeat(20) };
        match random.random_range(0..10) {
            0 => {}
            1 => document.extend(doc! { "ttl": -1 }),
            2 => document.extend(doc! { "ttl": odd[id as usize % odd.len()].clone() }),
            _ => document.extend(doc! { "ttl": random.random_range(1..200_000_i64) }),
        }
        document
    };
    let documents = server.indexable(&(0..12_000).map(&mut value).collect::<Vec<_>>());
    let expires =
        |document: &Document, default| has_expired(earliest(document, "at"), own_ttl(document.get("ttl")), default, now);
    for (default, seconds) in [(Some(100_000), 100_000), (None, -1)] {
        let case = server.case().await;
        three(&case, "at", &documents).await;
        let expected =
            id_set(documents.iter().filter(|document| !expires(document, default)).map(|document| document["_id"].clone()));
        assert!((3000..9000).contains(&expected.len()), "{} survive", expected.len());
        let rules = ["plain", "asc", "desc"]
            .map(|name| format!("  - {{namespace: DB.{name}, field: at, ttlField: ttl, expireAfterSeconds: {seconds}}}\n"));
        let swept = case.report(&rules.concat(), &["--as-of", "2026-01-31T02:00:00Z"]).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        for (n, name) in ["plain", "asc", "desc"].into_iter().enumerate() {
            assert_eq!(swept.rule(n, "deletedCount"), documents.len() - expected.len(), "{name}: {swept:?}");
            let left = case.ids(name).await;
            let wrong: Vec<&String> = left.symmetric_difference(&expected).take(5).collect();
            assert!(wrong.is_empty(), "{name}: wrong for {wrong:?}");
        }
    }
}

/// Dates of which many are equal, over several batches, with writers that move some of the dates meanwhile.
async fn documents_whose_date_moves_while_they_are_swept_stay(server: &Server) {
    let case = server.case().await;
    let at = |id: i32| if id % 3 == 0 { ago(-DAY) } else { ago(2 * DAY + i64::from(id % 100) * 1000) };
    let documents: Vec<Document> = (0..9000).map(|id| doc! { "_id": id, "at": at(id) }).collect();
    three(&case, "at", &documents).await;
    for name in ["plain", "asc", "desc"] {
        let c = case.collection(name);
        let writer = async {
            let mut moved = BTreeSet::new();
            for id in (0..9000).filter(|id| id % 3 == 1 && id % 30 == 1) {
                let (one, new) = (doc! { "_id": id }, doc! { "at": ago(-DAY) });
                let is_moved = if server.shards_by_date() {
                    // A document with another shard key is another document.
                    let is_there = c.delete_one(one.clone()).await.expect("a delete").deleted_count == 1;
                    if is_there {
                        c.insert_one(one.into_iter().chain(new).collect::<Document>()).await.expect("an insert");
                    }
                    is_there
                } else {
                    c.update_one(one, doc! { "$set": new }).await.expect("an update").modified_count == 1
                };
                if is_moved {
                    moved.insert(id);
                }
            }
            moved
        };
        let rules = format!("  - {{namespace: DB.{name}, field: at, expireAfter: 1d, batchSize: 200}}\n");
        let (moved, swept) = tokio::join!(writer, case.report(&rules, &[]));
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        let expected: BTreeSet<i32> = (0..9000).filter(|id| id % 3 == 0).chain(moved).collect();
        assert_eq!(case.ids(name).await, id_set(expected.iter().copied()), "{name}: {swept:?}");
        assert_eq!(swept.rule(0, "deletedCount"), 9000 - expected.len(), "{name}");
    }
}

async fn ids_of_every_type_are_deleted_and_kept(server: &Server) {
    let mut ids = scalars();
    // Equal numbers are equal `_id`s, and these types are no `_id`s everywhere.
    ids.retain(|id| {
        !matches!(id, Bson::RegularExpression(_) | Bson::Undefined | Bson::Decimal128(_) | Bson::Double(_) | Bson::Int64(0))
    });
    ids.extend([
        0.5.into(),
        "a".into(),
        "A".into(),
        "\u{e4}\u{1f600}".into(),
        DateTime::from_millis(5).into(),
        doc! {}.into(),
        doc! { "a": 1, "b": { "c": [1, { "d": Bson::Null }] } }.into(),
        doc! { "b": { "c": [1, { "d": Bson::Null }] }, "a": 1 }.into(),
        doc! { "a.b": 1 }.into(),
    ]);
    for rest in [0, 1] {
        let case = server.case().await;
        let documents = ids.iter().enumerate().map(|(n, id)| {
            let at = if n % 2 == rest { ago(3 * DAY) } else { ago(-DAY) };
            doc! { "_id": id.clone(), "at": at }
        });
        three(&case, "at", &documents.collect::<Vec<_>>()).await;
        let rules = ["plain", "asc", "desc"]
            .map(|name| format!("  - {{namespace: DB.{name}, field: at, expireAfter: 1d, batchSize: 3}}\n"));
        let swept = case.report(&rules.concat(), &[]).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        let kept = id_set(ids.iter().skip(1 - rest).step_by(2).cloned());
        for name in ["plain", "asc", "desc"] {
            assert_eq!(case.ids(name).await, kept, "{name}");
        }
    }
}

async fn what_is_archived_in_many_batches_is_what_was_deleted(server: &Server) {
    let case = server.case().await;
    let values = scalars();
    let documents: Vec<Document> = (0..4000)
        .map(|id| {
            let value = values[id as usize % values.len()].clone();
            doc! { "_id": id, "at": if id % 4 == 0 { ago(-DAY) } else { ago(2 * DAY + i64::from(id % 50)) }, "v": value, "l": [{ "n": id }] }
        })
        .collect();
    three(&case, "at", &documents).await;
    for name in ["plain", "asc", "desc"] {
        let before = raw(&case, name).await;
        let to = directory(&case);
        let rule =
            format!("  - {{namespace: DB.{name}, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\n", to.display());
        let swept = case.report(&rule, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &3000.into()), "{swept:?}");
        assert_eq!(case.ids(name).await, id_set((0..4000).filter(|id| id % 4 == 0)), "{name}");
        let after = raw(&case, name).await;
        let run = archive(&to);
        assert_eq!(assert_archived(&before, &after, &unpacked(&case, std::slice::from_ref(&run), name, "back").await), 3000);
        std::fs::remove_dir_all(run).unwrap();
    }
}

async fn native_settings_are_compared_and_made_to_match(server: &Server) {
    let case = server.case().await;
    let db = &case.db;
    index(db, "same", doc! { "at": 1 }, "at_1", ttl(3600)).await;
    index(db, "differs", doc! { "at": 1 }, "by date", ttl(60)).await;
    index(db, "plain", doc! { "at": 1 }, "plain", doc! {}).await;
    index(db, "made", doc! { "s": 1 }, "s_1", doc! {}).await;
    let rules = "  - {namespace: DB.same, field: at, expireAfter: 1h}
  - {namespace: DB.differs, field: at, expireAfter: 1d}
  - {namespace: DB.plain, field: at, expireAfter: 1d}
  - {namespace: DB.made, field: at, expireAfter: 1d}\n";
    let (ran, diff) = native(&case, rules, &["diff"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert_eq!(column(&diff, "/state"), ["same", "differs", "missing", "missing"].map(Value::from), "{diff:#}");
    let (ran, applied) = native(&case, rules, &["apply", "--yes"]).await;
    assert_eq!(ran.code, Some(0), "{applied:#}");
    for (name, seconds) in [("same", 3600), ("differs", 86_400), ("plain", 86_400), ("made", 86_400)] {
        let all = indexes(db, name).await;
        let dated: Vec<&Document> = all.iter().filter(|index| index.get_document("key").unwrap().keys().eq(["at"])).collect();
        assert_eq!(dated.len(), 1, "{all:?}");
        let own = dated[0].get("expireAfterSeconds").map(|value| value.clone().into_relaxed_extjson());
        assert_eq!(own, Some(json!(seconds)), "{name}: {all:?}");
    }
    let (again, after) = native(&case, rules, &["apply", "--yes"]).await;
    assert_eq!((again.code, column(&after, "/state")), (Some(0), ["same"; 4].map(Value::from).to_vec()), "{after:#}");
}

on_servers!(
    the_server_is_recognised,
    a_ttl_in_each_of_many_documents_decides,
    documents_whose_date_moves_while_they_are_swept_stay,
    ids_of_every_type_are_deleted_and_kept,
    what_is_archived_in_many_batches_is_what_was_deleted,
    native_settings_are_compared_and_made_to_match
);
