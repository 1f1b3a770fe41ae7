//! The holds of the rules of a run, read before anything is counted or deleted.

use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::core::plan::fields::of_type;
use crate::core::plan::findings::Findings;
use crate::core::plan::holds::{HeldBack, KeyList};
use crate::core::plan::{Guard, Plan, PlannedRule, Refusal, Selection, SweepRule};
use crate::core::policy::comparisons::{self, Comparison};
use crate::core::policy::paths;
use crate::shell::server::Deployment;
use crate::shell::server::watch::holds;
use crate::shell::server::watch::holds::ReadHolds;

/// The holds of all rules of a plan; rules with the same holds share one read.
pub(crate) struct RunHolds<'a> {
    deployment: &'a Deployment,
    reads: Vec<SharedRead<'a>>,
}

/// One read of holds, for all rules that have the same.
struct SharedRead<'a> {
    holds: &'a HeldBack,
    /// The first of the rules.
    planned: &'a PlannedRule,
    outcome: OnceCell<Result<ReadHolds, Refusal>>,
}

impl<'a> RunHolds<'a> {
    pub(crate) fn new(deployment: &'a Deployment, plan: &'a Plan) -> Self {
        let mut reads: Vec<SharedRead> = Vec::new();
        for planned in &plan.rules {
            let holds = planned.decision.countable().and_then(|rule| rule.selection.holds.as_ref());
            if let Some(holds) = holds.filter(|holds| !reads.iter().any(|read| read.holds.is_same_read(holds))) {
                reads.push(SharedRead { holds, planned, outcome: OnceCell::new() });
            }
        }
        Self { deployment, reads }
    }

    /// Returns a rule with the keys that are held, which are also entered in its findings. `None` if they cannot be read: the
    /// rule is refused then.
    pub(crate) async fn enter(&self, rule: &SweepRule, findings: &mut Findings) -> Option<SweepRule> {
        let Some(holds) = &rule.selection.holds else { return Some(rule.clone()) };
        let read = self.reads.iter().find(|read| read.holds.is_same_read(holds))?;
        match read.outcome.get_or_init(|| self.read(read)).await {
            Ok(ReadHolds { keys, .. }) => {
                findings.goes_by.held_keys = Some(keys.clone());
                Some(with(rule, keys))
            }
            Err(refusal) => {
                findings.decides.holds_refusal = Some(refusal.clone());
                None
            }
        }
    }

    /// Returns the holds that were read so far.
    pub(crate) fn read_so_far(&self) -> Vec<(HeldBack, ReadHolds)> {
        let read = |shared: &SharedRead| Some((shared.holds.clone(), shared.outcome.get()?.as_ref().ok()?.clone()));
        self.reads.iter().filter_map(read).collect()
    }

    async fn read(&self, shared: &SharedRead<'_>) -> Result<ReadHolds, Refusal> {
        let SharedRead { holds, planned, .. } = shared;
        let read =
            holds::read(self.deployment, holds).await.map_err(|why| Refusal::new(Guard::Holds, format!("`holds`: {why}")))?;
        self.check_types(shared).await?;
        if read.keys.count() > 0 {
            return Ok(read);
        }
        // A filter with a wrong name selects none, and nothing would be held.
        let allowed = &planned.rule.allow_unknown_fields;
        let paths = holds.filter.iter().flat_map(|filter| paths::of_filter(filter, &planned.rule.variables));
        let paths: Vec<String> = paths.map(|found| found.path).filter(|path| path != "_id" && !allowed.contains(path)).collect();
        match holds::unknown_path(self.deployment, &holds.collection, &paths).await {
            Ok(None) => Ok(read),
            Ok(Some(path)) => Err(Refusal::new(
                Guard::UnknownField,
                format!(
                    "no document found in `{}` has `{path}` (`holds.filter`); a misspelt name would hold nothing: correct it or, if no hold needs the \
                     field, set `allowUnknownFields: [{path}]`",
                    holds.collection
                ),
            )),
            Err(cause) => Err(Refusal::new(Guard::Holds, format!("`holds`: looking for the fields of its `filter`: {cause}"))),
        }
    }

    /// Refuses a filter that compares a field with a type that no hold has there: it selects fewer holds than it says.
    async fn check_types(&self, shared: &SharedRead<'_>) -> Result<(), Refusal> {
        let SharedRead { holds, planned, .. } = shared;
        let variables = planned.rule.holds.as_ref().map(|holds| holds.variables.as_slice()).unwrap_or_default();
        let mut compared: Vec<Comparison> =
            holds.filter.iter().flat_map(|filter| comparisons::of_filter(filter, variables)).collect();
        compared.retain(|comparison| !comparison.is_allowed(&planned.rule.allow_unknown_types));
        match holds::unknown_type(self.deployment, &holds.collection, &compared).await {
            Ok(None) => Ok(()),
            Ok(Some(comparison)) => {
                let Comparison { shown, value_type, meant, .. } = comparison;
                Err(Refusal::new(
                    Guard::UnknownType,
                    format!(
                        "`{}`: {}; a wrong type would select other holds than meant: correct the value or, if holds may come to have the \
                         type, set `allowUnknownTypes: [{shown}]`",
                        holds.collection,
                        of_type(*value_type, shown, "holds.filter", meant.as_deref()),
                    ),
                ))
            }
            Err(cause) => Err(Refusal::new(Guard::Holds, format!("`holds`: looking for the types of its `filter`: {cause}"))),
        }
    }
}

/// Returns a rule with keys that are held.
pub(crate) fn with(rule: &SweepRule, keys: &Arc<KeyList>) -> SweepRule {
    let holds = rule.selection.holds.as_ref().map(|holds| holds.with(keys));
    SweepRule { selection: Selection { holds, ..rule.selection.clone() }, ..rule.clone() }
}

/// Returns a rule with the keys that its counts have.
pub(crate) fn with_keys(rule: &SweepRule, findings: &Findings) -> SweepRule {
    findings.goes_by.held_keys.as_ref().map_or_else(|| rule.clone(), |keys| with(rule, keys))
}

/// Returns a rule as if it had no holds, to count what it means but may not delete.
pub(crate) fn none(rule: &SweepRule) -> SweepRule {
    SweepRule { selection: Selection { holds: None, ..rule.selection.clone() }, ..rule.clone() }
}
