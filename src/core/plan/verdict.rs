//! Verdict on a rule: its status, reason and error, from the plan, the findings and the outcome of the sweep.

use super::Status;
use super::findings::{CountObstacle, Decides};
use super::orphans;
use super::outcome::{End, RuleOutcome, Swept};
use crate::base::text::{count, plural};
use crate::core::plan::{Decision, PlannedRule, Reason, Refusal, StopReason, SweepRule, guard};

/// Status of a rule, with its reason and its error.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub status: Status,
    pub reason: Option<Reason>,
    pub error: Option<String>,
}

impl Verdict {
    /// Returns the verdict on a rule that cannot be swept; `None` if it can. Its error does not say what was deleted.
    pub fn before(planned: &PlannedRule, findings: &Decides) -> Option<Self> {
        match (&planned.decision, &findings.obstacle) {
            (Decision::Skip(reason), _) => {
                Some(Self { status: Status::Skipped, reason: Some(Reason::Skip(*reason)), error: None })
            }
            (Decision::Fail(error), _) | (_, Some(CountObstacle::Failed(error))) => Some(Self::failed(error.clone())),
            (_, Some(CountObstacle::Stopped(reason))) => Some(Self::partial(*reason)),
            (Decision::Refuse { refusal, .. }, None) => Some(Self::refused(refusal)),
            (Decision::Sweep(rule), None) => {
                let scan = || scan(planned, rule, findings);
                let share = || share(rule, findings);
                let approval = || rule.approved?.refusal(findings.expired.as_ref()?.count);
                // The order in which a sweep asks, which ends at the first refusal: all ways to run name the same guard.
                let refusal = guard::unknown_field(&findings.unknown_fields)
                    .or_else(|| guard::unknown_type(&findings.unknown_fields))
                    .or_else(|| findings.holds_refusal.clone())
                    .or_else(scan)
                    .or_else(share)
                    .or_else(|| of_orphans(rule, findings))
                    .or_else(approval)
                    .or_else(|| findings.oplog_refusal.clone());
                refusal.as_ref().map(Self::refused)
            }
        }
    }

    /// Returns the verdict on a rule when the run has ended.
    pub fn of(planned: &PlannedRule, findings: &Decides, outcome: &RuleOutcome) -> Self {
        let before = Self::before(planned, findings).map(|verdict| match (verdict.status, outcome) {
            (Status::Failed, RuleOutcome::NotSwept { .. } | RuleOutcome::NotBegun(_)) => verdict.without_deletes(),
            _ => verdict,
        });
        before.unwrap_or_else(|| match outcome {
            RuleOutcome::Checked | RuleOutcome::NotSwept { .. } => Self::complete(),
            RuleOutcome::NotBegun(stopped) => {
                Self::stopped(stopped.reason, stopped.lease_lost.as_deref(), &deleted_before(0, false))
            }
            RuleOutcome::Unreachable(why) => Self::failed(not_begun(why)).without_deletes(),
            RuleOutcome::Swept(swept) => Self::swept(swept),
        })
    }

    fn swept(swept: &Swept) -> Self {
        let deleted = deleted_before(swept.outcome.deleted, swept.outcome.uncertain);
        match &swept.outcome.end {
            End::Complete => Self::complete(),
            End::Partial(reason) => Self::stopped(*reason, swept.lease_lost.as_deref(), &deleted),
            End::Failed(why) => Self::failed(format!("deleting: {why}; {deleted}")),
        }
    }

    fn stopped(reason: StopReason, lease_lost: Option<&str>, deleted: &str) -> Self {
        match lease_lost {
            Some(why) => Self { reason: Some(Reason::Stop(reason)), ..Self::failed(format!("{why}; {deleted}")) },
            None => Self::partial(reason),
        }
    }

    fn complete() -> Self {
        Self { status: Status::Complete, reason: None, error: None }
    }

    fn partial(reason: StopReason) -> Self {
        Self { status: Status::Partial, reason: Some(Reason::Stop(reason)), error: None }
    }

    fn refused(refusal: &Refusal) -> Self {
        Self { status: Status::Refused, reason: Some(Reason::Guard(refusal.guard)), error: Some(refusal.detail.clone()) }
    }

    fn failed(error: String) -> Self {
        Self { status: Status::Failed, reason: None, error: Some(error) }
    }

