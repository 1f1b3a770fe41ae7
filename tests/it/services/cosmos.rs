//! Azure Cosmos DB for MongoDB (RU), simulated by the proxy: exact survivors and counts under throttling and every fault.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::{CosmosRu, TtlOnTs};
use crate::support::proxy::errors;
use crate::support::proxy::fault::Fault;
use crate::support::sweeper::{Case, Report, id_set};
use futures_util::future::join_all;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, doc};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

/// Returns an account with 150 expired documents and 10 live ones.
async fn account(settings: CosmosRu) -> Proxied {
    let case = Case::new().await;
    case.fill("c", dated(0..150, days(-3)).chain(dated(150..160, days(3)))).await;
    Proxied::behind(Service::CosmosRu(settings), case).await
}

async fn sweep(proxied: &Proxied, rules: &str) -> Report {
    proxied.case.report(rules, &[]).await
}

async fn assert_swept(proxied: &Proxied, report: &Report) {
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!((report.rule(0, "status"), report.rule(0, "deletedCount")), (&"complete".into(), &150.into()), "{report:?}");
    assert_eq!(report.rule(0, "uncertain"), false, "{report:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(150..160));
}

/// Returns an account whose containers have units for about fifty documents a second.
fn throttled(names_wait: bool) -> CosmosRu {
    CosmosRu { units_per_second: Some(400.0), names_wait, ..CosmosRu::default() }
}

#[tokio::test]
async fn an_account_is_swept_by_pages_and_its_bill_is_reported() {
    let proxied = account(CosmosRu::default()).await;
    let dry = proxied.case.report(RULE, &["--dry-run"]).await;
    assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &150.into()), "{dry:?}");
    assert_eq!(proxied.left().await, 160);
    let before = proxied.proxy.usage().charged();
    // With a limit, the documents are found before they are deleted.
    let report = sweep(&proxied, "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 1000}\n").await;
    assert_swept(&proxied, &report).await;
    assert_eq!(report.json["server"]["flavor"], "cosmosRu");
    assert_eq!(report.json["server"]["recognisedBy"], "the type of its hello");
    let units = report.rule(0, "requestUnits").as_f64().unwrap();
    let charged = proxied.proxy.usage().charged() - before;
    assert!(units >= 975.0 && units <= charged, "{units} of {charged}");
    // No request that such an account refuses was sent, and no cursor was continued.
    let requests = proxied.proxy.requests();
    assert!(requests.iter().all(|request| request.name != "getMore" && !request.body.contains_key("comment")));
    for delete in proxied.proxy.requests_of("delete") {
        let statement = delete.body.get_array("deletes").unwrap()[0].as_document().unwrap();
        let keys: Vec<&String> = statement.keys().collect();
        assert_eq!(keys, ["q", "limit"], "{statement}");
        let of_page = statement.get_document("q").unwrap().get_array("$and").unwrap()[0].as_document().unwrap();
        assert!(of_page.get_document("_id").unwrap().get_array("$in").unwrap().len() <= 100, "{of_page}");
    }
}

#[tokio::test]
async fn throttling_is_waited_for_and_no_document_is_lost_or_counted_twice() {
    for names_wait in [true, false] {
        let proxied = account(throttled(names_wait)).await;
        let report = sweep(&proxied, RULE).await;
        assert_swept(&proxied, &report).await;
        let usage = proxied.proxy.usage();
        assert!(usage.refused > 0 && usage.early == 0, "{usage:?}");
        assert!(report.rule(0, "pausedMs")["throttle"].as_u64().unwrap() > 0, "{report:?}");
    }
}

#[tokio::test]
async fn a_page_is_as_long_as_the_batch_and_not_as_a_first_batch_without_a_size() {
    let case = Case::new().await;
    case.fill("c", dated(0..900, days(-3))).await;
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
    let report = sweep(&proxied, "  - {namespace: DB.c, field: at, expireAfter: 1d, targetBatchMs: 10000}\n").await;
    assert_eq!(report.rule(0, "deletedCount"), 900, "{report:?}");
    // The server's own size is 101, with which there would be nine pages.
    assert!(report.rule(0, "batches").as_u64() < Some(9), "{report:?}");
}

