//! The proxy that simulates Azure's services behaves as documented. Tests of `sweeper` with it are in the other files.

use std::time::Duration;

use crate::support::faults::{dated, days};
use crate::support::proxied::{Proxied, refused, write_error};
use crate::support::proxy::cosmos::{CosmosRu, TtlOnTs};
use crate::support::proxy::document_db::DocumentDb;
use crate::support::proxy::fault::Fault;
use crate::support::proxy::{Service, errors};
use crate::support::sweeper::{Case, id_set};
use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;

async fn cosmos(settings: CosmosRu, documents: i32) -> Proxied {
    Proxied::new(Service::CosmosRu(settings), documents).await
}

async fn document_db(settings: DocumentDb, documents: i32) -> Proxied {
    Proxied::new(Service::DocumentDb(settings), documents).await
}

/// Returns an account whose containers have this many units, and then none for an hour.
fn with_units(units: f64) -> CosmosRu {
    CosmosRu { units_per_second: Some(units), second: Duration::from_secs(3600), ..CosmosRu::default() }
}

fn delete_all() -> Document {
    doc! { "delete": "c", "deletes": [{ "q": { "at": { "$lte": days(-1) } }, "limit": 0 }] }
}

fn deleted(reply: &Document) -> i32 {
    reply.get_i32("n").unwrap()
}

#[track_caller]
fn assert_says(reply: &Document, part: &Document) {
    assert!(part.iter().all(|(key, value)| reply.get(key) == Some(value)), "{part} in {reply}");
}

fn wait_of(text: &str) -> Duration {
    let digits: String = text.split("RetryAfterMs=").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    Duration::from_millis(digits.parse().unwrap())
}

#[tokio::test]
async fn each_service_says_what_it_is() {
    let ru = cosmos(CosmosRu { api_version: "6.0", ..CosmosRu::default() }, 0).await;
    let hello = ru.run(doc! { "hello": 1 }).await.unwrap();
    let said = doc! { "_t": "IsMasterResponse", "isWritablePrimary": true, "setName": "globaldb", "setVersion": 1 };
    assert_says(&hello, &said);
    assert_says(&hello, &doc! { "maxWireVersion": 17, "maxWriteBatchSize": 1000, "maxMessageSizeBytes": 4_194_304 });
    assert!(hello.get_datetime("localTime").is_ok() && !hello.contains_key("topologyVersion"), "{hello}");
    let build = ru.run(doc! { "buildInfo": 1 }).await.unwrap();
    assert_says(&build, &doc! { "_t": "BuildInfoResponse", "version": "6.0.0" });

    let vcore = document_db(DocumentDb::default(), 0).await;
    let hello = vcore.run(doc! { "hello": 1 }).await.unwrap();
    assert_says(&hello, &doc! { "msg": "isdbgrid", "maxWireVersion": 21, "maxWriteBatchSize": 25_000 });
    assert!(hello.get_document("internal").unwrap().contains_key("documentdb_versions"));
    assert!(!hello.contains_key("setName") && !hello.contains_key("hosts"), "{hello}");
}

#[tokio::test]
async fn documents_go_in_and_out_through_the_proxy() {
    for service in [Service::CosmosRu(CosmosRu::default()), Service::DocumentDb(DocumentDb::default())] {
        let proxied = Proxied::new(service, 0).await;
        let c = proxied.client.database(proxied.case.db.name()).collection::<Document>("c");
        c.insert_many(dated(0..500, days(-3))).await.unwrap();
        let found: Vec<Document> =
            c.find(doc! {}).sort(doc! { "_id": 1 }).batch_size(100).await.unwrap().try_collect().await.unwrap();
        assert_eq!(found.iter().map(|found| found.get_i32("_id").unwrap()).collect::<Vec<_>>(), (0..500).collect::<Vec<_>>());
        assert_eq!(c.delete_many(doc! { "_id": { "$gte": 3 } }).await.unwrap().deleted_count, 497);
        assert_eq!(proxied.case.ids("c").await, id_set(0..3));
        assert_eq!((proxied.proxy.requests_of("getMore").len(), proxied.proxy.requests_of("delete").len()), (5, 1));
        // The documents of an insert arrive in a document sequence of the message.
        assert_eq!(proxied.proxy.requests_of("insert")[0].body.get_array("documents").unwrap().len(), 500);
    }
}

