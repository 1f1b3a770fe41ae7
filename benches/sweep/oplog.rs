//! `minOplogWindow` next to others who write: what the window of a full oplog is at its shortest during a sweep, and whether a
//! change stream that was opened before can be resumed.

mod consumer;
mod looks;
mod writer;

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::WriteConcern;
use tokio::sync::watch;

use crate::Args;
use crate::deletion::Deletion;
use crate::server::{Server, date};
use crate::sweeper;
use crate::table::{Goal, Table, against, figure};
use consumer::{Consumed, Consumer};
use looks::{Looks, look};
use writer::Writer;

/// Size of the oplog in megabytes, the least that a server takes.
const OPLOG: &str = "990";

/// Seconds between two checkpoints. Entries are only removed up to the last one: with the usual minute, as long as the whole
/// window here, the oplog would have twice its size at times.
const CHECKPOINTS: &str = "1";

/// Documents that a sweep may delete, and those that it must leave.
const EXPIRED: i64 = 150_000;
const LIVE: i64 = 100;

/// Bytes of an `_id`, which make a delete take about 1,000 in the oplog, and the deletes of a sweep a seventh of it.
const ID_BYTES: usize = 900;

/// Documents of one insert.
const BATCH: i64 = 5_000;

/// Guards as percentages of the window before the sweep, in an order in which those that hold sweeps up are apart.
const PERCENT: [u32; 10] = [90, 50, 80, 65, 95, 60, 85, 55, 75, 70];

/// The end of a sweep that waits for the oplog.
const MAX_DURATION: &str = "60s";

/// Runs in which the window fell below the guard.
const BELOW: Goal = Goal::AtMost(0.0);

/// Documents that went while the window was below the guard.
const DELETED_BELOW: Goal = Goal::AtMost(0.0);

/// Percentage of the change streams that could be resumed.
const RESUMED: Goal = Goal::AtLeast(100.0);

/// One sweep with a guard.
struct Run {
    percent: u32,
    /// Seconds that the window has to keep.
    guard: f64,
    refused: bool,
    deleted: i64,
    /// Seconds that the sweep took, and the part of them that it waited for the oplog.
    seconds: f64,
    waited: f64,
    looks: Looks,
    consumed: Consumed,
}

impl Run {
    /// Returns the seconds by which the window was longer than the guard at its shortest.
    fn margin(&self) -> f64 {
        self.looks.shortest() - self.guard
    }
}

pub(crate) async fn run(args: &Args) {
    let server = Server::start_with(args.ample_cache(), &["--oplogSize", OPLOG, "--syncdelay", CHECKPOINTS]).await;
    let writer = Writer::start(&server);
    let title = format!(
        "oplog: sweeps of {EXPIRED} documents with a minOplogWindow, beside a writer of {} MB a second, in an oplog of {OPLOG} MB; seconds",
        writer::MEGABYTES
    );
    let table = Table::begin(
        &title,
        &[
            ("guard %", 8),
            ("guard", 5),
            ("window before", 13),
            ("shortest", 8),
            ("margin", 14),
            ("deleted", 8),
            ("taken", 5),
            ("waited", 6),
            ("resumed", 7),
            ("MB/s of others", 14),
        ],
    );
    let mut runs = Vec::new();
    for rounds in (0..args.rounds).step_by(PERCENT.len()) {
        let percents = &PERCENT[..PERCENT.len().min((args.rounds - rounds) as usize)];
        // All at once: filling takes the whole oplog, and the first sweep begins in one that only the writer has written. The
        // others find the deletes of those before them as well.
        for percent in percents {
            fill(&collection(&server, *percent)).await;
        }
        looks::renewed(&server).await;
        for percent in percents {
            let run = measure(&server, &writer, *percent).await;
            show_run(&table, &run);
            runs.push(run);
        }
    }
    writer.stop().await;
    show(&runs);
}

fn collection(server: &Server, percent: u32) -> Collection<Document> {
    server.database().collection(&format!("c{percent}"))
}

/// Drops the collection and fills it again.
async fn fill(c: &Collection<Document>) {
    c.drop().await.expect("a drop");
    let padding = "x".repeat(ID_BYTES);
    for begin in (0..EXPIRED + LIVE).step_by(BATCH as usize) {
        let numbers = begin..(begin + BATCH).min(EXPIRED + LIVE);
        let batch = numbers.map(|n| doc! { "_id": format!("{n:08}{padding}"), "at": at(n) });
        c.insert_many(batch).write_concern(WriteConcern::nodes(1)).await.expect("documents go in");
    }
    let index = doc! { "key": { "at": 1 }, "name": "at" };
    let create = doc! { "createIndexes": c.name(), "indexes": [index] };
    c.client().database(&c.namespace().db).run_command(create).await.expect("an index");
}

