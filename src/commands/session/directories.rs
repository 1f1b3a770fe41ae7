//! The places that the rules of a plan archive to, tried before anything is deleted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::core::plan::{Decision, Plan, SweepRule};
use crate::core::policy::{ArchivePlace, BucketUrl};
use crate::shell::archive::blocking;
use crate::shell::archive::directory::{self, Leftover};
use crate::shell::archive::disk::Disk;

/// Tries the places that the rules of a plan archive to, and fails a rule whose place cannot be used before it begins. Warns of
/// archives that an earlier run did not finish.
pub(super) async fn try_these(disk: &dyn Disk, plan: &mut Plan) {
    let mut tried: BTreeMap<ArchivePlace, Result<(), String>> = BTreeMap::new();
    for planned in &mut plan.rules {
        let Decision::Sweep(SweepRule { archive: Some(to), .. }) = &mut planned.decision else { continue };
        // One name for each directory, however the policy spells it: a run has one archive in each directory.
        if let ArchivePlace::Directory(path) = &mut to.place {
            *path = path.canonicalize().unwrap_or_else(|_| path.clone());
        }
        let place = to.place.clone();
        let result = match tried.get(&place) {
            Some(known) => known.clone(),
            None => try_one(disk, place.path()).await.map(|leftovers| planned.warnings.extend(leftovers.iter().map(said))),
        };
        if let Err(why) = &result {
            planned.decision = Decision::Fail(why.clone());
        }
        tried.insert(place, result);
    }
}

/// Tries one place. Returns the archives that an earlier run did not finish.
///
/// Errors: the reason why it cannot be used.
async fn try_one(disk: &dyn Disk, path: PathBuf) -> Result<Vec<Leftover>, String> {
    let disk = disk.below(&path);
    blocking(move || {
        disk.probe(&path)?;
        Ok(directory::leftovers(disk.as_ref(), &path))
    })
    .await
}

/// Returns the warning of an archive that an earlier run did not finish.
fn said(leftover: &Leftover) -> String {
    match leftover {
        Leftover::Archive(path) if BucketUrl::of(path).is_some() => format!(
            "the archive `{path}` is not finished: another run is writing it, or was cut off; `sweeper restore {path}` reads what is whole in it",
            path = path.display()
        ),
        Leftover::Archive(path) => format!(
            "the archive `{path}` was not finished by the run that wrote it: `sweeper restore {path}` reads what is whole in it; \
             remove it when it is no longer needed",
            path = path.display()
        ),
        Leftover::Empty(path) => format!(
            "the archive `{}` is empty: the run that created it was ended before it archived or deleted a document; `rmdir` removes it",
            path.display()
        ),
    }
}
