//! The JSON Schema of the policy (draft-07), made from the table of keys.

use serde_json::{Map, Value, json};

use super::key::{AnyKey, Key, Kind};
use super::kinds::Seconds;
use super::{filter, keys, relative};

/// Returns the JSON Schema of the policy; the text differs only between versions of sweeper.
pub fn json_schema() -> String {
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "sweeper policy",
        "description": "Documents that sweeper deletes from MongoDB, and the limits within which it does.",
    });
    let policy = keys::POLICY.schema(|key| key.schema());
    merge(&mut schema, policy);
    schema["properties"]["connection"]["properties"]["expect"]["anyOf"] = json!([
        { "required": [name(&keys::REPLICA_SET)] },
        { "required": [name(&keys::HOSTS)], "properties": { name(&keys::HOSTS): { "minItems": 1 } } },
    ]);
    let mut defaults = keys::DEFAULTS.schema(reference);
    defaults["not"] = both_expiries();
    merge(&mut schema["properties"]["defaults"], defaults);
    schema["allOf"] = json!([every_rule_expires(), minus_one_of_a_rule(), minus_one_of_the_defaults()]);
    schema["definitions"] = definitions();
    format!("{schema:#}\n")
}

/// Returns the definitions that the properties refer to. Each key that rules and `defaults` share is defined here, once.
fn definitions() -> Value {
    let mut rule = keys::RULE.schema(|key| if is_shared(key) { reference(key) } else { key.schema() });
    rule["not"] = both_expiries();
    rule["allOf"] = json!([exclude_needs_a_glob(), id_holds_no_number_or_text()]);
    let mut definitions = json!({
        "variable": {
            "type": "string",
            "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
            "description": "A string with an environment variable in it: ${NAME}, which must be set, or ${NAME:-default}.",
        },
        "query": {
            "propertyNames": {
                "not": { "anyOf": [{ "enum": filter::FORBIDDEN.concat() }, { "pattern": format!("^{}", filter::INTERNAL.replace('$', r"\$")) }] },
            },
            "properties": { relative::AGO: Seconds.schema() },
            "if": { "required": [relative::AGO] },
            "then": { "maxProperties": 1 },
            "additionalProperties": { "$ref": "#/definitions/query" },
            "items": { "$ref": "#/definitions/query" },
        },
        "rule": rule,
    });
    let shared: Map<String, Value> = keys::SHARED.iter().map(|key| (key.about().name.to_owned(), key.schema())).collect();
    merge(&mut definitions, Value::Object(shared));
    let either = [name(&keys::DIRECTORY), name(&keys::URL)];
    definitions[name(&keys::ARCHIVE)]["oneOf"] = either.iter().map(|key| json!({ "required": [key] })).collect();
    definitions
}

/// Returns the condition that no mapping may meet: both keys of the expiry in one place.
fn both_expiries() -> Value {
    json!({ "required": [name(&keys::EXPIRE_AFTER_SECONDS), name(&keys::EXPIRE_AFTER)] })
}

fn has_an_expiry() -> Value {
    json!({ "anyOf": [{ "required": [name(&keys::EXPIRE_AFTER)] }, { "required": [name(&keys::EXPIRE_AFTER_SECONDS)] }] })
}

fn expires_after_minus_one() -> Value {
    let seconds = name(&keys::EXPIRE_AFTER_SECONDS);
    json!({ "required": [seconds], "properties": { seconds: { "const": -1 } } })
}

fn has_a_ttl_field() -> Value {
    json!({ "required": [name(&keys::TTL_FIELD)] })
}

fn every_rule_expires() -> Value {
    json!({ "if": of_the_defaults(has_an_expiry()), "else": of_every_rule(has_an_expiry()) })
}

fn minus_one_of_a_rule() -> Value {
    let rule = json!({ "if": expires_after_minus_one(), "then": has_a_ttl_field() });
    json!({ "if": of_the_defaults(has_a_ttl_field()), "else": of_every_rule(rule) })
}

fn minus_one_of_the_defaults() -> Value {
    let mut defaults = expires_after_minus_one();
    defaults["not"] = has_a_ttl_field();
    json!({
        "if": of_the_defaults(defaults),
        "then": of_every_rule(json!({ "anyOf": [has_an_expiry(), has_a_ttl_field()] })),
    })
}

fn exclude_needs_a_glob() -> Value {
    json!({
        "if": { "required": [name(&keys::EXCLUDE)] },
        "then": { "properties": { name(&keys::NAMESPACE): { "pattern": r"\*|\$\{" } } },
    })
}

fn id_holds_no_number_or_text() -> Value {
    json!({
        "if": { "required": [name(&keys::FIELD)], "properties": { name(&keys::FIELD): { "const": "_id" } } },
        "then": { "properties": { name(&keys::DATE_FORMAT): { "not": { "enum": ["epochSeconds", "epochMillis", "iso8601"] } } } },
    })
}

fn of_the_defaults(condition: Value) -> Value {
    json!({ "required": [name(&keys::DEFAULTS_KEY)], "properties": { name(&keys::DEFAULTS_KEY): condition } })
}

fn of_every_rule(condition: Value) -> Value {
    json!({ "properties": { name(&keys::COLLECTIONS): { "items": condition } } })
}

fn reference(key: &dyn AnyKey) -> Value {
    json!({ "$ref": format!("#/definitions/{}", key.about().name) })
}

fn is_shared(key: &dyn AnyKey) -> bool {
    keys::DEFAULTS.names().any(|name| name == key.about().name)
}

fn name<K>(key: &'static Key<K>) -> &'static str
where
    Key<K>: AnyKey,
{
    key.about().name
}

/// Puts the entries of one object into another.
fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}
