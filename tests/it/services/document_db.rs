//! The engine of Azure DocumentDB (Cosmos DB for MongoDB vCore), simulated by the proxy.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::archives::directory;
use crate::support::faults::{dated, days};
use crate::support::native::index;
use crate::support::proxied::Proxied;
use crate::support::proxy::document_db::{DocumentDb, conditions, is_scan};
use crate::support::proxy::errors;
use crate::support::proxy::fault::Fault;
use crate::support::proxy::{Request, Service};
use crate::support::sweeper::{Case, Report, id_set};
use futures_util::future::join_all;
use mongodb::bson::{Bson, DateTime, Document, doc};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

/// Returns a cluster with 1300 expired documents and 10 live ones.
async fn cluster(settings: DocumentDb) -> Proxied {
    let case = Case::new().await;
    case.fill("c", dated(0..1300, days(-3)).chain(dated(1300..1310, days(3)))).await;
    Proxied::behind(Service::DocumentDb(settings), case).await
}

async fn assert_swept(proxied: &Proxied, report: &Report) {
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!((report.rule(0, "status"), report.rule(0, "deletedCount")), (&"complete".into(), &1300.into()), "{report:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(1300..1310));
}

/// Returns the statements of all deletes that were sent.
fn statements(proxied: &Proxied) -> Vec<Document> {
    let deletes = proxied.proxy.requests_of("delete");
    let of_one = |delete: &Request| delete.body.get_array("deletes").unwrap().clone();
    deletes.iter().flat_map(of_one).map(|statement| statement.as_document().unwrap().clone()).collect()
}

#[tokio::test]
async fn a_cluster_is_swept_without_what_it_does_not_know() {
    for names_set in [false, true] {
        let proxied = cluster(DocumentDb { names_set, ..DocumentDb::default() }).await;
        let dry = proxied.case.report(RULE, &["--dry-run"]).await;
        assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &1300.into()), "{dry:?}");
        assert!(dry.rule(0, "oldestExpired").is_string(), "{dry:?}");
        let report = proxied.case.report(RULE, &[]).await;
        assert_swept(&proxied, &report).await;
        let server = &report.json["server"];
        assert_eq!((&server["flavor"], &server["recognisedBy"]), (&"documentDb".into(), &"`internal` in its hello".into()));
        assert!(report.rule(0, "requestUnits").is_null(), "{report:?}");
        for statement in statements(&proxied) {
            assert_eq!(statement.keys().collect::<Vec<_>>(), ["q", "limit"], "{statement}");
        }
        assert!(proxied.proxy.requests_of("find").iter().all(|find| !find.body.contains_key("sort")));
    }
}

/// The collection has 1300 dates, one of them in 700 documents, lists of dates, a ttl in every third document, and documents that
/// nothing expires.
#[tokio::test]
async fn no_delete_is_sent_that_the_engine_serves_by_a_scan() {
    let hours = |hours: i64| DateTime::from_millis(days(0).timestamp_millis() - hours * 3_600_000);
    let documents = (0..1000).map(|id| {
        let at = if id < 700 { hours(100 + i64::from(id % 97) * 7 + i64::from(id)) } else { hours(90) };
        let at = if id % 50 == 7 { Bson::from(vec![Bson::from(hours(-1000)), at.into(), "x".into()]) } else { at.into() };
        doc! { "_id": id, "at": at, "ttl": if id % 3 == 0 { 400 * 86_400 } else { 60 }, "v": { "n": [0, 1.5] } }
    });
    let live = (1000..1100)
        .map(|id| doc! { "_id": id, "at": if id % 2 == 0 { hours(-5).into() } else { Bson::from("never") }, "ttl": 1 });
    let all: Vec<Document> = documents.chain(live).collect();
    let swept = async |keys: &str, indexed: bool, left: BTreeSet<String>, along_dates: bool| {
        let case = Case::new().await;
        case.fill("c", all.clone()).await;
        if indexed {
            index(&case.db, "c", doc! { "at": 1 }, "at_1", doc! {}).await;
        }
        let proxied = Proxied::behind(Service::DocumentDb(DocumentDb::default()), case).await;
        let archive = directory(&proxied.case);
        let rule =
            format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}}}\n").replace("ARCHIVE", archive.to_str().unwrap());
        let report = proxied.case.report(&rule, &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{keys} {indexed}: {report:?}");
        assert_eq!(proxied.case.ids("c").await, left, "{keys} {indexed}");
        // On a busy machine the driver may take the proxy for dead, and its replies are lost.
        let deleted = report.rule(0, "deletedCount").as_u64().unwrap();
        let is_uncertain = report.rule(0, "uncertain") == true;
        let went = (1100 - left.len()) as u64;
        assert!(deleted == went || (deleted < went && is_uncertain), "{keys} {indexed}: {report:?}");
        // On a busy machine, each command takes long.
        let warnings = report.rule(0, "warnings").as_array().unwrap();
        let others: Vec<_> =
            warnings.iter().filter(|warning| !warning.to_string().contains("did not depend on its documents")).collect();
        assert!(others.is_empty(), "{keys} {indexed}: {others:?}");
        let statements = statements(&proxied);
        let scans: Vec<_> = statements.iter().filter(|statement| is_scan(statement)).collect();
        assert!(scans.is_empty(), "{keys} {indexed}: {scans:?}");
        let has_id = |statement: &Document| conditions(statement).iter().any(|(field, _)| *field == "_id");
        // Documents of one date go by stretches as well, once batches are long enough.
        assert_eq!(statements.iter().any(|statement| !has_id(statement)), along_dates, "{keys} {indexed}");
    };
    let old = || id_set(1000..1100);
    let by_ttl = || id_set((0..1000).filter(|id| id % 3 == 0).chain(1000..1100));
    let cases = [
        ("", true, old(), true),
        // In a collection of 20 batches or fewer a delete may examine all documents.
        ("", false, old(), true),
        (", batchSize: 20", false, old(), false),
        (", ttlField: ttl", true, by_ttl(), true),
        (", ttlField: ttl", false, by_ttl(), true),
        (", batchSize: 20", true, old(), true),
        (", filter: {ttl: {$gt: 0}}", true, old(), true),
        (", filter: {ttl: {$gt: 0}}", false, old(), true),
        // An index may serve a path with a dot, and holds more under it than the filter means.
        (", filter: {v.n: 0}", true, id_set(1000..1100), false),
        (", filter: {_id: {$gte: 0}}", true, old(), false),
        (", maxDeletes: 5000", true, old(), false),
        (", rate: 100000", true, old(), false),
        (", archive: {directory: ARCHIVE}", true, old(), true),
        (", archive: {directory: ARCHIVE}, batchSize: 20", true, old(), true),
        (", archive: {directory: ARCHIVE}", false, old(), false),
        (", archive: {directory: ARCHIVE}, filter: {ttl: {$gt: 0}}", true, old(), true),
        (", archive: {directory: ARCHIVE}, ttlField: ttl", false, by_ttl(), false),
    ];
    join_all(cases.map(|(keys, indexed, left, along_dates)| swept(keys, indexed, left, along_dates))).await;
}

