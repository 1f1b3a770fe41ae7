//! Every value of a report is shown to people, or is listed as one for programs.

use serde_json::{Map, Value, json};

use super::*;
use crate::core::report::{csv, diff};

/// Values that only JSON, CSV and the history have, by their places.
const FOR_PROGRAMS: [&str; 11] = [
    "/schemaVersion",
    "/plan/path",
    "/plan/runId",
    "/plan",
    "/rules/0/predicate",
    "/rules/0/estimate/oplogBytesPerDocument",
    "/rules/0/nativeTroubles/0/reason",
    "/totals/rules",
    "/totals/wouldDeleteCount",
    "/totals/remainingCount",
    "/totals/oplogBytes",
];

fn schema() -> Value {
    serde_json::from_str(&json::schema::<Report>()).unwrap()
}

/// Returns the definition that a reference names, or the schema itself.
fn defined<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    schema["$ref"].as_str().map_or(schema, |pointer| root.pointer(pointer.trim_start_matches('#')).expect("a definition"))
}

/// Returns the schema without reference, and of several choices the first.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let schema = defined(root, schema);
    let choice = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].get(0));
    choice.map_or(schema, |choice| resolved(root, choice))
}

/// Returns an object with a value for each part of a schema; `None` if the schema names no parts.
fn object(schema: &Value, value: impl Fn(&Value) -> Value) -> Option<Value> {
    let parts = schema["properties"].as_object()?;
    Some(parts.iter().map(|(name, part)| (name.clone(), value(part))).collect::<Map<_, _>>().into())
}

/// Returns a value for a schema in which nothing is empty.
fn filled(root: &Value, schema: &Value) -> Value {
    let schema = resolved(root, schema);
    if let Some(word) = schema.get("const").or(schema["enum"].get(0)) {
        return word.clone();
    }
    match schema["type"].as_str().or(schema["type"][0].as_str()) {
        Some("object") => object(schema, |part| filled(root, part)).unwrap_or_else(|| {
            let key = schema["propertyNames"]["enum"][0].as_str().unwrap_or("key");
            json!({ key: filled(root, &schema["additionalProperties"]) })
        }),
        Some("array") => json!([filled(root, &schema["items"])]),
        Some("integer" | "number") => json!(7),
        Some("boolean") => json!(true),
        _ if is_instant(schema) => json!("2027-01-02T03:04:05.000Z"),
        _ => json!("word"),
    }
}

/// Returns the least that a schema allows: null, zero or nothing; of several words the last.
fn emptied(root: &Value, schema: &Value) -> Value {
    let null = json!("null");
    let (kinds, choices) = (schema["type"].as_array(), schema["anyOf"].as_array());
    if kinds.is_some_and(|kinds| kinds.contains(&null)) || choices.is_some_and(|all| all.iter().any(|one| one["type"] == null)) {
        return Value::Null;
    }
    let schema = defined(root, schema);
    let last = |key: &str| schema[key].as_array().and_then(|words| words.last());
    if let Some(word) = last("oneOf").map(|choice| &choice["const"]).or(last("enum")) {
        return word.clone();
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, |part| emptied(root, part)).unwrap_or_else(|| json!({})),
        Some("array") => json!([]),
        Some("integer" | "number") => json!(0),
        Some("boolean") => json!(false),
        _ if is_instant(schema) => json!("1970-01-01T00:00:00.000Z"),
        _ => json!(""),
    }
}

fn is_instant(schema: &Value) -> bool {
    schema["pattern"].as_str().is_some_and(|pattern| pattern.contains("since 1970"))
}

/// Collects the places of all named values, with what they have if they are empty.
fn places(root: &Value, schema: &Value, at: &str, found: &mut Vec<(String, Value)>) {
    let schema = resolved(root, schema);
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{at}/{name}");
        places(root, part, &place, found);
        found.push((place, emptied(root, part)));
    }
    if schema["items"].is_object() {
        places(root, &schema["items"], &format!("{at}/0"), found);
    }
}

/// Returns what people read of a report.
fn shown(report: &Value) -> [String; 2] {
    let report: Report = serde_json::from_value(report.clone()).expect("a report");
    [Format::Table, Format::Html]
        .map(|format| render(&report, format, TableStyle { colored: false, width: 400, ..TableStyle::default() }))
}

#[test]
fn every_value_is_shown_to_people_or_listed_as_one_for_programs() {
    let schema = schema();
    let kinds = [("sweep", true), ("sweep", false), ("audit", true)].map(|(command, dry_run)| {
        let mut report = filled(&schema, &schema);
        // What only some runs have is shown for them.
        (report["command"], report["dryRun"]) = (json!(command), json!(dry_run));
        (report["server"]["flavor"], report["rules"][0]["status"]) = (json!("cosmosRu"), json!("complete"));
        (shown(&report), report)
    });
    let mut found = Vec::new();
    places(&schema, &schema, "", &mut found);
    let is_hidden = |(place, empty): &(String, Value)| {
        kinds.iter().all(|(all, report)| {
            let mut without = report.clone();
            *without.pointer_mut(place).expect("a place") = empty.clone();
            shown(&without) == *all
        })
    };
    let hidden: Vec<String> = found.into_iter().filter(is_hidden).map(|(place, _)| place).collect();
    assert_eq!(hidden, FOR_PROGRAMS);
}

#[test]
fn each_name_in_a_list_of_values_is_one_of_a_rule() {
    let schema = schema();
    let known = schema["$defs"]["rule"]["properties"].as_object().unwrap();
    let nested = csv::NESTED.iter().map(|(name, _)| name);
    for name in nested.chain(&diff::FIRST).chain(&diff::LAST).chain(&diff::NOT_COMPARED).chain(&diff::MEASURED) {
        assert!(known.contains_key(*name), "{name}");
    }
    for name in diff::NOT_COMPARED_OF_RUN {
        let (part, name) = name.split_once('.').unwrap();
        assert!(schema["$defs"][part]["properties"].as_object().unwrap().contains_key(name), "{part}.{name}");
    }
}
