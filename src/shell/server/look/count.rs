//! Counts of the documents that a rule deletes or keeps. Reads only.

pub(crate) mod in_parts;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};

use crate::base::values::raw::{self, RawValue};
use crate::base::values::{count_in, integer};
use crate::core::audit::figures::PARENT_FIELD;
use crate::core::expiry::Expiry;
use crate::core::expiry::expression::{is_type, when};
use crate::core::expiry::shape::STRING;
use crate::core::pace::units::{CountFindings, UnitForecast};
use crate::core::plan::findings::{CountedDocuments, Expired};
use crate::core::plan::holds::KeyCondition;
use crate::core::plan::outcome::HeldDocuments;
use crate::core::plan::{Selection, Storage, SweepRule};
use crate::core::policy::namespace::Namespace;
use crate::core::policy::paths;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::meter::Account;
use crate::shell::server::{Deployment, ReadOptions};

/// Number of keys that are named of those by which most documents are held.
const MAX_HOLDS_NAMED: usize = 5;

/// Time limit of the look for one expired document.
const MAX_LOOK_TIME: Duration = Duration::from_secs(10);

/// Counts the expired documents of a rule as [`expired`] does, and says what a sweep will cost where the service bills it.
pub(crate) async fn expired_and_forecast(
    deployment: &Deployment,
    rule: &SweepRule,
    enough: Option<u64>,
) -> Result<(Expired, Option<UnitForecast>)> {
    let before = deployment.account().map(Account::spent);
    let expired = expired(deployment, rule, enough).await?;
    let SweepRule { selection, limits, .. } = rule;
    let per_second = [limits.max_request_units, selection.throughput].into_iter().flatten().min().map(f64::from);
    let forecast = before.zip(deployment.account()).filter(|_| expired.is_complete).map(|(before, account)| {
        UnitForecast::of(&CountFindings {
            units: account.spent() - before,
            expired: expired.count,
            average_bytes: selection.size.average_bytes,
            indexes: selection.indexes,
            finds_first: rule.finds_first(),
            per_second,
        })
    });
    Ok((expired, forecast))
}

/// Counts the expired documents of a rule along its index, or in one pass over the collection if it has none.
///
/// A service that bills each document that a count loads is asked in parts, and no further than to `enough` documents, if that is
/// given.
async fn expired(deployment: &Deployment, rule: &SweepRule, enough: Option<u64>) -> Result<Expired> {
    let SweepRule { selection, expiry, .. } = rule;
    if deployment.facts.capabilities.request_charge {
        let count = in_parts::count(deployment, &rule.namespace, expiry, selection, enough).await?;
        let is_complete = enough.is_none_or(|enough| count < enough);
        return Ok(Expired { count, is_complete, oldest: None, measurements: None });
    }
    let matching = doc! { "$match": selection.predicate.clone() };
    let earliest = expiry.earliest();
    if !deployment.facts.capabilities.sorts {
        let group = doc! { "_id": null, "count": { "$sum": 1 }, "oldest": { "$min": earliest } };
        let found = one_unheld(deployment, selection, vec![matching, doc! { "$group": group }]).await?;
        return Ok(read(expiry, found.as_ref()));
    }
    if selection.index.is_none() {
        let mut group = doc! { "_id": null, "count": { "$sum": 1 }, "oldest": { "$min": earliest } };
        if let Storage::Buckets { measurements } = &selection.storage {
            group.insert("measurements", doc! { "$sum": in_bucket(measurements) });
        }
        let found = one_unheld(deployment, selection, vec![matching, doc! { "$group": group }]).await?;
        return Ok(read(expiry, found.as_ref()));
    }
    let group = doc! { "$group": { "_id": null, "count": { "$sum": 1 } } };
    let found = one_unheld(deployment, selection, vec![matching, group]).await?;
    let mut expired = read(expiry, found.as_ref());
    if expired.count > 0 {
        let found = one_unheld(deployment, selection, oldest(deployment, rule)).await?;
        expired.oldest = read(expiry, found.as_ref()).oldest;
    }
    Ok(expired)
}