#[tokio::test]
async fn a_command_that_is_too_much_for_its_time_is_sent_in_parts() {
    let proxied = cluster(DocumentDb { most_deleted: Some(150), ..DocumentDb::default() }).await;
    let report = proxied.case.report(RULE, &[]).await;
    assert_swept(&proxied, &report).await;
    // Once the sweep knows how many documents the cluster can delete in time, it asks for no more.
    assert!(proxied.proxy.requests_of("delete").len() < 40, "{}", proxied.proxy.requests_of("delete").len());
}

#[tokio::test]
async fn every_fault_ends_with_the_same_survivors() {
    let faults = [
        ("out of order", Fault::Answer { reply: errors::sqlstate("40P01", "deadlock detected"), done: false }),
        (
            "shut down",
            Fault::Answer { reply: errors::sqlstate("57P01", "terminating connection due to administrator command"), done: true },
        ),
        ("starting up", Fault::Answer { reply: errors::sqlstate("57P03", "the database system is starting up"), done: false }),
        (
            "away",
            Fault::Answer {
                reply: errors::failed(1, "Internal Error", "error connecting to server: Connection refused"),
                done: false,
            },
        ),
        ("timed out before", Fault::Answer { reply: errors::command_timeout(), done: false }),
        ("timed out after", Fault::Answer { reply: errors::command_timeout(), done: true }),
        ("closed before", Fault::Close { done: false }),
        ("closed after", Fault::Close { done: true }),
        ("slow", Fault::Delay(Duration::from_millis(300))),
    ];
    // One delete at a time: with two, all attempts of one batch could be those that fail.
    const ONE_BY_ONE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, concurrency: 1}\n";
    // In parallel, since a sweep waits after most of them.
    let swept = faults.map(async |(name, fault)| {
        let proxied = cluster(DocumentDb::default()).await;
        proxied.proxy.faults().every("delete", 3, fault);
        let report = proxied.case.report(ONE_BY_ONE, &[]).await;
        assert_eq!(report.ran.code, Some(0), "{name}: {report:?}");
        assert_eq!(proxied.case.ids("c").await, id_set(1300..1310), "{name}");
        let deleted = report.rule(0, "deletedCount").as_u64().unwrap();
        assert!(deleted == 1300 || (deleted < 1300 && report.rule(0, "uncertain") == true), "{name}: {report:?}");
    });
    join_all(swept).await;
}

#[tokio::test]
async fn what_the_engine_cannot_do_is_refused_or_said() {
    let proxied = cluster(DocumentDb::default()).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, collation: {locale: en}}\n";
    let report = proxied.case.report(rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"collation".into()), "{report:?}");
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, dateFormat: iso8601}\n";
    let report = proxied.case.report(rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"dateFormat".into()), "{report:?}");
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxLag: 10s, maxRequestUnits: 400, maxHeadMs: 1}\n";
    let report = proxied.case.report(rule, &[]).await;
    assert_swept(&proxied, &report).await;
    let warnings = report.rule(0, "warnings").to_string();
    for key in ["`maxLag` is for replica sets", "`maxRequestUnits` is for", "`maxHeadMs` is for MongoDB"] {
        assert!(warnings.contains(key), "{warnings}");
    }
}