#[tokio::test]
async fn a_throttled_delete_stops_half_way_and_says_so() {
    let proxied = cosmos(with_units(100.0), 25).await;
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
    let proxied = cosmos(settings, 60).await;
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
            let proxied = cosmos(CosmosRu { names_wait, ..settings.clone() }, 30).await;
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
    let proxied = cosmos(with_units(20.0), 0).await;
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
    let proxied = cosmos(slow(600.0), 100).await;
    assert_eq!(proxied.run(count()).await.unwrap().get_i32("n").unwrap(), 100);
    assert_eq!(proxied.proxy.usage().charged(), 102.5);
    assert!(proxied.proxy.usage().charges.len() >= 2);
    let proxied = cosmos(slow(3.0), 100).await;
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
    let proxied = cosmos(settings.clone(), 40).await;
    assert_eq!(deleted(&proxied.run(delete_all()).await.unwrap()), 40);
    assert_eq!((proxied.proxy.usage().refused, proxied.left().await), (0, 0));
    let proxied = cosmos(CosmosRu { time_limit: Duration::from_millis(150), ..settings }, 100).await;
    assert_eq!(refused(proxied.run(delete_all()).await), (50, "Request timed out. Retries due to rate limiting: True.".into()));
    assert!((1..100).contains(&proxied.left().await), "{}", proxied.left().await);
}

#[tokio::test]
async fn faults_come_before_or_after_the_work() {
    let proxied = cosmos(CosmosRu::default(), 20).await;
    let faults = proxied.proxy.faults();
    let one = |id: i32| doc! { "delete": "c", "deletes": [{ "q": { "_id": id }, "limit": 0 }] };
    faults.next("delete", 1, Fault::Answer { reply: errors::timed_out(), done: false });
    faults.next("delete", 1, Fault::Answer { reply: errors::timed_out(), done: true });
    faults.next("delete", 1, Fault::Close { done: false });
    faults.next("delete", 1, Fault::Close { done: true });
    faults.next("delete", 1, Fault::WriteError { after: 3, error: errors::too_large() });
    for (id, left) in [(0, 20), (1, 19)] {
        assert_eq!(refused(proxied.run(one(id)).await), (50, "Request timed out.".into()));
        assert_eq!(proxied.left().await, left);
    }
    for (id, left) in [(2, 19), (3, 18)] {
        let lost = proxied.run(one(id)).await.expect_err("no answer");
        assert!(matches!(*lost.kind, ErrorKind::Io(_)), "{lost}");
        assert_eq!(proxied.left().await, left);
    }
    let reply = proxied.run(delete_all()).await.unwrap();
    assert!(write_error(&reply).0 == 16 && write_error(&reply).1.contains("RequestEntityTooLarge (413)"), "{reply}");
    assert_eq!((deleted(&reply), proxied.left().await), (3, 15));

    faults.every("count", 3, Fault::Answer { reply: errors::timed_out(), done: false });
    faults.next("ping", 1, Fault::Delay(Duration::from_millis(200)));
    for n in 1..=6 {
        assert_eq!(proxied.run(doc! { "count": "c" }).await.is_err(), n % 3 == 0);
    }
    let begun = std::time::Instant::now();
    proxied.run(doc! { "ping": 1 }).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn cosmos_refuses_what_it_has_not() {
    let proxied = cosmos(CosmosRu::default(), 1).await;
    let delete = |more: Document| {
        let mut command = delete_all();
        command.extend(more);
        command
    };
    let with = |key: &str| doc! { "deletes": [{ "q": {}, "limit": 0, key: { "_id": 1 } }] };
    let among = doc! { "$expr": { "$and": [{ "$in": ["$x", [1, 2]] }] } };
    let aggregate = |stage: Document| doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} };
    let retryable = "Retryable writes are not supported.";
    let sorted = "The index path corresponding to the specified order-by item is excluded.";
    let cases = [
        (doc! { "serverStatus": 1 }, 115, "serverStatus"),
        (doc! { "connectionStatus": 1 }, 115, "connectionStatus"),
        (doc! { "replSetGetStatus": 1 }, 115, "replSetGetStatus"),
        (doc! { "collMod": "c" }, 115, "collMod"),
        (aggregate(doc! { "$collStats": { "count": {} } }), 40_324, "Unrecognized pipeline stage name: $collStats"),
        (aggregate(doc! { "$facet": { "a": [{ "$bucketAuto": {} }] } }), 40_324, "$bucketAuto"),
        (aggregate(doc! { "$match": among.clone() }), 2, "array literal"),
        (aggregate(doc! { "$sort": { "at": 1 } }), 2, sorted),
        (delete(with("hint")), 9, "deletes.hint"),
        (delete(with("collation")), 9, "deletes.collation"),
        (delete(doc! { "comment": "c" }), 9, "delete.comment"),
        (delete(doc! { "maxTimeMS": 100 }), 9, "delete.maxTimeMS"),
        (delete(doc! { "deletes": [{ "q": among, "limit": 0 }] }), 2, "array literal"),
        (delete(doc! { "txnNumber": 1_i64 }), 2, retryable),
        (delete(doc! { "deletes": vec![doc! { "q": {}, "limit": 0 }; 1001] }), 21, "between 1 and 1000"),
        (doc! { "find": "c", "sort": { "at": 1 } }, 2, sorted),
        (doc! { "find": "c", "hint": "_id_" }, 2, "hint"),
        (doc! { "find": "c", "filter": { "$or": [{ "$where": "true" }] } }, 2, "$where"),
    ];
    for (command, code, part) in cases {
        let (found, text) = refused(proxied.run(command.clone()).await);
        assert!(found == code && text.contains(part), "{command}: {found} {text}");
    }
    assert_eq!(proxied.left().await, 1);
    let allowed = aggregate(doc! { "$match": { "at": { "$in": [[1, 2], [3]] } } });
    proxied.run(allowed).await.unwrap();
    let explained = proxied.run(doc! { "explain": { "find": "c" } }).await.unwrap();
    assert!(explained.contains_key("stages") && !explained.contains_key("queryPlanner"), "{explained}");
}

