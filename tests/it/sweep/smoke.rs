//! The main task from end to end: exact survivors of a date rule.

use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{DateTime, doc};

#[tokio::test]
async fn a_sweep_deletes_what_has_expired_and_nothing_else() {
    let case = Case::new().await;
    let day = 86_400_000;
    let now = DateTime::now().timestamp_millis();
    case.fill("c", (-3..3).map(|n| doc! { "_id": n, "at": DateTime::from_millis(now + n * day - 60_000) })).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
    let dry = case.report(rules, &["--dry-run"]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    assert_eq!(dry.rule(0, "expiredCount"), 3);
    assert_eq!(case.ids("c").await.len(), 6);
    let swept = case.report(rules, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.rule(0, "deletedCount"), 3);
    assert_eq!(case.ids("c").await, id_set([0_i64, 1, 2]));
}
