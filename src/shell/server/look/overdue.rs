//! Documents that native TTL should have deleted long ago. Reads only.

use bson::{DateTime, Document, doc};

use crate::base::values::count_in;
use crate::core::audit::troubles::OverdueCount;
use crate::core::expiry::Expiry;
use crate::core::facts::{Collection, CollectionKind, NativeTtl, Scope, ServerRole, TtlMonitor};
use crate::core::plan::{Selection, buckets};
use crate::core::policy::DateFormat;
use crate::shell::server::Deployment;
use crate::shell::server::look::count::in_parts;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Seconds after which an expired document counts as overdue: several passes of the TTL monitor, which runs every 60 s.
const GRACE: u32 = 600;

/// Counts the documents that are overdue by a setting which deletes `seconds` after the date in `field`; `None` if the setting's
/// filter cannot be read. `selection` is that of a rule on the collection.
pub(crate) async fn overdue(
    deployment: &Deployment,
    selection: &Selection,
    collection: &Collection,
    ttl: &NativeTtl,
    (field, seconds): (&str, u32),
) -> Result<Option<OverdueCount>> {
    let now = deployment.facts.local_time;
    let Some(expiry) = expiry(deployment, collection, ttl, field, seconds.saturating_add(GRACE)) else { return Ok(None) };
    let seconds = expiry.expire_after_seconds.unwrap_or(seconds) - GRACE;
    let storage = collection.storage();
    let hint = ttl.index.as_deref().filter(|_| !ttl.hidden && storage == collection.namespace);
    // An index without a collation compares the strings of its filter simply, whatever the collection's collation is.
    let simple = collection.collation.as_ref().map(|_| doc! { "locale": "simple" });
    let collation = ttl.collation.clone().or(simple).filter(|_| ttl.partial.is_some());
    // Returns one document, or one for each part where the service bills what it loads; only the first with `is_one_enough`.
    let ask = async |matching: Document, then: Vec<Document>, is_one_enough: bool| -> Result<Vec<Document>> {
        if deployment.facts.capabilities.request_charge {
            let (selection, stages) = (Selection { index: None, ..selection.clone() }, then.clone());
            let parts = in_parts::aggregate(deployment, &expiry, &selection, &matching, stages, None, |_| is_one_enough);
            if let Some(parts) = parts.await? {
                return Ok(parts);
            }
        }
        let stages = [doc! { "$match": matching }].into_iter().chain(then).collect();
        let query = Query::aggregate(&storage, stages).hint(hint).collation(collation.as_ref());
        let limited = query.read_preference(deployment.read_options.preference).max_time(deployment.read_options.max_time);
        limited.all(deployment).await
    };
    let group = doc! { "$group": { "_id": null, "n": { "$sum": 1 }, "oldest": { "$min": expiry.earliest() } } };
    let found = ask(expiry.predicate(), vec![group], false).await?;
    let count = found.iter().filter_map(|found| count_in(found, "n")).sum();
    let oldest = found.iter().filter_map(|found| expiry.instant(found.get("oldest")?)).min();
    let has_date = count > 0 || {
        let mut dated = doc! { &expiry.field: { "$gte": DateTime::MIN } };
        dated.extend(
            ttl.partial
                .clone()
                .filter(|_| storage == collection.namespace)
                .map(|partial| ("$and".to_owned(), vec![partial].into())),
        );
        !ask(dated, vec![doc! { "$limit": 1 }, doc! { "$project": { "_id": 1 } }], true).await?.is_empty()
    };
    let behind = |oldest: DateTime| now.timestamp_millis().saturating_sub(oldest.timestamp_millis()) / 1000 - i64::from(seconds);
    Ok(Some(OverdueCount { count, behind_seconds: oldest.and_then(|oldest| u64::try_from(behind(oldest)).ok()), has_date }))
}

/// Returns the expiry by which the server deletes, on the documents as they are stored; `None` if the setting's filter cannot be
/// read.
fn expiry(deployment: &Deployment, collection: &Collection, ttl: &NativeTtl, field: &str, seconds: u32) -> Option<Expiry> {
    let facts = &deployment.facts;
    let plain = Expiry {
        field: field.to_owned(),
        format: DateFormat::Date,
        expire_after_seconds: Some(seconds),
        ttl_field: None,
        not_before_1970: ttl.scope == Scope::Clustered && facts.clustered_keeps_before_1970(),
        checks_path: false,
        filter: ttl.partial.clone(),
        as_of: facts.local_time,
    };
    let CollectionKind::TimeSeries(series) = &collection.kind else { return Some(plain) };
    // The server deletes a bucket by its `_id` and waits for one more span, so that all of such buckets have expired.
    let span = series.bucket_max_span_seconds.and_then(|span| u32::try_from(span).ok()).unwrap_or(0);
    let seconds = seconds.saturating_add(span);
    let mut of_buckets = doc! {
        "_id": { "$lte": buckets::latest_id(facts.local_time, Some(seconds)) },
        format!("control.min.{field}"): { "$gte": DateTime::from_millis(0) },
    };
    if let Some(partial) = &ttl.partial {
        let meta = buckets::of_meta(partial, series.meta_field.as_deref()).ok()?;
        of_buckets = doc! { "$and": [of_buckets, meta] };
    }
    let field = format!("control.max.{field}");
    Some(Expiry { field, expire_after_seconds: Some(seconds), filter: Some(of_buckets), ..plain })
}

/// Asks for the state of the TTL monitor, once the part of the server in its deployment is known. A server that does not answer,
/// or not to this user, leaves it unknown.
pub(crate) async fn monitor(deployment: &Deployment) -> TtlMonitor {
    if !deployment.facts.capabilities.parameters {
        return TtlMonitor::Unknown;
    }
    let asked = deployment.read("admin", doc! { "getParameter": 1, "ttlMonitorEnabled": 1 }).await;
    match asked.ok().and_then(|reply| reply.get_bool("ttlMonitorEnabled").ok()) {
        Some(false) => TtlMonitor::Off,
        _ if deployment.facts.role == ServerRole::Member => TtlMonitor::Maintenance,
        Some(true) => TtlMonitor::On,
        None => TtlMonitor::Unknown,
    }
}
