//! Guards that refuse a rule before its first delete: share, deployment, instant, kind of collection, size without index.

use crate::support::big::{DOCUMENTS, big};
use crate::support::faults::{alone, dated, days, fail_commands};
use crate::support::pool::Alone;
use crate::support::replica_set::ReplicaSet;
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, Report, id_set, ids};
use mongodb::bson::{Document, doc};

/// Asserts that this guard refused the rule, and that nothing was deleted.
fn assert_refused(report: &Report, index: usize, guard: &str, part: &str) {
    assert_eq!(report.rule(index, "status"), "refused", "{report:?}");
    assert_eq!(report.rule(index, "reason"), guard, "{report:?}");
    assert_eq!(report.rule(index, "deletedCount"), 0, "{report:?}");
    let error = report.rule(index, "error").as_str().unwrap_or_default();
    assert!(error.contains(part), "{error:?} does not contain {part:?}");
}

/// Inserts four expired documents and one live one.
async fn five(case: &Case, name: &str) {
    case.fill(name, dated(0..4, days(-3)).chain(dated(4..5, days(3)))).await;
}

async fn a_share_above_the_limit_is_refused_and_the_other_rules_go_on(server: &Server) {
    let case = server.case().await;
    five(&case, "much").await;
    five(&case, "free").await;
    let rules = "  - {namespace: DB.much, field: at, expireAfter: 1d, maxDeletePercent: 79.99}
  - {namespace: DB.free, field: at, expireAfter: 1d}\n";
    let dry = case.report(rules, &["--dry-run"]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    assert_refused(&dry, 0, "maxDeletePercent", "4 of 5");
    assert_eq!(dry.rule(0, "expiredCount"), 4);
    assert_eq!(dry.rule(0, "expiredPercent"), 80.0);
    assert_eq!(dry.rule(1, "status"), "complete");
    assert_eq!(case.ids("free").await, id_set(0..5));

    let swept = case.report(rules, &[]).await;
    assert_eq!(swept.ran.code, Some(5), "{swept:?}");
    assert_refused(&swept, 0, "maxDeletePercent", "79.99");
    assert_eq!(swept.json["totals"]["refused"], 1);
    assert_eq!(case.ids("much").await, id_set(0..5));
    assert_eq!(case.ids("free").await, id_set([4]));
}

async fn a_share_at_the_limit_is_allowed(server: &Server) {
    let case = server.case().await;
    five(&case, "c").await;
    let swept = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 80}\n", &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([4]));
}

async fn a_truncating_limit_does_not_hide_the_share_from_its_guard(server: &Server) {
    let case = server.case().await;
    five(&case, "c").await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 50, maxDeletes: 1}\n";
    let swept = case.report(rules, &["--max-deletes", "1"]).await;
    assert_eq!(swept.ran.code, Some(5), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set(0..5));
}

#[tokio::test]
async fn a_deployment_that_the_policy_does_not_expect_is_left_alone() {
    let case = Case::new().await;
    five(&case, "c").await;
    let host = case.uri.split(['/', '?']).nth(2).unwrap().to_owned();
    let rules =
        |expect: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d}}\nconnection: {{expect: {{{expect}}}}}\n");
    for expect in ["replicaSet: rs0", "hosts: ['127.0.0.1:1']", &format!("hosts: ['{host}', 'db.example.com']")] {
        let swept = case.report(&rules(expect), &[]).await;
        assert_eq!(swept.ran.code, Some(5), "{swept:?}");
        assert_refused(&swept, 0, "expect", "expects");
        let dry = case.report(&rules(expect), &["--dry-run"]).await;
        assert_eq!(dry.ran.code, Some(0), "{dry:?}");
        assert_refused(&dry, 0, "expect", "expects");
        assert_eq!(case.ids("c").await, id_set(0..5), "{expect}");
    }
    let swept = case.report(&rules(&format!("hosts: ['{host}']")), &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([4]));
}