#[tokio::test]
async fn cosmos_shows_its_indexes_shard_keys_and_charges() {
    let mut settings = CosmosRu { rows_of_a_cursor: Some(250), ..CosmosRu::default() };
    let case = Case::new().await;
    let namespace = format!("{}.c", case.db.name());
    settings.ttl.insert(namespace.clone(), TtlOnTs::Seconds(-1));
    settings.shard_keys.insert(namespace.clone(), doc! { "tenant": "hashed" });
    case.fill("c", dated(0..400, days(-3))).await;
    let mut proxied = Proxied::behind(Service::CosmosRu(settings), case).await;
    // Statistics of the last request belong to the connection.
    proxied.client = Client::with_uri_str(format!("{}&maxPoolSize=1", proxied.proxy.uri())).await.unwrap();

    let indexes = proxied.run(doc! { "listIndexes": "c" }).await.unwrap();
    let indexes = indexes.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let on_ts = doc! { "key": { "_ts": 1 }, "name": "_ts_1", "expireAfterSeconds": -1, "v": 1, "ns": namespace };
    assert_eq!((indexes.len(), indexes[1].as_document()), (2, Some(&on_ts)));
    let ttl = |field: &str, seconds: i32| {
        doc! { "createIndexes": "c", "indexes": [{ "key": { field: 1 }, "name": format!("{field}_1"), "expireAfterSeconds": seconds }] }
    };
    let only = "The 'expireAfterSeconds' option is supported on '_ts' field only.";
    assert_eq!(refused(proxied.run(ttl("at", 1)).await), (2, only.into()));
    proxied.run(ttl("_ts", 60)).await.unwrap();
    let indexes = || async { proxied.run(doc! { "listIndexes": "c" }).await.unwrap().to_string() };
    assert!(indexes().await.contains("\"expireAfterSeconds\": 60"), "{}", indexes().await);
    proxied.run(doc! { "dropIndexes": "c", "index": "_ts_1" }).await.unwrap();
    assert!(!indexes().await.contains("_ts"), "{}", indexes().await);

    let shown = proxied.run(doc! { "customAction": "GetCollection", "collection": "c" }).await.unwrap();
    assert_says(&shown, &doc! { "shardKeyDefinition": { "tenant": "hashed" } });
    let one = |q: Document| doc! { "delete": "c", "deletes": [{ "q": q, "limit": 1 }] };
    assert_eq!(refused(proxied.run(one(doc! { "_id": 0 })).await).0, 61);
    proxied.run(one(doc! { "$and": [{ "_id": 0 }, { "tenant": "a" }] })).await.unwrap();

    proxied.run(doc! { "delete": "c", "deletes": [{ "q": { "_id": { "$lt": 7 } }, "limit": 0 }] }).await.unwrap();
    let last = proxied.run(doc! { "getLastRequestStatistics": 1 }).await.unwrap();
    assert_says(&last, &doc! { "CommandName": "delete", "RequestCharge": 2.5 + 7.0 * 7.0 });

    let c = proxied.client.database(proxied.case.db.name()).collection::<Document>("c");
    let mut cursor = c.find(doc! {}).batch_size(100).await.unwrap();
    let mut rows = 0;
    let lost = loop {
        match cursor.try_next().await {
            Ok(row) => rows += row.map_or_else(|| panic!("the cursor ended at row {rows}"), |_| 1),
            Err(cause) => break cause,
        }
    };
    assert_eq!((rows, refused(Err(lost)).0), (250, 43));
}

