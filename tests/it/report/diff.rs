//! `sweeper diff` shows the changes between two saved reports, and nothing else.

use std::collections::BTreeSet;

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, run, sweeper};
use mongodb::bson::doc;

const RULES: &str = "  - {name: a, namespace: DB.a, field: at, expireAfter: 1d}
  - {namespace: DB.b_*, field: at, expireAfter: 1d, ttlField: ttl, allowUnknownFields: [ttl]}\n";

async fn save(case: &Case, rules: &str, name: &str) -> String {
    let path = case.dir.path().join(name).display().to_string();
    let ran = case.run(rules, &["sweep", "--dry-run", "-o", &path]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    path
}

#[tokio::test]
async fn every_value_that_changed_is_named_and_no_other() {
    let case = Case::new().await;
    case.fill("a", dated(0..10, days(-3)).chain(dated(10..20, days(3)))).await;
    for name in ["b_1", "b_2"] {
        case.fill(name, dated(0..4, days(-3)).chain([doc! { "_id": 9, "at": days(-3), "ttl": 0 }])).await;
    }
    let old = save(&case, RULES, "old.json").await;
    let same = save(&case, RULES, "same.json").await;
    let ran = run(sweeper(&["diff", &old, &same])).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.ends_with("\n\nnothing changed\n"), "{ran:?}");

    case.fill("a", dated(100..1600, days(-2))).await;
    case.collection("b_1").drop().await.unwrap();
    case.collection("b_2").delete_one(doc! { "_id": 9 }).await.unwrap();
    case.fill("b_3", dated(0..1, days(-3))).await;
    let new = save(&case, RULES, "new.json").await;
    let ran = run(sweeper(&["diff", &old, &new, "--format", "json"])).await;
    let diff: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let db = case.db.name();
    let changed: BTreeSet<String> = diff["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            let namespace = change["namespace"].as_str().unwrap_or("run").trim_start_matches(&format!("{db}."));
            format!(
                "{namespace} {} {} {} {}",
                change["key"].as_str().unwrap(),
                change["old"],
                change["new"],
                change["difference"]
            )
        })
        // The average size of a document depends on the server.
        .filter(|line| !line.contains("estimatedBytes"))
        .collect();
    let expected = [
        "run totals.expiredCount 18 1515 1497",
        "a expiredCount 10 1510 1500",
        "a documentCount 20 1520 1500",
        "a expiredPercent 50.0 99.34 null",
        "b_1 rule \"there\" null null",
        "b_2 documentCount 5 4 -1",
        "b_2 expiredPercent 80.0 100.0 null",
        "b_2 neverExpires.ttlNotPositive 1 0 -1",
        "b_3 rule null \"there\" null",
    ];
    assert_eq!(changed, expected.map(str::to_owned).into());

    let only = ["diff", &old, &new, "--only", "*.b_*"];
    let csv = case.dir.path().join("changes.csv");
    let ran = run(sweeper(&[&only[..], &["-o", csv.to_str().unwrap()]].concat())).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    let csv = std::fs::read_to_string(csv).unwrap();
    let of_b: BTreeSet<String> = csv.lines().skip(1).filter(|line| !line.contains("estimatedBytes")).map(str::to_owned).collect();
    let rule = format!("{db}.b_*");
    let expected = [
        format!("{rule},{db}.b_1,rule,there,,"),
        format!("{rule},{db}.b_2,documentCount,5,4,-1"),
        format!("{rule},{db}.b_2,expiredPercent,80.0,100.0,"),
        format!("{rule},{db}.b_2,neverExpires.ttlNotPositive,1,0,-1"),
        format!("{rule},{db}.b_3,rule,,there,"),
    ];
    assert_eq!(of_b, expected.into(), "{csv}");
    let none = run(sweeper(&["diff", &old, &new, "--only", "nope"])).await;
    assert_eq!((none.code, none.stdout.as_str()), (Some(2), ""), "{none:?}");
    assert!(none.stderr.contains("--only nope: no rule or namespace of either report matches"), "{none:?}");
    let coloured = run(sweeper(&["diff", &old, &new, "--color", "always"])).await;
    assert!(coloured.stdout.contains("\u{1b}[1mthe run\u{1b}[0m"), "{coloured:?}");

    // A sweep does not count, and so it has no value to compare.
    let swept = case.dir.path().join("swept.json").display().to_string();
    let ran = case.run(RULES, &["sweep", "-o", &swept]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = run(sweeper(&["diff", &new, &swept])).await.stdout;
    assert!(text.contains("deletedCount") && !text.contains("expiredPercent"), "{text}");

    let text = run(sweeper(&["diff", &old, &new])).await.stdout;
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in ["expiredCount 10 -> 1,510 (+1,500)", "rule there -> -", "neverExpires.ttlNotPositive 1 -> 0 (-1)"] {
        assert!(lines.iter().any(|shown| shown == line), "{line} is not in:\n{text}");
    }
}

#[tokio::test]
async fn what_is_no_report_is_a_usage_error() {
    let case = Case::new().await;
    let policy = case.policy(RULES).display().to_string();
    let ran = run(sweeper(&["diff", &policy, &policy])).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("expected the JSON report of"), "{ran:?}");
}
