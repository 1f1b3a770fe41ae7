//! The archives of a run: the directories are tried while it is planned, written while it sweeps, and closed when it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use super::Run;
use crate::archive::directory;
use crate::archive::manifest::RuleTotals;
use crate::archive::writer::Archive;
use crate::plan::{Decision, Plan, SweepRule};
use crate::policy::archive::ArchiveTo;
use crate::report::RuleReport;
use crate::sweep::RuleArchive;

/// Tries the directories that the rules of a plan archive to: a rule whose directory cannot be written is not begun. Warns of archives that
/// an earlier run could not finish.
pub fn try_directories(plan: &mut Plan) {
    let mut tried: BTreeMap<PathBuf, Result<(), String>> = BTreeMap::new();
    for planned in &mut plan.rules {
        let Decision::Sweep(SweepRule { archive: Some(to), .. }) = &mut planned.decision else { continue };
        // By one name, however it is written: a run has one archive in each.
        to.directory = to.directory.canonicalize().unwrap_or_else(|_| to.directory.clone());
        let known = tried.get(&to.directory).cloned();
        let result = known.unwrap_or_else(|| {
            planned.warnings.extend(directory::leftovers(&to.directory).iter().map(|path| {
                format!(
                    "the archive `{path}` was not finished by the run that wrote it: `sweeper restore {path}` reads what is whole in it; \
                     remove it when nobody needs it",
                    path = path.display()
                )
            }));
            directory::probe(&to.directory)
        });
        tried.insert(to.directory.clone(), result.clone());
        if let Err(why) = result {
            planned.decision = Decision::Fail(format!("{why}; nothing was deleted there"));
        }
    }
}

/// What a sweep writes: one archive in each directory that its rules name.
pub struct Archives(BTreeMap<PathBuf, Arc<Archive>>);

impl Archives {
    pub fn new<'a>(run: &Run, rules: impl Iterator<Item = &'a SweepRule>) -> Self {
        let directories: BTreeSet<_> = rules.filter_map(|rule| Some(&rule.archive.as_ref()?.directory)).collect();
        let archive = |directory: &PathBuf| Arc::new(Archive::new(directory, &run.id, run.started_at));
        Self(directories.into_iter().map(|directory| (directory.clone(), archive(directory))).collect())
    }

    /// Where a rule is to write.
    pub fn of(&self, rule: &SweepRule) -> Option<Arc<RuleArchive>> {
        let to: &ArchiveTo = rule.archive.as_ref()?;
        let archive = self.0.get(&to.directory)?.clone();
        Some(Arc::new(RuleArchive { archive, to: to.clone(), rule: rule.name.clone() }))
    }

    /// Writes the manifests, when all rules have ended.
    pub fn end(self, reports: &mut [(&SweepRule, &mut RuleReport)]) {
        for (directory, archive) in self.0 {
            let mut rules = reports
                .iter_mut()
                .filter(|(rule, _)| rule.archive.as_ref().is_some_and(|to| to.directory == directory))
                .map(|(_, report)| &mut **report)
                .collect::<Vec<_>>();
            let totals = rules.iter().map(|report| RuleTotals {
                rule: report.name.clone(),
                namespace: report.namespace.clone(),
                archived_count: report.archived_count.unwrap_or(0),
                deleted_count: report.deleted_count,
                uncertain: report.uncertain,
            });
            if let Err(cause) = archive.end(totals.collect()) {
                let why = format!(
                    "the manifest of the archive `{}` could not be written: {cause}; `sweeper restore` reads it without",
                    archive.path().display()
                );
                warn!("{why}");
                if let Some(report) = rules.first_mut() {
                    report.warnings.push(why);
                }
            }
        }
    }
}
