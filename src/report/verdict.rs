//! Verdict on a rule: its status, reason and error, from the plan, the counts and the outcome of the sweep.

use super::Status;
use super::counts::{CountObstacle, Counts};
use super::outcome::{End, RuleOutcome, Swept};
use crate::plan::{Decision, PlannedRule, Reason, Refusal, StopReason, guard};
use crate::text::plural;

/// Status of a rule, with its reason and its error.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub status: Status,
    pub reason: Option<Reason>,
    pub error: Option<String>,
}

impl Verdict {
    /// Returns the verdict on a rule that cannot be swept; `None` if it can.
    pub fn before(planned: &PlannedRule, counts: &Counts) -> Option<Self> {
        match (&planned.decision, &counts.obstacle) {
            (Decision::Skip(reason), _) => {
                Some(Self { status: Status::Skipped, reason: Some(Reason::Skip(*reason)), error: None })
            }
            (Decision::Fail(error), _) | (_, Some(CountObstacle::Failed(error))) => Some(Self::failed(error.clone())),
            (_, Some(CountObstacle::Stopped(reason))) => Some(Self::partial(*reason)),
            (Decision::Refuse { refusal, .. }, None) => Some(Self::refused(refusal)),
            (Decision::Sweep(rule), None) => {
                let expired = counts.expired.as_ref()?;
                let share = guard::share(rule.limits.max_delete_percent, expired.count, rule.selection.document_count);
                let share = share.map(|refusal| {
                    let least = if expired.is_complete { "" } else { "at least " };
                    Refusal { detail: format!("{least}{}", refusal.detail), ..refusal }
                });
                share.or_else(|| rule.approved?.refusal(expired.count)).as_ref().map(Self::refused)
            }
        }
    }

    /// Returns the verdict on a rule when the run has ended.
    pub fn of(planned: &PlannedRule, counts: &Counts, outcome: &RuleOutcome) -> Self {
        Self::before(planned, counts).unwrap_or_else(|| match outcome {
            RuleOutcome::NotSwept { .. } => Self::complete(),
            RuleOutcome::NotBegun(stopped) => {
                Self::stopped(stopped.reason, stopped.lease_lost.as_deref(), &deleted_before(0, false))
            }
            RuleOutcome::Unreachable(why) => Self::failed(not_begun(why)),
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
}

/// Says how much was deleted before a rule failed; at least so much if a reply was lost.
fn deleted_before(deleted: u64, uncertain: bool) -> String {
    let least = if uncertain { "at least " } else { "" };
    format!("{least}{} {} deleted before", plural(deleted, "document"), if deleted == 1 { "was" } else { "were" })
}

/// Returns the error of a rule that was not tried because the deployment cannot be reached.
pub fn not_begun(why: &str) -> String {
    format!("not begun: {why}; nothing was deleted there")
}
