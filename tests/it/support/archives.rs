//! Archives that runs of a test write, and what is in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mongodb::bson::{RawDocumentBuf, doc};

use super::sweeper::{Case, Ran, run, sweeper};

/// The documents of a collection by the bytes of their `_id`s.
pub type Documents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The documents of a collection as they are, byte by byte.
pub async fn raw(case: &Case, name: &str) -> Documents {
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

/// The archives in a directory, in the order of time.
pub fn archives(directory: &Path) -> Vec<PathBuf> {
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    runs.sort();
    runs
}

/// The only archive in a directory.
pub fn archive(directory: &Path) -> PathBuf {
    let runs = archives(directory);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].clone()
}

/// A directory of the case to archive to.
pub fn directory(case: &Case) -> PathBuf {
    let path = case.dir.path().join("archives");
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// Runs `sweeper restore` on the case's server.
pub async fn restore(case: &Case, archive: &Path, args: &[&str]) -> Ran {
    let mut command = sweeper(&["restore", "--uri", &case.uri]);
    command.arg(archive).args(args);
    run(command).await
}

/// Runs `sweeper restore`, and reads its JSON report.
pub async fn restored(case: &Case, archive: &Path, args: &[&str]) -> (serde_json::Value, Ran) {
    let ran = restore(case, archive, &[args, &["--format", "json"]].concat()).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    (json, ran)
}

/// `--namespace` for two collections of the case.
pub fn into(case: &Case, from: &str, to: &str) -> String {
    format!("{db}.{from}={db}.{to}", db = case.db.name())
}

/// Restores one collection of archives, the later ones first, into another of its own, and gives what is then in it.
pub async fn unpacked(case: &Case, runs: &[PathBuf], from: &str, to: &str) -> Documents {
    case.collection(to).drop().await.expect("the collection is dropped");
    for run in runs.iter().rev() {
        let ran =
            restore(case, run, &["--only", &format!("{}.{from}", case.db.name()), "--namespace", &into(case, from, to)]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    raw(case, to).await
}

/// Asserts that every document that is gone is in the archive as it was; gives how many are gone.
pub fn assert_archived(before: &Documents, after: &Documents, archived: &Documents) -> usize {
    let gone = before.iter().filter(|(id, _)| !after.contains_key(*id));
    gone.inspect(|(id, document)| assert_eq!(archived.get(*id), Some(*document), "a deleted document is not in the archive"))
        .count()
}
