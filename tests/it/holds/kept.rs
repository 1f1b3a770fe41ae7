//! What is held stays, by every way in which documents are found, and goes once its hold is gone.

use std::collections::BTreeSet;

use mongodb::bson::{Bson, DateTime, Document, doc, oid::ObjectId};
use serde_json::json;

use crate::support::faults::days;
use crate::support::sweeper::{Case, id_set, run, sweeper};

const HOLDS: &str = "holds: {collection: DB.holds, key: {of: tenantId, in: customer}, filter: {active: true}}";

/// Returns forty documents of ten tenants, each with two dates that have expired and two that have not.
fn documents() -> Vec<Document> {
    let document = |id: i32| doc! { "_id": id, "tenantId": format!("t{}", id % 10), "at": days(if id < 20 { -3 } else { 3 }) };
    (0..40).map(document).collect()
}

async fn hold(case: &Case, customer: impl Into<Bson>, active: bool) {
    case.fill("holds", [doc! { "customer": customer.into(), "active": active }]).await;
}

async fn index(case: &Case, key: Document) {
    let indexes = vec![doc! { "key": key, "name": "by_date" }];
    case.db.run_command(doc! { "createIndexes": "c", "indexes": indexes }).await.unwrap();
}

/// Returns the `_id`s that are left if these tenants are held.
fn left(tenants: &[i32]) -> BTreeSet<String> {
    id_set((0..40).filter(|id| *id >= 20 || tenants.contains(&(id % 10))))
}

#[tokio::test]
async fn what_is_held_stays_whatever_way_finds_it_and_goes_once_the_hold_is_gone() {
    for (key, keys) in [
        (Some(doc! { "at": 1 }), ""),
        (Some(doc! { "at": -1 }), ", batchSize: 3"),
        (Some(doc! { "at": 1, "tenantId": 1 }), ", batchSize: 3, concurrency: 1"),
        (Some(doc! { "at": 1 }), ", maxDeletes: 1000"),
        (Some(doc! { "at": 1 }), ", rate: 100000, batchSize: 2"),
        (Some(doc! { "at": 1 }), ", order: storage"),
        (Some(doc! { "at": 1 }), ", archive: {directory: DIR}, batchSize: 4"),
        (Some(doc! { "at": 1, "other": 1 }), ", maxDeletePercent: 90"),
        (None, ""),
        (None, ", ttlField: ttl, allowUnknownFields: [ttl]"),
        (None, ", filter: {tenantId: {$gte: t0}}, collation: {locale: en}"),
    ] {
        let case = Case::new().await;
        case.fill("c", documents()).await;
        if let Some(key) = key {
            index(&case, key).await;
        }
        for tenant in ["t3", "t7", "unknown"] {
            hold(&case, tenant, true).await;
        }
        hold(&case, "t5", false).await;
        hold(&case, Bson::Null, false).await;
        let keys = keys.replace("DIR", &case.dir.path().display().to_string());
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {HOLDS}{keys}}}\n");
        let dry = case.report(&rule, &["--dry-run"]).await;
        assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &16.into()), "{keys}: {dry:?}");
        assert_eq!((dry.rule(0, "heldCount"), dry.rule(0, "wouldDeleteCount")), (&4.into(), &16.into()), "{keys}: {dry:?}");
        let most = dry.rule(0, "heldBy").as_array().unwrap();
        assert!(most.len() == 2 && most.contains(&json!({ "key": "t3", "count": 2 })), "{keys}: {dry:?}");
        assert_eq!(case.ids("c").await, id_set(0..40), "{keys}");

        let swept = case.report(&rule, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "status")), (Some(0), &"complete".into()), "{keys}: {swept:?}");
        assert_eq!((swept.rule(0, "deletedCount"), swept.rule(0, "heldCount")), (&16.into(), &4.into()), "{keys}: {swept:?}");
        assert_eq!(case.ids("c").await, left(&[3, 7]), "{keys}");
        assert_eq!(swept.rule(0, "archivedCount").as_u64().unwrap_or(16), 16, "{keys}: {swept:?}");

        // A hold that is no longer active, and one that is removed.
        let holds = case.collection("holds");
        holds.update_one(doc! { "customer": "t3" }, doc! { "$set": { "active": false } }).await.unwrap();
        let again = case.report(&rule, &[]).await;
        assert_eq!((again.ran.code, again.rule(0, "deletedCount")), (Some(0), &2.into()), "{keys}: {again:?}");
        assert_eq!(case.ids("c").await, left(&[7]), "{keys}");
        holds.delete_many(doc! { "active": true }).await.unwrap();
        let last = case.report(&rule, &[]).await;
        assert_eq!((last.rule(0, "deletedCount"), last.rule(0, "heldCount")), (&2.into(), &0.into()), "{keys}: {last:?}");
        assert_eq!(case.ids("c").await, left(&[]), "{keys}");
    }
}

