//! A disk in memory that records every write and sync, and that can be full, fail and lose power.
//!
//! POSIX promises nothing about what was not synced, so each file and each name has its own fate when the power goes. A name or
//! a file is lost or kept; of the bytes of a file a part may be kept. The file system ext4 leaves NULs where the length of a
//! file was written and its bytes were not.

mod image;

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub(crate) use image::Fate;
use image::{Change, FileId, Image};

use crate::shell::archive::disk::{DirEntry, Disk, EntryKind, ReadFile, WriteFile};

/// A disk that is shared by all its clones.
#[derive(Clone, Default)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

/// The failure of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The operation does nothing.
    Nothing,
    /// An append writes half of its bytes; any other operation does nothing.
    Half,
    /// The operation has its effect, and fails nevertheless. A sync fails as on Linux: what it should have synced never reaches
    /// the disk, and the next sync succeeds.
    Done,
}

#[derive(Default)]
struct State {
    /// The state in which the disk was created.
    base: Image,
    record: Vec<Change>,
    now: Image,
    locked: BTreeSet<FileId>,
    /// Bytes that may still be written.
    room: Option<usize>,
    /// The operations that fail, by their numbers.
    failing: Option<(Range<usize>, Fault)>,
    operations: usize,
    /// The files that were opened for reading, and the bytes that were read.
    reads: (usize, usize),
}

impl SimulatedDisk {
    /// Creates a disk with an empty directory, which survives a loss of power.
    pub(crate) fn with_directory(path: &Path) -> Self {
        let directories = path.ancestors().map(Path::to_owned).collect();
        Self::of(Image { directories, ..Image::default() })
    }

    fn of(base: Image) -> Self {
        Self(Arc::new(Mutex::new(State { now: base.clone(), base, ..State::default() })))
    }

    /// Returns the number of changes so far: a point to which the disk can be replayed.
    pub(crate) fn recorded(&self) -> usize {
        self.0.lock().record.len()
    }

    /// Returns the number of operations so far, which may fail.
    pub(crate) fn operations(&self) -> usize {
        self.0.lock().operations
    }

    /// Returns the number of files that were opened for reading, and the bytes that were read.
    pub(crate) fn reads(&self) -> (usize, usize) {
        self.0.lock().reads
    }

    /// Limits the bytes that may still be written.
    pub(crate) fn set_room(&self, bytes: Option<usize>) {
        self.0.lock().room = bytes;
    }

    /// Lets some operations fail, after `after` others.
    pub(crate) fn fail(&self, after: usize, number: usize, fault: Fault) {
        let mut state = self.0.lock();
        let first = state.operations + after;
        state.failing = Some((first..first + number, fault));
    }

    /// Flips bits of a file, as a disk that is damaged.
    pub(crate) fn flip(&self, path: &Path, at: usize, bits: u8) {
        let mut state = self.0.lock();
        let id = state.now.names[path];
        state.now.contents.get_mut(&id).unwrap()[at] ^= bits;
    }

    /// Replaces the bytes of a file, or creates it.
    pub(crate) fn write(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        let next = state.now.next_id();
        let id = state.now.names.get(path).copied().unwrap_or(next);
        state.now.names.insert(path.to_owned(), id);
        state.now.contents.insert(id, bytes);
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.lock().make(Change::Rename(from.to_owned(), to.to_owned()))
    }

    pub(crate) fn remove(&self, path: &Path) {
        self.0.lock().now.names.remove(path);
    }

    pub(crate) fn read(&self, path: &Path) -> Vec<u8> {
        let state = self.0.lock();
        state.now.contents[&state.now.names[path]].clone()
    }

    /// Returns the paths of all files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.0.lock().now.names.keys().cloned().collect()
    }

    /// Returns the disk as a loss of power leaves it after the first `point` changes. `fate` is asked about each name and each
    /// file that was not synced.
    pub(crate) fn after_power_loss(&self, point: usize, fate: impl FnMut(&Path) -> Fate) -> Self {
        let state = self.0.lock();
        Self::of(state.base.after_power_loss(&state.record[..point], fate))
    }
}

