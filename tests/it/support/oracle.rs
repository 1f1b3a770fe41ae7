//! A mongod whose TTL monitor runs every second, to compare with `sweeper`.

use std::collections::BTreeSet;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::{Client, Collection, Database};
use tempfile::TempDir;

use super::mongod::{Mongod, block_on};
use super::pool::{Kept, Shared};
use super::sweeper::{Report, ids, policy_file, run, sweeper};

/// A separate database on the server with the active monitor.
pub(crate) struct Oracle {
    mongod: Kept<Mongod>,
    client: Client,
    pub db: Database,
    dir: TempDir,
}

impl Oracle {
    pub(crate) async fn new(database: &str) -> Self {
        let mongod = tokio::task::spawn_blocking(monitored).await.expect("the server");
        let client = mongod.client().await;
        Self { db: client.database(database), client, dir: tempfile::tempdir().expect("a temporary directory"), mongod }
    }

    pub(crate) fn uri(&self) -> String {
        self.mongod.uri()
    }

    pub(crate) fn collection(&self, name: &str) -> Collection<Document> {
        self.db.collection(name)
    }

    pub(crate) async fn command(&self, command: Document) {
        self.db.run_command(command.clone()).await.unwrap_or_else(|cause| panic!("{command}: {cause}"));
    }

    pub(crate) async fn index(&self, collection: &str, key: Document, options: Document) {
        let mut index = doc! { "name": "i", "key": key };
        index.extend(options);
        self.command(doc! { "createIndexes": collection, "indexes": [index] }).await;
    }

    pub(crate) async fn fill(&self, collection: &str, documents: &[Document]) {
        self.collection(collection).insert_many(documents).await.expect("an insert");
    }

    /// Inserts the documents that an index of the collection accepts, and returns them.
    pub(crate) async fn fill_indexed(&self, collection: &str, documents: &[Document]) -> Vec<Document> {
        let refused: BTreeSet<usize> = match self.collection(collection).insert_many(documents).ordered(false).await {
            Ok(_) => BTreeSet::new(),
            Err(cause) => match *cause.kind {
                ErrorKind::InsertMany(errors) => errors.write_errors.iter().flatten().map(|error| error.index).collect(),
                kind => panic!("inserting: {kind}"),
            },
        };
        let kept = documents.iter().enumerate().filter(|(index, _)| !refused.contains(index));
        kept.map(|(_, document)| document.clone()).collect()
    }

    pub(crate) async fn copy(&self, from: &str, to: &str) {
        self.collection(from).aggregate([doc! { "$out": to }]).await.expect("the copy");
    }

    /// Waits for a complete pass of the monitor: the counter may grow at the start of a pass, and one may be in progress.
    pub(crate) async fn let_the_monitor_pass(&self) {
        let begun = self.passes().await;
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if self.passes().await >= begun + 2 {
                return;
            }
        }
        panic!("the TTL monitor did not work for a minute");
    }

    async fn passes(&self) -> i64 {
        let status =
            self.client.database("admin").run_command(doc! { "serverStatus": 1, "wiredTiger": 0 }).await.expect("serverStatus");
        let ttl = status.get_document("metrics").and_then(|metrics| metrics.get_document("ttl"));
        ttl.and_then(|ttl| ttl.get_i64("passes")).expect("metrics.ttl.passes")
    }

    /// Runs `sweeper sweep`, which must succeed; `DB.` in the rules stands for the database.
    pub(crate) async fn sweep(&self, rules: &str) -> Report {
        self.sweep_with(rules, &[], 0).await
    }

    /// Runs `sweeper sweep` with further arguments, which must exit with `code`.
    pub(crate) async fn sweep_with(&self, rules: &str, args: &[&str], code: i32) -> Report {
        let rules = rules.replace("DB.", &format!("{}.", self.db.name()));
        let policy = policy_file(self.dir.path(), &format!("version: 1\ncollections:\n{rules}"));
        let mut command = sweeper(&["sweep", "--format", "json", "--uri", &self.mongod.uri(), "--policy"]);
        command.arg(policy).args(args);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let json = serde_json::from_str(&ran.stdout).expect("a report");
        Report { json, ran }
    }

    pub(crate) async fn ids(&self, collection: &str) -> BTreeSet<String> {
        ids(&self.collection(collection)).await
    }
}

/// Returns the server of all these tests.
fn monitored() -> Kept<Mongod> {
    static MONITORED: Shared<Mongod> = Shared::new();
    MONITORED.get(|| {
        let mongod = Mongod::start(&["--setParameter", "ttlMonitorSleepSecs=1"]);
        block_on(async {
            let admin = mongod.client().await.database("admin");
            let on = doc! { "setParameter": 1, "ttlMonitorEnabled": true };
            admin.run_command(on).await.expect("the monitor is switched on");
        });
        mongod
    })
}