#[tokio::test]
async fn a_budget_of_request_units_is_kept_so_that_nobody_is_throttled() {
    let proxied = account(throttled(true)).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxRequestUnits: 200, batchSize: 15}\n";
    let report = sweep(&proxied, rule).await;
    assert_swept(&proxied, &report).await;
    let usage = proxied.proxy.usage();
    assert_eq!(usage.refused, 0, "{usage:?}");
    // At least 975 units at 200 a second, the last batch not counted.
    let deletes = proxied.proxy.requests_of("delete");
    let took = deletes.last().unwrap().at - deletes[0].at;
    assert!(took >= Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn every_fault_ends_with_the_same_survivors() {
    let faults = [
        ("timed out before", Fault::Answer { reply: errors::timed_out(), done: false }, true),
        ("timed out after", Fault::Answer { reply: errors::timed_out(), done: true }, true),
        ("closed before", Fault::Close { done: false }, true),
        ("closed after", Fault::Close { done: true }, true),
        ("slow", Fault::Delay(Duration::from_millis(300)), false),
        ("503 after some", Fault::WriteError { after: 7, error: errors::unavailable() }, false),
        ("408 after some", Fault::WriteError { after: 7, error: errors::request_timeout() }, true),
        ("413 after none", Fault::WriteError { after: 0, error: errors::too_large() }, false),
        ("16500 after some", Fault::WriteError { after: 3, error: errors::throttled_write(None) }, false),
        ("16500 in whole", Fault::Answer { reply: errors::throttled(None), done: false }, false),
        ("16500 with a wait", Fault::Answer { reply: errors::throttled(Some(Duration::from_millis(50))), done: false }, false),
    ];
    // In parallel, since a sweep waits after most of them.
    let swept = faults.map(async |(name, fault, uncertain)| {
        let proxied = account(CosmosRu::default()).await;
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 40}\n";
        proxied.proxy.faults().next("delete", 1, fault.clone());
        proxied.proxy.faults().every("delete", 3, fault);
        let report = sweep(&proxied, rule).await;
        assert_eq!(report.ran.code, Some(0), "{name}: {report:?}");
        assert_eq!(proxied.case.ids("c").await, id_set(150..160), "{name}");
        assert_eq!(report.rule(0, "uncertain"), uncertain, "{name}: {report:?}");
        let deleted = report.rule(0, "deletedCount").as_u64().unwrap();
        if uncertain {
            assert!(deleted <= 150, "{name}: {deleted}");
        } else {
            assert_eq!(deleted, 150, "{name}");
        }
    });
    join_all(swept).await;
}

#[tokio::test]
async fn reads_that_fail_are_asked_again() {
    for reply in [errors::throttled(None), errors::throttled(Some(Duration::from_millis(30))), errors::timed_out()] {
        let proxied = account(CosmosRu::default()).await;
        proxied.proxy.faults().next("find", 2, Fault::Answer { reply: reply.clone(), done: false });
        proxied.proxy.faults().next("aggregate", 1, Fault::Answer { reply, done: false });
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 99}\n";
        let report = sweep(&proxied, rule).await;
        assert_swept(&proxied, &report).await;
    }
}

#[tokio::test]
async fn a_service_that_never_has_room_fails_the_rule_in_bounded_time() {
    let proxied = account(CosmosRu::default()).await;
    let full = errors::throttled(Some(Duration::from_millis(1)));
    proxied.proxy.faults().next("delete", 1000, Fault::Answer { reply: full, done: false });
    let report = sweep(&proxied, RULE).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(3), &0.into()), "{report:?}");
    assert!(report.rule(0, "error").as_str().unwrap().contains("16500"), "{report:?}");
    assert_eq!(proxied.left().await, 160);
    assert!(proxied.proxy.requests_of("delete").len() <= 30);
}

#[tokio::test]
async fn ids_of_every_type_are_paged() {
    let case = Case::new().await;
    let mut documents = Vec::new();
    for n in 0..12_i32 {
        let ids: [Bson; 9] = [
            n.into(),
            (i64::from(n) + 100).into(),
            (f64::from(n) + 0.5).into(),
            format!("s{n}").into(),
            ObjectId::new().into(),
            DateTime::from_millis(i64::from(n)).into(),
            doc! { "a": n }.into(),
            Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![u8::try_from(n).unwrap()] }),
            Bson::Timestamp(bson::Timestamp { time: 1, increment: u32::try_from(n).unwrap() }),
        ];
        documents.extend(ids.map(|id| doc! { "_id": id, "at": days(-3) }));
    }
    for id in [Bson::Null, Bson::MinKey, Bson::MaxKey, true.into(), false.into()] {
        documents.push(doc! { "_id": id, "at": days(-3) });
    }
    let expired = documents.len();
    documents.extend([doc! { "_id": "live", "at": days(3) }, doc! { "_id": 1000, "at": "2001" }]);
    case.fill("c", documents).await;
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
    let report = sweep(&proxied, "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5}\n").await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &expired.into()), "{report:?}");
    assert_eq!(proxied.case.ids("c").await, &id_set(["live"]) | &id_set([1000]));
}

