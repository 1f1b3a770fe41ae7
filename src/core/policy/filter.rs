//! Filters and collations: MongoDB documents written in YAML, typed values as Extended JSON.

use bson::{Bson, Document};
use serde_json::{Map, Value};

use super::env::expand;
use super::problem::{no_space, unknown_key};
use super::yaml::Node;
use super::{Variable, mistaken};

/// Operators that may stand at the top of a filter next to field names.
pub(super) const TOP_LEVEL: [&str; 6] = ["$and", "$or", "$nor", "$expr", "$jsonSchema", "$comment"];

/// Operators that no filter of a delete may have: those that run JavaScript, sort or rank, and those with a new answer each time.
pub(super) const FORBIDDEN: [&[&str]; 2] =
    [&["$where", "$function", "$accumulator", "$geoNear", "$near", "$nearSphere", "$text"], &["$rand", "$sampleRate"]];

/// The beginning of the names of a server's internal operators, some of which run JavaScript: `$_internalJsEmit`.
pub(super) const INTERNAL: &str = "$_";

/// Reads a filter: relaxed or canonical Extended JSON (`{at: {$gt: {$date: "2026-01-01T00:00:00Z"}}}`), with the environment
/// variables in its strings replaced.
///
/// Errors: an empty filter, a forbidden operator, an operator that may not stand at the top, invalid Extended JSON.
pub(super) fn parse_filter(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Document, String> {
    let filter = parse_document(node, env)?;
    if filter.is_empty() {
        return Err("an empty filter; leave `filter` out to take every expired document".into());
    }
    check_operators(&Bson::Document(filter.clone()))?;
    for key in filter.keys() {
        if key.starts_with('$') && !TOP_LEVEL.contains(&key.as_str()) {
            return Err(format!(
                "`{key}` cannot stand at the top of a filter; expected a field name or one of {}",
                TOP_LEVEL.join(", ")
            ));
        }
    }
    Ok(filter)
}

/// Reads a collation document, as `db.collection.find().collation()` accepts it; `known` are the options of MongoDB.
///
/// Errors: a missing `locale`, an unknown option.
pub(super) fn parse_collation(node: &Node, known: &[&str], env: &dyn Fn(&str) -> Option<String>) -> Result<Document, String> {
    let collation = parse_document(node, env)?;
    if let Some(key) = collation.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(unknown_key(key, known));
    }
    match collation.get("locale") {
        Some(Bson::String(locale)) if !locale.is_empty() => Ok(collation),
        _ => Err("a collation needs a `locale`, such as `en` or `simple`".into()),
    }
}

fn parse_document(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Document, String> {
    let json = to_json(node, env)?;
    match Bson::try_from(json.clone()) {
        Ok(Bson::Document(document)) => Ok(document),
        Ok(_) => Err(format!("found {}; expected a mapping", node.describe())),
        // The parser's message is not shown: it quotes the value, which may stand for an environment variable.
        Err(_) => Err(match invalid_type(&json) {
            Some(key) => format!("not valid Extended JSON: the value of `{key}`; expected {}", expected_of(&key)),
            None => "not valid Extended JSON".to_owned(),
        }),
    }
}

/// Returns the key of the innermost typed value that is not valid.
fn invalid_type(json: &Value) -> Option<String> {
    match json {
        Value::Array(items) => items.iter().find_map(invalid_type),
        Value::Object(map) => map.values().find_map(invalid_type).or_else(|| {
            Bson::try_from(json.clone()).err()?;
            map.keys().find(|key| key.starts_with('$')).cloned()
        }),
        _ => None,
    }
}

/// Returns what a typed value of Extended JSON holds.
fn expected_of(key: &str) -> &'static str {
    match key {
        "$date" => "a date such as \"2026-01-01T00:00:00Z\", or {$numberLong: \"...\"} with milliseconds",
        "$oid" => "24 hexadecimal digits",
        "$numberInt" | "$numberLong" => "a whole number in quotes",
        "$numberDouble" | "$numberDecimal" => "a number in quotes",
        "$timestamp" => "{t: 1, i: 1}",
        "$regularExpression" => "{pattern: \"...\", options: \"...\"}",
        "$binary" => "{base64: \"...\", subType: \"00\"}",
        "$uuid" => "a UUID such as \"c8edabc3-f738-4ca3-b68d-ab92a91478a3\"",
        _ => "what MongoDB's Extended JSON says of it",
    }
}

