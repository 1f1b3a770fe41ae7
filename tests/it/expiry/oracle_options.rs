//! Results equal the results of mongod's TTL monitor with options on the index or the collection: a partial index, its collation,
//! a clustered collection.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::support::oracle::Oracle;
use crate::support::sweeper::id_set;
use crate::support::version::version;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, doc};

const HOUR: i64 = 3_600_000;

fn ids_of(documents: &[Document]) -> BTreeSet<String> {
    id_set(documents.iter().filter_map(|document| document.get("_id").cloned()))
}

#[tokio::test]
async fn a_partial_index_and_its_collation_become_filter_and_collation() {
    let oracle = Oracle::new("partial").await;
    let now = DateTime::now().timestamp_millis();
    let words: Vec<Bson> = vec![
        "abc".into(),
        "ABC".into(),
        "aBc".into(),
        "abd".into(),
        "\u{e1}bc".into(),
        vec!["q", "ABC"].into(),
        vec!["q"].into(),
        Bson::Null,
        5.into(),
    ];
    let mut documents = Vec::new();
    for (n, word) in words.iter().enumerate() {
        for (k, age) in [24 * HOUR, -24 * HOUR].into_iter().enumerate() {
            let date = DateTime::from_millis(now - age);
            let x = if n % 2 == 0 { Bson::from(date) } else { vec![Bson::from("s"), date.into()].into() };
            documents.push(doc! { "_id": format!("{n} {k} X"), "s": word.clone(), "x": x });
        }
    }
    let partial = doc! { "partialFilterExpression": { "s": "abc" } };
    let weak = doc! { "locale": "en", "strength": 2 };
    let simple = doc! { "locale": "simple" };
    // Default collation of the collection, collation of the index, collation in the policy, positions of the words that are
    // deleted.
    let cases = [
        (None, None, None, vec![0]),
        (None, Some(&weak), Some("{locale: en, strength: 2}"), vec![0, 1, 2, 5]),
        (Some(&weak), None, None, vec![0, 1, 2, 5]),
        (Some(&weak), Some(&simple), Some("{locale: simple}"), vec![0]),
    ];
    let mut rules = String::new();
    for (n, (default, of_index, of_rule, _)) in cases.iter().enumerate() {
        for kind in ["native", "plain", "asc", "desc"] {
            let name = format!("{kind}{n}");
            let mut create = doc! { "create": &name };
            create.extend(default.map(|collation| ("collation".to_owned(), Bson::from(collation.clone()))));
            oracle.command(create).await;
            let mut options = partial.clone();
            options.extend(of_index.map(|collation| ("collation".to_owned(), Bson::from(collation.clone()))));
            match kind {
                "native" => {
                    options.insert("expireAfterSeconds", 3600);
                    oracle.index(&name, doc! { "x": 1 }, options).await;
                }
                "asc" => oracle.index(&name, doc! { "x": 1 }, options).await,
                "desc" => oracle.index(&name, doc! { "x": -1 }, options).await,
                _ => {}
            }
            oracle.fill(&name, &documents).await;
            if kind != "native" {
                let collation = of_rule.map_or(String::new(), |collation| format!(", collation: {collation}"));
                writeln!(
                    rules,
                    "  - {{namespace: DB.{name}, field: x, expireAfter: 1h, filter: {{s: abc}}{collation}, batchSize: 1}}"
                )
                .expect("a string");
            }
        }
    }
    oracle.let_the_monitor_pass().await;
    let report = oracle.sweep(&rules).await;
    for (n, (.., gone)) in cases.iter().enumerate() {
        let gone: BTreeSet<String> = id_set(gone.iter().map(|word| format!("{word} 0 X")));
        let expected: BTreeSet<String> = ids_of(&documents).difference(&gone).cloned().collect();
        for (k, kind) in ["plain", "asc", "desc"].into_iter().enumerate() {
            let strategy = if kind == "plain" { "collectionScan" } else { "index" };
            assert_eq!(report.rule(n * 3 + k, "strategy"), strategy, "case {n}, {kind}");
            assert_eq!(oracle.ids(&format!("{kind}{n}")).await, expected, "case {n}, {kind}");
        }
        assert_eq!(oracle.ids(&format!("native{n}")).await, expected, "case {n}, the monitor");
    }
}

