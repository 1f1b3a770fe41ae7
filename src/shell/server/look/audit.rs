//! Figures of an audit in addition to the counts: the distribution of the dates, some documents, and the cost of finding them.
//! Reads only.

use bson::{Bson, Document, doc};

use super::count::{documents, in_bucket, in_parts, unheld};
use crate::base::values::count_in;
use crate::core::audit::distribution::Distribution;
use crate::core::audit::figures::{Examined, Sample};
use crate::core::audit::{ranges, sample};
use crate::core::plan::{Selection, Storage, SweepRule};
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Number of expired documents to show.
const SAMPLES: i64 = 10;

/// Number of expired documents after which an explained query ends.
const EXPLAINED: u64 = 10_000;

/// Sorts every document into its class, in one pass over the collection. With a rate, sorts only the documents of a sample, and
/// returns their number too.
pub(crate) async fn distribution(
    deployment: &Deployment,
    rule: &SweepRule,
    sample: Option<f64>,
) -> Result<(Distribution, Option<u64>)> {
    let SweepRule { selection, expiry, .. } = rule;
    let mut sums = Document::new();
    if let Storage::Buckets { measurements } = &selection.storage {
        sums.insert("measurements", in_bucket(measurements));
    }
    let filter = selection.filter.as_ref();
    let classes = |filter| expiry.classes(filter, &ranges::bounds_ms(), &sums);
    let stages = match sample {
        // Before the filter: the sample stands for the whole collection.
        Some(rate) => {
            let mut classes = classes(filter);
            classes.insert("drawn", vec![doc! { "$count": "n" }]);
            vec![doc! { "$match": { "$sampleRate": rate } }, doc! { "$facet": classes }]
        }
        // Before the classes, so that an index may serve the filter.
        None => {
            let matching = filter.map(|filter| doc! { "$match": filter.clone() });
            matching.into_iter().chain([doc! { "$facet": classes(None) }]).collect()
        }
    };
    let whole = Selection { index: None, ..selection.clone() };
    if deployment.facts.capabilities.request_charge && sample.is_none() {
        let (matching, facets) = (filter.cloned().unwrap_or_default(), vec![doc! { "$facet": classes(None) }]);
        if let Some(parts) = in_parts::aggregate(deployment, expiry, &whole, &matching, facets, None, |_| false).await? {
            return Ok((Distribution::read(expiry, &parts), None));
        }
    }
    let found = documents(deployment, &whole, stages).await?.into_iter().next().unwrap_or_default();
    let drawn = found.get_array("drawn").ok().and_then(|counts| counts.first()?.as_document());
    let drawn = drawn.and_then(|count| count_in(count, "n")).unwrap_or(0);
    Ok((Distribution::read(expiry, &[found]), sample.map(|_| drawn)))
}

/// Returns some expired documents, along the index if there is one.
pub(crate) async fn samples(deployment: &Deployment, rule: &SweepRule) -> Result<Vec<Sample>> {
    let SweepRule { selection, expiry, .. } = rule;
    let mut stages = expiry.samples(SAMPLES);
    let sorts = deployment.facts.is_behind_router() && expiry.format.is_sorted_by_index();
    if sorts && selection.index.is_some() {
        // Each shard would send the first that it has.
        stages.insert(1, doc! { "$sort": { &expiry.field: 1 } });
    }
    let found = unheld(deployment, selection, stages).await?;
    Ok(found.iter().filter_map(|found| sample::read(expiry, selection.is_buckets(), found)).collect())
}

/// Returns the cost of finding the first 10,000 expired documents along the rule's index; `None` if no plan can be read.
pub(crate) async fn examined(deployment: &Deployment, selection: &Selection) -> Result<Option<Examined>> {
    let Some(index) = selection.index.as_ref().filter(|_| deployment.facts.capabilities.read_hints) else { return Ok(None) };
    let query = Query::find(&selection.namespace, selection.predicate.clone())
        .hint(Some(index.name.as_str()))
        .limit(EXPLAINED)
        .collation(selection.collation.as_ref())
        .max_time(deployment.read_options.max_time)
        .read_preference(deployment.read_options.preference);
    let plan = query.explain(deployment, "executionStats").await?;
    let stats = plan.get("executionStats").and_then(Bson::as_document);
    let stat = |key| stats.and_then(|stats| count_in(stats, key));
    let all = (stat("totalDocsExamined"), stat("totalKeysExamined"), stat("nReturned"));
    let (Some(documents), Some(keys), Some(returned)) = all else { return Ok(None) };
    Ok(Some(Examined { documents, keys, returned }))
}