#[tokio::test]
async fn deletes_from_a_sharded_collection_name_the_shard_key() {
    let tenant = |n: i32| doc! { "_id": n, "at": days(if n < 30 { -3 } else { 3 }), "tenant": format!("t{}", n % 4) };
    for retryable_writes in [false, true] {
        let case = Case::new().await;
        case.fill("c", (0..35).map(tenant).chain([doc! { "_id": 100, "at": days(-3) }])).await;
        let settings = CosmosRu {
            shard_keys: BTreeMap::from([(format!("{}.c", case.db.name()), doc! { "tenant": "Hash" })]),
            retryable_writes,
            ..CosmosRu::default()
        };
        let proxied = Proxied::behind(Service::CosmosRu(settings), case).await;
        let report = sweep(&proxied, RULE).await;
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &31.into()), "{report:?}");
        assert_eq!(proxied.case.ids("c").await, id_set(30..35));
        for delete in proxied.proxy.requests_of("delete") {
            for statement in delete.body.get_array("deletes").unwrap() {
                let aim = statement.as_document().unwrap().get_document("q").unwrap().get_array("$and").unwrap()[0].clone();
                assert!(aim.as_document().unwrap().contains_key("tenant"), "{aim}");
            }
        }
    }
}

#[tokio::test]
async fn the_services_own_ttl_is_named() {
    let on_ts = |seconds: i32| serde_json::json!([{ "index": "_ts_1", "field": "_ts", "expireAfterSeconds": seconds }]);
    for (ttl, part, reported) in [
        (Some(TtlOnTs::Seconds(-1)), Some("by their own `ttl` as well"), on_ts(-1)),
        (Some(TtlOnTs::Seconds(7200)), Some("7200 s after their last change"), on_ts(7200)),
        (Some(TtlOnTs::Off), None, serde_json::json!([])),
        (None, None, serde_json::json!([])),
    ] {
        let case = Case::new().await;
        case.fill("c", dated(0..150, days(-3)).chain(dated(150..160, days(3)))).await;
        let namespace = format!("{}.c", case.db.name());
        let ttl = ttl.map(|ttl| BTreeMap::from([(namespace, ttl)])).unwrap_or_default();
        let proxied = Proxied::behind(Service::CosmosRu(CosmosRu { ttl, ..CosmosRu::default() }), case).await;
        let report = sweep(&proxied, RULE).await;
        assert_swept(&proxied, &report).await;
        let warnings = report.rule(0, "warnings").to_string();
        assert_eq!(report.rule(0, "nativeTtl"), &reported);
        assert_eq!(warnings.contains("the service's own TTL"), part.is_some(), "{warnings}");
        assert!(part.is_none_or(|part| warnings.contains(part)), "{warnings}");
    }
}

#[tokio::test]
async fn an_own_ttl_and_a_filter_decide_as_on_mongod() {
    let case = Case::new().await;
    let now = DateTime::now().timestamp_millis();
    let documents = (0..60).map(|n| {
        let mut document =
            doc! { "_id": n, "at": DateTime::from_millis(now - 7_200_000), "state": if n % 2 == 0 { "done" } else { "open" } };
        let ttl: [Option<Bson>; 5] = [None, Some(60.into()), Some(100_000.into()), Some((-1).into()), Some("x".into())];
        if let Some(ttl) = ttl[n as usize % 5].clone() {
            document.insert("ttl", ttl);
        }
        document
    });
    case.fill("c", documents).await;
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1h, ttlField: ttl, filter: {state: done}}\n";
    let report = sweep(&proxied, rule).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(proxied.case.ids("c").await, id_set((0..60).filter(|n| n % 2 == 1 || matches!(n % 5, 2 | 3))));
}

#[tokio::test]
async fn what_the_service_cannot_do_is_refused_or_said() {
    let proxied = account(CosmosRu::default()).await;
    let report = sweep(&proxied, "  - {namespace: DB.c, field: at, expireAfter: 1d, collation: {locale: en}}\n").await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"collation".into()), "{report:?}");
    let report = sweep(&proxied, "  - {namespace: DB.c, field: at, expireAfter: 1d, dateFormat: iso8601}\n").await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"dateFormat".into()), "{report:?}");
    let report = sweep(&proxied, "  - {namespace: DB.c, field: at, expireAfter: 1d, maxLag: 10s, batchSize: 5000}\n").await;
    assert_swept(&proxied, &report).await;
    let warnings = report.rule(0, "warnings").to_string();
    assert!(warnings.contains("`maxLag` is for replica sets") && warnings.contains("more than 1000 documents"), "{warnings}");
}