/// Counts the documents of a rule's collection one by one, no further than to `enough`; `None` if the service's own count has to
/// do.
///
/// The own count of a mongod is wrong after an unclean shutdown (MongoDB manual, "count": "Accuracy after Unexpected
/// Shutdown"). The count of a sharded cluster has the documents of unfinished migrations in it (same page, "Behavior on Sharded
/// Clusters"). A service that keeps no such count was counted before, and one that bills requests charges every document that a
/// count loads.
pub(crate) async fn documents_up_to(
    deployment: &Deployment,
    selection: &Selection,
    enough: u64,
) -> Result<Option<CountedDocuments>> {
    let capabilities = &deployment.facts.capabilities;
    if !capabilities.own_counts || capabilities.request_charge {
        return Ok(None);
    }
    // Without a condition the index on the `_id` holds all that the count needs. On a shard it does not say whose the documents
    // are.
    let hint = (selection.storage == Storage::Plain && selection.shard_key.is_empty()).then_some("_id_");
    let Selection { namespace, .. } = selection;
    let count = up_to(deployment, namespace, hint, enough).await?;
    Ok(Some(CountedDocuments { count, is_complete: count < enough }))
}

/// Counts the documents of a collection one by one, no further than to `enough`.
pub(crate) async fn up_to(deployment: &Deployment, namespace: &Namespace, hint: Option<&str>, enough: u64) -> Result<u64> {
    let most = i64::try_from(enough).unwrap_or(i64::MAX).max(1);
    let stages = vec![doc! { "$limit": most }, doc! { "$group": { "_id": null, "count": { "$sum": 1 } } }];
    let query = Query::aggregate(namespace, stages).hint(hint).max_time(deployment.read_options.max_time);
    let found = query.read_preference(deployment.read_options.preference).all(deployment).await?;
    Ok(found.first().and_then(|found| count_in(found, "count")).unwrap_or(0))
}

/// Counts the expired documents of a rule along its index; `None` if that takes longer than `max_time`, or there is no index.
pub(crate) async fn expired_within(deployment: &Deployment, rule: &SweepRule, max_time: Duration) -> Option<u64> {
    let SweepRule { selection, expiry, .. } = rule;
    selection.index.as_ref().filter(|index| index.bounded && deployment.facts.capabilities.sorts)?;
    let group = doc! { "$group": { "_id": null, "count": { "$sum": 1 } } };
    let stages = vec![doc! { "$match": selection.predicate.clone() }, group];
    let found = one_unheld(&limited(deployment, max_time), selection, stages).await.ok()?;
    Some(read(expiry, found.as_ref()).count)
}

/// Whether a rule has an expired document. Returns `None` if the look fails, or takes too long: a sweep has more patience, and
/// goes through the collection at a pace.
pub(crate) async fn has_some(deployment: &Deployment, selection: &Selection) -> Option<bool> {
    let first = [doc! { "$limit": 1 }, doc! { "$project": { "_id": 1 } }];
    let stages = [doc! { "$match": selection.predicate.clone() }].into_iter().chain(first).collect();
    one_unheld(&limited(deployment, MAX_LOOK_TIME), selection, stages).await.ok().map(|found| found.is_some())
}

/// Returns the earliest date of any expired document; `None` if the index does not lead to it at once, or that takes longer than
/// `max_time`.
pub(crate) async fn oldest_within(deployment: &Deployment, rule: &SweepRule, max_time: Duration) -> Option<DateTime> {
    let SweepRule { selection, expiry, .. } = rule;
    selection.index.as_ref().filter(|index| index.bounded && index.oldest_first && deployment.facts.capabilities.sorts)?;
    if bounds_date(rule) {
        return None;
    }
    let found = one_unheld(&limited(deployment, max_time), selection, oldest(deployment, rule)).await.ok()?;
    read(expiry, found.as_ref()).oldest
}

/// Returns the same deployment with a time limit for queries, and the default read preference.
fn limited(deployment: &Deployment, max_time: Duration) -> Deployment {
    Deployment { read_options: ReadOptions { max_time: Some(max_time), ..ReadOptions::default() }, ..deployment.clone() }
}

