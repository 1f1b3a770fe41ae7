//! Orphans in the report of a rule: what refuses it for them, and how many a sweep deletes.

use super::counts::Counts;
use super::outcome::RuleOutcome;
use super::{RuleReport, Status};
use crate::plan::{Decision, PlannedRule, Refusal, StopReason, SweepRule, orphans};

/// Refuses a rule with too many orphans, or without a parent. Where the journal names parents, a sweep finishes these first.
pub(super) fn refusal(rule: &SweepRule, counts: &Counts) -> Option<Refusal> {
    let limits = rule.family.as_ref()?.orphans.as_ref()?;
    let counted = counts.orphans.as_ref()?;
    let old = counted.old.as_deref()?;
    let orphans = orphans::sum(old);
    if !counted.has_parents && !counted.is_in_journal && orphans > 0 {
        return Some(orphans::no_parent(&rule.namespace, orphans));
    }
    limits.refusal(old)
}

/// Returns the orphans that a sweep deletes at most, and the limit that keeps it from more; `None` if that is unknown, or it is over. `parents` is the
/// same for the documents of the rule.
pub(super) fn would_delete(
    planned: &PlannedRule,
    counts: &Counts,
    outcome: &RuleOutcome,
    parents: Option<(u64, Option<StopReason>)>,
) -> Option<(u64, Option<StopReason>)> {
    let (Decision::Sweep(rule), RuleOutcome::NotSwept { window_closed }) = (&planned.decision, outcome) else { return None };
    let limits = rule.family.as_ref()?.orphans.as_ref()?;
    let old = counts.orphans.as_ref()?.old_count()?;
    let (parents, limit_of_parents) = parents?;
    match (old, limit_of_parents, limits.after(parents)) {
        (0, ..) => Some((0, None)),
        _ if *window_closed => Some((0, Some(StopReason::Window))),
        _ if leaves_no_parent(rule, counts) => Some((0, None)),
        // The sweep ends before their turn.
        (_, Some(limit), _) => Some((0, Some(limit))),
        (old, None, Some(most)) if most < old => Some((most, Some(StopReason::MaxDeletes))),
        (old, ..) => Some((old, None)),
    }
}

/// Warns that a sweep leaves no parent, so that its orphans stay.
pub(super) fn warning(planned: &PlannedRule, counts: &Counts, outcome: &RuleOutcome) -> Option<String> {
    let (Decision::Sweep(rule), RuleOutcome::NotSwept { .. }) = (&planned.decision, outcome) else { return None };
    let has_orphans = counts.orphans.as_ref()?.old_count()? > 0;
    (has_orphans && leaves_no_parent(rule, counts)).then(|| {
        "`orphans`: every document of the rule has expired; without one that is there no child is taken for an orphan, so that a sweep \
         leaves the orphans, and fails"
            .to_owned()
    })
}

/// Whether no document is left once those that have expired are gone.
fn leaves_no_parent(rule: &SweepRule, counts: &Counts) -> bool {
    let has_parents = counts.orphans.as_ref().is_none_or(|orphans| orphans.has_parents);
    let documents = counts.document_count(rule.selection.document_count);
    !has_parents || counts.expired.as_ref().is_some_and(|expired| expired.count > 0 && expired.count >= documents)
}

/// Returns the orphans that a sweep left; `None` if that is unknown, or the rule leaves them.
pub(super) fn left(rule: &RuleReport) -> Option<u64> {
    let old = rule.old_orphan_count?;
    match rule.status {
        Status::Skipped => None,
        Status::Complete if rule.orphans_deleted_count.is_some() => Some(0),
        _ => Some(old.saturating_sub(rule.orphans_deleted_count.unwrap_or(0))),
    }
}
