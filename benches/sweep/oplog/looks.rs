//! The window of an oplog at short intervals.

use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use tokio::sync::watch;

use super::writer::Writer;
use crate::server::Server;

const EVERY: Duration = Duration::from_millis(200);

/// Time after a sweep in which it is still looked: the server removes old entries some time after the new ones were written.
const AFTER: Duration = Duration::from_secs(3);

/// Age of the figures that a sweep goes by, at most: it looks once a second.
const AGE: Duration = Duration::from_millis(1200);

/// Shortest time over which the speed of others is taken.
const SPAN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
pub(crate) struct Look {
    at: Instant,
    /// Seconds from the first entry of the oplog to the last.
    pub window: f64,
    /// Bytes that others have written.
    written: u64,
    /// Documents in the collection that is swept.
    documents: u64,
}

/// Looks once.
pub(crate) async fn look(c: &Collection<Document>, writer: &Writer) -> Look {
    let at = Instant::now();
    let written = writer.written();
    let documents = c.estimated_document_count().await.expect("a count");
    // The last entry first: what is removed between the two is missing in the window.
    let last = entry(c, -1).await;
    let window = last.timestamp_millis() - entry(c, 1).await.timestamp_millis();
    Look { at, window: window as f64 / 1000.0, written, documents }
}

/// Returns the time of the first entry of the oplog, or of the last.
async fn entry(c: &Collection<Document>, direction: i32) -> DateTime {
    let oplog = c.client().database("local").collection::<Document>("oplog.rs");
    let found = oplog.find_one(doc! {}).sort(doc! { "$natural": direction }).projection(doc! { "wall": 1 }).await;
    *found.expect("a query").expect("an entry").get_datetime("wall").expect("its time")
}

/// Waits until all entries so far have been removed from the oplog.
pub(crate) async fn renewed(server: &Server) {
    let c = server.collection();
    let before = entry(&c, -1).await;
    while entry(&c, 1).await <= before {
        tokio::time::sleep(EVERY).await;
    }
}

/// The looks of one sweep, in their order.
pub(crate) struct Looks(Vec<Look>);

impl Looks {
    /// Looks until some time after the sweep is over.
    pub(crate) async fn until(before: Look, c: &Collection<Document>, writer: &Writer, over: watch::Receiver<bool>) -> Self {
        let mut looks = vec![before];
        let mut ticks = tokio::time::interval(EVERY);
        let mut ended = None;
        while ended.is_none_or(|ended: Instant| ended.elapsed() < AFTER) {
            ticks.tick().await;
            looks.push(look(c, writer).await);
            if *over.borrow() && ended.is_none() {
                ended = Some(Instant::now());
            }
        }
        Self(looks)
    }

    pub(crate) fn first(&self) -> f64 {
        self.0[0].window
    }

    pub(crate) fn shortest(&self) -> f64 {
        self.0.iter().map(|look| look.window).min_by(f64::total_cmp).expect("a look")
    }

    /// Returns the documents that went although the window was below the guard for longer than a sweep needs to see it.
    pub(crate) fn deleted_below(&self, guard: f64) -> u64 {
        let mut below_since = None;
        let mut deleted = 0;
        for pair in self.0.windows(2) {
            let [before, after] = [pair[0], pair[1]];
            below_since = (before.window < guard).then(|| below_since.unwrap_or(before.at));
            if below_since.is_some_and(|since| before.at - since >= AGE) {
                deleted += before.documents.saturating_sub(after.documents);
            }
        }
        deleted
    }

    /// Returns the least and the most megabytes per second that others wrote.
    pub(crate) fn others(&self) -> (f64, f64) {
        let looks = &self.0;
        let mut speeds = Vec::new();
        for (n, begin) in looks.iter().enumerate() {
            let Some(end) = looks[n..].iter().find(|end| end.at - begin.at >= SPAN) else { break };
            speeds.push((end.written - begin.written) as f64 / 1e6 / (end.at - begin.at).as_secs_f64());
        }
        let of = |pick: fn(f64, f64) -> f64| speeds.iter().copied().reduce(pick).unwrap_or(0.0);
        (of(f64::min), of(f64::max))
    }
}