/// Whether the filter of a rule also has a condition on the date field. Where dates are arrays, the server may then walk the
/// index by that condition, and the first match is not the one with the earliest date.
fn bounds_date(rule: &SweepRule) -> bool {
    let SweepRule { selection, expiry, .. } = rule;
    let is_within =
        |path: &str, other: &str| path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let paths = selection.filter.iter().flat_map(|filter| paths::of_filter(filter, &[]));
    paths.into_iter().any(|found| is_within(&found.path, &expiry.field) || is_within(&expiry.field, &found.path))
}

/// Returns the stages for the earliest date: the date of the first match along an ascending index. An index in another order has
/// to be read as a whole, and so has every index behind a router, which takes the first match of any shard.
fn oldest(deployment: &Deployment, rule: &SweepRule) -> Vec<Document> {
    let (matching, earliest) = (doc! { "$match": rule.selection.predicate.clone() }, rule.expiry.earliest());
    let is_ascending = rule.selection.index.as_ref().is_some_and(|index| index.oldest_first);
    if is_ascending && !bounds_date(rule) && !deployment.facts.is_behind_router() {
        return vec![matching, doc! { "$limit": 1 }, doc! { "$project": { "_id": 0, "oldest": earliest } }];
    }
    vec![matching, doc! { "$group": { "_id": null, "oldest": { "$min": earliest } } }]
}

fn read(expiry: &Expiry, found: Option<&Document>) -> Expired {
    let number = |key| found.and_then(|found| count_in(found, key));
    let oldest = found.and_then(|found| found.get("oldest")).and_then(|oldest| expiry.instant(oldest));
    Expired { count: number("count").unwrap_or(0), is_complete: true, oldest, measurements: number("measurements") }
}

/// Returns an expression for the number of measurements in a bucket: a compressed bucket holds it, in others every measurement
/// has a key.
pub(crate) fn in_bucket(dates: &str) -> Bson {
    let dates = format!("${dates}");
    let keys = doc! { "$size": { "$objectToArray": &dates } };
    when(is_type(dates, "object"), keys, doc! { "$ifNull": ["$control.count", 0] })
}

/// Counts documents that the rule keeps although they seem to be meant to expire, by reason; `None` for rules that have no such
/// reason.
pub(crate) async fn never_expires(deployment: &Deployment, rule: &SweepRule) -> Result<Option<BTreeMap<String, u64>>> {
    let expiry = &rule.expiry;
    let reasons = [
        ("ttlNotPositive", expiry.ttl_not_positive()),
        ("implausibleEpoch", expiry.implausible_epoch()),
        (STRING, expiry.unreadable_string()),
        (PARENT_FIELD, rule.of_unclear_key()),
    ];
    let mut counts = BTreeMap::new();
    for (reason, predicate) in reasons {
        let Some(predicate) = predicate else { continue };
        counts.insert(reason.to_owned(), matching(deployment, rule, predicate).await?);
    }
    Ok((!counts.is_empty()).then_some(counts))
}

/// Counts documents that have expired and stay, because it is unclear which children they have; `None` where it is always clear.
pub(crate) async fn of_unclear_key(deployment: &Deployment, rule: &SweepRule) -> Result<Option<u64>> {
    let Some(predicate) = rule.of_unclear_key() else { return Ok(None) };
    matching(deployment, rule, predicate).await.map(Some)
}

/// Counts documents whose date lies before now and whose value in the rule's `ttlField` does not count; `None` for a rule without
/// one.
pub(crate) async fn ignored_ttl(deployment: &Deployment, rule: &SweepRule) -> Result<Option<u64>> {
    let Some(predicate) = rule.expiry.ttl_ignored() else { return Ok(None) };
    matching(deployment, rule, predicate).await.map(Some)
}

