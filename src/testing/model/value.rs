//! Values of expressions, which can be missing.

use std::borrow::Cow;

use bson::Bson;

use super::order::{compare, is_number};

/// The value of an expression; `None` if it is missing.
pub(super) type Value<'a> = Option<Cow<'a, Bson>>;

/// Tells whether a value counts as true.
pub(super) fn is_true(value: Option<&Bson>) -> bool {
    match value {
        None | Some(Bson::Null | Bson::Undefined | Bson::Boolean(false)) => false,
        Some(number) if is_number(number) => compare(number, &Bson::Int32(0)).is_ne(),
        Some(_) => true,
    }
}

/// Tells whether a value is missing, null or undefined.
pub(super) fn is_nothing(value: Option<&Bson>) -> bool {
    matches!(value, None | Some(Bson::Null | Bson::Undefined))
}

/// Returns the value, or null if it is missing.
pub(super) fn or_null(value: Value<'_>) -> Bson {
    value.map_or(Bson::Null, Cow::into_owned)
}

/// Returns a small number as the server does.
pub(super) fn number(n: usize) -> Bson {
    Bson::Int32(i32::try_from(n).expect("a small number"))
}
