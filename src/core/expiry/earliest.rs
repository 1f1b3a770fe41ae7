//! The earliest date at a field path, or the number of dates there, as an aggregation expression that reaches the same values as
//! an index on the path.
//!
//! Aggregation paths (`$a.b`) cannot be used directly: they flatten nested arrays, which an index does not, and do not know
//! positions (`a.0`). So the path is walked one name at a time.

use bson::{Bson, Document, doc};

use super::expression::{is_type, when, with};
use super::iso8601;
use crate::core::policy::DateFormat;

/// Returns an expression for the earliest date of a format, within `bounds`, at `path`; null if the document has none.
///
/// Rules of the walk (mongod's btree key generator): an array on the way is entered once, into its elements that are documents.
/// A numeric name is also a position in an array. An array at the end contributes its elements, unless it was reached by a
/// position.
pub(super) fn earliest(path: &str, format: DateFormat, bounds: &[(&str, i64)]) -> Bson {
    ArrayWalk { format, bounds, gather: "$min" }.whole(path)
}

/// Returns an expression for the number of dates of a format at `path`.
pub(super) fn count(path: &str, format: DateFormat) -> Bson {
    ArrayWalk { format, bounds: &[], gather: "$sum" }.whole(path)
}

struct ArrayWalk<'a> {
    format: DateFormat,
    /// Further comparisons that a number has to meet, as operator and operand.
    bounds: &'a [(&'a str, i64)],
    /// The operator that combines several values: `$min`, or `$sum` for their number.
    gather: &'a str,
}

impl ArrayWalk<'_> {
    fn whole(&self, path: &str) -> Bson {
        let names: Vec<&str> = path.split('.').collect();
        self.value(format!("${}", names[0]).into(), &names[1..])
    }

    /// Returns the earliest date, or the number of dates, below a value that was reached by name.
    fn value(&self, value: Bson, rest: &[&str]) -> Bson {
        if !rest.is_empty() {
            return self.inside(value, rest);
        }
        if self.format == DateFormat::Iso8601 {
            // The expression for one string is long, and stands here only once.
            let all = when(doc! { "$isArray": ["$$v"] }, "$$v", vec![Bson::from("$$v")]);
            return with("v", value, doc! { self.gather: { "$map": { "input": all, "as": "e", "in": self.of_string("$$e") } } });
        }
        let elements = doc! { "$filter": { "input": "$$v", "as": "e", "cond": self.is_date("$$e") } };
        let of_elements = if self.counts() {
            doc! { "$size": elements }
        } else {
            doc! { "$min": elements }
        };
        with("v", value, when(doc! { "$isArray": ["$$v"] }, of_elements, self.single()))
    }

    /// Returns the same for a value if the path continues with at least one more name.
    fn inside(&self, value: Bson, rest: &[&str]) -> Bson {
        let (name, below) = (rest[0], &rest[1..]);
        let documents = doc! { "$filter": { "input": "$$v", "as": "e", "cond": is_type("$$e", "object") } };
        let through: Bson = doc! { self.gather: { "$map": {
            "input": documents, "as": "e", "in": self.value(format!("$$e.{name}").into(), below),
        } } }
        .into();
        let array = match position(name) {
            Some(index) => doc! { self.gather: [through, self.at(doc! { "$arrayElemAt": ["$$v", index] }.into(), below)] }.into(),
            None => through,
        };
        with(
            "v",
            value,
            doc! { "$switch": {
                "branches": [
                    { "case": is_type("$$v", "object"), "then": self.value(format!("$$v.{name}").into(), below) },
                    { "case": { "$isArray": ["$$v"] }, "then": array },
                ],
                "default": self.nothing(),
            } },
        )
    }

    /// Returns the same for a value that was reached by its position in an array.
    fn at(&self, value: Bson, rest: &[&str]) -> Bson {
        if rest.is_empty() { with("v", value, self.single()) } else { self.inside(value, rest) }
    }

    fn counts(&self) -> bool {
        self.gather == "$sum"
    }

    /// Returns the result for a value without any date.
    fn nothing(&self) -> Bson {
        if self.counts() { 0.into() } else { Bson::Null }
    }

    /// Returns the expression for `$$v` if it is not an array.
    fn single(&self) -> Bson {
        if self.format == DateFormat::Iso8601 {
            return self.of_string("$$v");
        }
        let one = if self.counts() { Bson::from(1) } else { "$$v".into() };
        when(self.is_date("$$v"), one, self.nothing())
    }

    /// Returns the date of a value if it is a string that holds one, or the number of dates in it.
    fn of_string(&self, value: &str) -> Bson {
        let date = iso8601::instant(value);
        if self.counts() { when(doc! { "$eq": [date, Bson::Null] }, 0, 1) } else { date }
    }

    fn is_date(&self, value: &str) -> Document {
        let types = element_types(self.format);
        let any: Vec<Bson> = types.iter().map(|name| is_type(value, name)).collect();
        if types.contains(&"double") {
            // NaN sorts below every number and would be the earliest.
            let mut all = vec![doc! { "$or": any }, doc! { "$gte": [value, f64::NEG_INFINITY] }];
            all.extend(self.bounds.iter().map(|(operator, bound)| doc! { *operator: [value, *bound] }));
            doc! { "$and": all }
        } else {
            doc! { "$or": any }
        }
    }
}

/// Returns the types of the values that hold a date in a format, by their `$type` names.
fn element_types(format: DateFormat) -> &'static [&'static str] {
    match format {
        DateFormat::Date => &["date"],
        DateFormat::EpochSeconds | DateFormat::EpochMillis => &["int", "long", "double"],
        DateFormat::ObjectId => &["objectId"],
        DateFormat::Iso8601 => &["string"],
    }
}

/// Returns the array position that MongoDB also takes a name for: decimal digits without a leading zero. `None` for other names.
pub(super) fn position(name: &str) -> Option<i32> {
    let plain = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    if plain { name.parse().ok() } else { None }
}
