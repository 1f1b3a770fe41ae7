//! Time-series collections: a bucket is deleted as a whole once all its measurements have expired, and never while one is live.

use std::collections::BTreeSet;

use crate::support::faults::days;
use crate::support::oracle::Oracle;
use crate::support::site::{Site, secured};
use crate::support::sweeper::{Case, Report, id_set, ids, run, sweeper};
use crate::support::version::version;
use futures_util::TryStreamExt;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Collection, Database};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NOW: &str = "2026-01-31T02:00:00Z";
const NOW_MILLIS: i64 = 1_769_824_800_000;
const HOUR: i64 = 3_600_000;

async fn create(db: &Database, name: &str, settings: Document) {
    let mut timeseries = doc! { "timeField": "t", "metaField": "m" };
    timeseries.extend(settings);
    db.run_command(doc! { "create": name, "timeseries": timeseries }).await.expect("a time-series collection");
}

/// Returns a measurement with a unique `_id`, so that survivors can be compared.
fn measured(id: i32, millis: i64, meta: &str) -> Document {
    doc! { "_id": id, "t": DateTime::from_millis(millis), "m": { "s": meta }, "v": id }
}

async fn all(collection: &Collection<Document>) -> Vec<Document> {
    collection.find(doc! {}).await.expect("a cursor").try_collect().await.expect("all documents")
}

fn rule(report: &Report, key: &str) -> serde_json::Value {
    report.rule(0, key).clone()
}

#[tokio::test]
async fn what_the_monitor_deletes_goes_and_no_more_than_one_bucket_span_earlier() {
    let oracle = Oracle::new("series").await;
    let now = DateTime::now().timestamp_millis();
    let mut random = StdRng::seed_from_u64(11);
    let reopens = version(&oracle.db).await.major >= 7;
    for (granularity, span) in [("seconds", HOUR), ("minutes", 24 * HOUR), ("hours", 30 * 24 * HOUR)] {
        let expire = span / 1000;
        let (native, swept) = (format!("native_{granularity}"), format!("swept_{granularity}"));
        for name in [&native, &swept] {
            create(&oracle.db, name, doc! { "granularity": granularity }).await;
        }
        // Every fifth date is exactly on a boundary of buckets; all lie between three spans ago and one span ahead.
        let documents: Vec<Document> = (0..900)
            .map(|id| {
                let at = now - 3 * span + random.random_range(0..4 * span);
                let at = if id % 5 == 0 { at - at.rem_euclid(span) } else { at };
                measured(id, at, ["a", "b", "c"][id as usize % 3])
            })
            .collect();
        // Sorted within chunks, so that buckets hold several measurements; each new chunk goes back in time and opens new
        // buckets.
        let mut documents = documents;
        for chunk in documents.chunks_mut(90) {
            chunk.sort_by_key(|document| *document.get_datetime("t").unwrap());
        }
        oracle.fill(&native, &documents).await;
        oracle.fill(&swept, &documents).await;
        let rules = format!("  - {{namespace: DB.{swept}, expireAfterSeconds: {expire}, batchSize: 3}}\n");
        let report = oracle.sweep(&rules).await;
        assert_eq!((rule(&report, "strategy"), rule(&report, "field")), ("buckets".into(), "t".into()), "{report:?}");
        let as_of = report.json["asOf"].as_str().unwrap();
        let threshold = DateTime::parse_rfc3339_str(as_of).unwrap().timestamp_millis() - span;
        oracle.command(doc! { "collMod": &native, "expireAfterSeconds": expire }).await;
        oracle.let_the_monitor_pass().await;

        let (left, by_monitor) = (oracle.ids(&swept).await, oracle.ids(&native).await);
        assert!(left.is_subset(&by_monitor), "{granularity}: the monitor deleted what sweeper left");
        // From 7.0 on buckets are opened again and filled, and of full buckets both delete the same.
        let may_be_same = reopens && left.len() == by_monitor.len();
        let is_compared = by_monitor.len() < documents.len() && (may_be_same || left.len() < by_monitor.len());
        assert!(is_compared, "{granularity}: {} and {} of {} are left", left.len(), by_monitor.len(), documents.len());
        for document in &documents {
            let at = document.get_datetime("t").unwrap().timestamp_millis();
            let id = id_set([document["_id"].clone()]);
            assert!(at <= threshold || left.is_superset(&id), "{granularity}: a live measurement was deleted: {document}");
            assert!(at >= threshold - span || left.is_disjoint(&id), "{granularity}: should have been deleted: {document}");
        }
        let again = oracle.sweep(&rules).await;
        assert!(rule(&again, "deletedCount").as_u64() < Some(2), "only seconds have passed since the first sweep: {again:?}");
    }
}

