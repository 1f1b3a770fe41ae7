//! Deployments that are not compacted, and what a user needs.

use mongodb::bson::doc;
use serde_json::Value;

use super::emptied::empty;
use crate::support::cluster::Cluster;
use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::site::{Site, secured};
use crate::support::sweeper::Case;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

#[tokio::test]
async fn a_service_without_compact_and_a_router_are_refused_with_the_reason() {
    let cosmos = Proxied::cosmos(CosmosRu::default(), 3).await;
    let cluster = Cluster::new().await;
    cluster.case.fill("c", dated(0..3, days(-3))).await;
    for (case, why) in [
        (&cosmos.case, "Azure Cosmos DB for MongoDB (RU) has no `compact` that gives space back"),
        (&cluster.case, "mongos does not compact: expected a connection string of the replica set of a shard"),
    ] {
        let ran = case.run(RULE, &["reclaim"]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{ran:?}");
        assert!(ran.stderr.contains(why) && ran.stderr.contains("nothing was compacted"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_server_without_a_set_serves_all_clients_and_views_have_no_files() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    case.db.run_command(doc! { "create": "cView", "viewOn": "c", "pipeline": [] }).await.unwrap();
    let ran = case.run("  - {namespace: 'DB.c*', field: at, expireAfter: 1d}\n", &["reclaim", "--format", "json"]).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((ran.code, rows.len()), (Some(0), 1), "{report:#}");
    assert_eq!((&rows[0]["role"], &rows[0]["status"]), (&"standalone".into(), &"nothing".into()), "{report:#}");
    let none = case.run("  - {namespace: DB.none, field: at, expireAfter: 1d}\n", &["reclaim"]).await;
    assert_ne!(none.code, Some(0), "{none:?}");
}

#[tokio::test]
async fn a_missing_privilege_is_named() {
    let (server, site) = (secured(), Site::new());
    let root = server.root().await;
    empty(&root.database("reclaimed").collection("c"), std::slice::from_ref(&root)).await;
    server.admin(doc! { "createUser": "reclaimer", "pwd": "p", "roles": [{ "role": "read", "db": "reclaimed" }] }).await;
    let uri = server.uri("reclaimer", "p");
    let rule = "  - {namespace: reclaimed.c, field: at, expireAfter: 1d}\n";
    let reclaim = |args: &'static [&'static str]| site.run(&uri, rule, args);
    let skipped = reclaim(&["reclaim"]).await;
    assert_eq!(skipped.code, Some(0), "{skipped:?}");
    assert!(skipped.stdout.contains("skipped: only with `--primary`"), "{skipped:?}");
    let refused = reclaim(&["reclaim", "--primary"]).await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stdout.contains("not done") && refused.stdout.contains("actions: [\"compact\"]"), "{refused:?}");
    server.admin(doc! { "grantRolesToUser": "reclaimer", "roles": [{ "role": "dbAdmin", "db": "reclaimed" }] }).await;
    let done = reclaim(&["reclaim", "--primary"]).await;
    assert!(done.code == Some(0) && done.stdout.contains(" done"), "{done:?}");
}
