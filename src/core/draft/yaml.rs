//! Names and BSON values as YAML that [`crate::core::policy`] reads back unchanged.

use bson::Bson;
use serde_json::Value;

/// Words that YAML, or an older version of it, does not read as strings.
const NOT_PLAIN: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];

/// The first millisecond of the year 10000.
const YEAR_10000: i64 = 253_402_300_800_000;

/// Writes a string so that the policy's parser finds no environment variable in it.
pub fn text(text: &str) -> String {
    key(&text.replace("${", "$${"))
}

/// Writes a key of a filter; the policy's parser replaces no environment variables in keys.
pub fn key(text: &str) -> String {
    let mut chars = text.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == '$');
    let is_plain = begins && chars.all(|c| c.is_ascii_alphanumeric() || "_.-$".contains(c));
    if is_plain && !NOT_PLAIN.contains(&text.to_ascii_lowercase().as_str()) { text.to_owned() } else { quoted(text) }
}

/// Writes any string in quotation marks on one line: for keys, values and comments.
pub fn quoted(text: &str) -> String {
    // A JSON string is also a YAML string, except that YAML 1.1 has line breaks which JSON does not escape.
    let json = Value::from(text).to_string();
    json.chars().map(|c| if is_harmless(c) { c.to_string() } else { format!("\\U{:08X}", u32::from(c)) }).collect()
}

/// Writes a line of a comment. Characters that could end the line, or hide something in it, are escaped.
pub fn comment(text: &str) -> String {
    text.chars().map(|c| if is_harmless(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}

fn is_harmless(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric())
}

/// Writes a value as Extended JSON in YAML's flow style; numbers keep their types.
pub fn value(bson: &Bson) -> String {
    match bson {
        Bson::Document(document) => mapping(document.iter().map(|(name, inner)| (name, value(inner)))),
        Bson::Array(items) => list(items.iter().map(value)),
        Bson::String(string) => text(string),
        Bson::Boolean(boolean) => boolean.to_string(),
        Bson::Null => "null".to_owned(),
        Bson::Int32(n) => n.to_string(),
        // A plain number that fits int32 would be read as an int32.
        Bson::Int64(n) if i32::try_from(*n).is_err() => n.to_string(),
        Bson::Double(n) if n.is_finite() => format!("{n:?}"),
        Bson::Double(n) if n.is_nan() => "{$numberDouble: NaN}".to_owned(),
        // Only dates with a year of four digits have a readable form that the parser accepts.
        Bson::DateTime(at) if (0..YEAR_10000).contains(&at.timestamp_millis()) => json(&bson.clone().into_relaxed_extjson()),
        _ => json(&bson.clone().into_canonical_extjson()),
    }
}

fn json(value: &Value) -> String {
    match value {
        Value::Object(map) => mapping(map.iter().map(|(name, inner)| (name, json(inner)))),
        Value::Array(items) => list(items.iter().map(json)),
        Value::String(string) => text(string),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn mapping<'a>(entries: impl Iterator<Item = (&'a String, String)>) -> String {
    let entries: Vec<String> = entries.map(|(name, value)| format!("{}: {value}", key(name))).collect();
    format!("{{{}}}", entries.join(", "))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_where_yaml_cannot_mistake_them() {
        for (name, expected) in [
            ("app.sessions", "app.sessions"),
            ("$gt", "$gt"),
            ("_id", "_id"),
            ("null", "\"null\""),
            ("No", "\"No\""),
            ("", "\"\""),
            ("0", "\"0\""),
            ("a b", "\"a b\""),
            ("a: b", "\"a: b\""),
            ("- x", "\"- x\""),
            ("é", "\"é\""),
            ("a\"\\\n\u{2028}", "\"a\\\"\\\\\\n\\U00002028\""),
            ("${HOME}", "\"$${HOME}\""),
        ] {
            assert_eq!(text(name), expected, "{name:?}");
        }
        assert_eq!(comment("a\u{2028}\nb: é"), "a\\u{2028}\\u{a}b: é");
        assert_eq!(key("${HOME}"), "\"${HOME}\"");
    }
}
