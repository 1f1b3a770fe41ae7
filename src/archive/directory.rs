//! The directory of archives that a policy names.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use super::name::{JOURNAL, MANIFEST};

/// Checks that a directory exists and can be written.
///
/// Errors: the reason why not, and what to do.
pub fn probe(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    let metadata = fs::metadata(directory)
        .map_err(|cause| format!("`archive`: the directory `{shown}`: {cause}; create it before the run"))?;
    if !metadata.is_dir() {
        return Err(format!("`archive`: `{shown}` is not a directory; expected one that exists"));
    }
    let tried = tempfile::Builder::new().prefix(".sweeper-").tempfile_in(directory);
    tried.map(drop).map_err(|cause| format!("`archive`: the directory `{shown}` cannot be written: {}", plain(&cause)))
}

/// Returns an error of the operating system without the path that `tempfile` adds to it.
fn plain(cause: &io::Error) -> String {
    cause.raw_os_error().map_or_else(|| cause.to_string(), |code| io::Error::from_raw_os_error(code).to_string())
}

/// Returns the archives of runs that were cut off, in the order of time. Archives that another process is writing are left out.
pub fn leftovers(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut leftovers: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| was_cut_off(path)).collect();
    leftovers.sort();
    leftovers
}

/// Opens a file of an archive for reading.
///
/// Errors: those of opening, or it is not a regular file: reading a pipe would wait.
pub fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() { File::open(path) } else { Err(io::Error::other("not a regular file")) }
}

/// Whether a run ended without a manifest of a complete archive and no process is writing to it.
fn was_cut_off(run: &Path) -> bool {
    let Ok(journal) = open(&run.join(JOURNAL)) else { return false };
    let is_in_use = matches!(journal.try_lock_shared(), Err(TryLockError::WouldBlock));
    !is_in_use && !matches!(manifest(run), Ok(Some(Manifest { complete: true, .. })))
}

/// Reads the manifest of a run; `None` if it has none.
///
/// Errors: the manifest cannot be read.
pub fn manifest(run: &Path) -> io::Result<Option<Manifest>> {
    match open(&run.join(MANIFEST)) {
        Ok(file) => Ok(Some(serde_json::from_str(&io::read_to_string(file)?)?)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}
