//! The speed of deletes on a server with a fixed latency for each command. A majority in another region, a busy disk or a service
//! in front of the server has one.

use mongodb::bson::{Document, doc};

use crate::Args;
use crate::layout::SMALL;
use crate::peer::Peer;
use crate::runs::{Runs, median, rotated};
use crate::server::Server;
use crate::table::{Goal, MEMORY, Table, against, figure};

/// Milliseconds that each delete command takes longer.
const FIXED: [i32; 4] = [0, 100, 250, 400];

/// Sweeper's documents per second divided by the documents per second of the rule of niceDeleteMany.
const SPEED: Goal = Goal::AtLeast(1.0);

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let title = format!(
        "latency: documents deleted per second if each delete command takes this much longer; about {} of {} documents have expired",
        args.latency_documents,
        args.latency_documents * 2
    );
    let table = Table::begin(
        &title,
        &[
            ("milliseconds", 24),
            ("niceDeleteMany", 14),
            ("sweeper", 9),
            ("/ niceDeleteMany", 16),
            ("batches", 7),
            ("peak MB", 14),
        ],
    );
    for milliseconds in FIXED {
        fail_point(&server, milliseconds).await;
        let mut runs = Runs::default();
        let mut batches = Vec::new();
        for round in 0..args.rounds {
            for peer in rotated(&[Peer::NiceDeleteMany, Peer::Sweeper], round) {
                let deletion = peer.measure(&server, &SMALL, args.latency_documents * 2).await;
                batches.extend(deletion.report["rules"][0]["batches"].as_f64());
                runs.push(peer, deletion);
            }
        }
        let rate = |peer| runs.seconds(peer).map(|seconds| args.latency_documents as f64 / seconds);
        table.row([
            milliseconds.to_string(),
            figure(rate(Peer::NiceDeleteMany), 0),
            figure(rate(Peer::Sweeper), 0),
            against(runs.ratio(Peer::NiceDeleteMany).map(f64::recip), SPEED, 2),
            figure(median(batches), 0),
            against(runs.peak(), MEMORY, 1),
        ]);
    }
}

/// Makes each delete command take this much longer.
async fn fail_point(server: &Server, milliseconds: i32) {
    let (mode, data) = if milliseconds == 0 {
        ("off", Document::new())
    } else {
        ("alwaysOn", doc! { "failCommands": ["delete"], "blockConnection": true, "blockTimeMS": milliseconds })
    };
    server.admin(doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data }).await;
}
