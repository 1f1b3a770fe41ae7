//! A bucket as a disk. A file that grows is a folder of objects, one for each sync, whose names are numbers: put together in this
//! order they are the file. Any other file is one object.
//!
//! Bytes get into the bucket only when they are synced. Objects are never removed, and never replaced by other bytes.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::{DirEntry, Disk, EntryKind, ReadFile, WriteFile};
use crate::core::policy::BucketUrl;
use crate::shell::archive::directory::JOURNAL;
use crate::shell::archive::names::stem;
use crate::shell::archive::objects::{self, ObjectEntry, ObjectName, Objects};

/// Digits of the name of an object that is a part of a file.
const DIGITS: usize = 8;

/// Bytes of a journal that are put into the bucket before it is synced.
const MAX_JOURNAL_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of a part that is read as a whole. No segment is larger.
const MAX_WHOLE_PART: u64 = 40 * 1024 * 1024;

/// Maximum number of parts that are read at a time, and their size above which no further one is read.
const MAX_AHEAD: (usize, u64) = (32, 8 * 1024 * 1024);

/// The objects below a URL.
#[derive(Clone)]
pub(crate) struct BucketDisk {
    /// Beginning of the paths of all objects.
    root: PathBuf,
    /// Beginning of their names.
    prefix: String,
    /// The objects, or the reason why they cannot be reached.
    objects: Result<Arc<dyn Objects>, String>,
}

impl BucketDisk {
    /// Returns what is below a URL. Nothing is contacted yet.
    pub(super) fn below(url: BucketUrl) -> Self {
        Self::on(PathBuf::from(url.to_string()), url.prefix.clone(), objects::open(&url))
    }

    /// Returns objects as files below a path. Their names begin with a prefix in place of it.
    pub(crate) fn on(root: PathBuf, prefix: String, objects: Result<Arc<dyn Objects>, String>) -> Self {
        Self { root, prefix, objects }
    }

    fn objects(&self) -> io::Result<&Arc<dyn Objects>> {
        self.objects.as_ref().map_err(|why| io::Error::other(why.clone()))
    }

    /// Returns the name of the object or the folder at a path.
    fn name(&self, path: &Path) -> io::Result<String> {
        let outside = || io::Error::other(format!("`{}` is not below `{}`", path.display(), self.root.display()));
        let mut name = self.prefix.clone();
        for part in path.strip_prefix(&self.root).map_err(|_| outside())?.components() {
            let Component::Normal(part) = part else { return Err(outside()) };
            if !name.is_empty() {
                name.push('/');
            }
            name += part.to_str().ok_or_else(outside)?;
        }
        Ok(name)
    }
}

/// Whether the file of this name grows.
fn grows(name: &str) -> bool {
    name == JOURNAL || stem(name).is_some()
}

/// Returns the last part of a name.
fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

impl Disk for BucketDisk {
    fn below(&self, root: &Path) -> Arc<dyn Disk> {
        Arc::new(Self { root: root.to_owned(), ..self.clone() })
    }

    fn probe(&self, directory: &Path) -> Result<(), String> {
        // Whether it can be written is seen when the archive is begun, before anything is deleted.
        let listed = self.name(directory).and_then(|name| self.objects()?.names(&name));
        listed.map(drop).map_err(|cause| format!("`archive`: listing `{}`: {cause}", directory.display()))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        // Folders are only names, but one that is there already may be of another run.
        let is_free = self.objects()?.names(&self.name(path)?)?.is_empty();
        if is_free { Ok(()) } else { Err(ErrorKind::AlreadyExists.into()) }
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let name = self.name(path)?;
        let state = Mutex::new(Unsynced { bytes: Vec::new(), length: 0, parts: 0, is_unsure: false });
        Ok(Box::new(BucketWriter { objects: self.objects()?.clone(), name, state }))
    }

