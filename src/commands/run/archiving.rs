//! Archives of a run. Their directories are tried while the run is planned, written to while it sweeps, and given a manifest when
//! it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use crate::commands::session::Session;
use crate::core::plan::outcome::RuleOutcome;
use crate::core::plan::{Decision, Plan, SweepRule};
use crate::core::policy::ArchiveTo;
use crate::shell::archive::directory::{self, Leftover};
use crate::shell::archive::disk::Disk;
use crate::shell::archive::manifest::RuleTotals;
use crate::shell::archive::writer::Archive;
use crate::shell::sweep::RuleArchive;

/// Tries to write to the directories that the rules of a plan archive to, and fails a rule whose directory cannot be written
/// before it begins. Warns of archives that an earlier run did not finish.
pub(crate) fn try_directories(disk: &dyn Disk, plan: &mut Plan) {
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

/// Archives that a sweep writes: one in each directory that its rules name.
pub(crate) struct Archives(BTreeMap<PathBuf, Arc<Archive>>);

impl Archives {
    pub(crate) fn new<'a>(session: &Session, rules: impl Iterator<Item = &'a SweepRule>) -> Self {
        let directories: BTreeSet<_> = rules.filter_map(|rule| Some(&rule.archive.as_ref()?.directory)).collect();
        let archive = |directory: &PathBuf| {
            Arc::new(Archive::on(session.disk.below(directory), directory, &session.id, session.started_at))
        };
        Self(directories.into_iter().map(|directory| (directory.clone(), archive(directory))).collect())
    }

    /// Returns the archive that a rule writes.
    pub(crate) fn of(&self, rule: &SweepRule) -> Option<Arc<RuleArchive>> {
        let to: &ArchiveTo = rule.archive.as_ref()?;
        let archive = self.0.get(&to.directory)?.clone();
        Some(Arc::new(RuleArchive { archive, to: to.clone(), rule: rule.name.clone() }))
    }

    /// Writes the manifests when all rules have ended. If a manifest cannot be written, the first swept rule of its archive gets
    /// a warning.
    ///
    /// `rules` are the rules that were ready to be swept, each with its index in `outcomes`.
    pub(crate) fn end(self, rules: &[(usize, &SweepRule)], outcomes: &mut [RuleOutcome]) {
        for (directory, archive) in self.0 {
            let rules = || rules.iter().filter(|(_, rule)| rule.archive.as_ref().is_some_and(|to| to.directory == directory));
            let totals = rules().flat_map(|(index, rule)| totals(rule, &outcomes[*index])).collect();
            let Err(cause) = archive.end(totals) else { continue };
            let why = format!(
                "the manifest of the archive `{}` could not be written: {cause}; `sweeper restore` reads it without",
                archive.path().display()
            );
            warn!("{why}");
            let swept = rules().map(|(index, _)| *index).find(|index| outcomes[*index].swept().is_some());
            if let Some(RuleOutcome::Swept(swept)) = swept.map(|index| &mut outcomes[index]) {
                swept.warnings.push(why);
            }
        }
    }
}

/// Returns the totals of a rule, and the totals of its children.
fn totals(rule: &SweepRule, outcome: &RuleOutcome) -> Vec<RuleTotals> {
    let sweep = outcome.swept().map(|swept| &swept.outcome);
    let own = RuleTotals {
        rule: rule.name.clone(),
        namespace: rule.namespace.to_string(),
        archived_count: sweep.map_or(0, |sweep| sweep.archived.documents),
        deleted_count: sweep.map_or(0, |sweep| sweep.deleted),
        uncertain: sweep.is_some_and(|sweep| sweep.uncertain),
    };
    let children = sweep.and_then(|sweep| sweep.children.as_ref()).into_iter().flat_map(|children| &children.collections);
    let of_children = children.map(|child| RuleTotals {
        rule: rule.name.clone(),
        namespace: child.namespace.to_string(),
        archived_count: child.archived.documents,
        deleted_count: child.deleted,
        uncertain: child.uncertain,
    });
    [own].into_iter().chain(of_children).collect()
}
