//! Wall time on three shards behind the router of the tests, with a latency to each of them: sweeper compared with one
//! `deleteMany`, which a router sends to all shards at once.

use std::io;
use std::time::Duration;

use mongodb::bson::{Bson, doc};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::Args;
use crate::layout::{Layout, NO_INDEX, SMALL};
use crate::peer::Peer;
use crate::proxy::router::{Router, Sharded};
use crate::proxy::{Proxy, Service};
use crate::runs::{Runs, rotated};
use crate::server::Server;
use crate::table::{Goal, Table, figure, maybe_against};

/// Time by which each command comes later to a shard.
const LATENCY: Duration = Duration::from_micros(500);

/// Bytes that travel together.
const PART: usize = 1 << 20;

/// Layouts with their names and the goals for the wall time divided by the wall time of one `deleteMany`.
const LAYOUTS: [(&str, Layout, Option<Goal>); 2] =
    [("index on the date", SMALL, Some(Goal::AtMost(1.3))), ("no index", NO_INDEX, None)];

pub(crate) async fn run(args: &Args) {
    let [first, second, third] = [
        Server::start(args.ample_cache()).await,
        Server::start(args.ample_cache()).await,
        Server::start(args.ample_cache()).await,
    ];
    let mut shards = Vec::new();
    for shard in [&first, &second, &third] {
        shards.push(vec![delayed(shard.port()).await.expect("a port")]);
    }
    let router = Router::new(shards);
    // Thirds of the hashes.
    let bound = |third: i64| Some(vec![Bson::Int64(i64::MIN + third * (i64::MAX / 3 * 2))]);
    let chunks = vec![(bound(1), 0), (bound(2), 1), (None, 2)];
    router.shard_new_collections(Sharded { key: doc! { "_id": "hashed" }, collation: None, chunks });
    let proxy = Proxy::start(first.port(), Service::Router(router)).await;
    let server = first.behind(proxy.uri()).await;
    let table = Table::begin(
        "sharded: seconds of wall time on three shards, each half a millisecond away, by the hash of the `_id`",
        &[("layout", 24), ("documents", 9), ("deleteMany", 10), ("sweeper", 7), ("/ deleteMany", 15)],
    );
    for (name, layout, goal) in LAYOUTS {
        let documents = args.sharded_documents * 2;
        let mut runs = Runs::default();
        for round in 0..args.rounds {
            for peer in rotated(&[Peer::DeleteMany, Peer::Sweeper], round) {
                runs.push(peer, peer.measure(&server, &layout, documents).await);
            }
        }
        table.row([
            name.to_owned(),
            documents.to_string(),
            figure(runs.seconds(Peer::DeleteMany), 2),
            figure(runs.seconds(Peer::Sweeper), 2),
            maybe_against(runs.ratio(Peer::DeleteMany), goal, 2),
        ]);
    }
}

/// Returns a port that leads to a server, with a latency.
async fn delayed(server: u16) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(carry(client, server));
        }
    });
    Ok(port)
}

async fn carry(client: TcpStream, server: u16) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server)).await?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let replies = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut part = vec![0; PART];
    loop {
        let read = from_client.read(&mut part).await?;
        if read == 0 {
            break;
        }
        // The timer of the runtime has steps of a millisecond.
        tokio::task::spawn_blocking(|| std::thread::sleep(LATENCY)).await?;
        to_server.write_all(&part[..read]).await?;
    }
    replies.abort();
    Ok(())
}
