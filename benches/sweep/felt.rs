//! The latency that a foreground feels while a peer deletes, or while nothing else happens.

use std::time::{Duration, Instant};

use mongodb::bson::Document;
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection};

use crate::deletion::Deletion;
use crate::fill::Expected;
use crate::layout::Layout;
use crate::load::Load;
use crate::peer::Peer;
use crate::runs::percentile;
use crate::server::Server;
use crate::storage::Work;

/// Time in a round during which the foreground has the server to itself: that from one checkpoint to the next, because each is
/// felt (MongoDB manual, `storage.syncPeriodSecs`).
const IDLE: Duration = Duration::from_secs(60);

/// Time that the foreground runs before the deletes begin, so that its connections are open by then.
const WARM_UP: Duration = Duration::from_secs(2);

/// The figures of one run.
pub(crate) struct Felt {
    /// `None` if nothing was deleted.
    pub deletion: Option<Deletion>,
    expired: u64,
    /// The work of the storage engine meanwhile, the work for the foreground included.
    pub work: Work,
    /// In ascending order.
    latencies: Vec<Duration>,
}

impl Felt {
    /// Returns the latency in milliseconds that this share of the operations did not exceed.
    pub(crate) fn latency(&self, share: f64) -> Option<f64> {
        percentile(&self.latencies, share).map(|latency| latency.as_secs_f64() * 1000.0)
    }

    /// Returns the documents that were deleted per second.
    pub(crate) fn rate(&self) -> Option<f64> {
        Some(self.expired as f64 / self.seconds()?)
    }

    /// Returns the time that the deletes took.
    pub(crate) fn seconds(&self) -> Option<f64> {
        Some(self.deletion.as_ref()?.wall().as_secs_f64())
    }
}

/// Runs a foreground of this many operations per second while a peer deletes from a layout. What is live has odd numbers as
/// `_id`s; asserts that exactly these documents are left.
pub(crate) async fn feel(server: &Server, layout: &Layout, documents: i64, rate: u32, peer: Option<Peer>) -> Felt {
    let c = server.collection();
    let expected = Expected::count(layout, &c).await;
    let load = Load::start(foreground(server).await, documents, rate);
    tokio::time::sleep(WARM_UP).await;
    let work = async {
        match peer {
            Some(peer) => peer.delete(server, layout, &expected).await,
            None => {
                let begun = Instant::now();
                tokio::time::sleep(IDLE).await;
                Deletion::since(begun)
            }
        }
    };
    let (deletion, work) = server.working(work).await;
    let samples = load.stop().await;
    if peer.is_some() {
        expected.assert_left(layout, &c).await;
    }
    let during = samples.iter().filter(|sample| (deletion.begun..=deletion.ended).contains(&sample.scheduled));
    let mut latencies: Vec<Duration> = during.map(|sample| sample.latency).collect();
    latencies.sort();
    Felt { deletion: peer.is_some().then_some(deletion), expired: expected.expired, work, latencies }
}

/// Returns the same collection over connections of its own, as many as a stall may need: the server is not to blame for a wait
/// for a connection.
async fn foreground(server: &Server) -> Collection<Document> {
    let mut options = ClientOptions::parse(server.uri()).await.expect("options");
    options.max_pool_size = Some(100);
    let c = server.collection().namespace();
    Client::with_options(options).expect("a client").database(&c.db).collection(&c.coll)
}
