//! The engine of Azure DocumentDB (Cosmos DB for MongoDB vCore), simulated by the proxy.

use std::time::Duration;

use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::document_db::DocumentDb;
use crate::support::proxy::errors;
use crate::support::proxy::fault::Fault;
use crate::support::sweeper::{Case, Report, id_set};
use futures_util::future::join_all;

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
        for delete in proxied.proxy.requests_of("delete") {
            let statement = delete.body.get_array("deletes").unwrap()[0].as_document().unwrap();
            assert_eq!(statement.keys().collect::<Vec<_>>(), ["q", "limit"], "{statement}");
            let of_batch = statement.get_document("q").unwrap().get_array("$and").unwrap()[0].as_document().unwrap();
            assert!(of_batch.get_document("_id").unwrap().get_array("$in").unwrap().len() <= 1000);
        }
        assert!(proxied.proxy.requests_of("find").iter().all(|find| !find.body.contains_key("sort")));
    }
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
        ("timed out before", Fault::Answer { reply: errors::command_timeout(), done: false }),
        ("timed out after", Fault::Answer { reply: errors::command_timeout(), done: true }),
        ("closed before", Fault::Close { done: false }),
        ("closed after", Fault::Close { done: true }),
        ("slow", Fault::Delay(Duration::from_millis(300))),
    ];
    // In parallel, since a sweep waits after most of them.
    let swept = faults.map(async |(name, fault)| {
        let proxied = cluster(DocumentDb::default()).await;
        proxied.proxy.faults().every("delete", 2, fault);
        let report = proxied.case.report(RULE, &[]).await;
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
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxLag: 10s, maxRequestUnits: 400}\n";
    let report = proxied.case.report(rule, &[]).await;
    assert_swept(&proxied, &report).await;
    let warnings = report.rule(0, "warnings").to_string();
    assert!(warnings.contains("`maxLag` is for replica sets") && warnings.contains("`maxRequestUnits` is for"), "{warnings}");
}
