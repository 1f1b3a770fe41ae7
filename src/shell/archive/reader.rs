//! Reads the records of an archive, and compares them with each other and with the files that are there. All functions block.
//!
//! A complete archive is exactly what its manifest says, or it is refused. The archive of a run that was cut off has a journal,
//! whose end may be missing. What that end said is taken from the files with the documents, whose segments have checksums of
//! their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::directory::{self, Contents, JOURNAL, MANIFEST};
use super::disk::Disk;
use super::journal::{self, RecordedJournal};
use super::manifest::{FileRecord, FileTotals, Manifest};
use super::names::{collection_files, is_run_name};
use super::stored_file::StoredFile;
use crate::base::text::plural;
use crate::core::policy::namespace::why_never_swept;

pub use super::stored_file::Verified;

/// An archive as its journal and manifest describe it.
pub struct Stored {
    /// `None` if the journal was lost.
    pub run_id: Option<String>,
    /// The beginning of the run; `None` if it is in no record.
    pub started_at: Option<String>,
    /// Whether the run that wrote the archive has ended.
    pub complete: bool,
    /// The files of children first, each part sorted by namespace.
    pub files: Vec<StoredFile>,
    /// The losses of the records in words, each with its substitute.
    pub losses: Vec<String>,
    /// Files that belong to no archive, by their paths in it.
    pub strays: Vec<String>,
}

/// Reads the journal and the manifest of an archive, and lists its files.
///
/// Errors: the directory is not an archive, or the archive is damaged in a way that no crash explains.
pub fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<Stored, String> {
    let journal = match disk.open(&path.join(JOURNAL)) {
        Ok(file) => Some(journal::read(file.as_ref())?),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
        Err(cause) => return Err(format!("`{JOURNAL}`: {cause}")),
    };
    let manifest = directory::manifest(disk.as_ref(), path).map_err(|cause| format!("`{MANIFEST}`: {cause}"))?;
    let manifest = manifest.filter(|manifest| manifest.complete);
    let contents = directory::contents(disk.as_ref(), path).map_err(|cause| format!("listing its files: {cause}"))?;
    if journal.is_none() && manifest.is_none() && contents.data.is_empty() {
        let is_empty = contents.strays.is_empty() && is_run_name(path);
        return if is_empty { Ok(empty()) } else { Err(not_a_run(disk.as_ref(), path)) };
    }
    let mut losses = Vec::new();
    match &journal {
        None => losses.push(format!("`{JOURNAL}` is missing; what it said was taken from the other files")),
        Some(RecordedJournal { is_whole: false, .. }) => {
            losses
                .push(format!("`{JOURNAL}` is cut off or damaged at its end; what it said there was taken from the other files"));
        }
        _ => {}
    }
    let complete = manifest.is_some();
    let is_listed = complete && journal.is_some();
    let run = match (&journal, &manifest) {
        (Some(RecordedJournal { run: Some(run), .. }), _) => Some(run.clone()),
        (_, manifest) => manifest.as_ref().map(|manifest| (manifest.run_id.clone(), manifest.started_at.clone())),
    };
    let (run_id, started_at) = run.unzip();
    if let (Some(journal), Some(manifest)) = (&journal, &manifest) {
        compare(journal, manifest)?;
    }
    let totals = manifest.map(|manifest| manifest.files).unwrap_or_default();
    let mut totals: BTreeMap<String, FileTotals> =
        totals.into_iter().map(|totals| (totals.record.file.clone(), totals)).collect();
    let records = match journal {
        Some(journal) => journal.files,
        None => totals.values().map(|totals| (totals.record.clone(), Vec::new())).collect(),
    };
    let mut files = Vec::new();
    for (record, segments) in records {
        let mut file = of_record(&disk, path, &record)?;
        file.journal = segments;
        file.is_listed = is_listed;
        file.totals = totals.remove(&record.file);
        files.push(file);
    }
    let strays = take_others(&disk, path, contents, complete, &mut files, &mut losses)?;
    files.sort_by(|a, b| (!a.of_children, &a.namespace).cmp(&(!b.of_children, &b.namespace)));
    Ok(Stored { run_id, started_at, complete, files, losses, strays })
}

