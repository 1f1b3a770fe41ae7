//! The order of BSON values, as a server compares them without a collation.

use std::cmp::Ordering;

use bson::Bson;

use crate::decimal::Decimal;

/// Compares two values: by the places of their types first, then within one place.
///
/// Source: mongo `src/mongo/bson/bsontypes.h`, canonicalizeBSONType, and `bsonelement.cpp`, compareElements.
pub fn compare(a: &Bson, b: &Bson) -> Ordering {
    rank(a).cmp(&rank(b)).then_with(|| within_rank(a, b))
}

/// Compares two values of which a missing one comes before all others but `MinKey`, as `undefined` does.
pub(crate) fn compare_values(a: Option<&Bson>, b: Option<&Bson>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => compare(a, b),
        (None, None) => Ordering::Equal,
        (None, Some(b)) => MISSING.cmp(&rank(b)),
        (Some(a), None) => rank(a).cmp(&MISSING),
    }
}

/// The place of a missing value.
pub(crate) const MISSING: u8 = 1;

/// The place of null.
pub(crate) const NULL: u8 = 2;

/// Returns the place of a value's type in the order.
pub(crate) fn rank(value: &Bson) -> u8 {
    match value {
        Bson::MinKey => 0,
        Bson::Undefined => MISSING,
        Bson::Null => NULL,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 3,
        Bson::String(_) | Bson::Symbol(_) => 4,
        Bson::Document(_) => 5,
        Bson::Array(_) => 6,
        Bson::Binary(_) => 7,
        Bson::ObjectId(_) => 8,
        Bson::Boolean(_) => 9,
        Bson::DateTime(_) => 10,
        Bson::Timestamp(_) => 11,
        Bson::RegularExpression(_) => 12,
        Bson::DbPointer(_) => 13,
        Bson::JavaScriptCode(_) => 14,
        Bson::JavaScriptCodeWithScope(_) => 15,
        Bson::MaxKey => 16,
    }
}

pub(crate) fn is_number(value: &Bson) -> bool {
    matches!(value, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_))
}

/// Returns the name of a value's type, as `$type` returns it.
pub(crate) fn type_name(value: &Bson) -> &'static str {
    match value {
        Bson::MinKey => "minKey",
        Bson::Undefined => "undefined",
        Bson::Null => "null",
        Bson::Int32(_) => "int",
        Bson::Int64(_) => "long",
        Bson::Double(_) => "double",
        Bson::Decimal128(_) => "decimal",
        Bson::String(_) => "string",
        Bson::Symbol(_) => "symbol",
        Bson::Document(_) => "object",
        Bson::Array(_) => "array",
        Bson::Binary(_) => "binData",
        Bson::ObjectId(_) => "objectId",
        Bson::Boolean(_) => "bool",
        Bson::DateTime(_) => "date",
        Bson::Timestamp(_) => "timestamp",
        Bson::RegularExpression(_) => "regex",
        Bson::DbPointer(_) => "dbPointer",
        Bson::JavaScriptCode(_) => "javascript",
        Bson::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        Bson::MaxKey => "maxKey",
    }
}

