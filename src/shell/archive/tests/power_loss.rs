//! Losses of power at every point of a run that archives: whatever was deleted by then is restored.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bson::{DateTime, RawDocumentBuf, doc};

use crate::core::policy::Compression;
use crate::core::policy::namespace::Namespace;
use crate::shell::archive::directory::{self, Leftover};
use crate::shell::archive::disk::Disk;
use crate::shell::archive::reader;
use crate::shell::archive::writer::Archive;
use crate::testing::disk::{Fate, Fault, SimulatedDisk};

const DIRECTORY: &str = "/backups";

/// The documents of each namespace.
pub(crate) type Documents = BTreeMap<String, BTreeSet<Vec<u8>>>;

/// Documents of several collections, in the order in which they are archived.
pub(crate) const PARTS: [(Names, Compression, Range<i32>); 6] = [
    (("a", "c"), Compression::Zstd, 0..3),
    (("a", "c"), Compression::Zstd, 3..5),
    (("a", "d"), Compression::Gzip, 0..2),
    (("a", "c"), Compression::Zstd, 5..6),
    (("b", "c"), Compression::Zstd, 0..4),
    (("a", "d"), Compression::Gzip, 2..3),
];

/// Names of a database and a collection.
type Names = (&'static str, &'static str);

/// Archives documents as a sweep does before it deletes them. Returns them.
pub(crate) fn archive(
    archive: &Archive,
    (database, collection): Names,
    compression: Compression,
    ids: Range<i32>,
) -> Result<Vec<Vec<u8>>, String> {
    let namespace = Namespace { database: database.into(), collection: collection.into() };
    let metadata = "{\"collectionName\":\"c\"}";
    let file = archive.begin(&namespace, compression, metadata, false).map_err(|cause| cause.to_string())?;
    let documents: Vec<_> = ids.map(|id| RawDocumentBuf::try_from(&doc! { "_id": id, "p": "x".repeat(9) }).unwrap()).collect();
    file.try_lock().unwrap().append("rule", documents.iter().map(|document| document.as_bytes()))?;
    Ok(documents.into_iter().map(RawDocumentBuf::into_bytes).collect())
}

/// A run that archives, and what it may delete from each point on.
pub(crate) struct Run {
    pub disk: SimulatedDisk,
    pub archive: Archive,
    /// The changes of the disk when documents were found to be safe, and all that were safe then.
    safe: Vec<(usize, Documents)>,
}

impl Run {
    pub(crate) fn new() -> Self {
        let disk = SimulatedDisk::with_directory(Path::new(DIRECTORY));
        let started_at = DateTime::from_millis(1_769_824_800_000);
        let archive = Archive::on(Arc::new(disk.clone()), Path::new(DIRECTORY), "1a2b3c4d-0000", started_at);
        Self { disk, archive, safe: vec![(0, Documents::new())] }
    }

    /// Archives documents as a sweep does before it deletes them.
    fn archive(&mut self, (database, collection): Names, compression: Compression, ids: Range<i32>) -> Result<(), String> {
        let documents = archive(&self.archive, (database, collection), compression, ids)?;
        let mut safe = self.safe.last().unwrap().1.clone();
        safe.entry(format!("{database}.{collection}")).or_default().extend(documents);
        self.safe.push((self.disk.recorded(), safe));
        Ok(())
    }

    /// Archives documents of several collections, and ends. Goes on after a failure, as other rules do.
    pub(crate) fn ended(mut self) -> Self {
        for (names, compression, ids) in PARTS {
            // A part that could not be written is not deleted.
            let _ = self.archive(names, compression, ids);
        }
        let _ = self.archive.end(Vec::new());
        self
    }

    /// Returns what was safe when the disk had so many changes.
    pub(crate) fn safe_at(&self, point: usize) -> &Documents {
        &self.safe.iter().rev().find(|(changes, _)| *changes <= point).unwrap().1
    }
}

/// The documents that a restore would insert from an archive, and its messages.
#[derive(Debug, PartialEq)]
pub(crate) struct Read {
    pub documents: Documents,
    pub left: Vec<String>,
    /// Whether the exit code would not be 0.
    pub is_damaged: bool,
}

/// Reads everything that a restore would insert.
pub(crate) fn read(disk: &SimulatedDisk, run: &Path) -> Result<Read, String> {
    read_on(Arc::new(disk.clone()), run)
}

