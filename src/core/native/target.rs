//! The native TTL setting by which the server would delete what a rule deletes.

use bson::{Bson, Document};

use crate::core::facts::{Collection, CollectionKind, LAST_CHANGE, Scope, TimeSeries};
use crate::core::plan::buckets::of_meta;
use crate::core::policy::{DateFormat, Rule, relative};

/// Wire version of MongoDB 6.0, from which the filter of a partial index may have `$or`, `$in` and a nested `$and`.
const PARTIAL_OR: i32 = 17;

/// Wire version of MongoDB 7.1, from which a capped collection may have a TTL index.
const CAPPED_TTL: i32 = 22;

/// Wire version of MongoDB 7.0, from which a time-series collection may have a TTL index with a filter on its metaField.
const PARTIAL_SERIES: i32 = 21;

/// A rule as a native TTL setting.
#[derive(Debug, Clone, PartialEq)]
pub struct TtlTarget {
    pub scope: Scope,
    pub field: String,
    /// `None` if the rule is disabled, so that the server should not delete either. -1, only on `_ts`, stands for the documents'
    /// own ttl.
    pub seconds: Option<i64>,
    pub partial: Option<Document>,
    /// Collation of the strings in the partial filter; `None` for the simple collation, or without a filter.
    pub collation: Option<Document>,
}

/// Turns a rule into the setting by which the server would delete the same documents of one collection.
///
/// Errors: the reason why there is no such setting.
pub fn target(rule: &Rule, collection: &Collection, wire_version: i32) -> Result<TtlTarget, String> {
    if rule.family.is_some() {
        return Err("its children go with its documents (`children`, `gridfs`); native TTL would leave them behind".into());
    }
    if collection.kind == CollectionKind::CosmosRu || rule.field.as_deref() == Some(LAST_CHANGE) {
        return of_cosmos(rule, collection);
    }
    if rule.periods.is_some() {
        return Err("`periods`; native TTL knows one time for all documents".into());
    }
    if rule.holds.is_some() {
        return Err("`holds`; native TTL deletes what is held as well".into());
    }
    if let Some(ttl_field) = &rule.ttl_field {
        return Err(format!("a ttl in each document (`ttlField: {ttl_field}`); native TTL has one value for all of them"));
    }
    let of_series = if let CollectionKind::TimeSeries(series) = &collection.kind { Some(&series.time_field) } else { None };
    let Some(field) = rule.field.as_ref().or(of_series) else {
        return Err("the rule names no `field`, and this is not a time-series collection".into());
    };
    let is_id = field == "_id";
    match rule.date_format {
        Some(DateFormat::EpochSeconds | DateFormat::EpochMillis) => {
            return Err("numbers as dates (`dateFormat`); native TTL knows only BSON dates".into());
        }
        Some(DateFormat::Iso8601) => return Err("strings as dates (`dateFormat`); native TTL knows only BSON dates".into()),
        Some(DateFormat::ObjectId) => return Err("the time inside an ObjectId; native TTL knows only BSON dates".into()),
        Some(DateFormat::Date) | None => {}
    }
    if rule.filter.as_ref().is_some_and(relative::has_any) {
        return Err("a relative date (`$ago`) in the filter; the filter of an index has dates that stay".into());
    }
    let partial = rule.filter.clone();
    let scope = match &collection.kind {
        CollectionKind::View => return Err("a view holds no documents of its own".into()),
        CollectionKind::CosmosRu => Scope::LastChange,
        CollectionKind::Capped if wire_version < CAPPED_TTL => {
            return Err("a capped collection takes no TTL index before MongoDB 7.1".into());
        }
        CollectionKind::TimeSeries(series) if *field != series.time_field => {
            return Err(format!("a time-series collection expires only by its timeField `{}`", series.time_field));
        }
        CollectionKind::TimeSeries(series) => match &partial {
            None => Scope::TimeSeries,
            Some(filter) => {
                can_select_buckets(filter, rule, series, wire_version)?;
                Scope::Index
            }
        },
        CollectionKind::Clustered if is_id && partial.is_some() => {
            return Err("a clustered collection has one expireAfterSeconds for all of it, without a filter".into());
        }
        CollectionKind::Clustered if is_id => Scope::Clustered,
        _ if is_id => return Err("the index on `_id` takes no expireAfterSeconds; only a clustered collection does".into()),
        CollectionKind::Plain | CollectionKind::Capped | CollectionKind::Clustered => Scope::Index,
    };
    if let Some(partial) = &partial {
        can_be_partial(partial, wire_version >= PARTIAL_OR, true)?;
    }
    let collation = rule.collation.as_ref().or(collection.collation.as_ref()).filter(|_| partial.is_some()).cloned();
    let seconds = rule.expire_after_seconds.filter(|_| rule.enabled).map(i64::from);
    Ok(TtlTarget { scope, field: field.clone(), seconds, partial, collation })
}

/// Checks that a partial TTL index can select the buckets of a time-series collection.
///
/// Source: MongoDB manual, "Add Secondary Indexes to Time Series Collections"; mongod 7.0.28 refuses a collation.
///
/// Errors: the reason why it cannot.
fn can_select_buckets(filter: &Document, rule: &Rule, series: &TimeSeries, wire_version: i32) -> Result<(), String> {
    if wire_version < PARTIAL_SERIES {
        return Err(
            "before MongoDB 7.0 a time-series collection has one expireAfterSeconds for all of it, without a filter".into()
        );
    }
    if rule.collation.is_some() {
        return Err("a partial TTL index of a time-series collection takes no collation".into());
    }
    of_meta(filter, series.meta_field.as_deref()).map(|_| ())
}

