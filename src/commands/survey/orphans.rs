//! Counts of orphans, as far as a run needs them before it deletes.

use super::Level;
use crate::core::plan::findings::CountedOrphans;
use crate::core::plan::{Family, OldOrphans, OrphanLimits, SweepRule};
use crate::shell::server::Deployment;
use crate::shell::server::look::{children, parents};
use crate::shell::server::own::journal;
use crate::shell::server::wire::error::ServerError;

/// Counts the orphans of a rule: those that it deletes, and all others too. `None` if nothing compares or shows their number. An
/// audit shows the number of every rule with children, a dry run the number of a rule which deletes orphans. A sweep compares it
/// with limits, and where there is no parent at all.
pub(super) async fn count(
    deployment: &Deployment,
    rule: &SweepRule,
    level: Level<'_>,
) -> Result<Option<CountedOrphans>, ServerError> {
    let Some(family) = &rule.family else { return Ok(None) };
    let limits = family.orphans.as_ref();
    if limits.is_none() && level.auditing().is_none() {
        return Ok(None);
    }
    let has_parents = children::has_parents(deployment, &rule.namespace).await?;
    if has_parents && !level.counts_all() && !limits.is_some_and(OrphanLimits::compares) {
        return Ok(None);
    }
    all(deployment, rule, family, has_parents).await.map(Some)
}

/// Returns the warning that a sweep would take no child for an orphan, because no parent is there; `None` as well if that cannot
/// be read.
pub(super) async fn without_parents(deployment: &Deployment, rule: &SweepRule) -> Option<String> {
    rule.family.as_ref()?.orphans.as_ref()?;
    let has_parents = children::has_parents(deployment, &rule.namespace).await.ok()?;
    let why = "no document, without which no child is taken for an orphan; a sweep is refused where there are children";
    (!has_parents).then(|| format!("`orphans`: `{}` has {why}", rule.namespace))
}

async fn all(
    deployment: &Deployment,
    rule: &SweepRule,
    family: &Family,
    has_parents: bool,
) -> Result<CountedOrphans, ServerError> {
    let mut counted =
        CountedOrphans { count: 0, old: family.orphans.as_ref().map(|_| Vec::new()), has_parents, is_in_journal: false };
    let before = parents::oldest_upload(rule.expiry.as_of);
    for child in &family.children {
        let found = children::orphans(deployment, rule, child, family.orphans.as_ref().map(|_| before)).await?;
        counted.count += found.count;
        if let (Some(old), Some(limits)) = (&mut counted.old, &family.orphans) {
            let documents = children::documents(deployment, child, limits, found.old).await?;
            let namespace = child.rule.selection.namespace.clone();
            old.push(OldOrphans { namespace, count: found.old, documents });
        }
    }
    if !has_parents && family.orphans.is_some() {
        counted.is_in_journal = journal::has_entry(deployment, rule, &family.journal).await?;
    }
    Ok(counted)
}
