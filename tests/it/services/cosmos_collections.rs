//! The proxy has the collections, the indexes and the commands of Azure Cosmos DB for MongoDB (RU), and no others.

use std::time::Duration;

use crate::support::faults::{dated, days};
use crate::support::proxied::{Proxied, assert_says, delete_all, deleted, refused};
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::{CosmosRu, TtlOnTs};
use crate::support::sweeper::{Case, id_set};
use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use mongodb::results::CollectionType;

#[tokio::test]
async fn cosmos_refuses_what_it_has_not() {
    let proxied = Proxied::cosmos(CosmosRu::default(), 1).await;
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
        (delete(doc! { "comment": "c" }), 2, "comment is not supported"),
        (delete(doc! { "let": { "x": 1 } }), 2, "let is not supported"),
        (delete(doc! { "maxTimeMS": 100 }), 9, "delete.maxTimeMS"),
        (delete(doc! { "deletes": [{ "q": among, "limit": 0 }] }), 2, "array literal"),
        (delete(doc! { "txnNumber": 1_i64 }), 2, retryable),
        (delete(doc! { "deletes": vec![doc! { "q": {}, "limit": 0 }; 1001] }), 21, "between 1 and 1000"),
        (doc! { "find": "c", "sort": { "at": 1 } }, 2, sorted),
        (doc! { "find": "c", "hint": "_id_" }, 2, "hint"),
        (doc! { "find": "c", "collation": { "locale": "en" } }, 2, "collation"),
        (doc! { "find": "c", "sort": { "_id": 1, "at": 1 } }, 2, "composite index"),
        (doc! { "find": "c", "filter": { "$or": [{ "$where": "true" }] } }, 115, "'where' is not supported"),
        (doc! { "find": "c", "filter": { "at": { "$bitsAllSet": 1 } } }, 115, "'bitsAllSet' is not supported"),
        (doc! { "find": "c", "filter": { "$expr": { "$gt": [{ "$bsonSize": "$$ROOT" }, 1] } } }, 115, "'bsonSize'"),
        (doc! { "find": "c", "filter": { "$expr": { "$eq": ["$$USER_ROLES", 1] } } }, 115, "'USER_ROLES'"),
        (doc! { "find": "c", "projection": { "a": { "$ifNull": ["$b", 1] } } }, 115, "'ifNull'"),
        (doc! { "update": "c", "updates": [{ "q": {}, "u": [{ "$set": { "a": 1 } }] }] }, 115, "pipeline"),
        (aggregate(doc! { "$project": { "a": { "$isNumber": "$b" } } }), 115, "'isNumber'"),
        (aggregate(doc! { "$match": { "$sampleRate": 0.5 } }), 115, "'sampleRate'"),
        (doc! { "endSessions": [] }, 115, "endSessions"),
    ];
    for (command, code, part) in cases {
        let (found, text) = refused(proxied.run(command.clone()).await);
        assert!(found == code && text.contains(part), "{command}: {found} {text}");
    }
    assert_eq!(proxied.left().await, 1);
    let allowed = aggregate(doc! { "$match": { "at": { "$in": [[1, 2], [3]] } } });
    proxied.run(allowed).await.unwrap();
    let indexes = [doc! { "key": { "at": 1 }, "name": "at_1" }, doc! { "key": { "at": 1, "_id": -1 }, "name": "both" }];
    proxied.run(doc! { "createIndexes": "c", "indexes": &indexes[..] }).await.unwrap();
    for sort in [doc! { "at": -1 }, doc! { "at": 1, "_id": -1 }, doc! { "at": -1, "_id": 1 }] {
        proxied.run(doc! { "find": "c", "sort": sort.clone() }).await.unwrap();
        proxied.run(aggregate(doc! { "$sort": sort })).await.unwrap();
    }
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
    assert_eq!(refused(proxied.run(ttl("_ts", 60)).await).0, 85);
    assert_eq!(refused(proxied.run(ttl("_ts", 0)).await).0, 2);
    proxied.run(ttl("_ts", -1)).await.unwrap();
    proxied.run(doc! { "dropIndexes": "c", "index": "_ts_1" }).await.unwrap();
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

