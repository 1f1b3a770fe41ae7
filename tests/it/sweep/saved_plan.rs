//! `sweep --plan` deletes exactly the documents that a saved report approved, and nothing if anything relevant has changed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::faults::{alone, dated, days, end, pause_deletes, resume_deletes, start, until_running};
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::bson::{DateTime, doc};
use serde_json::Value;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

/// Saves the report of a dry run next to the policy.
async fn approve(case: &Case, rules: &str) -> PathBuf {
    let path = case.dir.path().join("plan.json");
    let ran = case.run(rules, &["sweep", "--dry-run", "-o", path.to_str().unwrap()]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    path
}

async fn sweep(case: &Case, rules: &str, plan: &Path, args: &[&str]) -> Report {
    case.report(rules, &[&["--plan", plan.to_str().unwrap()], args].concat()).await
}

/// Edits a saved plan, as if it came from another deployment or time.
fn change(plan: &Path, change: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(plan).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(plan, json.to_string()).unwrap();
}

fn assert_refused(report: &Report, why: &str) {
    assert_eq!(report.ran.code, Some(5), "{report:?}");
    assert_eq!((report.rule(0, "status"), report.rule(0, "reason")), (&"refused".into(), &"plan".into()), "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap().contains(why), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), 0);
}

#[tokio::test]
async fn what_expires_after_the_plan_was_saved_stays() {
    let case = Case::new().await;
    // One day old, and so expired, in five seconds.
    let expires = Instant::now() + Duration::from_secs(5);
    let soon = DateTime::from_millis(DateTime::now().timestamp_millis() - 86_400_000 + 5000);
    case.fill("c", dated(0..20, days(-3)).chain([doc! { "_id": 20, "at": soon }])).await;
    let plan = approve(&case, RULE).await;
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&plan).unwrap()).unwrap();
    tokio::time::sleep_until((expires + Duration::from_millis(500)).into()).await;
    let dry = case.report(RULE, &["--dry-run"]).await;
    assert_eq!(dry.rule(0, "expiredCount"), 21, "time has passed: {dry:?}");

    let swept = sweep(&case, RULE, &plan, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.json["asOf"], saved["asOf"]);
    assert_eq!(swept.json["plan"]["runId"], saved["runId"]);
    assert_eq!(swept.rule(0, "deletedCount"), 20);
    assert_eq!(case.ids("c").await, id_set([20]));

    let again = sweep(&case, RULE, &plan, &[]).await;
    assert_eq!(
        (again.ran.code, again.rule(0, "deletedCount")),
        (Some(0), &0.into()),
        "fewer documents than approved are no drift"
    );
}

#[tokio::test]
async fn another_policy_server_or_time_takes_the_approval_away() {
    let case = Case::new().await;
    case.fill("c", dated(0..20, days(-3))).await;
    let all = id_set(0..20);
    let plan = approve(&case, RULE).await;
    assert_refused(&sweep(&case, &format!("{RULE}# a comment\n"), &plan, &[]).await, "policy differs from the plan's");
    let whole = std::fs::read(&plan).unwrap();
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 8] = [
        ("server's version", |plan| plan["server"]["version"] = "6.0.4".into()),
        ("replica set", |plan| plan["server"]["name"] = "rs0".into()),
        ("topology", |plan| plan["server"]["topology"] = "replicaSet".into()),
        ("host differs from", |plan| plan["server"]["hosts"] = vec!["elsewhere:27017"].into()),
        ("deployment", |plan| plan["server"] = Value::Null),
        ("24h 00m are allowed (`--max-plan-age`)", |plan| {
            plan["startedAt"] = ttl_sweeper::base::instant::rfc3339(days(-1)).into();
        }),
        ("later than the server's clock", |plan| plan["startedAt"] = ttl_sweeper::base::instant::rfc3339(days(1)).into()),
        ("other documents", |plan| plan["rules"][0]["predicate"]["more"] = 1.into()),
    ];
    for (why, changed) in changes {
        std::fs::write(&plan, &whole).unwrap();
        change(&plan, changed);
        assert_refused(&sweep(&case, RULE, &plan, &[]).await, why);
        let dry = sweep(&case, RULE, &plan, &["--dry-run"]).await;
        assert_eq!((dry.ran.code, dry.rule(0, "status")), (Some(0), &"refused".into()), "{why}: {dry:?}");
    }
    assert_eq!(case.ids("c").await, all);
    std::fs::write(&plan, &whole).unwrap();
    change(&plan, |plan| plan["startedAt"] = ttl_sweeper::base::instant::rfc3339(days(-1)).into());
    let swept = sweep(&case, RULE, &plan, &["--max-plan-age", "2d"]).await;
    assert_eq!(swept.rule(0, "deletedCount"), 20, "{swept:?}");
}