#[tokio::test]
async fn a_replica_set_is_known_by_its_name_and_members() {
    let set = Alone::<ReplicaSet>::take().await;
    let mut case = Case::new().await;
    case.uri = set.uri();
    case.client = set.client().await;
    case.db = case.client.database("t");
    five(&case, "c").await;
    let rules =
        |expect: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d}}\nconnection: {{expect: {{{expect}}}}}\n");
    let swept = case.report(&rules("replicaSet: RS0"), &[]).await;
    assert_eq!(swept.ran.code, Some(5), "{swept:?}");
    assert_refused(&swept, 0, "expect", "`rs0`");
    assert_eq!(case.ids("c").await, id_set(0..5));
    let host = format!("127.0.0.1:{}", set.members[0].port);
    let swept = case.report(&rules(&format!("replicaSet: rs0, hosts: ['{host}']")), &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([4]));
}

#[tokio::test]
async fn an_instant_after_the_clock_of_the_server_is_refused() {
    let case = Case::new().await;
    five(&case, "c").await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
    let tomorrow = days(1).try_to_rfc3339_string().unwrap();
    for args in [&["--as-of", &tomorrow][..], &["--as-of", "9999-12-31T23:59:59Z", "--allow-clock-skew"]] {
        let swept = case.report(rules, args).await;
        assert_eq!(swept.ran.code, Some(5), "{swept:?}");
        assert_refused(&swept, 0, "asOf", "later than the server's clock");
    }
    let dry = case.report(rules, &["--dry-run", "--as-of", &tomorrow]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    assert_refused(&dry, 0, "asOf", "later than the server's clock");
    assert_eq!(case.ids("c").await, id_set(0..5));
    let earlier = days(-3).try_to_rfc3339_string().unwrap();
    let swept = case.report(rules, &["--as-of", &earlier]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set(0..5));
}

#[tokio::test]
async fn kinds_of_collections_that_cannot_be_swept_are_refused_with_the_reason() {
    let case = Case::new().await;
    let db = &case.db;
    db.create_collection("capped").capped(true).size(1_000_000).await.unwrap();
    db.run_command(doc! { "create": "view", "viewOn": "plain", "pipeline": [] }).await.unwrap();
    db.run_command(doc! { "create": "series", "timeseries": { "timeField": "t" } }).await.unwrap();
    for name in ["capped", "plain"] {
        five(&case, name).await;
    }
    case.fill("series", (0..5).map(|id| doc! { "_id": id, "t": days(-3) })).await;
    let rules = "  - {namespace: DB.*, exclude: [DB.plain], field: at, expireAfter: 1d}\n";
    for (args, code) in [(&["--dry-run"][..], 0), (&[], 5)] {
        let report = case.report(rules, args).await;
        assert_eq!(report.ran.code, Some(code), "{report:?}");
        assert_eq!(report.json["totals"]["rules"], 3, "{report:?}");
        assert_refused(&report, 0, "capped", "capped");
        assert_refused(&report, 1, "timeSeries", "the dates of this time-series collection are in `t`");
        assert_refused(&report, 2, "view", "view");
    }
    let everything = case.report("  - {namespace: DB.*, field: at, expireAfter: 1d}\n", &[]).await;
    assert_eq!(everything.ran.code, Some(5), "{everything:?}");
    assert_eq!(case.ids("plain").await, id_set([4]));
    assert_eq!(case.ids("capped").await, id_set(0..5));
    assert_eq!(case.ids("series").await, id_set(0..5));
}

#[tokio::test]
async fn a_glob_never_reaches_what_belongs_to_the_server() {
    let (_mongod, case) = alone().await;
    for name in ["system.js", "enxcol_.people.esc"] {
        case.fill(name, dated(0..3, days(-3))).await;
    }
    for database in ["admin", "config", "local", "t"] {
        let collection = case.client.database(database).collection::<Document>("everywhere");
        collection.insert_many(dated(0..3, days(-3))).await.unwrap();
    }
    let swept = case.report("  - {namespace: '*.*', field: at, expireAfter: 1d}\n", &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("everywhere").await, id_set::<i32>([]));
    for name in ["system.js", "enxcol_.people.esc"] {
        assert_eq!(case.ids(name).await, id_set(0..3), "{name}");
    }
    for database in ["admin", "config", "local"] {
        let left = ids(&case.client.database(database).collection("everywhere")).await;
        assert_eq!(left, id_set(0..3), "{database}");
    }
    for name in ["admin.everywhere", "local.oplog.rs", "config.x", "DB.system.js", "DB.enxcol_.people.esc"] {
        let rules = format!("  - {{namespace: {name}, field: at, expireAfter: 1d}}\n");
        let ran = case.run(&rules, &["sweep"]).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("never swept"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_large_collection_without_an_index_is_not_gone_through() {
    let case = big().await;
    let rule = "  - {namespace: DB.big, field: at, expireAfter: 1d, maxDeletes: 2000}\n";
    for (args, code) in [(&[][..], 5), (&["--dry-run"], 0)] {
        let report = case.report(rule, args).await;
        assert_eq!(report.ran.code, Some(code), "{report:?}");
        assert_refused(&report, 0, "collectionScan", "createIndex");
    }
    assert_eq!(case.collection("big").count_documents(doc! {}).await.unwrap(), DOCUMENTS);
}

#[tokio::test]
async fn of_several_exit_codes_a_failure_comes_before_a_refusal_and_that_before_a_limit() {
    let (_mongod, case) = alone().await;
    let data = doc! { "failCommands": ["delete"], "errorCode": 13, "namespace": "t.failed" };
    fail_commands(&case.client, "alwaysOn", data).await;
    let failed = "  - {namespace: DB.failed, field: at, expireAfter: 1d}\n";
    let refused = "  - {namespace: DB.refused, field: at, expireAfter: 1d, maxDeletePercent: 50}\n";
    let partial = "  - {namespace: DB.partial, field: at, expireAfter: 1d, maxDeletes: 1}\n";
    let skipped = "  - {namespace: DB.skipped, field: at, expireAfter: 1d}\n";
    for (rules, code, status) in [
        ([partial, failed, refused, skipped], 3, "failed"),
        ([skipped, partial, partial, refused], 5, "refused"),
        ([skipped, skipped, skipped, partial], 4, "partial"),
        ([skipped, skipped, skipped, skipped], 0, "complete"),
    ] {
        case.db.drop().await.unwrap();
        for name in ["failed", "refused", "partial"] {
            five(&case, name).await;
        }
        let named = rules.iter().enumerate();
        let named: String = named.map(|(n, rule)| rule.replacen('{', &format!("{{name: r{n}, "), 1)).collect();
        let report = case.report(&named, &[]).await;
        assert_eq!(report.ran.code, Some(code), "{report:?}");
        assert_eq!(report.json["exitCode"], code, "{report:?}");
        assert_eq!(report.json["status"], status, "{report:?}");
        assert_eq!(case.ids("failed").await, id_set(0..5));
        assert_eq!(case.ids("refused").await, id_set(0..5));
    }
}

on_servers!(
    a_share_above_the_limit_is_refused_and_the_other_rules_go_on,
    a_share_at_the_limit_is_allowed,
    a_truncating_limit_does_not_hide_the_share_from_its_guard
);

#[tokio::test]
async fn a_strict_run_refuses_what_is_missing_and_sweeps_the_rest() {
    let case = Case::new().await;
    for name in ["c", "typo"] {
        five(&case, name).await;
    }
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}
  - {namespace: DB.gone, field: at, expireAfter: 1d}
  - {namespace: DB.none_*, field: at, expireAfter: 1d}
  - {namespace: DB.typo, field: ta, expireAfter: 1d}\n";
    let lenient = case.report(rules, &["--dry-run"]).await;
    let statuses = [0, 1, 2, 3].map(|rule| lenient.rule(rule, "status").clone());
    assert_eq!(statuses, ["complete", "skipped", "skipped", "complete"], "{lenient:?}");
    for (args, code) in [(&["check", "--connect"][..], 5), (&["audit"], 0), (&["sweep", "--dry-run"], 0), (&["sweep"], 5)] {
        let ran = case.run(rules, &[args, &["--strict", "--format", "json"]].concat()).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let json = serde_json::from_str(&ran.stdout).unwrap();
        let report = Report { json, ran };
        assert_eq!(report.rule(0, "status"), "complete", "{report:?}");
        for (rule, guard, part) in [
            (1, "noSuchNamespace", ".gone`; `--strict` does not let that pass"),
            (2, "noSuchNamespace", ".none_*`; `--strict`"),
            (3, "unknownField", "no document found has `ta` (`field`)"),
        ] {
            assert_refused(&report, rule, guard, part);
            let warnings = report.rule(rule, "warnings").to_string();
            assert!(!warnings.contains("no such") && !warnings.contains("no document"), "said twice: {warnings}");
        }
    }
    assert_eq!(case.ids("c").await, id_set([4]));
    assert_eq!(case.ids("typo").await, id_set(0..5));
}
