//! Witnesses of a run: what the server stores, what the oplog shows, and what the run itself says in each of its outputs.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::bson::raw::cstr;
use mongodb::bson::{Bson, Document, RawDocumentBuf, Timestamp, doc};
use serde_json::Value;

use super::databases::Databases;
use super::oracle::{State, Stored};
use crate::support::exposition::Scrape;
use crate::support::sweeper::{Ran, run, sweeper};

/// Writes of the server between two instants.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Deletes by namespace: the bytes of the `_id`s, in their order.
    pub deletes: BTreeMap<String, Vec<Vec<u8>>>,
    /// Anything else, but for what a run may write into its own database.
    pub others: Vec<String>,
}

/// A run with everything that it said.
#[derive(Debug)]
pub(super) struct Run {
    pub ran: Ran,
    /// Null if there is none.
    pub json: Value,
    pub csv: String,
    pub markdown: String,
    pub table: String,
    pub html: String,
    pub metrics: Option<Scrape>,
    pub recorded: Option<Document>,
    pub written: Written,
}

/// Place of the runs.
pub(super) struct Stage<'a> {
    pub client: &'a Client,
    pub uri: &'a str,
    pub directory: &'a Path,
    pub databases: &'a Databases,
}

impl Stage<'_> {
    /// Runs a command with all of its outputs, and reads what it wrote.
    pub(super) async fn run(&self, name: &str, args: &[String], has_metrics: bool) -> Run {
        // One file of metrics for all runs, as in cron: what an earlier run left there must not pass for news.
        let file = |extension: &str| match extension {
            "prom" => self.directory.join("metrics.prom"),
            _ => self.directory.join(format!("{name}.{extension}")),
        };
        let mut command = sweeper(&[]);
        command.args(args).arg("--policy").arg(self.directory.join("policy.yaml")).args(["--uri", self.uri]);
        // A new lease is relied on after a twelfth of its time; a shorter one might be lost on a busy machine.
        command.env("SWEEPER_TEST_LEASE_SECONDS", "12");
        for extension in ["json", "csv", "md", "txt", "html"] {
            command.arg("-o").arg(file(extension));
        }
        if has_metrics {
            command.arg("--metrics-file").arg(file("prom"));
        }
        let since = self.last_entry().await;
        let ran = run(command).await;
        let read = |extension: &str| std::fs::read_to_string(file(extension)).unwrap_or_default();
        let json: Value = serde_json::from_str(&read("json")).unwrap_or_default();
        let runs = self.client.database(&self.databases.own()).collection::<Document>("runs");
        let recorded = match json["runId"].as_str() {
            Some(id) => runs.find_one(doc! { "_id": id }).await.expect("a query"),
            None => None,
        };
        Run {
            ran,
            json,
            csv: read("csv"),
            markdown: read("md"),
            table: read("txt"),
            html: read("html"),
            // A run that ends with a usage error writes none; that there is no report is a difference of its own.
            metrics: Some(read("prom")).filter(|text| has_metrics && !text.is_empty()).map(|text| Scrape::read(&text)),
            recorded,
            written: self.written(since).await,
        }
    }

    /// Reads every document of the databases.
    pub(super) async fn state(&self) -> State {
        let mut state = State::new();
        for database in self.databases.names() {
            let db = self.client.database(&database);
            let names = db.list_collection_names().await.expect("names");
            for name in names.iter().filter(|_| database != self.databases.own()) {
                // A time-series collection is read as its buckets; a view has nothing of its own.
                let has_buckets = names.contains(&format!("system.buckets.{name}"));
                let is_read = name.starts_with("system.buckets.") || !(name.starts_with("system.") || has_buckets);
                if is_read {
                    state.insert(format!("{database}.{name}"), self.stored(&database, name).await);
                }
            }
        }
        state
    }

    async fn stored(&self, database: &str, name: &str) -> Stored {
        let collection = self.client.database(database).collection::<RawDocumentBuf>(name);
        let all: Vec<RawDocumentBuf> = collection.find(doc! {}).await.expect("a cursor").try_collect().await.expect("documents");
        all.into_iter().map(|document| (key(&document), document)).collect()
    }

    async fn last_entry(&self) -> Timestamp {
        let oplog = self.client.database("local").collection::<Document>("oplog.rs");
        let last = oplog.find_one(doc! {}).sort(doc! { "$natural": -1 }).await.expect("a query").expect("an entry");
        last.get_timestamp("ts").expect("a time")
    }

    /// Returns what was written to the databases of this seed since an entry of the oplog.
    async fn written(&self, since: Timestamp) -> Written {
        let oplog = self.client.database("local").collection::<RawDocumentBuf>("oplog.rs");
        let mut written = Written::default();
        let mut entries = oplog.find(doc! { "ts": { "$gt": since }, "op": { "$ne": "n" } }).await.expect("a cursor");
        while let Some(entry) = entries.try_next().await.expect("entries") {
            match entry.get_document("o").ok().and_then(|o| o.get_array("applyOps").ok()) {
                Some(entries) => {
                    for entry in entries {
                        let entry = entry.expect("BSON").as_document().expect("an entry").to_owned();
                        self.add(&entry, &mut written);
                    }
                }
                None => self.add(&entry, &mut written),
            }
        }
        written
    }

    fn add(&self, entry: &RawDocumentBuf, written: &mut Written) {
        let namespace = entry.get_str("ns").expect("a namespace");
        let database = namespace.split('.').next().unwrap_or_default();
        // Other seeds run at the same time.
        if !self.databases.names().iter().any(|name| name == database) || database == self.databases.own() {
            return;
        }
        match (entry.get_str("op"), entry.get_document("o")) {
            (Ok("d"), Ok(deleted)) => written.deletes.entry(namespace.to_owned()).or_default().push(key(&deleted.to_owned())),
            _ => written.others.push(format!("{entry:?}")),
        }
    }

    /// Reads the archive that a run made: its documents by namespace.
    pub(super) fn archived(&self, directory: &Path) -> State {
        let mut found = State::new();
        let inside = |path: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect()
        };
        let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
        for database in inside(directory).iter().filter(|path| path.is_dir()) {
            for file in inside(database) {
                let bytes = std::fs::read(&file).expect("a file");
                let (collection, content) = match name(&file).split_once(".bson.") {
                    Some((collection, "zst")) => (collection.to_owned(), zstd::decode_all(&bytes[..]).expect("zstd")),
                    Some((collection, "gz")) => {
                        let mut content = Vec::new();
                        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut content).expect("gzip");
                        (collection.to_owned(), content)
                    }
                    _ => continue,
                };
                let stored = found.entry(format!("{}.{collection}", name(database))).or_default();
                let mut rest = &content[..];
                while let Some(length) = rest.first_chunk::<4>() {
                    let (one, others) = rest.split_at(u32::from_le_bytes(*length) as usize);
                    let document = RawDocumentBuf::from_bytes(one.to_vec()).expect("a document");
                    stored.insert(key(&document), document);
                    rest = others;
                }
            }
        }
        found
    }
}

/// Returns the bytes of a document's `_id`, with its type.
pub(super) fn key(document: &RawDocumentBuf) -> Vec<u8> {
    let mut key = RawDocumentBuf::new();
    key.append(cstr!(""), document.get("_id").expect("BSON").expect("an `_id`"));
    key.into_bytes()
}

/// Shows an `_id`.
pub(super) fn shown(key: &[u8]) -> String {
    let document: Document =
        RawDocumentBuf::from_bytes(key.to_vec()).ok().and_then(|raw| raw.try_into().ok()).unwrap_or_default();
    document.get("").map_or_else(String::new, |id| Bson::into_relaxed_extjson(id.clone()).to_string())
}
