//! The router of the tests answers as its sources say: what a test of a sharded cluster relies on.

use crate::support::cluster::{Cluster, middle};
use crate::support::proxied::{refused, write_error};
use crate::support::proxy::router::Sharded;
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::InsertManyOptions;

/// Returns a cluster whose collection `c`, sharded by `t` at 50, has ten documents on each shard, with the same `_id`s.
async fn halves() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.shard("c", Sharded::halves(doc! { "t": 1 }, [50.into()])).await;
    let documents = (0..10).flat_map(|id| [doc! { "_id": id, "t": id }, doc! { "_id": id, "t": 99 - id }]);
    let documents: Vec<_> = documents.map(|document| RawDocumentBuf::try_from(&document).unwrap()).collect();
    cluster.fill("c", &documents).await;
    cluster
}

/// Returns the values of `t` on each shard, in the order of the storage.
async fn keys(cluster: &Cluster) -> [Vec<i32>; 2] {
    let of = async |shard: usize| {
        let found = cluster.on_shard(shard).collection::<Document>("c").find(doc! {}).sort(doc! { "t": 1 }).await.unwrap();
        let found: Vec<Document> = found.try_collect().await.unwrap();
        found.iter().map(|document| document.get_i32("t").unwrap()).collect()
    };
    [of(0).await, of(1).await]
}

async fn run(cluster: &Cluster, command: Document) -> Document {
    cluster.case.db.run_command(command).await.unwrap()
}

async fn run_on(cluster: &Cluster, shard: usize, command: Document) -> Document {
    cluster.on_shard(shard).run_command(command).await.unwrap()
}

fn update(q: Document, u: impl Into<Bson>, upsert: bool) -> Document {
    doc! { "update": "c", "updates": [{ "q": q, "u": u.into(), "upsert": upsert }] }
}

#[tokio::test]
async fn each_document_goes_to_its_shard_and_errors_keep_their_places() {
    let cluster = halves().await;
    assert_eq!(keys(&cluster).await, [(0..10).collect::<Vec<_>>(), (90..100).collect()]);
    let documents = || [90, 60, 3, 61].map(|t| doc! { "_id": if t == 90 || t == 3 { t % 10 } else { t }, "t": t });
    let error = |ordered: bool| async move {
        let command = doc! { "insert": "c", "documents": documents().to_vec(), "ordered": ordered };
        let reply = run(&halves().await, command).await;
        let indexes =
            reply.get_array("writeErrors").unwrap().iter().map(|error| error.as_document().unwrap().get_i32("index").unwrap());
        (reply.get_i32("n").unwrap(), indexes.collect::<Vec<_>>(), write_error(&reply).0)
    };
    assert_eq!(error(false).await, (2, vec![0, 2], 11_000));
    assert_eq!(error(true).await, (0, vec![0], 11_000));
    let array = run(&cluster, doc! { "insert": "c", "documents": [{ "_id": 77, "t": [1] }] }).await;
    assert_eq!((array.get_i32("n").unwrap(), write_error(&array).0), (0, 61));
    // A driver inserts through it as through any mongos, with a session and the number of a retryable write.
    let unordered = InsertManyOptions::builder().ordered(false).build();
    let more = [doc! { "_id": 200, "t": 1 }, doc! { "_id": 200, "t": 80 }, doc! { "_id": 201 }];
    cluster.case.collection("c").insert_many(more).with_options(unordered).await.unwrap();
    assert_eq!(
        cluster.on_shard(0).collection::<Document>("c").count_documents(doc! { "_id": { "$gte": 200 } }).await.unwrap(),
        2
    );
}

#[tokio::test]
async fn reads_are_merged_in_order_limited_and_fetched_in_parts() {
    let cluster = halves().await;
    let collection = cluster.case.collection("c");
    let keys = |found: Vec<Document>| found.iter().map(|document| document.get_i32("t").unwrap()).collect::<Vec<_>>();
    let sorted = collection.find(doc! {}).sort(doc! { "_id": 1, "t": -1 }).skip(3).limit(6).batch_size(2).await.unwrap();
    assert_eq!(keys(sorted.try_collect().await.unwrap()), [1, 97, 2, 96, 3, 95]);
    let unsorted = collection.find(doc! { "_id": { "$lt": 2 } }).projection(doc! { "t": 1 }).await.unwrap();
    assert_eq!(keys(unsorted.try_collect().await.unwrap()), [0, 1, 99, 98]);
    assert_eq!(cluster.proxy.requests_of("getMore").len(), 2);
    assert_eq!(collection.count_documents(doc! { "t": { "$gte": 5 } }).await.unwrap(), 15);
    assert_eq!(collection.estimated_document_count().await.unwrap(), 20);
    let stages = [doc! { "$match": { "_id": { "$gte": 8 } } }, doc! { "$group": { "_id": "$_id", "t": { "$max": "$t" } } }];
    let mut groups = keys(collection.aggregate(stages).await.unwrap().try_collect().await.unwrap());
    groups.sort_unstable();
    assert_eq!(groups, [90, 91]);
    let stats = run(&cluster, doc! { "collStats": "c" }).await;
    assert_eq!(
        (stats.get_i64("count").unwrap(), stats.get_bool("sharded").unwrap(), stats.get_document("shards").unwrap().len()),
        (20, true, 2)
    );
    let plan = |filter: Document| doc! { "explain": { "find": "c", "filter": filter }, "verbosity": "queryPlanner" };
    for (filter, shards) in [(doc! {}, 2), (doc! { "t": 3 }, 1), (doc! { "t": { "$in": [3, 60] } }, 2)] {
        let planned = run(&cluster, plan(filter)).await;
        let winning = planned.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
        assert_eq!(winning.get_array("shards").unwrap().len(), shards, "{planned}");
    }
}

