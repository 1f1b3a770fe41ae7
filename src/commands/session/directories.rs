//! Directories that the rules of a plan archive to, tried before anything is deleted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::core::plan::{Decision, Plan, SweepRule};
use crate::shell::archive::directory::{self, Leftover};
use crate::shell::archive::disk::Disk;

/// Tries to write to the directories that the rules of a plan archive to, and fails a rule whose directory cannot be written
/// before it begins. Warns of archives that an earlier run did not finish.
pub(super) fn try_these(disk: &dyn Disk, plan: &mut Plan) {
    let mut tried: BTreeMap<PathBuf, Result<(), String>> = BTreeMap::new();
    for planned in &mut plan.rules {
        let Decision::Sweep(SweepRule { archive: Some(to), .. }) = &mut planned.decision else { continue };
        // One name for each directory, however the policy spells it: a run has one archive in each directory.
        to.directory = to.directory.canonicalize().unwrap_or_else(|_| to.directory.clone());
        let known = tried.get(&to.directory).cloned();
        let result = known.unwrap_or_else(|| {
            planned.warnings.extend(directory::leftovers(disk.below(&to.directory).as_ref(), &to.directory).iter().map(said));
            disk.probe(&to.directory)
        });
        tried.insert(to.directory.clone(), result.clone());
        if let Err(why) = result {
            planned.decision = Decision::Fail(why);
        }
    }
}

/// Returns the warning of an archive that an earlier run did not finish.
fn said(leftover: &Leftover) -> String {
    match leftover {
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
