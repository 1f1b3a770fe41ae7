//! Fills a collection, with the same documents each time, and compares the documents that a run left with those that it had to
//! leave.

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::options::WriteConcern;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::layout::Layout;
use crate::server::Server;

/// Documents of one insert.
const BATCH: i64 = 10_000;

/// Drops the collection and fills it again, with the same documents in the same order each time. The indexes come last, which
/// takes the least time.
pub(crate) async fn fill(server: &Server, layout: &Layout, documents: i64) -> Collection<Document> {
    let c = server.collection();
    c.drop().await.expect("a drop");
    insert(&c, layout, documents).await;
    index(server, layout).await;
    server.checkpoint().await;
    c
}

/// Drops the collection and fills it again. The indexes come first, so that they have the pages that documents leave which come
/// one by one.
pub(crate) async fn grow(server: &Server, layout: &Layout, documents: i64) {
    let c = server.collection();
    c.drop().await.expect("a drop");
    index(server, layout).await;
    insert(&c, layout, documents).await;
    server.checkpoint().await;
}

async fn insert(c: &Collection<Document>, layout: &Layout, documents: i64) {
    let mut random = StdRng::seed_from_u64(1);
    let mut going_in = tokio::spawn(async {});
    for begin in (0..documents).step_by(BATCH as usize) {
        let batch: Vec<Document> =
            (begin..documents.min(begin + BATCH)).map(|n| (layout.document)(layout, n, documents, &mut random)).collect();
        // One batch is inserted while the next is made. Two at a time would mix, and the order would differ from run to run.
        going_in.await.expect("documents go in");
        let c = c.clone();
        going_in = tokio::spawn(async move {
            // Unordered, so that a router sends one part to each shard.
            c.insert_many(batch).ordered(false).write_concern(WriteConcern::nodes(1)).await.expect("documents go in");
        });
    }
    going_in.await.expect("documents go in");
}

async fn index(server: &Server, layout: &Layout) {
    let indexes: Vec<Document> = layout.indexes.iter().map(|field| doc! { "key": { *field: 1 }, "name": *field }).collect();
    if !indexes.is_empty() {
        server.database().run_command(doc! { "createIndexes": "c", "indexes": indexes }).await.expect("indexes");
    }
}

/// The documents that a run must delete, and those it must leave.
pub(crate) struct Expected {
    pub expired: u64,
    live: u64,
}

impl Expected {
    /// Counts before the run.
    pub(crate) async fn count(layout: &Layout, c: &Collection<Document>) -> Self {
        let expired = c.count_documents(layout.expired()).await.expect("a count");
        let live = c.estimated_document_count().await.expect("a count") - expired;
        assert!(expired > 0 && live > 0, "{}: {expired} expired, {live} live; more documents are needed", layout.name);
        Self { expired, live }
    }

    /// Asserts that the run left exactly the live documents. Nothing is inserted meanwhile, so if as many documents are left as
    /// were live, and none of them has expired, they are the same.
    pub(crate) async fn assert_left(&self, layout: &Layout, c: &Collection<Document>) {
        let expired = c.count_documents(layout.expired()).await.expect("a count");
        let all = c.estimated_document_count().await.expect("a count");
        assert!(expired == 0 && all == self.live, "{}: {expired} expired are left, {all} of {} live", layout.name, self.live);
    }
}
