//! How an audit runs: what it may do, what ends it, what it leaves out, and how each format shows it.

mod support;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::{IndexModel, options::IndexOptions};
use serde_json::Value;
use std::time::Duration;
use support::audit::{audit, sum};
use support::faults::{alone, dated, days, end, fail_commands, heal, signal, slow_down, start, until_running};
use support::proxied::Proxied;
use support::proxy::Service;
use support::proxy::cosmos::CosmosRu;
use support::site::{Site, secured};
use support::sweeper::{Case, Ran, Report, id_set};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

fn schema() -> jsonschema::Validator {
    let schema = serde_json::from_str(include_str!("../src/report/schema.json")).expect("the schema is JSON");
    jsonschema::options().build(&schema).expect("the schema is a schema")
}

fn read(ran: Ran) -> Report {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let errors: Vec<String> = schema().iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{}", ran.stdout);
    Report { json, ran }
}

fn warnings(report: &Report, rule: usize) -> String {
    report.rule(rule, "warnings").to_string()
}

#[tokio::test]
async fn an_audit_needs_no_right_to_write_and_uses_none() {
    let (server, site) = (secured(), Site::new());
    let db = server.root().await.database("audited");
    let c = db.collection::<Document>("c");
    c.insert_many(dated(0..20, days(-3)).chain(dated(20..30, days(3)))).await.expect("documents go in");
    c.create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.expect("an index");
    db.run_command(doc! { "create": "s", "timeseries": { "timeField": "t" } }).await.expect("a time-series collection");
    db.collection::<Document>("s").insert_one(doc! { "t": days(-3) }).await.expect("a measurement");
    let roles = vec![doc! { "role": "read", "db": "audited" }];
    server.admin(doc! { "createUser": "auditor", "pwd": "password", "roles": roles }).await;
    let rules = "  - {namespace: audited.c, field: at, expireAfter: 1d}\n";
    let ran = site.run(&server.uri("auditor", "password"), rules, &["audit", "--format", "json", "-vv"]).await;
    let report = read(ran);
    assert_eq!((report.ran.code, report.rule(0, "expiredCount")), (Some(0), &20.into()), "{report:?}");
    assert_eq!(report.rule(0, "warnings"), &serde_json::json!([]), "every figure was measured: {report:?}");
    assert_eq!(report.rule(0, "examined")["returned"], 20);
    assert_eq!(report.rule(0, "nativeComparison")["state"], "none");
    assert_eq!(c.count_documents(doc! {}).await.unwrap(), 30);
    let commands: Vec<&str> = report.ran.stderr.lines().filter_map(|line| line.strip_prefix("debug: command ")).collect();
    let names: std::collections::BTreeSet<&str> = commands.iter().filter_map(|command| command.split(' ').next()).collect();
    const READS: [&str; 11] = [
        "aggregate",
        "buildInfo",
        "collStats",
        "endSessions",
        "explain",
        "getMore",
        "hello",
        "listCollections",
        "listDatabases",
        "listIndexes",
        "count",
    ];
    assert!(names.contains("explain") && names.iter().all(|name| READS.contains(name)), "{names:?}");
}