/// Returns a sharded collection in which three tenants have the same forty `_id`s.
async fn of_tenants() -> Proxied {
    let case = Case::new().await;
    let shard_keys = [(format!("{}.c", case.db.name()), doc! { "tenant": "Hash" })].into();
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu { shard_keys, ..CosmosRu::default() }), case).await;
    let documents =
        (0..120).map(|n| doc! { "_id": n / 3, "at": days(if n < 90 { -3 } else { 3 }), "tenant": format!("t{}", n % 3) });
    let c = proxied.client.database(proxied.case.db.name()).collection::<Document>("c");
    c.insert_many(documents).await.unwrap();
    proxied
}

#[tokio::test]
async fn the_id_is_unique_for_each_shard_key_only() {
    let proxied = of_tenants().await;
    let c = proxied.client.database(proxied.case.db.name()).collection::<Document>("c");
    let again = c.insert_one(doc! { "_id": 1, "tenant": "t1" }).await.unwrap_err();
    assert!(again.to_string().contains("E11000"), "{again}");
    c.insert_one(doc! { "_id": 1, "tenant": "t3" }).await.unwrap();
    c.insert_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(c.count_documents(doc! { "_id": 1 }).await.unwrap(), 5);

    let page =
        doc! { "find": "c", "filter": { "_id": { "$gte": 2 } }, "sort": { "_id": 1 }, "limit": 4, "projection": { "at": 0 } };
    let page = proxied.run(page).await.unwrap();
    let page = page.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let expected = [(2, "t0"), (2, "t1"), (2, "t2"), (3, "t0")].map(|(id, tenant)| doc! { "_id": id, "tenant": tenant }.into());
    assert_eq!(page[..], expected);
    assert!((proxied.proxy.usage().charged_for("find") - 6.5).abs() < 0.1, "{:?}", proxied.proxy.usage());

    let delete = |q: Document, limit: i32| doc! { "delete": "c", "deletes": [{ "q": q, "limit": limit }] };
    let n = async |command: Document| proxied.run(command).await.unwrap().get_i32("n").unwrap();
    assert_eq!(n(delete(doc! { "_id": { "$in": [5, 6] }, "tenant": "t1" }, 0)).await, 2);
    assert_eq!(n(delete(doc! { "$and": [{ "tenant": "t2" }, { "_id": 7 }] }, 1)).await, 1);
    assert_eq!(n(delete(doc! { "$expr": { "$eq": ["$_id", 8] } }, 0)).await, 3);
    assert_eq!(n(delete(doc! { "$nor": [{ "_id": { "$ne": 9 } }] }, 0)).await, 3);
    assert_eq!(c.count_documents(doc! { "_id": { "$in": [5, 6, 7, 8, 9] } }).await.unwrap(), 6);
    assert_eq!(
        n(doc! { "update": "c", "updates": [{ "q": { "_id": 10 }, "u": { "$set": { "x": 1 } }, "multi": true }] }).await,
        3
    );
    let ids: Vec<Bson> = c.distinct("_id", doc! { "x": 1 }).await.unwrap();
    assert_eq!(ids, [10.into()]);
    // 25 `_id`s of expired documents are left for each of three tenants, and one for a fourth.
    assert_eq!(n(delete_all()).await, 90 - 2 - 1 - 3 - 3);
}

#[tokio::test]
async fn a_collection_that_mongod_holds_in_another_form_is_listed_as_it_is() {
    let proxied = of_tenants().await;
    let db = proxied.client.database(proxied.case.db.name());
    proxied.run(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    let listed: Vec<_> = db.list_collections().await.unwrap().try_collect().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|listed| (listed.name.as_str(), listed.collection_type.clone())).collect();
    assert_eq!(listed, [("c", CollectionType::Collection)]);
    let indexes = proxied.run(doc! { "listIndexes": "c" }).await.unwrap();
    let indexes = indexes.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let shown = doc! { "v": 1, "key": { "at": 1 }, "name": "at_1", "ns": format!("{}.c", proxied.case.db.name()) };
    assert_eq!((indexes.len(), indexes[1].as_document()), (2, Some(&shown)));
    let stats = proxied.run(doc! { "collStats": "c" }).await.unwrap();
    assert_says(&stats, &doc! { "ns": format!("{}.c", proxied.case.db.name()), "count": 120 });
}

