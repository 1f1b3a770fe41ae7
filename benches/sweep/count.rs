//! A dry run compared with one `countDocuments` on the index.

use std::time::Instant;

use mongodb::options::Hint;

use crate::Args;
use crate::fill::{Expected, fill};
use crate::layout::SMALL;
use crate::runs::{median, most, rotated};
use crate::server::Server;
use crate::sweeper;
use crate::table::{Goal, MEMORY, Table, against, figure};

/// Wall time of a dry run, the whole process, divided by the wall time of the count.
const DRY_RUN: Goal = Goal::AtMost(1.2);

#[derive(Clone, Copy)]
enum Way {
    CountDocuments,
    DryRun,
}

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let table = Table::begin(
        "count: milliseconds of wall time of `sweeper sweep --dry-run` compared with one countDocuments on the index",
        &[("documents", 24), ("expired", 9), ("countDocuments", 14), ("dry run", 7), ("/ countDocuments", 16), ("peak MB", 14)],
    );
    for documents in [args.documents, args.documents * 10] {
        // Neither changes anything, so the collection is filled once for all rounds.
        let c = fill(&server, &SMALL, documents).await;
        let expected = Expected::count(&SMALL, &c).await;
        let (mut counts, mut dry_runs, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..args.rounds {
            for way in rotated(&[Way::CountDocuments, Way::DryRun], round) {
                match way {
                    Way::CountDocuments => {
                        let begun = Instant::now();
                        let count = c.count_documents(SMALL.expired()).hint(Hint::Name("at".into())).await.expect("a count");
                        counts.push(begun.elapsed().as_secs_f64() * 1000.0);
                        assert_eq!(count, expected.expired);
                    }
                    Way::DryRun => {
                        let ran = sweeper::sweep(&server, &SMALL.rule(), &["--dry-run"]).await;
                        dry_runs.push(ran.wall().as_secs_f64() * 1000.0);
                        peaks.extend(ran.usage.map(|usage| usage.megabytes()));
                        assert_eq!(ran.report["rules"][0]["expiredCount"], expected.expired, "{}", ran.report);
                    }
                }
            }
        }
        let (count, dry_run) = (median(counts), median(dry_runs));
        table.row([
            documents.to_string(),
            expected.expired.to_string(),
            figure(count, 0),
            figure(dry_run, 0),
            against(dry_run.zip(count).map(|(ours, theirs)| ours / theirs), DRY_RUN, 2),
            against(most(peaks), MEMORY, 1),
        ]);
    }
}