#[tokio::test]
async fn a_clustered_collection_with_date_ids_is_swept_as_its_own_ttl_does() {
    let oracle = Oracle::new("clustered").await;
    let clustered = |name: &str| doc! { "create": name, "clusteredIndex": { "key": { "_id": 1 }, "unique": true } };
    let mut native = clustered("native");
    native.insert("expireAfterSeconds", 3600_i64);
    oracle.command(native).await;
    oracle.command(clustered("swept")).await;
    let now = DateTime::now().timestamp_millis();
    let old = [i64::MIN, -2_208_988_800_000, -1, 0, now - 20 * HOUR, now - 2 * HOUR];
    let new = [now - HOUR / 2, now, now + HOUR, i64::MAX];
    let dates = old.iter().chain(&new).map(|millis| doc! { "_id": DateTime::from_millis(*millis) });
    let mut documents: Vec<Document> = dates.collect();
    documents.extend([
        doc! { "_id": ObjectId::from_bytes([0; 12]) },
        doc! { "_id": "2001-01-01T00:00:00Z" },
        doc! { "_id": 0 },
        doc! { "_id": { "at": DateTime::from_millis(0) } },
        doc! { "_id": Timestamp { time: 1, increment: 1 } },
    ]);
    oracle.fill("native", &documents).await;
    oracle.fill("swept", &documents).await;
    oracle.let_the_monitor_pass().await;
    oracle.sweep("  - {namespace: DB.swept, field: _id, expireAfter: 1h, batchSize: 2}\n").await;
    let mut expected = ids_of(&documents[old.len()..]);
    if version(&oracle.db).await.major >= 7 {
        // From 7.0 on the monitor keeps dates before 1970.
        expected.extend(ids_of(&documents[..3]));
    }
    assert_eq!(oracle.ids("native").await, expected, "the monitor");
    assert_eq!(oracle.ids("swept").await, expected);
}

#[tokio::test]
async fn an_index_that_leaves_expired_documents_out_is_not_used() {
    let oracle = Oracle::new("uncovered").await;
    let weak = doc! { "locale": "en", "strength": 2 };
    let partial = || doc! { "partialFilterExpression": { "s": "abc" } };
    oracle.index("native", doc! { "x": 1 }, doc! { "expireAfterSeconds": 3600 }).await;
    oracle.index("swept", doc! { "x": 1 }, partial()).await;
    let mut folded = partial();
    folded.extend(doc! { "collation": weak, "expireAfterSeconds": 3600 });
    oracle.index("nativeFolded", doc! { "x": 1 }, folded).await;
    oracle.index("sweptFolded", doc! { "x": 1 }, partial()).await;
    let past = DateTime::from_millis(DateTime::now().timestamp_millis() - 24 * HOUR);
    let dated = [(1, "abc"), (2, "ABC"), (3, "x")].map(|(id, s)| doc! { "_id": id, "s": s, "x": past });
    let documents: Vec<Document> = dated.into_iter().chain([doc! { "_id": 0, "s": "abc" }]).collect();
    for name in ["native", "swept", "nativeFolded", "sweptFolded"] {
        oracle.fill(name, &documents).await;
    }
    oracle.let_the_monitor_pass().await;
    let rules = "  - {namespace: DB.swept, field: x, expireAfter: 1h}\n  \
                   - {namespace: DB.sweptFolded, field: x, expireAfter: 1h, filter: {s: abc}, collation: {locale: en, strength: 2}}\n";
    oracle.sweep(rules).await;
    for name in ["native", "swept"] {
        assert_eq!(oracle.ids(name).await, id_set([0]), "{name}");
    }
    for name in ["nativeFolded", "sweptFolded"] {
        assert_eq!(oracle.ids(name).await, id_set([3, 0]), "{name}");
    }
}