#[tokio::test]
async fn an_account_that_is_too_old_is_explained() {
    for (api_version, wire_version) in [("3.6", 6), ("4.0", 7)] {
        let proxied = account(CosmosRu { api_version, ..CosmosRu::default() }).await;
        let ran = proxied.case.run(RULE, &["sweep"]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains(&format!("wire version {wire_version}")), "{ran:?}");
        assert!(ran.stderr.contains("upgrade the account's API version to 4.2 or later"), "{ran:?}");
        assert_eq!(proxied.left().await, 160);
    }
}

#[tokio::test]
async fn an_account_without_types_in_its_replies_is_known_by_its_set() {
    let proxied = account(CosmosRu { shows_types: false, ..CosmosRu::default() }).await;
    let report = sweep(&proxied, RULE).await;
    assert_swept(&proxied, &report).await;
    assert_eq!(report.json["server"]["recognisedBy"], "the replica set `globaldb`");
}

#[tokio::test]
async fn the_policy_can_name_the_service() {
    let proxied = account(CosmosRu::default()).await;
    let policy = format!(
        "version: 1\nconnection: {{flavor: cosmosRu}}\ncollections:\n{}",
        RULE.replace("DB.", &format!("{}.", proxied.case.db.name()))
    );
    let path = proxied.case.file("named.yaml", &policy);
    let mut command = crate::support::sweeper::sweeper(&["sweep", "--format", "json", "--uri", &proxied.case.uri, "--policy"]);
    command.arg(path);
    let ran = crate::support::sweeper::run(command).await;
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    assert_eq!(json["server"]["recognisedBy"], "`flavor` of the policy");
    assert_swept(&proxied, &Report { json, ran }).await;
}

/// Runs `sweeper native` with a policy and reads its JSON report.
async fn native(proxied: &Proxied, rules: &str, args: &[&str]) -> (Option<i32>, serde_json::Value) {
    let ran = proxied.case.run(rules, &[&["native"], args, &["--format", "json"]].concat()).await;
    (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}")))
}

#[tokio::test]
async fn the_services_own_ttl_is_set_by_native_apply() {
    for (keys, seconds) in [("expireAfterSeconds: 7200", 7200), ("expireAfterSeconds: -1, ttlField: ttl", -1)] {
        let proxied = account(CosmosRu::default()).await;
        let rules = format!("  - {{namespace: DB.c, field: _ts, {keys}}}\n");
        let (code, report) = native(&proxied, &rules, &["diff"]).await;
        assert_eq!((code, &report["rows"][0]["state"]), (Some(5), &"missing".into()), "{report}");
        let (code, report) = native(&proxied, &rules, &["apply", "--dry-run"]).await;
        assert_eq!((code, &report["rows"][0]["change"]["expiredCount"]), (Some(0), &serde_json::Value::Null), "{report}");
        assert!(proxied.proxy.requests_of("createIndexes").is_empty());
        let (code, report) = native(&proxied, &rules, &["apply", "--yes"]).await;
        assert_eq!((code, &report["rows"][0]["change"]["status"]), (Some(0), &"applied".into()), "{report}");
        let (code, report) = native(&proxied, &rules, &["diff"]).await;
        assert_eq!((code, &report["rows"][0]["native"]["expireAfterSeconds"]), (Some(0), &seconds.into()), "{report}");
        assert_eq!(proxied.left().await, 160);
    }
    let proxied = account(CosmosRu::default()).await;
    for (rule, part) in [
        ("field: at, expireAfterSeconds: 60", "counts from the last change"),
        ("field: _ts, expireAfterSeconds: 0", "no expireAfterSeconds of 0"),
        ("field: _ts, expireAfterSeconds: 60, ttlField: other", "only from `ttl`"),
        ("field: _ts, expireAfterSeconds: 60, filter: {a: 1}", "no filter"),
    ] {
        let (code, report) = native(&proxied, &format!("  - {{namespace: DB.c, {rule}}}\n"), &["diff"]).await;
        assert_eq!((code, &report["rows"][0]["state"]), (Some(0), &"impossible".into()), "{report}");
        assert!(report["rows"][0]["reason"].as_str().unwrap().contains(part), "{report}");
    }
    let guarded = "  - {namespace: DB.c, field: _ts, expireAfterSeconds: 60, maxDeletePercent: 50}\n";
    let (code, report) = native(&proxied, guarded, &["apply", "--yes"]).await;
    assert_eq!((code, &report["rows"][0]["change"]["status"]), (Some(5), &"refused".into()), "{report}");
    // A rule for `_ts`, which clients cannot see, is not swept.
    for args in [&["sweep"][..], &["sweep", "--dry-run"], &["check"]] {
        let ran = proxied.case.run("  - {namespace: DB.c, field: _ts, expireAfterSeconds: 60}\n", args).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("not visible to MongoDB clients") && ran.stderr.contains("nothing was contacted"), "{ran:?}");
    }
    assert_eq!(proxied.left().await, 160);
}