    fn without_deletes(self) -> Self {
        Self { error: self.error.map(|error| error + "; nothing was deleted there"), ..self }
    }
}

/// Refuses to search a collection without an index that turned out to be larger than the server's own count says.
fn scan(planned: &PlannedRule, rule: &SweepRule, findings: &Decides) -> Option<Refusal> {
    let SweepRule { namespace, selection, expiry, .. } = rule;
    if selection.is_buckets() {
        return None;
    }
    guard::scan(&planned.rule, namespace, &expiry.field, selection.index.as_ref(), findings.documents?.count)
}

/// Refuses a share of the collection that is too large. Where the documents were counted, the server's own count is not asked:
/// after an unclean shutdown it may be far too high.
fn share(rule: &SweepRule, findings: &Decides) -> Option<Refusal> {
    let (expired, limit) = (findings.expired.as_ref()?, rule.limits.max_delete_percent);
    let own_count = rule.selection.document_count;
    let documents = findings.documents.map_or(own_count, |documents| documents.count);
    let noun = if rule.selection.is_buckets() { "bucket" } else { guard::DOCUMENT };
    let mut refusal = guard::share(limit, expired.count, documents, noun)?;
    if !expired.is_complete {
        refusal.detail.insert_str(0, "at least ");
    }
    if guard::share(limit, expired.count, own_count, noun).is_none() {
        refusal.detail += &format!(
            "; the server's own count, {}, is wrong, as it can be after an unclean shutdown: `validate` corrects it",
            count(own_count)
        );
    }
    Some(refusal)
}

/// Says how much was deleted before a rule failed; at least so much if a reply was lost.
fn deleted_before(deleted: u64, uncertain: bool) -> String {
    let least = if uncertain { "at least " } else { "" };
    format!("{least}{} {} deleted before", plural(deleted, "document"), if deleted == 1 { "was" } else { "were" })
}

/// Returns the error of a rule that was not tried because the deployment cannot be reached.
pub fn not_begun(why: &str) -> String {
    format!("not begun: {why}")
}

/// Refuses a rule with too many orphans, or without a parent. Where the journal names parents, a sweep finishes these first.
fn of_orphans(rule: &SweepRule, findings: &Decides) -> Option<Refusal> {
    let limits = rule.family.as_ref()?.orphans.as_ref()?;
    let counted = findings.orphans.as_ref()?;
    let old = counted.old.as_deref()?;
    let orphans = orphans::sum(old);
    if !counted.has_parents && !counted.is_in_journal && orphans > 0 {
        return Some(orphans::no_parent(&rule.namespace, orphans));
    }
    limits.refusal(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::plan::findings::CountedDocuments;
    use crate::testing::made_up::{counted, planned};

    /// Returns the guard that refuses a rule, and its words.
    fn refusal(planned: &PlannedRule, findings: &Decides) -> Option<(String, String)> {
        let Verdict { reason, error, .. } = Verdict::before(planned, findings)?;
        Some((reason?.to_string(), error?))
    }

    #[test]
    fn a_collection_that_turns_out_to_be_large_is_not_searched_without_an_index() {
        let of = |keys, documents| {
            let documents = Some(CountedDocuments { count: documents, is_complete: true });
            let found = Decides { documents, ..counted(0).decides };
            refusal(&planned(keys, 5), &found).map(|(guard, _)| guard)
        };
        let scan = Some("collectionScan".to_owned());
        assert_eq!([of("", 1_000_001), of("", 1_000_000)], [scan, None]);
        assert_eq!(of("    allowCollectionScan: true\n", 1_000_001), None);
    }

    #[test]
    fn a_share_of_a_count_that_is_not_complete_is_at_least_so_large() {
        let of = |expired: u64, is_complete: bool| {
            let mut found = counted(expired).decides;
            found.expired.as_mut().expect("counted").is_complete = is_complete;
            refusal(&planned("    maxDeletePercent: 10\n", 1000), &found)
        };
        let says =
            |expired, is_complete| of(expired, is_complete).map(|(guard, why)| (guard, why.starts_with("at least 101 of 1,000")));
        assert_eq!(says(101, false), Some(("maxDeletePercent".into(), true)));
        assert_eq!(says(101, true), Some(("maxDeletePercent".into(), false)));
        assert_eq!([says(100, true), says(100, false)], [None, None]);
    }
}
