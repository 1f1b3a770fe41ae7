//! Orders and their lines, on a replica set: a rule with children.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::process::Command;

use futures_util::TryStreamExt;
use futures_util::io::AsyncWriteExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::gridfs::GridFsBucket;

use super::pool::Shared;
use super::replica_set::ReplicaSet;
use super::sweeper::{Case, Report};

const DAY: i64 = 86_400_000;

/// Creates a case with a database of this name on a replica set that such cases share.
pub(crate) async fn case(database: &str) -> Case {
    static SET: Shared<ReplicaSet> = Shared::new();
    let set = tokio::task::spawn_blocking(|| SET.get(|| ReplicaSet::start(1, &[]))).await.expect("a replica set");
    let case = Case::at(&set.uri(), set.client().await, database);
    use_journal(&case).await;
    case
}

/// Leaves in the journal what an earlier run has left of its leases: a run that has to create them waits for some seconds.
async fn use_journal(case: &Case) {
    for parents in ["orders", "fs.files"] {
        let lease = doc! { "_id": format!("{}.{parents}", case.db.name()) };
        let free = doc! { "$setOnInsert": { "runId": Bson::Null, "expiresAt": DateTime::from_millis(0) } };
        case.collection("journal").update_one(lease, free).upsert(true).await.expect("a lease");
    }
}

/// Returns the `_id`s of the entries in the journal.
pub(crate) async fn entries(case: &Case) -> BTreeSet<String> {
    let journal = case.collection("journal");
    let cursor = journal.find(doc! { "namespace": { "$exists": true } }).projection(doc! { "_id": 1 }).await.expect("a cursor");
    let entries: Vec<Document> = cursor.try_collect().await.expect("entries");
    entries.iter().filter_map(|entry| entry.get("_id")).map(|id| id.clone().into_canonical_extjson().to_string()).collect()
}

/// Returns an entry of the journal, for children in `lines`.
pub(crate) fn entry(case: &Case, id: i32, field: &str, parents: Vec<i32>) -> Document {
    let name = case.db.name();
    let lines = doc! { "namespace": format!("{name}.lines"), "field": "order" };
    doc! {
        "_id": id, "namespace": format!("{name}.orders"), "rule": "orders", "run": "earlier", "at": DateTime::now(),
        "field": field, "parents": parents, "children": [lines],
    }
}

/// Makes the leases of a run that was killed last for six seconds only.
pub(crate) fn short(mut command: Command) -> Command {
    command.env("SWEEPER_TEST_LEASE_SECONDS", "6");
    command
}

/// Sweeps once another run has given its leases back, or they are over.
pub(crate) async fn report_after(case: &Case, rules: &str) -> Report {
    case.report(rules, &["--lock-wait", "2m"]).await
}

/// Returns the rule for the orders, with further keys, and the journal.
pub(crate) fn rule(more: &str) -> String {
    let children = "children: [{namespace: DB.lines, field: order}]";
    format!(
        "  - {{namespace: DB.orders, field: at, expireAfter: 1d, batchSize: 10{more}, {children}}}\njournal: {{collection: DB.journal}}\n"
    )
}

/// Returns an order that has expired, or one that has not.
pub(crate) fn order(id: i32, is_expired: bool) -> Document {
    let age = if is_expired { 3 * DAY } else { 0 };
    doc! { "_id": id, "at": DateTime::from_millis(DateTime::now().timestamp_millis() - age) }
}

/// Returns the lines of an order.
pub(crate) fn lines(order: i32, number: i32) -> impl Iterator<Item = Document> {
    (0..number).map(move |line| doc! { "_id": format!("{order}-{line}"), "order": order })
}

/// Inserts orders with three lines each, and creates the indexes.
pub(crate) async fn fill(case: &Case, expired: Range<i32>, live: Range<i32>) {
    for (collection, field) in [("orders", "at"), ("lines", "order")] {
        let index = doc! { "key": { field: 1 }, "name": field };
        case.db.run_command(doc! { "createIndexes": collection, "indexes": [index] }).await.expect("an index");
    }
    use_journal(case).await;
    case.fill("lines", expired.clone().chain(live.clone()).flat_map(|id| lines(id, 3))).await;
    case.fill("orders", expired.map(|id| order(id, true)).chain(live.map(|id| order(id, false)))).await;
}

/// Returns the content of a file, which has a length of its own.
pub(crate) fn content(file: usize) -> Vec<u8> {
    (0..file * 700).map(|byte| (byte * 7 + file) as u8).collect()
}

/// Uploads so many files, and returns their `_id`s.
pub(crate) async fn upload(bucket: &GridFsBucket, number: usize) -> Vec<Bson> {
    let mut files = Vec::new();
    for file in 0..number {
        let mut stream = bucket.open_upload_stream(format!("file {file}")).await.expect("an upload");
        stream.write_all(&content(file)).await.expect("chunks");
        files.push(stream.id().clone());
        stream.close().await.expect("a file");
    }
    files
}

/// Returns the number of lines of each order that has some.
pub(crate) async fn lines_of(case: &Case) -> BTreeMap<i32, usize> {
    let lines: Vec<Document> =
        case.collection("lines").find(doc! {}).await.expect("a cursor").try_collect().await.expect("lines");
    let mut found = BTreeMap::new();
    for line in lines {
        *found.entry(line.get_i32("order").expect("an order")).or_default() += 1;
    }
    found
}

/// Returns the orders that are there.
pub(crate) async fn orders(case: &Case) -> BTreeSet<i32> {
    let orders = case.collection("orders").find(doc! {}).await.expect("a cursor");
    let orders: Vec<Document> = orders.try_collect().await.expect("orders");
    orders.iter().map(|order| order.get_i32("_id").expect("a number")).collect()
}

/// Asserts that every order that is there has its three lines, and no other has any.
pub(crate) async fn assert_whole(case: &Case, context: &str) {
    let expected: BTreeMap<i32, usize> = orders(case).await.into_iter().map(|order| (order, 3)).collect();
    assert_eq!(lines_of(case).await, expected, "{context}");
}

/// Asserts that no order that is there has lost a line.
pub(crate) async fn assert_kept(case: &Case, context: &str) {
    let found = lines_of(case).await;
    for order in orders(case).await {
        assert_eq!(found.get(&order), Some(&3), "order {order}: {context}");
    }
}
