//! mongod's TTL monitor sweeps one collection, `sweeper` its copies: the same documents survive.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::support::corpus::{Corpus, scalars};
use crate::support::native::index;
use crate::support::oracle::Oracle;
use crate::support::reference;
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::id_set;
use mongodb::bson::{Bson, DateTime, Document, doc};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 3_600_000;

/// Returns dates around the threshold of one hour, none so close that the time of the monitor's pass matters.
fn dates() -> Vec<DateTime> {
    let now = DateTime::now().timestamp_millis();
    let at = |millis: i64| DateTime::from_millis(millis);
    vec![
        at(i64::MIN),
        at(i64::MIN + 1),
        at(-2_208_988_800_000),
        at(-1),
        at(0),
        at(now - 20 * HOUR),
        at(now - HOUR - 10 * MINUTE),
        at(now - HOUR + 10 * MINUTE),
        at(now - HOUR + 11 * MINUTE),
        at(now),
        at(now + HOUR),
        at(now + 24 * HOUR),
        at(now + 10_000 * 24 * HOUR),
        at(i64::MAX),
    ]
}

fn ids_of<'a>(documents: impl IntoIterator<Item = &'a Document>) -> BTreeSet<String> {
    id_set(documents.into_iter().filter_map(|document| document.get("_id").cloned()))
}

#[tokio::test]
async fn generated_documents_survive_as_under_the_monitor() {
    const PATHS: [&str; 9] = ["x", "a.b", "a.b.c", "a.0", "a.1", "a.0.b", "a.b.0", "a.0.0", "0.b"];
    let indexes = |path: &str| {
        [
            ("plain", Document::new()),
            ("asc", doc! { path: 1 }),
            ("desc", doc! { path: -1 }),
            ("compound", doc! { path: 1, "tag": 1 }),
            ("compoundDesc", doc! { path: -1, "tag": -1 }),
        ]
    };
    let oracle = Oracle::new("generated").await;
    let dates = dates();
    let threshold = DateTime::from_millis(DateTime::now().timestamp_millis() - HOUR);
    let mut rules = String::new();
    let mut expected = Vec::new();
    for (n, path) in PATHS.into_iter().enumerate() {
        let native = format!("native{n}");
        oracle.index(&native, doc! { path: if n % 2 == 0 { 1 } else { -1 } }, doc! { "expireAfterSeconds": 3600 }).await;
        let made = Corpus::new(n as u64, &dates).around(path, 900);
        let documents = oracle.fill_indexed(&native, &made).await;
        oracle.fill(&format!("plain{n}"), &documents).await;
        for (kind, key) in indexes(path) {
            if !key.is_empty() {
                oracle.copy(&format!("plain{n}"), &format!("{kind}{n}")).await;
                oracle.index(&format!("{kind}{n}"), key, doc! {}).await;
            }
            writeln!(rules, "  - {{namespace: DB.{kind}{n}, field: {path}, expireAfter: 1h, batchSize: 70}}").expect("a string");
        }
        let survivors =
            ids_of(documents.iter().filter(|document| reference::earliest(document, path).is_none_or(|date| date > threshold)));
        assert!(
            documents.len() > 500 && survivors.len() * 10 > documents.len() && survivors.len() * 10 < documents.len() * 9,
            "{path}: {} of {} documents survive, so the test shows little",
            survivors.len(),
            documents.len()
        );
        expected.push(survivors);
    }
    oracle.let_the_monitor_pass().await;
    let report = oracle.sweep(&rules).await;
    for (n, path) in PATHS.into_iter().enumerate() {
        assert_eq!(oracle.ids(&format!("native{n}")).await, expected[n], "{path}: the monitor and the reference");
        for (k, (kind, key)) in indexes(path).into_iter().enumerate() {
            assert_eq!(oracle.ids(&format!("{kind}{n}")).await, expected[n], "{path}, {kind}");
            let strategy = if key.is_empty() { "collectionScan" } else { "index" };
            assert_eq!(report.rule(n * 5 + k, "strategy"), strategy, "{path}, {kind}");
        }
    }
}

