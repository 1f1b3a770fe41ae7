//! The proxy bills and throttles like Azure Cosmos DB for MongoDB (RU).

use std::time::Duration;

use crate::support::faults::{dated, days};
use crate::support::proxied::{Proxied, delete_all, deleted, refused, wait_of, write_error};
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::sweeper::Case;
use mongodb::bson::{Document, doc};

/// Returns an account whose containers have this many units, and then none for an hour.
fn with_units(units: f64) -> CosmosRu {
    CosmosRu { units_per_second: Some(units), second: Duration::from_secs(3600), ..CosmosRu::default() }
}

#[tokio::test]
async fn a_throttled_delete_stops_half_way_and_says_so() {
    let proxied = Proxied::cosmos(with_units(100.0), 25).await;
    // 2.5 for the query, and 1 + 5.5 for each of 15 documents.
    let reply = proxied.run(delete_all()).await.unwrap();
    assert_eq!((deleted(&reply), proxied.left().await), (15, 10), "{reply}");
    let (code, text) = write_error(&reply);
    assert!(code == 16_500 && text.contains("TooManyRequests (429)") && text.contains("no changes were made"), "{text}");
    assert!(wait_of(text) > Duration::ZERO, "{text}");
    let reply = proxied.run(delete_all()).await.unwrap();
    assert_eq!((deleted(&reply), write_error(&reply).0, proxied.left().await), (0, 16_500, 10), "{reply}");
    let usage = proxied.proxy.usage();
    assert_eq!((usage.charged(), usage.refused, usage.early), (100.0, 2, 1));
    // The units of another container are its own.
    assert_eq!(deleted(&proxied.run(doc! { "delete": "d", "deletes": [{ "q": {}, "limit": 0 }] }).await.unwrap()), 0);
}

#[tokio::test]
async fn a_client_that_waits_gets_done_within_the_budget() {
    let settings = CosmosRu { units_per_second: Some(100.0), second: Duration::from_millis(200), ..CosmosRu::default() };
    let proxied = Proxied::cosmos(settings, 60).await;
    let mut gone = 0;
    while gone < 60 {
        let reply = proxied.run(delete_all()).await.unwrap();
        gone += deleted(&reply);
        if reply.contains_key("writeErrors") {
            tokio::time::sleep(wait_of(write_error(&reply).1)).await;
        }
    }
    let usage = proxied.proxy.usage();
    assert_eq!((gone, proxied.left().await, usage.early), (60, 0, 0));
    assert!(usage.refused > 0 && usage.charged_for("delete") >= 60.0 * 6.5, "{usage:?}");
    assert_eq!((usage.charged(), usage.most_within(Duration::from_secs(3600))), (usage.charged_for("delete"), usage.charged()));
}

#[tokio::test]
async fn every_command_that_costs_units_is_throttled() {
    let wide = || CosmosRu { metadata_units_per_second: Some(1.0), second: Duration::from_secs(3600), ..CosmosRu::default() };
    for (settings, commands) in [
        (
            with_units(2.5),
            vec![
                doc! { "find": "c" },
                doc! { "count": "c" },
                doc! { "distinct": "c", "key": "at" },
                doc! { "aggregate": "c", "pipeline": [], "cursor": {} },
            ],
        ),
        (
            wide(),
            vec![
                doc! { "listCollections": 1 },
                doc! { "listIndexes": "c" },
                doc! { "collStats": "c" },
                doc! { "customAction": "GetCollection", "collection": "c" },
                doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] },
            ],
        ),
    ] {
        for names_wait in [true, false] {
            let proxied = Proxied::cosmos(CosmosRu { names_wait, ..settings.clone() }, 30).await;
            proxied
                .run(if settings.units_per_second.is_some() {
                    doc! { "count": "c" }
                } else {
                    doc! { "collStats": "c" }
                })
                .await
                .unwrap();
            for command in &commands {
                let (code, text) = refused(proxied.run(command.clone()).await);
                assert!(code == 16_500 && text.contains("RetryAfterMs=") == names_wait, "{command}: {text}");
            }
            let usage = proxied.proxy.usage();
            assert_eq!(
                (usage.refused, usage.early),
                (commands.len() as u64, if names_wait { commands.len() as u64 - 1 } else { 0 })
            );
        }
    }
    let proxied = Proxied::cosmos(with_units(20.0), 0).await;
    let documents: Vec<Document> = dated(0..10, days(-3)).collect();
    for (ordered, errors, left) in [(true, 1, 4), (false, 10, 4)] {
        let insert = doc! { "insert": "c", "documents": &documents[..], "ordered": ordered };
        let reply = proxied.run(insert).await.unwrap();
        assert_eq!((reply.get_array("writeErrors").unwrap().len(), proxied.left().await), (errors, left), "{reply}");
    }
}

