//! Sampled figures of a collection that is too big to read every document.

use crate::support::audit::{audit, sum};
use crate::support::big::{AS_OF, DOCUMENTS, big};
use serde_json::Value;

#[tokio::test]
async fn a_big_collection_is_sampled_evenly_unless_exact_figures_are_asked_for() {
    let case = big().await;
    let rules = "  - {name: all, namespace: DB.big, field: at, expireAfter: 30d, allowCollectionScan: true}
  - {name: half, namespace: DB.big, field: at, expireAfter: 30d, allowCollectionScan: true, filter: {even: 0}}\n";
    let sampled = audit(&case, rules, &["--as-of", AS_OF]).await;
    let exact = audit(&case, rules, &["--exact", "--as-of", AS_OF]).await;
    for (rule, whole) in [(0, DOCUMENTS), (1, DOCUMENTS / 2)] {
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
        assert!(sampling["of"] == DOCUMENTS && (0.30..0.33).contains(&margin), "{sampling}");
        // Three times the margin of 95 %, about six standard deviations.
        let allowed = 3.0 * margin / 100.0 * DOCUMENTS as f64;
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