/// A field, documents that expire by it, and documents that do not.
type Shapes = (&'static str, Vec<Document>, Vec<Document>);

fn documented() -> Vec<Shapes> {
    let (p, f) = (DateTime::from_millis(DateTime::now().timestamp_millis() - 24 * HOUR), DateTime::MAX);
    let early = DateTime::from_millis(-1);
    let x = |value: Bson| doc! { "x": value };
    let list = |items: Vec<Bson>| x(Bson::Array(items));
    let (past, future) = (Bson::from(p), Bson::from(f));
    let mut table: Vec<Shapes> = vec![
        (
            "x",
            vec![
                x(past.clone()),
                x(early.into()),
                x(DateTime::MIN.into()),
                list(vec![past.clone()]),
                list(vec![past.clone(), future.clone()]),
                list(vec![future.clone(), past.clone()]),
                list(vec![past.clone(), "s".into()]),
                list(vec![Bson::Null, past.clone()]),
                list(vec![vec![p].into(), past.clone()]),
                list(vec![early.into()]),
            ],
            vec![
                doc! {},
                x(future.clone()),
                list(vec![]),
                list(vec![future.clone()]),
                list(vec!["s".into(), 1.into(), Bson::Null]),
                list(vec![vec![p].into()]),
                list(vec![vec![p].into(), future.clone()]),
                list(vec![doc! { "x": p }.into()]),
                x(doc! { "x": p }.into()),
                x(doc! { "$ref": "c", "$id": p }.into()),
            ],
        ),
        (
            "a.b",
            vec![
                doc! { "a": { "b": p } },
                doc! { "a": [{ "b": p }] },
                doc! { "a": [{ "b": f }, { "b": p }] },
                doc! { "a": [5, { "b": p }] },
                doc! { "a": { "b": [p, f] } },
                doc! { "a": [{ "b": [f, p] }] },
            ],
            vec![
                doc! { "a": [{ "b": f }, { "b": f }] },
                doc! { "a": p },
                doc! { "a": [p] },
                doc! { "a": {} },
                doc! { "a": [[{ "b": p }]] },
                doc! { "a": { "b": [[p]] } },
                doc! { "a": { "b": { "c": p } } },
                doc! { "a.b": p },
                doc! { "a": { "B": p } },
                doc! { "A": { "b": p } },
            ],
        ),
        (
            "a.0",
            vec![doc! { "a": [p] }, doc! { "a": [p, f] }, doc! { "a": { "0": p } }],
            vec![doc! { "a": [f, p] }, doc! { "a": [[p]] }, doc! { "a": [[f, p]] }, doc! { "a": p }],
        ),
        (
            "a.0.b",
            vec![doc! { "a": [{ "b": p }] }, doc! { "a": { "0": { "b": p } } }, doc! { "a": [[{ "b": p }]] }],
            vec![doc! { "a": [{ "b": f }, { "b": p }] }],
        ),
    ];
    table[0].2.extend(scalars().into_iter().map(x));
    table
}

/// Numbers the documents, first those that expire.
fn numbered((_, expire, stay): &Shapes) -> Vec<Document> {
    let with_id = |(id, document): (usize, &Document)| {
        let mut numbered = doc! { "_id": id as i32 };
        numbered.extend(document.clone());
        numbered
    };
    expire.iter().chain(stay).enumerate().map(with_id).collect()
}

#[tokio::test]
async fn every_documented_shape_survives_as_under_the_monitor() {
    let table = documented();
    let oracle = Oracle::new("documented").await;
    let mut rules = String::new();
    let mut expected = Vec::new();
    for (n, shapes) in table.iter().enumerate() {
        let (path, expire, _) = shapes;
        let documents = numbered(shapes);
        oracle.index(&format!("native{n}"), doc! { *path: 1 }, doc! { "expireAfterSeconds": 3600 }).await;
        for kind in ["native", "plain", "asc", "desc"] {
            oracle.fill(&format!("{kind}{n}"), &documents).await;
        }
        oracle.index(&format!("asc{n}"), doc! { *path: 1 }, doc! {}).await;
        oracle.index(&format!("desc{n}"), doc! { *path: -1 }, doc! {}).await;
        for kind in ["plain", "asc", "desc"] {
            writeln!(rules, "  - {{namespace: DB.{kind}{n}, field: {path}, expireAfter: 1h}}").expect("a string");
        }
        expected.push(ids_of(&documents[expire.len()..]));
    }
    oracle.let_the_monitor_pass().await;
    oracle.sweep(&rules).await;
    for (n, expected) in expected.iter().enumerate() {
        for kind in ["native", "plain", "asc", "desc"] {
            assert_eq!(oracle.ids(&format!("{kind}{n}")).await, *expected, "{}, {kind}", table[n].0);
        }
    }
}

async fn every_documented_shape_goes_or_stays(server: &Server) {
    let case = server.case().await;
    for (n, shapes) in documented().iter().enumerate() {
        let (path, expire, _) = shapes;
        let documents = server.indexable(&numbered(shapes));
        let mut rules = String::new();
        for (kind, direction) in [("plain", 0), ("asc", 1), ("desc", -1)] {
            let name = format!("{kind}{n}");
            if direction != 0 {
                index(&case.db, &name, doc! { *path: direction }, "i", doc! {}).await;
            }
            case.fill(&name, documents.clone()).await;
            writeln!(rules, "  - {{namespace: DB.{name}, field: {path}, expireAfter: 1h}}").expect("a string");
        }
        let swept = case.report(&rules, &[]).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        for kind in ["plain", "asc", "desc"] {
            assert_eq!(case.ids(&format!("{kind}{n}")).await, ids_of(&documents[expire.len()..]), "{path}, {kind}");
        }
    }
}

on_servers!(every_documented_shape_goes_or_stays);
