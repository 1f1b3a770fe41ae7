//! An archive in a bucket whose requests fail: whatever was deleted is restored.

use std::path::Path;
use std::sync::Arc;

use bson::DateTime;

use super::power_loss::{Documents, PARTS, archive, read_on};
use crate::shell::archive::directory::{self, Leftover};
use crate::shell::archive::disk::{BucketDisk, Disk, EntryKind};
use crate::shell::archive::writer::Archive;
use crate::testing::bucket::{BucketFault, SimulatedBucket};

const URL: &str = "s3://bucket/ttl";

/// Returns a bucket as a disk.
fn disk(bucket: &SimulatedBucket) -> Arc<dyn Disk> {
    Arc::new(BucketDisk::on(URL.into(), "ttl".into(), Ok(Arc::new(bucket.clone()))))
}

/// A run that archives to a bucket, and what it may delete after each part.
struct Run {
    bucket: SimulatedBucket,
    archive: Archive,
    /// The number of objects when documents were found to be safe, and all that were safe then.
    safe: Vec<(usize, Documents)>,
}

impl Run {
    fn new(bucket: &SimulatedBucket) -> Self {
        let started_at = DateTime::from_millis(1_769_824_800_000);
        let archive = Archive::on(disk(bucket), Path::new(URL), "1a2b3c4d-0000", started_at);
        Self { bucket: bucket.clone(), archive, safe: vec![(0, Documents::new())] }
    }

    /// Archives documents of several collections. Goes on after a failure, as other rules do.
    fn archived(mut self) -> Self {
        for (names, compression, ids) in PARTS {
            // A part that could not be written is not deleted.
            let Ok(documents) = archive(&self.archive, names, compression, ids) else { continue };
            let mut safe = self.safe.last().unwrap().1.clone();
            safe.entry(format!("{}.{}", names.0, names.1)).or_default().extend(documents);
            self.safe.push((self.bucket.recorded(), safe));
        }
        self
    }

    fn ended(self) -> Self {
        let run = self.archived();
        let _ = run.archive.end(Vec::new());
        run
    }

    /// Asserts that everything that was safe when a bucket had so many objects is restored from it.
    fn assert_restored(&self, point: usize, bucket: &SimulatedBucket, what: &str) {
        let safe = &self.safe.iter().rev().find(|(objects, _)| *objects <= point).unwrap().1;
        if safe.is_empty() {
            return;
        }
        let mut found = read_on(disk(bucket), self.archive.path());
        for record in ["journal.jsonl", "manifest.json"] {
            // A record that the store has damaged is refused, with the remedy.
            if found
                .as_ref()
                .is_err_and(|why| why.starts_with(&format!("`{record}`")) && why.contains("moved out of the directory"))
            {
                bucket.remove_folder(&format!("ttl/20260131T020000Z-1a2b3c4d/{record}"));
                found = read_on(disk(bucket), self.archive.path());
            }
        }
        let found = found.unwrap_or_else(|why| panic!("{what}: {why}")).documents;
        for (namespace, documents) in safe {
            let found = found.get(namespace).unwrap_or_else(|| panic!("{what}: nothing of {namespace}"));
            assert!(documents.is_subset(found), "{what}: {namespace}: {} of {}", found.len(), documents.len());
        }
    }
}

#[test]
fn whenever_a_run_is_cut_off_what_was_deleted_is_restored() {
    let run = Run::new(&SimulatedBucket::default()).ended();
    assert_eq!(run.safe.len(), 7);
    for point in 0..=run.bucket.recorded() {
        run.assert_restored(point, &run.bucket.at(point), &format!("after {point} objects"));
    }
    let whole = read_on(disk(&run.bucket), run.archive.path()).unwrap();
    assert_eq!((&whole.documents, whole.left, whole.is_damaged), (&run.safe[6].1, Vec::new(), false));
}

#[test]
fn whatever_request_fails_what_was_deleted_is_restored() {
    let requests = Run::new(&SimulatedBucket::default()).ended().bucket.requests();
    for fault in BucketFault::ALL {
        for (at, number) in (0..requests).flat_map(|at| [(at, 1), (at, 2), (at, usize::MAX / 2)]) {
            let bucket = SimulatedBucket::default();
            bucket.fail(at, number, fault);
            let run = Run::new(&bucket).ended();
            bucket.fail(0, 0, fault);
            let what = format!("{number} times {fault:?} at {at}");
            run.assert_restored(usize::MAX, &bucket, &what);
            bucket.settle();
            run.assert_restored(usize::MAX, &bucket, &format!("{what}, later"));
        }
    }
}

#[test]
fn an_object_that_is_not_what_was_written_is_found_before_anything_is_deleted() {
    for fault in [BucketFault::Damaged, BucketFault::Forgotten, BucketFault::Unacknowledged] {
        let bucket = SimulatedBucket::default();
        let run = Run::new(&bucket);
        let (names, compression, ids) = PARTS[0].clone();
        archive(&run.archive, names, compression, ids.clone()).unwrap();
        bucket.fail(0, 1, fault);
        let why = archive(&run.archive, names, compression, ids.clone()).unwrap_err();
        assert!(why.starts_with("archiving to `s3://bucket/ttl/20260131T020000Z-1a2b3c4d/a/c.bson.zst`: "), "{why}");
        assert_eq!(archive(&run.archive, names, compression, ids).unwrap_err(), why, "nothing more is written");
    }
}

#[test]
fn a_missing_part_is_named_and_nothing_is_read_without_it() {
    let bucket = SimulatedBucket::default();
    let run = Run::new(&bucket).ended();
    bucket.remove_folder("ttl/20260131T020000Z-1a2b3c4d/a/c.bson.zst/00000002");
    let why = read_on(disk(&bucket), run.archive.path()).unwrap_err();
    assert!(why.contains("its part 00000002 is missing"), "{why}");
}

#[test]
fn the_parts_put_together_are_the_files_of_a_directory() {
    let bucket = SimulatedBucket::default();
    let run = Run::new(&bucket).ended();
    let name = "20260131T020000Z-1a2b3c4d";
    let objects = bucket.all();
    for file in ["journal.jsonl", "manifest.json", "a/c.bson.zst", "a/c.metadata.json", "a/d.bson.gz", "b/c.bson.zst"] {
        let path = format!("ttl/{name}/{file}");
        let is_of = |object: &&String| **object == path || object.starts_with(&format!("{path}/"));
        assert!(objects.iter().any(|object| is_of(&object)), "{file} in {objects:?}");
    }
    let disk = disk(&bucket);
    let entries = disk.entries(&run.archive.path().join("a")).unwrap();
    assert!(entries.iter().all(|entry| entry.kind == EntryKind::Other) && entries.len() == 4, "{entries:?}");
    assert_eq!(directory::runs(disk.as_ref(), Path::new(URL)).unwrap(), [run.archive.path()]);
    assert_eq!(directory::leftovers(disk.as_ref(), Path::new(URL)), []);
}

#[test]
fn a_run_that_was_cut_off_is_named() {
    let bucket = SimulatedBucket::default();
    let run = Run::new(&bucket).archived();
    assert_eq!(directory::leftovers(disk(&bucket).as_ref(), Path::new(URL)), [Leftover::Archive(run.archive.path().into())]);
}
