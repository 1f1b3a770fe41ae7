//! Files that are only appended to and must stay where they are, and the directories they are in. Everything in here blocks.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is only appended to, and that must stay where it is.
pub struct Tracked {
    pub path: PathBuf,
    pub file: File,
    /// Bytes that count.
    pub length: u64,
}

impl Tracked {
    pub fn create(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file, length: 0 })
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes)?;
        self.check(self.length + bytes.len() as u64)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes bytes that do not count yet.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.is_long(self.file.metadata()?.len(), self.length)?;
        self.file.write_all(bytes)
    }

    /// Whether the file is still what its path leads to, and so long: one that was removed takes writes as before, and they are lost.
    pub fn check(&self, length: u64) -> io::Result<()> {
        let (open, named) = (self.file.metadata()?, std::fs::metadata(&self.path)?);
        if (open.dev(), open.ino()) != (named.dev(), named.ino()) || open.nlink() == 0 {
            return Err(io::Error::other("another file has taken its place"));
        }
        self.is_long(open.len(), length)
    }

    fn is_long(&self, found: u64, expected: u64) -> io::Result<()> {
        if found == expected {
            return Ok(());
        }
        Err(io::Error::other(format!("it has {found} bytes, {expected} were written: something else writes to it")))
    }

    /// Takes back what does not count.
    pub fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.length)
    }
}

/// Makes a directory that only its owner may look into, and makes sure that it stays after a crash.
pub fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_directory(parent)
}

pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
