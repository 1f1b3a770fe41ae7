//! The reason why a value is not a date, as an aggregation expression that yields one word for the value at a field path.

use bson::{Bson, Document, doc};

use super::earliest::position;
use super::expression::{is_type, when, with};
use crate::core::policy::DateFormat;

/// A number under a date rule that is a plausible date as epoch seconds: 1973 to 5138.
pub(crate) const NUMBER_SECONDS: &str = "numberSeconds";

/// A number under a date rule that is a plausible date as epoch milliseconds.
pub(crate) const NUMBER_MILLIS: &str = "numberMillis";

/// A string that is no date of the rule's format.
pub(crate) const STRING: &str = "string";

/// A string under a date rule that the server reads as a date, such as one by ISO 8601.
pub(crate) const STRING_DATE: &str = "stringDate";

/// Returns an expression that names the value at `path` if it holds no date of the format. The name is a reason of
/// `neverExpires`, or one of the constants above in place of `number` or `string`.
///
/// The words are for people: they tell apart documents that never expire, and decide nothing.
pub(crate) fn shape(path: &str, format: DateFormat) -> Bson {
    let names: Vec<&str> = path.split('.').collect();
    value(format!("${}", names[0]).into(), &names[1..], format)
}

fn value(value_of: Bson, rest: &[&str], format: DateFormat) -> Bson {
    let Some((name, below)) = rest.split_first() else { return with("v", value_of, leaf(format)) };
    // A path through an array may lead to several values or to none.
    let found = when(doc! { "$eq": [{ "$size": format!("$$v.{}", rest.join(".")) }, 0] }, "missing", "arrayWithoutDate");
    let array = match position(name) {
        Some(index) => {
            let element = doc! { "$arrayElemAt": ["$$v", index] };
            when(doc! { "$gt": [{ "$size": "$$v" }, index] }, value(element.into(), below, format), found)
        }
        None => found,
    };
    with(
        "v",
        value_of,
        doc! { "$switch": {
            "branches": [
                { "case": is_type("$$v", "object"), "then": value(format!("$$v.{name}").into(), below, format) },
                { "case": { "$isArray": ["$$v"] }, "then": array },
            ],
            "default": "missing",
        } },
    )
}

/// Returns an expression for the word that describes `$$v`.
fn leaf(format: DateFormat) -> Document {
    // `$in` with a list is not used, because Azure Cosmos DB does not support it in expressions.
    let is = |names: &[&str]| doc! { "$or": names.iter().map(|name| is_type("$$v", name)).collect::<Vec<_>>() };
    let nested = doc! { "$anyElementTrue": [{ "$map": { "input": "$$v", "as": "x", "in": { "$isArray": ["$$x"] } } }] };
    let array = when(doc! { "$eq": [{ "$size": "$$v" }, 0] }, "emptyArray", when(nested, "otherType", "arrayWithoutDate"));
    let mut branches = vec![
        doc! { "case": is(&["missing"]), "then": "missing" },
        doc! { "case": is(&["null", "undefined"]), "then": "null" },
        doc! { "case": is(&["string"]), "then": string(format) },
        doc! { "case": is(&["int", "long", "double", "decimal"]), "then": number(format) },
        doc! { "case": is(&["timestamp"]), "then": "timestamp" },
        doc! { "case": { "$isArray": ["$$v"] }, "then": array },
    ];
    if format != DateFormat::Date {
        branches.push(doc! { "case": is(&["date"]), "then": "date" });
    }
    doc! { "$switch": { "branches": branches, "default": "otherType" } }
}

/// Returns an expression for the word that describes the string `$$v`. Nothing but its reading as a date is looked at: other
/// operators fail on a string that is not valid UTF-8.
fn string(format: DateFormat) -> Bson {
    if format != DateFormat::Date {
        return STRING.into();
    }
    let read = doc! { "$dateFromString": { "dateString": "$$v", "onError": Bson::Null } };
    when(doc! { "$eq": [read, Bson::Null] }, STRING, STRING_DATE)
}

fn number(format: DateFormat) -> Bson {
    if format != DateFormat::Date {
        return "number".into();
    }
    let within = |from: i64, to: i64| doc! { "$and": [{ "$gte": ["$$v", from] }, { "$lt": ["$$v", to] }] };
    let millis = when(within(100_000_000_000, 100_000_000_000_000), NUMBER_MILLIS, "number");
    when(within(100_000_000, 100_000_000_000), NUMBER_SECONDS, millis)
}
