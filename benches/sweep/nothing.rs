//! Sweeps that find nothing, as most that cron starts: next to a script that asks each collection for one expired document.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use mongodb::bson::{Bson, Document, doc};

use crate::Args;
use crate::runs::{median, most};
use crate::server::{Server, date};
use crate::sweeper;
use crate::table::{Goal, Table, against, figure};

/// Documents in each collection, all of which are to stay.
const DOCUMENTS: i64 = 20;

/// Commands of a run divided by its rules and namespaces.
const COMMANDS: Goal = Goal::AtMost(3.05);

/// Resident memory in megabytes of a run with 200 rules.
const MEMORY: Goal = Goal::AtMost(25.0);

pub(crate) async fn run(args: &Args) {
    let table = Table::begin(
        "nothing: seconds of wall time of a sweep that finds nothing to delete, and of one find with a limit of 1 in each collection",
        &[("policy", 24), ("finds", 7), ("sweeper", 7), ("/ finds", 7), ("commands / namespace", 20), ("peak MB", 15)],
    );
    for (name, namespaces, is_glob) in [("200 rules", 200, false), ("a glob, 2000 namespaces", 2000, true)] {
        let server = Server::start(args.ample_cache()).await;
        fill(&server, namespaces).await;
        let (mut finds, mut sweeps, mut commands, mut peaks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            finds.push(ask(&server, namespaces).await.as_secs_f64());
            let before = commands_of(&server).await;
            let ran = sweeper::sweep(&server, &policy(namespaces, is_glob), &[]).await;
            commands.push((commands_of(&server).await - before) as f64 / namespaces as f64);
            let complete = ran.report["rules"].as_array().into_iter().flatten().filter(|rule| rule["remainingCount"] == 0);
            assert_eq!(complete.count(), namespaces, "{}", ran.report);
            sweeps.push(ran.wall().as_secs_f64());
            peaks.extend(ran.usage.map(|usage| usage.megabytes()));
        }
        let (finds, sweeps, peak) = (median(finds), median(sweeps), most(peaks));
        table.row([
            name.to_owned(),
            figure(finds, 2),
            figure(sweeps, 2),
            figure(sweeps.zip(finds).map(|(ours, theirs)| ours / theirs), 1),
            against(median(commands), COMMANDS, 2),
            if is_glob { figure(peak, 1) } else { against(peak, MEMORY, 1) },
        ]);
    }
}

fn name(n: usize) -> String {
    format!("c{n}")
}

/// Returns the rules of the policy, between the braces of the first and the last.
fn policy(namespaces: usize, is_glob: bool) -> String {
    let rule = |collection: &str| format!("namespace: \"bench.{collection}\", field: at, expireAfterSeconds: 0");
    match is_glob {
        true => rule("c*"),
        false => (0..namespaces).map(|n| rule(&name(n))).collect::<Vec<_>>().join("}, {"),
    }
}

async fn fill(server: &Server, namespaces: usize) {
    let documents: Vec<Document> = (1..=DOCUMENTS).map(|n| doc! { "at": date(n), "status": "open" }).collect();
    let documents = &documents;
    stream::iter(0..namespaces)
        .for_each_concurrent(4, |n| async move {
            let index = doc! { "createIndexes": name(n), "indexes": [{ "key": { "at": 1 }, "name": "at" }] };
            server.database().run_command(index).await.expect("a collection with its index");
            server.database().collection::<Document>(&name(n)).insert_many(documents).await.expect("an insert");
        })
        .await;
    server.checkpoint().await;
}

/// Asks each collection for one expired document, one after another as scripts do.
async fn ask(server: &Server, namespaces: usize) -> Duration {
    let begun = Instant::now();
    for n in 0..namespaces {
        let collection = server.database().collection::<Document>(&name(n));
        let found = collection.find_one(doc! { "at": { "$lte": date(0) } }).await.expect("a find");
        assert_eq!(found, None);
    }
    begun.elapsed()
}

/// Returns the number of commands that the server has had, but for those by which drivers watch it.
async fn commands_of(server: &Server) -> i64 {
    let status = server.admin(doc! { "serverStatus": 1 }).await;
    let commands = status.get_document("metrics").and_then(|metrics| metrics.get_document("commands")).expect("counts");
    let counted = commands.iter().filter(|(name, _)| !["hello", "isMaster", "serverStatus"].contains(&name.as_str()));
    counted.filter_map(|(_, counts)| counts.as_document()?.get("total").and_then(Bson::as_i64)).sum()
}
