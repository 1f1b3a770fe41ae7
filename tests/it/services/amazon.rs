//! Amazon DocumentDB: named as untested, and asked for nothing that a sweep can do without. No proxy plays it: its traits were
//! never seen.

use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::sweeper::id_set;
use mongodb::bson::doc;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 7}\nconnection: {flavor: amazonDocumentDb}\n";

#[tokio::test]
async fn an_untested_service_is_named_and_asked_for_little() {
    let proxied = Proxied::new(Service::Mongos, 30).await;
    let case = &proxied.case;
    case.fill("c", dated(30..35, days(3))).await;
    let index = doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] };
    case.db.run_command(index).await.unwrap();
    let untested = "Amazon DocumentDB: never tested with this program";
    let check = case.run(RULE, &["check", "--connect"]).await;
    assert!(check.code == Some(0) && check.stdout.contains(&format!("warning: {untested}")), "{check:?}");
    let dry = case.run(RULE, &["sweep", "--dry-run"]).await;
    assert!(dry.code == Some(0) && dry.stdout.contains(&format!("untested: {untested}")), "{dry:?}");
    let page = case.run(RULE, &["audit", "--format", "html"]).await;
    assert!(page.code == Some(0) && page.stdout.contains(untested), "{page:?}");

    let swept = case.report(RULE, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &30.into()), "{swept:?}");
    assert!(swept.json["server"]["untested"].as_str().unwrap().starts_with(untested), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set(30..35));
    for request in proxied.proxy.requests() {
        let body = &request.body;
        assert!(["hint", "comment", "collation"].iter().all(|option| !body.contains_key(*option)), "{body}");
        for statement in body.get_array("deletes").into_iter().flatten().filter_map(|statement| statement.as_document()) {
            let options: Vec<&String> = statement.keys().filter(|key| *key != "q" && *key != "limit").collect();
            assert!(options.is_empty(), "{body}");
        }
    }
}
