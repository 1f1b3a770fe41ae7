//! Many empty collections behind a glob: the cost of looking at each.

use futures_util::{StreamExt, stream};
use mongodb::bson::doc;

use crate::Args;
use crate::runs::{median, most};
use crate::server::Server;
use crate::sweeper;
use crate::table::{Goal, MEMORY, Table, against};

const COLLECTIONS: usize = 2000;

/// Wall time in seconds of a dry run over all collections.
const DRY_RUN: Goal = Goal::AtMost(2.0);

/// Returns the namespace of the n-th collection.
type Place = fn(usize) -> (String, String);

pub(crate) async fn run(args: &Args) {
    let table = Table::begin(
        "collections: seconds of wall time of `sweeper sweep --dry-run` over empty collections with an index on the date",
        &[("namespace", 24), ("collections", 11), ("dry run", 15), ("peak MB", 14)],
    );
    let places: [(&str, Place); 2] = [
        ("bench.sessions_*", |n| ("bench".to_owned(), format!("sessions_{n}"))),
        ("tenant_*.sessions", |n| (format!("tenant_{n}"), "sessions".to_owned())),
    ];
    for (glob, place) in places {
        let server = Server::start(args.ample_cache()).await;
        create(&server, place).await;
        let (mut seconds, mut peaks) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            let rule = format!("namespace: \"{glob}\", field: at, expireAfterSeconds: 0");
            let ran = sweeper::sweep(&server, &rule, &["--dry-run"]).await;
            let counted = ran.report["rules"].as_array().into_iter().flatten().filter(|rule| rule["expiredCount"] == 0).count();
            assert_eq!(counted, COLLECTIONS, "{}", ran.report);
            seconds.push(ran.wall().as_secs_f64());
            peaks.extend(ran.usage.map(|usage| usage.megabytes()));
        }
        table.row([
            glob.to_owned(),
            COLLECTIONS.to_string(),
            against(median(seconds), DRY_RUN, 2),
            against(most(peaks), MEMORY, 1),
        ]);
    }
}

async fn create(server: &Server, place: Place) {
    stream::iter((0..COLLECTIONS).map(place))
        .for_each_concurrent(4, |(database, collection)| async move {
            let create = doc! { "createIndexes": collection, "indexes": [{ "key": { "at": 1 }, "name": "at" }] };
            server.client.database(&database).run_command(create).await.expect("a collection with its index");
        })
        .await;
    server.checkpoint().await;
}
