//! Values of expressions, which can be missing, and whole numbers.

use std::borrow::Cow;

use bson::{Bson, Document};

use crate::order::{compare, is_number};

/// The value of an expression; `None` if it is missing.
pub(crate) type Value<'a> = Option<Cow<'a, Bson>>;

/// Tells whether a value counts as true.
pub(crate) fn is_true(value: Option<&Bson>) -> bool {
    match value {
        None | Some(Bson::Null | Bson::Undefined | Bson::Boolean(false)) => false,
        Some(number) if is_number(number) => compare(number, &Bson::Int32(0)).is_ne(),
        Some(_) => true,
    }
}

/// Tells whether a value is missing, null or undefined.
pub(crate) fn is_nothing(value: Option<&Bson>) -> bool {
    matches!(value, None | Some(Bson::Null | Bson::Undefined))
}

/// Returns the value, or null if it is missing.
pub(crate) fn or_null(value: Value<'_>) -> Bson {
    value.map_or(Bson::Null, Cow::into_owned)
}

/// Returns a small number as the server does.
pub(crate) fn number(n: usize) -> Bson {
    Bson::Int32(i32::try_from(n).expect("a small number"))
}

/// Returns a number of any numeric type without its fraction; `None` for NaN, Decimal128 and anything that is not a number.
pub(crate) fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        // A cast from float truncates and saturates.
        Bson::Double(n) if !n.is_nan() => Some(*n as i64),
        _ => None,
    }
}

/// Reads the number under a key, without its fraction.
pub(crate) fn integer_in(document: &Document, key: &str) -> Option<i64> {
    document.get(key).and_then(integer)
}
