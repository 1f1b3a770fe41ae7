//! Documents that live as long as their tenant says.

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use crate::support::faults::days;
use crate::support::sweeper::{Case, id_set};

const PERIODS: &str = "periods: {collection: DB.tenants, key: {of: tenantId, in: _id}, value: keep.days, unit: d}";

fn tenant(id: impl Into<Bson>, days: impl Into<Bson>) -> Document {
    doc! { "_id": id.into(), "keep": { "days": days.into() } }
}

fn document(id: i32, age: i32, tenant: impl Into<Bson>) -> Document {
    doc! { "_id": id, "at": days(-i64::from(age)), "tenantId": tenant.into() }
}

async fn filled() -> Case {
    let case = Case::new().await;
    let tenants = [tenant("short", 2), tenant("long", 30), tenant("never", -1), tenant("odd", "5"), doc! { "_id": "none" }];
    case.fill("tenants", tenants).await;
    case.fill(
        "c",
        [
            document(1, 3, "short"),
            document(2, 1, "short"),
            document(3, 31, "long"),
            document(4, 29, "long"),
            document(5, 400, "never"),
            document(6, 400, "odd"),
            document(7, 11, "none"),
            document(8, 9, "none"),
            document(9, 11, "unknown"),
            document(10, 20, vec!["short", "long"]),
            document(11, 31, vec!["short", "long"]),
            document(12, 400, vec!["short", "never"]),
            document(13, 3, vec!["short", "unknown"]),
            document(14, 400, "odd"),
        ],
    )
    .await;
    case
}

#[tokio::test]
async fn documents_go_by_the_period_of_their_tenant_and_the_longest_of_several() {
    for (keys, own, gone) in [
        ("", "expireAfter: 10d", vec![1, 3, 7, 9, 11]),
        (", batchSize: 1, concurrency: 1", "expireAfter: 10d", vec![1, 3, 7, 9, 11]),
        (", ttlField: ttl, allowUnknownFields: [ttl]", "expireAfterSeconds: -1", vec![1, 3, 11]),
        ("", "expireAfterSeconds: -1", vec![1, 3, 11]),
    ] {
        let case = filled().await;
        let rule = format!("  - {{namespace: DB.c, field: at, {own}, {PERIODS}{keys}}}\n");
        let dry = case.report(&rule, &["--dry-run"]).await;
        assert_eq!((dry.rule(0, "expiredCount"), dry.rule(0, "unclearPeriodCount")), (&gone.len().into(), &2.into()), "{dry:?}");
        assert_eq!(dry.rule(0, "unclearPeriods"), &json!([{ "key": "odd", "count": 2 }]), "{dry:?}");
        let warnings = dry.rule(0, "warnings").to_string();
        assert!(warnings.contains("2 documents kept: their `keep.days` in `"), "{warnings}");
        let swept = case.report(&rule, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &gone.len().into()), "{swept:?}");
        assert_eq!(case.ids("c").await, id_set((1..=14).filter(|id| !gone.contains(id))), "{own}{keys}");
    }
}

#[tokio::test]
async fn documents_with_one_key_that_differ_keep_what_they_speak_of() {
    let case = Case::new().await;
    let named = |id: i32, name: Bson, days: Option<i32>| {
        let mut tenant = doc! { "_id": id, "name": name };
        tenant.extend(days.map(|days| ("keep".to_owned(), Bson::from(doc! { "days": days }))));
        tenant
    };
    case.fill(
        "tenants",
        [
            named(1, "twice".into(), Some(2)),
            named(2, "twice".into(), Some(2)),
            named(3, "differs".into(), Some(2)),
            named(4, "differs".into(), Some(3)),
            named(5, 7.into(), Some(2)),
            named(6, 7.0.into(), None),
        ],
    )
    .await;
    case.fill("c", [document(1, 400, "twice"), document(2, 400, "differs"), document(3, 400, 7_i64), document(4, 400, "x")])
        .await;
    let periods = PERIODS.replace("in: _id", "in: name");
    let swept = case.report(&format!("  - {{namespace: DB.c, field: at, expireAfter: 500d, {periods}}}\n"), &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &1.into()), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([2, 3, 4]));
}