/// Returns the setting for Azure Cosmos DB (RU), where a document expires by the time of its last change, or by its own `ttl`.
///
/// Errors: the reason why there is no such setting.
fn of_cosmos(rule: &Rule, collection: &Collection) -> Result<TtlTarget, String> {
    if collection.kind != CollectionKind::CosmosRu {
        return Err("only Azure Cosmos DB (RU) knows `_ts`".into());
    }
    if rule.periods.is_some() {
        return Err("`periods`; native TTL knows one time for all documents".into());
    }
    if rule.holds.is_some() {
        return Err("`holds`; native TTL deletes what is held as well".into());
    }
    if rule.filter.is_some() {
        return Err("a TTL index of this service takes no filter".into());
    }
    let (scope, field) = match rule.field.as_deref() {
        Some(LAST_CHANGE) => (Scope::LastChange, LAST_CHANGE),
        Some(field) if has_ttl_index(collection, field) => (Scope::Index, field),
        _ => {
            return Err("the TTL of this service counts from the last change of a document, `_ts`; from another field only on accounts with the \
                        capability EnableTtlOnCustomPath, by a TTL index on that field, and there is none"
                .into());
        }
    };
    match (scope, &rule.ttl_field, rule.date_format) {
        (Scope::LastChange, Some(ttl_field), _) if ttl_field != "ttl" => {
            return Err("the service reads the document's own ttl only from `ttl`, in lower case".into());
        }
        (Scope::Index, Some(_), _) => {
            return Err("a ttl in each document (`ttlField`); the service reads it only with TTL on `_ts`".into());
        }
        (Scope::Index, None, Some(DateFormat::EpochSeconds | DateFormat::ObjectId | DateFormat::Iso8601)) => {
            return Err("the `dateFormat`: the service reads BSON dates, and numbers as milliseconds since 1970".into());
        }
        _ => {}
    }
    if rule.expire_after_seconds == Some(0) {
        return Err("this service takes no expireAfterSeconds of 0".into());
    }
    let seconds = rule.enabled.then(|| rule.expire_after_seconds.map_or(-1, i64::from));
    Ok(TtlTarget { scope, field: field.to_owned(), seconds, partial: None, collation: None })
}

/// Whether documents expire by a field, which an account with the capability EnableTtlOnCustomPath allows.
fn has_ttl_index(collection: &Collection, field: &str) -> bool {
    collection.ttl().iter().any(|native| native.scope == Scope::Index && native.date_field() == Some(field))
}

/// Checks that a filter can be a partialFilterExpression. Refuses every operator that is not known to be allowed there.
///
/// Errors: the message names the operator that is not allowed.
fn can_be_partial(filter: &Document, takes_or: bool, at_top: bool) -> Result<(), String> {
    let refuse = |operator: &str| Err(format!("`{operator}` in the filter, which no partial index takes"));
    for (name, condition) in filter {
        match (name.as_str(), condition) {
            ("$and", Bson::Array(parts)) if at_top || takes_or => all(parts, takes_or)?,
            ("$or", Bson::Array(parts)) if takes_or => all(parts, takes_or)?,
            (operator, _) if operator.starts_with('$') => return refuse(operator),
            (_, Bson::RegularExpression(_)) => return refuse("$regex"),
            (_, Bson::Document(operators)) => {
                for (operator, operand) in operators {
                    match operator.as_str() {
                        "$eq" | "$gt" | "$gte" | "$lt" | "$lte" | "$type" => {}
                        "$in" if takes_or => {}
                        "$exists" if *operand == Bson::Boolean(true) => {}
                        "$exists" => return refuse("$exists: false"),
                        // A name without a leading `$` means a comparison with the sub-document itself.
                        _ if !operator.starts_with('$') => {}
                        other => return refuse(other),
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn all(parts: &[Bson], takes_or: bool) -> Result<(), String> {
    parts.iter().filter_map(Bson::as_document).try_for_each(|part| can_be_partial(part, takes_or, false))
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn partial_indexes_take_few_operators() {
        for (filter, before_6, since_6) in [
            (doc! { "s": "done" }, Ok(()), Ok(())),
            (doc! { "s": Bson::Null, "n": { "$gt": 1, "$lte": 5 } }, Ok(()), Ok(())),
            (doc! { "s": { "a": 1 }, "t": { "$type": "string" }, "e": { "$exists": true } }, Ok(()), Ok(())),
            (doc! { "$and": [{ "s": 1 }, { "n": { "$eq": 2 } }] }, Ok(()), Ok(())),
            (doc! { "$and": [{ "$and": [{ "s": 1 }] }] }, Err("$and"), Ok(())),
            (doc! { "$or": [{ "s": 1 }, { "n": { "$gte": 2 } }] }, Err("$or"), Ok(())),
            (doc! { "s": { "$in": [1, 2] } }, Err("$in"), Ok(())),
            (doc! { "e": { "$exists": false } }, Err("$exists: false"), Err("$exists: false")),
            (doc! { "s": { "$ne": 1 } }, Err("$ne"), Err("$ne")),
            (doc! { "s": { "$not": { "$gt": 1 } } }, Err("$not"), Err("$not")),
            (doc! { "$expr": { "$gt": ["$a", "$b"] } }, Err("$expr"), Err("$expr")),
            (doc! { "$nor": [{ "s": 1 }] }, Err("$nor"), Err("$nor")),
            (doc! { "$or": [{ "s": { "$regex": "x" } }] }, Err("$or"), Err("$regex")),
        ] {
            for (takes_or, expected) in [(false, before_6), (true, since_6)] {
                let expected = expected.map_err(|operator| format!("`{operator}` in the filter, which no partial index takes"));
                assert_eq!(can_be_partial(&filter, takes_or, true), expected, "{filter}");
            }
        }
    }
}
