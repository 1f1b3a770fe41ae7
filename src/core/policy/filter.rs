//! Filters and collations: MongoDB documents written in YAML, typed values as Extended JSON.

use bson::{Bson, Document};
use serde_json::{Map, Value};

use super::env::expand;
use super::place::PathStep;
use super::problem::{Problems, meant, no_space, unknown_key};
use super::relative::{self, AGO};
use super::yaml::Node;
use super::{Variable, mistaken};
use crate::base::values::typed;

/// Operators that may stand at the top of a filter next to field names.
pub(super) const TOP_LEVEL: [&str; 6] = ["$and", "$or", "$nor", "$expr", "$jsonSchema", "$comment"];

/// Operators that no filter of a delete may have: those that run JavaScript, sort or rank, and those with a new answer each time.
pub(super) const FORBIDDEN: [&[&str]; 2] =
    [&["$where", "$function", "$accumulator", "$geoNear", "$near", "$nearSphere", "$text"], &["$rand", "$sampleRate"]];

/// The beginning of the names of a server's internal operators, some of which run JavaScript: `$_internalJsEmit`.
pub(super) const INTERNAL: &str = "$_";

/// Reads a filter: relaxed or canonical Extended JSON (`{at: {$gt: {$date: "2026-01-01T00:00:00Z"}}}`), with the environment
/// variables in its strings replaced. Relative dates stay as they are written.
///
/// Errors: an empty filter, forbidden operators, operators that may not stand at the top, invalid Extended JSON.
pub(super) fn parse_filter(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Document, Problems> {
    let filter = parse_document(node, env)?;
    if filter.is_empty() {
        return Err(problem(&[], "an empty filter; leave `filter` out to take every expired document"));
    }
    let mut problems = Problems::new();
    check_operators(&Bson::Document(filter.clone()), &[], &mut problems);
    for (index, key) in filter.keys().enumerate() {
        // A forbidden one is told already.
        let is_told = problems.iter().any(|(path, _)| path == &[PathStep::Key(index)]);
        if key.starts_with('$') && !TOP_LEVEL.contains(&key.as_str()) && !is_told {
            let known = TOP_LEVEL.join(", ");
            let message = format!("`{key}` cannot stand at the top of a filter; expected a field name or one of {known}");
            problems.push((vec![PathStep::Key(index)], message));
        }
    }
    if problems.is_empty() { Ok(filter) } else { Err(problems) }
}

/// Reads a collation document, as `db.collection.find().collation()` accepts it; `known` are the options of MongoDB.
///
/// Errors: unknown options, a missing `locale`.
pub(super) fn parse_collation(node: &Node, known: &[&str], env: &dyn Fn(&str) -> Option<String>) -> Result<Document, Problems> {
    let collation = parse_document(node, env)?;
    let unknown = || collation.keys().enumerate().filter(|(_, key)| !known.contains(&key.as_str()));
    let mut problems: Problems = unknown().map(|(index, key)| (vec![PathStep::Key(index)], unknown_key(key, known))).collect();
    let has_locale = match collation.get("locale") {
        Some(Bson::String(locale)) => !locale.is_empty(),
        Some(_) => false,
        None => unknown().any(|(_, key)| meant(key, known) == Some("locale")),
    };
    if !has_locale {
        problems.extend(problem(&[], "a collation needs a `locale`, such as `en` or `simple`"));
    }
    if problems.is_empty() { Ok(collation) } else { Err(problems) }
}

fn problem(path: &[PathStep], message: impl Into<String>) -> Problems {
    vec![(path.to_vec(), message.into())]
}

fn parse_document(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Document, Problems> {
    let Node::Map(_) = node else { return Err(problem(&[], no_mapping(node))) };
    let json = to_json(node, env)?;
    match Bson::try_from(json.clone()) {
        Ok(Bson::Document(document)) => Ok(document),
        Ok(_) => Err(problem(&[], "found one typed value; expected a mapping of field names")),
        // The parser's message is not shown: it quotes the value, which may stand for an environment variable.
        Err(_) => {
            let mut problems = Problems::new();
            find_invalid_types(&json, &[], &mut problems);
            Err(if problems.is_empty() { problem(&[], "not valid Extended JSON") } else { problems })
        }
    }
}

/// Returns the complaint about a value in place of a mapping.
fn no_mapping(node: &Node) -> String {
    match node {
        Node::Str(text) if text.trim_start().starts_with('{') => {
            "found a string; expected a mapping: the same without the quotes around it".to_owned()
        }
        Node::Str(text) => match text.split_once(':') {
            Some((name, _)) if !name.contains("${") => no_space(name),
            _ => format!("found {}; expected a mapping", node.describe()),
        },
        _ => format!("found {}; expected a mapping", node.describe()),
    }
}

/// Collects the innermost typed values that are not valid.
fn find_invalid_types(json: &Value, path: &[PathStep], problems: &mut Problems) {
    let inside = |step| [path, &[step]].concat();
    match json {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| find_invalid_types(item, &inside(PathStep::Item(at)), problems));
        }
        Value::Object(map) => {
            let before = problems.len();
            map.values().enumerate().for_each(|(at, value)| find_invalid_types(value, &inside(PathStep::Value(at)), problems));
            let key = map.keys().enumerate().find(|(_, key)| key.starts_with('$'));
            if let (true, Some((at, key)), Err(_)) = (problems.len() == before, key, Bson::try_from(json.clone())) {
                let message = format!("not valid Extended JSON: the value of `{key}`; expected {}", typed::expected(key));
                problems.push((inside(PathStep::Value(at)), message));
            }
        }
        _ => {}
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

/// Returns a value as JSON.
///
/// Errors: whatever JSON does not have, or what nobody means to compare with.
fn to_json(node: &Node, env: &dyn Fn(&str) -> Option<String>) -> Result<Value, Problems> {
    let mut reading = Reading { env, path: Vec::new(), problems: Problems::new() };
    let json = reading.value(node);
    if reading.problems.is_empty() { Ok(json) } else { Err(reading.problems) }
}

/// A walk over a value that goes on behind a problem.
struct Reading<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    path: Vec<PathStep>,
    problems: Problems,
}

impl Reading<'_> {
    fn value(&mut self, node: &Node) -> Value {
        match node {
            Node::Null => Value::Null,
            Node::Nothing => self.wrong("found nothing (null); expected a value, or `null`"),
            Node::Bool(value) => Value::Bool(*value),
            Node::Int(value) => Value::from(*value),
            Node::Float(value) if value.is_finite() => Value::from(*value),
            Node::Float(_) => self.wrong("found .nan or .inf; write {$numberDouble: \"NaN\"} or {$numberDouble: \"Infinity\"}"),
            Node::BigInt(value) => {
                self.wrong(format!("the number {value} does not fit 64 bits; write {{$numberDecimal: \"...\"}}"))
            }
            Node::Str(raw) => match expand(raw, self.env) {
                Ok(text) => Value::String(text),
                Err(message) => self.wrong(message),
            },
            Node::Seq(items) => {
                let items = items.iter().enumerate();
                Value::Array(items.map(|(at, item)| self.at(PathStep::Item(at), |inside| inside.value(item))).collect())
            }
            Node::Map(entries) => self.mapping(entries),
            Node::Tagged(tag) => {
                let write = mistaken::of_tag(tag).unwrap_or("the value in quotes, or Extended JSON");
                self.wrong(format!("found {}; expected {write}", node.describe()))
            }
        }
    }

    fn mapping(&mut self, entries: &[(Node, Node)]) -> Value {
        let mut map = Map::new();
        for (at, (key, value)) in entries.iter().enumerate() {
            let message = match key {
                Node::Str(key) if key == "<<" => {
                    "merge keys (`<<`) are not supported; expected the keys of the other mapping themselves".to_owned()
                }
                Node::Str(key) if *value == Node::Nothing => no_value(key),
                Node::Str(key) => {
                    let wrong = if key == AGO { relative::wrong(value, entries.len(), self.env) } else { None };
                    let value = self.at(PathStep::Value(at), |inside| inside.value(value));
                    match (map.insert(key.clone(), value), wrong) {
                        (None, None) => continue,
                        (None, Some(wrong)) => wrong,
                        (Some(_), _) => {
                            format!("duplicate key `{key}`: the second would replace the first; join them with `$and`")
                        }
                    }
                }
                other => format!("found {} as a key; expected a field name or an operator", other.describe()),
            };
            self.at(PathStep::Key(at), |inside| inside.wrong(message));
        }
        Value::Object(map)
    }

    /// Reads something inside the value.
    fn at(&mut self, step: PathStep, read: impl FnOnce(&mut Self) -> Value) -> Value {
        self.path.push(step);
        let json = read(self);
        self.path.pop();
        json
    }

    fn wrong(&mut self, message: impl Into<String>) -> Value {
        self.problems.push((self.path.clone(), message.into()));
        Value::Null
    }
}

