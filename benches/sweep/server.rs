//! The mongod that a section works on.

pub(crate) mod snapshot;

use std::path::PathBuf;
use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Client, Collection, Database};

use crate::process;
use crate::replica_set::ReplicaSet;
use crate::storage::Work;

/// Instant that every peer takes for now, in the form of sweeper's `--as-of`.
pub(crate) const NOW: &str = "2026-01-01T00:00:00Z";
const NOW_MILLIS: i64 = 1_767_225_600_000;

/// Returns the date this many seconds after [`NOW`].
pub(crate) fn date(seconds: i64) -> DateTime {
    DateTime::from_millis(NOW_MILLIS + seconds * 1000)
}

/// A one-node replica set of its own, which is stopped when the value is dropped.
pub(crate) struct Server {
    set: ReplicaSet,
    /// The connection string, which leads to the set or to what is in front of it.
    uri: String,
    /// Size of its cache in megabytes.
    cache: u32,
    pub client: Client,
}

impl Server {
    /// Starts the server with a cache of this many megabytes.
    pub(crate) async fn start(cache: u32) -> Self {
        Self::start_with(cache, &[]).await
    }

    /// Starts the server with more arguments.
    pub(crate) async fn start_with(cache: u32, args: &'static [&'static str]) -> Self {
        // The monitor reads the length of its sleep when the sleep begins; if the length were set later, the first pass would
        // come after a minute.
        let start = move || ReplicaSet::start(1, &[&["--setParameter", "ttlMonitorSleepSecs=1"], args].concat());
        let set = tokio::task::spawn_blocking(start).await.expect("a replica set");
        let client = set.client().await;
        let server = Self { uri: set.uri(), set, cache, client };
        server.limit_cache().await;
        server
    }

    async fn limit_cache(&self) {
        self.admin(doc! { "setParameter": 1, "wiredTigerEngineRuntimeConfig": format!("cache_size={}M", self.cache) }).await;
    }

    /// Reaches the server by another connection string from now on.
    pub(crate) async fn behind(self, uri: String) -> Self {
        let client = Client::with_uri_str(&uri).await.expect("a client");
        Self { uri, client, ..self }
    }

    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    pub(crate) fn port(&self) -> u16 {
        self.set.members[0].port
    }

    pub(crate) fn database(&self) -> Database {
        self.client.database("bench")
    }

    /// Returns the collection that is filled and swept.
    pub(crate) fn collection(&self) -> Collection<Document> {
        self.database().collection("c")
    }

    /// Runs a command that must succeed.
    pub(crate) async fn admin(&self, command: Document) -> Document {
        self.client.database("admin").run_command(command).await.expect("the server does as it is told")
    }

    /// Returns a path in the server's directory, for files of the benchmark.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.set.members[0].dir.path().join(name)
    }

    /// Returns the processor time of the server since its start, in steps of 10 ms.
    pub(crate) fn cpu(&self) -> Duration {
        process::cpu(self.set.members[0].child.id())
    }

    /// Returns the figures that the server keeps of itself.
    pub(crate) async fn status(&self) -> Document {
        // The others cost most of the time.
        self.admin(doc! { "serverStatus": 1, "metrics": 0, "repl": 0, "locks": 0, "tcmalloc": 0, "network": 0, "opLatencies": 0 })
            .await
    }

    /// Runs something, and returns what the storage engine did meanwhile as well.
    pub(crate) async fn working<T>(&self, on: impl Future<Output = T>) -> (T, Work) {
        let before = Work::of(&self.status().await);
        let made = on.await;
        (made, Work::of(&self.status().await) - before)
    }

    /// Writes all data to the disk, so that the first peer that deletes does not pay for the writes that filling left to do.
    pub(crate) async fn checkpoint(&self) {
        self.admin(doc! { "fsync": 1 }).await;
    }
}
