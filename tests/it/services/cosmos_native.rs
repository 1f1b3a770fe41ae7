//! `sweeper native` and `import` on Azure Cosmos DB for MongoDB (RU): TTL on `_ts`, and on another field where the account allows
//! it.

use std::time::Duration;

use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::cosmos::{CosmosRu, TtlOnTs};
use crate::support::proxy::fault::Fault;
use crate::support::proxy::{Service, errors};
use crate::support::sweeper::{Case, Ran, run, sweeper};
use mongodb::bson::{DateTime, doc};
use serde_json::Value;

const DROP: &str = "{dropIndexes: \"c\", index: \"_ts_1\"}";

/// Returns an account with 15 documents, whose collection has this index on `_ts`.
async fn account(on_ts: Option<TtlOnTs>) -> Proxied {
    let case = Case::new().await;
    case.fill("c", dated(0..15, days(-3))).await;
    let namespace = format!("{}.c", case.db.name());
    let ttl = on_ts.map(|on_ts| (namespace, on_ts)).into_iter().collect();
    Proxied::behind(Service::CosmosRu(CosmosRu { ttl, ..CosmosRu::default() }), case).await
}

async fn native(proxied: &Proxied, rules: &str, args: &[&str]) -> (Ran, Value) {
    let ran = proxied.case.run(rules, &[&["native"], args, &["--format", "json"]].concat()).await;
    let report = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    (ran, report)
}

fn on_ts(keys: &str) -> String {
    format!("  - {{namespace: DB.c, field: _ts, {keys}}}\n")
}

/// Returns the state of a row that is compared again, with the value of its setting.
async fn now(proxied: &Proxied, rules: &str) -> (String, Value) {
    let (_, report) = native(proxied, rules, &["diff"]).await;
    let row = &report["rows"][0];
    (row["state"].as_str().unwrap().to_owned(), row["native"]["expireAfterSeconds"].clone())
}

#[tokio::test]
async fn ttl_on_ts_is_changed_and_switched_off_and_what_reappears_is_said() {
    let create = |seconds: i32| {
        format!("{{createIndexes: \"c\", indexes: [{{key: {{_ts: 1}}, name: \"_ts_1\", expireAfterSeconds: {seconds}}}]}}")
    };
    let reappear = "documents that have expired, but that the service has not deleted yet, reappear";
    for (there, keys, commands, notes) in [
        (Some(TtlOnTs::Seconds(7200)), "expireAfterSeconds: 60", vec![DROP.to_owned(), create(60)], &[reappear, "overrides"][..]),
        (Some(TtlOnTs::Seconds(-1)), "expireAfterSeconds: 60", vec![DROP.to_owned(), create(60)], &[reappear, "overrides"]),
        (
            Some(TtlOnTs::Seconds(60)),
            "expireAfterSeconds: -1, ttlField: ttl",
            vec![DROP.to_owned(), create(-1)],
            &[reappear, "only documents with their own `ttl` expire"],
        ),
        (Some(TtlOnTs::Seconds(60)), "expireAfterSeconds: 60, enabled: false", vec![DROP.to_owned()], &[reappear]),
        (Some(TtlOnTs::Off), "expireAfterSeconds: 60", vec![DROP.to_owned(), create(60)], &["cannot be counted"]),
        (None, "expireAfterSeconds: 60", vec![create(60)], &["request units that are left over"]),
    ] {
        let proxied = account(there).await;
        let rules = on_ts(keys);
        let name = proxied.case.db.name().to_owned();
        let shown: Vec<String> =
            commands.iter().map(|command| format!("db.getSiblingDB(\"{name}\").runCommand({command})")).collect();
        let (dry, planned) = native(&proxied, &rules, &["apply", "--dry-run"]).await;
        let change = &planned["rows"][0]["change"];
        assert_eq!((dry.code, &change["command"]), (Some(0), &shown.join("; ").into()), "{keys}: {planned:#}");
        let said = change["notes"].to_string();
        assert!(notes.iter().all(|note| said.contains(note)), "{keys}: {said}");
        assert_eq!(said.contains(reappear), notes.contains(&reappear), "{keys}: {said}");
        assert!(proxied.proxy.requests_of("dropIndexes").is_empty(), "a dry run changes nothing");

        let (ran, report) = native(&proxied, &rules, &["apply", "--yes"]).await;
        assert_eq!((ran.code, &report["rows"][0]["change"]["status"]), (Some(0), &"applied".into()), "{keys}: {report:#}");
        let table = proxied.case.run(&rules, &["native", "diff"]).await;
        let (state, seconds) = now(&proxied, &rules).await;
        assert_eq!(state, "same", "{keys}: {table:?}");
        assert_eq!(seconds.is_null(), keys.contains("false"), "{keys}: {table:?}");
        assert_eq!(proxied.left().await, 15);
    }
}