/// Returns the complaint about a key behind which nothing stands.
fn no_value(key: &str) -> String {
    if let Some((name, _)) = key.split_once(':') {
        return no_space(name);
    }
    match key.split_once(' ') {
        Some((name, value)) => format!("`{key}` is a key without a value; expected a colon in it: `{name}: {value}`"),
        None => format!(
            "`{key}`: found nothing (null); expected a value, in quotes if it begins with `&` or `#`, or `null`, which a \
             missing field equals as well"
        ),
    }
}

/// Collects forbidden operators at any depth.
fn check_operators(value: &Bson, path: &[PathStep], problems: &mut Problems) {
    let inside = |step| [path, &[step]].concat();
    match value {
        Bson::Document(document) => {
            for (at, (key, value)) in document.iter().enumerate() {
                // The server takes everything but false, 0 and null for true: `$exists: "false"` would select the documents that
                // have the field.
                let is_truth =
                    || matches!(value, Bson::Boolean(_) | Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Null);
                let message = if FORBIDDEN[0].contains(&key.as_str()) || key.starts_with(INTERNAL) {
                    format!("`{key}` is not allowed in the filter of a delete")
                } else if FORBIDDEN[1].contains(&key.as_str()) {
                    format!("`{key}` gives another answer each time; a filter must not")
                } else if key == "$exists" && !is_truth() {
                    "`$exists` takes true or false, without quotes".to_owned()
                } else {
                    check_operators(value, &inside(PathStep::Value(at)), problems);
                    continue;
                };
                problems.push((inside(PathStep::Key(at)), message));
            }
        }
        Bson::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| check_operators(item, &inside(PathStep::Item(at)), problems));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
