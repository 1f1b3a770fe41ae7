//! Archiving and deleting: sweeper compared with a dump of the expired documents, written and fsynced, and one `deleteMany` after
//! it.
//!
//! The dump works as `mongodump --query` does for one collection: it writes the documents of one cursor, as they come, into one
//! file. Both compress with zstd at level 1.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use mongodb::bson::RawDocumentBuf;
use rand::RngExt;

use crate::Args;
use crate::deletion::{Deletion, Usage};
use crate::fill::{Expected, fill};
use crate::layout::{Layout, SMALL};
use crate::peer::delete_many;
use crate::runs::{median, most, rotated};
use crate::server::Server;
use crate::sweeper;
use crate::table::{Goal, Table, against, figure};

/// Wall time of the dump and the delete divided by sweeper's.
const SPEED: Goal = Goal::AtLeast(1.0);

const KILOBYTE: Layout = Layout {
    name: "random dates, 1 kB",
    document: |layout, n, of, random| {
        let mut document = (SMALL.document)(layout, n, of, random);
        // Half of it does not compress.
        let noise: String = (0..110).map(|_| format!("{:08x}", random.random::<u32>())).collect();
        document.insert("noise", noise);
        document
    },
    ..SMALL
};

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let mut dumps = Vec::new();
    let mut sweeps = Vec::new();
    for round in 0..args.rounds {
        for dumps_now in rotated(&[true, false], round) {
            let c = fill(&server, &KILOBYTE, args.archive_documents * 2).await;
            let expected = Expected::count(&KILOBYTE, &c).await;
            if dumps_now {
                dumps.push(dump(&server).await);
            } else {
                sweeps.push(sweep(&server, &expected).await);
            }
            expected.assert_left(&KILOBYTE, &c).await;
        }
    }
    let seconds = |runs: &[Deletion]| median(runs.iter().map(|run| run.wall().as_secs_f64()));
    let title = format!("archive: {} documents of 1 kB, of twice as many, are written out and deleted", args.archive_documents);
    let columns =
        [("", 20), ("dump and delete s", 17), ("sweeper s", 9), ("speed / dump", 15), ("peak MB", 7), ("client CPU %", 12)];
    let table = Table::begin(&title, &columns);
    let speed = seconds(&dumps).zip(seconds(&sweeps)).map(|(dump, sweep)| dump / sweep);
    let usage = |of: fn(&Usage) -> f64| sweeps.iter().filter_map(|run| run.usage.as_ref()).map(of).collect::<Vec<_>>();
    table.row([
        KILOBYTE.name.to_owned(),
        figure(seconds(&dumps), 2),
        figure(seconds(&sweeps), 2),
        against(speed, SPEED, 2),
        figure(most(usage(|usage| usage.megabytes())), 1),
        figure(median(usage(|usage| usage.client_percent())), 1),
    ]);
}

async fn dump(server: &Server) -> Deletion {
    let path = server.file("dump.bson.zst");
    let begun = Instant::now();
    let raw = server.database().collection::<RawDocumentBuf>("c");
    let mut cursor = raw.find(KILOBYTE.expired()).await.expect("a cursor");
    let mut out = zstd::Encoder::new(File::create(&path).expect("a file"), 1).expect("a compressor");
    while cursor.advance().await.expect("a document") {
        out.write_all(cursor.current().as_bytes()).expect("space");
    }
    out.finish().expect("space").sync_all().expect("an fsync");
    delete_many(&server.collection(), KILOBYTE.expired()).await;
    Deletion::since(begun)
}

async fn sweep(server: &Server, expected: &Expected) -> Deletion {
    let to = server.file("archives");
    std::fs::create_dir_all(&to).expect("a directory");
    let rule = format!("{}, archive: {{directory: {}}}", KILOBYTE.rule(), to.display());
    let deletion = sweeper::sweep(server, &rule, &[]).await;
    let report = &deletion.report;
    assert_eq!(report["rules"][0]["deletedCount"], report["rules"][0]["archivedCount"], "{report}");
    assert!(report["rules"][0]["deletedCount"].as_u64().is_some_and(|deleted| deleted > 0), "{report}");
    expected.assert_left(&KILOBYTE, &server.collection()).await;
    deletion
}
