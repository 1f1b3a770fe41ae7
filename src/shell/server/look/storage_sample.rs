//! A look at how a collection is stored: whether documents that are next to each other along an index are stored close to each
//! other. It reads some documents, and keys of indexes.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::base::values::integer;
use crate::base::values::raw::RawValue;
use crate::core::plan::SweepRule;
use crate::core::plan::order::{Neighbours, StorageSample, close};
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::plan::is_in_order;

/// Documents to draw. The server draws them at random as long as they are less than a twentieth of the collection (MongoDB
/// manual, "$sample").
const DRAWN: i32 = 200;

/// Bytes of documents that the server reads at random places for any `$sample`, however few are asked for: it fills a buffer
/// before it hands out the first (mongod, `internalDocumentSourceCursorBatchSizeBytes`, 4 MiB).
const READ_FOR_SAMPLE: f64 = 4.0 * 1024.0 * 1024.0;

/// Keys of an index, one after another, that cost no more than a document at a random place.
const KEYS_PER_DOCUMENT: f64 = 100.0;

/// Expired documents whose neighbours are looked at.
const PLACES: usize = 32;

/// Expired documents whose neighbours are looked at where they are taken from the index, one after another.
const PLACES_IN_TURN: u64 = 16;

/// Neighbours along an index that are looked at from each place.
const AROUND: u64 = 5;

/// Places that are looked at at the same time: a server far away is not waited for so often, and the sweep needs as many
/// connections anyway.
const AT_ONCE: usize = 4;

/// Time after which a read of the sample is given up.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Some expired documents.
struct Drawn {
    /// Documents that were drawn or counted, expired or not.
    of: u64,
    /// Documents among them that have expired.
    expired: u64,
    /// Date and `_id` of each.
    documents: Vec<(Option<Bson>, Option<Bson>)>,
}

/// Draws expired documents of the rule and looks at what is next to them. `cache` is the size of the server's cache, if it is
/// known.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn of(deployment: &Deployment, rule: &SweepRule, cache: Option<u64>) -> Result<StorageSample> {
    let selection = &rule.selection;
    let field = &rule.expiry.field;
    let drawn = match along_index(deployment, rule).await? {
        Some(drawn) => drawn,
        None => at_random(deployment, rule).await?,
    };
    let close = close(cache, selection.size.average_bytes);
    let (name, ascending) = selection.index.as_ref().map_or(("_id_", true), |index| (&index.name, index.oldest_first));
    let step = if ascending { "$gte" } else { "$lte" };
    let places = stream::iter(drawn.documents).map(|(date, id)| async move {
        let mut found = [Neighbours::default(); 2];
        if let Some(date) = date.and_then(one) {
            found[0] = neighbours(deployment, rule, (field, doc! { step: date }), name, close).await?;
        }
        if let Some(id) = id {
            found[1] = neighbours(deployment, rule, ("_id", doc! { "$gte": id }), "_id_", close).await?;
        }
        Result::Ok(found)
    });
    let found: Vec<_> = places.buffered(AT_ONCE).try_collect().await?;
    let mut sample = StorageSample { drawn: drawn.of, expired: drawn.expired, ..StorageSample::default() };
    for [dates, ids] in found {
        sample.dates += dates;
        sample.ids += ids;
    }
    Ok(sample)
}

/// Draws from the whole collection at random.
async fn at_random(deployment: &Deployment, rule: &SweepRule) -> Result<Drawn> {
    let SweepRule { selection, expiry, .. } = rule;
    let stages = vec![
        doc! { "$sample": { "size": DRAWN } },
        doc! { "$match": selection.predicate.clone() },
        doc! { "$project": { "_id": 1, "date": format!("${}", expiry.field) } },
    ];
    let drawn = Query::aggregate(&selection.namespace, stages).collation(selection.collation.as_ref()).max_time(Some(MAX_TIME));
    let drawn = drawn.all_raw(deployment).await?;
    let documents = drawn
        .iter()
        .take(PLACES)
        .map(|document| (RawValue::decoded_at(document, "date"), RawValue::decoded_at(document, "_id")))
        .collect();
    Ok(Drawn { of: DRAWN as u64, expired: drawn.len() as u64, documents })
}