    fn publish(&self, path: &Path, _: &Path, bytes: &[u8]) -> io::Result<()> {
        put(self.objects()?.as_ref(), &self.name(path)?, bytes.to_vec().into())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadFile>> {
        let (objects, name) = (self.objects()?.clone(), self.name(path)?);
        let parts = if grows(last(&name)) { parts(objects.list(&name)?)? } else { Vec::new() };
        let parts = match parts.is_empty() {
            // Somebody may have put the parts together.
            true => vec![ObjectEntry { size: objects.size(&name)?, name }],
            false => parts,
        };
        Ok(Box::new(BucketReader { objects, parts, kept: Mutex::default() }))
    }

    fn entries(&self, directory: &Path) -> io::Result<Vec<DirEntry>> {
        let entry = |ObjectName { name, is_folder }| {
            let kind = if is_folder && !grows(&name) { EntryKind::Directory } else { EntryKind::Other };
            DirEntry { name, kind }
        };
        let mut entries: Vec<DirEntry> = self.objects()?.names(&self.name(directory)?)?.into_iter().map(entry).collect();
        entries.sort();
        entries.dedup_by(|one, other| one.name == other.name);
        Ok(entries)
    }
}

/// Returns the parts of a file in their order, of all objects in its folder.
///
/// Errors: a part is missing.
fn parts(objects: Vec<ObjectEntry>) -> io::Result<Vec<ObjectEntry>> {
    let is_part = |object: &ObjectEntry| last(&object.name).len() == DIGITS && number(object).is_some();
    let parts: Vec<ObjectEntry> = objects.into_iter().filter(is_part).collect();
    match parts.iter().zip(0_u64..).find(|(part, expected)| number(part) != Some(*expected)) {
        Some((_, missing)) => Err(io::Error::other(format!("its part {missing:0DIGITS$} is missing"))),
        None => Ok(parts),
    }
}

fn number(object: &ObjectEntry) -> Option<u64> {
    last(&object.name).parse().ok()
}

/// Puts an object, and compares it with what the store returns for it.
///
/// Errors: the store did not acknowledge it, or returns something else.
fn put(objects: &dyn Objects, name: &str, bytes: Bytes) -> io::Result<()> {
    objects.put(name, bytes.clone())?;
    let compared = |cause: &dyn std::fmt::Display| io::Error::other(format!("reading the object `{name}` back: {cause}"));
    let is_same = match bytes.is_empty() {
        true => objects.size(name).map_err(|cause| compared(&cause))? == 0,
        false => objects.get(&[name]).map_err(|cause| compared(&cause))? == [bytes],
    };
    if is_same { Ok(()) } else { Err(compared(&"it has other bytes than were written")) }
}

/// A file that is written.
struct BucketWriter {
    objects: Arc<dyn Objects>,
    name: String,
    state: Mutex<Unsynced>,
}

/// The end of a file, which is not in the bucket yet.
struct Unsynced {
    bytes: Vec<u8>,
    /// Bytes that are in the bucket.
    length: u64,
    /// Objects that are in the bucket.
    parts: u32,
    /// Whether an object may be in the bucket that does not count as written.
    is_unsure: bool,
}

impl BucketWriter {
    /// Puts the bytes that are not in the bucket yet, if there are any, and an empty object for an empty file.
    fn put(&self, state: &mut Unsynced) -> io::Result<()> {
        if state.bytes.is_empty() && state.parts > 0 {
            return Ok(());
        }
        if state.is_unsure {
            return Err(io::Error::other("an object before was not acknowledged"));
        }
        let (is_part, parts) = (grows(last(&self.name)), state.parts);
        if !is_part && parts > 0 {
            return Err(io::Error::other("it is written already"));
        }
        let name = if is_part { format!("{}/{parts:0DIGITS$}", self.name) } else { self.name.clone() };
        let length = state.bytes.len() as u64;
        put(self.objects.as_ref(), &name, std::mem::take(&mut state.bytes).into()).inspect_err(|_| state.is_unsure = true)?;
        state.length += length;
        state.parts += 1;
        Ok(())
    }
}

impl WriteFile for BucketWriter {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.bytes.extend_from_slice(bytes);
        match last(&self.name) == JOURNAL && state.bytes.len() >= MAX_JOURNAL_BYTES {
            true => self.put(&mut state),
            false => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.put(&mut self.state.lock())
    }

