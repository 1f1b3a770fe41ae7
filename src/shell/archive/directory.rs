//! The directory that a policy names for archives, the state in which earlier runs left it, and the files in the directory of a
//! run.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::disk::{DirEntry, Disk, EntryKind, ReadFile};
use super::frame;
use super::manifest::Manifest;
use super::names::{METADATA, collection_of, is_run_name, is_stem_of, stem};
use super::seal::Seal;
use crate::core::policy::Compression;
use crate::core::policy::namespace::Namespace;

/// Name of the journal in the directory of a run.
pub const JOURNAL: &str = "journal.jsonl";
/// Name of the manifest in the directory of a run.
pub const MANIFEST: &str = "manifest.json";
/// Name of the manifest while it is written.
pub const NEW_MANIFEST: &str = "manifest.json.new";

/// Returns the directories of the runs in a directory, oldest first; only the directory itself if it is the directory of a run.
///
/// Errors: the directory cannot be listed.
pub fn runs(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let has_record = |entries: &[DirEntry]| entries.iter().any(|entry| [JOURNAL, MANIFEST].contains(&entry.name.as_str()));
    let entries = disk.entries(directory)?;
    if is_run_name(directory) || has_record(&entries) {
        return Ok(vec![directory.to_owned()]);
    }
    let run = |DirEntry { name, kind }| {
        let path = directory.join(name);
        let is_found = match kind {
            EntryKind::Directory => is_run_name(&path) || disk.entries(&path).is_ok_and(|entries| has_record(&entries)),
            // It is not followed, but is not passed over in silence either: reading it says so.
            EntryKind::Link => is_run_name(&path),
            EntryKind::Other => false,
        };
        is_found.then_some(path)
    };
    Ok(entries.into_iter().filter_map(run).collect())
}

/// Whether a process is writing to the archive of a run.
pub fn is_being_written(disk: &dyn Disk, run: &Path) -> bool {
    disk.open(&run.join(JOURNAL)).is_ok_and(|journal| journal.is_locked())
}

/// Maximum number of archives on another machine whose records are read to find those of runs that were cut off.
const MAX_READ_REMOTELY: usize = 10;

/// Returns the archives of runs that were cut off, oldest first. Archives that another process is writing are left out where
/// that is known. Of a bucket only the newest archives are looked at: each costs several requests.
pub fn leftovers(disk: &dyn Disk, directory: &Path) -> Vec<Leftover> {
    let Ok(entries) = disk.entries(directory) else { return Vec::new() };
    let older = if disk.is_remote() { entries.len().saturating_sub(MAX_READ_REMOTELY) } else { 0 };
    entries.into_iter().skip(older).filter_map(|entry| leftover(disk, directory.join(entry.name))).collect()
}

/// The archive of a run that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    Archive(PathBuf),
    /// Nothing is in it: the run was ended before it archived or deleted anything.
    Empty(PathBuf),
}

/// Returns an archive if it has no manifest of a complete one, and no process is writing to it.
fn leftover(disk: &dyn Disk, run: PathBuf) -> Option<Leftover> {
    match disk.open(&run.join(JOURNAL)) {
        Ok(journal) if journal.is_locked() => return None,
        Ok(_) => {}
        Err(_) if !is_run_name(&run) => return None,
        Err(_) if disk.entries(&run).ok()?.is_empty() => return Some(Leftover::Empty(run)),
        Err(_) => {}
    }
    let is_complete = matches!(manifest(disk, &run), Ok(Some(Manifest { complete: true, .. })));
    (!is_complete).then_some(Leftover::Archive(run))
}

/// Reads the manifest of a run; `None` if it has none.
///
/// Errors: the manifest cannot be read, or is damaged.
pub fn manifest(disk: &dyn Disk, run: &Path) -> io::Result<Option<Manifest>> {
    match disk.open(&run.join(MANIFEST)) {
        Ok(file) => {
            let damaged = || io::Error::other(format!("it is damaged{WITHOUT}"));
            let json = Seal::INDENTED.open(&whole(file.as_ref())?).ok_or_else(damaged)?;
            serde_json::from_slice(&json).map(Some).map_err(|_| damaged())
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// The files in the directory of a run, by their paths relative to it.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Files that hold documents by their names.
    pub data: Vec<String>,
    /// Files that belong to no archive.
    pub strays: Vec<String>,
}

/// Lists the files in the directory of a run.
pub(super) fn contents(disk: &dyn Disk, run: &Path) -> io::Result<Contents> {
    let mut contents = Contents::default();
    for DirEntry { name: database, kind } in disk.entries(run)? {
        if kind != EntryKind::Directory {
            if ![JOURNAL, MANIFEST, NEW_MANIFEST].contains(&database.as_str()) {
                contents.strays.push(database);
            }
            continue;
        }
        for DirEntry { name, kind } in disk.entries(&run.join(&database))? {
            let (file, is_directory) = (format!("{database}/{name}"), kind == EntryKind::Directory);
            match stem(&name) {
                Some(_) if !is_directory => contents.data.push(file),
                // Metadata holds no documents. The metadata of a file which was not begun is left by a run that was killed.
                _ if !is_directory && METADATA.iter().any(|end| name.ends_with(end)) => {}
                _ => contents.strays.push(file),
            }
        }
    }
    Ok(contents)
}

/// Returns the namespace of a file from its name, or if the name was cut, from its metadata.
pub(super) fn namespace_of(disk: &dyn Disk, run: &Path, file: &str) -> Option<(Namespace, Compression)> {
    let (database, name) = file.split_once('/')?;
    let (stem, compression) = stem(name)?;
    let of_metadata = || {
        let [plain, zipped] = METADATA.map(|end| run.join(database).join(format!("{stem}{end}")));
        let path = if compression == Compression::Gzip { zipped } else { plain };
        let metadata = Metadata::read(&whole(disk.open(&path).ok()?.as_ref()).ok()?, compression)?;
        is_stem_of(stem, &metadata.collection_name).then_some(metadata.collection_name)
    };
    let collection = collection_of(stem).or_else(of_metadata)?;
    Some((Namespace { database: database.to_owned(), collection }, compression))
}

/// The part of a metadata file that is read.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    collection_name: String,
    /// Paths of the shard key with which the `_id` is unique only together.
    pub shard_key: Vec<String>,
}

impl Metadata {
    /// Reads the bytes of a metadata file, which is compressed beside documents that are compressed by gzip; `None` if it has
    /// another form.
    pub(super) fn read(bytes: &[u8], compression: Compression) -> Option<Self> {
        match compression {
            Compression::Zstd => serde_json::from_slice(bytes).ok(),
            Compression::Gzip => serde_json::from_slice(&frame::first(bytes, compression)?.1).ok(),
        }
    }
}

/// The remedy if the journal or the manifest is damaged.
pub(super) const WITHOUT: &str = " (if it is moved out of the directory, the other files are read without it)";

/// Maximum size of a file that is read as a whole: the manifest of some 400,000 collections.
const MAX_WHOLE: u64 = 256 * 1024 * 1024;

/// Reads a whole file.
///
/// Errors: it cannot be read, or is far too long.
pub(super) fn whole(file: &dyn ReadFile) -> io::Result<Vec<u8>> {
    let length = file.length()?;
    if length > MAX_WHOLE {
        return Err(io::Error::other(format!("it has {length} bytes; expected at most {MAX_WHOLE}")));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}
