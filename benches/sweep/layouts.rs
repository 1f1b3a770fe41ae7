//! Wall time over the layouts of a collection: sweeper compared with one `deleteMany`, the TTL monitor and the script everyone
//! writes.

use crate::Args;
use crate::layout::{self, Layout};
use crate::peer::Peer;
use crate::runs::{Runs, rotated};
use crate::server::Server;
use crate::table::{Goal, MEMORY, Table, against, figure, maybe_against};

/// A layout, the peers that are measured on it, and sweeper's goals there.
struct Case {
    layout: Layout,
    /// Multiple of the requested number of documents that it has.
    times: i64,
    peers: &'static [Peer],
    /// Goal for the wall time divided by the wall time of one `deleteMany`.
    delete_many: Goal,
    /// Goal for the wall time divided by the wall time of the TTL monitor.
    ttl_monitor: Option<Goal>,
    /// Goal for the processor time as a percentage of the server's.
    client_cpu: Option<Goal>,
}

/// Wall time of the script divided by sweeper's.
const SCRIPT: Goal = Goal::AtLeast(10.0);

/// An index on random dates, one in each document.
const fn random(layout: Layout) -> Case {
    Case {
        layout,
        times: 1,
        peers: &[Peer::DeleteMany, Peer::TtlMonitor, Peer::Sweeper],
        delete_many: Goal::AtMost(0.8),
        ttl_monitor: Some(Goal::AtMost(0.5)),
        client_cpu: Some(Goal::AtMost(5.0)),
    }
}

/// The same with dates in the order of insertion, which is easy for the monitor as well.
const fn ordered(layout: Layout) -> Case {
    Case { ttl_monitor: None, ..random(layout) }
}

/// The layouts that only `deleteMany` handles as well, each with the allowed multiple of its wall time.
const fn other(layout: Layout, delete_many: f64) -> Case {
    Case {
        peers: &[Peer::DeleteMany, Peer::Sweeper],
        delete_many: Goal::AtMost(delete_many),
        ttl_monitor: None,
        client_cpu: None,
        ..random(layout)
    }
}

static CASES: [Case; 12] = [
    Case { peers: &[Peer::DeleteMany, Peer::TtlMonitor, Peer::Script, Peer::Sweeper], ..random(layout::SMALL) },
    ordered(layout::ORDERED),
    random(layout::FOUR_INDEXES),
    ordered(layout::ORDERED_FOUR_INDEXES),
    random(layout::LARGE),
    // Large enough that the start of the process does not dominate.
    Case { times: 10, ..random(layout::ONE_PERCENT) },
    random(layout::NINETY_PERCENT),
    other(layout::MULTIKEY, 1.2),
    other(layout::ONE_DATE, 1.2),
    other(layout::NO_INDEX, 1.2),
    other(layout::FEW_TTLS, 1.0),
    other(layout::MANY_TTLS, 1.0),
];

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let table = Table::begin(
        "layouts: seconds of wall time, and sweeper's as a ratio; client CPU is sweeper's processor time over the server's",
        &[
            ("layout", 24),
            ("documents", 9),
            ("deleteMany", 10),
            ("TTL monitor", 11),
            ("script", 7),
            ("sweeper", 7),
            ("/ deleteMany", 15),
            ("/ TTL monitor", 15),
            ("script / sweeper", 16),
            ("peak MB", 14),
            ("client CPU %", 13),
        ],
    );
    for case in CASES.iter().filter(|case| case.layout.name.contains(&args.case)) {
        let documents = args.documents * case.times;
        let mut runs = Runs::default();
        for round in 0..args.rounds {
            for peer in rotated(case.peers, round) {
                runs.push(peer, peer.measure(&server, &case.layout, documents).await);
            }
        }
        let seconds = |peer| figure(runs.seconds(peer), 2);
        table.row([
            case.layout.name.to_owned(),
            documents.to_string(),
            seconds(Peer::DeleteMany),
            seconds(Peer::TtlMonitor),
            seconds(Peer::Script),
            seconds(Peer::Sweeper),
            against(runs.ratio(Peer::DeleteMany), case.delete_many, 2),
            maybe_against(runs.ratio(Peer::TtlMonitor), case.ttl_monitor, 2),
            against(runs.ratio(Peer::Script).map(f64::recip), SCRIPT, 1),
            against(runs.peak(), MEMORY, 1),
            maybe_against(runs.client_cpu(), case.client_cpu, 1),
        ]);
    }
}