impl State {
    /// Counts an operation; returns its fault.
    fn begin(&mut self) -> Option<Fault> {
        let number = self.operations;
        self.operations += 1;
        self.failing.as_ref().filter(|(failing, _)| failing.contains(&number)).map(|(_, fault)| *fault)
    }

    fn change(&mut self, change: Change) {
        self.now.apply(&change);
        self.record.push(change);
    }

    /// Makes a change that is whole or not at all.
    fn make(&mut self, change: Change) -> io::Result<()> {
        let fault = self.begin();
        if matches!(fault, None | Some(Fault::Done)) {
            self.change(change);
        }
        fault.map_or(Ok(()), |_| Err(failed()))
    }

    fn is_free(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if !self.now.directories.contains(parent) {
            return Err(ErrorKind::NotFound.into());
        }
        let is_taken = self.now.directories.contains(path) || self.now.names.contains_key(path);
        if is_taken { Err(ErrorKind::AlreadyExists.into()) } else { Ok(()) }
    }
}

fn failed() -> io::Error {
    io::Error::other("the simulated disk failed")
}

impl Disk for SimulatedDisk {
    fn below(&self, _: &Path) -> Arc<dyn Disk> {
        // It has no links.
        Arc::new(self.clone())
    }

    fn probe(&self, directory: &Path) -> Result<(), String> {
        let is_there = self.0.lock().now.directories.contains(directory);
        is_there.then_some(()).ok_or_else(|| "the simulated disk lacks the directory".into())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.is_free(path)?;
        state.make(Change::CreateDirectory(path.to_owned()))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.now.directories.contains(path) {
            return Err(ErrorKind::NotFound.into());
        }
        state.make(Change::SyncDirectory(path.to_owned()))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut state = self.0.lock();
        state.is_free(path)?;
        let id = state.now.next_id();
        state.make(Change::Create(path.to_owned(), id))?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), id, has_lock: Mutex::new(false) }))
    }

    fn publish(&self, path: &Path, new: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.create(new)?;
        file.append(bytes)?;
        file.sync()?;
        self.rename(new, path)?;
        self.sync_directory(path.parent().unwrap_or(Path::new("")))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        let mut state = self.0.lock();
        let id = *state.now.names.get(path).ok_or(ErrorKind::NotFound)?;
        state.reads.0 += 1;
        Ok(Box::new(SimulatedFile { disk: self.clone(), id, has_lock: Mutex::new(false) }))
    }

    fn entries(&self, directory: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.0.lock();
        if !state.now.directories.contains(directory) {
            return Err(ErrorKind::NotFound.into());
        }
        let directories = state.now.directories.iter().map(|path| (path, EntryKind::Directory));
        let of = directories.chain(state.now.names.keys().map(|path| (path, EntryKind::Other)));
        let of = of.filter(|(path, _)| path.parent() == Some(directory));
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut entries: Vec<DirEntry> = of.map(|(path, kind)| DirEntry { name: name(path), kind }).collect();
        entries.sort();
        Ok(entries)
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    id: FileId,
    has_lock: Mutex<bool>,
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        if *self.has_lock.lock() {
            self.disk.0.lock().locked.remove(&self.id);
        }
    }
}

impl WriteFile for SimulatedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let fault = state.begin();
        let fitting = state.room.map_or(bytes.len(), |room| room.min(bytes.len()));
        let written = match fault {
            Some(Fault::Nothing) => 0,
            Some(Fault::Half) => fitting / 2,
            Some(Fault::Done) | None => fitting,
        };
        state.room = state.room.map(|room| room - written);
        state.change(Change::Append(self.id, bytes[..written].to_vec()));
        match fault {
            Some(_) => Err(failed()),
            None if fitting < bytes.len() => Err(ErrorKind::StorageFull.into()),
            None => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        match state.begin() {
            None => {
                state.change(Change::Sync(self.id));
                return Ok(());
            }
            Some(Fault::Done) => state.change(Change::SyncFailed(self.id)),
            Some(Fault::Nothing | Fault::Half) => {}
        }
        Err(failed())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().now.contents[&self.id].len() as u64)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.disk.0.lock().make(Change::Truncate(self.id, length))
    }

    fn lock(&self) -> io::Result<()> {
        if !self.disk.0.lock().locked.insert(self.id) {
            return Err(ErrorKind::WouldBlock.into());
        }
        *self.has_lock.lock() = true;
        Ok(())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let state = self.disk.0.lock();
        Ok(*state.now.names.get(path).ok_or(ErrorKind::NotFound)? == self.id)
    }
}

