//! The state of a sweep while it runs, for a report that cannot wait for its end.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::plan::Plan;
use crate::progress::RuleTally;
use crate::report::PlanReport;
use crate::report::counts::Counts;
use crate::report::outcome::RuleOutcome;

/// The state of a sweep.
#[derive(Default)]
pub(super) struct SoFar {
    /// The saved audit that approved the sweep.
    approved: OnceLock<PlanReport>,
    /// Empty until the first delete may be sent.
    known: OnceLock<Known>,
}

pub(super) struct Known {
    pub plan: Plan,
    pub counts: Vec<Counts>,
    /// The rules that are swept, by their places in the plan.
    pub rules: Mutex<BTreeMap<usize, RuleState>>,
}

/// State of a rule that is swept.
pub(super) enum RuleState {
    Waits,
    Runs { since: Instant, tally: Arc<RuleTally>, archive: Option<String> },
    Ended(RuleOutcome),
}

impl SoFar {
    /// Notes the saved audit that approved the sweep.
    pub(super) fn approved(&self, plan: PlanReport) {
        let _ = self.approved.set(plan);
    }

    /// Notes that the rules at these places of the plan are about to be swept.
    pub(super) fn begin(&self, plan: &Plan, counts: &[Counts], ready: impl Iterator<Item = usize>) {
        let rules = Mutex::new(ready.map(|index| (index, RuleState::Waits)).collect());
        // A run sweeps once.
        let _ = self.known.set(Known { plan: plan.clone(), counts: counts.to_vec(), rules });
    }

    /// Notes that a rule deletes from now on. `archive` is its directory in the archive.
    pub(super) fn runs(&self, index: usize, tally: Arc<RuleTally>, archive: Option<String>) {
        self.set(index, RuleState::Runs { since: Instant::now(), tally, archive });
    }

    /// Notes the outcome of a rule.
    pub(super) fn ended(&self, index: usize, outcome: RuleOutcome) {
        self.set(index, RuleState::Ended(outcome));
    }

    fn set(&self, index: usize, state: RuleState) {
        if let Some(known) = self.known.get() {
            known.rules.lock().insert(index, state);
        }
    }

    /// Returns the saved audit that approved the sweep.
    pub(super) fn plan(&self) -> Option<PlanReport> {
        self.approved.get().cloned()
    }

    /// Returns what is known since the first delete may have been sent.
    pub(super) fn known(&self) -> Option<&Known> {
        self.known.get()
    }
}
