//! `maxDirty` and the watch of the server's load on a real server, without the right to ask, with trouble, and on services that
//! have no such figures.

use std::time::Duration;

use crate::support::faults::{alone, dated, days, end, fail_commands, heal, removed, signal, start};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::document_db::DocumentDb;
use crate::support::said::Said;
use crate::support::site::{Site, secured};
use crate::support::sweeper::{Case, Report, id_set, ids};
use mongodb::Client;
use mongodb::bson::{DateTime, Document, doc};

const EXPIRED: i32 = 3000;
const SWEEP: [&str; 3] = ["sweep", "--format", "json"];

/// Hardly anything of the cache may wait to be written.
const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 200, maxDirty: 0.001}\n";

async fn fill(case: &Case) {
    case.fill("c", dated(0..EXPIRED, days(-3)).chain(dated(EXPIRED..EXPIRED + 5, days(3)))).await;
}

fn report(ran: crate::support::sweeper::Ran) -> Report {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    Report { json, ran }
}

/// Writes everything out of the cache, again and again.
async fn write_out(client: &Client) {
    loop {
        client.database("admin").run_command(doc! { "fsync": 1 }).await.expect("a checkpoint");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_sweep_waits_until_the_cache_is_written_and_ends_while_it_waits() {
    let (mongod, case) = alone().await;
    fill(&case).await;
    // Between two checkpoints, a minute apart, what the test has written stays.
    let mut child = start(case.command(RULE, &SWEEP));
    let said = Said::by(&mut child);
    said.until("% of the server's cache waits to be written, 0.001 % may").await;
    signal(&child, "TERM");
    let swept = report(end(child).await);
    assert_eq!((swept.ran.code, swept.rule(0, "reason")), (Some(143), &"interrupted".into()), "{swept:?}");
    assert_eq!(swept.rule(0, "deletedCount"), EXPIRED as usize + 5 - case.ids("c").await.len());
    assert!(swept.rule(0, "pausedMs")["pressure"].as_u64().unwrap() > 0, "{swept:?}");

    // Each batch makes the server wait for the next checkpoint.
    let mut child = start(case.command(RULE, &SWEEP));
    let said = Said::by(&mut child);
    said.until("% of the server's cache waits to be written, 0.001 % may").await;
    let swept = tokio::select! {
        ran = end(child) => report(ran),
        () = write_out(&case.client) => unreachable!("it goes on for ever"),
    };
    assert_eq!((swept.ran.code, swept.rule(0, "status")), (Some(0), &"complete".into()), "{swept:?}");
    assert!(swept.rule(0, "pausedMs")["pressure"].as_u64().unwrap() > 0, "{swept:?}");
    assert_eq!(swept.rule(0, "pressureUnknown"), &serde_json::Value::Null);
    assert_eq!(case.ids("c").await, id_set(EXPIRED..EXPIRED + 5));
    assert!(!removed(&mongod).is_empty());
}

#[tokio::test]
async fn a_user_who_may_not_ask_sweeps_by_the_latency_and_the_report_says_so() {
    let (server, site) = (secured(), Site::new());
    let db = server.root().await.database("unasked");
    let roles = vec![doc! { "role": "readWrite", "db": "unasked" }];
    server.admin(doc! { "createUser": "unasking", "pwd": "password", "roles": roles }).await;
    for (keys, warns) in [("", false), (", maxDirty: 0.001", true)] {
        let now = DateTime::now().timestamp_millis();
        let at = |id| DateTime::from_millis(if id < 50 { now - 864_000_000 } else { now });
        let documents: Vec<Document> = (0..55).map(|id| doc! { "_id": id, "at": at(id) }).collect();
        db.collection::<Document>("c").drop().await.unwrap();
        db.collection("c").insert_many(documents).await.unwrap();
        let rules = format!("  - {{namespace: unasked.c, field: at, expireAfter: 1d{keys}}}\n");
        let swept = report(site.run(&server.uri("unasking", "password"), &rules, &SWEEP).await);
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &50.into()), "{swept:?}");
        let unknown = "all, as `serverStatus` needs the role `clusterMonitor`";
        assert_eq!(swept.rule(0, "pressureUnknown"), unknown);
        let warning = "`maxDirty` had no effect, and the sweep paced itself by how long its deletes took";
        assert_eq!(swept.rule(0, "warnings").to_string().contains(warning), warns, "{swept:?}");
        assert_eq!(ids(&db.collection("c")).await, id_set(50..55));
    }
}

#[tokio::test]
async fn trouble_with_the_look_at_the_server_neither_fails_nor_holds_up_a_sweep() {
    let (_mongod, case) = alone().await;
    for (data, why) in [
        (doc! { "errorCode": 8000 }, "looks failed: "),
        (doc! { "closeConnection": true }, "looks failed: "),
        (doc! { "blockConnection": true, "blockTimeMS": 8_000 }, "looks failed: the server did not answer"),
    ] {
        case.db.collection::<Document>("c").drop().await.unwrap();
        fill(&case).await;
        let mut data = data;
        data.insert("failCommands", ["serverStatus"]);
        fail_commands(&case.client, "alwaysOn", data.clone()).await;
        let swept = case.report(RULE, &["--max-duration", "50s"]).await;
        heal(&case.client).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &EXPIRED.into()), "{data}: {swept:?}");
        let unknown = swept.rule(0, "pressureUnknown").as_str().unwrap();
        assert!(unknown.starts_with("all, as ") && unknown.contains(why), "{unknown}");
        assert_eq!(case.ids("c").await, id_set(EXPIRED..EXPIRED + 5));
    }
}

#[tokio::test]
async fn services_without_such_figures_are_not_asked() {
    for service in [Service::CosmosRu(CosmosRu::default()), Service::DocumentDb(DocumentDb::default()), Service::Mongos] {
        let is_mongos = matches!(service, Service::Mongos);
        let proxied = Proxied::new(service, 60).await;
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 7, maxDirty: 5}\n";
        let swept = proxied.case.report(rule, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount"), proxied.left().await), (Some(0), &60.into(), 0), "{swept:?}");
        let warning = if is_mongos {
            "mongos does not show the load of the shards"
        } else {
            "`maxDirty` is for MongoDB and has no effect here"
        };
        assert!(swept.rule(0, "warnings").to_string().contains(warning), "{swept:?}");
        let asked = proxied.proxy.requests().iter().filter(|request| request.body.contains_key("serverStatus")).count();
        assert_eq!(asked, 0);
    }
}