#[tokio::test]
async fn document_db_deletes_all_or_nothing() {
    let proxied = document_db(DocumentDb { most_deleted: Some(10), ..DocumentDb::default() }, 25).await;
    let (code, text) = refused(proxied.run(delete_all()).await);
    assert!(code == 50 && text.contains("terminated due to a command timeout"), "{text}");
    assert_eq!(proxied.left().await, 25);
    proxied.proxy.faults().next("delete", 1, Fault::WriteError { after: 3, error: errors::unavailable() });
    // The engine ignores hints, even those that name no index.
    let ten = doc! { "delete": "c", "deletes": [{ "q": { "_id": { "$lt": 10 } }, "limit": 0, "hint": "none" }], "comment": "c" };
    let stopped = proxied.run(ten.clone()).await.unwrap();
    assert_eq!((deleted(&stopped), write_error(&stopped).0, proxied.left().await), (0, 1, 25));
    assert_eq!(deleted(&proxied.run(ten).await.unwrap()), 10);
    let statement = |key: &str| doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0, key: {} }] };
    let mut with_let = delete_all();
    with_let.insert("let", doc! {});
    let cases = [
        (statement("collation"), 115),
        (statement("comment"), 115),
        (with_let, 115),
        (statement("sort"), 40_415),
        (doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 2 }] }, 9),
        (doc! { "serverStatus": 1 }, 115),
        (doc! { "bulkWrite": 1 }, 115),
    ];
    for (command, code) in cases {
        assert_eq!(refused(proxied.run(command.clone()).await).0, code, "{command}");
    }
    assert_eq!(proxied.left().await, 15);
}

#[tokio::test]
async fn the_connections_end_with_the_proxy() {
    let proxied = cosmos(CosmosRu::default(), 0).await;
    proxied.run(doc! { "ping": 1 }).await.unwrap();
    let uri = format!("{}&serverSelectionTimeoutMS=200", proxied.proxy.uri());
    drop(proxied.proxy);
    let gone = Client::with_uri_str(uri).await.unwrap().database("t").run_command(doc! { "ping": 1 }).await.unwrap_err();
    assert!(matches!(*gone.kind, ErrorKind::ServerSelection { .. }), "{gone}");
}
