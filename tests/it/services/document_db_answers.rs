//! Answers of the DocumentDB engine that differ from MongoDB's, played by the proxy: clock, counts, error codes, native TTL,
//! privileges.

use crate::support::audit::audit;
use crate::support::faults::{dated, days};
use crate::support::native::{column, index, indexes, native, ttl};
use crate::support::proxied::Proxied;
use crate::support::proxy::document_db::{DocumentDb, ESTIMATE_EXCESS};
use crate::support::proxy::fault::Fault;
use crate::support::proxy::{Service, errors};
use crate::support::shim::Shim;
use crate::support::sweeper::{Case, id_set, run};
use mongodb::bson::doc;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 30d}\n";

/// Returns a cluster with 90 expired documents and 10 live ones.
async fn cluster(settings: DocumentDb) -> Proxied {
    let case = Case::new().await;
    case.fill("c", dated(0..90, days(-40)).chain(dated(90..100, days(-1)))).await;
    Proxied::behind(Service::DocumentDb(settings), case).await
}

#[tokio::test]
async fn the_clock_of_the_service_decides_and_not_that_of_the_client() {
    let proxied = cluster(DocumentDb::default()).await;
    let shim = Shim::clock(&proxied.case);
    let mut command = proxied.case.command(RULE, &["sweep"]);
    shim.shift(&mut command, "5184000");
    let ran = run(command).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    // The report is folded at a width, wherever that falls.
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("refused: clock: the clocks of this machine and of the server are"), "{ran:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(0..100));
    let ran = proxied.case.run(RULE, &["sweep"]).await;
    assert_eq!((ran.code, proxied.case.ids("c").await), (Some(0), id_set(90..100)), "{ran:?}");
}

#[tokio::test]
async fn a_service_that_does_not_tell_its_time_is_not_swept() {
    let proxied = cluster(DocumentDb { hides_time: true, ..DocumentDb::default() }).await;
    for rules in [RULE.to_owned(), format!("{RULE}lock: {{collection: DB.locks}}\n")] {
        let ran = proxied.case.run(&rules, &["sweep"]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(
            ran.stderr.contains("the server does not tell its time") && ran.stderr.contains("nothing was deleted"),
            "{ran:?}"
        );
        assert_eq!(proxied.case.ids("c").await, id_set(0..100));
    }
}

#[tokio::test]
async fn guards_and_reports_count_where_the_service_only_estimates() {
    let proxied = cluster(DocumentDb::default()).await;
    let estimate = proxied.run(doc! { "count": "c" }).await.unwrap();
    assert_eq!(estimate.get_i64("n").unwrap(), 100 + ESTIMATE_EXCESS, "the proxy estimates");
    let guarded = RULE.replace("30d", "30d, maxDeletePercent: 89");
    let refused = proxied.case.report(&guarded, &[]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"maxDeletePercent".into()), "{refused:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(0..100));
    let recorded = RULE.replace("30d", "30d, maxDeletePercent: 90") + "history: {collection: DB.runs}\n";
    let swept = proxied.case.report(&recorded, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "documentCount")), (Some(0), &100.into()), "{swept:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(90..100));
    let shown = proxied.case.run(&recorded, &["history"]).await;
    assert!(shown.stdout.contains("  complete       90       90  "), "{shown:?}");
}

#[tokio::test]
async fn an_error_of_postgres_that_no_wait_helps_is_named_and_not_taken_for_one_of_an_expression() {
    let proxied = cluster(DocumentDb::default()).await;
    let missing = Fault::Answer { reply: errors::sqlstate("42883", "function bson_f does not exist"), done: false };
    proxied.proxy.faults().next("delete", 1, missing);
    let failed = proxied.case.report(RULE, &[]).await;
    assert_eq!((failed.ran.code, failed.rule(0, "deletedCount")), (Some(3), &0.into()), "{failed:?}");
    let error = failed.rule(0, "error").as_str().unwrap();
    assert!(error.contains("function bson_f does not exist (SQLSTATE 42883)"), "{error}");
    assert_eq!(proxied.proxy.requests_of("delete").len(), 1);
}

#[tokio::test]
async fn a_restart_of_postgres_is_waited_out_wherever_it_strikes() {
    for command in ["aggregate", "count", "find", "delete", "listIndexes"] {
        let proxied = cluster(DocumentDb::default()).await;
        let starting = Fault::Answer { reply: errors::sqlstate("57P03", "the database system is starting up"), done: false };
        proxied.proxy.faults().next(command, 1, starting);
        let swept = proxied.case.report(&RULE.replace("30d", "30d, maxDeletePercent: 95"), &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &90.into()), "{command}: {swept:?}");
        assert_eq!(proxied.case.ids("c").await, id_set(90..100), "{command}");
    }
}

#[tokio::test]
async fn an_audit_measures_everything() {
    let proxied = cluster(DocumentDb::default()).await;
    let rule = RULE.replace("30d", "30d, ttlField: ttl");
    let report = audit(&proxied.case, &rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "expiredCount")), (Some(0), &90.into()), "{report:?}");
    for measured in ["ageHistogram", "forecast", "neverExpires", "samples"] {
        assert!(!report.rule(0, measured).is_null(), "{measured}: {report:?}");
    }
    assert_eq!(report.rule(0, "samples").as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn a_plain_index_is_replaced_and_a_ttl_index_gets_another_value_in_place() {
    let proxied = cluster(DocumentDb::default()).await;
    let db = &proxied.case.db;
    index(db, "c", doc! { "at": 1 }, "by_date", doc! {}).await;
    index(db, "d", doc! { "at": 1 }, "at_1", ttl(60)).await;
    let refused = proxied.run(doc! { "collMod": "c", "index": { "name": "by_date", "expireAfterSeconds": 60 } }).await;
    assert!(refused.unwrap_err().to_string().contains("no expireAfterSeconds field to update"));
    // Long enough for mongod's own monitor to delete nothing.
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 365d}\n  - {namespace: DB.d, field: at, expireAfter: 365d}\n";
    let (applied, report) = native(&proxied.case, rules, &["apply", "--yes"]).await;
    assert_eq!(
        (applied.code, column(&report, "/change/status")),
        (Some(0), vec!["applied".into(), "applied".into()]),
        "{applied:?}"
    );
    assert_eq!(indexes(db, "c").await, [doc! { "key": { "at": 1 }, "name": "by_date", "expireAfterSeconds": 31_536_000 }]);
    assert_eq!(indexes(db, "d").await, [doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 31_536_000 }]);
    let imported = run({
        let mut command = crate::support::sweeper::sweeper(&["import", "--uri", &proxied.case.uri]);
        command.args(["--only", &format!("{}.*", db.name())]);
        command
    });
    let imported = imported.await;
    assert!(imported.stdout.lines().next().unwrap().ends_with(": DocumentDB 7.0.0."), "{imported:?}");
}

#[tokio::test]
async fn privileges_that_the_service_does_not_show_are_unknown() {
    let proxied = cluster(DocumentDb::default()).await;
    let ran = proxied.case.run(RULE, &["check", "--connect"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("the user's privileges are unknown"), "{ran:?}");
}