#[tokio::test]
async fn a_bucket_goes_with_its_last_measurement_to_the_millisecond() {
    let case = Case::new().await;
    create(&case.db, "c", doc! {}).await;
    let threshold = NOW_MILLIS - 60_000;
    // One bucket for each meta value.
    let ends = [("before", -1), ("at", 0), ("after", 1)];
    for (n, (meta, end)) in ends.into_iter().enumerate() {
        let n = i32::try_from(n).unwrap();
        case.fill("c", [measured(n, threshold - 1000, meta), measured(n + 10, threshold + end, meta)]).await;
    }
    let rules = "  - {namespace: DB.c, expireAfterSeconds: 60}\n";
    let dry = case.report(rules, &["--as-of", NOW, "--dry-run"]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    assert_eq!((rule(&dry, "expiredCount"), rule(&dry, "expiredMeasurements")), (2.into(), 4.into()), "{dry:?}");
    assert_eq!((rule(&dry, "documentCount"), rule(&dry, "deletedCount")), (3.into(), 0.into()), "{dry:?}");
    assert_eq!(case.ids("c").await.len(), 6);
    let swept = case.report(rules, &["--as-of", NOW]).await;
    assert_eq!((swept.ran.code, rule(&swept, "deletedCount")), (Some(0), 2.into()), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([2, 12]));
}

#[tokio::test]
async fn every_way_of_reading_buckets_leaves_the_same() {
    for keys in
        ["batchSize: 1", "batchSize: 7", "rate: 100000", "maxDeletes: 1000000, batchSize: 7", "batchSize: 7, concurrency: 4"]
    {
        let case = Case::new().await;
        create(&case.db, "c", doc! {}).await;
        // One bucket each: the dates are further apart than the maximum span of a bucket.
        let documents = (0..300).map(|id| measured(id, NOW_MILLIS + i64::from(id * 37 % 300 - 150) * HOUR, "x"));
        let mut documents: Vec<Document> = documents.collect();
        documents.sort_by_key(|document| *document.get_datetime("t").unwrap());
        let live: BTreeSet<String> = documents
            .iter()
            .filter(|document| document.get_datetime("t").unwrap().timestamp_millis() > NOW_MILLIS - 60_000)
            .flat_map(|document| id_set([document["_id"].clone()]))
            .collect();
        case.fill("c", documents).await;
        let report = case.report(&format!("  - {{namespace: DB.c, expireAfterSeconds: 60, {keys}}}\n"), &["--as-of", NOW]).await;
        assert_eq!((report.ran.code, rule(&report, "deletedCount")), (Some(0), 150.into()), "{keys}: {report:?}");
        assert_eq!(case.ids("c").await, live, "{keys}");
    }
    // A limit is met exactly, counted in buckets, and the oldest are deleted first.
    let case = Case::new().await;
    create(&case.db, "c", doc! {}).await;
    case.fill("c", (0..50).map(|id| measured(id, NOW_MILLIS + i64::from(id - 60) * HOUR, "x"))).await;
    let rules = "  - {namespace: DB.c, expireAfterSeconds: 60, maxDeletes: 13, batchSize: 5}\n";
    let report = case.report(rules, &["--as-of", NOW]).await;
    assert_eq!((report.ran.code, rule(&report, "reason")), (Some(4), "maxDeletes".into()), "{report:?}");
    assert_eq!(case.ids("c").await, id_set(13..50));
}

#[tokio::test]
async fn a_filter_on_the_meta_field_selects_buckets() {
    let case = Case::new().await;
    create(&case.db, "c", doc! {}).await;
    case.fill("c", (0..9).map(|id| measured(id, NOW_MILLIS - HOUR * 100, ["a", "b", "c"][id as usize % 3]))).await;
    let rules = "  - {namespace: DB.c, expireAfterSeconds: 60, filter: {$or: [{m.s: a}, {m: {s: c}}]}}\n";
    let report = case.report(rules, &["--as-of", NOW]).await;
    assert_eq!((report.ran.code, rule(&report, "deletedCount")), (Some(0), 2.into()), "{report:?}");
    assert_eq!(case.ids("c").await, id_set([1, 4, 7]));
}

#[tokio::test]
async fn dates_that_an_object_id_cannot_hold_are_kept() {
    let case = Case::new().await;
    create(&case.db, "c", doc! {}).await;
    let years = |years: i64| NOW_MILLIS + years * 365 * 24 * HOUR;
    // 190 years before 2026: the seconds in the `_id` of this bucket wrap around to a date that is swept.
    for (id, at) in
        [(1, years(-190)), (2, years(-100)), (3, -1), (4, 0), (5, years(-20)), (6, years(13)), (7, years(90)), (8, years(200))]
    {
        case.fill("c", [measured(id, at, &id.to_string())]).await;
    }
    let report = case.report("  - {namespace: DB.c, expireAfterSeconds: 60}\n", &["--as-of", NOW]).await;
    assert_eq!((report.ran.code, rule(&report, "deletedCount")), (Some(0), 2.into()), "{report:?}");
    assert_eq!(case.ids("c").await, id_set([1, 2, 3, 6, 7, 8]));
}

#[tokio::test]
async fn rules_that_buckets_cannot_follow_are_refused() {
    let case = Case::new().await;
    create(&case.db, "c", doc! {}).await;
    case.db.run_command(doc! { "create": "bare", "timeseries": { "timeField": "t" } }).await.unwrap();
    case.fill("plain", [doc! { "_id": 1, "t": days(-3) }]).await;
    for name in ["c", "bare"] {
        case.fill(name, [measured(1, NOW_MILLIS - 1000 * HOUR, "x")]).await;
    }
    for (keys, guard, part) in [
        ("c, field: at", "timeSeries", "in `t`; leave `field` out"),
        ("c, ttlField: ttl", "timeSeries", "no ttl of their own"),
        ("c, dateFormat: epochMillis", "timeSeries", "holds dates"),
        ("c, hint: t_1", "timeSeries", "clustered"),
        ("c, filter: {v: 1}", "timeSeries", "only by the metaField `m`"),
        ("c, filter: {m: {s: x}, t: {$exists: true}}", "timeSeries", "only by the metaField `m`"),
        ("bare, filter: {m: 1}", "timeSeries", "no metaField"),
        ("plain", "field", "name it with `field`"),
        ("c, maxDeletePercent: 50", "maxDeletePercent", "100.00 %"),
    ] {
        let report = case.report(&format!("  - {{namespace: DB.{keys}, expireAfterSeconds: 60}}\n"), &["--as-of", NOW]).await;
        assert_eq!(report.ran.code, Some(5), "{keys}: {report:?}");
        assert_eq!((rule(&report, "status"), rule(&report, "reason")), ("refused".into(), guard.into()), "{report:?}");
        assert!(rule(&report, "error").as_str().unwrap().contains(part), "{report:?}");
    }
    assert_eq!((all(&case.collection("c")).await.len(), all(&case.collection("bare")).await.len()), (1, 1));
}

#[tokio::test]
async fn the_grant_that_is_missing_can_be_pasted() {
    let (server, site) = (secured(), Site::new());
    let db = server.root().await.database("metrics");
    create(&db, "c", doc! {}).await;
    let c = db.collection::<Document>("c");
    c.insert_many([measured(1, NOW_MILLIS - 1000 * HOUR, "x"), measured(2, NOW_MILLIS + HOUR, "y")]).await.unwrap();
    server.admin(doc! { "createRole": "sweeper", "privileges": [], "roles": [{ "role": "readWrite", "db": "metrics" }] }).await;
    server.admin(doc! { "createUser": "series", "pwd": "password", "roles": ["sweeper"] }).await;
    let uri = server.uri("series", "password");
    let rules = "  - {namespace: metrics.c, expireAfterSeconds: 60}\n";
    let refused = site.report(&uri, rules, &["--as-of", NOW]).await;
    assert_eq!((refused.ran.code, rule(&refused, "deletedCount")), (Some(3), 0.into()), "{refused:?}");
    let error = rule(&refused, "error");
    let grant = |actions: &str| {
        format!(
            "grantPrivilegesToRole(\"sweeper\", [{{resource: {{db: \"metrics\", system_buckets: \"c\"}}, actions: [{actions}]}}])"
        )
    };
    assert!(error.as_str().unwrap().contains(&grant("\"find\", \"remove\"")), "{error}");
    assert_eq!(ids(&c).await, id_set([1, 2]));

    // `find` is enough for a dry run, but not for a sweep.
    let buckets = |actions: &[&str]| doc! { "resource": { "db": "metrics", "system_buckets": "c" }, "actions": actions };
    server.admin(doc! { "grantPrivilegesToRole": "sweeper", "privileges": [buckets(&["find"])] }).await;
    let dry = site.report(&uri, rules, &["--as-of", NOW, "--dry-run"]).await;
    assert_eq!((dry.ran.code, rule(&dry, "expiredCount")), (Some(0), 1.into()), "{dry:?}");
    let check = site.run(&uri, rules, &["check", "--connect"]).await;
    assert!(check.code == Some(3) && check.stdout.contains("the user needs `remove` on `metrics.system.buckets.c`"), "{check:?}");
    let failed = site.report(&uri, rules, &["--as-of", NOW]).await;
    assert_eq!((failed.ran.code, rule(&failed, "deletedCount")), (Some(3), 0.into()), "{failed:?}");
    assert!(rule(&failed, "error").as_str().unwrap().contains(&grant("\"remove\"")), "{failed:?}");

    server.admin(doc! { "grantPrivilegesToRole": "sweeper", "privileges": [buckets(&["find", "remove"])] }).await;
    let check = site.run(&uri, rules, &["check", "--connect"]).await;
    assert_eq!(check.code, Some(0), "{check:?}");
    let swept = site.report(&uri, rules, &["--as-of", NOW]).await;
    assert_eq!((swept.ran.code, rule(&swept, "deletedCount")), (Some(0), 1.into()), "{swept:?}");
    assert_eq!(ids(&c).await, id_set([2]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measurements_that_arrive_during_a_sweep_are_kept() {
    let case = Case::new().await;
    create(&case.db, "c", doc! {}).await;
    let old = |id: i32| measured(id, NOW_MILLIS - 2000 * HOUR + i64::from(id) * HOUR, "x");
    case.fill("c", (0..1500).map(old)).await;
    let writer = case.collection("c");
    let writing = tokio::spawn(async move {
        // Insert live measurements into the open bucket and into new ones.
        for id in 10_000..10_300 {
            writer.insert_one(measured(id, DateTime::now().timestamp_millis(), "x")).await.expect("an insert");
        }
    });
    let report = case.report("  - {namespace: DB.c, expireAfter: 30d, batchSize: 20}\n", &[]).await;
    writing.await.unwrap();
    assert_eq!((report.ran.code, rule(&report, "deletedCount")), (Some(0), 1500.into()), "{report:?}");
    assert_eq!(case.ids("c").await, id_set(10_000..10_300));
}

#[tokio::test]
async fn an_imported_policy_sweeps_what_its_collection_would_lose() {
    let case = Case::new().await;
    let series = doc! { "timeField": "t", "metaField": "m", "granularity": "minutes" };
    case.db.run_command(doc! { "create": "c", "timeseries": series, "expireAfterSeconds": 86_400_i64 }).await.unwrap();
    let now = DateTime::now().timestamp_millis();
    // One bucket for each meta value: expired long ago, expired for less than a span, and partly live.
    for (id, hours, meta) in [(1, -100, "old"), (2, -99, "old"), (3, -30, "new"), (4, -30, "mixed"), (5, -10, "mixed")] {
        case.fill("c", [measured(id, now + hours * HOUR, meta)]).await;
    }
    let policy = case.dir.path().join("imported.yaml");
    let only = format!("{}.c", case.db.name());
    let mut import = sweeper(&["import", "--uri", &case.uri, "--only", &only, "-o"]);
    import.arg(&policy);
    let imported = run(import).await;
    assert_eq!(imported.code, Some(0), "{imported:?}");
    // More than half of the buckets have expired.
    let text = std::fs::read_to_string(&policy).unwrap();
    std::fs::write(&policy, text.replace("maxDeletePercent: 50 ", "maxDeletePercent: 100 ")).unwrap();
    for args in [&["check"][..], &["check", "--connect"], &["sweep"]] {
        let mut command = sweeper(args);
        command.args(["--uri", &case.uri, "--policy"]).arg(&policy);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    }
    // A day later the server would delete the third one as well.
    assert_eq!(case.ids("c").await, id_set([4, 5]));
}
