//! Results equal the results of mongod's TTL monitor for every type of `_id` and every name of a collection.

use std::fmt::Write;

use crate::support::corpus::scalars;
use crate::support::oracle::Oracle;
use crate::support::sweeper::id_set;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

const HOUR: i64 = 3_600_000;

fn hours_ago(hours: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() - hours * HOUR)
}

/// Returns an `_id` of every type allowed for it.
fn every_id() -> Vec<Bson> {
    let mut ids = scalars();
    // Equal numbers are equal `_id`s; an index with a collation accepts no symbols.
    ids.retain(|id| {
        !matches!(
            id,
            Bson::RegularExpression(_)
                | Bson::Undefined
                | Bson::Symbol(_)
                | Bson::Decimal128(_)
                | Bson::Double(_)
                | Bson::Int64(0)
        )
    });
    ids.extend([
        f64::NAN.into(),
        f64::INFINITY.into(),
        0.5.into(),
        Bson::Decimal128("0.1".parse().expect("a decimal")),
        "a".into(),
        "A".into(),
        "\u{e4}\u{1f600}".into(),
        DateTime::from_millis(5).into(),
        DateTime::MIN.into(),
        doc! {}.into(),
        doc! { "a": 1, "b": { "c": [1, { "d": Bson::Null }] } }.into(),
        doc! { "b": { "c": [1, { "d": Bson::Null }] }, "a": 1 }.into(),
        doc! { "a": "x".repeat(900) }.into(),
        doc! { "a.b": 1 }.into(),
    ]);
    ids
}

#[tokio::test]
async fn ids_of_every_type_are_deleted_and_kept() {
    let oracle = Oracle::new("ids").await;
    oracle.index("native", doc! { "x": 1 }, doc! { "expireAfterSeconds": 3600 }).await;
    oracle.command(doc! { "create": "folded", "collation": { "locale": "en", "strength": 3 } }).await;
    let ids = every_id();
    let [even, odd] = [0, 1].map(|rest| {
        let documents = ids.iter().enumerate().map(move |(n, id)| {
            let hours = if n % 2 == rest { 24 } else { -24 };
            doc! { "_id": id.clone(), "x": hours_ago(hours) }
        });
        documents.collect::<Vec<Document>>()
    });
    let mut rules = String::new();
    for name in ["plain", "asc", "folded"] {
        oracle.fill(name, &even).await;
        writeln!(rules, "  - {{namespace: DB.{name}, field: x, expireAfter: 1h, batchSize: 3}}").expect("a string");
    }
    oracle.fill("other", &odd).await;
    oracle.index("asc", doc! { "x": 1 }, doc! {}).await;
    let rules =
        format!("{rules}  - {{namespace: DB.other, field: x, expireAfter: 1h, collation: {{locale: en, strength: 1}}}}\n");
    oracle.fill("native", &even).await;
    oracle.let_the_monitor_pass().await;
    oracle.sweep(&rules).await;
    let kept = |first: usize| id_set(ids.iter().skip(first).step_by(2).cloned());
    for name in ["native", "plain", "asc", "folded"] {
        assert_eq!(oracle.ids(name).await, kept(1), "{name}");
    }
    // The other half expires in this collection, so that every type is deleted once. The collation treats `a` and `A` as equal,
    // yet only one of them may be deleted.
    assert_eq!(oracle.ids("other").await, kept(0));
}

#[tokio::test]
async fn a_date_inside_the_id_is_swept_as_under_the_monitor() {
    let oracle = Oracle::new("inside").await;
    oracle.index("native", doc! { "_id.t": 1 }, doc! { "expireAfterSeconds": 3600 }).await;
    oracle.index("asc", doc! { "_id.t": 1 }, doc! {}).await;
    let (past, future) = (hours_ago(24), hours_ago(-24));
    let stay = [
        doc! { "_id": { "t": future } },
        doc! { "_id": { "t": [[past]] } },
        doc! { "_id": { "t": 0 } },
        doc! { "_id": { "T": past } },
        doc! { "_id": past },
        doc! { "_id": ObjectId::from_bytes([0; 12]) },
    ];
    let go = [doc! { "_id": { "t": past } }, doc! { "_id": { "t": past, "n": 1 } }, doc! { "_id": { "t": [future, past] } }];
    let documents: Vec<Document> = stay.iter().chain(&go).cloned().collect();
    for name in ["plain", "asc", "native"] {
        oracle.fill(name, &documents).await;
    }
    oracle.let_the_monitor_pass().await;
    oracle
        .sweep(
            "  - {namespace: DB.plain, field: _id.t, expireAfter: 1h}\n  - {namespace: DB.asc, field: _id.t, expireAfter: 1h}\n",
        )
        .await;
    let expected = id_set(stay.iter().filter_map(|document| document.get("_id").cloned()));
    for name in ["native", "plain", "asc"] {
        assert_eq!(oracle.ids(name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn collections_are_found_by_any_name_they_can_have() {
    const NAMES: [&str; 11] = [
        "with.dots.in.it",
        "two words",
        " blanks around ",
        "\u{fc}n\u{ef}code.\u{96c6}\u{5408}\u{1f600}",
        "quote'and\"double",
        "colon: comma, #hash",
        "back\\slash/slash",
        "new\nline\ttab",
        "-dash",
        "{brace}[bracket]",
        "1e3",
    ];
    let oracle = Oracle::new("names").await;
    let mut rules = String::new();
    for name in NAMES {
        oracle.index(&format!("n{name}"), doc! { "x": 1 }, doc! { "expireAfterSeconds": 3600 }).await;
        for collection in [format!("n{name}"), name.to_owned()] {
            let documents = (-2..2).map(|n| doc! { "_id": n, "x": hours_ago(24 * n + 12) }).collect::<Vec<_>>();
            oracle.fill(&collection, &documents).await;
        }
        let namespace = serde_json::to_string(&format!("DB.{name}")).expect("a JSON string");
        writeln!(rules, "  - {{namespace: {namespace}, field: x, expireAfter: 1h}}").expect("a string");
    }
    oracle.let_the_monitor_pass().await;
    let report = oracle.sweep(&rules).await;
    for (n, name) in NAMES.into_iter().enumerate() {
        assert_eq!(oracle.ids(name).await, id_set([-2_i64, -1]), "{name:?}");
        assert_eq!(oracle.ids(&format!("n{name}")).await, id_set([-2_i64, -1]), "{name:?}, the monitor");
        assert_eq!(report.rule(n, "namespace"), &format!("names.{name}"));
        assert_eq!(report.rule(n, "deletedCount"), 2, "{name:?}");
    }
}

#[tokio::test]
async fn a_collation_does_not_make_one_id_stand_for_two() {
    let oracle = Oracle::new("folded").await;
    for name in ["one", "most"] {
        let ids = ["a", "A", "b", "B"];
        oracle.fill(name, &ids.map(|id| doc! { "_id": id, "x": hours_ago(24) })).await;
    }
    let rule = |name: &str| {
        format!(
            "  - {{namespace: DB.{name}, field: x, expireAfter: 1h, collation: {{locale: en, strength: 2}}, batchSize: 1, concurrency: 1}}\n"
        )
    };
    let report = oracle.sweep_with(&rule("most"), &["--max-deletes", "1"], 4).await;
    assert_eq!(report.rule(0, "deletedCount"), 1, "{report:?}");
    assert_eq!(oracle.ids("most").await.len(), 3);
    let report = oracle.sweep(&rule("one")).await;
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "batches")), (&4.into(), &4.into()));
}
