//! Request units on Azure Cosmos DB (RU), as the proxy bills them: what a sweep costs next to the plain ways to do the same, what
//! the report says of it, and the limit of every second.

use std::time::Duration;

use futures_util::future::join_all;
use mongodb::IndexModel;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::support::faults::days;
use crate::support::native::native;
use crate::support::proxied::Proxied;
use crate::support::proxy::cosmos::{CosmosRu, Usage};
use crate::support::proxy::{Request, Service};
use crate::support::sweeper::{Case, Report, id_set};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

/// Returns documents of this many bytes, every second of which has expired, some minutes apart.
fn documents(count: i64, bytes: usize) -> impl Iterator<Item = Document> {
    let now = DateTime::now().timestamp_millis();
    (0..count).map(move |n| {
        let at = now + if n % 2 == 0 { -90_000_000 - n * 60_000 } else { 86_400_000 };
        doc! { "_id": id(n), "at": DateTime::from_millis(at), "text": "x".repeat(bytes.saturating_sub(60)) }
    })
}

/// Returns ObjectIds a minute apart, as an application makes them.
fn id(n: i64) -> ObjectId {
    let mut bytes = [7; 12];
    bytes[..4].copy_from_slice(&u32::try_from(1_700_000_000 + n * 60).unwrap().to_be_bytes());
    ObjectId::from_bytes(bytes)
}

fn live(count: i64) -> std::collections::BTreeSet<String> {
    id_set((0..count).filter(|n| n % 2 == 1).map(id))
}

async fn account(settings: CosmosRu, documents: impl IntoIterator<Item = Document>, indexed: bool) -> Proxied {
    let case = Case::new().await;
    case.fill("c", documents).await;
    if indexed {
        case.collection("c").create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.unwrap();
    }
    Proxied::behind(Service::CosmosRu(settings), case).await
}

/// Runs a command until the service has room for it.
async fn patiently(proxied: &Proxied, command: &Document) -> Document {
    loop {
        match proxied.run(command.clone()).await {
            Ok(reply) => return reply,
            Err(cause) => {
                assert!(cause.to_string().contains("16500"), "{cause}");
                wait(&cause.to_string()).await;
            }
        }
    }
}

async fn wait(text: &str) {
    let millis = text.split("RetryAfterMs=").nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    tokio::time::sleep(Duration::from_millis(millis.and_then(|millis| millis.parse().ok()).unwrap_or(50))).await;
}

/// Deletes by a filter, and goes on after each refusal, as an application does.
async fn delete_many(proxied: &Proxied, filter: Document) {
    loop {
        let reply = patiently(proxied, &doc! { "delete": "c", "deletes": [{ "q": &filter, "limit": 0 }] }).await;
        match reply.get_array("writeErrors") {
            Ok(errors) => wait(&format!("{errors:?}")).await,
            Err(_) => return,
        }
    }
}

/// Finds pages of `_id`s and deletes them, as an application does that was told to delete in small portions.
async fn find_and_delete(proxied: &Proxied, expired: Document) {
    let mut after = doc! {};
    loop {
        let filter = doc! { "$and": [&expired, &after] };
        let find = doc! { "find": "c", "filter": filter, "projection": { "_id": 1 }, "sort": { "_id": 1 }, "limit": 100, "singleBatch": true };
        let reply = patiently(proxied, &find).await;
        let page = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        let ids: Vec<Bson> = page.iter().map(|found| found.as_document().unwrap().get("_id").unwrap().clone()).collect();
        let Some(last) = ids.last() else { return };
        after = doc! { "_id": { "$gt": last } };
        delete_many(proxied, doc! { "_id": { "$in": ids }, "$and": [&expired] }).await;
    }
}

