//! Files that are only appended to and must not be moved or removed, and their directories. All functions block.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::disk::{Disk, WriteFile};

/// A file that is only appended to, and that must not be moved or removed.
pub(super) struct Tracked {
    pub path: PathBuf,
    file: Box<dyn WriteFile>,
    /// Bytes that count as written.
    pub length: u64,
}

impl Tracked {
    /// Creates a file that only its owner may read.
    pub(super) fn create(disk: &dyn Disk, path: PathBuf) -> io::Result<Self> {
        let file = disk.create(&path)?;
        Ok(Self { path, file, length: 0 })
    }

    /// Locks the file for as long as it is open.
    pub(super) fn lock(&self) -> io::Result<()> {
        self.file.lock()
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Appends bytes that count as written immediately.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_length(self.length)?;
        self.file.append(bytes)?;
        self.check(self.length + bytes.len() as u64)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Returns a writer of bytes that do not count as written yet; [`Tracked::cut`] removes them. `whole` has the bytes before.
    ///
    /// Errors: something else has written to the file.
    pub(super) fn part(&self, whole: Sha256) -> io::Result<FilePart<'_>> {
        self.check_length(self.length)?;
        Ok(FilePart { file: self.file.as_ref(), length: 0, sha256: Sha256::new(), whole })
    }

    /// Checks that the path still leads to this file and that the file has this length. Writes to a removed file succeed but are
    /// lost.
    pub(super) fn check(&self, length: u64) -> io::Result<()> {
        if !self.file.is_at(&self.path)? {
            return Err(io::Error::other("another file has taken its place"));
        }
        self.check_length(length)
    }

    fn check_length(&self, expected: u64) -> io::Result<()> {
        let found = self.file.length()?;
        if found == expected {
            return Ok(());
        }
        Err(io::Error::other(format!("it has {found} bytes, {expected} were written: something else writes to it")))
    }

    /// Removes the bytes that do not count as written.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        self.file.truncate(self.length)
    }
}

/// Appends to a file, and computes the length and the checksum of what it appends, and the checksum of the file.
pub(super) struct FilePart<'a> {
    file: &'a dyn WriteFile,
    pub length: u64,
    pub sha256: Sha256,
    pub whole: Sha256,
}

impl Write for FilePart<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.append(bytes)?;
        self.sha256.update(bytes);
        self.whole.update(bytes);
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a directory that only its owner may read, and syncs its parent, so that the directory survives a loss of power.
pub(super) fn create_directory(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.create_directory(path)?;
    disk.sync_directory(path.parent().unwrap_or(Path::new("")))
}
