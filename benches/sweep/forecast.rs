//! Estimates of dry runs compared with the sweeps after them: the bytes that a sweep adds to the oplog, and its time.

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, Timestamp, Uuid, doc};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::Args;
use crate::fill::{Expected, fill};
use crate::layout::{Layout, SMALL};
use crate::runs::median;
use crate::server::Server;
use crate::storage::number;
use crate::sweeper;
use crate::table::{Goal, Table, figure, maybe_against};

/// Percentage by which the bytes of the oplog may differ from the estimate.
const BYTES: Goal = Goal::AtMost(5.0);

/// Percentage by which the time at a given rate may differ from the estimate.
const TIME: Goal = Goal::AtMost(25.0);

/// Seconds that a sweep takes at the rate that it is given.
const SECONDS_AT_RATE: i64 = 10;

/// Layouts with one type of `_id` each, named as the type.
const LAYOUTS: [Layout; 4] = [
    Layout { name: "int", document: |_, n, of, random| with_id(Bson::Int32(n as i32), (n, of), random), ..SMALL },
    Layout { name: "ObjectId", document: |_, n, of, random| with_id(ObjectId::new().into(), (n, of), random), ..SMALL },
    Layout {
        name: "UUID",
        document: |_, n, of, random| {
            let id = Uuid::from_bytes(random.random());
            with_id(id.into(), (n, of), random)
        },
        ..SMALL
    },
    Layout {
        name: "36 characters",
        document: |_, n, of, random| {
            let id = Uuid::from_bytes(random.random());
            with_id(id.to_string().into(), (n, of), random)
        },
        ..SMALL
    },
];

/// The estimate of one sweep, and its result.
struct Run {
    /// Bytes in the oplog per deleted document.
    bytes: Compared,
    seconds: Compared,
    /// Source of the expected speed.
    source: String,
}

struct Compared {
    expected: f64,
    measured: f64,
}

impl Compared {
    /// Returns the difference as a percentage of what was measured.
    fn difference(&self) -> f64 {
        100.0 * (self.expected - self.measured).abs() / self.measured
    }
}

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let title = format!(
        "forecast: bytes in the oplog per document and seconds of a sweep of about {} of {} documents, as a dry run expected them and as they were",
        args.documents / 2,
        args.documents
    );
    let table = Table::begin(
        &title,
        &[
            ("_id", 24),
            ("documents/s", 11),
            ("bytes expected", 14),
            ("written", 7),
            ("difference %", 14),
            ("seconds expected", 16),
            ("taken", 7),
            ("difference %", 15),
            ("speed by", 10),
        ],
    );
    let rate = (args.documents / 2 / SECONDS_AT_RATE).max(1);
    for layout in LAYOUTS {
        for rate in [Some(rate), None] {
            let mut runs = Vec::new();
            for _ in 0..args.rounds {
                runs.push(measure(&server, &layout, args.documents, rate).await);
            }
            let of = |value: fn(&Run) -> f64| median(runs.iter().map(value));
            table.row([
                layout.name.to_owned(),
                rate.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string()),
                figure(of(|run| run.bytes.expected), 1),
                figure(of(|run| run.bytes.measured), 1),
                maybe_against(of(|run| run.bytes.difference()), Some(BYTES), 1),
                figure(of(|run| run.seconds.expected), 1),
                figure(of(|run| run.seconds.measured), 1),
                maybe_against(of(|run| run.seconds.difference()), rate.map(|_| TIME), 1),
                runs[0].source.clone(),
            ]);
        }
    }
}

async fn measure(server: &Server, layout: &Layout, documents: i64, rate: Option<i64>) -> Run {
    let c = fill(server, layout, documents).await;
    let expected = Expected::count(layout, &c).await;
    let rate = rate.map_or_else(String::new, |rate| format!(", rate: {rate}"));
    let rule = format!("{}{rate}", layout.rule());
    let dry_run = sweeper::sweep(server, &rule, &["--dry-run"]).await;
    let estimate = &dry_run.report["rules"][0]["estimate"];
    let estimated = |name: &str| estimate[name].as_f64().unwrap_or_else(|| panic!("no {name}: {}", dry_run.report));
    let oplog = server.client.database("local").collection("oplog.rs");
    let since = last_entry(&oplog).await;
    let swept = sweeper::sweep(server, &rule, &[]).await;
    assert_eq!(swept.report["rules"][0]["deletedCount"], expected.expired, "{}", swept.report);
    expected.assert_left(layout, &c).await;
    let expired = expected.expired as f64;
    Run {
        bytes: Compared { expected: estimated("oplogBytes") / expired, measured: written_since(&oplog, since).await / expired },
        seconds: Compared { expected: estimated("seconds"), measured: swept.wall().as_secs_f64() },
        source: estimate["speedSource"].as_str().unwrap_or("-").to_owned(),
    }
}

async fn last_entry(oplog: &Collection<Document>) -> Timestamp {
    let last = oplog.find_one(doc! {}).sort(doc! { "$natural": -1 }).await.expect("a query").expect("an entry");
    last.get_timestamp("ts").expect("its time")
}

/// Returns the bytes of all entries after this one, without those that only show that the primary is there: nothing else writes
/// meanwhile.
async fn written_since(oplog: &Collection<Document>, since: Timestamp) -> f64 {
    let stages = [
        doc! { "$match": { "ts": { "$gt": since }, "op": { "$ne": "n" } } },
        doc! { "$group": { "_id": null, "bytes": { "$sum": { "$bsonSize": "$$ROOT" } } } },
    ];
    let sums: Vec<Document> = oplog.aggregate(stages).await.expect("a cursor").try_collect().await.expect("a sum");
    number(&sums[0], &["bytes"]).expect("a sum")
}

fn with_id(id: Bson, (n, of): (i64, i64), random: &mut StdRng) -> Document {
    let mut document = doc! { "_id": id };
    document.extend((SMALL.document)(&SMALL, n, of, random));
    document
}