fn at(n: i64) -> DateTime {
    date(if n < EXPIRED { n - EXPIRED } else { n })
}

async fn measure(server: &Server, writer: &Writer, percent: u32) -> Run {
    let c = collection(server, percent);
    let before = look(&c, writer).await;
    let guard = (before.window * f64::from(percent) / 100.0).floor();
    let (ended, over) = watch::channel(false);
    let consumer = Consumer::open(server).await;
    let sweep = async {
        let rule = format!("namespace: {}, field: at, expireAfterSeconds: 0, minOplogWindow: {guard}s", c.namespace());
        let deletion = sweeper::sweep_in_part(server, &rule, &["--max-duration", MAX_DURATION]).await;
        ended.send_replace(true);
        deletion
    };
    // A little less than the guard is for.
    let away = Duration::from_secs_f64((guard - 2.0).max(1.0));
    let (deletion, looks, consumed) =
        tokio::join!(sweep, Looks::until(before, &c, writer, over.clone()), consumer.consume(away, over));
    let Deletion { report, .. } = &deletion;
    let rule = &report["rules"][0];
    let deleted = rule["deletedCount"].as_i64().expect("a count");
    let refused = rule["status"] == "refused";
    assert!(!refused || (rule["reason"] == "minOplogWindow" && deleted == 0), "{report}");
    assert_left(&c, deleted).await;
    let waited = rule["pausedMs"]["oplog"].as_f64().unwrap_or(0.0) / 1000.0;
    Run { percent, guard, refused, deleted, seconds: deletion.wall().as_secs_f64(), waited, looks, consumed }
}

/// Asserts that as many documents are left as the sweep says, and all that have not expired.
async fn assert_left(c: &Collection<Document>, deleted: i64) {
    let live = c.count_documents(doc! { "at": { "$gt": date(0) } }).await.expect("a count");
    let all = c.count_documents(doc! {}).await.expect("a count");
    assert_eq!((live as i64, all as i64), (LIVE, LIVE + EXPIRED - deleted), "live documents, and all");
}

fn show_run(table: &Table, run: &Run) {
    let (slowest, fastest) = run.looks.others();
    table.row([
        run.percent.to_string(),
        figure(Some(run.guard), 0),
        figure(Some(run.looks.first()), 1),
        figure(Some(run.looks.shortest()), 1),
        against(Some(run.margin()), Goal::AtLeast(0.0), 1),
        if run.refused { "refused".to_owned() } else { run.deleted.to_string() },
        figure(Some(run.seconds), 1),
        figure(Some(run.waited), 1),
        format!("{}/{}", run.consumed.resumed, run.consumed.opened),
        format!("{slowest:.1}-{fastest:.1}"),
    ]);
}

/// Shows all runs of one guard together.
fn show(runs: &[Run]) {
    let table = Table::begin(
        "oplog: the same by guards",
        &[
            ("guard %", 8),
            ("runs", 4),
            ("window below", 14),
            ("deleted then", 14),
            ("least margin s", 14),
            ("refused", 7),
            ("cut short", 9),
            ("waited s", 8),
            ("streams resumed %", 17),
        ],
    );
    let mut percents = PERCENT.to_vec();
    percents.sort_unstable();
    for percent in percents {
        let runs: Vec<&Run> = runs.iter().filter(|run| run.percent == percent).collect();
        if runs.is_empty() {
            continue;
        }
        let count = |of: fn(&Run) -> bool| runs.iter().filter(|run| of(run)).count();
        let sum = |of: fn(&Run) -> f64| runs.iter().map(|run| of(run)).sum::<f64>();
        let resumed = sum(|run| f64::from(run.consumed.resumed)) / sum(|run| f64::from(run.consumed.opened));
        table.row([
            percent.to_string(),
            runs.len().to_string(),
            against(Some(count(|run| run.margin() < 0.0) as f64), BELOW, 0),
            against(Some(sum(|run| run.looks.deleted_below(run.guard) as f64)), DELETED_BELOW, 0),
            figure(runs.iter().map(|run| run.margin()).min_by(f64::total_cmp), 1),
            count(|run| run.refused).to_string(),
            count(|run| !run.refused && run.deleted < EXPIRED).to_string(),
            figure(Some(sum(|run| run.waited)), 1),
            against(Some(resumed * 100.0), RESUMED, 0),
        ]);
    }
}
