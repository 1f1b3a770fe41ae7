//! The JSON Schema of the policy and the parser agree: neither accepts what the other refuses.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::support::sweeper::{run, sweeper};
use jsonschema::Validator;
use serde_json::{Value, json};
use ttl_sweeper::core::policy::schema::json_schema;
use ttl_sweeper::core::policy::{Policy, parse};
use ttl_sweeper::core::report::history::History;
use ttl_sweeper::core::report::native::NativeReport;
use ttl_sweeper::core::report::{Report, json};

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

/// Parses a policy.
fn parsed(text: &str) -> Result<(), String> {
    parse::parse("p", text, &environment, false).map(|_| ()).map_err(|error| error.to_string())
}

/// Validates a policy by the schema.
fn validated(text: &str) -> Result<(), String> {
    let policy: Value = serde_yaml::from_str(text).map_err(|cause| cause.to_string())?;
    validator().validate(&policy).map_err(|error| error.to_string())
}

/// Returns a policy with one rule, which has these keys in addition to the usual ones.
fn rule(keys: &str) -> String {
    format!("version: 1\ncollections:\n  - namespace: app.c\n    field: at\n    {keys}\n")
}

/// A policy, and the same policy with another value at one path.
struct Candidate {
    path: Vec<String>,
    policy: Value,
    changed: Value,
}

/// Follows a `$ref` of the schema.
fn resolve<'s>(schema: &'s Value, node: &'s Value) -> &'s Value {
    match node["$ref"].as_str() {
        Some(pointer) => schema.pointer(pointer.trim_start_matches('#')).unwrap_or_else(|| panic!("nothing at {pointer}")),
        None => node,
    }
}

/// Collects candidates for every key of a mapping and of the mappings inside it; `policy` has an example of the mapping.
fn candidates(schema: &Value, node: &Value, path: &[String], policy: &Value, found: &mut Vec<Candidate>) {
    for (name, property) in node["properties"].as_object().into_iter().flatten() {
        let property = resolve(schema, property);
        let path: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        let mut values =
            [&property["examples"], &property["anyOf"][0]["enum"]].map(|list| list.as_array().cloned().unwrap_or_default());
        values[0].extend(["minimum", "maximum"].iter().filter_map(|end| property.get(end).cloned()));
        if property["type"] == "boolean" {
            values[0].extend([json!(true), json!(false)]);
        }
        for value in values.concat() {
            found.push(Candidate { path: path.clone(), policy: policy.clone(), changed: with(policy, &path, value) });
        }
        let is_list = property["items"].is_object();
        let inner = match property["anyOf"].get(0) {
            _ if is_list => resolve(schema, &property["items"]),
            // A mapping, or a list of such mappings.
            Some(one) if one["properties"].is_object() => one,
            _ => property,
        };
        if inner["properties"].is_object() {
            let example = property["examples"].get(0).map(|example| with(policy, &path, example.clone()));
            let below = if is_list { [path, vec!["0".to_owned()]].concat() } else { path };
            candidates(schema, inner, &below, example.as_ref().unwrap_or(policy), found);
        }
    }
}

/// Sets a value in a policy, and adapts keys that need or exclude it.
fn with(policy: &Value, path: &[String], value: Value) -> Value {
    let mut policy = policy.clone();
    let mut node = &mut policy;
    for step in path {
        node = match step.parse::<usize>() {
            Ok(index) => &mut node[index],
            Err(_) => &mut node[step],
        };
    }
    *node = value;
    if policy["defaults"].get("expireAfterSeconds").is_some() {
        policy["defaults"].as_object_mut().unwrap().remove("expireAfter");
    }
    for archive in ["/defaults/archive", "/collections/0/archive"] {
        if let Some(archive) = policy.pointer_mut(archive).filter(|archive| archive.get("url").is_some()) {
            archive.as_object_mut().unwrap().remove("directory");
        }
    }
    let rule = policy["collections"][0].as_object_mut().expect("a rule");
    if ["gridfs", "children", "orphans"].iter().any(|key| rule.contains_key(*key)) {
        rule.insert("namespace".into(), "app.fs.files".into());
        if rule.contains_key("orphans") {
            rule.insert("gridfs".into(), "fs".into());
        }
        policy["journal"] = json!({ "collection": "ops.journal" });
    }
    policy
}

#[test]
fn every_key_is_read_and_both_take_what_the_schema_shows() {
    let schema = schema();
    let base = json!({
        "version": 1,
        "connection": { "expect": { "replicaSet": "other" } },
        "defaults": { "expireAfter": "7d", "ttlField": "own", "window": { "start": "00:00", "end": "00:01" }, "archive": { "directory": "other" } },
        "collections": [{ "namespace": "app.*" }],
    });
    let mut found = Vec::new();
    candidates(&schema, &schema, &[], &base, &mut found);
    let read = |policy: &Value| {
        let parsed = parse::parse("p", &policy.to_string(), &environment, false);
        Policy { sha256: String::new(), ..parsed.unwrap_or_else(|error| panic!("{policy}: {error}")) }
    };
    let mut effects: BTreeMap<String, bool> = BTreeMap::new();
    for Candidate { path, policy, changed } in found {
        assert_eq!(validated(&changed.to_string()), Ok(()), "{changed}");
        *effects.entry(path.join(".")).or_default() |= read(&changed) != read(&policy);
    }
    assert!(effects.len() > 60, "{effects:?}");
    let ignored: Vec<&String> = effects.iter().filter(|(_, effect)| !**effect).map(|(path, _)| path).collect();
    assert!(ignored.is_empty(), "no value of these keys changes the policy: {ignored:?}");
}

