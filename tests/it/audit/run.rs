//! An audit run: needed privileges, interruptions, omitted measurements, and read preference.

use crate::support::audit::{audit, read, sum, warnings};
use crate::support::faults::{
    alone, dated, days, end, every_logged, fail_commands, heal, logged, signal, slow_down, start, until_running,
};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::replica_set::ReplicaSet;
use crate::support::site::{Site, secured};
use crate::support::sweeper::{Case, id_set};
use crate::support::terminal::Terminal;
use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, WriteConcern};
use serde_json::Value;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

#[tokio::test]
async fn an_audit_needs_no_right_to_write_and_uses_none() {
    let (server, site) = (secured(), Site::new());
    let db = server.root().await.database("audited");
    let c = db.collection::<Document>("c");
    c.insert_many(dated(0..20, days(-3)).chain(dated(20..30, days(3)))).await.expect("an insert");
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
    const READS: [&str; 14] = [
        "aggregate",
        "buildInfo",
        "collStats",
        "endSessions",
        "explain",
        "find",
        "getMore",
        "getParameter",
        "hello",
        "listCollections",
        "listDatabases",
        "listIndexes",
        "count",
        "serverStatus",
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
    let report = audit(&case, rules, &[]).await;
    // One rule fails, and the other rules are still examined.
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    let statuses: Vec<&Value> = (0..4).map(|rule| report.rule(rule, "status")).collect();
    assert_eq!(statuses, ["refused", "failed", "skipped", "complete"]);
    assert_eq!((report.rule(0, "reason"), report.rule(0, "expiredCount")), (&"maxDeletePercent".into(), &90.into()));
    assert_eq!(sum(report.rule(0, "ageHistogram"), "expiredCount"), 90);
    assert_eq!(report.json["totals"]["documentCount"], 100, "a collection with two rules is counted once");
    assert!(warnings(&report, 3).contains("no document found has `att` (`field`)"), "{report:?}");
    assert_eq!(report.rule(3, "neverExpires"), &serde_json::json!({ "missing": 100 }));
    assert_eq!(report.rule(2, "ageHistogram"), &Value::Null);
    assert!(report.rule(1, "error").as_str().unwrap().contains("nothing was deleted"));

    let alone = audit(&case, rules, &["--only", "a"]).await;
    assert_eq!((alone.ran.code, &alone.json["dryRun"], &alone.json["command"]), (Some(0), &true.into(), &"audit".into()));
    let late = audit(&case, RULE, &["--as-of", "2999-01-01T00:00:00Z"]).await;
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
    let report = audit(&case, rules, &["--max-time", "3s"]).await;
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

    // The server enforces the limit: every query carries it.
    let ok = audit(&case, rules, &["--max-time", "7s"]).await;
    assert_eq!(ok.rule(0, "expiredCount"), 20);
    let sent = logged(&_mongod, "aggregate");
    let limits: Vec<&Value> = sent.iter().rev().take(4).map(|attributes| &attributes["command"]["maxTimeMS"]).collect();
    assert!(limits.iter().all(|limit| **limit == 7000), "{limits:?}");
    let none = audit(&case, rules, &[]).await;
    assert_eq!(none.rule(0, "expiredCount"), 20);
    let last = logged(&_mongod, "aggregate");
    assert_eq!(last.last().unwrap()["command"]["maxTimeMS"], 300_000);
}

#[tokio::test]
async fn a_signal_ends_an_audit_at_once_with_a_report() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 143)] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..20, days(-3))).await;
        case.fill("d", dated(0..20, days(-3))).await;
        slow_down(&case.client, "aggregate", 60_000).await;
        let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n  - {namespace: DB.d, field: at, expireAfter: 1d}\n";
        let child = start(case.command(rules, &["audit", "--format", "json"]));
        until_running(&case.client, "aggregate").await;
        signal(&child, name);
        let report = read(end(child).await);
        assert_eq!((report.ran.code, &report.json["exitCode"]), (Some(code), &code.into()), "{report:?}");
        for rule in 0..2 {
            assert_eq!((report.rule(rule, "status"), report.rule(rule, "reason")), (&"partial".into(), &"interrupted".into()));
            assert_eq!(report.rule(rule, "expiredCount"), &Value::Null);
        }
    }
}

#[tokio::test]
async fn azure_cosmos_db_is_not_billed_for_a_distribution_that_nobody_asked_for() {
    let case = Case::new().await;
    case.fill("c", dated(0..150, days(-3)).chain(dated(150..160, days(3)))).await;
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
    let report = audit(&proxied.case, RULE, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "expiredCount")), (Some(0), &150.into()), "{report:?}");
    assert_eq!((report.rule(0, "ageHistogram"), report.rule(0, "neverExpires")), (&Value::Null, &Value::Null));
    assert!(warnings(&report, 0).contains("bills every document"), "{report:?}");
    assert_eq!(report.rule(0, "samples").as_array().unwrap().len(), 10);
    let exact = audit(&proxied.case, RULE, &["--exact"]).await;
    assert_eq!((exact.ran.code, sum(exact.rule(0, "ageHistogram"), "notExpiredCount")), (Some(0), 10), "{exact:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(0..160));
}

#[tokio::test]
async fn the_members_that_the_read_preference_names_are_asked() {
    let log = ["--setParameter", "logComponentVerbosity={command: {verbosity: 1}}"];
    let set = ReplicaSet::start(2, &log);
    let client = set.client().await;
    let c = client.database("app").collection::<Document>("c");
    let all = WriteConcern::builder().w(Acknowledgment::Nodes(2)).build();
    c.insert_many(dated(0..20, days(-3))).write_concern(all.clone()).await.expect("an insert");
    let index = IndexModel::builder().keys(doc! { "at": 1 }).build();
    c.create_index(index).write_concern(all).await.expect("an index");
    let primary = set.primary(&client).await;
    let (site, rules) = (Site::new(), "  - {namespace: app.c, field: at, expireAfter: 1d}\n");
    let asked = |member: usize| {
        let all = every_logged(&set.members[member]);
        all.iter().filter(|entry| entry["ns"] == "app.c" && entry["command"]["aggregate"] == "c").count()
    };
    for (mode, member) in [("primary", primary), ("secondary", 1 - primary), ("primaryPreferred", primary)] {
        let before = [asked(0), asked(1)];
        let report = read(site.run(&set.uri(), rules, &["audit", "--read-preference", mode, "--format", "json"]).await);
        assert_eq!((report.ran.code, report.rule(0, "expiredCount")), (Some(0), &20.into()), "{mode}: {report:?}");
        assert_eq!((report.rule(0, "examined")["returned"].as_u64(), warnings(&report, 0)), (Some(20), "[]".to_owned()));
        let after = [asked(0), asked(1)];
        assert!(after[member] > before[member] && after[1 - member] == before[1 - member], "{mode}: {before:?} {after:?}");
    }
    let wrong = site.run(&set.uri(), rules, &["audit", "--read-preference", "any"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[tokio::test]
async fn a_terminal_shows_which_rule_is_looked_at_and_cron_sees_nothing() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..20, days(-3))).await;
    case.fill("d", dated(0..20, days(-3))).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n  - {namespace: DB.d, field: at, expireAfter: 1d}\n";
    slow_down(&case.client, "aggregate", 500).await;
    let ran = Terminal::open(&case.command(rules, &["audit"])).end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in ["1 of 2 rules: t.c: ages of the documents", "2 of 2 rules: t.d: samples"] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    let quiet = case.run(rules, &["audit", "-q"]).await;
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (Some(0), "", ""));
}