#[tokio::test]
async fn a_query_is_charged_by_the_documents_that_it_loads() {
    let case = Case::new().await;
    let big = "x".repeat(3 * 1024);
    let documents = (0..40).map(
        |n| doc! { "_id": n, "at": days(if n < 20 { -3 } else { 3 }), "n": n, "big": if n == 39 { big.as_str() } else { "" } },
    );
    case.fill("c", documents).await;
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
    let charge_of = async |command: Document| {
        let before = proxied.proxy.usage().charged();
        proxied.run(command).await.unwrap();
        proxied.proxy.usage().charged() - before
    };
    let expired = doc! { "at": { "$lte": days(-1) } };
    let sum = doc! { "$group": { "_id": null, "n": { "$sum": 1 } } };
    let count = doc! { "aggregate": "c", "pipeline": [{ "$match": expired.clone() }, sum], "cursor": {} };
    let page =
        doc! { "find": "c", "filter": { "$and": [expired.clone(), { "_id": { "$gt": 4 } }] }, "sort": { "_id": 1 }, "limit": 5 };
    let all = 39.0 + 3.0;
    for (command, unindexed, indexed) in [
        (count, 2.5 + all, 2.5 + 20.0),
        (doc! { "count": "c", "query": expired.clone() }, 2.5 + all, 2.5 + 20.0),
        (page, 2.5 + 5.0, 2.5 + 5.0),
        (doc! { "find": "c", "filter": { "n": { "$gte": 30 } }, "sort": { "_id": 1 }, "limit": 2 }, 2.5 + 32.0, 2.5 + 32.0),
        (doc! { "find": "c", "filter": { "$nor": [{ "_id": 1 }] } }, 2.5 + all, 2.5 + all),
        (doc! { "find": "c", "filter": { "_id": { "$in": [1, 2, 39] } } }, 2.5 + 2.0 + 3.0, 2.5 + 2.0 + 3.0),
        (doc! { "listIndexes": "c" }, 1.0, 1.0),
    ] {
        let before = charge_of(command.clone()).await;
        proxied
            .case
            .db
            .run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] })
            .await
            .unwrap();
        let after = charge_of(command.clone()).await;
        proxied.case.db.run_command(doc! { "dropIndexes": "c", "index": "at_1" }).await.unwrap();
        assert!((before - unindexed).abs() < 0.2 && (after - indexed).abs() < 0.2, "{command}: {before} {after}");
    }
}

#[tokio::test]
async fn a_query_that_needs_further_seconds_waits_or_times_out() {
    let slow = |seconds: f64| CosmosRu {
        units_per_second: Some(20.0),
        second: Duration::from_millis(100),
        time_limit: Duration::from_millis(100).mul_f64(seconds),
        ..CosmosRu::default()
    };
    let count = || doc! { "count": "c", "query": { "at": { "$lte": days(-1) } } };
    let proxied = Proxied::cosmos(slow(600.0), 100).await;
    assert_eq!(proxied.run(count()).await.unwrap().get_i32("n").unwrap(), 100);
    assert_eq!(proxied.proxy.usage().charged(), 102.5);
    assert!(proxied.proxy.usage().charges.len() >= 2);
    let proxied = Proxied::cosmos(slow(3.0), 100).await;
    assert_eq!(refused(proxied.run(count()).await), (50, "Request timed out. Retries due to rate limiting: True.".into()));
    assert!((20.0..102.0).contains(&proxied.proxy.usage().charged()), "{:?}", proxied.proxy.usage());
}

#[tokio::test]
async fn server_side_retry_waits_in_place_of_a_refusal() {
    let settings = CosmosRu {
        repeats_requests: true,
        units_per_second: Some(50.0),
        second: Duration::from_millis(100),
        ..CosmosRu::default()
    };
    let proxied = Proxied::cosmos(settings.clone(), 40).await;
    assert_eq!(deleted(&proxied.run(delete_all()).await.unwrap()), 40);
    assert_eq!((proxied.proxy.usage().refused, proxied.left().await), (0, 0));
    let proxied = Proxied::cosmos(CosmosRu { time_limit: Duration::from_millis(150), ..settings }, 100).await;
    assert_eq!(refused(proxied.run(delete_all()).await), (50, "Request timed out. Retries due to rate limiting: True.".into()));
    assert!((1..100).contains(&proxied.left().await), "{}", proxied.left().await);
}