#[tokio::test]
async fn rules_that_read_one_collection_of_holds_by_other_filters_keep_what_each_of_them_holds() {
    let case = Case::new().await;
    for name in ["c", "d"] {
        case.fill(name, documents()).await;
    }
    hold(&case, "t3", true).await;
    hold(&case, "t5", false).await;
    let rule = |name: &str, active: &str| {
        let holds = HOLDS.replace("active: true", active);
        format!("  - {{namespace: DB.{name}, field: at, expireAfter: 1d, {holds}}}\n")
    };
    let swept = case.report(&[rule("c", "active: true"), rule("d", "active: false")].concat(), &[]).await;
    assert_eq!((swept.ran.code, swept.json["totals"]["deletedCount"].as_u64()), (Some(0), Some(36)), "{swept:?}");
    for (name, tenant) in [("c", 3), ("d", 5)] {
        assert_eq!(case.ids(name).await, left(&[tenant]), "{name}: {swept:?}");
    }
}

#[tokio::test]
async fn a_document_whose_key_changes_to_a_held_one_before_it_is_deleted_stays() {
    let (_mongod, case) = crate::support::faults::alone().await;
    case.fill("c", documents()).await;
    hold(&case, "t3", true).await;
    crate::support::faults::pause_deletes(&case.client).await;
    let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 1000, {HOLDS}}}\n");
    let child = crate::support::faults::start(case.command(&rule, &["sweep", "--format", "json"]));
    crate::support::faults::until_deleting_from(&case.collection("c")).await;
    // One key, and one of several keys.
    let to = |id: i32, keys: Bson| (doc! { "_id": id }, doc! { "$set": { "tenantId": keys } });
    for (of, change) in [to(1, "t3".into()), to(2, Bson::from(vec!["t2", "t3"])), to(4, Bson::from(vec!["t2", "t4"]))] {
        case.collection("c").update_one(of, change).await.unwrap();
    }
    crate::support::faults::resume_deletes(&case.client).await;
    let ran = crate::support::faults::end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, &left(&[3]) | &id_set([1, 2]));
}

#[tokio::test]
async fn each_of_more_holds_than_one_reply_has_keeps_its_documents() {
    let case = Case::new().await;
    case.fill("holds", (0..25_000).map(|n| doc! { "tenantId": format!("k{n}") })).await;
    // The last hundred are of tenants without a hold.
    let document = |id: i32| doc! { "_id": id, "at": days(-3), "tenantId": format!("k{}", id * 50) };
    case.fill("c", (0..600).map(document)).await;
    for keys in ["", ", maxDeletes: 1000"] {
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, holds: {collection: DB.holds, key: tenantId}KEYS}\n";
        let swept = case.report(&rule.replace("KEYS", keys), &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "heldCount")), (Some(0), &500.into()), "{keys}: {swept:?}");
        assert_eq!(case.ids("c").await, id_set(0..500), "{keys}");
        case.fill("c", (500..600).map(document)).await;
    }
}

#[tokio::test]
async fn holds_in_the_database_of_each_tenant_keep_what_is_there() {
    let case = Case::new().await;
    case.fill("c", documents()).await;
    // Next to the collection, under another database.
    let other = case.client.database(&format!("{}_other", case.db.name()));
    other.collection::<Document>("c").insert_many(documents()).await.unwrap();
    case.fill("holds", [doc! { "tenantId": "t1" }]).await;
    other.collection::<Document>("holds").insert_one(doc! { "tenantId": "t2" }).await.unwrap();
    let name = case.db.name().to_owned();
    let rule =
        format!("  - {{namespace: '{name}*.c', field: at, expireAfter: 1d, holds: {{collection: holds, key: tenantId}}}}\n");
    let swept = case.report(&rule, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, left(&[1]));
    assert_eq!(crate::support::sweeper::ids(&other.collection("c")).await, left(&[2]));
    other.drop().await.unwrap();
}

#[tokio::test]
async fn buckets_are_held_by_their_meta_field_only() {
    let case = Case::new().await;
    let series = doc! { "timeField": "at", "metaField": "m" };
    case.db.run_command(doc! { "create": "c", "timeseries": series }).await.unwrap();
    let measured = |tenant: &str| doc! { "at": days(-30), "m": { "tenant": tenant }, "v": 1 };
    case.fill("c", ["a", "b", "c"].map(measured)).await;
    case.fill("holds", [doc! { "tenant": "b" }]).await;
    let rule = |key: &str| {
        format!("  - {{namespace: DB.c, expireAfter: 1d, holds: {{collection: DB.holds, key: {{of: {key}, in: tenant}}}}}}\n")
    };
    let refused = case.report(&rule("v"), &[]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"timeSeries".into()), "{refused:?}");
    assert!(refused.rule(0, "error").as_str().unwrap().contains("can be held only by the metaField"), "{refused:?}");
    let swept = case.report(&rule("m.tenant"), &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &2.into()), "{swept:?}");
    let left: Vec<_> = case.collection("c").distinct("m.tenant", doc! {}).await.unwrap();
    assert_eq!(left, [Bson::from("b")]);
}

