//! Time-series collections, in which whole buckets are deleted once all their measurements have expired.
//!
//! A bucket is a document of `system.buckets.<collection>`, clustered on an ObjectId whose first four bytes are the seconds of
//! its earliest measurement, rounded down (`timeseries_commands_conversion_helper.cpp`, `bucket_catalog` in
//! `src/mongo/db/timeseries`). `control.max` holds its latest measurement exactly. The TTL monitor decides by the `_id` and waits
//! for one more span, because it does not read `control.max`.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use super::holds::HeldBack;
use super::{Guard, Refusal, Selection, Storage};
use crate::base::values::last_object_id;
use crate::core::expiry::Expiry;
use crate::core::facts::{Figures, TimeSeries};
use crate::core::policy::namespace::Namespace;
use crate::core::policy::{DateFormat, KeyedCollection, Rule};

/// Returns the expiry of a rule in a time-series collection, and the selection of its buckets.
///
/// Errors: a key of the rule has no meaning for time-series collections, or the buckets are not visible.
pub fn select(
    rule: &Rule,
    namespace: &Namespace,
    series: &TimeSeries,
    figures: &Figures,
    as_of: DateTime,
) -> Result<(Expiry, Selection), Refusal> {
    let refuse = |detail: String| Err(Refusal::new(Guard::TimeSeries, detail));
    let time_field = &series.time_field;
    if let Some(field) = rule.field.as_ref().filter(|field| *field != time_field) {
        return refuse(format!(
            "`field: {field}`: the dates of this time-series collection are in `{time_field}`; leave `field` out"
        ));
    }
    if let Some(ttl_field) = &rule.ttl_field {
        return refuse(format!(
            "`ttlField: {ttl_field}`: measurements are deleted in whole buckets and have no ttl of their own"
        ));
    }
    if rule.date_format.is_some_and(|format| format != DateFormat::Date) {
        return refuse("`dateFormat`: the timeField holds dates; leave it out".into());
    }
    if let Some(hint) = &rule.hint {
        return refuse(format!("`hint: {hint}`: buckets are found along the clustered `_id`; leave it out"));
    }
    if !series.shows_buckets {
        return refuse(format!(
            "this server does not show the buckets (`system.buckets.{}`), so that whole ones cannot be deleted; \
             use the server's own `expireAfterSeconds`, or put it under `exclude`",
            namespace.collection
        ));
    }
    let of_meta = |filter| of_meta(filter, series.meta_field.as_deref()).map_err(|why| Refusal::new(Guard::TimeSeries, why));
    let meta = rule.filter.as_ref().map(of_meta).transpose()?;
    let terms = terms(as_of, rule.expire_after_seconds, time_field, meta.as_ref());
    let expiry = Expiry {
        field: format!("control.max.{time_field}"),
        format: DateFormat::Date,
        expire_after_seconds: rule.expire_after_seconds,
        ttl_field: None,
        not_before_1970: false,
        checks_path: false,
        filter: Some(terms),
        as_of,
    };
    let path = |key: &str, by: &KeyedCollection| {
        meta_path(&by.of, series.meta_field.as_deref().unwrap_or_default()).ok_or_else(|| {
            let why = "a bucket is deleted as a whole, and can be held only by the metaField or a path in it";
            Refusal::new(Guard::TimeSeries, format!("`{key}`: `{}`: {why}", by.of))
        })
    };
    let holds = match &rule.holds {
        Some(holds) => Some(HeldBack::new(holds, namespace, path("holds", &holds.by)?)),
        None => None,
    };
    let periods = match &rule.periods {
        Some(periods) => Some(HeldBack::of_periods(periods, namespace, path("periods", &periods.by)?, &expiry)),
        None => None,
    };
    let selection = Selection {
        predicate: expiry.predicate(),
        filter_is_indexed: meta.is_some(),
        filter: meta,
        collation: rule.collation.clone(),
        variables: rule.variables.clone(),
        folds_ids: false,
        index: None,
        namespace: namespace.buckets(),
        uuid: series.buckets,
        shard_key: Vec::new(),
        storage: Storage::Buckets { measurements: format!("data.{time_field}") },
        document_count: figures.document_count,
        size: figures.size,
        throughput: None,
        indexes: 0,
        holds,
        periods,
    };
    Ok((expiry, selection))
}

/// Returns the conditions on a bucket besides the date of its latest measurement, together with those on the metaField, if
/// there are some.
pub(super) fn terms(as_of: DateTime, seconds: Option<u32>, time_field: &str, meta: Option<&Document>) -> Document {
    let terms = doc! {
        "_id": { "$lte": latest_id(as_of, seconds) },
        // Servers disagree on buckets from before 1970, where the seconds in an `_id` wrap, so they are kept.
        format!("control.min.{time_field}"): { "$gte": DateTime::from_millis(0) },
    };
    match meta {
        Some(meta) => doc! { "$and": [terms, meta.clone()] },
        None => terms,
    }
}

