//! Runs the real `sweeper` against a test database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Collection, Database};
use tempfile::TempDir;

use super::mongod::Mongod;
use super::pool::{Pool, pool, standalone};

/// A database and a directory for policies and reports.
pub(crate) struct Case {
    pub uri: String,
    pub client: Client,
    pub db: Database,
    pub dir: TempDir,
    /// The servers that tests share, which end with the last case.
    _pool: Arc<Pool>,
}

impl Case {
    /// Creates a case with a new database on the shared server.
    pub(crate) async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self::named(&format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))).await
    }

    /// Creates a case with a database of this name on the shared server; no other test may use the name.
    pub(crate) async fn named(database: &str) -> Self {
        let mongod = tokio::task::spawn_blocking(standalone).await.expect("the shared server");
        Self::on(&mongod, database).await
    }

    /// Creates a case on a server that the test owns, or that the pool keeps.
    pub(crate) async fn on(mongod: &Mongod, database: &str) -> Self {
        Self::at(&mongod.uri(), mongod.client().await, database)
    }

    /// Creates a case on the server to which this connection string leads.
    pub(crate) fn at(uri: &str, client: Client, database: &str) -> Self {
        let db = client.database(database);
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self { uri: uri.to_owned(), client, db, dir, _pool: pool() }
    }

    pub(crate) fn collection(&self, name: &str) -> Collection<Document> {
        self.db.collection(name)
    }

    /// Inserts documents.
    pub(crate) async fn fill(&self, name: &str, documents: impl IntoIterator<Item = Document>) {
        let documents: Vec<Document> = documents.into_iter().collect();
        if !documents.is_empty() {
            self.collection(name).insert_many(documents).await.expect("an insert");
        }
    }

    /// Creates an index on the date `at`.
    pub(crate) async fn index_on_date(&self, name: &str) {
        let index = doc! { "key": { "at": 1 }, "name": "at_1" };
        self.db.run_command(doc! { "createIndexes": name, "indexes": [index] }).await.expect("an index");
    }

    /// Writes a policy with this YAML under `collections`; `DB` in it stands for the database of the case.
    pub(crate) fn policy(&self, collections: &str) -> PathBuf {
        policy_file(self.dir.path(), &self.policy_text(collections))
    }

    /// Replaces the first policy, for a process that reads it again.
    pub(crate) fn replace_policy(&self, collections: &str) {
        self.file("policy.yaml", &self.policy_text(collections));
    }

    fn policy_text(&self, collections: &str) -> String {
        format!("version: 1\ncollections:\n{}", collections.replace("DB.", &format!("{}.", self.db.name())))
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        write_whole(self.dir.path(), name, text)
    }

    /// Returns `sweeper` with a policy that has this YAML under `collections`, and the arguments.
    pub(crate) fn command(&self, collections: &str, args: &[&str]) -> Command {
        let policy = self.policy(collections);
        let mut command = sweeper(args);
        command.arg("--policy").arg(policy).args(["--uri", &self.uri]);
        command
    }

    /// Runs `sweeper` without a terminal and waits for its end.
    pub(crate) async fn run(&self, collections: &str, args: &[&str]) -> Ran {
        run(self.command(collections, args)).await
    }

    /// Runs `sweeper sweep` and reads its JSON report.
    pub(crate) async fn report(&self, collections: &str, args: &[&str]) -> Report {
        let ran = self.run(collections, &[&["sweep", "--format", "json"], args].concat()).await;
        let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
        Report { json, ran }
    }

    /// Returns the `_id`s that are left, in canonical extended JSON.
    pub(crate) async fn ids(&self, name: &str) -> BTreeSet<String> {
        ids(&self.collection(name)).await
    }
}

/// Returns the `_id`s of a collection, in canonical extended JSON.
pub(crate) async fn ids(collection: &Collection<Document>) -> BTreeSet<String> {
    let cursor = collection.find(doc! {}).projection(doc! { "_id": 1 }).await.expect("a cursor");
    let documents: Vec<Document> = cursor.try_collect().await.expect("all documents");
    documents
        .iter()
        .map(|document| document.get("_id").map_or_else(String::new, |id| id.clone().into_canonical_extjson().to_string()))
        .collect()
}

/// Converts `_id`s to canonical extended JSON, to compare with [`ids`].
pub(crate) fn id_set<T: Into<Bson>>(ids: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    ids.into_iter().map(|id| id.into().into_canonical_extjson().to_string()).collect()
}

/// Writes a policy to `policy.yaml`, or to another file if that exists: a process started just before may not have read it yet.
pub(crate) fn policy_file(dir: &Path, text: &str) -> PathBuf {
    let names = std::iter::once("policy.yaml".to_owned()).chain((2..).map(|n| format!("policy-{n}.yaml")));
    for name in names {
        match std::fs::read_to_string(dir.join(&name)) {
            Ok(there) if there == text => return dir.join(name),
            Ok(_) => {}
            Err(_) => return write_whole(dir, &name, text),
        }
    }
    unreachable!("there are enough numbers")
}

/// Writes a file in one step, so that no reader sees a part of it.
fn write_whole(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("a file");
    file.persist(&path).expect("a rename");
    path
}

/// Returns `sweeper` without the variables of the caller's environment that it would read.
pub(crate) fn sweeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sweeper"));
    command.args(args).env_remove("MONGODB_URI").env_remove("SWEEPER_POLICY").stdin(Stdio::null());
    command
}

/// Exit code and output of a process.
#[derive(Debug)]
pub(crate) struct Ran {
    /// `None` after a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
        }
    }
}

/// Runs a command to its end, outside of the threads of the runtime.
pub(crate) async fn run(mut command: Command) -> Ran {
    tokio::task::spawn_blocking(move || command.output().expect("sweeper starts").into()).await.expect("waiting for the process")
}

/// A run with its JSON report.
#[derive(Debug)]
pub(crate) struct Report {
    pub json: serde_json::Value,
    pub ran: Ran,
}

impl Report {
    /// Returns a value of the n-th rule.
    pub(crate) fn rule(&self, index: usize, key: &str) -> &serde_json::Value {
        &self.json["rules"][index][key]
    }
}