#[tokio::test]
async fn why_audit_and_native_diff_speak_of_the_holds() {
    let case = Case::new().await;
    case.fill("c", documents()).await;
    case.db
        .run_command(
            doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 86_400 }] },
        )
        .await
        .unwrap();
    hold(&case, "t3", true).await;
    let rule = format!("  - {{name: r, namespace: DB.c, field: at, expireAfter: 1d, {HOLDS}}}\n");
    let place = case.collection("holds").namespace().to_string();
    for (id, says) in [("3", format!("stays: a hold in `{place}` keeps it")), ("4", "the next sweep deletes it".into())] {
        let mut command = sweeper(&["why", "--uri", &case.uri, "--policy"]);
        command.arg(case.policy(&rule)).arg(case.collection("c").namespace().to_string()).arg(id);
        let ran = run(command).await;
        assert!(ran.code == Some(0) && ran.stdout.contains(&says), "{ran:?}");
    }
    let audit = case.run(&rule, &["audit"]).await;
    // The text is folded.
    let said = audit.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(audit.code == Some(0) && said.contains(&format!("2 documents held by {place} (most by \"t3\" 2)")), "{audit:?}");
    let diff = case.run(&rule, &["native", "diff"]).await;
    assert!(diff.stdout.contains("`holds`; native TTL deletes what is held as well"), "{diff:?}");
    // What is shown of the documents that go has none that is held.
    let ran = case.run(&rule, &["audit", "--format", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let samples = json["rules"][0]["samples"].to_string();
    assert!(!samples.contains("\"3\"") && samples.contains("\"4\""), "{samples}");
    let metrics = case.file("metrics.prom", "");
    let swept = case.run(&rule, &["sweep", "--metrics-file", metrics.to_str().unwrap()]).await;
    assert_eq!(swept.code, Some(0), "{swept:?}");
    let text = std::fs::read_to_string(metrics).unwrap();
    assert!(text.lines().any(|line| line.starts_with("sweeper_held_documents{") && line.ends_with(" 2")), "{text}");
}

#[tokio::test]
async fn a_ttl_of_the_server_that_deletes_what_is_held_is_named() {
    let oracle = crate::support::oracle::Oracle::new("held").await;
    let case = Case::at(&oracle.uri(), oracle.db.client().clone(), "held");
    case.fill("c", [doc! { "_id": 1, "at": days(3), "tenantId": "t1" }]).await;
    oracle.index("c", doc! { "at": 1 }, doc! { "expireAfterSeconds": 86_400 }).await;
    hold(&case, "t1", true).await;
    let rule = |more: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{more}}}\n");
    for (more, is_named) in [(format!(", {HOLDS}"), true), (String::new(), false)] {
        let checked = case.run(&rule(&more), &["check", "--connect", "--format", "json"]).await;
        assert_eq!(checked.code, Some(0), "{checked:?}");
        assert_eq!(checked.stdout.contains("the server's own TTL deletes what is held as well"), is_named, "{checked:?}");
    }
}

#[tokio::test]
async fn the_keys_of_objects_dates_and_numbers_of_other_types_are_held() {
    let case = Case::new().await;
    let id = ObjectId::new();
    let keys: [Bson; 8] = [
        id.into(),
        DateTime::from_millis(5).into(),
        7_i64.into(),
        7.5.into(),
        true.into(),
        doc! { "a": 1, "b": 2 }.into(),
        doc! { "b": 2, "a": 1 }.into(),
        "7".into(),
    ];
    case.fill("c", keys.iter().enumerate().map(|(n, key)| doc! { "_id": n as i32, "at": days(-3), "t": key })).await;
    let held: [Bson; 5] = [
        id.into(),
        DateTime::from_millis(5).into(),
        7.0.into(),
        Bson::Decimal128("7.50".parse().unwrap()),
        doc! { "a": 1_i64, "b": 2.0 }.into(),
    ];
    case.fill("holds", held.map(|key| doc! { "t": key })).await;
    let swept =
        case.report("  - {namespace: DB.c, field: at, expireAfter: 1d, holds: {collection: DB.holds, key: t}}\n", &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([0, 1, 2, 3, 5]));
}

#[tokio::test]
async fn the_children_of_a_parent_that_is_held_stay_with_it() {
    use crate::support::family;
    let case = family::case("heldFamily").await;
    family::fill(&case, 0..20, 20..25).await;
    case.collection("orders").update_many(doc! { "_id": { "$mod": [4, 0] } }, doc! { "$set": { "t": "x" } }).await.unwrap();
    case.fill("holds", [doc! { "t": "x" }]).await;
    let rule = family::rule(", holds: {collection: DB.holds, key: t}");
    let dry = case.report(&rule, &["--dry-run"]).await;
    assert_eq!((dry.rule(0, "expiredCount"), dry.rule(0, "childrenCount")), (&15.into(), &45.into()), "{dry:?}");
    let swept = case.report(&rule, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &15.into()), "{swept:?}");
    let left: BTreeSet<i32> = (0..25).filter(|id| *id >= 20 || id % 4 == 0).collect();
    assert_eq!(family::orders(&case).await, left);
    family::assert_whole(&case, "some orders are held").await;
    let with_orphans = rule.replace("children: [", "orphans: true, children: [");
    let refused = case.report(&with_orphans, &[]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"children".into()), "{refused:?}");
}
