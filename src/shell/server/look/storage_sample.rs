//! A look at how a collection is stored: whether documents that are next to each other along an index are stored close to each
//! other. It reads some documents, and keys of indexes.

use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::base::values::integer_in;
use crate::base::values::raw::RawValue;
use crate::core::plan::SweepRule;
use crate::core::plan::order::{Neighbours, StorageSample, close};
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Documents to draw. The server draws them at random as long as they are less than a twentieth of the collection (MongoDB
/// manual, "$sample").
const DRAWN: i32 = 200;

/// Expired documents whose neighbours are looked at.
const PLACES: usize = 32;

/// Neighbours along an index that are looked at from each place.
const AROUND: u64 = 5;

/// Places that are looked at at the same time: a server far away is not waited for so often, and the sweep needs as many
/// connections anyway.
const AT_ONCE: usize = 4;

/// Time after which a read of the sample is given up.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Draws documents of the rule's collection and looks at what is next to the expired ones. `cache` is the size of the server's
/// cache, if it is known.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn of(deployment: &Deployment, rule: &SweepRule, cache: Option<u64>) -> Result<StorageSample> {
    let selection = &rule.selection;
    let field = &rule.expiry.field;
    let stages = vec![
        doc! { "$sample": { "size": DRAWN } },
        doc! { "$match": selection.predicate.clone() },
        doc! { "$project": { "_id": 1, "date": format!("${field}") } },
    ];
    let drawn = Query::aggregate(&selection.namespace, stages).collation(selection.collation.as_ref()).max_time(Some(MAX_TIME));
    let drawn = drawn.all_raw(deployment).await?;
    let close = close(cache, selection.size.average_bytes);
    let (name, ascending) = selection.index.as_ref().map_or(("_id_", true), |index| (&index.name, index.oldest_first));
    let step = if ascending { "$gte" } else { "$lte" };
    let places = stream::iter(drawn.iter().take(PLACES)).map(|document| async move {
        let mut found = [Neighbours::default(); 2];
        if let Some(date) = RawValue::at(document, "date").and_then(|date| one(date.decoded()?)) {
            found[0] = neighbours(deployment, rule, (field, doc! { step: date }), name, close).await?;
        }
        if let Some(id) = RawValue::at(document, "_id").and_then(|id| id.decoded()) {
            found[1] = neighbours(deployment, rule, ("_id", doc! { "$gte": id }), "_id_", close).await?;
        }
        Result::Ok(found)
    });
    let found: Vec<_> = places.buffered(AT_ONCE).try_collect().await?;
    let mut sample = StorageSample { drawn: DRAWN as u64, expired: drawn.len() as u64, ..StorageSample::default() };
    for [dates, ids] in found {
        sample.dates += dates;
        sample.ids += ids;
    }
    Ok(sample)
}

/// Returns a value, or the first of a list: by either the document is found along the index.
fn one(value: Bson) -> Option<Bson> {
    match value {
        Bson::Array(values) => values.into_iter().next(),
        value => Some(value),
    }
}

/// Looks at the documents that come first along the index on a field, from a bound on.
async fn neighbours(
    deployment: &Deployment,
    rule: &SweepRule,
    (field, from): (&str, Document),
    index: &str,
    close: i64,
) -> Result<Neighbours> {
    let query = Query::find(&rule.selection.namespace, doc! { field: from }).covered(field).hint(Some(index)).limit(AROUND);
    let found = query.record_ids().max_time(Some(MAX_TIME)).first_batch(deployment).await?;
    let places: Vec<i64> = found.iter().filter_map(record_id).collect();
    let pairs = places.windows(2);
    let apart = pairs.clone().filter(|pair| pair[1].abs_diff(pair[0]) > close.unsigned_abs()).count();
    Ok(Neighbours { pairs: pairs.count() as u64, apart: apart as u64 })
}

/// Returns the place of a document in the storage.
fn record_id(document: &RawDocumentBuf) -> Option<i64> {
    integer_in(&doc! { "id": RawValue::at(document, "$recordId")?.decoded()? }, "id")
}
