//! The JSON Schema of the policy says what the parser says: the same keys, ranges and words, and neither takes what the other refuses.

use std::sync::LazyLock;

use crate::support::sweeper::{run, sweeper};
use jsonschema::Validator;
use serde_json::{Value, json};
use ttl_sweeper::policy::{parse, schema::json_schema};
use ttl_sweeper::report::history::History;
use ttl_sweeper::report::{Report, schema};

/// No policy knows this key, and none is near it.
const UNKNOWN: &str = "qqqqqqqqqqqqqqqq";

fn schema() -> Value {
    serde_json::from_str(&json_schema()).expect("the schema is JSON")
}

fn validator() -> &'static Validator {
    static VALIDATOR: LazyLock<Validator> =
        LazyLock::new(|| jsonschema::draft7::new(&schema()).expect("the schema is one of draft-07"));
    &VALIDATOR
}

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "MONGODB_URI" => "mongodb://localhost",
        "KEEP" => "7d",
        "FLAVOR" => "cosmosRu",
        "NAMESPACE" => "app.c",
        _ => return None,
    };
    Some(value.to_owned())
}

/// What the parser says of a policy.
fn parsed(text: &str) -> Result<(), String> {
    parse::parse("p", text, &environment, false).map(|_| ()).map_err(|error| error.to_string())
}

/// What the schema says of a policy.
fn validated(text: &str) -> Result<(), String> {
    let policy: Value = serde_yaml::from_str(text).map_err(|cause| cause.to_string())?;
    validator().validate(&policy).map_err(|error| error.to_string())
}

/// A policy with one rule, which has these keys beside the usual ones.
fn rule(keys: &str) -> String {
    format!("version: 1\ncollections:\n  - namespace: app.c\n    field: at\n    {keys}\n")
}

/// A mapping of the policy, by the names and positions that lead there, with its schema.
type Place = (Vec<String>, Value);

/// Follows a `$ref` of the schema; what stands beside it wins.
fn resolve(schema: &Value, node: &Value) -> Value {
    let Some(pointer) = node["$ref"].as_str() else { return node.clone() };
    let target = schema.pointer(pointer.trim_start_matches('#')).unwrap_or_else(|| panic!("nothing at {pointer}"));
    let mut resolved = resolve(schema, target);
    for (key, value) in node.as_object().unwrap().iter().filter(|(key, _)| *key != "$ref") {
        resolved[key] = value.clone();
    }
    resolved
}

fn below(path: &[String], step: &str) -> Vec<String> {
    path.iter().cloned().chain([step.to_owned()]).collect()
}

/// Every mapping whose keys the schema lists.
fn mappings(schema: &Value, node: &Value, path: &[String], found: &mut Vec<Place>) {
    let node = resolve(schema, node);
    if let Some(properties) = node["properties"].as_object() {
        found.push((path.to_vec(), node.clone()));
        for (name, inner) in properties {
            mappings(schema, inner, &below(path, name), found);
        }
    }
    if node["items"].is_object() {
        mappings(schema, &node["items"], &below(path, "0"), found);
    }
}

/// A valid policy but for a value at a path.
fn policy_with(path: &[String], value: Value) -> Value {
    let mut policy = json!({
        "version": 1,
        "collections": [{ "namespace": "app.*", "field": "at", "expireAfter": "1d" }],
    });
    set(&mut policy, path, value);
    // What goes only with something else.
    let rule = &mut policy["collections"][0];
    if rule.get("expireAfterSeconds").is_some() {
        rule.as_object_mut().unwrap().remove("expireAfter");
    }
    policy
}

fn set(node: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *node = value;
        return;
    };
    match first.parse::<usize>() {
        Ok(index) => {
            if !node.is_array() {
                *node = json!([null]);
            }
            set(&mut node[index], rest, value);
        }
        Err(_) => {
            if !node.is_object() {
                *node = json!({});
            }
            set(&mut node[first], rest, value);
        }
    }
}

fn all_mappings() -> Vec<Place> {
    let schema = schema();
    let mut found = Vec::new();
    mappings(&schema, &schema, &[], &mut found);
    found
}