#[tokio::test]
async fn native_ttl_hides_at_once_and_deletes_later() {
    let ttl: [(&str, Option<Bson>); 10] = [
        ("none", None),
        ("longer", Some(7200.into())),
        ("longer as a double", Some(7200.0.into())),
        ("longer as a long", Some(7200_i64.into())),
        ("shorter", Some(60.into())),
        ("never", Some((-1).into())),
        ("a fraction", Some(7200.5.into())),
        ("too large", Some(2_147_483_649_i64.into())),
        ("zero", Some(0.into())),
        ("a text", Some("7200".into())),
    ];
    let case = Case::new().await;
    case.fill("c", ttl.map(|(id, ttl)| ttl.map_or(doc! { "_id": id }, |ttl| doc! { "_id": id, "ttl": ttl }))).await;
    case.fill("c", [doc! { "_id": "capitals", "TTL": 7200 }]).await;
    let settings = CosmosRu { age: Duration::from_secs(3600), ..CosmosRu::default() };
    let proxied = Proxied::behind(Service::CosmosRu(settings), case).await;
    let all = proxied.case.ids("c").await;
    let ids = async || proxied.case.ids("c").await;
    let on_ts = |seconds: i32| doc! { "createIndexes": "c", "indexes": [{ "key": { "_ts": 1 }, "name": "_ts_1", "expireAfterSeconds": seconds }] };
    let off = || doc! { "dropIndexes": "c", "index": "_ts_1" };
    assert_eq!(refused(proxied.run(doc! { "collMod": "c", "index": { "name": "_ts_1", "expireAfterSeconds": 1 } }).await).0, 115);

    proxied.run(on_ts(-1)).await.unwrap();
    assert_eq!(ids().await, &all - &id_set(["shorter"]));
    proxied.run(off()).await.unwrap();
    proxied.run(on_ts(1800)).await.unwrap();
    let visible = id_set(["longer", "longer as a double", "longer as a long", "never"]);
    assert_eq!(ids().await, visible);
    assert_eq!(proxied.run(doc! { "count": "c" }).await.unwrap().get_i32("n").unwrap(), 4);
    let delete = doc! { "delete": "c", "deletes": [{ "q": { "_id": { "$in": ["none", "never"] } }, "limit": 0 }] };
    assert_eq!(deleted(&proxied.run(delete).await.unwrap()), 1);
    // Documents that were hidden and not yet deleted are seen again.
    proxied.run(off()).await.unwrap();
    assert_eq!(ids().await, &all - &id_set(["never"]));
    let touch = doc! { "update": "c", "updates": [{ "q": { "_id": "none" }, "u": { "$set": { "x": 1 } } }] };
    proxied.run(touch).await.unwrap();
    proxied.run(on_ts(1800)).await.unwrap();
    proxied.proxy.purge().await;
    proxied.run(off()).await.unwrap();
    assert_eq!(ids().await, &(&visible - &id_set(["never"])) | &id_set(["none"]));
}

#[tokio::test]
async fn one_field_of_a_collection_has_ttl() {
    let ttl = |field: &str| {
        doc! { "createIndexes": "c", "indexes": [{ "key": { field: 1 }, "name": format!("{field}_1"), "expireAfterSeconds": 60 }] }
    };
    for (first, second) in [("at", "_ts"), ("_ts", "at"), ("at", "until")] {
        let proxied = Proxied::cosmos(CosmosRu { ttl_on_custom_path: true, ..CosmosRu::default() }, 1).await;
        proxied.run(ttl(first)).await.unwrap();
        let (code, text) = refused(proxied.run(ttl(second)).await);
        assert!(code == 67 && text.contains("Only one field"), "{first} {second}: {text}");
        proxied.run(ttl(first)).await.unwrap();
    }
}
