//! Archives written by the runs of a test, and their contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mongodb::bson::{RawDocumentBuf, doc};

use super::faults::{dated, days};
use super::sweeper::{Case, Ran, run, sweeper};

/// The documents of a collection by the bytes of their `_id`s.
pub(crate) type Documents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads the documents of a collection byte by byte.
pub(crate) async fn raw(case: &Case, name: &str) -> Documents {
    let mut cursor = case.db.collection::<RawDocumentBuf>(name).find(doc! {}).await.expect("a cursor");
    let mut documents = Documents::new();
    while cursor.advance().await.expect("all documents") {
        let document = cursor.current();
        let mut key = RawDocumentBuf::new();
        key.append(mongodb::bson::raw::cstr!(""), document.get("_id").expect("BSON").expect("an `_id`"));
        documents.insert(key.into_bytes(), document.as_bytes().to_vec());
    }
    documents
}

/// Returns the archives in a directory, oldest first.
pub(crate) fn archives(directory: &Path) -> Vec<PathBuf> {
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    runs.sort();
    runs
}

/// Returns the only archive in a directory.
pub(crate) fn archive(directory: &Path) -> PathBuf {
    let runs = archives(directory);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].clone()
}

/// Creates a directory of the case for archives.
pub(crate) fn directory(case: &Case) -> PathBuf {
    let path = case.dir.path().join("archives");
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// Runs `sweeper restore` on the server of the case.
pub(crate) async fn restore(case: &Case, archive: &Path, args: &[&str]) -> Ran {
    let mut command = sweeper(&["restore", "--uri", &case.uri]);
    command.arg(archive).args(args);
    run(command).await
}

/// Runs `sweeper restore` and reads its JSON report.
pub(crate) async fn restored(case: &Case, archive: &Path, args: &[&str]) -> (serde_json::Value, Ran) {
    let ran = restore(case, archive, &[args, &["--format", "json"]].concat()).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    (json, ran)
}

/// Returns the value of `--namespace` that renames one collection of the case to another.
pub(crate) fn into(case: &Case, from: &str, to: &str) -> String {
    format!("{db}.{from}={db}.{to}", db = case.db.name())
}

/// Restores a collection from archives, the latest first, into a new collection, and returns the contents.
pub(crate) async fn unpacked(case: &Case, runs: &[PathBuf], from: &str, to: &str) -> Documents {
    case.collection(to).drop().await.expect("the collection is dropped");
    for run in runs.iter().rev() {
        let ran =
            restore(case, run, &["--only", &format!("{}.{from}", case.db.name()), "--namespace", &into(case, from, to)]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    raw(case, to).await
}

/// Asserts that every deleted document is in the archive unchanged; returns the number of deleted documents.
pub(crate) fn assert_archived(before: &Documents, after: &Documents, archived: &Documents) -> usize {
    let gone = before.iter().filter(|(id, _)| !after.contains_key(*id));
    gone.inspect(|(id, document)| assert_eq!(archived.get(*id), Some(*document), "a deleted document is not in the archive"))
        .count()
}

/// Returns the rule of a collection that is archived, with further keys.
pub(crate) fn rules(case: &Case, more: &str) -> String {
    format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{more}, archive: {{directory: {}}}}}\n", directory(case).display())
}

/// Returns a case whose collection was archived, and the archive.
pub(crate) async fn swept() -> (Case, PathBuf) {
    let case = Case::new().await;
    case.fill("c", dated(0..50, days(-3))).await;
    assert_eq!(case.run(&rules(&case, ", batchSize: 10"), &["sweep"]).await.code, Some(0));
    let run = archive(&directory(&case));
    (case, run)
}
