//! The holds and periods of the rules of a run, read before anything is counted or deleted.

use tokio::sync::OnceCell;

use crate::core::plan::fields::of_type;
use crate::core::plan::findings::{Findings, ReadKeys};
use crate::core::plan::holds::HeldBack;
use crate::core::plan::periods::{PeriodKeys, PeriodRule};
use crate::core::plan::{Guard, Plan, PlannedRule, Refusal, SweepRule};
use crate::core::policy::comparisons::{self, Comparison};
use crate::core::policy::paths;
use crate::shell::server::Deployment;
use crate::shell::server::watch::holds;
use crate::shell::server::watch::holds::ReadHolds;

/// The holds and periods of all rules of a plan; rules with the same share one read.
pub(crate) struct RunHolds<'a> {
    deployment: &'a Deployment,
    reads: Vec<SharedRead<'a>>,
}

/// One read of holds or periods, for all rules that have the same.
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
            for holds in planned.decision.countable().into_iter().flat_map(|rule| rule.selection.held_back()) {
                if !reads.iter().any(|read| read.holds.is_same_read(holds)) {
                    reads.push(SharedRead { holds, planned, outcome: OnceCell::new() });
                }
            }
        }
        Self { deployment, reads }
    }

    /// Returns a rule with the keys of its holds and periods, which are also entered in its findings. `None` if they cannot be
    /// read: the rule is refused then.
    pub(crate) async fn enter(&self, rule: &SweepRule, findings: &mut Findings) -> Option<SweepRule> {
        let mut keys = ReadKeys::default();
        for holds in rule.selection.held_back() {
            let read = self.reads.iter().find(|read| read.holds.is_same_read(holds))?;
            match read.outcome.get_or_init(|| self.read(read)).await {
                Ok(ReadHolds { keys: read, .. }) => *keys.of(holds) = Some(read.clone()),
                Err(refusal) => {
                    findings.decides.holds_refusal = Some(refusal.clone());
                    return None;
                }
            }
        }
        findings.goes_by.keys = keys;
        Some(rule.with_keys(&findings.goes_by.keys))
    }

    /// Returns the holds that were read so far.
    pub(crate) fn read_so_far(&self) -> Vec<(HeldBack, ReadHolds)> {
        let read = |shared: &SharedRead| Some((shared.holds.clone(), shared.outcome.get()?.as_ref().ok()?.clone()));
        self.reads.iter().filter_map(read).collect()
    }

    async fn read(&self, shared: &SharedRead<'_>) -> Result<ReadHolds, Refusal> {
        let SharedRead { holds, planned, .. } = shared;
        let noun = holds.noun();
        let guard = if holds.periods.is_some() { Guard::Periods } else { Guard::Holds };
        let read = holds::read(self.deployment, holds).await.map_err(|why| Refusal::new(guard, format!("`{noun}`: {why}")))?;
        if let (Some(rule), Some(keys)) = (&holds.periods, &read.keys.periods) {
            return check_values(planned, holds, rule, keys).map(|()| read);
        }
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

/// Refuses periods of which none was found to have a value: a misspelt name would have all documents expire by the rule's own
/// time.
fn check_values(planned: &PlannedRule, holds: &HeldBack, rule: &PeriodRule, keys: &PeriodKeys) -> Result<(), Refusal> {
    let value = &rule.value;
    if keys.count() > 0 || keys.is_empty || planned.rule.allow_unknown_fields.contains(value) {
        return Ok(());
    }
    Err(Refusal::new(
        Guard::UnknownField,
        format!(
            "no document in `{}` has `{value}` (`periods.value`); by a misspelt name all documents would expire by the rule's own time: correct it \
             or, if no document needs the field, set `allowUnknownFields: [{value}]`",
            holds.collection
        ),
    ))
}