#[tokio::test]
async fn deletes_go_where_their_filter_leads_and_n_is_summed() {
    let cluster = halves().await;
    let delete = |q: Document, limit: i32| doc! { "delete": "c", "deletes": [{ "q": q, "limit": limit }] };
    let all = run(&cluster, delete(doc! { "_id": { "$in": [0, 1] } }, 0)).await;
    assert_eq!(all.get_i32("n").unwrap(), 4);
    let one = run(&cluster, delete(doc! { "$and": [{ "t": 97 }, { "_id": 2 }] }, 1)).await;
    assert_eq!(one.get_i32("n").unwrap(), 1);
    assert_eq!(write_error(&run(&cluster, delete(doc! { "v": 1 }, 1)).await).0, 61);
    assert_eq!(keys(&cluster).await, [(2..10).collect::<Vec<_>>(), (90..97).collect()]);
}

#[tokio::test]
async fn a_replacement_is_aimed_by_its_own_shard_key_and_finds_nothing_elsewhere() {
    let cluster = halves().await;
    cluster.on_shard(1).collection::<Document>("c").delete_one(doc! { "_id": 5 }).await.unwrap();
    let before = keys(&cluster).await;
    // The only document with this `_id` is on the other shard.
    let none = run(&cluster, update(doc! { "_id": 5 }, doc! { "_id": 5, "t": 94, "v": 1 }, false)).await;
    assert_eq!((none.get_i32("n").unwrap(), none.contains_key("writeErrors")), (0, false), "{none}");
    // One on the same shard, with another key, may not be changed.
    let changed = run(&cluster, update(doc! { "_id": 6 }, doc! { "_id": 6, "t": 60 }, false)).await;
    assert_eq!(write_error(&changed).0, 31_025);
    let changed = run(&cluster, update(doc! { "_id": 6, "t": 93 }, doc! { "_id": 6, "t": 60 }, false)).await;
    assert_eq!(write_error(&changed).0, 20);
    let upsert = run(&cluster, update(doc! { "$nor": [{}] }, vec![doc! { "$replaceWith": { "_id": 50, "t": 1 } }], true)).await;
    assert_eq!(write_error(&upsert).0, 61);
    assert_eq!(write_error(&run(&cluster, update(doc! { "v": 1 }, doc! { "$set": { "v": 2 } }, false)).await).0, 72);
    assert_eq!(keys(&cluster).await, before);
    let aimed = run(&cluster, update(doc! { "_id": 6, "t": 93 }, doc! { "_id": 6, "t": 93, "v": 1 }, false)).await;
    assert_eq!((aimed.get_i32("n").unwrap(), aimed.get_i32("nModified").unwrap()), (1, 1), "{aimed}");
    let by_key = update(doc! { "_id": 50, "t": 60, "$nor": [{}] }, vec![doc! { "$replaceWith": { "_id": 50, "t": 60 } }], true);
    let upsert = run(&cluster, by_key).await;
    assert_eq!((upsert.get_i32("n").unwrap(), upsert.get_array("upserted").unwrap().len()), (1, 1), "{upsert}");
}

#[tokio::test]
async fn the_database_config_can_be_read_until_it_is_hidden() {
    let cluster = Cluster::new().await;
    cluster.shard("h", Sharded::halves(doc! { "_id": "hashed" }, middle())).await;
    cluster.case.fill("h", (0..100).map(|id| doc! { "_id": id })).await;
    for shard in [0, 1] {
        let count = cluster.on_shard(shard).collection::<Document>("h").count_documents(doc! {}).await.unwrap();
        assert!(count > 20, "{count} on shard {shard}");
    }
    let config = cluster.case.client.database("config");
    let entry = doc! { "_id": format!("{}.h", cluster.case.db.name()) };
    let found = config.collection::<Document>("collections").find_one(entry).await.unwrap().unwrap();
    assert_eq!(found.get_document("key").unwrap(), &doc! { "_id": "hashed" });
    let uuid = async |shard: usize| {
        let found = run_on(&cluster, shard, doc! { "listCollections": 1, "filter": { "name": "h" } }).await;
        let first = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap().clone();
        first.get_document("info").unwrap().get("uuid").cloned().unwrap()
    };
    assert_eq!(uuid(0).await, uuid(1).await);
    cluster.router.hide_config();
    assert_eq!(refused(config.run_command(doc! { "find": "collections" }).await).0, 13);
}
