//! Collections on a replica set, swept while its members fail, with known survivors.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Result;
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use mongodb::{Client, Collection};

use super::replica_set::ReplicaSet;

/// Number of live documents, which follow the expired ones.
pub(crate) const LIVE: i32 = 50;

/// The way in which a sweep finds its batches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// Stretches of an index on the date.
    Index,
    /// `_id`s found by a cursor.
    Ids,
    /// Stretches of `_id`s.
    Scan,
}

/// A collection whose documents are numbered in `n`, the expired ones first.
pub(crate) struct Filled {
    pub c: Collection<Document>,
    pub expired: i32,
    /// A rule that sweeps the collection in small batches.
    pub rule: String,
}

impl Filled {
    /// Recreates the collection; every member has it when this returns.
    pub(crate) async fn new(client: &Client, way: Way, expired: i32) -> Result<Self> {
        let c = client.database("app").collection::<Document>("c");
        c.drop().await?;
        let now = DateTime::now().timestamp_millis();
        let at = |n| DateTime::from_millis(if n < expired { now - 864_000_000 + i64::from(n) } else { now });
        let documents = (0..expired + LIVE).map(|n| match way {
            Way::Index | Way::Ids => doc! { "_id": n, "n": n, "at": at(n) },
            Way::Scan => doc! { "_id": ObjectId::new(), "n": n, "at": at(n) },
        });
        let all = WriteConcern::builder().w(Acknowledgment::Nodes(3)).w_timeout(Duration::from_secs(30)).build();
        if matches!(way, Way::Index) {
            let index = doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] };
            client.database("app").run_command(index).await?;
        }
        c.insert_many(documents).write_concern(all).await?;
        // Batches must not shrink if a test slows the server down.
        let keys = "batchSize: 20, concurrency: 3, targetBatchMs: 5000";
        let rule = format!("  - {{namespace: app.c, field: at, expireAfter: 1d, {keys}}}\n");
        Ok(Self { c, expired, rule })
    }

    /// Returns the documents that are left, as a primary knows them that a majority confirms. With read concern majority a new
    /// primary may show less than a majority had confirmed before its election.
    pub(crate) async fn left(&self) -> Result<BTreeSet<i32>> {
        let found = self.c.find(doc! {}).read_concern(ReadConcern::linearizable()).batch_size(10_000).await?;
        let documents: Vec<Document> = found.try_collect().await?;
        Ok(documents.iter().map(|document| document.get_i32("n").expect("a number")).collect())
    }

    /// Returns the documents that must be left in the end.
    pub(crate) fn live(&self) -> BTreeSet<i32> {
        (self.expired..self.expired + LIVE).collect()
    }

    /// Waits until at least one batch is deleted.
    pub(crate) async fn until_begun(&self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            let count = self.c.count_documents(doc! {}).await.expect("a count");
            if count < (self.expired + LIVE) as u64 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no delete in time");
    }
}

/// Waits until every member of the set is up and in sync, and one of them is the primary.
pub(crate) async fn until_whole(set: &ReplicaSet, client: &Client) {
    for _ in 0..600 {
        if is_whole(set, client).await.unwrap_or(false) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the set did not recover in time");
}

async fn is_whole(set: &ReplicaSet, client: &Client) -> Result<bool> {
    let status = client.database("admin").run_command(doc! { "replSetGetStatus": 1 }).await?;
    let members = status.get_array("members").expect("members");
    let state = |index: usize| members[index].as_document().expect("a member").get_i32("state").unwrap_or(0);
    let states: Vec<i32> = (0..set.members.len()).map(state).collect();
    Ok(states.contains(&1) && states.iter().all(|state| matches!(state, 1 | 2)))
}