/// Returns the archive of a run that was ended before it archived anything.
fn empty() -> Stored {
    let why = "nothing is in it: the run was ended before it archived or deleted a document; the directory can be removed";
    Stored {
        run_id: None,
        started_at: None,
        complete: false,
        files: Vec::new(),
        losses: vec![why.to_owned()],
        strays: Vec::new(),
    }
}

/// Compares the journal of a complete archive with its manifest.
///
/// Errors: they differ.
fn compare(journal: &RecordedJournal, manifest: &Manifest) -> Result<(), String> {
    if !journal.is_whole {
        return Err(format!("`{JOURNAL}` is damaged, although the run has ended"));
    }
    if journal.run.as_ref() != Some(&(manifest.run_id.clone(), manifest.started_at.clone())) {
        return Err(format!("`{JOURNAL}` and `{MANIFEST}` are of different runs"));
    }
    let of_journal: BTreeSet<&FileRecord> = journal.files.iter().map(|(record, _)| record).collect();
    let of_manifest: BTreeSet<&FileRecord> = manifest.files.iter().map(|totals| &totals.record).collect();
    match of_journal.symmetric_difference(&of_manifest).next() {
        Some(record) => Err(format!("`{JOURNAL}` and `{MANIFEST}` differ about `{}`", record.file)),
        None => Ok(()),
    }
}

/// Returns the file that a record describes.
///
/// Errors: it is not one that a run writes.
fn of_record(disk: &Arc<dyn Disk>, run: &Path, record: &FileRecord) -> Result<StoredFile, String> {
    let is_inside = |file: &str| Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
    let is_written =
        |compression| collection_files(&record.namespace(), compression) == (record.file.clone(), record.metadata.clone());
    // Collections that are never swept are never archived: a record that names one was forged to write to the server's own
    // collections.
    let swept = why_never_swept(&record.database, &record.collection).is_none();
    match record.compression() {
        Some(compression) if swept && is_inside(&record.file) && is_written(compression) => Ok(StoredFile {
            namespace: record.namespace(),
            of_children: record.of_children,
            disk: disk.clone(),
            path: run.join(&record.file),
            compression,
            metadata: Some((run.join(&record.metadata), record.metadata_sha256.clone())),
            journal: Vec::new(),
            is_listed: false,
            totals: None,
        }),
        _ => Err(format!("the entry of `{}` is invalid", record.file)),
    }
}

/// Takes the files that no record names, if the run was cut off and their names tell their namespaces. Returns the others.
fn take_others(
    disk: &Arc<dyn Disk>,
    run: &Path,
    contents: Contents,
    complete: bool,
    files: &mut Vec<StoredFile>,
    losses: &mut Vec<String>,
) -> Result<Vec<String>, String> {
    let mut strays = contents.strays;
    let known: BTreeSet<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    for file in contents.data.into_iter().filter(|file| !known.contains(&run.join(file))) {
        let path = run.join(&file);
        let length = disk.open(&path).and_then(|opened| opened.length());
        // A file is created before the journal names it.
        if length.map_err(|cause| format!("`{file}`: {cause}"))? == 0 {
            continue;
        }
        let named = directory::namespace_of(disk.as_ref(), run, &file).filter(|_| !complete);
        match named.filter(|(namespace, _)| why_never_swept(&namespace.database, &namespace.collection).is_none()) {
            Some((namespace, compression)) => {
                losses.push(format!("`{file}` is in no record; its name says that it is of {namespace}"));
                let (disk, metadata, journal) = (disk.clone(), None, Vec::new());
                let (of_children, is_listed, totals) = (false, false, None);
                files.push(StoredFile { namespace, of_children, disk, path, compression, metadata, journal, is_listed, totals });
            }
            None => strays.push(file),
        }
    }
    Ok(strays)
}

fn not_a_run(disk: &dyn Disk, path: &Path) -> String {
    let entries = disk.entries(path).unwrap_or_default().into_iter().map(|entry| path.join(entry.name));
    let runs: Vec<PathBuf> = entries.filter(|run| disk.open(&run.join(JOURNAL)).is_ok()).collect();
    match runs.last() {
        Some(last) => {
            let runs = plural(runs.len() as u64, "run");
            format!("it holds the archives of {runs}; expected the directory of one, such as `{}`", last.display())
        }
        None => format!("no `{JOURNAL}` in it; expected the directory of one run, as the report names it"),
    }
}
