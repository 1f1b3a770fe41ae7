//! Damaged archives: whatever bit is flipped, no document is restored that was not archived.

use std::path::{Path, PathBuf};

use super::power_loss::{Documents, Run, read};
use crate::testing::disk::{Fate, SimulatedDisk};

/// Returns an archive on a disk, its directory, and the documents in it.
fn whole() -> (SimulatedDisk, PathBuf, Documents) {
    let run = Run::new().ended();
    let documents = run.safe_at(usize::MAX).clone();
    (run.disk.clone(), run.archive.path().to_owned(), documents)
}

/// Returns an archive without a manifest, whose journal does not list the last segment of a file.
fn cut_off() -> (SimulatedDisk, PathBuf, Documents) {
    let (disk, run, documents) = whole();
    disk.remove(&run.join("manifest.json"));
    let journal = disk.read(&run.join("journal.jsonl"));
    let last = journal[..journal.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    disk.write(&run.join("journal.jsonl"), journal[..last].to_vec());
    (disk, run, documents)
}

/// Calls `check` with the disk with each bit of each file flipped.
fn with_each_bit(disk: &SimulatedDisk, mut check: impl FnMut(&Path, &str)) {
    for path in disk.files() {
        for at in 0..disk.read(&path).len() {
            for bit in 0..8 {
                disk.flip(&path, at, 1 << bit);
                check(&path, &format!("{}: bit {bit} of byte {at}", path.display()));
                disk.flip(&path, at, 1 << bit);
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_a_complete_archive_is_found_before_the_first_document_is_read() {
    let (disk, run, documents) = whole();
    assert_eq!(read(&disk, &run).map(|read| (read.documents, read.left)), Ok((documents, Vec::new())));
    assert_eq!(disk.files().len(), 2 + 3 * 2);
    with_each_bit(&disk, |_, what| {
        let why = read(&disk, &run).map(|read| read.documents).expect_err(what);
        assert!(why.contains("damaged") || why.contains("it has the format"), "{what}: {why}");
    });
}

#[test]
fn a_flipped_bit_of_an_archive_that_was_cut_off_is_found_or_changes_nothing() {
    let (disk, run, documents) = cut_off();
    let unharmed = read(&disk, &run).unwrap();
    assert_eq!((&unharmed.documents, unharmed.left.as_slice()), (&documents, &["a.d: 1 unlisted".to_owned()][..]));
    let (mut found, mut harmless) = (0, Vec::new());
    with_each_bit(&disk, |path, what| match read(&disk, &run) {
        Err(_) => found += 1,
        Ok(read) if read.left != unharmed.left => {
            // The records have lost something, which is said, or the last segment of a file is damaged.
            assert!(read.documents.iter().all(|(of, some)| documents.get(of).is_some_and(|all| some.is_subset(all))), "{what}");
            let is_journal = path.ends_with("journal.jsonl");
            // A damaged segment at the end of a file may look like one that was cut off.
            let is_said = read.is_damaged || read.left.iter().any(|left| left.ends_with(" cut"));
            assert!(read.documents == documents || !is_journal && is_said, "{what}: {:?}", read.left);
            found += 1;
        }
        Ok(read) => {
            assert_eq!(read.documents, documents, "{what}");
            harmless.push(what.to_owned());
        }
    });
    // The header of a segment that the journal does not list: gzip says there when and where it was compressed.
    assert!(harmless.iter().all(|what| what.contains("/a/d.bson.gz: ")), "{harmless:?}");
    assert!(found > 40 * harmless.len(), "{found} found, {} not", harmless.len());
}

#[test]
fn what_the_records_lost_is_read_from_the_files() {
    let (disk, run, documents) = whole();
    let journal = disk.read(&run.join("journal.jsonl"));
    let manifest = disk.read(&run.join("manifest.json"));
    for has_manifest in [true, false] {
        disk.write(&run.join("manifest.json"), manifest.clone());
        if !has_manifest {
            disk.remove(&run.join("manifest.json"));
        }
        for cut in 0..journal.len() {
            for with in [
                Vec::new(),
                vec![0; journal.len() - cut],
                vec![0; 3],
                [vec![0; 9], journal[journal.len() - 20..].to_vec()].concat(),
            ] {
                disk.write(&run.join("journal.jsonl"), [&journal[..cut], &with].concat());
                let read = read(&disk, &run);
                if has_manifest {
                    assert!(read.is_err(), "cut at {cut}: {read:?}");
                } else {
                    let read = read.unwrap();
                    assert_eq!(read.documents, documents, "cut at {cut}, then {with:?}");
                    assert!(!read.is_damaged && !read.left.is_empty(), "cut at {cut}: {read:?}");
                }
            }
        }
        disk.remove(&run.join("journal.jsonl"));
        let read = read(&disk, &run).unwrap();
        assert_eq!((read.documents, read.is_damaged), (documents.clone(), false));
        assert!(read.left[0].contains("`journal.jsonl` is missing"), "{:?}", read.left);
        disk.write(&run.join("journal.jsonl"), journal.clone());
    }
}

#[test]
fn files_that_belong_to_no_archive_are_named() {
    let (disk, run, documents) = whole();
    for file in ["notes.txt", "a/notes.txt", "a/e.bson.zst"] {
        disk.write(&run.join(file), vec![1]);
        let read = read(&disk, &run).unwrap();
        assert_eq!((read.documents, read.left), (documents.clone(), vec![format!("stray {file}")]));
        disk.remove(&run.join(file));
    }
    // Left by a run that was killed: no documents are in them.
    for file in ["manifest.json.new", "a/e.metadata.json"] {
        disk.write(&run.join(file), vec![1]);
    }
    disk.write(&run.join("a/e.bson.zst"), Vec::new());
    assert_eq!(read(&disk, &run).map(|read| (read.documents, read.left)), Ok((documents, Vec::new())));
}

#[test]
fn the_directory_of_a_run_that_was_killed_at_once_is_an_empty_archive() {
    let run = Run::new().ended();
    let first = |count| run.disk.after_power_loss(count, |_| Fate::Kept);
    let path = run.archive.path();
    assert!(read(&first(0), path).is_err());
    for changes in 1..4 {
        let read = read(&first(changes), path).unwrap_or_else(|why| panic!("{changes}: {why}"));
        assert!(read.documents.is_empty() && !read.left.is_empty(), "{changes}: {read:?}");
    }
}