#[test]
fn the_example_has_every_key() {
    let text = include_str!("../../../sweeper.example.yaml");
    let schema = schema();
    let mut found = Vec::new();
    candidates(&schema, &schema, &[], &json!({ "collections": [{}] }), &mut found);
    for key in found.iter().filter(|found| !found.path.contains(&"collation".to_owned())).filter_map(|found| found.path.last()) {
        assert!(text.contains(&format!("{key}:")), "{key} is not mentioned");
    }
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
            "expireAfter: 1d\n    maxHeadMs: 1",
            "expireAfter: 1d\n    window: {start: '22:00', end: '02:00:30'}",
            "expireAfter: 1d\n    window: {start: '22:00', end: '${NOT_SET:-23:00}', timezone: Etc/GMT+5}",
            "expireAfter: 1d\n    window: {start: '00:00', end: '00:00', days: [sat, '${DAY:-sun}']}",
            "expireAfter: 1d\n    window: [{start: '00:00', end: '01:00'}, {start: '05:00', end: '06:00', days: [mon]}]",
            "expireAfter: 1d\n    filter: {seen: {$not: {$gt: {$ago: '${KEEP}'}}}, a: {$in: [{$ago: 1h30m}, {$ago: 0s}]}}",
            "expireAfter: 1d\n    filter: {$expr: {$lt: [$seen, {$ago: 90d}]}}\n    holds: {collection: h, key: k, filter: {at: {$ago: 1d}}}",
            "expireAfter: 1d\n    hint: $x_1",
            "expireAfter: 1d\n    allowUnknownFields: [legalHold, meta.0.held]",
            "expireAfter: 1d\n    allowUnknownFields: []",
            "expireAfter: 1d\n    allowUnknownTypes: [legalHold, meta.0.held]",
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
    for archive in [
        "{}",
        "{directory: /a, url: 's3://b'}",
        "{url: 'https://b'}",
        "{url: 's3://'}",
        "{url: 's3://key:secret@b'}",
        "{url: 's3://b//c'}",
        "{directory: 's3://b'}",
    ] {
        policies.push(format!("version: 1\ncollections: [{{namespace: a.b, field: c, expireAfter: 1d, archive: {archive}}}]"));
    }
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
        "filter: {$expr: {$_internalJsEmit: {eval: x, this: 5}}}",
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
        "allowUnknownFields: legalHold",
        "allowUnknownFields: [$a]",
        "allowUnknownFields: ['a..b']",
        "allowUnknownTypes: legalHold",
        "batchSize: 0",
        "maxDeletePercent: 0",
        "maxDeletePercent: 100.1",
        "maxDeletePercent: '50'",
        "maxLag: 0s",
        "maxLag: 10",
        "maxHeadMs: 0",
        "maxHeadMs: 20ms",
        "exclude: [app.x]",
        "exclude: app.x",
        "window: '01:00-05:00'",
        "window: {start: '01:00'}",
        "window: {start: '1:00', end: '05:00'}",
        "window: {start: '01:00', end: '24:00'}",
        "window: {start: 100, end: '05:00'}",
        "window: {start: '01:00', end: '05:00', days: []}",
        "window: {start: '01:00', end: '05:00', days: sat}",
        "window: {start: '01:00', end: '05:00', days: [Saturday]}",
        "window: []",
        "window: ['01:00-05:00']",
        "window: [{start: '01:00', end: '05:00'}, {start: '01:00'}]",
        "filter: {$ago: 90d}",
        "filter: {seen: {$lt: {$ago: 90}}}",
        "filter: {seen: {$lt: {$ago: 90 days}}}",
        "filter: {seen: {$lt: {$ago: -1d}}}",
        "filter: {seen: {$lt: {$ago: 1d, $gt: 5}}}",
        "filter: {$or: [{seen: {$in: [{$ago: [1d]}]}}]}",
        "holds: {collection: h, key: k, filter: {seen: {$gt: {$ago: 1y}}}}",
        "window: {start: '01:00', end: '05:00', zone: UTC}",
        "window: {start: '01:00', end: '05:00', timezone: 'Madrid time'}",
        "archive: /x",
        "archive: {directory: /x, compression: rar}",
        "archive: {compression: zstd}",
        "archived: {}",
    ] {
        policies.push(rule(&format!("expireAfter: 1d\n    {keys}")));
    }
    for format in ["epochMillis", "iso8601"] {
        policies
            .push(format!("version: 1\ncollections: [{{namespace: a.b, field: _id, dateFormat: {format}, expireAfter: 1d}}]"));
    }
    for text in policies {
        assert!(parsed(&text).is_err(), "the parser accepts:\n{text}");
        assert!(validated(&text).is_err(), "the schema accepts:\n{text}");
    }
}

#[tokio::test]
async fn the_command_prints_the_schemas_and_needs_no_policy() {
    let policy = json_schema();
    let report = json::schema::<Report>();
    let history = json::schema::<History>();
    let native = json::schema::<NativeReport>();
    for (args, expected) in [
        (&["schema"][..], &policy),
        (&["schema", "policy"], &policy),
        (&["schema", "report"], &report),
        (&["schema", "history"], &history),
        (&["schema", "native"], &native),
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