#[tokio::test]
async fn a_boundary_is_a_boundary_in_every_format_of_dates() {
    let case = Case::new().await;
    case.fill("tenants", [doc! { "_id": "s", "m": 2 }, doc! { "_id": "l", "m": 5 }]).await;
    let as_of = DateTime::from_millis(1_700_000_000_000);
    let before = |millis: i64| as_of.timestamp_millis() - millis;
    type Made = fn(i64) -> Bson;
    let formats: [(&str, Made, i64); 4] = [
        ("date", |millis| DateTime::from_millis(millis).into(), 1),
        ("epochMillis", |millis| millis.into(), 1),
        ("epochSeconds", |millis| (millis / 1000).into(), 1000),
        ("iso8601", |millis| DateTime::from_millis(millis).try_to_rfc3339_string().unwrap().into(), 1),
    ];
    for (format, made, step) in formats {
        let name = format!("c_{format}");
        let documents =
            [("s", 120_000), ("l", 300_000), ("other", 180_000)].into_iter().enumerate().flat_map(|(n, (tenant, age))| {
                [-step, 0, step].into_iter().enumerate().map(move |(place, off)| {
                    let id = i32::try_from(n * 3 + place).unwrap();
                    doc! { "_id": id, "at": made(before(age + off)), "tenantId": tenant }
                })
            });
        case.fill(&name, documents.collect::<Vec<_>>()).await;
        let periods = "periods: {collection: DB.tenants, key: {of: tenantId, in: _id}, value: m, unit: m}";
        let rule = format!("  - {{namespace: DB.{name}, field: at, dateFormat: {format}, expireAfter: 3m, {periods}}}\n");
        let swept = case.report(&rule, &["--as-of", &as_of.try_to_rfc3339_string().unwrap()]).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        assert_eq!(case.ids(&name).await, id_set([0, 3, 6]), "{format}");
    }
}

#[tokio::test]
async fn buckets_go_by_the_period_of_their_meta_field() {
    let case = Case::new().await;
    let series = doc! { "timeField": "at", "metaField": "m" };
    case.db.run_command(doc! { "create": "c", "timeseries": series }).await.unwrap();
    let measured = |tenant: &str, age: i32| doc! { "at": days(-i64::from(age)), "m": { "tenant": tenant }, "v": age };
    case.fill(
        "c",
        [("short", 3), ("short", 1), ("long", 29), ("long", 31), ("other", 9), ("other", 11)].map(|(t, a)| measured(t, a)),
    )
    .await;
    case.fill("tenants", [tenant("short", 2), tenant("long", 30)]).await;
    let rule = |of: &str| {
        let periods = PERIODS.replace("of: tenantId", &format!("of: {of}"));
        format!("  - {{namespace: DB.c, expireAfter: 10d, {periods}}}\n")
    };
    let refused = case.report(&rule("v"), &[]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"timeSeries".into()), "{refused:?}");
    let swept = case.report(&rule("m.tenant"), &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &3.into()), "{swept:?}");
    let mut left: Vec<Bson> = case.collection("c").distinct("v", doc! {}).await.unwrap();
    left.sort_by_key(Bson::as_i32);
    assert_eq!(left, [1.into(), 9.into(), Bson::from(29)]);
}

