//! The cost to other clients: the latency of a client that works on live documents of the collection while the expired ones are
//! deleted.

use crate::Args;
use crate::deletion::Usage;
use crate::felt::{Felt, feel};
use crate::fill::fill;
use crate::layout::NUMBERED;
use crate::peer::Peer;
use crate::runs::{median, most, rotated};
use crate::server::Server;
use crate::table::{Goal, MEMORY, Table, against, figure, maybe_against};

/// Sweeper's p99 at the TTL monitor's rate, divided by the p99 of the TTL monitor.
const BESIDE_MONITOR: Goal = Goal::AtMost(1.0);

/// Sweeper's documents per second divided by the documents per second of the TTL monitor.
const RATE: Goal = Goal::AtLeast(1.0);

/// The p99 of sweeper at half the TTL monitor's rate, divided by the p99 of the idle server.
const BESIDE_IDLE: Goal = Goal::AtMost(1.3);

/// The percentiles that are shown; the last is the longest wait.
const SHARES: [f64; 4] = [0.5, 0.95, 0.99, 1.0];

/// The work that goes on during the foreground.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    Peer(Peer),
    /// Sweeper at this multiple of the rate that the TTL monitor had.
    AtRate(f64),
}

/// Kinds of work, with names. In the first round the monitor comes before the sweeper whose rate is derived from the monitor's.
const BESIDE: [(&str, Beside); 6] = [
    ("nothing", Beside::Nothing),
    ("TTL monitor", Beside::Peer(Peer::TtlMonitor)),
    ("deleteMany", Beside::Peer(Peer::DeleteMany)),
    ("sweeper", Beside::Peer(Peer::Sweeper)),
    ("sweeper, the same rate", Beside::AtRate(1.0)),
    ("sweeper, half the rate", Beside::AtRate(0.5)),
];

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let mut felt: [Vec<Felt>; BESIDE.len()] = Default::default();
    let mut monitor_rate = None;
    for round in 0..args.rounds {
        for n in rotated(&[0, 1, 2, 3, 4, 5], round) {
            let peer = match BESIDE[n].1 {
                Beside::Nothing => None,
                Beside::Peer(peer) => Some(peer),
                Beside::AtRate(times) => {
                    let rate: f64 = monitor_rate.expect("the monitor's rate");
                    Some(Peer::PacedSweeper((rate * times).clamp(1.0, 1e9) as u32))
                }
            };
            let documents = args.foreground_documents * 2;
            fill(&server, &NUMBERED, documents).await;
            let one = feel(&server, &NUMBERED, documents, args.foreground_rate, peer).await;
            if peer == Some(Peer::TtlMonitor) {
                monitor_rate = monitor_rate.or(one.rate());
            }
            felt[n].push(one);
        }
    }
    show(args, &felt);
}

fn show(args: &Args, felt: &[Vec<Felt>; BESIDE.len()]) {
    let title = format!(
        "foreground: latency in milliseconds of {} reads and updates per second, while about {} of {} documents are deleted",
        args.foreground_rate,
        args.foreground_documents,
        args.foreground_documents * 2
    );
    let table = Table::begin(
        &title,
        &[
            ("meanwhile", 24),
            ("deleted/s", 9),
            ("/ TTL monitor", 15),
            ("p50", 7),
            ("p95", 7),
            ("p99", 7),
            ("max", 7),
            ("p99 / TTL monitor", 17),
            ("p99 / nothing", 15),
            ("peak MB", 14),
            ("client CPU %", 12),
        ],
    );
    let rate = |runs: &[Felt]| median(runs.iter().filter_map(Felt::rate));
    let latency = |runs: &[Felt], n: usize| median(runs.iter().filter_map(|one| one.latency(SHARES[n])));
    let ratio = |value: Option<f64>, base: Option<f64>| value.zip(base).map(|(value, base)| value / base);
    let usage = |runs: &[Felt], of: fn(&Usage) -> f64| {
        runs.iter().filter_map(|one| one.deletion.as_ref()?.usage.as_ref()).map(of).collect::<Vec<_>>()
    };
    let [nothing, monitor, ..] = felt;
    for ((name, beside), runs) in BESIDE.iter().zip(felt) {
        let sweeper = *beside == Beside::Peer(Peer::Sweeper);
        let same_rate = *beside == Beside::AtRate(1.0);
        let half_rate = *beside == Beside::AtRate(0.5);
        let p99 = latency(runs, 2);
        table.row([
            (*name).to_owned(),
            figure(rate(runs), 0),
            maybe_against(ratio(rate(runs), rate(monitor)), sweeper.then_some(RATE), 2),
            figure(latency(runs, 0), 2),
            figure(latency(runs, 1), 2),
            figure(p99, 2),
            figure(latency(runs, 3), 1),
            maybe_against(ratio(p99, latency(monitor, 2)), same_rate.then_some(BESIDE_MONITOR), 2),
            maybe_against(ratio(p99, latency(nothing, 2)), half_rate.then_some(BESIDE_IDLE), 2),
            against(most(usage(runs, Usage::megabytes)), MEMORY, 1),
            figure(median(usage(runs, Usage::client_percent)), 1),
        ]);
    }
}
