//! Filters and expressions that are made up.

use bson::{Bson, Document, doc};
use fastrand::Rng;

use super::values::operand;
use super::{on, one_of};

/// Returns a filter that servers accept.
pub(super) fn filter(random: &mut Rng, depth: u8) -> Document {
    if depth > 0 && random.u8(0..4) == 0 {
        let parts: Vec<Document> = (0..random.u8(1..4)).map(|_| filter(random, depth - 1)).collect();
        let operator = *one_of(random, &["$and", "$or", "$nor"]);
        let parts = Bson::from(parts);
        return on(operator, if operator == "$nor" { without_symbols(parts) } else { parts });
    }
    if random.u8(0..12) == 0 {
        return doc! { "$expr": expression(random) };
    }
    let path = *one_of(random, &["at", "at", "at", "a.b", "a", "at.0", "a.0.b", "kind", "ttl", "n", "n.b", "_id"]);
    on(path, condition(random, 1))
}

fn condition(random: &mut Rng, depth: u8) -> Bson {
    let operator = *one_of(
        random,
        &[
            "$eq",
            "$ne",
            "$gt",
            "$gte",
            "$lt",
            "$lte",
            "$in",
            "$nin",
            "$exists",
            "$type",
            "$not",
            "$size",
            "$elemMatch",
            "range",
            "",
        ],
    );
    let compared = |random: &mut Rng| *one_of(random, &["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    let operand: Bson = match operator {
        "" => return operand(random),
        "range" => return doc! { "$gte": operand(random), "$lt": operand(random) }.into(),
        "$in" | "$nin" => Bson::Array((0..random.u8(0..5)).map(|_| operand(random)).collect()),
        "$exists" => random.bool().into(),
        "$type" => match random.u8(0..4) {
            0 => vec!["date", "array", "null"].into(),
            1 => random.i32(1..19).into(),
            _ => (*one_of(random, &["date", "number", "string", "array", "object", "undefined", "null", "decimal", "maxKey"]))
                .into(),
        },
        "$size" => random.i32(0..3).into(),
        "$not" if depth > 0 => match condition(random, depth - 1) {
            Bson::Document(operators) if operators.keys().next().is_some_and(|key| key.starts_with('$')) => {
                without_symbols(operators.into())
            }
            other => doc! { "$eq": other }.into(),
        },
        "$elemMatch" => doc! { compared(random): operand(random), "$ne": operand(random) }.into(),
        _ => operand(random),
    };
    if operator == "$not" && depth == 0 { doc! { "$exists": true }.into() } else { doc! { operator: operand }.into() }
}

/// Replaces symbols that a condition on a field has as operands with texts. A mongod 6.0.5 fails with code 4457011 on the
/// negation of a comparison with a symbol. That type is deprecated, and the program itself never sends it in a filter.
fn without_symbols(condition: Bson) -> Bson {
    match condition {
        Bson::Symbol(text) => text.into(),
        Bson::Array(parts) => parts.into_iter().map(without_symbols).collect::<Vec<Bson>>().into(),
        Bson::Document(inner) if !inner.contains_key("$expr") => {
            inner.into_iter().map(|(key, value)| (key, without_symbols(value))).collect::<Document>().into()
        }
        other => other,
    }
}

/// Returns an expression that fails on no value.
pub(super) fn expression(random: &mut Rng) -> Document {
    let path = *one_of(random, &["$at", "$a.b", "$a", "$ttl", "$n", "$_id", "$$ROOT.kind", "$missing"]);
    let value = match operand(random) {
        Bson::String(text) if text.starts_with('$') => Bson::from(text.trim_start_matches('$')),
        value => doc! { "$literal": value }.into(),
    };
    let operator = *one_of(random, &["$eq", "$ne", "$lt", "$lte", "$gt", "$gte"]);
    match random.u8(0..5) {
        0 => doc! { operator: [{ "$type": path }, *one_of(random, &["date", "array", "missing", "object"])] },
        1 => doc! { operator: [{ "$ifNull": [path, value] }, path] },
        2 => doc! { "$isArray": path },
        3 => doc! { "$and": [path, { operator: [path, value] }] },
        _ => doc! { operator: [path, value] },
    }
}
