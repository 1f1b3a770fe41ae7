//! Wall time over the size of the collection.

use crate::Args;
use crate::layout::TINY;
use crate::peer::Peer;
use crate::runs::{Runs, rotated};
use crate::server::Server;
use crate::table::{Goal, MEMORY, Table, against, figure};

/// Sweeper's wall time divided by its wall time on a quarter of the documents.
const FOUR_TIMES: Goal = Goal::AtMost(4.4);

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let table = Table::begin(
        "scale: seconds of wall time on random dates, and each as a ratio to that on a quarter of the documents",
        &[("documents", 24), ("deleteMany", 10), ("/ quarter", 9), ("sweeper", 7), ("/ quarter", 15), ("peak MB", 14)],
    );
    let mut quarter = [None; 2];
    for documents in [64, 16, 4, 1].map(|part| args.largest / part) {
        let mut runs = Runs::default();
        for round in 0..args.rounds {
            for peer in rotated(&[Peer::DeleteMany, Peer::Sweeper], round) {
                runs.push(peer, peer.measure(&server, &TINY, documents).await);
            }
        }
        // Part of the growth with size is the server's; `deleteMany` shows that part.
        let seconds = [runs.seconds(Peer::DeleteMany), runs.seconds(Peer::Sweeper)];
        let ratio = |n: usize| seconds[n].zip(quarter[n]).map(|(whole, quarter): (f64, f64)| whole / quarter);
        table.row([
            documents.to_string(),
            figure(seconds[0], 2),
            figure(ratio(0), 2),
            figure(seconds[1], 2),
            against(ratio(1), FOUR_TIMES, 2),
            against(runs.peak(), MEMORY, 1),
        ]);
        quarter = seconds;
    }
}
