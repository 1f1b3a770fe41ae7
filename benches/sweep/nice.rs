//! A port of the rule of niceDeleteMany.js, version 0.2.6, by MongoDB's support engineers (github.com/mongodb/support-tools).
//!
//! Ids come in the order of the date and are deleted by `_id` only, 100 at a time, at least four commands at once. Before each
//! command the rule reads `serverStatus` and waits while clients have to evict pages. The script also asks for parameters and for
//! the state of the set each time, and keeps all ids in the memory of the server: the port does not, which is in its favour.

use std::thread::available_parallelism;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::Hint;

use crate::layout::Layout;
use crate::peer::delete_many;
use crate::server::Server;
use crate::storage::number;

/// Ids of one delete command.
const BATCH: usize = 100;

/// Delete commands at once, if the machine has no more cores than that.
const LEAST_AT_ONCE: usize = 4;

/// WiredTiger's targets and triggers in percent of the cache, which the script takes unless the server is configured otherwise.
/// From a target on the server's own threads evict; from a trigger on clients evict as well.
const CACHE_TRIGGER: f64 = 95.0;
const DIRTY: [f64; 2] = [5.0, 20.0];
const UPDATES: [f64; 2] = [2.5, 10.0];

/// Percentage of the write tickets above which the rule regards them as scarce.
const SCARCE_TICKETS: f64 = 75.0;

/// Length of a checkpoint in milliseconds above which it counts as slow: the time from one to the next.
const SLOW_CHECKPOINT: f64 = 60_000.0;

/// The answer of the rule before each command.
enum Admission {
    /// To ask again after this time.
    Wait(Duration),
    /// To go on after this time.
    Go(Duration),
}

/// Deletes the expired documents.
pub(crate) async fn delete(c: &Collection<Document>, server: &Server, layout: &Layout) {
    let found = c.find(layout.expired()).sort(doc! { "at": 1 }).hint(Hint::Name("at".into())).projection(doc! { "_id": 1 });
    let ids = found.await.expect("a cursor").map_ok(|document| document["_id"].clone());
    let at_once = available_parallelism().map_or(0, usize::from).max(LEAST_AT_ONCE);
    ids.chunks(BATCH)
        .for_each_concurrent(at_once, |batch| async {
            let batch: Vec<Bson> = batch.into_iter().collect::<Result<_, _>>().expect("ids");
            admitted(server).await;
            delete_many(c, doc! { "_id": { "$in": batch } }).await;
        })
        .await;
}

/// Returns once the rule lets the next command through.
async fn admitted(server: &Server) {
    loop {
        match admission(&server.status().await) {
            Admission::Wait(time) => tokio::time::sleep(time).await,
            Admission::Go(time) => return tokio::time::sleep(time).await,
        }
    }
}

fn admission(status: &Document) -> Admission {
    let cache = |name| number(status, &["wiredTiger", "cache", name]).expect("a figure of the cache");
    let filled = |name| 100.0 * cache(name) / cache("maximum bytes configured");
    let used = filled("bytes currently in the cache");
    let dirty = filled("tracked dirty bytes in the cache");
    let updates = filled("bytes allocated for updates");
    if used > CACHE_TRIGGER || dirty > DIRTY[1] || updates > UPDATES[1] {
        return Admission::Wait(between(500, 1000));
    }
    if dirty >= DIRTY[0] || updates >= UPDATES[0] {
        return Admission::Go(between(20, 100));
    }
    // From 8.0 on tickets and checkpoints are reported elsewhere.
    let tickets = |name| {
        number(status, &["wiredTiger", "concurrentTransactions", "write", name])
            .or_else(|| number(status, &["queues", "execution", "write", name]))
    };
    let checkpoint = number(status, &["wiredTiger", "transaction", "transaction checkpoint most recent time (msecs)"])
        .or_else(|| number(status, &["wiredTiger", "checkpoint", "most recent time (msecs)"]));
    let scarce = tickets("out").zip(tickets("totalTickets")).is_some_and(|(out, all)| 100.0 * out / all > SCARCE_TICKETS);
    if scarce && checkpoint.is_some_and(|took| took > SLOW_CHECKPOINT) {
        return Admission::Go(between(100, 200));
    }
    Admission::Go(Duration::ZERO)
}

/// Returns a random time between these milliseconds.
fn between(least: u64, most: u64) -> Duration {
    Duration::from_millis(rand::random_range(least..most))
}
