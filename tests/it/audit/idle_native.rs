//! Native TTL settings that are set and do not do their work, and how far they are behind: the reason why nothing expires.

use crate::support::audit::audit;
use crate::support::faults::{dated, days};
use crate::support::mongod::Mongod;
use crate::support::native::{command, index, native, ttl};
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, Report};
use crate::support::version::version;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};

/// Starts a server whose monitor is on, but does not begin a pass during a test.
async fn monitored() -> (Mongod, Case) {
    let rarely = ["--setParameter", "ttlMonitorSleepSecs=86400"];
    let mongod = tokio::task::spawn_blocking(move || Mongod::start(&rarely)).await.unwrap();
    let case = Case::on(&mongod, "t").await;
    switch_on(&case).await;
    (mongod, case)
}

async fn switch_on(case: &Case) {
    command(&case.client.database("admin"), doc! { "setParameter": 1, "ttlMonitorEnabled": true }).await;
}

fn troubles(report: &Report, rule: usize) -> Vec<Value> {
    let troubles = report.rule(rule, "nativeTroubles").as_array().unwrap_or_else(|| panic!("{report:?}"));
    let brief = |trouble: &Value| json!([trouble["index"], trouble["field"], trouble["reason"], trouble["overdueCount"]]);
    troubles.iter().map(brief).collect()
}

#[tokio::test]
async fn a_monitor_that_is_switched_off_is_named_wherever_native_ttl_is() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3)).chain(dated(3..5, days(3)))).await;
    index(&case.db, "c", doc! { "at": 1 }, "at_1", ttl(3600)).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1h, maxDeletes: 1}\n";
    let report = audit(&case, rule, &[]).await;
    assert_eq!(troubles(&report, 0), [json!(["at_1", "at", "monitorOff", 3])], "{report:?}");
    let behind = report.rule(0, "nativeTroubles")[0]["behindSeconds"].as_u64().unwrap();
    assert!((255_600..255_600 + 3600).contains(&behind), "three days but an hour: {behind}");
    let off = "the server's TTL monitor is switched off (`ttlMonitorEnabled: false`)";
    let compared = report.rule(0, "nativeComparison");
    let expected = format!("the TTL index `at_1` (expireAfterSeconds 3600) deletes nothing: {off}");
    assert_eq!(compared, &json!({ "state": "none", "detail": expected }));
    assert!(report.rule(0, "warnings").to_string().contains(&expected), "{report:?}");

    for format in ["table", "markdown", "html", "csv"] {
        let shown = case.run(rule, &["audit", "--format", format]).await.stdout;
        let plain = shown.replace("&#39;", "'").replace("<code>", "`").replace("</code>", "`");
        let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = format!("index at_1 (at): {off}; 3 documents overdue, the first by 2 days");
        assert!(words.contains(&expected), "{format}: {shown}");
    }
    for args in [&["--dry-run"][..], &[]] {
        let report = case.report(rule, args).await;
        assert_eq!(report.rule(0, "warnings"), &json!([expected.as_str()]), "{args:?}: {report:?}");
    }
    let check = case.run(rule, &["check", "--connect"]).await;
    let words = check.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&expected), "{check:?}");
    let (diff, rows) = native(&case, rule, &["diff"]).await;
    assert_eq!((diff.code, &rows["rows"][0]["state"]), (Some(0), &json!("same")), "{diff:?}");
    assert_eq!(diff.stderr, format!("warning: {off}: no TTL setting of this server deletes anything\n"));
}

#[tokio::test]
async fn kinds_values_and_fields_by_which_nothing_expires_are_told_apart() {
    let (_mongod, case) = monitored().await;
    for name in ["kind", "largest", "text", "well", "late"] {
        case.fill(name, dated(0..2, days(-3)).chain([doc! { "_id": 9, "at": days(3), "text": "2026-01-01" }])).await;
    }
    case.fill("filtered", dated(0..2, days(3))).await;
    index(&case.db, "kind", doc! { "at": "hashed" }, "h", ttl(60)).await;
    index(&case.db, "largest", doc! { "at": 1 }, "v", ttl(i32::MAX)).await;
    index(&case.db, "text", doc! { "text": 1 }, "t", ttl(60)).await;
    index(&case.db, "well", doc! { "at": 1 }, "w", ttl(864_000)).await;
    // A hidden index and one in the other order delete like any other.
    let hidden = doc! { "expireAfterSeconds": 3600, "hidden": true };
    index(&case.db, "late", doc! { "at": -1 }, "l", hidden).await;
    let partial = doc! { "expireAfterSeconds": 60, "partialFilterExpression": { "s": "done" } };
    index(&case.db, "filtered", doc! { "at": 1 }, "f", partial).await;
    let rules: String = ["kind", "largest", "text", "well", "late", "filtered"]
        .iter()
        .map(|name| format!("  - {{namespace: DB.{name}, field: at, expireAfter: 1h}}\n"))
        .collect();
    let report = audit(&case, &rules, &[]).await;
    let expected = [
        vec![json!(["h", "at", "kind", null])],
        vec![],
        vec![json!(["t", "text", "noDate", 0])],
        vec![],
        vec![json!(["l", "at", "overdue", 2])],
        vec![json!(["f", "at", "noDate", 0])],
    ];
    for (rule, expected) in expected.iter().enumerate() {
        assert_eq!(&troubles(&report, rule), expected, "{rule}: {report:?}");
    }
    let detail = |rule: usize| report.rule(rule, "nativeTroubles")[0]["detail"].as_str().unwrap().to_owned();
    assert_eq!(
        [detail(2), detail(5)],
        ["no document has a date in `text`", "no document that its filter selects has a date in `at`"]
    );
}

