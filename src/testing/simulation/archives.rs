//! The disks of the sweepers, and what a loss of power would leave of the archives on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bson::{Document, RawDocumentBuf};
use parking_lot::Mutex;

use super::relations::name_of;
use super::scenario::ARCHIVES;
use crate::shell::archive::disk::Disk;
use crate::shell::archive::reader;
use crate::testing::disk::{Fate, SimulatedDisk};

/// The fates of bytes and names that were not synced.
const FATES: [Fate; 5] = Fate::ALL;

/// The states of documents that an archive holds, each with its namespace.
type States = BTreeSet<(String, Vec<u8>)>;

/// The last states of documents in an archive, by namespace and the name of the `_id`.
pub(super) type LastStates = BTreeMap<(String, String), Document>;

/// The disk of one sweeper.
pub(super) struct SweeperDisk(Mutex<SimulatedDisk>);

impl SweeperDisk {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(SimulatedDisk::with_directory(Path::new(ARCHIVES)))))
    }

    /// Returns the disk as it is now.
    pub(super) fn get(&self) -> SimulatedDisk {
        self.0.lock().clone()
    }

    /// Returns the disk as it is now, which no run changes any more.
    pub(super) fn copy(&self) -> SimulatedDisk {
        let disk = self.0.lock();
        disk.after_power_loss(disk.recorded(), |_| Fate::Kept)
    }

    /// Loses the power: of what was not synced, some is lost.
    pub(super) fn lose_power(&self, random: &mut fastrand::Rng) {
        let mut disk = self.0.lock();
        let after = disk.after_power_loss(disk.recorded(), |_| FATES[random.usize(..FATES.len())]);
        *disk = after;
    }

    /// Returns the archive of a run.
    pub(super) fn archive(self: &Arc<Self>, run: &str) -> Arc<RunArchive> {
        Arc::new(RunArchive { disk: self.clone(), run: run.to_owned(), seen: Mutex::new((usize::MAX, Ok(States::new()))) })
    }
}

/// The archive of one run.
pub(super) struct RunArchive {
    disk: Arc<SweeperDisk>,
    run: String,
    /// The state that a loss of power would have left after so many changes of the disk.
    seen: Mutex<(usize, Result<States, String>)>,
}

impl RunArchive {
    /// Whether a document could be restored in this very state if the power were lost now.
    ///
    /// Errors: the archive could not be read then.
    pub(super) fn would_hold(&self, namespace: &str, document: &Document) -> Result<bool, String> {
        let disk = self.disk.get();
        let point = disk.recorded();
        let mut seen = self.seen.lock();
        if seen.0 != point {
            // Each point has another fate, and over all seeds each has all.
            let fate = FATES[point % FATES.len()];
            *seen = (point, self.states(&disk.after_power_loss(point, |_| fate)));
        }
        holds(&seen.1, namespace, document)
    }

    /// Whether a document can be restored in this very state.
    ///
    /// Errors: the archive cannot be read.
    pub(super) fn does_hold(&self, namespace: &str, document: &Document) -> Result<bool, String> {
        let disk = self.disk.get();
        let mut seen = self.seen.lock();
        if seen.0 != usize::MAX - 1 {
            *seen = (usize::MAX - 1, self.states(&disk));
        }
        holds(&seen.1, namespace, document)
    }

    fn states(&self, disk: &SimulatedDisk) -> Result<States, String> {
        let entries = disk.entries(Path::new(ARCHIVES)).map_err(|cause| cause.to_string())?;
        let entry = entries.into_iter().find(|entry| entry.name.ends_with(&self.run));
        let name = entry.ok_or("it does not exist")?.name;
        let mut states = States::new();
        for file in reader::open(Arc::new(disk.clone()), &Path::new(ARCHIVES).join(name))?.files {
            let verified = file.verify()?;
            for place in &verified.segments {
                let documents = verified.read(place)?.into_iter().map(RawDocumentBuf::into_bytes);
                states.extend(documents.map(|document| (verified.namespace.to_string(), document)));
            }
        }
        Ok(states)
    }
}

/// Returns the directory of the archive of a run; `None` if it has made none.
pub(super) fn directory(disk: &SimulatedDisk, run: &str) -> Option<PathBuf> {
    let entry = disk.entries(Path::new(ARCHIVES)).ok()?.into_iter().find(|entry| entry.name.ends_with(run))?;
    Some(Path::new(ARCHIVES).join(entry.name))
}

/// Returns the documents that an archive holds, each in the state that was archived last, by namespace and the name of the `_id`.
///
/// Errors: the archive cannot be read.
pub(super) fn last_states(disk: &SimulatedDisk, directory: &Path) -> Result<LastStates, String> {
    let mut states = LastStates::new();
    for file in reader::open(Arc::new(disk.clone()), directory)?.files {
        let verified = file.verify()?;
        for place in &verified.segments {
            for document in verified.read(place)? {
                let document = Document::try_from(&*document).map_err(|cause| cause.to_string())?;
                let id = document.get("_id").map(name_of).unwrap_or_default();
                states.insert((verified.namespace.to_string(), id), document);
            }
        }
    }
    Ok(states)
}

/// Whether two documents are the same to the last bit, unlike numbers that are not equal to themselves.
pub(super) fn are_same(one: &Document, other: &Document) -> bool {
    bytes(one).is_ok_and(|one| bytes(other).is_ok_and(|other| one == other))
}

fn bytes(document: &Document) -> Result<Vec<u8>, String> {
    Ok(RawDocumentBuf::try_from(document).map_err(|cause| cause.to_string())?.into_bytes())
}

fn holds(states: &Result<States, String>, namespace: &str, document: &Document) -> Result<bool, String> {
    let bytes = bytes(document)?;
    states.as_ref().map(|states| states.contains(&(namespace.to_owned(), bytes))).map_err(Clone::clone)
}
