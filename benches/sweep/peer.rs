//! The ways of deleting that are compared with each other.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::{Hint, WriteConcern};

use crate::deletion::Deletion;
use crate::fill::{Expected, fill};
use crate::layout::Layout;
use crate::nice;
use crate::server::{Server, date};
use crate::sweeper;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Peer {
    /// One `deleteMany`.
    DeleteMany,
    /// The same in the order of the storage: nothing paces it, and nothing can stop it.
    NaturalDeleteMany,
    TtlMonitor,
    /// Finds 1000 ids, deletes them by id and date, and repeats.
    Script,
    Sweeper,
    /// Sweeper, limited to this many documents per second.
    PacedSweeper(u32),
    /// Sweeper, with these keys of its rule as well.
    SweeperWith(&'static str),
    NiceDeleteMany,
}

impl Peer {
    /// Deletes the expired documents of a freshly filled collection, and asserts that exactly the others are left.
    pub(crate) async fn measure(self, server: &Server, layout: &Layout, documents: i64) -> Deletion {
        let c = fill(server, layout, documents).await;
        let expected = Expected::count(layout, &c).await;
        let deletion = self.delete(server, layout, &expected).await;
        expected.assert_left(layout, &c).await;
        deletion
    }

    /// Deletes the expired documents.
    pub(crate) async fn delete(self, server: &Server, layout: &Layout, expected: &Expected) -> Deletion {
        let c = server.collection();
        let begun = Instant::now();
        match self {
            Peer::DeleteMany => delete_many(&c, layout.expired()).await,
            Peer::NaturalDeleteMany => {
                let natural = c.delete_many(layout.expired()).hint(Hint::Keys(doc! { "$natural": 1 }));
                natural.write_concern(WriteConcern::majority()).await.expect("a delete");
            }
            Peer::TtlMonitor => return ttl_monitor(server, expected).await,
            Peer::Script => script(&c, layout).await,
            Peer::Sweeper => return sweep(server, &layout.rule(), expected).await,
            Peer::NiceDeleteMany => nice::delete(&c, server, layout).await,
            Peer::SweeperWith(keys) => return sweep(server, &format!("{}, {keys}", layout.rule()), expected).await,
            Peer::PacedSweeper(rate) => return sweep(server, &format!("{}, rate: {rate}", layout.rule()), expected).await,
        }
        Deletion::since(begun)
    }
}

pub(crate) async fn delete_many(c: &Collection<Document>, filter: Document) {
    c.delete_many(filter).write_concern(WriteConcern::majority()).await.expect("a delete");
}

async fn script(c: &Collection<Document>, layout: &Layout) {
    loop {
        let found = c.find(layout.expired()).projection(doc! { "_id": 1 }).limit(1000).await.expect("a cursor");
        let ids: Vec<Bson> = found.map_ok(|document| document["_id"].clone()).try_collect().await.expect("ids");
        if ids.is_empty() {
            break;
        }
        let mut filter = layout.expired();
        filter.insert("_id", doc! { "$in": ids });
        delete_many(c, filter).await;
    }
}

async fn sweep(server: &Server, rule: &str, expected: &Expected) -> Deletion {
    let deletion = sweeper::sweep(server, rule, &[]).await;
    assert_eq!(deletion.report["rules"][0]["deletedCount"], expected.expired, "{}", deletion.report);
    deletion
}

/// Turns the plain index into a TTL index and waits until the monitor has deleted what the other peers delete.
async fn ttl_monitor(server: &Server, expected: &Expected) -> Deletion {
    let c = server.collection();
    let age = (DateTime::now().timestamp_millis() - date(0).timestamp_millis()) / 1000;
    let index = doc! { "collMod": "c", "index": { "name": "at", "expireAfterSeconds": age } };
    server.database().run_command(index).await.expect("a TTL index");
    let whole = c.estimated_document_count().await.expect("a count");
    server.admin(doc! { "setParameter": 1, "ttlMonitorEnabled": true }).await;
    // The clock starts with the first deleted document, because the monitor's sleep does not count.
    let mut begun = None;
    loop {
        let left = c.estimated_document_count().await.expect("a count");
        if left < whole && begun.is_none() {
            begun = Some(Instant::now());
        }
        if left + expected.expired <= whole {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let deletion = Deletion::since(begun.unwrap_or_else(Instant::now));
    server.admin(doc! { "setParameter": 1, "ttlMonitorEnabled": false }).await;
    deletion
}
