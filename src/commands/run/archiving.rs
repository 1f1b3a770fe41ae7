//! Archives of a run: written to while it sweeps, and given a manifest when it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use tracing::warn;

use crate::commands::session::Session;
use crate::core::plan::SweepRule;
use crate::core::plan::outcome::RuleOutcome;
use crate::core::policy::{ArchivePlace, ArchiveTo};
use crate::shell::archive::blocking;
use crate::shell::archive::manifest::RuleTotals;
use crate::shell::archive::writer::Archive;
use crate::shell::sweep::RuleArchive;

/// Archives that a sweep writes: one in each place that its rules name.
pub(crate) struct Archives(BTreeMap<ArchivePlace, Arc<Archive>>);

impl Archives {
    pub(crate) fn new<'a>(session: &Session, rules: impl Iterator<Item = &'a SweepRule>) -> Self {
        let places: BTreeSet<&ArchivePlace> = rules.filter_map(|rule| Some(&rule.archive.as_ref()?.place)).collect();
        let archive = |path: &Path| Arc::new(Archive::on(session.disk.below(path), path, &session.id, session.started_at));
        Self(places.into_iter().map(|place| (place.clone(), archive(&place.path()))).collect())
    }

    /// Returns the archive that a rule writes.
    pub(crate) fn of(&self, rule: &SweepRule) -> Option<Arc<RuleArchive>> {
        let to: &ArchiveTo = rule.archive.as_ref()?;
        let archive = self.0.get(&to.place)?.clone();
        Some(Arc::new(RuleArchive { archive, compression: to.compression, rule: rule.name.clone() }))
    }

    /// Writes the manifests when all rules have ended. If a manifest cannot be written, the first swept rule of its archive gets
    /// a warning.
    ///
    /// `rules` are the rules that were ready to be swept, each with its index in `outcomes`.
    pub(crate) async fn end(self, rules: &[(usize, &SweepRule)], outcomes: &mut [RuleOutcome]) {
        for (place, archive) in self.0 {
            let rules = || rules.iter().filter(|(_, rule)| rule.archive.as_ref().is_some_and(|to| to.place == place));
            let totals = rules().flat_map(|(index, rule)| totals(rule, &outcomes[*index])).collect();
            let path = archive.path().display().to_string();
            let ended = blocking(move || archive.end(totals).map_err(|cause| cause.to_string()));
            let Err(cause) = ended.await else { continue };
            let why =
                format!("the manifest of the archive `{path}` could not be written: {cause}; `sweeper restore` reads it without");
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