fn within_rank(a: &Bson, b: &Bson) -> Ordering {
    match (a, b) {
        (Bson::String(a) | Bson::Symbol(a), Bson::String(b) | Bson::Symbol(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Bson::Document(a), Bson::Document(b)) => documents(a, b),
        (Bson::Array(a), Bson::Array(b)) => {
            first_difference(a.iter().zip(b).map(|(a, b)| compare(a, b))).then(a.len().cmp(&b.len()))
        }
        (Bson::Binary(a), Bson::Binary(b)) => {
            let key = |binary: &bson::Binary| (binary.bytes.len(), u8::from(binary.subtype));
            key(a).cmp(&key(b)).then_with(|| a.bytes.cmp(&b.bytes))
        }
        (Bson::ObjectId(a), Bson::ObjectId(b)) => a.cmp(b),
        (Bson::Boolean(a), Bson::Boolean(b)) => a.cmp(b),
        (Bson::DateTime(a), Bson::DateTime(b)) => a.cmp(b),
        (Bson::Timestamp(a), Bson::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (Bson::RegularExpression(a), Bson::RegularExpression(b)) => {
            (a.pattern.as_str(), a.options.as_str()).cmp(&(b.pattern.as_str(), b.options.as_str()))
        }
        (Bson::JavaScriptCode(a), Bson::JavaScriptCode(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Bson::JavaScriptCodeWithScope(a), Bson::JavaScriptCodeWithScope(b)) => {
            a.code.as_bytes().cmp(b.code.as_bytes()).then_with(|| documents(&a.scope, &b.scope))
        }
        (Bson::DbPointer(a), Bson::DbPointer(b)) => format!("{a:?}").cmp(&format!("{b:?}")),
        _ => numbers(a, b),
    }
}

/// Compares documents field by field: the types decide before the names, and these before the values.
fn documents(a: &bson::Document, b: &bson::Document) -> Ordering {
    let fields = a.iter().zip(b).map(|((a_key, a), (b_key, b))| {
        rank(a).cmp(&rank(b)).then_with(|| a_key.as_bytes().cmp(b_key.as_bytes())).then_with(|| within_rank(a, b))
    });
    first_difference(fields).then(a.len().cmp(&b.len()))
}

fn first_difference(mut fields: impl Iterator<Item = Ordering>) -> Ordering {
    fields.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Compares numbers of any types; NaN comes before all others. Values without an order of their own are equal.
fn numbers(a: &Bson, b: &Bson) -> Ordering {
    match (a, b) {
        (Bson::Int32(a), Bson::Int32(b)) => return a.cmp(b),
        (Bson::Int64(a), Bson::Int64(b)) => return a.cmp(b),
        (Bson::Decimal128(_), _) | (_, Bson::Decimal128(_)) => return Decimal::of(a).cmp(&Decimal::of(b)),
        _ => {}
    }
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => match (float(a), float(b)) {
            (Some(a), Some(b)) => match (a.is_nan(), b.is_nan()) {
                (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
                (a, b) => b.cmp(&a),
            },
            _ => Ordering::Equal,
        },
    }
}

/// Returns a number that is whole, exactly.
fn whole(value: &Bson) -> Option<i128> {
    match value {
        Bson::Int32(n) => Some(i128::from(*n)),
        Bson::Int64(n) => Some(i128::from(*n)),
        // Within these bounds a cast loses nothing.
        Bson::Double(n) if n.fract() == 0.0 && n.abs() < 1e30 => Some(*n as i128),
        _ => None,
    }
}

pub(crate) fn float(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}

/// Tells whether a number is NaN.
pub(crate) fn is_nan(value: &Bson) -> bool {
    match value {
        Bson::Double(n) => n.is_nan(),
        Bson::Decimal128(_) => Decimal::of(value) == Decimal::NAN,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc, oid::ObjectId};

    use super::*;

    #[test]
    fn values_are_in_the_order_of_the_server() {
        let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
        let ascending: Vec<Bson> = vec![
            Bson::MinKey,
            Bson::Undefined,
            Bson::Null,
            f64::NAN.into(),
            f64::NEG_INFINITY.into(),
            decimal("-1E6000"),
            i64::MIN.into(),
            (-1).into(),
            decimal("0.1"),
            0.1.into(),
            0.5.into(),
            1.into(),
            decimal("1.1"),
            9_007_199_254_740_993_i64.into(),
            decimal("9007199254740993.5"),
            f64::INFINITY.into(),
            "".into(),
            "a".into(),
            doc! {}.into(),
            doc! { "b": 1 }.into(),
            doc! { "a": "x" }.into(),
            Bson::Array(vec![]),
            vec![Bson::from(1)].into(),
            ObjectId::from_bytes([0; 12]).into(),
            false.into(),
            true.into(),
            DateTime::from_millis(-1).into(),
            DateTime::from_millis(1).into(),
            Bson::MaxKey,
        ];
        for (at, a) in ascending.iter().enumerate() {
            for (other, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&other), "{a} and {b}");
            }
        }
        let equal = |a: Bson, b: Bson| assert_eq!(compare(&a, &b), Ordering::Equal, "{a} and {b}");
        equal(1.into(), 1.0.into());
        equal(decimal("1.50"), 1.5.into());
        equal(decimal("-0"), 0.into());
        equal(decimal("NaN"), f64::NAN.into());
        equal(Bson::Symbol("a".into()), "a".into());
        assert_eq!(compare(&9_007_199_254_740_993_i64.into(), &9_007_199_254_740_992.0.into()), Ordering::Greater);
    }
}
