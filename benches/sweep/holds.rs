//! Sweeps with 100,000 holds, of other keys than the keys of the documents, compared with the same sweeps without.

use mongodb::bson::{Document, doc};
use rand::RngExt;

use crate::Args;
use crate::deletion::{Deletion, Usage};
use crate::fill::{Expected, fill};
use crate::layout::{Layout, SMALL};
use crate::runs::{median, most, rotated};
use crate::server::Server;
use crate::sweeper;
use crate::table::{Goal, Table, against, figure};

const HOLDS: i64 = 100_000;

/// Wall time with the holds divided by that without.
const TIME: Goal = Goal::AtMost(1.3);

/// Megabytes.
const MEMORY: Goal = Goal::AtMost(60.0);

/// Keys of the documents, in no order.
const TENANTS: Layout = Layout {
    name: "random dates, 50,000 keys",
    document: |layout, n, of, random| {
        let mut document = (SMALL.document)(layout, n, of, random);
        document.insert("tenantId", key("tenant", random.random_range(0..50_000)));
        document
    },
    ..SMALL
};

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let holds = server.database().collection::<Document>("holds");
    // In the order in which they come, not in the order of their keys.
    let holding = (0..HOLDS).map(|n| doc! { "tenantId": key("held", n * 77_777 % HOLDS), "active": true });
    holds.insert_many(holding).await.expect("holds");
    let title = format!("holds: {HOLDS} keys are held; {} documents, half of them have expired", args.documents);
    let columns = [("", 26), ("without s", 9), ("with s", 9), ("time with / without", 20), ("peak MB", 14), ("batches", 8)];
    let table = Table::begin(&title, &columns);
    for (name, batches) in [(TENANTS.name, ""), ("the same, batchSize 2000", ", batchSize: 2000")] {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for round in 0..args.rounds {
            for is_held in rotated(&[false, true], round) {
                let c = fill(&server, &TENANTS, args.documents).await;
                let expected = Expected::count(&TENANTS, &c).await;
                let keys = if is_held { ", holds: {collection: bench.holds, key: tenantId, filter: {active: true}}" } else { "" };
                let deletion = sweeper::sweep(&server, &format!("{}{keys}{batches}", TENANTS.rule()), &[]).await;
                expected.assert_left(&TENANTS, &c).await;
                if is_held { with.push(deletion) } else { without.push(deletion) }
            }
        }
        let seconds = |runs: &[Deletion]| median(runs.iter().map(|run| run.wall().as_secs_f64()));
        let times = seconds(&with).zip(seconds(&without)).map(|(with, without)| with / without);
        let peak = most(with.iter().filter_map(|run| run.usage.as_ref()).map(Usage::megabytes));
        let batches = median(with.iter().filter_map(|run| run.report["rules"][0]["batches"].as_f64()));
        table.row([
            name.to_owned(),
            figure(seconds(&without), 2),
            figure(seconds(&with), 2),
            against(times, TIME, 2),
            against(peak, MEMORY, 1),
            figure(batches, 0),
        ]);
    }
}

fn key(kind: &str, n: i64) -> String {
    format!("{kind}-{n:010}")
}