/// Creates a time-series collection that expires after an hour, with a bucket for each of the times.
async fn series(case: &Case, name: &str, times: &[i64]) {
    let options = doc! { "timeField": "t", "metaField": "m" };
    command(&case.db, doc! { "create": name, "timeseries": options, "expireAfterSeconds": 3600_i64 }).await;
    let measured = |(n, at): (usize, &i64)| doc! { "t": DateTime::from_millis(*at), "m": n as i32 };
    case.fill(name, times.iter().enumerate().map(measured).collect::<Vec<Document>>()).await;
}

#[tokio::test]
async fn a_measurement_after_2038_stops_the_servers_own_ttl_where_it_does() {
    let (_mongod, case) = monitored().await;
    let now = DateTime::now().timestamp_millis();
    let (old, in_2100) = (now - 10 * 86_400_000, 4_102_444_800_000);
    series(&case, "whole", &[now, old, in_2100]).await;
    series(&case, "usual", &[now]).await;
    series(&case, "late", &[now, old, old]).await;
    let rules: String =
        ["whole", "usual", "late"].iter().map(|name| format!("  - {{namespace: DB.{name}, expireAfter: 1h}}\n")).collect();
    let report = audit(&case, &rules, &[]).await;
    let stops = version(&case.db).await.major >= 7;
    // mongod 6.0.5 deletes all the same, so that only its being late is seen.
    let reason = if stops { "extendedTimes" } else { "overdue" };
    assert_eq!(troubles(&report, 0), [json!([null, "t", reason, 1])], "{report:?}");
    assert_eq!(troubles(&report, 1), [] as [Value; 0], "{report:?}");
    assert_eq!(troubles(&report, 2), [json!([null, "t", "overdue", 2])], "{report:?}");
    let state = if stops { "none" } else { "same" };
    assert_eq!(report.rule(0, "nativeComparison")["state"], state, "{report:?}");

    let dry = case.report(&rules, &["--dry-run"]).await;
    let expected = if stops { "(3600) deletes nothing: MongoDB 7" } else { "(3600) deletes from it as well" };
    assert!(dry.rule(0, "warnings").to_string().contains(expected), "{dry:?}");
    assert!(dry.rule(1, "warnings").to_string().contains("(3600) deletes from it as well"), "{dry:?}");
}

#[tokio::test]
async fn a_member_that_runs_as_a_standalone_has_no_monitor() {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, &[])).await.unwrap();
    let (case, set) = {
        let mut set = set;
        set.members[0].extra.clear();
        set.members[0].restart();
        (Case::on(&set.members[0], "t").await, set)
    };
    switch_on(&case).await;
    case.fill("c", dated(0..1, days(3))).await;
    index(&case.db, "c", doc! { "at": 1 }, "at_1", ttl(60)).await;
    let report = audit(&case, "  - {namespace: DB.c, field: at, expireAfter: 1h}\n", &[]).await;
    assert_eq!(troubles(&report, 0), [json!(["at_1", "at", "monitorOff", 0])], "{report:?}");
    let detail = report.rule(0, "nativeTroubles")[0]["detail"].as_str().unwrap();
    assert!(detail.contains("runs as a standalone"), "{detail}");
    drop(set);
}

#[tokio::test]
async fn a_role_that_may_not_ask_for_the_monitor_still_audits() {
    let (server, site) = (crate::support::site::secured(), crate::support::site::Site::new());
    let db = server.root().await.database("idle");
    index(&db, "c", doc! { "at": 1 }, "at_1", ttl(60)).await;
    db.collection::<Document>("c").insert_many(dated(0..2, days(-3))).await.unwrap();
    let roles = vec![doc! { "role": "read", "db": "idle" }];
    server.admin(doc! { "createUser": "looker", "pwd": "password", "roles": roles }).await;
    let rules = "  - {namespace: idle.c, field: at, expireAfter: 1h}\n";
    let ran = site.run(&server.uri("looker", "password"), rules, &["audit", "--format", "json"]).await;
    let report = crate::support::audit::read(ran);
    assert_eq!(troubles(&report, 0), [json!(["at_1", "at", "overdue", 2])], "{report:?}");
}