/// Reads everything that a restore would insert from any disk.
pub(crate) fn read_on(disk: Arc<dyn Disk>, run: &Path) -> Result<Read, String> {
    let stored = reader::open(disk, run)?;
    let mut read = Read { documents: Documents::new(), left: stored.losses, is_damaged: !stored.strays.is_empty() };
    read.left.extend(stored.strays.iter().map(|file| format!("stray {file}")));
    for file in stored.files {
        let verified = file.verify()?;
        let namespace = verified.namespace.to_string();
        for (number, what) in [(verified.unlisted, "unlisted"), (verified.cut, "cut"), (verified.missing, "missing")] {
            if number > 0 {
                read.left.push(format!("{namespace}: {number} {what}"));
            }
        }
        read.is_damaged |= verified.is_damaged || verified.missing > 0;
        let of_namespace = read.documents.entry(namespace).or_default();
        for place in &verified.segments {
            of_namespace.extend(verified.read(place)?.into_iter().map(RawDocumentBuf::into_bytes));
        }
    }
    Ok(read)
}

/// Asserts that everything that was safe at a point is restored from a disk.
fn assert_restored(run: &Run, point: usize, disk: &SimulatedDisk, what: &str) {
    let safe = run.safe_at(point);
    if safe.is_empty() {
        return;
    }
    let read = read(disk, run.archive.path()).unwrap_or_else(|why| panic!("{what}: {why}"));
    let found = read.documents;
    for (namespace, documents) in safe {
        let found = found.get(namespace).unwrap_or_else(|| panic!("{what}: nothing of {namespace}"));
        let is_recorded = !read.left.iter().any(|left| left.ends_with(&format!("it is of {namespace}")));
        assert!(is_recorded, "{what}: {:?}", read.left);
        assert!(documents.is_subset(found), "{what}: {namespace}: {} of {}", found.len(), documents.len());
    }
}

#[test]
fn whenever_the_power_is_lost_what_was_deleted_is_restored() {
    let run = Run::new().ended();
    assert_eq!(run.safe.len(), 7);
    for point in 0..=run.disk.recorded() {
        for of_journal in Fate::ALL {
            for of_others in Fate::ALL {
                let fate = |path: &Path| if path.ends_with("journal.jsonl") { of_journal } else { of_others };
                let disk = run.disk.after_power_loss(point, fate);
                assert_restored(&run, point, &disk, &format!("{point} {of_journal:?} {of_others:?}"));
            }
        }
        for seed in 0..25 {
            let mut random = fastrand::Rng::with_seed(seed);
            let disk = run.disk.after_power_loss(point, |_| Fate::ALL[random.usize(..Fate::ALL.len())]);
            assert_restored(&run, point, &disk, &format!("{point} seed {seed}"));
        }
    }
}

#[test]
fn whatever_the_disk_fails_at_what_was_deleted_is_restored() {
    let operations = {
        let run = Run::new().ended();
        run.disk.operations()
    };
    for fault in [Fault::Nothing, Fault::Half, Fault::Done] {
        // The second failure may be the failure of mending the first.
        for (at, number) in (0..operations).flat_map(|at| [(at, 1), (at, 2)]) {
            let run = Run::new();
            run.disk.fail(at, number, fault);
            let run = run.ended();
            for fate in Fate::ALL {
                let point = run.disk.recorded();
                let disk = run.disk.after_power_loss(point, |_| fate);
                assert_restored(&run, point, &disk, &format!("{number} times {fault:?} at {at}, {fate:?}"));
            }
        }
    }
}

