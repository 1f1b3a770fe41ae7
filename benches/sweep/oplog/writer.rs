//! Others who write: a steady number of megabytes per second in the oplog.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mongodb::Database;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use mongodb::options::WriteConcern;
use tokio::task::JoinHandle;

use crate::server::Server;

/// Bytes of a document. Few large ones cost the server the least.
const BYTES: u64 = 100_000;

const WRITERS: u64 = 4;

/// Time between two documents of one writer.
const EVERY: Duration = Duration::from_millis(20);

/// Megabytes per second of all writers together.
pub(crate) const MEGABYTES: u64 = BYTES * WRITERS * 1000 / EVERY.as_millis() as u64 / 1_000_000;

/// Documents of one writer in a collection. Two are there at a time, so that the disk does not fill.
const DOCUMENTS: u64 = 250;

/// Writers that insert until they are stopped.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    running: Vec<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(server: &Server) -> Self {
        let (stop, written) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
        let writers = (0..WRITERS).map(|n| {
            let database = server.client.database(&format!("others{n}"));
            tokio::spawn(write(database, stop.clone(), written.clone()))
        });
        let running = writers.collect();
        Self { stop, written, running }
    }

    /// Returns the bytes that were written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(crate) async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.running {
            writer.await.expect("a writer");
        }
    }
}

/// Inserts at a rate that does not depend on the load: what was missed is made up for.
async fn write(database: Database, stop: Arc<AtomicBool>, written: Arc<AtomicU64>) {
    let mut ticks = tokio::time::interval(EVERY);
    let bytes = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; BYTES as usize] };
    let collection = |n: u64| database.collection::<Document>(&format!("c{n}"));
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let filling = n / DOCUMENTS;
        if n % DOCUMENTS == 0 && filling > 0 {
            collection(filling - 1).drop().await.expect("a drop");
        }
        let document = doc! { "bytes": &bytes };
        collection(filling).insert_one(document).write_concern(WriteConcern::nodes(1)).await.expect("an insert");
        written.fetch_add(BYTES, Ordering::Relaxed);
        n += 1;
    }
}