#[tokio::test]
async fn holds_and_children_go_together_with_periods() {
    let case = filled().await;
    case.fill("holds", [doc! { "tenantId": "long" }]).await;
    case.fill("lines", (1..=14).map(|of| doc! { "_id": of * 10, "of": of })).await;
    case.db.run_command(doc! { "createIndexes": "lines", "indexes": [{ "key": { "of": 1 }, "name": "of_1" }] }).await.unwrap();
    let rule = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 10d, {PERIODS}, holds: {{collection: DB.holds, key: tenantId}}, \
         children: [{{namespace: DB.lines, field: of}}]}}\njournal: {{collection: DB.journal}}\n"
    );
    let swept = case.report(&rule, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "childrenDeletedCount")), (Some(0), &3.into()), "{swept:?}");
    // Of the documents that are held, those that have expired by their own periods.
    assert_eq!(swept.rule(0, "heldCount"), 2, "{swept:?}");
    let left = (1..=14).filter(|id| ![1, 7, 9].contains(id));
    assert_eq!(case.ids("c").await, id_set(left.clone()));
    assert_eq!(case.ids("lines").await, id_set(left.map(|id| id * 10)));
}

#[tokio::test]
async fn audit_why_and_native_know_the_periods() {
    let case = filled().await;
    let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 10d, {PERIODS}}}\n");
    let audit = case.run(&rule, &["audit", "--format", "json"]).await;
    let audit: Value = serde_json::from_str(&audit.stdout).unwrap();
    let by_period = |kind: &str, days: Option<i64>, count: u64| json!({ "kind": kind, "seconds": days.map(|days| days * 86_400), "count": count });
    let expected = [
        by_period("period", Some(2), 2),
        by_period("period", Some(30), 4),
        by_period("ofRule", Some(10), 4),
        by_period("never", None, 2),
        by_period("unclear", None, 2),
    ];
    assert_eq!(audit["rules"][0]["byPeriod"], json!(expected), "{audit:#}");
    // Ages of 1 and 3 days by 2, 29 and 31 and two lists by 30, 9 and 11 by the rule's 10 days; a list of 3 goes with the rule's.
    let due: Vec<(usize, u64)> = vec![(0, 3), (6, 1), (9, 1)];
    let forecast = audit["rules"][0]["forecast"].as_array().unwrap();
    let days = forecast.iter().enumerate().filter_map(|(day, one)| one["count"].as_u64().filter(|n| *n > 0).map(|n| (day, n)));
    assert_eq!(days.collect::<Vec<_>>(), due, "{audit:#}");
    let never = &audit["rules"][0]["neverExpires"];
    assert_eq!(json!([never["periodNever"], never["periodUnclear"]]), json!([2, 2]), "{audit:#}");
    let ages = audit["rules"][0]["ageHistogram"].as_array().unwrap();
    let sum = |key: &str| ages.iter().map(|age| age[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("expiredCount"), sum("notExpiredCount")), (5, 5), "{audit:#}");
    let namespace = format!("{}.c", case.db.name());
    for (id, seconds, verdict) in [
        (2, Some(2 * 86_400), "stays until "),
        (4, Some(30 * 86_400), "stays until "),
        (5, None, "is -1: it never expires"),
        (6, None, "is no whole number above 0"),
        (8, None, "stays until "),
        (10, Some(30 * 86_400), "stays until "),
        (3, Some(30 * 86_400), ": the next sweep deletes it"),
    ] {
        let why = case.run(&rule, &["why", &namespace, &id.to_string(), "--format", "json"]).await;
        let why: Value = serde_json::from_str(&why.stdout).unwrap_or_else(|cause| panic!("{cause}: {why:?}"));
        let of_rule = &why["rules"][0];
        assert_eq!(of_rule["periodSeconds"], json!(seconds), "{id}: {why:#}");
        assert!(of_rule["verdict"].as_str().unwrap().contains(verdict), "{id}: {why:#}");
        assert_eq!(of_rule["taken"], json!(id == 3), "{id}: {why:#}");
    }
    let native = case.run(&rule, &["native", "diff"]).await;
    assert!(native.stdout.contains("`periods`; native TTL knows one time for all documents"), "{native:?}");
}