#[tokio::test]
async fn a_variable_that_stands_for_something_else_is_noticed() {
    let case = Case::new().await;
    case.fill("c", dated(0..20, days(-3))).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {_id: {$lt: {$numberInt: \"${MOST}\"}}}}\n";
    let plan = case.dir.path().join("plan.json");
    let run = async |most: &str, args: &[&str]| {
        let mut command = case.command(rule, &[&["sweep", "--format", "json"], args].concat());
        command.env("MOST", most);
        crate::support::sweeper::run(command).await
    };
    let ran = run("3", &["--dry-run", "-o", plan.to_str().unwrap()]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let other = run("5", &["--plan", plan.to_str().unwrap()]).await;
    assert_eq!(other.code, Some(5), "{other:?}");
    assert_eq!(case.ids("c").await, id_set(0..20));
    let same = run("3", &["--plan", plan.to_str().unwrap()]).await;
    assert_eq!(same.code, Some(0), "{same:?}");
    assert_eq!(case.ids("c").await, id_set(3..20));
}

#[tokio::test]
async fn one_percent_more_than_approved_may_go_and_no_document_beyond() {
    for (more, code) in [(2, Some(0)), (3, Some(5))] {
        let case = Case::new().await;
        case.fill("c", dated(0..101, days(-3))).await;
        case.fill("other", dated(0..5, days(-3))).await;
        let rules = format!("{RULE}  - {{namespace: DB.other, field: at, expireAfter: 1d}}\n");
        let plan = approve(&case, &rules).await;
        // 101 were approved; 1 % more is 1.01, rounded up to 2.
        case.fill("c", dated(1000..1000 + more, days(-5))).await;
        let swept = sweep(&case, &rules, &plan, &[]).await;
        assert_eq!(swept.ran.code, code, "{swept:?}");
        assert_eq!(swept.rule(1, "deletedCount"), 5, "the other rule has not changed: {swept:?}");
        if code == Some(0) {
            assert_eq!(case.ids("c").await, id_set::<i32>([]));
        } else {
            assert_refused(&swept, "104 documents have expired, 101 were approved");
            assert_eq!(case.ids("c").await, id_set((0..101).chain(1000..1003)));
        }
    }
}

#[tokio::test]
async fn what_is_inserted_with_an_old_date_during_the_sweep_does_not_exceed_the_approval() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    let plan = approve(&case, "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 10, concurrency: 1}\n").await;
    pause_deletes(&case.client).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 10, concurrency: 1}\n";
    let child = start(case.command(rule, &["sweep", "--format", "json", "--plan", plan.to_str().unwrap()]));
    until_running(&case.client, "delete").await;
    case.fill("c", dated(1000..1050, days(-2))).await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    let report = Report { json: serde_json::from_str(&ran.stdout).unwrap(), ran };
    assert_eq!(report.ran.code, Some(4), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), 101, "{report:?}");
    assert_eq!(case.ids("c").await.len(), 49);
}

#[tokio::test]
async fn what_was_not_approved_is_left_alone() {
    let case = Case::new().await;
    for name in ["log_a", "log_b", "much"] {
        case.fill(name, dated(0..10, days(-3)).chain(dated(10..12, days(3)))).await;
    }
    let rules = "  - {name: logs, namespace: DB.log_*, field: at, expireAfter: 1d}
  - {name: much, namespace: DB.much, field: at, expireAfter: 1d, maxDeletePercent: 50}\n";
    let plan = approve(&case, rules).await;
    change(&plan, |plan| {
        let rules = plan["rules"].as_array_mut().unwrap();
        rules.retain(|rule| !rule["namespace"].as_str().unwrap().ends_with("log_b"));
    });
    let swept = sweep(&case, rules, &plan, &[]).await;
    let fates: Vec<_> = (0..3).map(|index| (swept.rule(index, "status"), swept.rule(index, "reason"))).collect();
    let expected = [("complete", Value::Null), ("skipped", "not in the plan".into()), ("refused", "plan".into())];
    for ((status, reason), (expected, why)) in fates.into_iter().zip(expected) {
        assert_eq!((status, reason), (&expected.into(), &why), "{swept:?}");
    }
    assert_eq!(case.ids("log_a").await, id_set(10..12));
    for name in ["log_b", "much"] {
        assert_eq!(case.ids(name).await, id_set(0..12), "{name}");
    }
}

#[tokio::test]
async fn what_is_no_plan_is_a_usage_error() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let swept = case.dir.path().join("swept.json");
    case.run("  - {namespace: DB.empty, field: at, expireAfter: 1d}\n", &["sweep", "-o", swept.to_str().unwrap()]).await;
    let other = case.file("other.json", "{\"a\": 1}");
    let newer = approve(&case, RULE).await;
    change(&newer, |plan| plan["schemaVersion"] = 2.into());
    for (path, why) in [
        (&swept, "no dry run"),
        (&other, "no report of this program"),
        (&newer, "schema 2"),
        (&"/nowhere".into(), "No such file"),
    ] {
        let ran = case.run(RULE, &["sweep", "--plan", path.to_str().unwrap()]).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(why) && ran.stderr.contains("nothing was contacted"), "{ran:?}");
    }
    assert_eq!(case.ids("c").await, id_set(0..3));
}
