//! Operators and stages that Cosmos DB for MongoDB (RU) does not support.
//!
//! Source: "Supported features and syntax", the same for 4.2, 5.0 and 7.0.

use mongodb::bson::{Bson, Document};

/// The supported stages.
const STAGES: [&str; 23] = [
    "$addFields",
    "$changeStream",
    "$count",
    "$facet",
    "$geoNear",
    "$group",
    "$limit",
    "$lookup",
    "$match",
    "$merge",
    "$out",
    "$planCacheStats",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$sample",
    "$set",
    "$skip",
    "$sort",
    "$sortByCount",
    "$unset",
    "$unwind",
];

const FILTERS: [&str; 7] = ["$where", "$jsonSchema", "$text", "$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear"];

/// "The API for MongoDB doesn't support comparison expressions that have an array literal in the query."
const COMPARISONS: [&str; 8] = ["$cmp", "$eq", "$gt", "$gte", "$in", "$lt", "$lte", "$ne"];

/// An unsupported part of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unsupported {
    Stage(String),
    Filter(String),
    ArrayLiteral,
    Sort,
}

pub(super) fn in_filter(filter: &Document) -> Option<Unsupported> {
    filter.iter().find_map(|(key, value)| match key.as_str() {
        "$expr" => in_expression(value),
        key if FILTERS.contains(&key) => Some(Unsupported::Filter(key.to_owned())),
        _ => in_operand(value),
    })
}

fn in_operand(value: &Bson) -> Option<Unsupported> {
    match value {
        Bson::Document(document) => in_filter(document),
        Bson::Array(values) => values.iter().find_map(in_operand),
        _ => None,
    }
}

fn in_expression(value: &Bson) -> Option<Unsupported> {
    match value {
        Bson::Array(values) => values.iter().find_map(in_expression),
        Bson::Document(document) => document.iter().find_map(|(key, value)| {
            let operands = value.as_array().filter(|_| COMPARISONS.contains(&key.as_str()));
            if operands.is_some_and(|operands| operands.iter().any(|operand| operand.as_array().is_some())) {
                return Some(Unsupported::ArrayLiteral);
            }
            if key == "$literal" { None } else { in_expression(value) }
        }),
        _ => None,
    }
}

/// Only `_id` has an index for sorting from the start ("Indexing").
pub(super) fn in_sort(sort: &Document) -> Option<Unsupported> {
    sort.keys().any(|key| key != "_id").then_some(Unsupported::Sort)
}

pub(super) fn in_pipeline<'a>(stages: impl Iterator<Item = &'a Document>) -> Option<Unsupported> {
    let mut grouped = false;
    for stage in stages {
        let Some((name, value)) = stage.iter().next() else { continue };
        let found = match (name.as_str(), value) {
            (name, _) if !STAGES.contains(&name) => Some(Unsupported::Stage(name.to_owned())),
            ("$match", Bson::Document(filter)) => in_filter(filter),
            // The output of a $group is sorted in memory.
            ("$sort", Bson::Document(sort)) if !grouped => in_sort(sort),
            ("$facet", Bson::Document(facets)) => facets
                .values()
                .filter_map(Bson::as_array)
                .find_map(|stages| in_pipeline(stages.iter().filter_map(Bson::as_document))),
            (_, value) => in_expression(value),
        };
        if found.is_some() {
            return found;
        }
        grouped |= matches!(name.as_str(), "$group" | "$sortByCount" | "$count");
    }
    None
}
