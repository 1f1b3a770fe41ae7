//! Sampled figures of a collection that is too big to read every document.

use crate::support::audit::{audit, sum};
use crate::support::sweeper::Case;
use mongodb::bson::{DateTime, doc};
use serde_json::Value;

/// Creates 1,100,000 documents on the server, one for every ten seconds before `now`; the newest has the `_id` 0.
async fn fill_big(case: &Case, now: DateTime) {
    let id = doc! { "$add": [{ "$multiply": ["$a", 1000] }, "$b"] };
    let stages = vec![
        doc! { "$documents": [{ "a": { "$range": [0, 1100] } }] },
        doc! { "$unwind": "$a" },
        doc! { "$set": { "b": { "$range": [0, 1000] } } },
        doc! { "$unwind": "$b" },
        doc! { "$project": { "_id": &id, "even": { "$mod": ["$b", 2] }, "at": { "$subtract": [now, { "$multiply": [&id, 10_000] }] } } },
        doc! { "$out": "big" },
    ];
    case.db.run_command(doc! { "aggregate": 1, "pipeline": stages, "cursor": {} }).await.expect("an aggregate");
}

#[tokio::test]
async fn a_big_collection_is_sampled_evenly_unless_exact_figures_are_asked_for() {
    let case = Case::new().await;
    let as_of = "2026-01-31T02:00:00.000Z";
    let now = DateTime::parse_rfc3339_str(as_of).unwrap();
    fill_big(&case, now).await;
    let rules = "  - {name: all, namespace: DB.big, field: at, expireAfter: 30d, allowCollectionScan: true}
  - {name: half, namespace: DB.big, field: at, expireAfter: 30d, allowCollectionScan: true, filter: {even: 0}}\n";
    let sampled = audit(&case, rules, &["--as-of", as_of]).await;
    let exact = audit(&case, rules, &["--exact", "--as-of", as_of]).await;
    for (rule, whole) in [(0, 1_100_000_u64), (1, 550_000)] {
        assert_eq!(exact.rule(rule, "sampling"), &Value::Null);
        let (expired, kept) =
            (sum(exact.rule(rule, "ageHistogram"), "expiredCount"), sum(exact.rule(rule, "ageHistogram"), "notExpiredCount"));
        assert_eq!((exact.rule(rule, "expiredCount"), expired + kept), (&expired.into(), whole));
        // The number of expired documents is counted, not projected.
        assert_eq!(sampled.rule(rule, "expiredCount"), exact.rule(rule, "expiredCount"));
        assert_eq!(sampled.rule(rule, "oldestExpired"), exact.rule(rule, "oldestExpired"));
        assert_eq!(sampled.rule(rule, "newestExpired"), &Value::Null);
        let sampling = sampled.rule(rule, "sampling");
        let drawn = sampling["documents"].as_u64().unwrap();
        assert!((95_000..105_000).contains(&drawn), "{sampling}");
        let margin = sampling["marginPercent"].as_f64().unwrap();
        assert!(sampling["of"] == 1_100_000 && (0.30..0.33).contains(&margin), "{sampling}");
        // Three times the margin of 95 %, about six standard deviations.
        let allowed = 3.0 * margin / 100.0 * 1_100_000.0;
        let (drawn_ages, true_ages) = (sampled.rule(rule, "ageHistogram"), exact.rule(rule, "ageHistogram"));
        for range in true_ages.as_array().unwrap() {
            let same = drawn_ages.as_array().unwrap().iter().find(|other| other["minAgeSeconds"] == range["minAgeSeconds"]);
            for key in ["expiredCount", "notExpiredCount"] {
                let projected = same.map_or(0.0, |same| same[key].as_f64().unwrap());
                assert!((projected - range[key].as_f64().unwrap()).abs() <= allowed, "{range}: projected {projected}");
            }
        }
    }
    assert!(sampled.json["totals"]["expiredCount"].as_u64() > Some(800_000));
}
