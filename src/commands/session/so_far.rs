//! The state of a sweep while it runs, for a report that cannot wait for its end.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::core::plan::Plan;
use crate::core::plan::findings::Findings;
use crate::core::plan::outcome::RuleOutcome;
use crate::core::report::PlanReport;
use crate::core::report::pacing::PacingReport;
use crate::shell::sweep::RuleSweep;

/// The state of a sweep.
#[derive(Default)]
pub(crate) struct SoFar {
    /// The saved audit that approved the sweep.
    approved: OnceLock<PlanReport>,
    /// The values of the pacing that were replaced.
    paced: Mutex<Vec<PacingReport>>,
    /// Empty until there is a plan.
    known: Mutex<Option<KnownSoFar>>,
}

pub(crate) struct KnownSoFar {
    pub plan: Arc<Plan>,
    /// The findings before the first delete; empty ones until the rules are looked at.
    pub findings: Arc<[Findings]>,
    /// The rules that are swept, or may be, by their places in the plan.
    pub rules: BTreeMap<usize, RuleState>,
    /// Whether a delete may have been sent.
    pub has_begun: bool,
}

/// State of a rule that is swept.
pub(crate) enum RuleState {
    Waits,
    Runs { since: Instant, sweep: Arc<RuleSweep> },
    Ended(RuleOutcome),
}

impl SoFar {
    /// Notes the saved audit that approved the sweep.
    pub(crate) fn approved(&self, plan: PlanReport) {
        let _ = self.approved.set(plan);
    }

    /// Notes the plan, and what was found by now; `findings` is empty where nothing was.
    pub(crate) fn planned(&self, plan: Arc<Plan>, findings: Arc<[Findings]>) {
        let none = || vec![Findings::default(); plan.rules.len()].into();
        let findings = if findings.is_empty() { none() } else { findings };
        let rules = (0..plan.rules.len()).map(|index| (index, RuleState::Waits)).collect();
        *self.known.lock() = Some(KnownSoFar { plan, findings, rules, has_begun: false });
    }

    /// Notes that the rules at these places of the plan are about to be swept.
    pub(crate) fn begin(&self, ready: impl Iterator<Item = usize>) {
        if let Some(known) = self.known.lock().as_mut() {
            known.rules = ready.map(|index| (index, RuleState::Waits)).collect();
            known.has_begun = true;
        }
    }

    /// Notes that a rule deletes from now on.
    pub(crate) fn runs(&self, index: usize, sweep: Arc<RuleSweep>) {
        self.set(index, RuleState::Runs { since: Instant::now(), sweep });
    }

    /// Notes the outcome of a rule.
    pub(crate) fn ended(&self, index: usize, outcome: RuleOutcome) {
        self.set(index, RuleState::Ended(outcome));
    }

    fn set(&self, index: usize, state: RuleState) {
        if let Some(known) = self.known.lock().as_mut() {
            known.rules.insert(index, state);
        }
    }

    /// Notes that a value of the pacing was replaced.
    pub(crate) fn paced(&self, change: PacingReport) {
        self.paced.lock().push(change);
    }

    /// Returns the values of the pacing that were replaced, in the order of time.
    pub(crate) fn pacing_changes(&self) -> Vec<PacingReport> {
        self.paced.lock().clone()
    }

    /// Returns the saved audit that approved the sweep.
    pub(crate) fn plan(&self) -> Option<PlanReport> {
        self.approved.get().cloned()
    }

    /// Returns what is known by now; `None` without a plan.
    pub(crate) fn known(&self) -> MutexGuard<'_, Option<KnownSoFar>> {
        self.known.lock()
    }
}
