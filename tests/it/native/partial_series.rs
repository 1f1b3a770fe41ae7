//! Partial TTL indexes of time-series collections, which MongoDB has from 7.0 on.

use crate::support::audit::audit;
use crate::support::native::{column, command, index, indexes, native};
use crate::support::sweeper::Case;
use crate::support::version::version;
use mongodb::bson::doc;
use serde_json::{Value, json};

const RULES: &str = "  - {namespace: DB.made, expireAfter: 1d, filter: {m.k: a}}
  - {name: there, namespace: DB.there, expireAfter: 1d, filter: {m.k: {$in: [a, b]}}}
  - {name: other, namespace: DB.there, expireAfter: 2d, filter: {m.k: c}}
  - {namespace: DB.folded, expireAfter: 1d, filter: {m.k: a}, collation: {locale: en}}\n";

#[tokio::test]
async fn a_filter_on_the_meta_field_is_a_partial_index_from_7_0_on() {
    let case = Case::new().await;
    let db = &case.db;
    for name in ["made", "there", "folded"] {
        command(db, doc! { "create": name, "timeseries": { "timeField": "t", "metaField": "m" } }).await;
    }
    if version(db).await.major < 7 {
        let (ran, report) = native(&case, RULES, &["diff"]).await;
        assert_eq!((ran.code, column(&report, "/state")), (Some(0), vec![json!("impossible"); 4]), "{ran:?}");
        return;
    }
    let partial = |words: &[&str]| doc! { "expireAfterSeconds": 86_400, "partialFilterExpression": { "m.k": { "$in": words } } };
    index(db, "there", doc! { "t": 1 }, "ab", partial(&["a", "b"])).await;
    let third = doc! { "expireAfterSeconds": 86_400, "partialFilterExpression": { "m.k": "c" } };
    index(db, "there", doc! { "t": -1 }, "c", third).await;

    let (ran, report) = native(&case, RULES, &["apply", "--yes"]).await;
    assert_eq!(column(&report, "/state"), ["missing", "same", "differs", "impossible"].map(Value::from), "{ran:?}");
    let reasons = column(&report, "/reason");
    assert!(reasons[2].as_str().unwrap().contains("drop `c`"), "{reasons:?}");
    assert_eq!(reasons[3], "a partial TTL index of a time-series collection takes no collation");
    let made = indexes(db, "made").await;
    let made = made.iter().find(|index| index.contains_key("expireAfterSeconds")).unwrap_or_else(|| panic!("{made:?}"));
    assert_eq!(made.get_document("partialFilterExpression").unwrap(), &doc! { "m.k": "a" });
    let (_, again) = native(&case, RULES, &["diff"]).await;
    assert_eq!(column(&again, "/state"), ["same", "same", "differs", "impossible"].map(Value::from), "{again:#}");

    let audited = audit(&case, RULES, &[]).await;
    // The monitor of the tests' servers is off.
    let compared = audited.rule(1, "nativeComparison")["detail"].as_str().unwrap();
    assert!(compared.starts_with("the TTL index `ab` (expireAfterSeconds 86400) deletes nothing: "), "{compared}");
    let dry = case.report(RULES, &["--dry-run"]).await;
    assert!(
        dry.rule(1, "warnings").to_string().contains("the TTL index `ab` (expireAfterSeconds 86400) deletes from"),
        "{dry:?}"
    );
}
