//! Files that are only appended to and must not be moved or removed, and their directories. All functions block.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is only appended to, and that must not be moved or removed.
pub(super) struct Tracked {
    pub path: PathBuf,
    pub file: File,
    /// Bytes that count as written.
    pub length: u64,
}

impl Tracked {
    /// Creates a file that only its owner may read.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file, length: 0 })
    }

    /// Appends bytes that count as written immediately.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes)?;
        self.check(self.length + bytes.len() as u64)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Appends bytes that do not count as written yet; [`Tracked::cut`] removes them.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_length(self.file.metadata()?.len(), self.length)?;
        self.file.write_all(bytes)
    }

    /// Checks that the path still leads to this file and that the file has this length. Writes to a removed file succeed but are
    /// lost.
    pub(super) fn check(&self, length: u64) -> io::Result<()> {
        let (open, named) = (self.file.metadata()?, std::fs::metadata(&self.path)?);
        if (open.dev(), open.ino()) != (named.dev(), named.ino()) || open.nlink() == 0 {
            return Err(io::Error::other("another file has taken its place"));
        }
        self.check_length(open.len(), length)
    }

    fn check_length(&self, found: u64, expected: u64) -> io::Result<()> {
        if found == expected {
            return Ok(());
        }
        Err(io::Error::other(format!("it has {found} bytes, {expected} were written: something else writes to it")))
    }

    /// Removes the bytes that do not count as written.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)
    }
}

/// Creates a directory that only its owner may read, and syncs its parent, so that the directory survives a crash.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_directory(parent)
}

/// Syncs the entries of a directory to the disk.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
