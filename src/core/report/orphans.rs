//! Orphans in the report of a rule: what refuses it for them, and how many a sweep deletes.

use super::RuleReport;
use crate::core::plan::Status;
use crate::core::plan::findings::Decides;
use crate::core::plan::outcome::RuleOutcome;
use crate::core::plan::{Decision, PlannedRule, StopReason, SweepRule};

/// Returns the orphans that a sweep deletes at most, and the limit that keeps it from more; `None` if that is unknown, or it is
/// over. `parents` is the same for the documents of the rule.
pub(super) fn would_delete(
    planned: &PlannedRule,
    findings: &Decides,
    outcome: &RuleOutcome,
    parents: Option<(u64, Option<StopReason>)>,
) -> Option<(u64, Option<StopReason>)> {
    let (Decision::Sweep(rule), RuleOutcome::NotSwept { window_closed }) = (&planned.decision, outcome) else { return None };
    let limits = rule.family.as_ref()?.orphans.as_ref()?;
    let old = findings.orphans.as_ref()?.old_count()?;
    let (parents, limit_of_parents) = parents?;
    match (old, limit_of_parents, limits.after(parents)) {
        (0, ..) => Some((0, None)),
        _ if *window_closed => Some((0, Some(StopReason::Window))),
        _ if leaves_no_parent(rule, findings) => Some((0, None)),
        // The sweep ends before their turn.
        (_, Some(limit), _) => Some((0, Some(limit))),
        (old, None, Some(most)) if most < old => Some((most, Some(StopReason::MaxDeletes))),
        (old, ..) => Some((old, None)),
    }
}

/// Warns that a sweep leaves no parent, so that its orphans stay.
pub(super) fn warning(planned: &PlannedRule, findings: &Decides, outcome: &RuleOutcome) -> Option<String> {
    let (Decision::Sweep(rule), RuleOutcome::NotSwept { .. }) = (&planned.decision, outcome) else { return None };
    let has_orphans = findings.orphans.as_ref()?.old_count()? > 0;
    (has_orphans && leaves_no_parent(rule, findings)).then(|| {
        "`orphans`: every document of the rule has expired; without one that is there no child is taken for an orphan, so that a sweep \
         leaves the orphans, and fails"
            .to_owned()
    })
}