/// Returns the values of a filter or a collation that stand for environment variables, each with the text that the policy has
/// instead. A typed value is one value, such as the date of `{$date: "${DAY}"}`.
pub(super) fn variables(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Vec<Variable> {
    let typed = |node: &Node| match Bson::try_from(to_json(node, env).ok()?) {
        Ok(Bson::Document(_) | Bson::Array(_)) | Err(_) => None,
        Ok(value) => Some(value),
    };
    match node {
        Node::Str(raw) if raw.contains("${") => {
            let text = expand(raw, env).unwrap_or_default();
            vec![Variable { value: Bson::String(text.clone()), text, written: raw.clone() }]
        }
        Node::Seq(items) => items.iter().flat_map(|item| variables(item, env)).collect(),
        Node::Map(entries) => {
            let inside = entries.iter().flat_map(|(_, value)| variables(value, env));
            match typed(node) {
                Some(value) => inside.map(|variable| Variable { value: value.clone(), ..variable }).collect(),
                None => inside.collect(),
            }
        }
        _ => Vec::new(),
    }
}

fn to_json(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Value, String> {
    Ok(match node {
        Node::Null => Value::Null,
        Node::Nothing => return Err("found nothing (null); expected a value, or `null`".into()),
        Node::Bool(value) => Value::Bool(*value),
        Node::Int(value) => Value::from(*value),
        Node::Float(value) if value.is_finite() => Value::from(*value),
        Node::Float(_) => {
            return Err("found .nan or .inf; write {$numberDouble: \"NaN\"} or {$numberDouble: \"Infinity\"}".into());
        }
        Node::BigInt(value) => {
            return Err(format!("the number {value} does not fit 64 bits; write {{$numberDecimal: \"...\"}}"));
        }
        Node::Str(raw) => Value::String(expand(raw, env)?),
        Node::Seq(items) => Value::Array(items.iter().map(|item| to_json(item, env)).collect::<Result<_, _>>()?),
        Node::Map(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let Node::Str(key) = key else {
                    return Err(format!("found {} as a key; expected a field name or an operator", key.describe()));
                };
                if key == "<<" {
                    return Err("merge keys (`<<`) are not supported; expected the keys of the other mapping themselves".into());
                }
                if *value == Node::Nothing {
                    return Err(match key.split_once(':') {
                        Some((name, _)) => no_space(name),
                        None => format!(
                            "`{key}`: found nothing (null); expected a value, in quotes if it begins with `&` or `#`, or `null`, which a missing field equals as well"
                        ),
                    });
                }
                if map.insert(key.clone(), to_json(value, env)?).is_some() {
                    return Err(format!("duplicate key `{key}`: the second would replace the first; join them with `$and`"));
                }
            }
            Value::Object(map)
        }
        Node::Tagged(tag) => {
            let write = mistaken::of_tag(tag).unwrap_or("Extended JSON");
            return Err(format!("found a value tagged `{tag}`; expected {write}"));
        }
    })
}

/// Refuses forbidden operators at any depth.
fn check_operators(value: &Bson) -> Result<(), String> {
    match value {
        Bson::Document(document) => document.iter().try_for_each(|(key, value)| {
            if FORBIDDEN[0].contains(&key.as_str()) || key.starts_with(INTERNAL) {
                return Err(format!("`{key}` is not allowed in the filter of a delete"));
            }
            if FORBIDDEN[1].contains(&key.as_str()) {
                return Err(format!("`{key}` gives another answer each time; a filter must not"));
            }
            // The server takes everything but false, 0 and null for true: `$exists: "false"` would select the documents that have
            // the field.
            if key == "$exists"
                && !matches!(value, Bson::Boolean(_) | Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Null)
            {
                return Err("`$exists` takes true or false, without quotes".into());
            }
            check_operators(value)
        }),
        Bson::Array(items) => items.iter().try_for_each(check_operators),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::super::yaml::parse;
    use super::*;

    fn filter(text: &str) -> Result<Document, String> {
        parse_filter(&parse(text).unwrap(), &|name| (name == "STATE").then(|| "done".to_owned()))
    }

    #[test]
    fn filters_are_extended_json() {
        for (text, expected) in [
            ("{status: done}", doc! {"status": "done"}),
            ("{status: '${STATE}'}", doc! {"status": "done"}),
            ("{n: 5, big: 5000000000, f: 1.5, z: null}", doc! {"n": 5, "big": 5_000_000_000_i64, "f": 1.5, "z": Bson::Null}),
            ("{n: {$numberLong: '5'}}", doc! {"n": 5_i64}),
            ("{at: {$gt: {$date: '1970-01-01T00:00:01Z'}}}", doc! {"at": {"$gt": bson::DateTime::from_millis(1000)}}),
            (
                "{_id: {$oid: 000000000000000000000001}}",
                doc! {"_id": bson::oid::ObjectId::parse_str("000000000000000000000001").unwrap()},
            ),
            ("{$or: [{a: 1}, {b: {$exists: false}}]}", doc! {"$or": [{"a": 1}, {"b": {"$exists": false}}]}),
        ] {
            assert_eq!(filter(text), Ok(expected), "{text}");
        }
        // A sub-document equals only one with its keys in the same order, which `==` does not look at.
        let ordered = filter("{s: {z: 1, a: {y: 1, b: 2}}}").unwrap().to_string();
        assert_eq!(ordered, doc! {"s": {"z": 1, "a": {"y": 1, "b": 2}}}.to_string());
        for (text, part) in [
            ("{}", "empty filter"),
            ("[]", "expected a mapping"),
            ("5", "expected a mapping"),
            ("{a: .nan}", "$numberDouble"),
            ("{$where: 'true'}", "not allowed"),
            ("{a: {$elemMatch: {$where: x}}}", "not allowed"),
            ("{$_internalJsEmit: {}}", "`$_internalJsEmit` is not allowed"),
            ("{$expr: {$_internalJsEmit: {eval: x, this: $$ROOT}}}", "not allowed"),
            ("{$nor: [{$and: [{a: 1}, {a: {$not: {$_internalExprEq: 1}}}]}]}", "not allowed"),
            ("{$expr: {$let: {vars: {f: {$function: {body: x, args: [], lang: js}}}, in: $$f}}}", "not allowed"),
            ("{$expr: {$reduce: {input: $a, initialValue: 0, in: {$accumulator: {}}}}}", "not allowed"),
            ("{a: {$geoNear: [1, 2]}}", "not allowed"),
            ("{$and: [{$expr: {$gt: [{$rand: {}}, 0.5]}}]}", "another answer each time"),
            ("{$gt: 5}", "cannot stand at the top"),
            ("{a: 1, a: 2}", "duplicate key"),
            ("{1: 2}", "as a key"),
            ("{a: {$date: nonsense}}", "Extended JSON"),
            ("{a: {$oid: 12}}", "Extended JSON"),
            ("{a: '${UNSET}'}", "`UNSET` is not set"),
            (
                "{a: }",
                "`a`: found nothing (null); expected a value, in quotes if it begins with `&` or `#`, or `null`, which a missing field",
            ),
            ("{a, b: 1}", "`a`: found nothing (null)"),
            ("{b: &x , c: *x}", "`b`: found nothing (null)"),
            ("{a:1}", "no space after the colon of `a`; expected `a: ...`"),
            ("{$or: [{a: 1}, {b: {$gt: }}]}", "`$gt`: found nothing (null)"),
            ("a:\n  $in:\n  - 1\n  -\n", "found nothing (null); expected a value, or `null`"),
            ("{<<: {a: 1}, b: 2}", "merge keys (`<<`) are not supported"),
            ("{a: !x 1}", "found a value tagged `!x`; expected Extended JSON"),
            ("{a: !ObjectId 'x'}", "found a value tagged `!ObjectId`; expected {$oid: \"...\"} with 24 hexadecimal digits"),
        ] {
            let message = filter(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn an_error_names_the_type_and_never_the_value() {
        for (text, key) in [
            ("{a: {$date: '${STATE}'}}", "$date"),
            ("{a: {$in: [{$oid: '${STATE}'}]}}", "$oid"),
            ("{a: {$date: {$numberLong: '${STATE}'}}}", "$numberLong"),
            ("{a: {$numberDecimal: '${STATE}'}}", "$numberDecimal"),
            ("{a: {$timestamp: {t: '${STATE}', i: 1}}}", "$timestamp"),
            ("{a: {$binary: {base64: '${STATE}', subType: '${STATE}'}}}", "$binary"),
            ("{a: {$uuid: '${STATE}'}}", "$uuid"),
            ("{a: {$regularExpression: {pattern: a, options: b, more: '${STATE}'}}}", "$regularExpression"),
        ] {
            let message = filter(text).unwrap_err();
            assert!(
                message.starts_with(&format!("not valid Extended JSON: the value of `{key}`; expected ")),
                "{text}: {message}"
            );
            assert!(!message.contains("done"), "{text}: {message}");
        }
    }

    #[test]
    fn the_values_that_stand_for_variables_are_known_with_their_types() {
        let env = |name: &str| Some(if name == "DAY" { "1970-01-01T00:00:01Z" } else { "done" }.to_owned());
        let node = parse("{a: x, b: 'is ${STATE}', c: {$in: [1, '${STATE}']}, d: {$gt: {$date: '${DAY}'}}}").unwrap();
        let variable = |value: Bson, text: &str, written: &str| Variable { value, text: text.into(), written: written.into() };
        let expected = [
            variable("is done".into(), "is done", "is ${STATE}"),
            variable("done".into(), "done", "${STATE}"),
            variable(bson::DateTime::from_millis(1000).into(), "1970-01-01T00:00:01Z", "${DAY}"),
        ];
        assert_eq!(variables(&node, &env), expected);
    }
}
