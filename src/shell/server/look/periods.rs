//! Documents by their period. Reads only.

use std::collections::BTreeMap;

use bson::doc;
use bson::spec::ElementType;

use super::count::{count_at, query};
use crate::base::values::raw::RawValue;
use crate::core::audit::figures::{PeriodDocuments, PeriodKind};
use crate::core::plan::judgement::PeriodWhy;
use crate::core::plan::{Selection, SweepRule};
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;

/// Counts the documents that the rule's filter selects by their period, the shortest first; `None` in a rule without periods.
///
/// Errors: the collection cannot be read.
pub(crate) async fn documents_by_period(deployment: &Deployment, rule: &SweepRule) -> Result<Option<Vec<PeriodDocuments>>> {
    let selection = &rule.selection;
    let Some(held) = &selection.periods else { return Ok(None) };
    let (Some(periods), Some(keys)) = (&held.periods, &held.keys) else { return Ok(None) };
    let by_key = keys.by_key();
    let matching = selection.filter.as_ref().map(|filter| doc! { "$match": filter.clone() });
    let group = doc! { "$group": { "_id": format!("${}", held.path), "count": { "$sum": 1 } } };
    let stages = matching.into_iter().chain([group]).collect();
    let whole = Selection { index: None, ..selection.clone() };
    let mut counts: BTreeMap<(PeriodKind, Option<i64>), u64> = BTreeMap::new();
    for found in query(deployment, &whole, stages).all_raw(deployment).await? {
        let of_keys: Vec<_> = match RawValue::at(&found, "_id") {
            Some(list) if list.kind() == ElementType::Array => list.items().into_iter().map(|key| by_key.of(key)).collect(),
            Some(key) => vec![by_key.of(key)],
            None => Vec::new(),
        };
        // No key has no period.
        let of_keys = if of_keys.is_empty() { vec![None] } else { of_keys };
        let kind = match periods.longest(&of_keys) {
            PeriodWhy::Period(seconds) => (PeriodKind::Period, Some(seconds)),
            PeriodWhy::OfRule(seconds) => (PeriodKind::OfRule, Some(seconds.into())),
            PeriodWhy::Never => (PeriodKind::Never, None),
            PeriodWhy::Unclear => (PeriodKind::Unclear, None),
            PeriodWhy::Missing => (PeriodKind::Missing, None),
        };
        *counts.entry(kind).or_default() += count_at(&found);
    }
    Ok(Some(counts.into_iter().map(|((kind, seconds), count)| PeriodDocuments { kind, seconds, count }).collect()))
}
