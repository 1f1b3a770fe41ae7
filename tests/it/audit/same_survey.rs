//! An audit and a dry run look at a rule in the same way, also where a look fails.

use mongodb::bson::doc;

use crate::support::audit::{audit, warnings};
use crate::support::family::{fill, lines_of, orders, rule};
use crate::support::faults::{dated, days, fail_commands, heal, set_alone};
use crate::support::sweeper::{Case, Report};

/// Returns a dry run and an audit of the same documents.
async fn both(case: &Case, rules: &str) -> [Report; 2] {
    [case.report(rules, &["--dry-run"]).await, audit(case, rules, &[]).await]
}

#[tokio::test]
async fn a_limit_of_the_run_that_sets_the_order_sets_it_for_both() {
    let case = Case::new().await;
    case.fill("c", dated(0..20, days(-3))).await;
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    for (run, reason) in [("run: {rate: 5000}\n", "under rate the oldest go first"), ("", "the collection is small")] {
        for report in both(&case, &format!("  - {{namespace: DB.c, field: at, expireAfter: 1d}}\n{run}")).await {
            assert_eq!(report.rule(0, "orderReason"), reason, "{report:?}");
        }
    }
}

/// Children are counted to be told; orphans that the rule deletes decide about it.
#[tokio::test]
async fn what_is_only_told_may_fail_and_what_decides_may_not() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..10, 10..12).await;
    // An error that does not pass.
    let data = doc! { "failCommands": ["aggregate"], "namespace": "t.lines", "errorCode": 2 };
    fail_commands(&case.client, "alwaysOn", data).await;
    for report in both(&case, &rule("")).await {
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
        assert_eq!((report.rule(0, "expiredCount"), report.rule(0, "childrenCount")), (&10.into(), &().into()), "{report:?}");
        assert!(warnings(&report, 0).contains("children: not measured: "), "{report:?}");
    }
    for report in both(&case, &rule(", orphans: true")).await {
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(3), &"failed".into()), "{report:?}");
        let error = report.rule(0, "error").as_str().unwrap();
        assert!(error.starts_with("counting: ") && error.ends_with("nothing was deleted there"), "{report:?}");
        assert_eq!(report.rule(0, "expiredCount"), 10, "what was counted before stays: {report:?}");
    }
    heal(&case.client).await;
    for report in both(&case, &rule("")).await {
        assert_eq!(report.rule(0, "childrenCount"), 30, "{report:?}");
    }
    assert_eq!((orders(&case).await.len(), lines_of(&case).await.len()), (12, 12));
}
