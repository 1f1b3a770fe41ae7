//! The time that a sweep expects to need yet, once it has run for a minute, compared with the time that it then took.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::Args;
use crate::fill::{Expected, grow};
use crate::layout::{Layout, SMALL};
use crate::server::Server;
use crate::sweeper;
use crate::table::{Goal, Table, figure, maybe_against};

/// Percentage by which the time left may differ from what is expected after the first minute.
const TIME: Goal = Goal::AtMost(25.0);

/// Seconds of a sweep after which its expectation counts.
const FIRST: f64 = 60.0;

/// The number of documents as a multiple of the number in the other sections.
const TIMES: i64 = 16;

/// A line of progress.
struct Line {
    /// Seconds since the sweep began.
    at: f64,
    /// Seconds that it expects to need yet.
    left: f64,
}

pub(crate) async fn run(args: &Args) {
    let documents = args.documents * TIMES;
    let server = Server::start(args.small_cache()).await;
    let title = format!(
        "forecast: seconds that a sweep of half of {documents} documents with random dates expects to need yet, {} MB of cache; one run",
        args.small_cache()
    );
    let table = Table::begin(
        &title,
        &[
            ("order", 24),
            ("seconds", 7),
            ("asked at", 8),
            ("left expected", 13),
            ("left", 7),
            ("difference %", 15),
            ("most later %", 12),
        ],
    );
    // Each document costs a page that is read and one that is written, so that the sweep takes minutes.
    let order = "oldestFirst";
    let (seconds, lines) = sweep(&server, &SMALL, documents, order).await;
    let difference = |line: &Line| 100.0 * (line.left - (seconds - line.at)).abs() / (seconds - line.at);
    let first = lines.iter().find(|line| line.at >= FIRST);
    // Of the last seconds a percentage says nothing.
    let later = lines.iter().filter(|line| line.at >= FIRST && seconds - line.at >= 10.0).map(difference);
    table.row([
        order.to_owned(),
        figure(Some(seconds), 1),
        figure(first.map(|line| line.at), 1),
        figure(first.map(|line| line.left), 1),
        figure(first.map(|line| seconds - line.at), 1),
        maybe_against(first.map(difference), Some(TIME), 1),
        figure(later.max_by(f64::total_cmp), 1),
    ]);
}

/// Sweeps, and returns the seconds from the beginning of the rule to its end, and the lines between.
async fn sweep(server: &Server, layout: &Layout, documents: i64, order: &str) -> (f64, Vec<Line>) {
    grow(server, layout, documents).await;
    let c = server.collection();
    let expected = Expected::count(layout, &c).await;
    // The guard counts, without which nothing is known of the end.
    let rule = format!("{}, order: {order}, maxDeletePercent: 99", layout.rule());
    let swept = sweeper::sweep(server, &rule, &["--log-format", "json", "--progress", "always"]).await;
    expected.assert_left(layout, &c).await;
    let log: Vec<Value> = swept.log.iter().map(|line| serde_json::from_str(line).expect("an object in each line")).collect();
    let begun = log.iter().find(|line| line["event"] == "ruleBegins").map(instant).expect("the beginning of the rule");
    let since = |line: &Value| (instant(line) - begun).as_seconds_f64();
    let ended = log.iter().find(|line| line["event"] == "ruleEnds").map(since).expect("the end of the rule");
    let lines = log.iter().filter_map(|line| Some(Line { at: since(line), left: line["remainingSeconds"].as_f64()? }));
    (ended, lines.collect())
}

fn instant(line: &Value) -> DateTime<Utc> {
    line["timestamp"].as_str().and_then(|text| text.parse().ok()).expect("a time in each line")
}
