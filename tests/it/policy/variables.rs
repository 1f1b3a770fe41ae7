//! Environment variables in a policy: what they stand for may be secret, and is shown by no error and by no output.

use std::collections::BTreeSet;

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, id_set, run};
use mongodb::bson::doc;
use serde_yaml::Value;
use ttl_sweeper::core::policy::parse::parse;
use ttl_sweeper::core::policy::schema::json_schema;

/// Part of every value that a variable has in these tests.
const MARK: &str = "hunter2";

/// Returns the text of a policy for every value in it, each with that value behind a variable, and the path of the value.
fn with_one_variable(policy: &Value) -> Vec<(String, String)> {
    let mut paths = Vec::new();
    values(policy, String::new(), &mut paths);
    let texts = paths.into_iter().map(|path| {
        let mut changed = policy.clone();
        let mut place = &mut changed;
        for step in path.split('/').skip(1) {
            place = match step.parse::<usize>() {
                Ok(index) if place.is_sequence() => &mut place[index],
                _ => &mut place[step],
            };
        }
        *place = "${MARK}".into();
        (path, serde_yaml::to_string(&changed).expect("YAML"))
    });
    texts.collect()
}

fn values(node: &Value, path: String, found: &mut Vec<String>) {
    match node {
        Value::Sequence(items) => {
            items.iter().enumerate().for_each(|(index, item)| values(item, format!("{path}/{index}"), found));
        }
        Value::Mapping(entries) => {
            entries.iter().for_each(|(key, value)| values(value, format!("{path}/{}", key.as_str().expect("a name")), found));
        }
        _ => found.push(path),
    }
}

/// Returns the names of all keys that a policy may have.
fn keys(schema: &serde_json::Value) -> BTreeSet<String> {
    match schema {
        serde_json::Value::Object(map) => {
            let of_properties = map.get("properties").and_then(serde_json::Value::as_object);
            let own = of_properties.into_iter().flat_map(|properties| properties.keys().cloned());
            own.chain(map.values().flat_map(keys)).collect()
        }
        serde_json::Value::Array(items) => items.iter().flat_map(keys).collect(),
        _ => BTreeSet::new(),
    }
}

/// Adds what the example leaves out: typed values of Extended JSON, and the other keys of a collation.
fn every_key() -> Value {
    let mut policy: Value = serde_yaml::from_str(include_str!("../../../sweeper.example.yaml")).expect("the example");
    let more = "
        namespace: a.b
        field: at
        expireAfter: 1d
        filter:
          a: {$date: x}
          b: {$oid: x}
          c: {$numberLong: x}
          d: {$numberInt: x}
          e: {$numberDouble: x}
          f: {$numberDecimal: x}
          g: {$uuid: x}
          h: {$binary: {base64: x, subType: x}}
          i: {$timestamp: {t: x, i: x}}
          j: {$regularExpression: {pattern: x, options: x}}
          k: {$in: [x, {$date: {$numberLong: x}}]}
          l: {$regex: x, $options: x}
        holds: {collection: x, key: {of: x, in: x}, filter: {a: x}}
        collation:
          {locale: x, strength: x, caseLevel: x, caseFirst: x, numericOrdering: x, alternate: x, maxVariable: x,
           normalization: x, backwards: x, version: x}";
    policy["connection"]["uriFile"] = "x".into();
    policy["collections"].as_sequence_mut().expect("rules").push(serde_yaml::from_str(more).expect("a rule"));
    policy
}

#[test]
fn no_error_of_the_policy_shows_what_a_variable_stands_for() {
    let policy = every_key();
    let mut paths = Vec::new();
    values(&policy, String::new(), &mut paths);
    let known = keys(&serde_json::from_str(&json_schema()).expect("the schema"));
    let absent: Vec<&String> =
        known.iter().filter(|key| !paths.iter().any(|path| path.split('/').any(|step| step == *key))).collect();
    assert!(absent.is_empty(), "keys without a value here: {absent:?}");
    let mut refused = 0;
    for (path, text) in with_one_variable(&policy) {
        for value in [
            "hunter2",
            "hunter2.c",
            "admin.hunter2",
            "hunter2 .x",
            "5hunter2",
            "99999999999hunter2d",
            "$hunter2",
            "a..hunter2",
            " hunter2",
            "hunter2\u{7}",
            "hunter2\0",
            "hunter2@h",
            "http://hunter2",
        ] {
            if let Err(error) = parse("p", &text, &|_| Some(value.to_owned()), false) {
                refused += 1;
                assert!(!error.to_string().contains(MARK), "{path}: {error}");
            }
        }
    }
    assert!(refused > 500, "{refused} values were refused");
}

