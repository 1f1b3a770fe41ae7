//! A client that reads and updates single documents at a steady rate, without waiting for its earlier operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// One operation.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Instant at which the operation was due.
    pub scheduled: Instant,
    /// Time from `scheduled` until the answer. A wait for earlier operations counts, so that a stall shows in all operations that
    /// it delays.
    pub latency: Duration,
}

/// Operations that are begun one after another until it is stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    clock: thread::JoinHandle<Vec<JoinHandle<Sample>>>,
}

impl Load {
    /// Begins `rate` operations per second: alternately reads and updates, of random documents whose `_id` is an odd number below
    /// `documents`.
    pub(crate) fn start(c: Collection<Document>, documents: i64, rate: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let runtime = Handle::current();
        // A thread of its own: the runtime's timers are rounded to milliseconds, longer than most operations take.
        let clock = thread::spawn(move || {
            let mut random = StdRng::seed_from_u64(2);
            let mut running = Vec::new();
            let begun = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let n = running.len() as u32;
                let scheduled = begun + Duration::from_secs(1) * n / rate;
                thread::sleep(scheduled.saturating_duration_since(Instant::now()));
                let id = random.random_range(0..documents / 2) * 2 + 1;
                running.push(runtime.spawn(operate(c.clone(), id, n, scheduled)));
            }
            running
        });
        Self { stop, clock }
    }

    /// Begins no more operations, and waits for those that were begun.
    pub(crate) async fn stop(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        let running = tokio::task::spawn_blocking(|| self.clock.join().expect("the clock")).await.expect("the clock");
        futures_util::future::join_all(running).await.into_iter().map(|sample| sample.expect("an operation")).collect()
    }
}

/// Reads or updates one document, which must be there.
async fn operate(c: Collection<Document>, id: i64, n: u32, scheduled: Instant) -> Sample {
    let found = if n.is_multiple_of(2) {
        c.find_one(doc! { "_id": id }).await.expect("a read").is_some()
    } else {
        let set = doc! { "$set": { "seen": i64::from(n) } };
        c.update_one(doc! { "_id": id }, set).await.expect("an update").matched_count == 1
    };
    assert!(found, "document {id} is live and gone");
    Sample { scheduled, latency: scheduled.elapsed() }
}
