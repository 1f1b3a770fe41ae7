//! The threshold to the millisecond, compared with the server's `{field: {$lte: T}}` and with expected results written by hand.

use std::fmt::Write;

use crate::support::corpus::Corpus;
use crate::support::reference;
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, id_set, ids};
use mongodb::bson::{Bson, DateTime, Document, doc};

/// The current time of the runs; the threshold of one hour is 2024-05-01T11:00:00.123Z.
const AS_OF: &str = "2024-05-01T12:00:00.123Z";
const T: i64 = 1_714_561_200_123;

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

/// Fills a collection for each kind of index, named after it; returns the names and the rules.
async fn indexed_copies(case: &Case, field: &str, documents: &[Document]) -> (Vec<String>, String) {
    let mut names = Vec::new();
    let mut rules = String::new();
    for (kind, key) in
        [("plain", doc! {}), ("asc", doc! { field: 1 }), ("desc", doc! { field: -1 }), ("compound", doc! { field: 1, "tag": -1 })]
    {
        if !key.is_empty() {
            let index = doc! { "name": "i", "key": key };
            let command = doc! { "createIndexes": kind, "indexes": [index] };
            case.db.run_command(command).await.expect("an index");
        }
        case.fill(kind, documents.to_vec()).await;
        writeln!(rules, "  - {{namespace: DB.{kind}, field: {field}, expireAfter: 1h, batchSize: 50}}").expect("a string");
        names.push(kind.to_owned());
    }
    (names, rules)
}

async fn the_threshold_itself_expires_and_a_millisecond_later_does_not(server: &Server) {
    let case = server.case().await;
    let x = |id: i32, value: Bson| doc! { "_id": id, "x": value };
    let documents = [
        x(1, at(T).into()),
        x(2, at(T - 1).into()),
        x(3, at(T + 1).into()),
        x(4, at(i64::MIN).into()),
        x(5, at(i64::MAX).into()),
        x(6, at(-1).into()),
        x(7, at(0).into()),
        x(8, vec![at(T + 1), at(T)].into()),
        x(9, vec![at(T + 1), at(T + 2)].into()),
        x(10, vec![Bson::from("s"), at(T).into(), Bson::Null].into()),
        x(11, vec![Bson::from(vec![at(T)])].into()),
        x(12, vec![Bson::from(vec![at(T)]), at(T).into()].into()),
        x(13, T.into()),
        x(14, doc! { "x": at(T) }.into()),
        x(15, vec![at(i64::MAX), at(i64::MIN)].into()),
        x(16, at(T + 3_600_000).into()),
    ];
    let (names, rules) = indexed_copies(&case, "x", &documents).await;
    let server = case.collection("plain").find(doc! { "x": { "$lte": at(T) } }).await.expect("a cursor");
    let expired = futures_util::TryStreamExt::try_collect::<Vec<Document>>(server).await.expect("all documents");
    let expired = id_set(expired.iter().filter_map(|document| document.get("_id").cloned()));
    assert_eq!(expired, id_set([1, 2, 4, 6, 7, 8, 10, 12, 15]), "the server's own answer");
    let report = case.report(&rules, &["--as-of", AS_OF]).await;
    for (n, name) in names.iter().enumerate() {
        assert_eq!(report.rule(n, "threshold"), "2024-05-01T11:00:00.123Z");
        assert_eq!(report.rule(n, "deletedCount"), 9, "{name}");
        assert_eq!(case.ids(name).await, id_set([3, 5, 9, 11, 13, 14, 16]), "{name}");
    }
}

async fn generated_documents_go_as_the_servers_own_comparison_says(server: &Server) {
    let dates = [T - 1, T, T + 1, T + 2, T + 3_600_000, i64::MIN, i64::MAX, -1, 0].map(at);
    for (seed, path) in ["x", "a.b", "a.b.c", "a.0.b"].into_iter().enumerate() {
        let case = server.case().await;
        // The server cannot index documents in which a number is both a field name and an array position.
        let mut documents = Corpus::new(100 + seed as u64, &dates).around(path, 500);
        let probe = doc! { "createIndexes": "probe", "indexes": [{ "name": "i", "key": { path: 1 } }] };
        case.db.run_command(probe).await.expect("an index");
        let _refusals = case.collection("probe").insert_many(&documents).ordered(false).await;
        let insertable = case.ids("probe").await;
        documents.retain(|document| {
            let id = document.get("_id").cloned();
            insertable.contains(&id_set(id).into_iter().next().unwrap_or_default())
        });
        let (names, rules) = indexed_copies(&case, path, &documents).await;
        let survivors = |documents: &[Document]| {
            let kept = documents.iter().filter(|document| reference::earliest(document, path).is_none_or(|date| date > at(T)));
            id_set(kept.filter_map(|document| document.get("_id").cloned()))
        };
        let server = case.collection("plain");
        let out = [doc! { "$match": { "$nor": [{ path: { "$lte": at(T) } }] } }, doc! { "$out": "kept" }];
        server.aggregate(out).await.expect("the server's own answer");
        let expected = ids(&case.collection("kept")).await;
        assert_eq!(expected, survivors(&documents), "{path}: the reference");
        case.report(&rules, &["--as-of", AS_OF]).await;
        for name in &names {
            assert_eq!(case.ids(name).await, expected, "{path}, {name}");
        }
    }
}

on_servers!(
    the_threshold_itself_expires_and_a_millisecond_later_does_not,
    generated_documents_go_as_the_servers_own_comparison_says
);
