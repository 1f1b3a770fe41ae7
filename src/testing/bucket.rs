//! A bucket in memory. Objects appear whole or not at all; requests fail, acknowledgements get lost, and objects come late.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::shell::archive::objects::{ObjectEntry, ObjectName, Objects};

/// A bucket that is shared by all its clones.
#[derive(Clone, Default)]
pub(crate) struct SimulatedBucket(Arc<Mutex<State>>);

/// The failure of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketFault {
    /// The request has no effect, and fails.
    Nothing,
    /// An object is put, and the acknowledgement is lost.
    Unacknowledged,
    /// An object is put later, once [`SimulatedBucket::settle`] is called, and the acknowledgement is lost.
    Late,
    /// An object is put with a flipped bit, and acknowledged. A request that only reads fails.
    Damaged,
    /// An object is acknowledged, and was not put.
    Forgotten,
}

impl BucketFault {
    pub(crate) const ALL: [Self; 5] = [Self::Nothing, Self::Unacknowledged, Self::Late, Self::Damaged, Self::Forgotten];
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    late: Vec<(String, Bytes)>,
    failing: Option<(Range<usize>, BucketFault)>,
    requests: usize,
    /// The puts that had an effect, in their order.
    record: Vec<(String, Bytes)>,
}

impl SimulatedBucket {
    /// Returns the number of requests so far, which may fail.
    pub(crate) fn requests(&self) -> usize {
        self.0.lock().requests
    }

    /// Returns the number of objects that were put so far: a point to which the bucket can be replayed.
    pub(crate) fn recorded(&self) -> usize {
        self.0.lock().record.len()
    }

    /// Returns the bucket as it was after so many objects.
    pub(crate) fn at(&self, point: usize) -> Self {
        let record = self.0.lock().record[..point].to_vec();
        Self(Arc::new(Mutex::new(State { objects: record.iter().cloned().collect(), record, ..State::default() })))
    }

    /// Lets some requests fail, after `after` others.
    pub(crate) fn fail(&self, after: usize, number: usize, fault: BucketFault) {
        let mut state = self.0.lock();
        let first = state.requests + after;
        state.failing = Some((first..first + number, fault));
    }

    /// Lets the objects appear that come late.
    pub(crate) fn settle(&self) {
        let mut state = self.0.lock();
        for (name, bytes) in std::mem::take(&mut state.late) {
            state.put(&name, bytes);
        }
    }

    /// Removes an object, or all objects in a folder.
    pub(crate) fn remove_folder(&self, folder: &str) {
        self.0.lock().objects.retain(|name, _| name != folder && inside(folder, name).is_none());
    }

    /// Returns the names of all objects.
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    /// Counts a request that only reads, and returns the objects.
    fn read<T>(&self, read: impl FnOnce(&BTreeMap<String, Bytes>) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock();
        match state.begin() {
            Some(_) => Err(failed()),
            None => read(&state.objects),
        }
    }
}

impl State {
    /// Counts a request; returns its fault.
    fn begin(&mut self) -> Option<BucketFault> {
        let number = self.requests;
        self.requests += 1;
        self.failing.as_ref().filter(|(failing, _)| failing.contains(&number)).map(|(_, fault)| *fault)
    }

    fn put(&mut self, name: &str, bytes: Bytes) {
        self.objects.insert(name.to_owned(), bytes.clone());
        self.record.push((name.to_owned(), bytes));
    }
}

fn failed() -> io::Error {
    io::Error::other("the simulated bucket failed")
}

impl Objects for SimulatedBucket {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        let mut state = self.0.lock();
        let fault = state.begin();
        match fault {
            Some(BucketFault::Nothing | BucketFault::Forgotten) => {}
            Some(BucketFault::Late) => state.late.push((name.to_owned(), bytes)),
            Some(BucketFault::Damaged) => {
                let flipped: Vec<u8> =
                    bytes.iter().enumerate().map(|(at, byte)| if at == 3 { byte ^ 1 } else { *byte }).collect();
                state.put(name, flipped.into());
            }
            Some(BucketFault::Unacknowledged) | None => state.put(name, bytes),
        }
        match fault {
            None | Some(BucketFault::Damaged | BucketFault::Forgotten) => Ok(()),
            Some(_) => Err(failed()),
        }
    }

    fn get(&self, names: &[&str]) -> io::Result<Vec<Bytes>> {
        let get = |name: &&str| self.read(|objects| objects.get(*name).cloned().ok_or(ErrorKind::NotFound.into()));
        names.iter().map(get).collect()
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Bytes> {
        let bytes = self.get(&[name])?.remove(0);
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + length).unwrap();
        if range.end <= bytes.len() { Ok(bytes.slice(range)) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        self.get(&[name]).map(|bytes| bytes[0].len() as u64)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<ObjectEntry>> {
        let entry = |(name, bytes): (&String, &Bytes)| ObjectEntry { name: name.clone(), size: bytes.len() as u64 };
        self.read(|objects| Ok(objects.iter().filter(|(name, _)| inside(folder, name).is_some()).map(entry).collect()))
    }

    fn names(&self, folder: &str) -> io::Result<Vec<ObjectName>> {
        let name = |name: &String| match inside(folder, name)?.split_once('/') {
            Some((name, _)) => Some(ObjectName { name: name.to_owned(), is_folder: true }),
            None => Some(ObjectName { name: inside(folder, name)?.to_owned(), is_folder: false }),
        };
        self.read(|objects| Ok(objects.keys().filter_map(name).collect::<BTreeSet<_>>().into_iter().collect()))
    }
}

/// Returns the name of an object inside of a folder.
fn inside<'a>(folder: &str, name: &'a str) -> Option<&'a str> {
    match folder {
        "" => Some(name),
        folder => name.strip_prefix(folder)?.strip_prefix('/'),
    }
}