/// Returns the greatest `_id` of a bucket whose earliest measurement is at or before the threshold. It only bounds the walk;
/// `control.max` decides.
pub fn latest_id(as_of: DateTime, expire_after_seconds: Option<u32>) -> ObjectId {
    let threshold = as_of.timestamp_millis().div_euclid(1000) - expire_after_seconds.map_or(0, i64::from);
    // Before 1970 nothing is swept, not even the bucket with the least `_id` of all.
    let Ok(seconds) = u32::try_from(threshold.min(i64::from(u32::MAX))) else { return ObjectId::from_bytes([0; 12]) };
    last_object_id(seconds)
}

/// Returns the path of the metaField, or of something in it, in the buckets; `None` if a path leads elsewhere.
fn meta_path(path: &str, meta_field: &str) -> Option<String> {
    let rest = path.strip_prefix(meta_field).filter(|rest| rest.is_empty() || rest.starts_with('.'))?;
    Some(format!("meta{rest}"))
}

/// Rewrites a filter on the metaField for the buckets, which hold that field under `meta`.
///
/// Errors: the filter selects by another field.
pub fn of_meta(filter: &Document, meta_field: Option<&str>) -> Result<Document, String> {
    let Some(meta_field) = meta_field else {
        return Err("`filter`: this time-series collection has no metaField, and a bucket can be selected by nothing else".into());
    };
    let mut rewritten = Document::new();
    for (key, value) in filter {
        match (key.as_str(), value) {
            ("$and" | "$or" | "$nor", Bson::Array(branches)) => {
                let branches: Result<Vec<Document>, String> = branches
                    .iter()
                    .map(|branch| branch.as_document().ok_or_else(|| format!("`filter`: `{key}` takes documents")))
                    .map(|branch| of_meta(branch?, Some(meta_field)))
                    .collect();
                rewritten.insert(key, branches?);
            }
            ("$comment", comment) => {
                rewritten.insert(key, comment);
            }
            (path, value) => match meta_path(path, meta_field) {
                Some(path) => {
                    rewritten.insert(path, value);
                }
                None => {
                    return Err(format!(
                        "`filter`: `{path}`: a bucket is deleted as a whole and can be selected only by the metaField `{meta_field}`"
                    ));
                }
            },
        }
    }
    Ok(rewritten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_last_id_of_the_second_of_the_threshold() {
        let id = |millis, seconds| latest_id(DateTime::from_millis(millis), Some(seconds)).to_hex();
        assert_eq!(id(1_704_067_200_000, 0), "65920080ffffffffffffffff");
        assert_eq!(id(1_704_067_200_999, 1), "6592007fffffffffffffffff");
        assert_eq!(id(0, 0), "00000000ffffffffffffffff");
        assert_eq!(id(-1, 0), "000000000000000000000000");
        assert_eq!(id(0, 1), "000000000000000000000000");
        assert_eq!(id(8_000_000_000_000, 0), "ffffffffffffffffffffffff");
    }

    #[test]
    fn buckets_that_are_not_shown_are_not_swept() {
        let text = "version: 1\ncollections: [{namespace: a.b, expireAfter: 1d}]";
        let rule = crate::core::policy::parse::parse("p", text, &|_| None, true).unwrap().rules.remove(0);
        let namespace = Namespace { database: "a".into(), collection: "b".into() };
        let select = |shows_buckets| {
            let series = TimeSeries { time_field: "t".into(), shows_buckets, ..TimeSeries::default() };
            select(&rule, &namespace, &series, &Figures::default(), DateTime::from_millis(0))
        };
        let refusal = select(false).unwrap_err();
        assert!(refusal.detail.contains("does not show the buckets (`system.buckets.b`)"), "{refusal:?}");
        assert!(select(true).is_ok());
    }

    #[test]
    fn filters_select_only_by_the_meta_field() {
        let rewritten = of_meta(
            &doc! { "m": { "$in": [1, 2] }, "$or": [{ "m.a.b": 1 }, { "$nor": [{ "m": Bson::Null }] }], "$comment": "x" },
            Some("m"),
        );
        let expected =
            doc! { "meta": { "$in": [1, 2] }, "$or": [{ "meta.a.b": 1 }, { "$nor": [{ "meta": Bson::Null }] }], "$comment": "x" };
        assert_eq!(rewritten, Ok(expected));
        for filter in [
            doc! { "t": 1 },
            doc! { "mm": 1 },
            doc! { "meta": 1 },
            doc! { "$expr": { "$eq": ["$m", 1] } },
            doc! { "m": 1, "$or": [{ "v": 1 }] },
        ] {
            let why = of_meta(&filter, Some("m")).unwrap_err();
            assert!(why.contains("only by the metaField `m`"), "{why}");
        }
        assert!(of_meta(&doc! { "m": 1 }, None).unwrap_err().contains("no metaField"));
    }
}
