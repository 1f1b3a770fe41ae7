//! The proxy that simulates Azure's services behaves as documented. Tests of `sweeper` with it are in the other files.

use std::time::Duration;

use crate::support::faults::{dated, days};
use crate::support::proxied::{Proxied, assert_says, delete_all, deleted, refused, write_error};
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::document_db::DocumentDb;
use crate::support::proxy::fault::Fault;
use crate::support::proxy::{Service, errors};
use crate::support::sweeper::id_set;
use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;

async fn document_db(settings: DocumentDb, documents: i32) -> Proxied {
    Proxied::new(Service::DocumentDb(settings), documents).await
}

#[tokio::test]
async fn each_service_says_what_it_is() {
    let ru = Proxied::cosmos(CosmosRu { api_version: "6.0", ..CosmosRu::default() }, 0).await;
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
async fn faults_come_before_or_after_the_work() {
    let proxied = Proxied::cosmos(CosmosRu::default(), 20).await;
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
    let proxied = Proxied::cosmos(CosmosRu::default(), 0).await;
    proxied.run(doc! { "ping": 1 }).await.unwrap();
    let uri = format!("{}&serverSelectionTimeoutMS=200", proxied.proxy.uri());
    drop(proxied.proxy);
    let gone = Client::with_uri_str(uri).await.unwrap().database("t").run_command(doc! { "ping": 1 }).await.unwrap_err();
    assert!(matches!(*gone.kind, ErrorKind::ServerSelection { .. }), "{gone}");
}
