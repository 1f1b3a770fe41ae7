//! A rule with `ttlField: ttl` on Azure Cosmos DB for MongoDB (RU): what the service itself does with the field, and which values
//! do not count.
//!
//! Source: Microsoft, "Expire data with Azure Cosmos DB for MongoDB".

use crate::support::faults::days;
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::{CosmosRu, TtlOnTs};
use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 30d, ttlField: ttl}\n";

/// Documents three days old, each with a value in its `ttl`: two that count and expire, two that keep, and six that do not count.
fn documents() -> impl Iterator<Item = Document> {
    let values: [Bson; 10] = [
        20.into(),
        20.0.into(),
        Bson::Int64(-1),
        Bson::Int32(0),
        20.5.into(),
        Bson::Int64(2_147_483_649),
        "20".into(),
        Bson::Null,
        f64::NAN.into(),
        true.into(),
    ];
    let without = doc! { "_id": 10, "at": days(-3) };
    let live = doc! { "_id": 11, "at": days(3), "ttl": "20" };
    let of_values = values.into_iter().enumerate().map(|(id, ttl)| doc! { "_id": id as i32, "at": days(-3), "ttl": ttl });
    of_values.chain([without, live])
}

async fn account(case: Case, on_ts: Option<TtlOnTs>) -> Proxied {
    let namespace = format!("{}.c", case.db.name());
    let ttl = on_ts.map(|on_ts| (namespace, on_ts)).into_iter().collect();
    Proxied::behind(Service::CosmosRu(CosmosRu { ttl, ..CosmosRu::default() }), case).await
}

async fn json(case: &Case, rules: &str, args: &[&str]) -> Value {
    let ran = case.run(rules, &[args, &["--format", "json"]].concat()).await;
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"))
}

#[tokio::test]
async fn an_audit_and_a_check_say_whether_the_service_obeys_ttl() {
    for (on_ts, part) in [
        (None, "the service itself ignores `ttl` here, because there is no TTL index on `_ts`"),
        (Some(TtlOnTs::Off), "the service itself ignores `ttl` here"),
        (Some(TtlOnTs::Seconds(-1)), "the service itself obeys `ttl` here as well"),
        (Some(TtlOnTs::Seconds(7200)), "it overrides the 7200 s of the index `_ts_1`"),
    ] {
        let case = Case::new().await;
        // A ttl so long that the service hides none of them during the test.
        case.fill("c", (0..12).map(|id| doc! { "_id": id, "at": days(-3), "ttl": 7 * 86_400 })).await;
        let proxied = account(case, on_ts).await;
        let audit = json(&proxied.case, RULE, &["audit"]).await;
        let compared = audit["rules"][0]["nativeComparison"]["detail"].as_str().unwrap().to_owned();
        assert!(compared.contains(part), "{on_ts:?}: {compared}");
        assert!(compared.contains("request units that are left over"), "{compared}");
        let check = json(&proxied.case, RULE, &["check", "--connect"]).await;
        assert!(check["rules"][0]["warnings"].to_string().contains(part), "{on_ts:?}: {check:#}");
        assert_eq!(proxied.case.ids("c").await.len(), 12);
    }
}

#[tokio::test]
async fn an_audit_counts_values_of_ttl_that_do_not_count() {
    let on_mongod = Case::new().await;
    on_mongod.fill("c", documents()).await;
    let behind = Case::new().await;
    behind.fill("c", documents()).await;
    let proxied = account(behind, None).await;
    for case in [&on_mongod, &proxied.case] {
        let audit = json(case, RULE, &["audit"]).await;
        let rule = &audit["rules"][0];
        assert_eq!((&rule["expiredCount"], &rule["ignoredTtlCount"]), (&2.into(), &6.into()), "{audit:#}");
        let table = case.run(RULE, &["audit"]).await;
        let text = table.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("6 documents with a value in ttl that does not count")
                && text.contains("they expire by expireAfterSeconds")
        );
        let swept = case.report(RULE, &[]).await;
        assert_eq!((swept.ran.code, case.ids("c").await), (Some(0), id_set(2..12)), "{swept:?}");
        let without = json(case, "  - {namespace: DB.c, field: at, expireAfter: 30d}\n", &["audit"]).await;
        assert_eq!(without["rules"][0]["ignoredTtlCount"], Value::Null);
    }
}

#[tokio::test]
async fn a_ttl_in_another_case_is_another_field() {
    let with = |name: &str| (0..5).map(|id| doc! { "_id": id, "at": days(-3), name: -1 }).collect::<Vec<_>>();
    for (documents, other) in [
        (with("TTL"), Some("TTL")),
        (with("Ttl"), Some("Ttl")),
        (with("other"), None),
        (with("TTL").into_iter().chain([doc! { "_id": 5, "at": days(3), "ttl": 60 }]).collect(), None),
    ] {
        let case = Case::new().await;
        case.fill("c", documents).await;
        let proxied = account(case, None).await;
        for args in [&["audit"][..], &["check", "--connect"], &["sweep", "--dry-run"], &["sweep"]] {
            let report = json(&proxied.case, RULE, args).await;
            let said = report["rules"][0]["error"].to_string();
            assert_eq!(said.contains("which is another field"), other.is_some(), "{args:?}: {said}");
            assert!(other.is_none_or(|other| said.contains(&format!("but some have `{other}`"))), "{args:?}: {said}");
        }
    }
}