    fn length(&self) -> io::Result<u64> {
        let state = self.state.lock();
        Ok(state.length + state.bytes.len() as u64)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let kept = length.checked_sub(state.length).and_then(|kept| usize::try_from(kept).ok());
        match kept {
            Some(kept) if !state.is_unsure => {
                state.bytes.truncate(kept);
                Ok(())
            }
            _ => Err(io::Error::other("an object cannot be taken back")),
        }
    }

    fn lock(&self) -> io::Result<()> {
        // No store has locks that end with their process.
        Ok(())
    }

    fn is_at(&self, _: &Path) -> io::Result<bool> {
        // Each object was read back under its name.
        Ok(true)
    }
}

/// A file that is read.
struct BucketReader {
    objects: Arc<dyn Objects>,
    /// In the order of the file.
    parts: Vec<ObjectEntry>,
    kept: Mutex<Kept>,
}

/// Parts that were read last, in the order of the file.
#[derive(Default)]
struct Kept {
    first: usize,
    parts: Vec<Bytes>,
    /// The number of the part that was asked for last.
    last: Option<usize>,
}

impl BucketReader {
    /// Reads some bytes of one part.
    fn read_part(&self, number: usize, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let ObjectEntry { name, size } = &self.parts[number];
        let other_size = || io::Error::other(format!("the object `{name}` has another size than the list of objects says"));
        if *size > MAX_WHOLE_PART {
            let bytes = self.objects.get_range(name, offset, buffer.len() as u64)?;
            if bytes.len() != buffer.len() {
                return Err(other_size());
            }
            buffer.copy_from_slice(&bytes);
            return Ok(());
        }
        let mut kept = self.kept.lock();
        let before = kept.last.replace(number);
        if !(kept.first..kept.first + kept.parts.len()).contains(&number) {
            let wanted = self.ahead(number, before);
            // The earlier ones go first, so that both are not in memory.
            (kept.first, kept.parts) = (wanted.start, Vec::new());
            let names: Vec<&str> = self.parts[wanted].iter().map(|part| part.name.as_str()).collect();
            kept.parts = self.objects.get(&names)?;
        }
        let bytes = kept.parts.get(number - kept.first).filter(|bytes| bytes.len() as u64 == *size).ok_or_else(other_size)?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]);
        Ok(())
    }

    /// Returns the parts to read together with one, in the direction in which the file is read.
    fn ahead(&self, number: usize, before: Option<usize>) -> Range<usize> {
        let mut size = 0;
        let fits = |part: &&ObjectEntry| {
            size += part.size;
            size <= MAX_AHEAD.1
        };
        match before {
            Some(before) if before + 1 == number => {
                number..number + self.parts[number..].iter().take(MAX_AHEAD.0).take_while(fits).count().max(1)
            }
            Some(before) if before == number + 1 => {
                number + 1 - self.parts[..=number].iter().rev().take(MAX_AHEAD.0).take_while(fits).count().max(1)..number + 1
            }
            _ => number..number + 1,
        }
    }
}

impl ReadFile for BucketReader {
    fn length(&self) -> io::Result<u64> {
        Ok(self.parts.iter().map(|part| part.size).sum())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut begin, mut at, mut rest) = (0, offset, buffer);
        for (number, part) in self.parts.iter().enumerate() {
            let end = begin + part.size;
            if at < end && !rest.is_empty() {
                let fitting = usize::try_from(end - at).unwrap_or(usize::MAX).min(rest.len());
                let (first, after) = rest.split_at_mut(fitting);
                self.read_part(number, first, at - begin)?;
                at += fitting as u64;
                rest = after;
            }
            begin = end;
        }
        if rest.is_empty() { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn is_locked(&self) -> bool {
        false
    }
}