#[tokio::test]
async fn a_change_waits_for_trouble_to_pass_and_a_lost_reply_is_not_a_failure() {
    let proxied = account(Some(TtlOnTs::Seconds(7200))).await;
    for command in ["dropIndexes", "createIndexes"] {
        let throttled = errors::throttled_metadata(Some(Duration::from_millis(30)));
        proxied.proxy.faults().next(command, 2, Fault::Answer { reply: throttled, done: false });
        proxied.proxy.faults().next(command, 1, Fault::Close { done: true });
    }
    let rules = on_ts("expireAfterSeconds: 60");
    let (ran, report) = native(&proxied, &rules, &["apply", "--yes"]).await;
    assert_eq!((ran.code, &report["rows"][0]["change"]["status"]), (Some(0), &"applied".into()), "{report:#}");
    assert_eq!(now(&proxied, &rules).await, ("same".to_owned(), 60.into()));
    assert_eq!((proxied.proxy.requests_of("dropIndexes").len(), proxied.proxy.requests_of("createIndexes").len()), (4, 4));
}

#[tokio::test]
async fn an_index_that_is_not_created_again_is_named_and_the_next_apply_creates_it() {
    let proxied = account(Some(TtlOnTs::Seconds(7200))).await;
    let refused = errors::of_cosmos(13, "Unauthorized", "not authorized");
    proxied.proxy.faults().next("createIndexes", 1, Fault::Answer { reply: refused, done: false });
    let rules = on_ts("expireAfterSeconds: 60");
    let (ran, report) = native(&proxied, &rules, &["apply", "--yes"]).await;
    let error = report["rows"][0]["change"]["error"].as_str().unwrap();
    assert_eq!(ran.code, Some(3), "{report:#}");
    assert!(error.contains("the index `_ts_1` was dropped before, so that nothing expires"), "{error}");
    let (ran, report) = native(&proxied, &rules, &["apply", "--yes"]).await;
    assert_eq!((ran.code, &report["rows"][0]["state"]), (Some(0), &"missing".into()), "{report:#}");
    assert_eq!(now(&proxied, &rules).await, ("same".to_owned(), 60.into()));
}

#[tokio::test]
async fn switching_off_deletes_nothing_and_is_not_held_up_by_a_share() {
    let proxied = account(Some(TtlOnTs::Seconds(7200))).await;
    let rules = on_ts("expireAfterSeconds: 60, enabled: false, maxDeletePercent: 50");
    let (ran, report) = native(&proxied, &rules, &["apply", "--yes"]).await;
    assert_eq!((ran.code, &report["rows"][0]["change"]["status"]), (Some(0), &"applied".into()), "{report:#}");
    assert_eq!(now(&proxied, &rules).await, ("same".to_owned(), Value::Null));
}