#[tokio::test]
async fn a_guard_is_reported_and_everything_is_measured_all_the_same() {
    let case = Case::new().await;
    case.fill("c", dated(0..90, days(-3)).chain(dated(90..100, days(3)))).await;
    let rules = "  - {name: a, namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 50}
  - {name: b, namespace: DB.c, field: at, expireAfter: 1d, filter: {at: {$nonsense: 1}}}
  - {name: c, namespace: DB.nowhere, field: at, expireAfter: 1d}
  - {name: d, namespace: DB.c, field: att, expireAfter: 1d}\n";
    let report = read(case.run(rules, &["audit", "--format", "json"]).await);
    // One rule failed, and the others were looked at.
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    let statuses: Vec<&Value> = (0..4).map(|rule| report.rule(rule, "status")).collect();
    assert_eq!(statuses, ["refused", "failed", "skipped", "complete"]);
    assert_eq!((report.rule(0, "reason"), report.rule(0, "expiredCount")), (&"maxDeletePercent".into(), &90.into()));
    assert_eq!(sum(report.rule(0, "ageHistogram"), "expiredCount"), 90);
    assert_eq!(report.json["totals"]["documentCount"], 100, "a collection with two rules is counted once");
    assert!(warnings(&report, 3).contains("no document has the field `att`"), "{report:?}");
    assert_eq!(report.rule(3, "neverExpires"), &serde_json::json!({ "missing": 100 }));
    assert_eq!(report.rule(2, "ageHistogram"), &Value::Null);
    assert!(report.rule(1, "error").as_str().unwrap().contains("nothing was deleted"));

    let alone = read(case.run(rules, &["audit", "--only", "a", "--format", "json"]).await);
    assert_eq!((alone.ran.code, &alone.json["dryRun"], &alone.json["command"]), (Some(0), &true.into(), &"audit".into()));
    let late = read(case.run(RULE, &["audit", "--as-of", "2999-01-01T00:00:00Z", "--format", "json"]).await);
    assert_eq!((late.ran.code, late.rule(0, "status"), late.rule(0, "reason")), (Some(0), &"refused".into(), &"asOf".into()));
    assert_eq!(late.rule(0, "expiredCount"), 100);
    assert_eq!(case.ids("c").await.len(), 100);
}

#[tokio::test]
async fn a_figure_that_takes_too_long_is_left_out_and_said() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3))).await;
    case.fill("d", dated(0..20, days(-3))).await;
    case.collection("c").create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.expect("an index");
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n  - {namespace: DB.d, field: at, expireAfter: 1d}\n";
    let data = doc! { "failCommands": ["aggregate", "explain"], "errorCode": 50 };
    fail_commands(&case.client, "alwaysOn", data).await;
    let report = read(case.run(rules, &["audit", "--max-time", "3s", "--format", "json"]).await);
    heal(&case.client).await;
    assert_eq!((report.ran.code, &report.json["status"]), (Some(0), &"complete".into()), "{report:?}");
    for rule in 0..2 {
        for key in ["expiredCount", "ageHistogram", "forecast", "backlog", "neverExpires", "examined", "expiredPercent"] {
            assert_eq!(report.rule(rule, key), &Value::Null, "{key}");
        }
        let said = warnings(&report, rule);
        assert!(said.contains("expired documents: not measured: it took longer than 3.0 s"), "{said}");
        assert!(said.contains("ages of the documents: not measured"), "{said}");
    }
    assert_eq!(report.json["totals"]["expiredCount"], Value::Null);

    // The limit is the server's to keep: it goes with every query.
    let ok = audit(&case, rules, &["--max-time", "7s"]).await;
    assert_eq!(ok.rule(0, "expiredCount"), 20);
    let sent = support::faults::logged(&_mongod, "aggregate");
    let limits: Vec<&Value> = sent.iter().rev().take(4).map(|attributes| &attributes["command"]["maxTimeMS"]).collect();
    assert!(limits.iter().all(|limit| **limit == 7000), "{limits:?}");
    let none = audit(&case, rules, &[]).await;
    assert_eq!(none.rule(0, "expiredCount"), 20);
    let last = support::faults::logged(&_mongod, "aggregate");
    assert_eq!(last.last().unwrap()["command"]["maxTimeMS"], 300_000);
}

#[tokio::test]
async fn a_signal_ends_an_audit_at_once_with_a_report() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..20, days(-3))).await;
        case.fill("d", dated(0..20, days(-3))).await;
        slow_down(&case.client, "aggregate", 60_000).await;
        let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n  - {namespace: DB.d, field: at, expireAfter: 1d}\n";
        let child = start(case.command(rules, &["audit", "--format", "json"]));
        tokio::time::timeout(Duration::from_secs(60), until_running_aggregate(&case)).await.expect("a count");
        signal(&child, name);
        let report = read(end(child).await);
        assert_eq!((report.ran.code, &report.json["exitCode"]), (Some(code), &code.into()), "{report:?}");
        for rule in 0..2 {
            assert_eq!((report.rule(rule, "status"), report.rule(rule, "reason")), (&"partial".into(), &"interrupted".into()));
            assert_eq!(report.rule(rule, "expiredCount"), &Value::Null);
        }
    }
}

