//! The file system.

mod descent;

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, statat};

use super::{DirEntry, Disk, EntryKind, ReadFile, WriteFile};
use crate::base::output::without_path;
use descent::Root;

/// The file system of this machine, below a directory.
#[derive(Debug, Clone)]
pub struct RealDisk(Root);

impl RealDisk {
    /// Returns what is below a directory, which may be a link or lie below one.
    pub fn below(root: &Path) -> Self {
        Self(Root(root.to_owned()))
    }
}

/// The working directory.
impl Default for RealDisk {
    fn default() -> Self {
        Self::below(Path::new("."))
    }
}

impl Disk for RealDisk {
    fn below(&self, root: &Path) -> Arc<dyn Disk> {
        super::below(root)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.0.parent(path)?;
        Ok(mkdirat(parent, name, Mode::RWXU)?)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::from(self.0.directory(path)?).sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let (parent, name) = self.0.parent(path)?;
        // `EXCL`: no link is followed either.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Box::new(RealWriter { file: file.into(), root: self.0.clone() }))
    }

    fn publish(&self, path: &Path, new: &Path, bytes: &[u8]) -> io::Result<()> {
        let ((parent, name), (_, new_name)) = (self.0.parent(path)?, self.0.parent(new)?);
        let file = self.create(new)?;
        file.append(bytes)?;
        file.sync()?;
        renameat(&parent, new_name, &parent, name)?;
        File::from(parent).sync_all()
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        Ok(Box::new(RealReader(self.0.file(path)?.into())))
    }

    fn probe(&self, directory: &Path) -> Result<(), String> {
        let shown = directory.display();
        let metadata = fs::metadata(directory)
            .map_err(|cause| format!("`archive`: the directory `{shown}`: {cause}; create it before the run"))?;
        if !metadata.is_dir() {
            return Err(format!("`archive`: `{shown}` is not a directory; expected one that exists"));
        }
        let tried = tempfile::Builder::new().prefix(".sweeper-").tempfile_in(directory);
        tried.map(drop).map_err(|cause| format!("`archive`: the directory `{shown}` cannot be written: {}", without_path(&cause)))
    }

    fn entries(&self, directory: &Path) -> io::Result<Vec<DirEntry>> {
        let directory = self.0.directory(directory)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                // Some file systems do not tell.
                FileType::Unknown => {
                    FileType::from_raw_mode(statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
                }
                kind => kind,
            };
            let kind = match kind {
                FileType::Directory => EntryKind::Directory,
                FileType::Symlink => EntryKind::Link,
                _ => EntryKind::Other,
            };
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => entries.push(DirEntry { name: String::from_utf8_lossy(name).into_owned(), kind }),
            }
        }
        entries.sort();
        Ok(entries)
    }
}

/// A file that is written.
struct RealWriter {
    file: File,
    root: Root,
}

impl WriteFile for RealWriter {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn lock(&self) -> io::Result<()> {
        self.file.lock()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let (parent, name) = self.root.parent(path)?;
        let (open, named) = (fstat(&self.file)?, statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?);
        Ok((open.st_dev, open.st_ino) == (named.st_dev, named.st_ino) && open.st_nlink > 0)
    }
}

/// A file that is read.
struct RealReader(File);

impl ReadFile for RealReader {
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
