//! The latency of a query for the oldest document, as of a queue, before a mass delete, during it and after it: the server walks
//! along the keys of the index whose documents are gone, until the storage engine has removed them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{Document, doc};
use mongodb::options::Hint;
use tokio::task::JoinHandle;

use crate::Args;
use crate::deletion::Deletion;
use crate::fill::{Expected, fill};
use crate::layout::SMALL;
use crate::load::Sample;
use crate::peer::Peer;
use crate::runs::{median, percentile, rotated};
use crate::server::Server;
use crate::table::{Table, figure};

/// Time between two queries.
const EVERY: Duration = Duration::from_millis(100);

/// Time before the deletes begin.
const BEFORE: Duration = Duration::from_secs(5);

/// Spans of time that are shown, in seconds after the end of the deletes.
const AFTER: [Range<u64>; 3] = [0..30, 30..60, 60..90];

const PEERS: [(&str, Peer); 5] = [
    ("deleteMany", Peer::DeleteMany),
    ("TTL monitor", Peer::TtlMonitor),
    ("niceDeleteMany", Peer::NiceDeleteMany),
    ("sweeper", Peer::Sweeper),
    ("sweeper, maxHeadMs: 20", Peer::SweeperWith("maxHeadMs: 20")),
];

/// Latencies of one span of time, in milliseconds.
#[derive(Clone, Copy)]
struct Span {
    p50: Option<f64>,
    p95: Option<f64>,
}

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let mut spans: [Vec<[Span; 5]>; PEERS.len()] = Default::default();
    for round in 0..args.rounds {
        for n in rotated(&[0, 1, 2, 3, 4], round) {
            spans[n].push(measure(&server, PEERS[n].1, args.latency_documents * 2).await);
        }
    }
    let title = format!(
        "latency: milliseconds of find().sort({{at: 1}}).limit(1) around the deletes of about {} of {} documents",
        args.latency_documents,
        args.latency_documents * 2
    );
    let mut columns = vec![("", 24)];
    for name in ["before", "during", "0-30 s after", "30-60 s after", "60-90 s after"] {
        columns.extend([(name, 13), ("p95", 7)]);
    }
    let table = Table::begin(&title, &columns);
    for ((name, _), runs) in PEERS.iter().zip(&spans) {
        let mut cells = vec![(*name).to_owned()];
        for span in 0..5 {
            cells.push(figure(median(runs.iter().filter_map(|run| run[span].p50)), 2));
            cells.push(figure(median(runs.iter().filter_map(|run| run[span].p95)), 2));
        }
        table.row(cells);
    }
}

/// Lets a peer delete, and returns the latencies before, during and after it.
async fn measure(server: &Server, peer: Peer, documents: i64) -> [Span; 5] {
    let c = fill(server, &SMALL, documents).await;
    let expected = Expected::count(&SMALL, &c).await;
    let queries = Queries::start(c.clone());
    tokio::time::sleep(BEFORE).await;
    let Deletion { begun, ended, .. } = peer.delete(server, &SMALL, &expected).await;
    let [.., last] = AFTER;
    tokio::time::sleep(Duration::from_secs(last.end)).await;
    let samples = queries.stop().await;
    expected.assert_left(&SMALL, &c).await;
    let after = AFTER.map(|span| ended + Duration::from_secs(span.start)..ended + Duration::from_secs(span.end));
    let [first, second, third] = after;
    // The first query opens the connection.
    let since = samples[1].scheduled;
    [since..begun, begun..ended, first, second, third].map(|time| span(&samples, &time))
}

fn span(samples: &[Sample], time: &Range<Instant>) -> Span {
    let within = samples.iter().filter(|sample| time.contains(&sample.scheduled));
    let mut latencies: Vec<Duration> = within.map(|sample| sample.latency).collect();
    latencies.sort();
    let [p50, p95] = [0.5, 0.95].map(|share| percentile(&latencies, share).map(|latency| latency.as_secs_f64() * 1000.0));
    Span { p50, p95 }
}

/// Queries for the oldest document, one after another, until they are stopped.
struct Queries {
    stop: Arc<AtomicBool>,
    running: JoinHandle<Vec<Sample>>,
}

impl Queries {
    fn start(c: Collection<Document>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            let mut samples = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let scheduled = Instant::now();
                let oldest = c.find_one(doc! {}).sort(doc! { "at": 1 }).hint(Hint::Name("at".into()));
                assert!(oldest.await.expect("a query").is_some(), "documents are left");
                samples.push(Sample { scheduled, latency: scheduled.elapsed() });
                tokio::time::sleep(EVERY).await;
            }
            samples
        });
        Self { stop, running }
    }

    async fn stop(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        self.running.await.expect("the queries")
    }
}
