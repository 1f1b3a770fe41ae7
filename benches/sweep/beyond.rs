//! Wall time and written pages in collections that the cache does not hold: each order of the deletes compared with one
//! `deleteMany` along the index, one in the order of the storage, and the TTL monitor.

use crate::Args;
use crate::deletion::Deletion;
use crate::fill::{Expected, grow};
use crate::layout::Layout;
use crate::peer::Peer;
use crate::runs::{median, rotated};
use crate::server::Server;
use crate::spread::LAYOUTS;
use crate::storage::Work;
use crate::table::{Goal, Table, figure, maybe_against};

const PEERS: [(&str, Peer); 6] = [
    ("deleteMany", Peer::DeleteMany),
    ("deleteMany $natural", Peer::NaturalDeleteMany),
    ("TTL monitor", Peer::TtlMonitor),
    ("sweeper auto", Peer::SweeperWith("order: auto")),
    ("sweeper oldestFirst", Peer::SweeperWith("order: oldestFirst")),
    ("sweeper storage", Peer::SweeperWith("order: storage")),
];

/// Positions in [`PEERS`].
const DELETE_MANY: usize = 0;
const NATURAL: usize = 1;
const TTL_MONITOR: usize = 2;
const AUTO: usize = 3;
const ORDERS: [usize; 2] = [4, 5];

/// Wall time of `auto` divided by the wall time of the better of the two orders.
const BETTER_ORDER: Goal = Goal::AtMost(1.1);

/// Percentage of expired documents from which on the other goals apply.
const WORTHWHILE: u8 = 20;

/// Goals of the time of `auto`.
#[derive(Default)]
struct Goals {
    /// Divided by the time of one `deleteMany` along the index.
    along_index: Option<Goal>,
    /// Divided by the time of one `deleteMany` in the order of the storage: what the server itself needs.
    natural: Option<Goal>,
}

impl Goals {
    fn of(layout: &Layout, percent: u8) -> Self {
        match layout.name {
            "random" if percent >= WORTHWHILE => Self { along_index: None, natural: Some(Goal::AtMost(1.1)) },
            "UUID _ids" if percent >= WORTHWHILE => Self { along_index: Some(Goal::AtMost(0.9)), natural: None },
            _ => Self::default(),
        }
    }
}

/// The figures of one run.
struct Run {
    seconds: f64,
    /// Modified pages that were evicted.
    evicted: f64,
    /// MiB written per 1000 deleted documents, by the checkpoint after the deletes as well.
    written: f64,
    /// The order that the report of sweeper names.
    order: String,
}

impl Run {
    fn new(deletion: &Deletion, work: &Work, expired: u64) -> Self {
        Self {
            seconds: deletion.wall().as_secs_f64(),
            evicted: work.modified_evicted,
            written: work.written_mib() * 1000.0 / expired as f64,
            order: deletion.report["rules"][0]["order"].as_str().unwrap_or("-").to_owned(),
        }
    }
}

pub(crate) async fn run(args: &Args) {
    let mut server = Server::start(args.small_cache()).await;
    let title = format!(
        "beyond-cache: {} documents, {} MB of cache; seconds of wall time, modified pages evicted, MiB written per 1000 deleted documents",
        args.documents,
        args.small_cache()
    );
    let table = Table::begin(
        &title,
        &[
            ("layout", 42),
            ("", 19),
            ("seconds", 7),
            ("/ deleteMany", 15),
            ("/ $natural", 15),
            ("/ TTL monitor", 13),
            ("/ better order", 15),
            ("evicted", 7),
            ("/ deleteMany", 12),
            ("/ TTL monitor", 13),
            ("MiB/1000", 8),
            ("order", 11),
        ],
    );
    for (name, layout, goals) in cases(args) {
        let runs = measure(&mut server, &layout, args).await;
        show(&table, &name, &goals, &runs);
    }
}

/// Returns the chosen layouts with their names and goals.
fn cases(args: &Args) -> Vec<(String, Layout, Goals)> {
    let mut cases = Vec::new();
    for layout in LAYOUTS {
        for &bytes in &args.bytes {
            for &indexes in &args.indexes {
                for &percent in &args.percent {
                    let name = format!("{}, {bytes} bytes, indexes: {indexes}, {percent} %", layout.name);
                    cases.push((name, layout.sized(bytes as usize, indexes, percent), Goals::of(&layout, percent)));
                }
            }
        }
    }
    cases.retain(|(name, ..)| name.contains(&args.case));
    cases
}

async fn measure(server: &mut Server, layout: &Layout, args: &Args) -> [Vec<Run>; PEERS.len()] {
    grow(server, layout, args.documents).await;
    let filled = server.keep().await;
    let mut runs: [Vec<Run>; PEERS.len()] = Default::default();
    for round in 0..args.rounds {
        for n in rotated(&[0, 1, 2, 3, 4, 5], round) {
            server.return_to(&filled).await;
            let c = server.collection();
            let expected = Expected::count(layout, &c).await;
            let work = async {
                let deletion = PEERS[n].1.delete(server, layout, &expected).await;
                // Changed pages that are still in the cache count as written.
                server.checkpoint().await;
                deletion
            };
            let (deletion, work) = server.working(work).await;
            expected.assert_left(layout, &c).await;
            runs[n].push(Run::new(&deletion, &work, expected.expired));
        }
    }
    runs
}

fn show(table: &Table, layout: &str, goals: &Goals, runs: &[Vec<Run>; PEERS.len()]) {
    let of = |n: usize, figure: fn(&Run) -> f64| median(runs[n].iter().map(figure));
    let ratio = |n: usize, base: usize, figure: fn(&Run) -> f64| {
        of(n, figure).zip(of(base, figure)).filter(|(_, theirs)| n != base && *theirs > 0.0).map(|(ours, theirs)| ours / theirs)
    };
    let seconds: fn(&Run) -> f64 = |run| run.seconds;
    let evicted: fn(&Run) -> f64 = |run| run.evicted;
    let better =
        ORDERS.into_iter().min_by(|a, b| of(*a, seconds).partial_cmp(&of(*b, seconds)).expect("times")).expect("two orders");
    for (n, (peer, _)) in PEERS.iter().enumerate() {
        let auto = n == AUTO;
        let orders: Vec<&str> = runs[n].iter().map(|run| run.order.as_str()).collect();
        let same = orders.windows(2).all(|pair| pair[0] == pair[1]);
        table.row([
            layout.to_owned(),
            (*peer).to_owned(),
            figure(of(n, seconds), 2),
            maybe_against(ratio(n, DELETE_MANY, seconds), goals.along_index.filter(|_| auto), 2),
            maybe_against(ratio(n, NATURAL, seconds), goals.natural.filter(|_| auto), 2),
            figure(ratio(n, TTL_MONITOR, seconds), 2),
            maybe_against(ratio(n, better, seconds), auto.then_some(BETTER_ORDER), 2),
            figure(of(n, evicted), 0),
            figure(ratio(n, DELETE_MANY, evicted), 2),
            figure(ratio(n, TTL_MONITOR, evicted), 2),
            figure(of(n, |run| run.written), 2),
            if same { orders[0].to_owned() } else { "differs".to_owned() },
        ]);
    }
}