/// Returns the report of any command.
async fn report_of(case: &Case, rules: &str, args: &[&str]) -> Report {
    let ran = case.run(rules, &[args, &["--format", "json"]].concat()).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

/// Returns the units of everything but the look at the collection, which has a budget of its own.
fn data_units(usage: &Usage) -> f64 {
    usage.charges.iter().filter(|charge| !charge.of_metadata).map(|charge| charge.units).sum()
}

#[tokio::test]
async fn a_sweep_costs_no_more_than_the_cheapest_plain_way() {
    let accounts = [(None, 300), (Some(400.0), 300), (Some(1000.0), 3000)];
    let cases = accounts.into_iter().flat_map(|account| [(account, true), (account, false)]);
    let cases = cases.map(async |((budget, count), indexed)| {
        // Short seconds, each with the units of a whole one: the same refusals in less time.
        let settings = || CosmosRu { units_per_second: budget, second: Duration::from_millis(100), ..CosmosRu::default() };
        let expired = doc! { "at": { "$lte": days(-1) } };
        let new = async || account(settings(), documents(count, 1000), indexed).await;
        let plain = async {
            let proxied = new().await;
            delete_many(&proxied, expired.clone()).await;
            assert_eq!(proxied.case.ids("c").await, live(count));
            proxied.proxy.usage()
        };
        let paged = async {
            let proxied = new().await;
            find_and_delete(&proxied, expired.clone()).await;
            assert_eq!(proxied.case.ids("c").await, live(count));
            proxied.proxy.usage()
        };
        let swept = async {
            let proxied = new().await;
            let report = proxied.case.report(RULE, &[]).await;
            assert_eq!(report.ran.code, Some(0), "{report:?}");
            assert_eq!(proxied.case.ids("c").await, live(count));
            assert_eq!(report.rule(0, "deletedCount"), count / 2, "{report:?}");
            proxied.proxy.usage()
        };
        let (plain, paged, swept) = tokio::join!(plain, paged, swept);
        let [plain, paged, swept] = [plain, paged, swept].map(|usage| data_units(&usage));
        // The ends of the collection, and 2.5 units for each command.
        assert!(swept <= plain.min(paged) * 1.02 + 10.0, "{budget:?} {count} {indexed}: {plain} {paged} {swept}");
    });
    join_all(cases).await;
}

#[tokio::test]
async fn the_report_names_all_that_the_run_cost() {
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: text, maxDeletePercent: 90}\n";
    for args in [&["sweep", "--dry-run"][..], &["audit"], &["audit", "--exact"], &["sweep"]] {
        let proxied = account(CosmosRu::default(), documents(300, 1000), true).await;
        let report = report_of(&proxied.case, rule, args).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        let charged = proxied.proxy.usage().charged();
        let total = report.json["totals"]["requestUnits"].as_f64().unwrap();
        let of_rule = report.rule(0, "requestUnits").as_f64().unwrap();
        assert!((total - charged).abs() < 0.02, "{args:?}: {total} of {charged}");
        // Without the listing of the database's collections.
        assert!(of_rule <= total && of_rule >= total - 3.0, "{args:?}: {of_rule} of {total}");
    }
}

#[tokio::test]
async fn the_limit_of_units_holds_in_every_second() {
    let cases = [(100, 40, 1000), (400, 300, 1000), (1000, 400, 1000), (400, 16, 30_000), (300, 40, 3000)].into_iter();
    let cases = cases.flat_map(|case| [(case, true), (case, false)]).map(async |((limit, count, bytes), indexed)| {
        let proxied = account(CosmosRu::default(), documents(count, bytes), indexed).await;
        let rule =
            format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 90, maxRequestUnits: {limit}}}\n");
        let report = proxied.case.report(&rule, &[]).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        assert_eq!(proxied.case.ids("c").await, live(count));
        let usage = proxied.proxy.usage();
        let worst = usage.most_within(Duration::from_secs(1));
        assert!(worst <= f64::from(limit), "{limit} {bytes} {indexed}: {worst}");
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_count_that_no_minute_of_the_throughput_suffices_for_is_made_in_parts() {
    // 600 units in a count of all, and a command may cost 300.
    let settings = CosmosRu {
        units_per_second: Some(100.0),
        second: Duration::from_millis(100),
        time_limit: Duration::from_millis(300),
        ..CosmosRu::default()
    };
    for (rule, args) in [
        (RULE, &["sweep", "--dry-run"][..]),
        (RULE, &["audit"]),
        (RULE, &["audit", "--exact"]),
        ("  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 51}\n", &["sweep"]),
    ] {
        let proxied = account(settings.clone(), documents(600, 1000), false).await;
        let report = report_of(&proxied.case, rule, args).await;
        assert_eq!(report.ran.code, Some(0), "{args:?}: {report:?}");
        assert_eq!(report.rule(0, "expiredCount"), 300, "{args:?}: {report:?}");
        let swept = args == ["sweep"];
        assert_eq!(proxied.case.ids("c").await.len(), if swept { 300 } else { 600 });
        if args.contains(&"--exact") {
            let ages = report.rule(0, "ageHistogram").as_array().unwrap();
            let count = |key: &str| ages.iter().filter_map(|age| age[key].as_u64()).sum::<u64>();
            assert_eq!((count("expiredCount"), count("notExpiredCount")), (300, 300), "{report:?}");
        }
    }
}

/// Microsoft, "Time to live" (custom TTL).
#[tokio::test]
async fn what_a_native_setting_would_delete_and_has_not_deleted_is_counted_in_parts() {
    // 500 units in a count of those that have expired, and a command may cost 300.
    let settings = CosmosRu {
        units_per_second: Some(100.0),
        second: Duration::from_millis(100),
        time_limit: Duration::from_millis(300),
        ttl_on_custom_path: true,
        ..CosmosRu::default()
    };
    let proxied = account(settings, documents(1000, 1000), false).await;
    let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 2_000_000_000 };
    proxied.run(doc! { "createIndexes": "c", "indexes": [index] }).await.unwrap();
    let (ran, report) = native(&proxied.case, RULE, &["apply", "--yes"]).await;
    let change = &report["rows"][0]["change"];
    assert_eq!((ran.code, &change["status"], &change["expiredCount"]), (Some(0), &"applied".into(), &500.into()), "{report:#}");
    // The proxy deletes nothing by itself.
    let report = report_of(&proxied.case, RULE, &["audit"]).await;
    let trouble = &report.rule(0, "nativeTroubles")[0];
    assert_eq!((&trouble["reason"], &trouble["overdueCount"]), (&"overdue".into(), &500.into()), "{report:?}");
}