/// Counts the documents of a rule's collection that match a predicate; in parts where the service bills each of them.
async fn matching(deployment: &Deployment, rule: &SweepRule, predicate: Document) -> Result<u64> {
    let SweepRule { selection, expiry, .. } = rule;
    if deployment.facts.capabilities.request_charge {
        let meant = Selection { predicate, index: None, holds: None, periods: None, ..selection.clone() };
        return in_parts::count(deployment, &rule.namespace, expiry, &meant, None).await;
    }
    let stages = vec![doc! { "$match": predicate }, doc! { "$group": { "_id": null, "count": { "$sum": 1 } } }];
    let found = one(deployment, selection, stages).await?;
    Ok(read(expiry, found.as_ref()).count)
}

/// Counts the documents that have expired, by their periods too, and that holds keep, by their keys. `None` in a rule without
/// holds, or where the service bills every document that is looked at.
///
/// A document with a list of keys counts once, under its list.
pub(crate) async fn held(deployment: &Deployment, rule: &SweepRule) -> Result<Option<HeldDocuments>> {
    let selection = &rule.selection;
    let Some(holds) = selection.holds.as_ref().filter(|_| !deployment.facts.capabilities.request_charge) else { return Ok(None) };
    by_key(deployment, selection, &holds.path, selection.kept_by_holds()?).await.map(Some)
}

/// Counts the documents that have expired by the shortest period and stay because their own is unclear, by their keys. `None` in
/// a rule without periods, or where the service bills every document that is looked at.
pub(crate) async fn unclear_periods(deployment: &Deployment, rule: &SweepRule) -> Result<Option<HeldDocuments>> {
    let selection = &rule.selection;
    let periods = selection.periods.as_ref().filter(|_| !deployment.facts.capabilities.request_charge);
    let Some(periods) = periods else { return Ok(None) };
    by_key(deployment, selection, &periods.path, periods.unclear()?).await.map(Some)
}

/// Counts the documents that a rule's predicate and a condition on their key select, by the keys; none without a condition.
async fn by_key(
    deployment: &Deployment,
    selection: &Selection,
    path: &str,
    condition: Option<KeyCondition>,
) -> Result<HeldDocuments> {
    let Some(condition) = condition else { return Ok(HeldDocuments::default()) };
    let matching = doc! { "$match": selection.predicate.clone() };
    let group = doc! { "$group": { "_id": format!("${path}"), "count": { "$sum": 1 } } };
    let found = query(deployment, selection, vec![matching, group]).only(Some(condition)).all_raw(deployment).await?;
    let mut keys: Vec<(u64, &RawDocumentBuf)> = found.iter().map(|key| (count_at(key), key)).collect();
    // Keys with the same count in an order of their own: the server's changes from look to look.
    keys.sort_by_key(|(count, key)| (Reverse(*count), key.as_bytes()));
    let named = |key: &RawDocumentBuf| raw::shown(key).remove("_id").unwrap_or(Bson::Null);
    Ok(HeldDocuments {
        count: keys.iter().map(|(count, _)| count).sum(),
        most: keys.iter().take(MAX_HOLDS_NAMED).map(|(count, key)| (named(key), *count)).collect(),
    })
}

fn count_at(document: &RawDocumentBuf) -> u64 {
    let count = RawValue::decoded_at(document, "count");
    count.and_then(|count| integer(&count)).and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}

/// Returns the first document that an aggregation over the documents without a hold yields.
async fn one_unheld(deployment: &Deployment, selection: &Selection, stages: Vec<Document>) -> Result<Option<Document>> {
    Ok(unheld(deployment, selection, stages).await?.into_iter().next())
}

/// Returns the few documents that an aggregation over the documents without a hold yields.
pub(crate) async fn unheld(deployment: &Deployment, selection: &Selection, stages: Vec<Document>) -> Result<Vec<Document>> {
    query(deployment, selection, stages).only(selection.unheld()?).all(deployment).await
}

/// Returns the first document that an aggregation yields.
async fn one(deployment: &Deployment, selection: &Selection, stages: Vec<Document>) -> Result<Option<Document>> {
    Ok(documents(deployment, selection, stages).await?.into_iter().next())
}

