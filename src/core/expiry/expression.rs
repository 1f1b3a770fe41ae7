//! Choices and variables of aggregation expressions, in the form that every engine evaluates alike.
//!
//! The DocumentDB engine evaluates both branches of `$cond`, so that one which fails on a document fails the query, and only the
//! branch that is taken of `$switch` (microsoft/documentdb, `bson_expression_conditional_operators.c`). A `$let` with two
//! variables ends its server process on documents with arrays.

use bson::{Bson, doc};

/// Returns an expression for `then` if the condition is true, else for `otherwise`. The other branch is not evaluated.
pub(crate) fn when(condition: impl Into<Bson>, then: impl Into<Bson>, otherwise: impl Into<Bson>) -> Bson {
    let branch = doc! { "case": condition.into(), "then": then.into() };
    doc! { "$switch": { "branches": [branch], "default": otherwise.into() } }.into()
}

/// Returns an expression that evaluates `body` with the value as `$$name`.
pub(crate) fn with(name: &str, value: impl Into<Bson>, body: impl Into<Bson>) -> Bson {
    doc! { "$let": { "vars": { name: value.into() }, "in": body.into() } }.into()
}

/// Returns an expression that tells whether a value has a type, by the name that `$type` returns.
pub(crate) fn is_type(value: impl Into<Bson>, name: &str) -> Bson {
    doc! { "$eq": [{ "$type": value.into() }, name] }.into()
}
