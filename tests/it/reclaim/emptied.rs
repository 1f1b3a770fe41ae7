//! A set of three with a collection most of which was deleted.

use std::time::{Duration, Instant};

use fastrand::Rng;
use mongodb::bson::{Binary, Document, doc, spec::BinarySubtype};
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{Client, Collection};
use serde_json::Value;

use crate::support::faults::days;
use crate::support::mongod::Mongod;
use crate::support::replica_set::ReplicaSet;
use crate::support::site::Site;
use crate::support::sweeper::Ran;

/// A rule for the collection.
pub(super) const RULE: &str = "  - {namespace: app.c, field: at, expireAfter: 1d}\n";

pub(super) struct Emptied {
    pub set: ReplicaSet,
    pub site: Site,
    pub c: Collection<Document>,
}

/// Starts a set whose files have little left in them. What is deleted is free after the next checkpoint.
pub(super) async fn emptied() -> Emptied {
    let start = || ReplicaSet::start(3, &["--setParameter", "minSnapshotHistoryWindowInSeconds=0"]);
    let set = tokio::task::spawn_blocking(start).await.expect("a replica set");
    let c = set.client().await.database("app").collection::<Document>("c");
    let mut members = Vec::new();
    for member in &set.members {
        members.push(member.client().await);
    }
    empty(&c, &members).await;
    Emptied { set, site: Site::new(), c }
}

/// Fills a collection, and deletes most of it. `members` are clients of all members.
pub(super) async fn empty(c: &Collection<Document>, members: &[Client]) {
    let all = WriteConcern::builder().w(Acknowledgment::Nodes(members.len() as u32)).build();
    let mut random = Rng::with_seed(1);
    let documents: Vec<Document> = (0..6000)
        .map(|id| {
            let bytes = (0..4096).map(|_| random.u8(..)).collect();
            doc! { "_id": id, "at": days(-3), "s": Binary { subtype: BinarySubtype::Generic, bytes } }
        })
        .collect();
    c.insert_many(documents).write_concern(all.clone()).await.expect("an insert");
    checkpoint(members).await;
    c.delete_many(doc! { "_id": { "$gte": 500 } }).write_concern(all).await.expect("a delete");
    checkpoint(members).await;
}

/// Lets each member write its files, twice: what the first checkpoint replaces is free after the second.
async fn checkpoint(members: &[Client]) {
    let begun = Instant::now();
    for member in members.iter().chain(members) {
        // A member that has only just got its data takes none yet.
        while let Err(cause) = member.database("admin").run_command(doc! { "fsync": 1 }).await {
            assert!(begun.elapsed() < Duration::from_secs(60), "a checkpoint: {cause}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Returns the size of the collection's file on one member.
pub(super) async fn files(member: &Mongod) -> i64 {
    let client: Client = member.client().await;
    let stats = client.database("app").run_command(doc! { "collStats": "c" }).await.expect("collStats");
    let blocks = stats.get_document("wiredTiger").and_then(|data| data.get_document("block-manager")).expect("its blocks");
    blocks.get("file size in bytes").and_then(|size| size.as_i64().or(size.as_i32().map(i64::from))).expect("a size")
}

/// Reads a report.
pub(super) fn read(ran: Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"))
}

impl Emptied {
    /// Runs `sweeper reclaim`.
    pub(super) async fn run(&self, args: &[&str]) -> Ran {
        self.site.run(&self.set.uri(), RULE, &[&["reclaim", "--format", "json"], args].concat()).await
    }

    /// Returns the size of the collection's file on each member.
    pub(super) async fn files(&self) -> Vec<i64> {
        let mut all = Vec::new();
        for member in &self.set.members {
            all.push(files(member).await);
        }
        all
    }
}