/// Microsoft, "Time to live" (custom TTL): dates, and numbers as milliseconds since 1970, expire by an index on one field.
#[tokio::test]
async fn ttl_on_another_field_is_compared_changed_counted_and_imported() {
    let case = Case::new().await;
    let numbers = (15..20).map(|id| doc! { "_id": id, "at": DateTime::now().timestamp_millis() - 3 * 86_400_000 });
    case.fill("c", dated(0..15, days(-3)).chain(numbers).chain([doc! { "_id": 20, "at": DateTime::now() }])).await;
    let settings = CosmosRu { ttl_on_custom_path: true, ..CosmosRu::default() };
    let proxied = Proxied::behind(Service::CosmosRu(settings), case).await;
    let at = |keys: &str| format!("  - {{namespace: DB.c, field: at, {keys}}}\n");

    // Without an index on the field the capability does not show.
    let (_, report) = native(&proxied, &at("expireAfterSeconds: 3600"), &["diff"]).await;
    assert_eq!(report["rows"][0]["state"], "impossible", "{report:#}");
    assert!(report["rows"][0]["reason"].as_str().unwrap().contains("EnableTtlOnCustomPath"), "{report:#}");

    let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 3600 };
    proxied.run(doc! { "createIndexes": "c", "indexes": [index] }).await.unwrap();
    let numbers = "numbers as milliseconds since 1970";
    let (ran, report) = native(&proxied, &at("expireAfterSeconds: 3600"), &["diff"]).await;
    assert_eq!((ran.code, report["rows"].as_array().unwrap().len()), (Some(0), 1), "{report:#}");
    assert!(report["rows"][0]["reason"].as_str().unwrap().contains(numbers), "{report:#}");
    for (keys, part) in [
        ("expireAfterSeconds: 3600, ttlField: ttl", "only with TTL on `_ts`"),
        ("expireAfterSeconds: 3600, filter: {a: 1}", "no filter"),
        ("expireAfterSeconds: 3600, dateFormat: epochSeconds", numbers),
    ] {
        let (_, report) = native(&proxied, &at(keys), &["diff"]).await;
        assert_eq!(report["rows"][0]["state"], "impossible", "{keys}: {report:#}");
        assert!(report["rows"][0]["reason"].as_str().unwrap().contains(part), "{keys}: {report:#}");
    }

    let imported =
        run(sweeper(&["import", "--uri", &proxied.case.uri, "--only", &format!("{}.*", proxied.case.db.name())])).await;
    assert_eq!(imported.code, Some(0), "{imported:?}");
    assert!(imported.stdout.contains("EnableTtlOnCustomPath; the service also expires numbers"), "{imported:?}");
    assert!(imported.stdout.contains("field: at\n    expireAfterSeconds: 3600\n"), "{imported:?}");

    let (ran, report) = native(&proxied, &at("expireAfter: 1d"), &["apply", "--yes"]).await;
    let change = &report["rows"][0]["change"];
    assert_eq!((ran.code, &change["status"], &change["expiredCount"]), (Some(0), &"applied".into(), &20.into()), "{report:#}");
    assert_eq!(now(&proxied, &at("expireAfter: 1d")).await, ("same".to_owned(), 86_400.into()));
    assert_eq!(proxied.proxy.requests_of("collMod").len(), 0);
}

#[tokio::test]
async fn an_account_with_ttl_on_ts_only_is_told_so_by_import() {
    for (seconds, part) in
        [(7200, "deletes documents 7200 s, or their own `ttl`, after their last change"), (-1, "by their own `ttl`")]
    {
        let proxied = account(Some(TtlOnTs::Seconds(seconds))).await;
        let ran = run(sweeper(&["import", "--uri", &proxied.case.uri, "--only", &format!("{}.*", proxied.case.db.name())])).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        assert!(ran.stderr.contains(part) && ran.stderr.contains("`sweeper native` sets it"), "{ran:?}");
        assert!(ran.stderr.contains("no rule can stand for any of 1 TTL setting in 1 collection"), "{ran:?}");
    }
}
