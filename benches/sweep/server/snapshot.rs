//! A server's files, kept so that each run begins with the same ones and with nothing in the cache but what was read since.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::options::Hint;
use tempfile::TempDir;

use super::Server;
use crate::mongod::launch;

/// The files of a server that was shut down.
pub(crate) struct Snapshot(TempDir);

impl Server {
    /// Ends the server and keeps a copy of its files. It does not run again until it returns to a snapshot.
    pub(crate) async fn keep(&mut self) -> Snapshot {
        // It closes the connection in place of an answer.
        let _ = self.client.database("admin").run_command(doc! { "shutdown": 1, "force": true, "timeoutSecs": 0 }).await;
        let member = &mut self.set.members[0];
        member.child.wait().expect("the server ends");
        let kept = tempfile::Builder::new().prefix("sweeper-snapshot-").tempdir().expect("a directory");
        copy(member.dir.path(), kept.path());
        Snapshot(kept)
    }

    /// Starts the server again on kept files. All documents of the collection are read then, so that the cache holds as many of
    /// them as it can, the same for each run.
    pub(crate) async fn return_to(&mut self, snapshot: &Snapshot) {
        let member = &mut self.set.members[0];
        member.kill();
        clear(member.dir.path());
        copy(snapshot.0.path(), member.dir.path());
        member.child = launch(member.dir.path(), member.port, &member.extra);
        assert!(member.listens(), "{}", member.last_words());
        self.client = member.client().await;
        while !matches!(self.admin(doc! { "hello": 1 }).await.get_bool("isWritablePrimary"), Ok(true)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.client = self.set.client().await;
        self.limit_cache().await;
        let c = self.collection();
        let all = c.count_documents(doc! { "absent": null }).hint(Hint::Keys(doc! { "$natural": 1 }));
        assert!(all.await.expect("a count") > 0, "the snapshot has documents");
    }
}

/// Copies all files and directories of a directory into another.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            fs::create_dir(&target).expect("a directory");
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("a copy");
            // Otherwise it would go to the disk while deletes are measured.
            File::open(target).and_then(|copied| copied.sync_all()).expect("a copy on the disk");
        }
    }
}

fn clear(directory: &Path) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        let removed = if entry.file_type().expect("a type").is_dir() {
            fs::remove_dir_all(entry.path())
        } else {
            fs::remove_file(entry.path())
        };
        removed.expect("it goes");
    }
}
