//! Losses of power at every point of a run that archives: whatever was deleted by then is restored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bson::{DateTime, RawDocumentBuf, doc};

use super::disk::simulated::{Fate, SimulatedDisk};
use super::reader;
use super::writer::Archive;
use crate::policy::namespace::Namespace;
use crate::policy::{ArchiveTo, Compression};

const DIRECTORY: &str = "/backups";

/// The documents of each namespace.
type Documents = BTreeMap<String, BTreeSet<Vec<u8>>>;

/// A run that archives, and what it may delete from each point on.
struct Run {
    disk: SimulatedDisk,
    archive: Archive,
    /// The changes of the disk when documents were found to be safe, and all that were safe then.
    safe: Vec<(usize, Documents)>,
}

impl Run {
    fn new() -> Self {
        let disk = SimulatedDisk::with_directory(Path::new(DIRECTORY));
        let started_at = DateTime::from_millis(1_769_824_800_000);
        let archive = Archive::on(Arc::new(disk.clone()), Path::new(DIRECTORY), "1a2b3c4d-0000", started_at);
        Self { disk, archive, safe: vec![(0, Documents::new())] }
    }

    /// Archives documents as a sweep does before it deletes them.
    fn archive(
        &mut self,
        (database, collection): (&str, &str),
        compression: Compression,
        ids: std::ops::Range<i32>,
    ) -> Result<(), String> {
        let namespace = Namespace { database: database.into(), collection: collection.into() };
        let to = ArchiveTo { directory: DIRECTORY.into(), compression };
        let file = self.archive.begin(&namespace, &to, "{\"collectionName\":\"c\"}").map_err(|cause| cause.to_string())?;
        let documents: Vec<_> =
            ids.map(|id| RawDocumentBuf::try_from(&doc! { "_id": id, "p": "x".repeat(9) }).unwrap()).collect();
        file.try_lock().unwrap().append("rule", documents.iter().map(|document| document.as_bytes()))?;
        let mut safe = self.safe.last().unwrap().1.clone();
        safe.entry(namespace.to_string()).or_default().extend(documents.into_iter().map(RawDocumentBuf::into_bytes));
        self.safe.push((self.disk.recorded(), safe));
        Ok(())
    }

    /// Archives documents of several collections, and ends. Goes on after a failure, as other rules do.
    fn ended(mut self) -> Self {
        for (names, compression, ids) in [
            (("a", "c"), Compression::Zstd, 0..3),
            (("a", "c"), Compression::Zstd, 3..5),
            (("a", "d"), Compression::Gzip, 0..2),
            (("a", "c"), Compression::Zstd, 5..6),
            (("b", "c"), Compression::Zstd, 0..4),
            (("a", "d"), Compression::Gzip, 2..3),
        ] {
            // What fails is not safe, and is not deleted.
            let _ = self.archive(names, compression, ids);
        }
        let _ = self.archive.end(Vec::new());
        self
    }

    /// Returns what was safe when the disk had so many changes.
    fn safe_at(&self, point: usize) -> &Documents {
        &self.safe.iter().rev().find(|(changes, _)| *changes <= point).unwrap().1
    }
}

/// Reads everything that a restore would insert.
fn restored(disk: &SimulatedDisk, run: &Path) -> Result<Documents, String> {
    let mut documents = Documents::new();
    for file in reader::open(Arc::new(disk.clone()), run)?.files {
        let verified = file.verify()?;
        let of_namespace = documents.entry(verified.namespace.to_string()).or_default();
        for place in &verified.segments {
            of_namespace.extend(verified.read(place)?.into_iter().map(RawDocumentBuf::into_bytes));
        }
    }
    Ok(documents)
}

/// Asserts that everything that was safe at a point is restored from a disk.
fn assert_restored(run: &Run, point: usize, disk: &SimulatedDisk, what: &str) {
    let safe = run.safe_at(point);
    if safe.is_empty() {
        return;
    }
    let found = restored(disk, run.archive.path()).unwrap_or_else(|why| panic!("{what}: {why}"));
    for (namespace, documents) in safe {
        let found = found.get(namespace).unwrap_or_else(|| panic!("{what}: nothing of {namespace}"));
        assert!(documents.is_subset(found), "{what}: {namespace}: {} of {}", found.len(), documents.len());
    }
}

#[test]
fn wherever_the_disk_is_full_what_was_deleted_is_restored() {
    for room in (0..4000).step_by(7) {
        let run = Run::new();
        run.disk.set_room(Some(room));
        let run = run.ended();
        for fate in [Fate::Lost, Fate::Kept] {
            let point = run.disk.recorded();
            let disk = run.disk.after_power_loss(point, |_| fate);
            assert_restored(&run, point, &disk, &format!("room for {room} bytes, {fate:?}"));
        }
    }
}
