//! The disks and buckets of the sweepers, and what a loss of power would leave of the archives in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bson::{Document, RawDocumentBuf};
use parking_lot::Mutex;

use super::relations::name_of;
use super::scenario::{ARCHIVES, Scenario};
use crate::shell::archive::disk::{BucketDisk, Disk};
use crate::shell::archive::reader;
use crate::testing::bucket::{BucketFault, SimulatedBucket};
use crate::testing::disk::{Fate, SimulatedDisk};

/// The fates of bytes and names that were not synced.
const FATES: [Fate; 5] = Fate::ALL;

/// The states of documents that an archive holds, each with its namespace.
type States = BTreeSet<(String, Vec<u8>)>;

/// The last states of documents in an archive, by namespace and the name of the `_id`.
pub(super) type LastStates = BTreeMap<(String, String), Document>;

impl Scenario {
    /// Lets the archives be in buckets, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn put_in_buckets(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x6275_636b_6574);
        self.in_buckets = self.archives && random.bool();
    }
}

/// The place of the archives of one sweeper.
#[derive(Clone)]
pub(super) enum Place {
    Disk(SimulatedDisk),
    Bucket(SimulatedBucket),
}

impl Place {
    /// Returns the place as a disk.
    pub(super) fn disk(&self) -> Arc<dyn Disk> {
        match self {
            Self::Disk(disk) => Arc::new(disk.clone()),
            Self::Bucket(bucket) => Arc::new(BucketDisk::on(ARCHIVES.into(), String::new(), Ok(Arc::new(bucket.clone())))),
        }
    }

    /// Returns the number of changes so far.
    fn recorded(&self) -> usize {
        match self {
            Self::Disk(disk) => disk.recorded(),
            Self::Bucket(bucket) => bucket.recorded(),
        }
    }

    /// Returns the place as it is; no request to a bucket fails.
    fn untroubled(&self) -> Self {
        match self {
            Self::Disk(_) => self.clone(),
            Self::Bucket(bucket) => Self::Bucket(bucket.at(bucket.recorded())),
        }
    }

    /// Returns the place as a loss of power leaves it after so many changes: a bucket loses nothing.
    fn after_power_loss(&self, point: usize, fate: impl FnMut(&Path) -> Fate) -> Self {
        match self {
            Self::Disk(disk) => Self::Disk(disk.after_power_loss(point, fate)),
            Self::Bucket(bucket) => Self::Bucket(bucket.at(point)),
        }
    }
}

/// The disk or the bucket of one sweeper.
pub(super) struct SweeperDisk(Mutex<Place>);

impl SweeperDisk {
    pub(super) fn new(in_bucket: bool) -> Arc<Self> {
        let place = match in_bucket {
            false => Place::Disk(SimulatedDisk::with_directory(Path::new(ARCHIVES))),
            true => Place::Bucket(SimulatedBucket::default()),
        };
        Arc::new(Self(Mutex::new(place)))
    }

    /// Leaves room for so many bytes; a bucket takes no more requests after a while.
    pub(super) fn set_room(&self, bytes: usize) {
        match self.get() {
            Place::Disk(disk) => disk.set_room(Some(bytes)),
            Place::Bucket(bucket) => bucket.fail(bytes / 400, usize::MAX / 2, BucketFault::Nothing),
        }
    }

    /// Lets some requests to a bucket fail: objects are not there, or come late, or are there although nothing says so.
    pub(super) fn trouble(&self, random: &mut fastrand::Rng) {
        if let Place::Bucket(bucket) = self.get() {
            const FAULTS: [BucketFault; 4] =
                [BucketFault::Nothing, BucketFault::Unacknowledged, BucketFault::Late, BucketFault::Forgotten];
            bucket.fail(random.usize(..60), random.usize(1..4), FAULTS[random.usize(..FAULTS.len())]);
        }
    }

    /// Returns the disk as it is now.
    pub(super) fn get(&self) -> Place {
        self.0.lock().clone()
    }

    /// Returns the disk as it is now, which no run changes any more.
    pub(super) fn copy(&self) -> Place {
        let disk = self.0.lock();
        if let Place::Bucket(bucket) = &*disk {
            bucket.settle();
        }
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
            *seen = (usize::MAX - 1, self.states(&disk.untroubled()));
        }
        holds(&seen.1, namespace, document)
    }

    fn states(&self, place: &Place) -> Result<States, String> {
        let disk = place.disk();
        let entries = disk.entries(Path::new(ARCHIVES)).map_err(|cause| cause.to_string())?;
        let entry = entries.into_iter().find(|entry| entry.name.ends_with(&self.run));
        let name = entry.ok_or("it does not exist")?.name;
        let mut states = States::new();
        for file in reader::open(disk, &Path::new(ARCHIVES).join(name))?.files {
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
pub(super) fn directory(place: &Place, run: &str) -> Option<PathBuf> {
    let entry = place.disk().entries(Path::new(ARCHIVES)).ok()?.into_iter().find(|entry| entry.name.ends_with(run))?;
    Some(Path::new(ARCHIVES).join(entry.name))
}

/// Returns the documents that an archive holds, each in the state that was archived last, by namespace and the name of the `_id`.
///
/// Errors: the archive cannot be read.
pub(super) fn last_states(place: &Place, directory: &Path) -> Result<LastStates, String> {
    let mut states = LastStates::new();
    for file in reader::open(place.disk(), directory)?.files {
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