impl ReadFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        WriteFile::length(self)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.reads.1 += buffer.len();
        let content = &state.now.contents[&self.id];
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let end = from.checked_add(buffer.len()).ok_or(ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(content.get(from..end).ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn is_locked(&self) -> bool {
        self.disk.0.lock().locked.contains(&self.id)
    }
}

mod tests {
    use super::*;

    const DIRECTORY: &str = "/d";

    fn path(name: &str) -> PathBuf {
        Path::new(DIRECTORY).join(name)
    }

    /// Returns the content of each file after a loss of power.
    fn left(disk: &SimulatedDisk, fate: Fate) -> Vec<(String, Vec<u8>)> {
        let disk = disk.after_power_loss(disk.recorded(), |_| fate);
        let files = disk.entries(Path::new(DIRECTORY)).unwrap();
        let read = |name: &str| {
            let file = disk.open(&path(name)).unwrap();
            let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
            file.read_at(&mut bytes, 0).unwrap();
            bytes
        };
        files.into_iter().map(|entry| (entry.name.clone(), read(&entry.name))).collect()
    }

    fn named(name: &str, bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
        vec![(name.to_owned(), bytes.to_owned())]
    }

    #[test]
    fn what_was_not_synced_has_any_fate_and_what_was_synced_stays() {
        let disk = SimulatedDisk::with_directory(Path::new(DIRECTORY));
        let file = disk.create(&path("f")).unwrap();
        file.append(b"ab").unwrap();
        file.sync().unwrap();
        assert_eq!(left(&disk, Fate::Lost), [], "the name is not synced");
        disk.sync_directory(Path::new(DIRECTORY)).unwrap();
        file.append(b"cdef").unwrap();
        let fates = Fate::ALL.map(|fate| left(&disk, fate));
        let bytes: [&[u8]; 5] = [b"ab", b"abcdef", b"abcd", b"ab\0\0\0\0", b"ab\0\0ef"];
        assert_eq!(fates, bytes.map(|bytes| named("f", bytes)));
        file.truncate(2).unwrap();
        file.sync().unwrap();
        disk.rename(&path("f"), &path("g")).unwrap();
        assert_eq!([Fate::Lost, Fate::Kept].map(|fate| left(&disk, fate)), [named("f", b"ab"), named("g", b"ab")]);
        disk.sync_directory(Path::new(DIRECTORY)).unwrap();
        assert_eq!(left(&disk, Fate::Lost), named("g", b"ab"));
    }

    #[test]
    fn operations_fail_as_asked() {
        let disk = SimulatedDisk::with_directory(Path::new(DIRECTORY));
        let file = disk.create(&path("f")).unwrap();
        disk.sync_directory(Path::new(DIRECTORY)).unwrap();
        for (fault, written) in [(Fault::Nothing, 0), (Fault::Half, 2), (Fault::Done, 4)] {
            file.truncate(0).unwrap();
            disk.fail(1, 1, fault);
            assert!(file.length().is_ok() && file.truncate(0).is_ok() && file.append(b"abcd").is_err());
            assert_eq!(file.length().unwrap(), written, "{fault:?}");
        }
        disk.fail(0, 1, Fault::Done);
        assert!(file.sync().is_err() && file.sync().is_ok());
        assert_eq!(left(&disk, Fate::Kept), named("f", b""), "a failed sync has lost the bytes");
        disk.set_room(Some(3));
        assert_eq!(file.append(b"abcd").unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!((file.length().unwrap(), disk.operations()), (7, 14));
    }

    #[test]
    fn a_lock_is_held_until_its_file_is_closed() {
        let disk = SimulatedDisk::with_directory(Path::new(DIRECTORY));
        let file = disk.create(&path("f")).unwrap();
        let is_locked = || disk.open(&path("f")).unwrap().is_locked();
        assert!(!is_locked());
        file.lock().unwrap();
        assert!(is_locked());
        drop(file);
        assert!(!is_locked());
    }
}
