//! The cost to other clients beyond the cache: the latency of a client that works on live documents of a collection that the
//! cache does not hold, while the expired ones are deleted.

use mongodb::bson::doc;

use crate::Args;
use crate::felt::{Felt, feel};
use crate::fill::grow;
use crate::layout::{Layout, NUMBERED};
use crate::peer::Peer;
use crate::runs::{median, rotated};
use crate::server::Server;
use crate::spread::noise;
use crate::table::{Goal, Table, figure, maybe_against};

/// The work that goes on during the foreground.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    Peer(Peer),
    /// Sweeper at twice the rate that niceDeleteMany had: faster, at what p99?
    TwiceNice,
}

const BESIDE: [(&str, Beside); 7] = [
    ("nothing", Beside::Nothing),
    ("TTL monitor", Beside::Peer(Peer::TtlMonitor)),
    ("deleteMany", Beside::Peer(Peer::DeleteMany)),
    ("niceDeleteMany", Beside::Peer(Peer::NiceDeleteMany)),
    ("sweeper, maxDirty: 100", Beside::Peer(Peer::SweeperWith("maxDirty: 100"))),
    ("sweeper", Beside::Peer(Peer::Sweeper)),
    ("sweeper, twice nice's rate", Beside::TwiceNice),
];

/// Positions in [`BESIDE`].
const NOTHING: usize = 0;
const NICE: usize = 3;
const UNGATED: usize = 4;
const SWEEPER: usize = 5;
const TWICE_NICE: usize = 6;

/// Sweeper's p99 divided by the p99 of the foreground by itself.
const BESIDE_NOTHING: Goal = Goal::AtMost(1.5);

/// Pages that clients have to evict.
const EVICTED: Goal = Goal::AtMost(0.0);

/// Sweeper's time divided by its time without a look at the cache.
const PATIENCE: Goal = Goal::AtMost(3.0);

/// Sweeper's time divided by the time of the rule of niceDeleteMany.
const BESIDE_NICE: Goal = Goal::AtMost(1.0);

/// The p99 of sweeper at twice the rate of niceDeleteMany's rule, divided by the p99 of the rule.
const EQUAL_P99: Goal = Goal::AtMost(1.0);

/// The percentiles that are shown.
const SHARES: [f64; 4] = [0.5, 0.95, 0.99, 0.999];

/// Documents of 1 kB that do not compress.
const KILOBYTE: Layout = Layout {
    name: "numbered, 1 kB",
    document: |layout, n, of, random| {
        let mut document = (NUMBERED.document)(&NUMBERED, n, of, random);
        document.extend(doc! { "noise": noise(layout.bytes, random) });
        document
    },
    bytes: 750,
    ..NUMBERED
};

pub(crate) async fn run(args: &Args) {
    let documents = args.pressure_documents * 2;
    let mut server = Server::start(args.small_cache()).await;
    grow(&server, &KILOBYTE, documents).await;
    let filled = server.keep().await;
    let mut felt: [Vec<Felt>; BESIDE.len()] = Default::default();
    for round in 0..args.rounds {
        // In the first round the rule comes before the sweeper whose rate is derived from the rule's.
        for n in rotated(&[0, 1, 2, 3, 4, 5, 6], round) {
            let peer = match BESIDE[n].1 {
                Beside::Nothing => None,
                Beside::Peer(peer) => Some(peer),
                Beside::TwiceNice => {
                    let rate = felt[NICE].first().and_then(Felt::rate).expect("the rule's rate");
                    Some(Peer::PacedSweeper((rate * 2.0).clamp(1.0, 1e9) as u32))
                }
            };
            server.return_to(&filled).await;
            felt[n].push(feel(&server, &KILOBYTE, documents, args.foreground_rate, peer).await);
        }
    }
    show(args, &felt);
}

fn show(args: &Args, felt: &[Vec<Felt>; BESIDE.len()]) {
    let title = format!(
        "pressure: latency in milliseconds of {} reads and updates per second, {} MB of cache, while {} of {} documents of 1 kB are deleted",
        args.foreground_rate,
        args.small_cache(),
        args.pressure_documents,
        args.pressure_documents * 2
    );
    let table = Table::begin(
        &title,
        &[
            ("meanwhile", 26),
            ("seconds", 7),
            ("/ maxDirty: 100", 15),
            ("/ niceDeleteMany", 16),
            ("p50", 7),
            ("p95", 7),
            ("p99", 7),
            ("p99.9", 7),
            ("p99 / nothing", 15),
            ("p99 / nice", 15),
            ("evicted by clients", 18),
            ("paused s", 8),
        ],
    );
    let seconds = |n: usize| median(felt[n].iter().filter_map(Felt::seconds));
    let latency = |n: usize, share: f64| median(felt[n].iter().filter_map(|one| one.latency(share)));
    let ratio = |value: Option<f64>, base: Option<f64>| value.zip(base).map(|(value, base)| value / base);
    for (n, (name, _)) in BESIDE.iter().enumerate() {
        let sweeper = n == SWEEPER;
        let [p50, p95, p99, p999] = SHARES.map(|share| latency(n, share));
        let paused = |one: &Felt| Some(one.deletion.as_ref()?.report["rules"][0]["pausedMs"]["pressure"].as_f64()? / 1000.0);
        table.row([
            (*name).to_owned(),
            figure(seconds(n), 1),
            maybe_against(ratio(seconds(n), seconds(UNGATED)), sweeper.then_some(PATIENCE), 2),
            maybe_against(ratio(seconds(n), seconds(NICE)), (n >= SWEEPER).then_some(BESIDE_NICE), 2),
            figure(p50, 2),
            figure(p95, 2),
            figure(p99, 2),
            figure(p999, 1),
            maybe_against(ratio(p99, latency(NOTHING, 0.99)), sweeper.then_some(BESIDE_NOTHING), 2),
            maybe_against(ratio(p99, latency(NICE, 0.99)), (n == TWICE_NICE).then_some(EQUAL_P99), 2),
            maybe_against(median(felt[n].iter().map(|one| one.work.evicted_by_clients)), sweeper.then_some(EVICTED), 0),
            figure(median(felt[n].iter().filter_map(paused)), 1),
        ]);
    }
}
