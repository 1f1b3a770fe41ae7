//! Filters and collations: MongoDB documents written in YAML, typed values as Extended JSON.

use bson::{Bson, Document};
use serde_json::{Map, Value};

use super::env::expand;
use super::yaml::Node;

/// Operators that may stand at the top of a filter next to field names.
pub(super) const TOP_LEVEL: [&str; 6] = ["$and", "$or", "$nor", "$expr", "$jsonSchema", "$comment"];

/// Operators that no filter of a delete may have: those that run JavaScript, sort or rank, and those with a new answer each time.
pub(super) const FORBIDDEN: [&[&str]; 2] =
    [&["$where", "$function", "$accumulator", "$near", "$nearSphere", "$text"], &["$rand", "$sampleRate"]];

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
        return Err(format!("unknown key `{key}` in a collation; expected one of {}", known.join(", ")));
    }
    match collation.get("locale") {
        Some(Bson::String(locale)) if !locale.is_empty() => Ok(collation),
        _ => Err("a collation needs a `locale`, such as `en` or `simple`".into()),
    }
}

fn parse_document(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Document, String> {
    let json = to_json(node, env)?;
    match Bson::try_from(json) {
        Ok(Bson::Document(document)) => Ok(document),
        Ok(_) => Err(format!("found {}; expected a mapping", node.describe())),
        Err(error) => Err(format!("not valid Extended JSON: {}", first_line(&error.to_string()))),
    }
}

fn to_json(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Value, String> {
    Ok(match node {
        Node::Null => Value::Null,
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
                if map.insert(key.clone(), to_json(value, env)?).is_some() {
                    return Err(format!("duplicate key `{key}`: the second would replace the first; join them with `$and`"));
                }
            }
            Value::Object(map)
        }
        Node::Tagged(tag) => return Err(format!("found a value tagged `{tag}`; expected Extended JSON")),
    })
}

/// Refuses forbidden operators at any depth.
fn check_operators(value: &Bson) -> Result<(), String> {
    match value {
        Bson::Document(document) => document.iter().try_for_each(|(key, value)| {
            if FORBIDDEN[0].contains(&key.as_str()) {
                return Err(format!("`{key}` is not allowed in the filter of a delete"));
            }
            if FORBIDDEN[1].contains(&key.as_str()) {
                return Err(format!("`{key}` gives another answer each time; a filter must not"));
            }
            check_operators(value)
        }),
        Bson::Array(items) => items.iter().try_for_each(check_operators),
        _ => Ok(()),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
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
            ("{$gt: 5}", "cannot stand at the top"),
            ("{a: 1, a: 2}", "duplicate key"),
            ("{1: 2}", "as a key"),
            ("{a: {$date: nonsense}}", "Extended JSON"),
            ("{a: {$oid: 12}}", "Extended JSON"),
            ("{a: '${UNSET}'}", "`UNSET` is not set"),
            ("{a: !x 1}", "tagged"),
        ] {
            let message = filter(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