#[test]
fn the_keys_are_those_that_the_parser_knows() {
    let places = all_mappings();
    assert!(places.len() > 8, "{places:?}");
    for (path, node) in places {
        let unknown = json!({ UNKNOWN: 1 });
        let policy = if path.is_empty() { unknown } else { policy_with(&path, unknown) };
        let message = parsed(&policy.to_string()).unwrap_err();
        let unknown = format!("unknown key `{UNKNOWN}`");
        let line = message.lines().find(|line| line.contains(&unknown)).unwrap_or_else(|| panic!("{path:?}: {message}"));
        let listed = line.split_once("expected one of ").unwrap_or_else(|| panic!("{line}")).1;
        let mut known: Vec<&str> = listed.split(", ").collect();
        known.sort_unstable();
        let mut described: Vec<&str> = node["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        described.sort_unstable();
        assert_eq!(described, known, "{path:?}");
        assert_eq!(node["additionalProperties"], false, "{path:?}");
    }
}

#[test]
fn every_key_is_described() {
    let schema = schema();
    for (path, node) in all_mappings() {
        for (name, property) in node["properties"].as_object().unwrap() {
            assert!(resolve(&schema, property)["description"].is_string(), "{path:?} {name}");
        }
    }
}

#[test]
fn ranges_end_where_the_parser_ends_them() {
    let schema = schema();
    let mut ends = 0;
    for (path, node) in all_mappings() {
        for (name, property) in node["properties"].as_object().unwrap() {
            let property = resolve(&schema, property);
            if !property["maximum"].is_number() {
                continue;
            }
            let at = below(&path, name);
            for (end, step) in [("minimum", -1), ("maximum", 1)] {
                let Some(value) = property[end].as_i64() else { continue };
                for (value, fits) in [(value, true), (value + step, false)] {
                    let mut policy = policy_with(&at, json!(value));
                    if value == -1 && fits {
                        policy["collections"][0]["ttlField"] = json!("ttl");
                    }
                    let text = policy.to_string();
                    assert_eq!(parsed(&text).is_ok(), fits, "{at:?} {value}: {:?}", parsed(&text));
                    assert_eq!(validated(&text).is_ok(), fits, "{at:?} {value}: {:?}", validated(&text));
                    ends += 1;
                }
            }
        }
    }
    assert!(ends > 40, "{ends}");
}

#[test]
fn examples_defaults_and_words_are_what_the_parser_takes() {
    let schema = schema();
    let mut seen = 0;
    for (path, node) in all_mappings() {
        for (name, property) in node["properties"].as_object().unwrap() {
            let resolved = resolve(&schema, property);
            let list = |node: &Value, key: &str| node[key].as_array().cloned().unwrap_or_default();
            let mut values = [list(property, "examples"), list(&resolved, "examples")].concat();
            values.extend(resolved.get("default").cloned());
            values.extend(resolved["anyOf"].as_array().into_iter().flatten().flat_map(|inner| list(inner, "enum")));
            for value in values {
                let at = below(&path, name);
                let mut policy = policy_with(&at, value.clone());
                // What does not stand alone.
                let owner = path.iter().try_fold(&mut policy, |node, step| match step.parse::<usize>() {
                    Ok(index) => node.get_mut(index),
                    Err(_) => node.get_mut(step),
                });
                match (path.last().map(String::as_str), owner) {
                    (Some("window"), Some(window)) => {
                        let other = |key: &str, text: &str| json!(if name == key { value.as_str().unwrap() } else { text });
                        (window["start"], window["end"]) = (other("start", "22:00"), other("end", "23:00"));
                    }
                    (Some("collation"), Some(collation)) if name != "locale" => collation["locale"] = json!("en"),
                    (Some("archive"), Some(archive)) if name != "directory" => archive["directory"] = json!("/x"),
                    _ => {}
                }
                let text = policy.to_string();
                seen += 1;
                assert_eq!(parsed(&text), Ok(()), "{text}");
                assert_eq!(validated(&text), Ok(()), "{text}");
            }
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn what_the_parser_takes_is_valid() {
    let mut policies = vec![include_str!("../../../sweeper.example.yaml").to_owned()];
    policies.extend([
        "version: 0x1\nconnection: {uri: 'mongodb://${HOST:-x}:${PORT:-27017}'}\ncollections:\n  - {namespace: a.b, field: x, expireAfterSeconds: 0x10}".to_owned(),
        "version: 1\nconnection: {uri: '${MONGODB_URI}', flavor: '${FLAVOR}', expect: {hosts: [DB1, 'db2:27018']}}\n\
         defaults: {expireAfter: '${KEEP}'}\ncollections: [{namespace: '${NAMESPACE}', field: x}, {namespace: a.c, field: 0.b}]"
            .to_owned(),
        "version: 1\ndefaults: {expireAfterSeconds: -1, ttlField: ttl}\ncollections: [{namespace: a.b, field: x}]".to_owned(),
        "version: 1\ndefaults: {ttlField: ttl}\ncollections: [{namespace: a.b, field: x, expireAfterSeconds: -1}]".to_owned(),
        "version: 1\ndefaults: {expireAfterSeconds: -1}\ncollections: [{namespace: a.b, field: x, expireAfter: 1d}]".to_owned(),
        "version: 1\ndefaults: {expireAfterSeconds: 5}\ncollections: [{namespace: a.b, field: x, expireAfter: 1d}]".to_owned(),
        "version: 1\nconnection: {}\nrun: {}\ndefaults: {}\ncollections: [{namespace: a.b, expireAfter: 1d}]".to_owned(),
    ]);
    policies.extend(
        [
            "expireAfter: 1w1d1h1m1s",
            "expireAfter: 0s",
            "expireAfter: '${KEEP}'",
            "expireAfter: 1d\n    name: a b.c",
            "expireAfter: 1d\n    filter: {$and: [{a: 1}, {b: {$elemMatch: {c: null}}}], '': 5}",
            "expireAfter: 1d\n    filter: {at: {$gt: {$date: {$numberLong: '5'}}}, ok: [true, 1.5, [x]]}",
            "expireAfter: 1d\n    collation: {locale: simple}",
            "expireAfter: 1d\n    collation: {locale: en, strength: {$numberInt: '2'}}",
            "expireAfter: 1d\n    dateFormat: '${NOT_SET:-date}'",
            "expireAfter: 1d\n    maxDeletePercent: 0.001",
            "expireAfter: 1d\n    window: {start: '22:00', end: '02:00:30'}",
            "expireAfter: 1d\n    window: {start: '22:00', end: '${NOT_SET:-23:00}', timezone: Etc/GMT+5}",
            "expireAfter: 1d\n    hint: $x_1",
        ]
        .map(rule),
    );
    policies
        .push("version: 1\ncollections: [{namespace: 'a.oplog.$main', field: _id, dateFormat: date, expireAfter: 1d}]".into());
    for text in policies {
        assert_eq!(parsed(&text), Ok(()), "{text}");
        assert_eq!(validated(&text), Ok(()), "{text}");
    }
}

#[test]
fn what_is_wrong_is_refused_by_both() {
    let mut policies: Vec<String> = [
        "",
        "[]",
        "version: 1",
        "version: 2\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "collections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\ncollections: []",
        "version: 1\ncollections: {}",
        "version: 1\ncollections: [{field: b, expireAfter: 1d}]",
        "version: 1\ncolections: []\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\ncollections: [{namespace: a.b, field: c}]",
        "version: 1\ndefaults: {field: c}\ncollections: [{namespace: a.b}]",
        "version: 1\ndefaults: {expireAfter: 1d, expireAfterSeconds: 5}\ncollections: [{namespace: a.b, field: c}]",
        "version: 1\ndefaults: {expireAfterSeconds: -1}\ncollections: [{namespace: a.b, field: c}]",
        "version: 1\ndefaults: {namespace: a.b, expireAfter: 1d}\ncollections: [{namespace: a.b, field: c}]",
        "version: 1\nlock: {}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nlock: {collection: a.*}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nhistory: {collection: runs}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nrun: {maxDuration: 0s}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nrun: {maxDuration: 2}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nrun:\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nconnection: {flavor: cosmos}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nconnection: {expect: {}}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nconnection: {expect: {hosts: []}}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nconnection: {expect: {hosts: ['mongodb://h']}}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
        "version: 1\nconnection: {expect: {hosts: [' ']}}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]",
    ]
    .map(str::to_owned)
    .into();
    for namespace in
        ["app", "app.", ".x", "admin.x", "config.x", "local.oplog.rs", "app.system.views", "'a b.c'", "app.a$b", "5", "''"]
    {
        policies.push(format!("version: 1\ncollections: [{{namespace: {namespace}, field: c, expireAfter: 1d}}]"));
    }
    for field in ["''", "a..b", ".a", "a.", "$x", "a.$x", "5", "[a]"] {
        policies.push(format!("version: 1\ncollections: [{{namespace: a.b, field: {field}, expireAfter: 1d}}]"));
    }
    for expire_after in
        ["30", "'30'", "''", "1.5d", "-1d", "3M", "1y", "90 days", "30m1h", "1h1h", "1d ' '", "${KEEP", "~", "P30D"]
    {
        policies.push(rule(&format!("expireAfter: {expire_after}")));
    }
    for seconds in ["-1", "-2", "2147483648", "1.5", "'60'", "0600", "~", "true", "[1]", "${KEEP}"] {
        policies.push(rule(&format!("expireAfterSeconds: {seconds}")));
    }
    for keys in [
        "expireAfterSeconds: 5",
        "name: ''",
        "name: ' a'",
        "name: 'a '",
        "name: \"a\\tb\"",
        "ttlField: a.b",
        "ttlField: $ttl",
        "ttlField: _id",
        "ttlField: ''",
        "filter: {}",
        "filter:",
        "filter: {$where: x}",
        "filter: {a: {$near: 5}}",
        "filter: {$or: [{a: {$rand: {}}}]}",
        "filter: {$gt: 5}",
        "collation: {strength: 2}",
        "collation: {locale: ''}",
        "collation: {locale: en, color: red}",
        "dateFormat: iso",
        "hint: ''",
        "hint: $natural",
        "hint: {at: 1}",
        "enabled: 'yes'",
        "allowCollectionScan: 1",
        "batchSize: 0",
        "maxDeletePercent: 0",
        "maxDeletePercent: 100.1",
        "maxDeletePercent: '50'",
        "maxLag: 0s",
        "maxLag: 10",
        "exclude: [app.x]",
        "exclude: app.x",
        "window: '01:00-05:00'",
        "window: {start: '01:00'}",
        "window: {start: '1:00', end: '05:00'}",
        "window: {start: '01:00', end: '24:00'}",
        "window: {start: 100, end: '05:00'}",
        "window: {start: '01:00', end: '05:00', zone: UTC}",
        "window: {start: '01:00', end: '05:00', timezone: 'Madrid time'}",
        "archive: /x",
        "archive: {directory: /x, compression: rar}",
        "archive: {compression: zstd}",
        "archived: {}",
    ] {
        policies.push(rule(&format!("expireAfter: 1d\n    {keys}")));
    }
    policies.push("version: 1\ncollections: [{namespace: a.b, field: _id, dateFormat: epochMillis, expireAfter: 1d}]".into());
    for text in policies {
        assert!(parsed(&text).is_err(), "the parser takes:\n{text}");
        assert!(validated(&text).is_err(), "the schema takes:\n{text}");
    }
}

#[tokio::test]
async fn the_command_prints_the_schemas_and_needs_no_policy() {
    let policy = json_schema();
    let report = schema::of::<Report>();
    let history = schema::of::<History>();
    for (args, expected) in [
        (&["schema"][..], &policy),
        (&["schema", "policy"], &policy),
        (&["schema", "report"], &report),
        (&["schema", "history"], &history),
    ] {
        let ran = run(sweeper(args)).await;
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), expected.as_str(), ""), "{args:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sweeper.schema.json");
    let mut command = sweeper(&["schema", "-o"]);
    command.arg(&file);
    let ran = run(command).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert_eq!(std::fs::read_to_string(file).unwrap(), policy);
}