/// Returns the few documents that an aggregation yields.
pub(crate) async fn documents(deployment: &Deployment, selection: &Selection, stages: Vec<Document>) -> Result<Vec<Document>> {
    query(deployment, selection, stages).all(deployment).await
}

pub(super) fn query(deployment: &Deployment, selection: &Selection, stages: Vec<Document>) -> Query {
    Query::aggregate(&selection.namespace, stages)
        .read_preference(deployment.read_options.preference)
        .max_time(deployment.read_options.max_time)
        .hint(selection.index.as_ref().map(|index| index.name.as_str()))
        .collation(selection.collation.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::values::integer_in;
    use crate::core::flavor::Flavor;
    use crate::shell::server::wire::codes;
    use crate::shell::server::wire::error::ServerError;
    use crate::testing::made_up::planned;
    use crate::testing::portable::assert_portable;
    use crate::testing::scripted::{Script, ScriptedReply};

    #[tokio::test]
    async fn documents_are_counted_along_the_ids_where_no_shard_and_no_bill_forbids_it() {
        let rule = planned("", 7).decision.countable().unwrap().clone();
        let replies = [5, 3].map(|n| [ScriptedReply::Batch(vec![doc! { "count": n }]), ScriptedReply::End]);
        let script = Script::new(replies.into_iter().flatten());
        let mut deployment = script.deployment();
        let counted = documents_up_to(&deployment, &rule.selection, 5).await.unwrap();
        assert_eq!(counted, Some(CountedDocuments { count: 5, is_complete: false }));
        let sharded = Selection { shard_key: vec!["k".into()], ..rule.selection.clone() };
        let counted = documents_up_to(&deployment, &sharded, 5).await.unwrap();
        assert_eq!(counted, Some(CountedDocuments { count: 3, is_complete: true }));
        let pipeline = script.sent()[0].get_array("pipeline").unwrap().clone();
        assert_eq!(pipeline[0], doc! { "$limit": 5_i64 }.into());
        let hints: Vec<_> = script.sent().iter().map(|sent| sent.get("hint").cloned()).collect();
        assert_eq!(hints, [Some("_id_".into()), None]);
        for flavor in [Flavor::CosmosRu, Flavor::DocumentDb] {
            deployment.facts.capabilities = flavor.capabilities(17);
            assert_eq!(documents_up_to(&deployment, &rule.selection, 5).await, Ok(None));
        }
        assert_eq!(script.sent().len(), 2);
    }

    #[tokio::test]
    async fn a_look_that_fails_says_nothing() {
        let rule = |documents| planned("", documents).decision.countable().unwrap().clone();
        let error = |code| ScriptedReply::Error(ServerError::reported(code, "no", ""));
        for (documents, replies, expected, sent) in [
            (4, vec![ScriptedReply::End], Some(false), 1),
            (4, vec![ScriptedReply::Batch(vec![doc! { "_id": 1 }]), ScriptedReply::End], Some(true), 1),
            (4, vec![error(codes::MAX_TIME_MS_EXPIRED)], None, 1),
            (4, vec![error(codes::UNAUTHORIZED)], None, 1),
            // The documents were counted before the run waited for its lock.
            (0, vec![ScriptedReply::Batch(vec![doc! { "_id": 1 }]), ScriptedReply::End], Some(true), 1),
        ] {
            let script = Script::new(replies);
            assert_eq!(has_some(&script.deployment(), &rule(documents).selection).await, expected, "{documents} {sent}");
            assert_eq!(script.sent().len(), sent);
        }
        let script = Script::new([ScriptedReply::End]);
        has_some(&script.deployment(), &rule(4).selection).await;
        let (first, sent) = (doc! { "$match": rule(4).selection.predicate }, script.sent().remove(0));
        assert_eq!(sent.get_array("pipeline").unwrap()[..2], [first.into(), doc! { "$limit": 1 }.into()]);
        assert_eq!(integer_in(&sent, "maxTimeMS"), Some(10_000));
    }

    #[test]
    fn the_count_of_measurements_does_not_rely_on_what_the_engines_evaluate_in_different_ways() {
        assert_portable(&in_bucket("data.at"));
    }
}
