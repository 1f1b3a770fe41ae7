//! The disk that archives are written to and read from: the file system, a bucket, or in tests one that can be full, fail, and
//! lose power. All functions block.

mod bucket;
mod real;

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::core::policy::BucketUrl;
pub(crate) use bucket::BucketDisk;
pub use real::RealDisk;

/// Returns the disk with a directory or a bucket that a user named. Whatever is not the URL of a bucket is a directory.
pub fn below(root: &Path) -> Arc<dyn Disk> {
    match BucketUrl::of(root) {
        Some(Ok(url)) => Arc::new(BucketDisk::below(url)),
        _ => Arc::new(RealDisk::below(root)),
    }
}

/// A file system, as far as archives need one.
///
/// A change survives a loss of power only once it is synced. The bytes of a file are synced by [`WriteFile::sync`], its name by
/// [`Disk::sync_directory`] of its directory, and the name of that directory in turn by syncing its parent.
pub trait Disk: Send + Sync {
    /// Returns what is below a directory that a user named: it may be a link or lie below one, but below it no link is followed.
    fn below(&self, root: &Path) -> Arc<dyn Disk>;

    /// Checks that a directory exists and can be written.
    ///
    /// Errors: the reason why it cannot be used, with a remedy.
    fn probe(&self, directory: &Path) -> Result<(), String>;

    /// Whether it is another machine, which answers each request after a while.
    fn is_remote(&self) -> bool {
        false
    }

    /// Creates a directory that only its owner may read.
    ///
    /// Errors: it exists already, or cannot be created.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Syncs the names in a directory.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Creates a file that only its owner may read.
    ///
    /// Errors: it exists already, or cannot be created.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Writes a whole file, and syncs it and its name. Under its path no reader finds a part of it. `new` is a path in the same
    /// directory, for a disk that writes it there first.
    fn publish(&self, path: &Path, new: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Opens a file for reading.
    ///
    /// Errors: it cannot be opened, or is not a regular file: reading a pipe would block, and a link may lead out of the archive.
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>>;

    /// Returns what a directory holds, in the order of the names. Names that are not valid UTF-8 have replacement characters.
    fn entries(&self, directory: &Path) -> io::Result<Vec<DirEntry>>;
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: String,
    pub kind: EntryKind,
}

/// Kind of an entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    Directory,
    /// A symbolic link, wherever it leads.
    Link,
    /// A regular file, a pipe, a socket or a device.
    Other,
}

/// A file that was created to be appended to.
pub trait WriteFile: Send + Sync {
    /// Appends all of these bytes.
    ///
    /// Errors: some of them may have been written.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Syncs the bytes of the file and its length.
    fn sync(&self) -> io::Result<()>;

    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Cuts the file off.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Locks the file for as long as it is open.
    fn lock(&self) -> io::Result<()>;

    /// Tells whether a path leads to this file.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

/// A file that was opened for reading.
pub trait ReadFile: Send + Sync {
    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer with the bytes at an offset.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Whether a process that is alive has locked the file.
    fn is_locked(&self) -> bool;
}
