//! The file system.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{Disk, Entry, ReadFile, WriteFile};

/// The file system of this machine.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        File::open(path)?.sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(RealFile(OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Box::new(RealFile(File::open(path)?)))
    }

    fn probe(&self, directory: &Path) -> Result<(), String> {
        let shown = directory.display();
        let metadata = fs::metadata(directory)
            .map_err(|cause| format!("`archive`: the directory `{shown}`: {cause}; create it before the run"))?;
        if !metadata.is_dir() {
            return Err(format!("`archive`: `{shown}` is not a directory; expected one that exists"));
        }
        let tried = tempfile::Builder::new().prefix(".sweeper-").tempfile_in(directory);
        tried.map(drop).map_err(|cause| format!("`archive`: the directory `{shown}` cannot be written: {}", plain(&cause)))
    }

    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let is_directory = entry.path().is_dir();
            Ok(Entry { name: entry.file_name().to_string_lossy().into_owned(), is_directory })
        };
        let mut entries = fs::read_dir(directory)?.map(entry).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    }
}

/// Returns an error of the operating system without the path that `tempfile` adds to it.
fn plain(cause: &io::Error) -> String {
    cause.raw_os_error().map_or_else(|| cause.to_string(), |code| io::Error::from_raw_os_error(code).to_string())
}

struct RealFile(File);

impl WriteFile for RealFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let (open, named) = (self.0.metadata()?, fs::metadata(path)?);
        Ok((open.dev(), open.ino()) == (named.dev(), named.ino()) && open.nlink() > 0)
    }
}

impl ReadFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn is_locked(&self) -> bool {
        matches!(self.0.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}