/// A command that a fail point holds up is not among the operations yet: its connection is.
async fn until_running_aggregate(case: &Case) {
    until_running(&case.client, "aggregate").await;
}

#[tokio::test]
async fn the_read_preference_goes_with_every_query() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3))).await;
    let wrong = case.run(RULE, &["audit", "--read-preference", "any"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    for mode in ["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"] {
        let report = audit(&case, RULE, &["--read-preference", mode]).await;
        assert_eq!((report.ran.code, report.rule(0, "expiredCount")), (Some(0), &20.into()), "{mode}: {report:?}");
    }
}

#[tokio::test]
async fn doubtful_dates_are_named() {
    let case = Case::new().await;
    let now = DateTime::now().timestamp_millis();
    let date = DateTime::from_millis;
    let documents = [
        doc! { "at": date(now / 1000) },
        doc! { "at": date(0) },
        doc! { "at": date(now * 1000) },
        doc! { "at": date(now + 11 * 365 * 86_400_000) },
        doc! { "at": now / 1000 },
        doc! { "at": now / 1000 },
        doc! { "at": now },
        doc! { "at": 5 },
        doc! { "at": date(now - 3 * 86_400_000) },
    ];
    case.fill("c", documents).await;
    case.fill("s", (0..3).map(|_| doc! { "at": "2020-01-01" })).await;
    let rules = "  - {name: c, namespace: DB.c, field: at, expireAfter: 1d}
  - {name: s, namespace: DB.s, field: at, expireAfter: 1d}
  - {name: e, namespace: DB.c, field: at, expireAfter: 1d, dateFormat: epochMillis}
  - {name: f, namespace: DB.c, field: at, expireAfter: 1d, dateFormat: epochSeconds}\n";
    let report = read(case.run(rules, &["audit", "--format", "json"]).await);
    for (rule, part) in [
        (0, "2 documents with a date in January 1970 would be deleted"),
        (0, "1 document with a date in the year 5138 or later"),
        (0, "1 document with a date more than ten years ahead"),
        (0, "2 documents with a number in `at` that looks like epoch seconds"),
        (0, "1 document with a number in `at` that looks like epoch milliseconds"),
        (1, "no document has a date in `at` (string 3)"),
        (2, "3 documents with a number in `at` that looks like seconds where the rule says milliseconds"),
        (2, "5 documents with a BSON date in `at`"),
        (3, "1 document with a number in `at` that looks like milliseconds where the rule says seconds"),
    ] {
        assert!(warnings(&report, rule).contains(part), "{part}: {}", warnings(&report, rule));
    }
    assert_eq!(report.rule(0, "expiredCount"), 3);
    assert_eq!(report.rule(0, "neverExpires"), &serde_json::json!({ "number": 4 }));
}

#[tokio::test]
async fn what_decided_is_said_of_samples_and_the_oldest_come_first_along_an_index() {
    let case = Case::new().await;
    let documents = (0..30).map(|n| doc! { "_id": n, "at": [days(i64::from(n) - 60), days(i64::from(n) - 50), days(5)] });
    case.fill("c", documents.chain([doc! { "_id": 100, "at": days(-61), "ttl": 20 }, doc! { "_id": 101, "at": days(-62) }]))
        .await;
    case.collection("c").create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.expect("an index");
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl}\n";
    let report = read(case.run(rule, &["audit", "--format", "json"]).await);
    let samples = report.rule(0, "samples").as_array().unwrap();
    let whys: Vec<&Value> = samples.iter().take(3).map(|sample| &sample["why"]).collect();
    assert_eq!(whys, ["at least 86400 s old", "ttl 20 overrides 86400", "earliest of 3 dates"]);
    let ids: Vec<&str> = samples.iter().map(|sample| sample["id"]["$numberInt"].as_str().unwrap()).collect();
    assert_eq!(ids, ["101", "100", "0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!((report.rule(0, "createIndex"), report.rule(0, "examined")["returned"].as_u64()), (&Value::Null, Some(32)));
}

#[tokio::test]
async fn native_ttl_is_compared_and_an_index_advised() {
    let case = Case::new().await;
    for name in ["same", "other", "bare", "own"] {
        case.fill(name, dated(0..3, days(3))).await;
    }
    for (name, seconds) in [("same", 86_400), ("other", 7200), ("own", 864_000)] {
        let options = IndexOptions::builder().expire_after(Duration::from_secs(seconds)).build();
        let index = IndexModel::builder().keys(doc! { "at": 1 }).options(options).build();
        case.collection(name).create_index(index).await.expect("an index");
    }
    let rules = "  - {namespace: DB.same, field: at, expireAfter: 1d}
  - {namespace: DB.other, field: at, expireAfter: 1d}
  - {namespace: DB.bare, field: at, expireAfter: 1d}
  - {namespace: DB.own, field: at, expireAfter: 1d, ttlField: ttl}\n";
    let report = read(case.run(rules, &["audit", "--format", "json"]).await);
    for (rule, state, part) in [
        (0, "same", "index at_1 deletes after 86400 s"),
        (1, "differs", "index at_1 deletes after 7200 s, the rule says 86400"),
        (2, "none", "`sweeper native apply` makes one"),
        (3, "differs", "deletes after 864000 s, whatever the rule says; no native TTL does what the rule does: a ttl in each"),
    ] {
        let compared = report.rule(rule, "nativeComparison");
        assert_eq!(compared["state"], state, "{compared}");
        assert!(compared["detail"].as_str().unwrap().contains(part), "{compared}");
    }
    let create = format!("db.getSiblingDB({:?}).getCollection(\"bare\").createIndex({{\"at\": 1}})", case.db.name());
    assert_eq!((report.rule(2, "createIndex"), report.rule(0, "createIndex")), (&create.into(), &Value::Null));
    assert_eq!(report.rule(2, "examined"), &serde_json::json!({ "documents": 3, "keys": 0, "returned": 0 }));
}

#[tokio::test]
async fn buckets_are_counted_by_their_latest_measurement() {
    let case = Case::new().await;
    case.db
        .run_command(doc! { "create": "s", "timeseries": { "timeField": "t", "metaField": "m" } })
        .await
        .expect("a collection");
    // Each meta value has a bucket of its own.
    let measured = |m: i32, millis: i64| doc! { "t": DateTime::from_millis(1_769_824_800_000 + millis), "m": m };
    let day = 86_400_000;
    case.fill(
        "s",
        [measured(0, -3 * day), measured(0, -3 * day + 1), measured(1, -day), measured(2, -day + 1), measured(3, day)],
    )
    .await;
    let rule = "  - {namespace: DB.s, expireAfter: 1d, filter: {m: {$lt: 9}}}\n";
    let report = read(case.run(rule, &["audit", "--as-of", "2026-01-31T02:00:00Z", "--format", "json"]).await);
    assert_eq!((report.rule(0, "expiredCount"), report.rule(0, "expiredMeasurements")), (&2.into(), &3.into()), "{report:?}");
    assert_eq!(sum(report.rule(0, "ageHistogram"), "notExpiredCount"), 2);
    let forecast: Vec<u64> =
        report.rule(0, "forecast").as_array().unwrap().iter().map(|day| day["count"].as_u64().unwrap()).collect();
    assert_eq!(forecast[..3], [1, 1, 0]);
    assert_eq!((report.rule(0, "neverExpires"), report.rule(0, "createIndex")), (&Value::Null, &Value::Null));
    let sample = &report.rule(0, "samples")[0];
    assert_eq!(sample["why"], "latest measurement at least 86400 s old");
    assert_eq!(sample["date"], "2026-01-28T02:00:00.001Z");
    let none = read(case.run("  - {namespace: DB.s, expireAfter: 1d, filter: {m: 9}}\n", &["audit", "--format", "json"]).await);
    assert_eq!(none.rule(0, "ageHistogram"), &serde_json::json!([]));
}

#[tokio::test]
async fn azure_cosmos_db_is_not_billed_for_a_distribution_that_nobody_asked_for() {
    let case = Case::new().await;
    case.fill("c", dated(0..150, days(-3)).chain(dated(150..160, days(3)))).await;
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
    let report = read(proxied.case.run(RULE, &["audit", "--format", "json"]).await);
    assert_eq!((report.ran.code, report.rule(0, "expiredCount")), (Some(0), &150.into()), "{report:?}");
    assert_eq!((report.rule(0, "ageHistogram"), report.rule(0, "neverExpires")), (&Value::Null, &Value::Null));
    assert!(warnings(&report, 0).contains("bills every document"), "{report:?}");
    assert_eq!(report.rule(0, "samples").as_array().unwrap().len(), 10);
    let exact = read(proxied.case.run(RULE, &["audit", "--exact", "--format", "json"]).await);
    assert_eq!((exact.ran.code, sum(exact.rule(0, "ageHistogram"), "notExpiredCount")), (Some(0), 10), "{exact:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(0..160));
}

/// 1,100,000 documents, one every ten seconds into the past from now on, the newest with the `_id` 0; made by the server itself.
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
    case.db.run_command(doc! { "aggregate": 1, "pipeline": stages, "cursor": {} }).await.expect("documents are made");
}

#[tokio::test]
async fn a_big_collection_is_sampled_evenly_unless_exact_figures_are_asked_for() {
    let case = Case::new().await;
    let as_of = "2026-01-31T02:00:00.000Z";
    let now = DateTime::parse_rfc3339_str(as_of).unwrap();
    fill_big(&case, now).await;
    let rules = "  - {name: all, namespace: DB.big, field: at, expireAfter: 30d, allowCollectionScan: true}
  - {name: half, namespace: DB.big, field: at, expireAfter: 30d, allowCollectionScan: true, filter: {even: 0}}\n";
    let sampled = read(case.run(rules, &["audit", "--as-of", as_of, "--format", "json"]).await);
    let exact = read(case.run(rules, &["audit", "--exact", "--as-of", as_of, "--format", "json"]).await);
    for (rule, whole) in [(0, 1_100_000_u64), (1, 550_000)] {
        assert_eq!(exact.rule(rule, "sampling"), &Value::Null);
        let (expired, kept) =
            (sum(exact.rule(rule, "ageHistogram"), "expiredCount"), sum(exact.rule(rule, "ageHistogram"), "notExpiredCount"));
        assert_eq!((exact.rule(rule, "expiredCount"), expired + kept), (&expired.into(), whole));
        // What has expired is counted, not projected.
        assert_eq!(sampled.rule(rule, "expiredCount"), exact.rule(rule, "expiredCount"));
        assert_eq!(sampled.rule(rule, "oldestExpired"), exact.rule(rule, "oldestExpired"));
        assert_eq!(sampled.rule(rule, "newestExpired"), &Value::Null);
        let sampling = sampled.rule(rule, "sampling");
        let drawn = sampling["documents"].as_u64().unwrap();
        assert!((95_000..105_000).contains(&drawn), "{sampling}");
        let margin = sampling["marginPercent"].as_f64().unwrap();
        assert_eq!((&sampling["of"], (margin * 100.0).round()), (&1_100_000.into(), 31.0_f64.max((margin * 100.0).round())));
        assert!(margin < 0.33, "{sampling}");
        // Twice the margin and more: one run in a million is further off in one of some ten ranges.
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
