//! Documents by their periods. Reads only.

use bson::doc;

use super::count::query;
use crate::core::plan::by_period::ByPeriod;
use crate::core::plan::{Selection, SweepRule};
use crate::core::policy::DateFormat;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::retry::restarting;

/// Enters every document that the rule's filter selects into the classes of its period, in one pass over the collection. With a
/// rate these are only the documents of a sample, and about how many were drawn is returned. `None` for epoch numbers, whose unit
/// may be another.
///
/// Errors: the collection cannot be read.
pub(crate) async fn by_period<'a>(
    deployment: &Deployment,
    rule: &'a SweepRule,
    sample: Option<f64>,
) -> Result<Option<(ByPeriod<'a>, Option<u64>)>> {
    let selection = &rule.selection;
    let Some(held) = &selection.periods else { return Ok(None) };
    let (Some(periods), Some(keys)) = (&held.periods, &held.keys) else { return Ok(None) };
    if matches!(rule.expiry.format, DateFormat::EpochMillis | DateFormat::EpochSeconds) {
        return Ok(None);
    }
    // Before the filter: the sample stands for the whole collection.
    let drawn = sample.map(|rate| doc! { "$match": { "$sampleRate": rate } });
    let matching = selection.filter.clone().map(|filter| doc! { "$match": filter });
    let stages = drawn.into_iter().chain(matching).chain(periods.expiry.seen(&held.path)).collect();
    let whole = Selection { index: None, ..selection.clone() };
    let query = query(deployment, &whole, stages);
    let read = async || {
        let (mut cursor, mut found) = (query.cursor(deployment).await?, ByPeriod::new(periods, keys));
        while let Some(seen) = cursor.next().await? {
            found.enter(&seen);
        }
        Ok(found)
    };
    let found = restarting(&rule.namespace, read).await?;
    // The sample also has documents that the filter leaves out.
    let drawn = sample.map(|rate| (rate * selection.document_count as f64).round() as u64);
    Ok(Some((found, drawn)))
}