#[tokio::test]
async fn a_share_that_is_too_high_is_seen_before_everything_is_counted() {
    let proxied = account(
        CosmosRu { units_per_second: Some(400.0), second: Duration::from_millis(50), ..CosmosRu::default() },
        documents(2000, 1000),
        false,
    )
    .await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 10}\n";
    let report = proxied.case.report(rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"maxDeletePercent".into()), "{report:?}");
    assert_eq!((report.rule(0, "expiredCount"), report.rule(0, "deletedCount")), (&Bson::Null.into_relaxed_extjson(), &0.into()));
    assert!(report.rule(0, "error").as_str().unwrap().starts_with("at least "), "{report:?}");
    assert_eq!(proxied.case.ids("c").await.len(), 2000);
    let counted = proxied.proxy.usage().charged_for("aggregate");
    assert!(counted > 0.0 && counted < 1000.0, "{counted}");
}

#[tokio::test]
async fn a_dry_run_and_an_audit_foretell_what_the_sweep_costs() {
    for (keys, indexed) in
        [("", true), ("", false), (", ttlField: text", false), (", maxDeletes: 1000", true), (", maxDeletes: 1000", false)]
    {
        let proxied =
            account(CosmosRu { units_per_second: Some(100_000.0), ..CosmosRu::default() }, documents(400, 1500), indexed).await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}}}\n");
        let mut foretold = Vec::new();
        for args in [&["sweep", "--dry-run"][..], &["audit"]] {
            let report = report_of(&proxied.case, &rule, args).await;
            foretold.push(report.rule(0, "estimatedRequestUnits").as_f64().unwrap_or_else(|| panic!("{report:?}")));
            assert_eq!(report.rule(0, "estimatedSeconds"), 1.0, "{report:?}");
        }
        let asked = proxied.proxy.requests_of("aggregate").len();
        let report = proxied.case.report(&rule, &[]).await;
        let cost = report.rule(0, "requestUnits").as_f64().unwrap();
        assert!(foretold.iter().all(|units| (units / cost - 1.0).abs() < 0.1), "{keys} {indexed}: {foretold:?}, {cost}");
        assert_eq!(proxied.case.ids("c").await, live(400));
        // A count of what never expires would load everything once more; a look at the first documents does not.
        let counts =
            |request: &Request| !request.body.get_array("pipeline").unwrap()[0].as_document().unwrap().contains_key("$limit");
        assert!(!proxied.proxy.requests_of("aggregate")[asked..].iter().any(counts));
        assert!(report.rule(0, "neverExpires").is_null(), "{report:?}");
    }
    let proxied = account(CosmosRu::default(), documents(200, 1000), true).await;
    let report =
        proxied.case.report("  - {namespace: DB.c, field: at, expireAfter: 1d, maxRequestUnits: 250}\n", &["--dry-run"]).await;
    let units = report.rule(0, "estimatedRequestUnits").as_f64().unwrap();
    assert_eq!(report.rule(0, "estimatedSeconds").as_f64(), Some((units / 250.0).ceil()), "{report:?}");
}

#[tokio::test]
async fn nothing_is_sent_while_the_wait_of_a_refusal_runs() {
    let settings = CosmosRu { units_per_second: Some(100.0), second: Duration::from_millis(150), ..CosmosRu::default() };
    let proxied = account(settings, documents(200, 1000), false).await;
    let rules = "  - {namespace: DB.c, name: a, field: at, expireAfter: 1d, concurrency: 3, maxDeletePercent: 90}
  - {namespace: DB.c, name: b, field: at, expireAfter: 2d, concurrency: 3}\n";
    let report = proxied.case.report(rules, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(proxied.case.ids("c").await, live(200));
    let usage = proxied.proxy.usage();
    assert!(usage.refused > 0 && usage.early == 0, "{} {}", usage.refused, usage.early);
    for rule in [0, 1] {
        assert!(report.rule(rule, "warnings").to_string().contains("`concurrency` has no effect here"), "{report:?}");
    }
}