#[test]
fn wherever_the_disk_is_full_what_was_deleted_is_restored() {
    for room in (0..5000).step_by(31) {
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

#[test]
fn nothing_is_safe_in_a_file_that_was_removed_or_that_others_write_to() {
    let file = |run: &Run, name: &str| run.archive.path().join(name);
    for name in ["a/c.bson.zst", "journal.jsonl"] {
        let removes = |run: &Run| run.disk.remove(&file(run, name));
        let replaces = |run: &Run| {
            let bytes = run.disk.read(&file(run, name));
            run.disk.remove(&file(run, name));
            run.disk.write(&file(run, name), bytes);
        };
        let appends = |run: &Run| run.disk.write(&file(run, name), [run.disk.read(&file(run, name)), vec![0]].concat());
        for disturbs in [&removes as &dyn Fn(&Run), &replaces, &appends] {
            let mut run = Run::new();
            run.archive(("a", "c"), Compression::Zstd, 0..3).unwrap();
            disturbs(&run);
            for _ in 0..2 {
                run.archive(("a", "c"), Compression::Zstd, 3..5).unwrap_err();
            }
        }
    }
}

#[test]
fn the_manifest_has_the_totals_of_every_file() {
    let run = Run::new().ended();
    let manifest = directory::manifest(&run.disk, run.archive.path()).unwrap().unwrap();
    let totals = manifest.files.iter().map(|file| (file.record.file.as_str(), file.segments, file.documents, file.bytes));
    let bytes = |documents| documents * run.safe[1].1["a.c"].first().unwrap().len() as u64;
    let expected = [("a/c.bson.zst", 3, 6, bytes(6)), ("a/d.bson.gz", 2, 3, bytes(3)), ("b/c.bson.zst", 1, 4, bytes(4))];
    assert_eq!((manifest.complete, totals.collect::<Vec<_>>()), (true, expected.to_vec()));
}

#[test]
fn a_later_run_is_told_of_archives_that_were_cut_off_and_of_no_others() {
    let leftovers = |disk: &SimulatedDisk| directory::leftovers(disk, Path::new(DIRECTORY));
    let mut run = Run::new();
    run.archive(("a", "c"), Compression::Zstd, 0..3).unwrap();
    let (disk, path) = (run.disk.clone(), run.archive.path().to_owned());
    assert_eq!(leftovers(&disk), [], "it goes on");
    drop(run);
    assert_eq!(leftovers(&disk), [Leftover::Archive(path.clone())]);
    disk.remove(&path.join("journal.jsonl"));
    assert_eq!(leftovers(&disk), [Leftover::Archive(path)], "without its journal");

    let run = Run::new().ended();
    assert_eq!(leftovers(&run.disk), [], "it is complete");
    let empty = Path::new(DIRECTORY).join("20260131T020000Z-0");
    run.disk.create_directory(&empty).unwrap();
    run.disk.create_directory(&Path::new(DIRECTORY).join("other")).unwrap();
    run.disk.write(&Path::new(DIRECTORY).join("file"), Vec::new());
    assert_eq!(leftovers(&run.disk), [Leftover::Empty(empty)]);
}

/// Returns a run that goes on, with three segments of one file: 3, 2 and 1 documents. Returns the path and the length of the file
/// after each.
fn three_segments() -> (Run, PathBuf, Vec<usize>) {
    let mut run = Run::new();
    let path = run.archive.path().join("a/c.bson.zst");
    let mut lengths = Vec::new();
    for ids in [0..3, 3..5, 5..6] {
        run.archive(("a", "c"), Compression::Zstd, ids).unwrap();
        lengths.push(run.disk.read(&path).len());
    }
    (run, path, lengths)
}

#[test]
fn a_file_without_its_end_is_read_up_to_there_and_what_is_missing_is_counted() {
    let (run, path, lengths) = three_segments();
    let bytes = run.disk.read(&path);
    run.disk.write(&path, bytes[..=lengths[0]].to_vec());
    let found = read(&run.disk, run.archive.path()).unwrap();
    assert_eq!(found.documents, run.safe[1].1);
    assert_eq!(found.left, [format!("a.c: {} cut", lengths[2] - lengths[0]), "a.c: 3 missing".into()]);
    assert!(found.is_damaged);
    // A run that has ended knows how much it wrote.
    run.archive.end(Vec::new()).unwrap();
    let why = read(&run.disk, run.archive.path()).unwrap_err();
    assert!(why.contains("and more were written"), "{why}");
}

#[test]
fn a_last_segment_that_was_damaged_is_told_from_one_that_was_not_written_to_its_end() {
    for is_damaged in [false, true] {
        let (run, path, lengths) = three_segments();
        run.disk.remove(&run.archive.path().join("journal.jsonl"));
        match is_damaged {
            true => run.disk.flip(&path, lengths[2] - 1, 1),
            false => run.disk.write(&path, run.disk.read(&path)[..lengths[2] - 1].to_vec()),
        }
        let found = read(&run.disk, run.archive.path()).unwrap();
        assert_eq!((&found.documents, found.is_damaged), (&run.safe[2].1, is_damaged));
        let cut = if is_damaged { lengths[2] - lengths[1] } else { lengths[2] - lengths[1] - 1 };
        assert!(found.left.contains(&format!("a.c: {cut} cut")), "{:?}", found.left);
        assert!(found.left.contains(&"a.c: 5 unlisted".to_owned()), "{:?}", found.left);
    }
}
