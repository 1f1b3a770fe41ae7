//! The state of a simulated disk, and what a loss of power leaves of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The fate of something that was not synced when the power went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Lost,
    Kept,
    /// Of the bytes of a file, the first half is kept. A name is kept.
    Half,
    /// The bytes of a file are NULs. A name is kept.
    Nuls,
    /// The first half of the bytes are NULs, and the rest are kept. A name is kept.
    NulsThenKept,
}

impl Fate {
    pub(crate) const ALL: [Self; 5] = [Self::Lost, Self::Kept, Self::Half, Self::Nuls, Self::NulsThenKept];
}

/// A file, by its number: a file that is renamed keeps it.
pub(super) type FileId = usize;

/// The directories, names and bytes of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Image {
    pub directories: BTreeSet<PathBuf>,
    pub names: BTreeMap<PathBuf, FileId>,
    pub contents: BTreeMap<FileId, Vec<u8>>,
}

/// A change of the disk.
#[derive(Debug, Clone)]
pub(super) enum Change {
    CreateDirectory(PathBuf),
    Create(PathBuf, FileId),
    Rename(PathBuf, PathBuf),
    SyncDirectory(PathBuf),
    Append(FileId, Vec<u8>),
    Truncate(FileId, usize),
    Sync(FileId),
    /// A sync that failed: the bytes written to the file since the last one never reach the disk.
    SyncFailed(FileId),
}

impl Change {
    /// Returns the directory whose names are changed.
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::CreateDirectory(path) | Self::Create(path, _) | Self::Rename(_, path) => path.parent(),
            _ => None,
        }
    }
}

impl Image {
    /// Returns the number of a new file.
    pub(super) fn next_id(&self) -> FileId {
        self.contents.keys().last().map_or(0, |last| last + 1)
    }

    /// Returns what a loss of power leaves after these changes. `fate` is asked about each name and each file that was not
    /// synced.
    pub(super) fn after_power_loss(&self, record: &[Change], mut fate: impl FnMut(&Path) -> Fate) -> Self {
        let mut image = self.clone();
        let mut open: Vec<&Change> = Vec::new();
        for change in record {
            // The effect of a sync: what it covers happens to the image for good.
            let covers = |earlier: &Change| match (change, earlier) {
                (Change::Sync(id), Change::Append(of, _) | Change::Truncate(of, _)) => id == of,
                (Change::SyncDirectory(directory), name) => name.directory() == Some(directory),
                _ => false,
            };
            match change {
                Change::Sync(_) | Change::SyncDirectory(_) => {
                    let (synced, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|earlier| covers(earlier));
                    synced.into_iter().for_each(|earlier| image.apply(earlier));
                    open = rest;
                }
                Change::SyncFailed(id) => {
                    open.retain(|earlier| !matches!(earlier, Change::Append(of, _) | Change::Truncate(of, _) if of == id));
                }
                _ => open.push(change),
            }
        }
        let mut of_files: BTreeMap<FileId, Vec<&Change>> = BTreeMap::new();
        let mut paths: BTreeMap<FileId, PathBuf> = image.names.iter().map(|(path, id)| (*id, path.clone())).collect();
        for change in open {
            match change {
                Change::Append(id, _) | Change::Truncate(id, _) => of_files.entry(*id).or_default().push(change),
                Change::CreateDirectory(path) | Change::Create(path, _) | Change::Rename(_, path) => {
                    if let Change::Create(_, id) = change {
                        paths.insert(*id, path.clone());
                    }
                    if fate(path) != Fate::Lost {
                        image.apply(change);
                    }
                }
                _ => {}
            }
        }
        for (id, changes) in of_files {
            let fate = fate(&paths[&id]);
            image.settle(id, &changes, fate);
        }
        image.drop_unreachable();
        image
    }

    /// Makes a change. A sync changes nothing that is seen.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::CreateDirectory(path) => drop(self.directories.insert(path.clone())),
            Change::Create(path, id) => {
                self.names.insert(path.clone(), *id);
                self.contents.entry(*id).or_default();
            }
            Change::Rename(from, to) => {
                if let Some(id) = self.names.remove(from) {
                    self.names.insert(to.clone(), id);
                }
            }
            Change::Append(id, bytes) => self.contents.entry(*id).or_default().extend_from_slice(bytes),
            Change::Truncate(id, length) => self.contents.entry(*id).or_default().truncate(*length),
            Change::SyncDirectory(_) | Change::Sync(_) | Change::SyncFailed(_) => {}
        }
    }

    /// Gives a file the bytes that were not synced, by their fate.
    fn settle(&mut self, id: FileId, changes: &[&Change], fate: Fate) {
        let before = self.contents.entry(id).or_default().clone();
        changes.iter().for_each(|change| self.apply(change));
        let after = self.contents.entry(id).or_default();
        let same = before.len().min(after.len());
        let half = same + (after.len() - same) / 2;
        match fate {
            Fate::Lost => *after = before,
            Fate::Kept => {}
            Fate::Half => after.truncate(half),
            Fate::Nuls => after[same..].fill(0),
            Fate::NulsThenKept => after[same..half].fill(0),
        }
    }

    /// Removes what is in a directory that was lost.
    fn drop_unreachable(&mut self) {
        let all = self.directories.clone();
        let is_there = |path: &Path| path.ancestors().skip(1).all(|directory| all.contains(directory));
        self.directories.retain(|path| is_there(path));
        self.names.retain(|path, _| is_there(path));
        let named: BTreeSet<FileId> = self.names.values().copied().collect();
        self.contents.retain(|id, _| named.contains(id));
    }
}
