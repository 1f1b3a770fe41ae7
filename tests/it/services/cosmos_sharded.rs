//! Sharded collections of Azure Cosmos DB (RU), in which an `_id` is unique per shard key only: pages end among documents with
//! one `_id`.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};

use crate::support::faults::days;
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::fault::Fault;
use crate::support::sweeper::Case;

/// Returns an account with a collection that is sharded by `tenant`, and these documents.
async fn sharded(documents: Vec<Document>) -> Proxied {
    let case = Case::new().await;
    let shard_keys = BTreeMap::from([(format!("{}.c", case.db.name()), doc! { "tenant": "Hash" })]);
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu { shard_keys, ..CosmosRu::default() }), case).await;
    for part in documents.chunks(500) {
        let reply = proxied.run(doc! { "insert": "c", "documents": part }).await.unwrap();
        assert!(!reply.contains_key("writeErrors"), "{reply}");
    }
    proxied
}

/// Returns one document for each `_id` and tenant; the documents of every tenth tenant are live.
fn tenants(ids: &[Bson], tenants: i32) -> Vec<Document> {
    let of = |id: &Bson| (0..tenants).map(|n| document(id.clone(), n)).collect::<Vec<_>>();
    ids.iter().flat_map(of).collect()
}

fn document(id: Bson, n: i32) -> Document {
    doc! { "_id": id, "tenant": format!("t{n}"), "at": days(if n % 10 == 0 { 3 } else { -3 }) }
}

fn key(document: &Document) -> (String, String) {
    (document.get("_id").unwrap().clone().into_canonical_extjson().to_string(), document.get_str("tenant").unwrap().to_owned())
}

async fn left(proxied: &Proxied) -> BTreeSet<(String, String)> {
    let collection = proxied.client.database(proxied.case.db.name()).collection::<Document>("c");
    let left: Vec<Document> = collection.find(doc! {}).await.unwrap().try_collect().await.unwrap();
    left.iter().map(key).collect()
}

fn live(documents: &[Document]) -> BTreeSet<(String, String)> {
    documents.iter().filter(|document| document.get_datetime("at").unwrap() > &days(0)).map(key).collect()
}

#[tokio::test]
async fn documents_with_one_id_are_all_swept_however_the_pages_end() {
    let two: Vec<Bson> = vec![1.into(), 2.into()];
    let many: Vec<Bson> = (0..60).map(Bson::Int32).collect();
    let texts: Vec<Bson> = vec!["a".into(), "b".into()];
    // The same number, of three types.
    let mixed: Vec<Bson> = vec![5.into(), Bson::Int64(7), Bson::Double(7.5), "x".into()];
    for (ids, count, batch_size) in [(&two, 300, 1000), (&two, 90, 7), (&many, 3, 4), (&texts, 90, 7), (&mixed, 40, 3)] {
        let documents = tenants(ids, count);
        let proxied = sharded(documents.clone()).await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: {batch_size}}}\n");
        let expired = documents.len() - live(&documents).len();
        let dry = proxied.case.report(&rule, &["--dry-run"]).await;
        assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &expired.into()), "{dry:?}");
        let report = proxied.case.report(&rule, &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &expired.into()), "{report:?}");
        assert_eq!(left(&proxied).await, live(&documents));
    }
}

#[tokio::test]
async fn one_number_of_several_types_is_one_id() {
    let number = |n: i32| match n % 3 {
        0 => Bson::Int32(5),
        1 => Bson::Int64(5),
        _ => Bson::Double(5.0),
    };
    let documents: Vec<Document> = (0..40).map(|n| document(number(n), n)).collect();
    let proxied = sharded(documents.clone()).await;
    for batch_size in [3, 100] {
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: {batch_size}}}\n");
        let dry = proxied.case.report(&rule, &["--dry-run"]).await;
        assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &36.into()), "{dry:?}");
    }
    let report = proxied.case.report("  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 3}\n", &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &36.into()), "{report:?}");
    assert_eq!(left(&proxied).await, live(&documents));
}

#[tokio::test]
async fn documents_that_a_delete_leaves_there_hide_no_others() {
    let documents = tenants(&[1.into(), 2.into()], 40);
    let proxied = sharded(documents.clone()).await;
    // Two batches of seven are answered as done, and nothing is deleted.
    let nothing = Fault::Answer { reply: doc! { "n": 0, "ok": 1.0 }, done: false };
    proxied.proxy.faults().next("delete", 2, nothing);
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 7}\n";
    let report = proxied.case.report(rule, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    let expired = documents.len() - live(&documents).len();
    assert_eq!(report.rule(0, "deletedCount"), expired - 14, "{report:?}");
    let left = left(&proxied).await;
    assert!(left.is_superset(&live(&documents)));
    assert_eq!(left.len(), live(&documents).len() + 14);
    // The next run takes them.
    let report = proxied.case.report(rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &14.into()), "{report:?}");
    assert_eq!(self::left(&proxied).await, live(&documents));
}