/// Whether no document is left once those that have expired are gone.
fn leaves_no_parent(rule: &SweepRule, findings: &Decides) -> bool {
    let has_parents = findings.orphans.as_ref().is_none_or(|orphans| orphans.has_parents);
    let documents = findings.document_count(rule.selection.document_count);
    !has_parents || findings.expired.as_ref().is_some_and(|expired| expired.count > 0 && expired.count >= documents)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::plan::findings::{CountedOrphans, Findings, Remaining};
    use crate::core::plan::{Approved, Guard, OldOrphans, OrphanLimits};
    use crate::testing::made_up::{counted, not_swept, planned, with_children};

    /// Returns a rule with orphans under these limits; its collection has 200 documents.
    fn rule(max_deletes: Option<u64>, approved: Option<(u64, u64)>) -> PlannedRule {
        let mut sweep = with_children();
        sweep.selection.document_count = 200;
        let limits =
            OrphanLimits { max_deletes, max_percent: None, approved: approved.map(|(_, orphans)| Approved::of(orphans)) };
        sweep.family.as_mut().unwrap().orphans = Some(limits);
        let of_parents = approved.map(|(parents, _)| Approved::of(parents).most);
        sweep.limits.max_deletes = max_deletes.into_iter().chain(of_parents).min();
        sweep.approved = approved.map(|(parents, _)| Approved::of(parents));
        PlannedRule { decision: Decision::Sweep(sweep), ..planned("", 200) }
    }

    fn found(expired: u64, old: u64, has_parents: bool, is_in_journal: bool) -> Findings {
        let namespace = crate::core::policy::namespace::Namespace { database: "app".into(), collection: "d".into() };
        let old = Some(vec![OldOrphans { namespace, count: old, documents: 1_000 }]);
        let orphans = CountedOrphans { count: 500, old, has_parents, is_in_journal };
        let decides = Decides { orphans: Some(orphans), ..counted(expired).decides };
        Findings { decides, ..Findings::default() }
    }

    fn report(planned: &PlannedRule, findings: &Findings, outcome: &RuleOutcome) -> RuleReport {
        RuleReport::of(planned, findings, outcome, &Remaining::Unknown)
    }

    #[test]
    fn orphans_go_within_what_the_parents_leave() {
        let max = Some(StopReason::MaxDeletes);
        for (max_deletes, approved, expired, old, goes, limit) in [
            (None, None, 0, 40, 40, None),
            (None, None, 10, 40, 40, None),
            (Some(50), None, 10, 40, 40, None),
            (Some(49), None, 10, 40, 39, max),
            (Some(10), None, 10, 40, 0, max),
            (Some(9), None, 10, 40, 0, max),
            (Some(9), None, 10, 0, 0, max),
            (None, Some((10, 40)), 10, 40, 40, None),
            (None, Some((10, 40)), 10, 41, 41, None),
            (Some(45), Some((10, 40)), 10, 40, 35, max),
            (None, None, 199, 40, 40, None),
            // They would leave no parent.
            (None, None, 200, 40, 0, None),
        ] {
            let report = report(&rule(max_deletes, approved), &found(expired, old, true, false), &not_swept());
            let of_report = (report.would_delete_orphan_count, report.would_delete_limit, report.old_orphan_count);
            assert_eq!(of_report, (Some(goes), limit, Some(old)), "{max_deletes:?} {approved:?} {expired} {old}");
            assert_eq!(report.warnings.is_empty(), expired < 200, "{:?}", report.warnings);
        }
        let closed = report(&rule(None, None), &found(0, 40, true, false), &RuleOutcome::NotSwept { window_closed: true });
        assert_eq!((closed.would_delete_orphan_count, closed.would_delete_limit), (Some(0), Some(StopReason::Window)));
        let leaves =
            report(&PlannedRule { decision: Decision::Sweep(with_children()), ..planned("", 3) }, &counted(1), &not_swept());
        assert_eq!((leaves.would_delete_orphan_count, leaves.old_orphan_count, leaves.orphan_count), (None, None, None));
    }

    #[test]
    fn a_rule_without_a_parent_is_refused_if_there_are_orphans_and_nothing_in_the_journal() {
        for (old, has_parents, is_in_journal, is_refused) in
            [(40, false, false, true), (0, false, false, false), (40, true, false, false), (40, false, true, false)]
        {
            let findings = found(0, old, has_parents, is_in_journal);
            let report = report(&rule(None, None), &findings, &not_swept());
            let guard = is_refused.then_some(crate::core::plan::Reason::Guard(Guard::Children));
            assert_eq!(report.reason, guard, "{old} {has_parents} {is_in_journal}");
            let goes = if is_refused { None } else { Some(if has_parents { old } else { 0 }) };
            assert_eq!(report.would_delete_orphan_count, goes, "{old} {has_parents} {is_in_journal}");
        }
    }

    #[test]
    fn what_is_left_follows_from_the_count_and_the_deletes() {
        let rule = |status, deleted| RuleReport {
            status,
            old_orphan_count: Some(40),
            orphans_deleted_count: deleted,
            ..crate::testing::made_up::report("a", "app.c")
        };
        for (status, deleted, expected) in [
            (Status::Complete, Some(40), Some(0)),
            // Others were faster.
            (Status::Complete, Some(30), Some(0)),
            (Status::Complete, None, Some(40)),
            (Status::Partial, Some(30), Some(10)),
            (Status::Failed, Some(0), Some(40)),
            (Status::Refused, None, Some(40)),
            (Status::Skipped, None, None),
        ] {
            assert_eq!(left(&rule(status, deleted)), expected, "{status:?} {deleted:?}");
        }
        assert_eq!(left(&RuleReport { old_orphan_count: None, ..rule(Status::Partial, Some(3)) }), None);
    }
}
