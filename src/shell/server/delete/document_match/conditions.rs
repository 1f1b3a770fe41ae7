//! The conditions on types that a statement adds to the comparison of values.

use std::collections::HashSet;

use bson::{Bson, doc};

use super::state::DocumentState;
use super::types::FieldType;
use crate::base::values::raw::{self, RawValue};
use crate::core::expiry::expression::when;

/// Maximum number of fields that are named one by one. With more of them every statement would be long.
const MAX_NAMES: usize = 100;

/// The conditions on types for documents that all have the same fields of the same types, in addition to equality with their
/// states.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TypeConditions {
    /// A list of conditions that need no expression, each for one field; `None` if there are none.
    pub fields: Option<RawValue>,
    /// A list of expressions, and the results that they must have; `None` if there are none.
    pub compared: Option<(RawValue, RawValue)>,
}

impl TypeConditions {
    /// Returns the conditions for these documents; `None` if they do not all have the same types, or a field cannot be named in a
    /// condition.
    ///
    /// A value that equals a number can be a number of another type, and a value that equals a string can be a symbol. Every
    /// other type equals only itself (`canonicalizeBSONType` in the server's `bsontypes.h`). A condition on a field also holds
    /// for arrays with such a value, but an array equals neither a number nor a string.
    ///
    /// Errors: BSON cannot hold a condition.
    pub(super) fn of(documents: &[DocumentState]) -> Result<Option<Self>, bson::error::Error> {
        let [first, rest @ ..] = documents else { return Ok(None) };
        let types = &first.types;
        if types.has_code_scope || rest.iter().any(|state| state.types.compared != types.compared) {
            return Ok(None);
        }
        let Some(names) = same_names(documents) else { return Ok(None) };
        let (mut fields, mut expressions, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for ((name, field), compared) in names.into_iter().zip(&types.fields).zip(types.compared.items()) {
            let value = format!("${name}");
            let expression = match field {
                FieldType::Named(type_name @ ("int" | "long" | "double" | "string" | "symbol")) => {
                    fields.push(doc! { name: { "$type": type_name } });
                    continue;
                }
                FieldType::Named(_) => continue,
                FieldType::WithText => types_below(&value, types.depth, types.depth),
                FieldType::Nested => types_below(&value, 0, types.depth),
            };
            expressions.push(expression);
            expected.push(compared);
        }
        let list = |conditions: Vec<Bson>| (!conditions.is_empty()).then(|| RawValue::of(conditions)).transpose();
        let fields = list(fields.into_iter().map(Bson::from).collect())?;
        let expected = RawValue::list(&expected)?;
        Ok(Some(Self { fields, compared: list(expressions)?.map(|expressions| (expressions, expected)) }))
    }

    /// Returns the bytes of the conditions.
    pub(super) fn bytes(&self) -> usize {
        let fields = self.fields.as_ref().map_or(0, |fields| fields.as_bytes().len());
        let bytes = |(expressions, expected): &(RawValue, RawValue)| expressions.as_bytes().len() + expected.as_bytes().len();
        fields + self.compared.as_ref().map_or(0, bytes)
    }
}

/// Returns an aggregation expression for the types of a document, as [`super::types::Types::compared`] holds them.
///
/// If all documents have the same fields, the expression names each of them. If no value is nested, it asks only for the type, at
/// a third of the cost.
pub(super) fn types_expression(documents: &[DocumentState]) -> Bson {
    let depth = deepest(documents);
    let Some(names) = same_names(documents) else {
        let values = doc! { "$map": { "input": { "$objectToArray": "$$ROOT" }, "in": "$$this.v" } };
        return doc! { "$map": { "input": values, "as": "v0", "in": types_below("$$v0", 0, depth) } }.into();
    };
    let types = names.into_iter().enumerate().map(|(at, name)| {
        let value = format!("${name}");
        let any_is = |kind: fn(&FieldType) -> bool| documents.iter().any(|state| state.types.fields.get(at).is_some_and(kind));
        if any_is(|field| matches!(field, FieldType::Nested)) {
            types_below(&value, 0, depth)
        } else if any_is(|field| matches!(field, FieldType::WithText)) {
            types_below(&value, depth, depth)
        } else {
            doc! { "$type": value }.into()
        }
    });
    types.collect::<Vec<_>>().into()
}

fn deepest(documents: &[DocumentState]) -> usize {
    documents.iter().map(|state| state.types.depth).max().unwrap_or(0)
}

/// Returns the names of the fields; `None` unless all documents have the same ones in the same order, each once, and an
/// expression can name them.
fn same_names(documents: &[DocumentState]) -> Option<Vec<&str>> {
    let first = raw::names(&documents.first()?.document)?;
    let can_be_named = |name: &&str| !name.is_empty() && !name.starts_with('$') && !name.contains('.');
    let unique: HashSet<&str> = first.iter().copied().collect();
    let usable = first.len() <= MAX_NAMES && unique.len() == first.len() && first.iter().all(can_be_named);
    (usable && documents[1..].iter().all(|state| raw::has_names(&state.document, &first))).then_some(first)
}

/// Returns an expression for the type of a value, and of the values inside it down to a depth.
fn types_below(value: &str, level: usize, depth: usize) -> Bson {
    let name = || doc! { "$type": value };
    let has_text = doc! { "$or": [{ "$eq": [name(), "decimal"] }, { "$eq": [value, 0] }] };
    let scalar = when(has_text, doc! { "$concat": [name(), " ", { "$toString": value }] }, name());
    if level == depth {
        return scalar;
    }
    let values = doc! { "$map": { "input": { "$objectToArray": value }, "in": "$$this.v" } };
    let inner = when(doc! { "$isArray": value }, value, values);
    let below = format!("v{}", level + 1);
    let next = types_below(&format!("$${below}"), level + 1, depth);
    let types_inside = doc! { "$map": { "input": inner, "as": below, "in": next } };
    // The values inside come last, because a branch would nest the condition twice as deep.
    let is_scalar = doc! { "$and": [{ "$ne": [name(), "object"] }, { "$ne": [name(), "array"] }] };
    when(is_scalar, scalar, types_inside)
}
