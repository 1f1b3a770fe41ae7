//! A sharded cluster: two mongods, and a router in front of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::{Client, Database};

use super::mongod::Mongod;
use super::pool::Shared;
use super::proxy::router::{Router, Sharded};
use super::proxy::{Proxy, Service};
use super::sweeper::Case;

/// A case on a cluster of two shards. The `uri` and the client of the case lead through the router.
pub(crate) struct Cluster {
    pub case: Case,
    pub router: Arc<Router>,
    pub proxy: Proxy,
    /// Clients that go straight to the shards.
    shards: Vec<Client>,
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        static SERVERS: Shared<[Mongod; 2]> = Shared::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let servers = || SERVERS.get(|| [Mongod::start(&[]), Mongod::start(&[])]);
        let servers = tokio::task::spawn_blocking(servers).await.expect("the servers");
        let shards = vec![servers[0].client().await, servers[1].client().await];
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self::over(servers.iter().map(|server| vec![server.port]).collect(), shards, &name).await
    }

    /// Creates a cluster of shards with the ports of their members. The clients lead to them.
    pub(crate) async fn over(ports: Vec<Vec<u16>>, shards: Vec<Client>, name: &str) -> Self {
        let first = ports[0][0];
        let router = Router::new(ports);
        let proxy = Proxy::start(first, Service::Router(Arc::clone(&router))).await;
        let client = Client::with_uri_str(proxy.uri()).await.expect("a client");
        let case = Case::at(&proxy.uri(), client, name);
        Self { case, router, proxy, shards }
    }

    /// Creates a sharded collection.
    pub(crate) async fn shard(&self, collection: &str, sharded: Sharded) {
        let mut create = doc! { "create": collection };
        create.extend(sharded.collation.iter().map(|collation| ("collation".to_owned(), collation.clone().into())));
        self.router.create(self.case.db.name(), create, sharded).await.expect("a collection");
    }

    /// Returns the first shard that has a document with this `_id` in the collection `c`.
    pub(crate) async fn shard_with(&self, id: i32) -> usize {
        let on_first = self.on_shard(0).collection::<Document>("c").find_one(doc! { "_id": id }).await.expect("a reply");
        usize::from(on_first.is_none())
    }

    /// Reads the documents of a collection byte by byte, straight from the shards, with the shard that has each.
    pub(crate) async fn documents(&self, collection: &str) -> BTreeSet<(usize, Vec<u8>)> {
        let mut all = BTreeSet::new();
        for shard in 0..self.shards.len() {
            let database = self.on_shard(shard);
            let mut cursor = database.collection::<RawDocumentBuf>(collection).find(doc! {}).await.expect("a cursor");
            while cursor.advance().await.expect("all documents") {
                all.insert((shard, cursor.current().as_bytes().to_vec()));
            }
        }
        all
    }

    /// Inserts documents through the router.
    pub(crate) async fn fill(&self, collection: &str, documents: &[RawDocumentBuf]) {
        self.case.db.collection::<RawDocumentBuf>(collection).insert_many(documents).await.expect("an insert");
    }

    /// Returns the database of the case on one shard.
    pub(crate) fn on_shard(&self, shard: usize) -> Database {
        self.shards[shard].database(self.case.db.name())
    }
}

/// Returns the bounds of a split in a hashed shard key: half of the hashes.
pub(crate) fn middle() -> [Bson; 1] {
    [Bson::Int64(0)]
}