#[test]
fn no_error_across_keys_shows_what_a_variable_stands_for() {
    let rule = "{namespace: '${MARK}.c', field: '${MARK}', ttlField: '${MARK}', expireAfter: 1d}";
    for text in [
        format!("{{version: 1, collections: [{rule}]}}"),
        "{version: 1, collections: [{name: '${MARK}', namespace: a.b, field: at, expireAfter: 1d}, {name: '${MARK}', namespace: a.c, field: at, expireAfter: 1d}]}".into(),
        "{version: 1, lock: {collection: '${MARK}.c'}, collections: [{namespace: '${MARK}.c', field: at, expireAfter: 1d}]}".into(),
    ] {
        let error = parse("p", &text, &|_| Some(MARK.to_owned()), false).unwrap_err().to_string();
        assert!(!error.contains(MARK), "{error}");
    }
}

/// Values of a filter and a collation that only the server refuses.
#[tokio::test]
async fn no_error_of_the_server_shows_what_a_variable_stands_for() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    for keys in [
        "filter: {a: {$type: '${MARK}'}}",
        "filter: {a: {$mod: ['${MARK}', 1]}}",
        "filter: {a: {$regex: '(${MARK}'}}",
        "filter: {a: {$regex: x, $options: '${MARK}'}}",
        "filter: {$expr: {$eq: ['$${MARK}', '${MARK}']}}",
        "filter: {$expr: '$$${MARK}'}",
        "filter: {$jsonSchema: {bsonType: '${MARK}'}}",
        "filter: {a: 1}, collation: {locale: '${MARK}'}",
        "filter: {a: 1}, collation: {locale: en, caseFirst: '${MARK}'}",
    ] {
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {keys}}}\n");
        for args in [&["sweep", "-vv"][..], &["audit", "--format", "json", "-vv"], &["check", "--connect", "-vv"]] {
            let mut command = case.command(&rule, args);
            command.env("MARK", MARK);
            let ran = run(command).await;
            assert!(!format!("{ran:?}").contains(MARK), "{keys}: {ran:?}");
        }
    }
    assert_eq!(case.ids("c").await, id_set(0..3));
}

#[tokio::test]
async fn no_output_shows_the_values_of_a_filter_and_a_saved_plan_still_knows_them() {
    let case = Case::new().await;
    case.fill(
        "c",
        dated(0..3, days(-3)).map(|mut document| {
            document.extend(doc! { "kind": MARK, "since": days(-5) });
            document
        }),
    )
    .await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {kind: '${MARK}', since: {$lt: {$date: '${DAY}'}}}}\n\
                 history: {collection: DB.runs}\n";
    let with = |args: &[&str], mark: &str| {
        let mut command = case.command(rules, args);
        command.env("MARK", mark).env("DAY", "2031-05-06T07:08:09Z").current_dir(&case.dir);
        run(command)
    };
    let files = ["a.json", "a.csv", "a.html", "a.md", "a.txt"];
    let outputs: Vec<&str> = files.iter().flat_map(|file| ["-o", file]).collect();
    let audited = with(&[&["audit", "-vv"], &outputs[..]].concat(), MARK).await;
    assert_eq!(audited.code, Some(0), "{audited:?}");
    assert!(!format!("{audited:?}").contains(MARK), "{audited:?}");

    let changed = with(&["sweep", "--plan", "a.json"], "hunter3").await;
    assert_eq!(changed.code, Some(5), "{changed:?}");
    let said = changed.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("the rule now selects other documents than the saved plan"), "{changed:?}");
    assert_eq!(case.ids("c").await, id_set(0..3));

    let swept = with(
        &["sweep", "--plan", "a.json", "-vv", "--log-format", "json", "--metrics-file", "a.prom", "-o", "s.json", "-o", "s.csv"],
        MARK,
    )
    .await;
    assert_eq!(swept.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    let history = with(&["history", "--format", "json"], MARK).await;
    assert!(!format!("{swept:?}{history:?}").contains(MARK), "{swept:?}{history:?}");
    for file in files.iter().chain(&["a.prom", "s.json", "s.csv"]) {
        let text = std::fs::read_to_string(case.dir.path().join(file)).expect("a file");
        assert!(!text.contains(MARK) && !text.contains("2031-05"), "{file}: {text}");
    }
    let json = std::fs::read_to_string(case.dir.path().join("s.json")).expect("the report");
    assert!(json.contains("${MARK} (sha256 ") && json.contains("${DAY} (sha256 "), "{json}");
    use futures_util::TryStreamExt;
    let recorded: Vec<_> = case.collection("runs").find(doc! {}).await.unwrap().try_collect().await.unwrap();
    assert!(!recorded.is_empty() && !format!("{recorded:?}").contains(MARK), "{recorded:?}");
}