/// Counts the expired documents along the index on the date, and takes some of them at equal distances. Returns `None` if that
/// costs more than a draw at random, or if more than the date decides.
async fn along_index(deployment: &Deployment, rule: &SweepRule) -> Result<Option<Drawn>> {
    let SweepRule { selection, expiry, .. } = rule;
    let (Some(index), Some(average), true) = (&selection.index, selection.size.average_bytes, has_dates_only(rule)) else {
        return Ok(None);
    };
    let keys = |from: Option<&Bson>| {
        let mut bounds = doc! { "$lte": expiry.latest_key() };
        bounds.extend(from.map(|from| ("$gt".to_owned(), from.clone())));
        doc! { &expiry.field: bounds }
    };
    let bounded = |query: Query| query.hint(Some(index.name.as_str())).max_time(Some(MAX_TIME));
    let find = |filter: Document| bounded(Query::find(&selection.namespace, filter));
    let in_order = |from: Option<&Bson>| find(keys(from)).covered(&expiry.field).sort(doc! { &expiry.field: 1 });
    if !is_in_order(&in_order(None).explain(deployment, "queryPlanner").await?) {
        return Ok(None);
    }
    // A cast from float saturates.
    let most = (READ_FOR_SAMPLE / average.max(1.0) * KEYS_PER_DOCUMENT) as u64;
    let count = bounded(Query::count(&selection.namespace, keys(None))).limit(most + 1);
    let expired = count.number(deployment).await?;
    if expired > most {
        return Ok(None);
    }
    let (mut from, mut documents) = (None, Vec::new());
    for _ in 0..PLACES_IN_TURN {
        let next = in_order(from.as_ref()).skip(expired / PLACES_IN_TURN).limit(1).first_batch(deployment).await?;
        let Some(date) = next.first().and_then(|key| RawValue::decoded_at(key, &expiry.field)) else { break };
        let one = find(doc! { &expiry.field: &date }).projection(doc! { "_id": 1 }).limit(1).first_batch(deployment).await?;
        documents.push((Some(date.clone()), one.first().and_then(|document| RawValue::decoded_at(document, "_id"))));
        from = Some(date);
    }
    Ok(Some(Drawn { of: selection.document_count, expired, documents }))
}

/// Whether the date decides which documents expire, and only it.
fn has_dates_only(rule: &SweepRule) -> bool {
    let SweepRule { selection, expiry, .. } = rule;
    expiry.format.is_sorted_by_index()
        && expiry.ttl_field.is_none()
        && expiry.filter.is_none()
        && !expiry.checks_path
        && selection.filter.is_none()
        && !selection.has_keys()
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
    let places: Vec<i64> = found.iter().filter_map(|document| integer(&RawValue::decoded_at(document, "$recordId")?)).collect();
    let pairs = places.windows(2);
    let apart = pairs.clone().filter(|pair| pair[1].abs_diff(pair[0]) > close.unsigned_abs()).count();
    Ok(Neighbours { pairs: pairs.count() as u64, apart: apart as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::plan::index::IndexChoice;
    use crate::testing::made_up::planned;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{self, Batch, End, Reply};

    /// Returns the names of the commands that a look sends, and the second of them.
    async fn sent(change: fn(&mut SweepRule), replies: Vec<ScriptedReply>) -> (Vec<String>, Option<Document>) {
        let mut rule = planned("", 1000).decision.countable().unwrap().clone();
        rule.selection.index = Some(IndexChoice { name: "at_1".into(), oldest_first: true, bounded: true });
        rule.selection.size.average_bytes = Some(READ_FOR_SAMPLE / 10.0);
        change(&mut rule);
        let script = Script::new(replies.into_iter().chain([Batch(vec![]), End]));
        of(&script.deployment(), &rule, None).await.unwrap();
        let sent = script.sent();
        let names = sent.iter().map(|command| command.keys().next().unwrap().clone()).collect();
        (names, sent.get(1).cloned())
    }

    #[tokio::test]
    async fn documents_are_drawn_along_the_index_where_that_reads_less() {
        let plan = |is_multikey: bool| Reply(doc! { "stage": "IXSCAN", "isMultiKey": is_multikey });
        let counted = |expired: i64| vec![plan(false), Reply(doc! { "n": expired })];
        assert_eq!(sent(|_| {}, counted(1000)).await.0, ["explain", "count", "find"]);
        let (names, count) = sent(|_| {}, counted(1001)).await;
        assert_eq!(names, ["explain", "count", "aggregate"]);
        let count = count.unwrap();
        assert_eq!((&count["limit"], &count["hint"]), (&1001_i64.into(), &"at_1".into()), "no more keys are counted");
        assert_eq!(sent(|_| {}, vec![plan(true)]).await.0, ["explain", "aggregate"]);
        let changes: [fn(&mut SweepRule); 4] = [
            |rule| rule.selection.filter = Some(doc! { "a": 1 }),
            |rule| rule.selection.size.average_bytes = None,
            |rule| rule.expiry.ttl_field = Some("ttl".into()),
            |rule| rule.expiry.filter = Some(doc! { "a": 1 }),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(sent(change, vec![]).await.0, ["aggregate"], "{number}");
        }
    }
}
