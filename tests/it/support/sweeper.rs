//! Runs the real `sweeper` against a database of its own.

#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Collection, Database};
use tempfile::TempDir;

use super::mongod::{Mongod, shared};

/// A database on the shared server and a directory for policies and reports.
pub struct Case {
    _mongod: Arc<Mongod>,
    pub uri: String,
    pub client: Client,
    pub db: Database,
    pub dir: TempDir,
}

impl Case {
    pub async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mongod = tokio::task::spawn_blocking(shared).await.expect("the shared server");
        let client = mongod.client().await;
        let db = client.database(&format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        Self { uri: mongod.uri(), client, db, dir: tempfile::tempdir().expect("a temporary directory"), _mongod: mongod }
    }

    pub fn collection(&self, name: &str) -> Collection<Document> {
        self.db.collection(name)
    }

    /// Inserts documents.
    pub async fn fill(&self, name: &str, documents: impl IntoIterator<Item = Document>) {
        let documents: Vec<Document> = documents.into_iter().collect();
        if !documents.is_empty() {
            self.collection(name).insert_many(documents).await.expect("documents go in");
        }
    }

    /// A policy whose `collections` are the given YAML; `DB` in it stands for the database of the case.
    pub fn policy(&self, collections: &str) -> PathBuf {
        let text = format!("version: 1\ncollections:\n{}", collections.replace("DB.", &format!("{}.", self.db.name())));
        self.file("policy.yaml", &text)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("a file in the case's directory");
        path
    }

    /// `sweeper` with a policy whose `collections` are the given YAML, and the arguments.
    pub fn command(&self, collections: &str, args: &[&str]) -> Command {
        let policy = self.policy(collections);
        let mut command = sweeper(args);
        command.arg("--policy").arg(policy).args(["--uri", &self.uri]);
        command
    }

    /// Runs `sweeper` to its end without a terminal.
    pub async fn run(&self, collections: &str, args: &[&str]) -> Ran {
        run(self.command(collections, args)).await
    }

    /// Runs `sweeper sweep` and reads its JSON report.
    pub async fn report(&self, collections: &str, args: &[&str]) -> Report {
        let ran = self.run(collections, &[&["sweep", "--format", "json"], args].concat()).await;
        let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
        Report { json, ran }
    }

    /// The `_id`s that are left, in canonical extended JSON.
    pub async fn ids(&self, name: &str) -> BTreeSet<String> {
        ids(&self.collection(name)).await
    }
}

/// The `_id`s of a collection, in canonical extended JSON.
pub async fn ids(collection: &Collection<Document>) -> BTreeSet<String> {
    let cursor = collection.find(doc! {}).projection(doc! { "_id": 1 }).await.expect("a cursor");
    let documents: Vec<Document> = cursor.try_collect().await.expect("all documents");
    documents
        .iter()
        .map(|document| document.get("_id").map_or_else(String::new, |id| id.clone().into_canonical_extjson().to_string()))
        .collect()
}

/// The canonical extended JSON of some `_id`s, to compare with [`ids`].
pub fn id_set<T: Into<Bson>>(ids: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    ids.into_iter().map(|id| id.into().into_canonical_extjson().to_string()).collect()
}

/// `sweeper` without anything of the caller's environment that it would read.
pub fn sweeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sweeper"));
    command.args(args).env_remove("MONGODB_URI").env_remove("SWEEPER_POLICY").stdin(Stdio::null());
    command
}

/// How a process ended and what it printed.
#[derive(Debug)]
pub struct Ran {
    /// `None` where a signal ended it.
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

/// Runs a command to its end, away from the runtime's threads.
pub async fn run(mut command: Command) -> Ran {
    tokio::task::spawn_blocking(move || command.output().expect("sweeper starts").into())
        .await
        .expect("the process is waited for")
}

/// A run with its JSON report.
#[derive(Debug)]
pub struct Report {
    pub json: serde_json::Value,
    pub ran: Ran,
}

impl Report {
    /// A value of the n-th rule.
    pub fn rule(&self, index: usize, key: &str) -> &serde_json::Value {
        &self.json["rules"][index][key]
    }
}
