//! Kinds of plain values, and lists of them: for each its reading, its JSON Schema, and its name in the documentation.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::duration;
use super::entry::Entry;
use super::key::{Kind, Written};
use super::place::PathStep;
use super::problem::nearest;
use super::yaml::Node;
use crate::base::text::meant_number;

/// A whole number between two bounds, both included; bounds that `T` cannot hold are never accepted.
pub(super) struct Whole<T> {
    min: i64,
    max: i64,
    convert: fn(i64) -> Option<T>,
}

impl<T: TryFrom<i64>> Whole<T> {
    pub(super) const fn new(min: i64, max: i64) -> Self {
        Self { min, max, convert: |value| T::try_from(value).ok() }
    }
}

impl<T> Kind for Whole<T> {
    type Value = T;

    fn read(&self, entry: &Entry) -> Option<T> {
        let value = match entry.node {
            Node::Int(value) if (self.min..=self.max).contains(value) => (self.convert)(*value),
            _ => None,
        };
        value.or_else(|| {
            let meant = match entry.node {
                Node::Float(value) => meant_number(&value.to_string()),
                Node::Str(text) => meant_number(text),
                _ => None,
            };
            let meant =
                meant.and_then(|number| i64::try_from(number).ok()).filter(|number| (self.min..=self.max).contains(number));
            entry.unexpected(&match meant {
                Some(number) if self.min == self.max => format!("{number}, a whole number without quotes"),
                Some(number) => format!("{}, such as {number}", self.words()),
                None => self.words(),
            })
        })
    }

    fn schema(&self) -> Value {
        if self.min == self.max {
            return json!({ "const": self.min });
        }
        json!({ "type": "integer", "minimum": self.min, "maximum": self.max })
    }

    fn words(&self) -> String {
        if self.min == self.max {
            return self.min.to_string();
        }
        format!("a whole number from {} to {}", self.min, self.max)
    }
}

impl<T: Copy + Into<Value>> Written for Whole<T> {
    fn write(&self, value: &T) -> Value {
        (*value).into()
    }
}

/// `true` or `false`.
pub(super) struct Boolean;

impl Kind for Boolean {
    type Value = bool;

    fn read(&self, entry: &Entry) -> Option<bool> {
        match entry.node {
            Node::Bool(value) => Some(*value),
            _ => entry.unexpected(&self.words()),
        }
    }

    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }

    fn words(&self) -> String {
        "`true` or `false`".to_owned()
    }
}

impl Written for Boolean {
    fn write(&self, value: &bool) -> Value {
        json!(value)
    }
}

/// A share in percent: above 0, at most 100; a fraction is allowed.
pub(super) struct Percent;

impl Kind for Percent {
    type Value = f64;

    fn read(&self, entry: &Entry) -> Option<f64> {
        let value = match entry.node {
            Node::Int(value) => *value as f64,
            Node::Float(value) => *value,
            _ => f64::NAN,
        };
        if value > 0.0 && value <= 100.0 {
            return Some(value);
        }
        let sign = if matches!(entry.node, Node::Str(text) if text.ends_with('%')) { ", without a `%`" } else { "" };
        entry.unexpected(&format!("{}{sign}", self.words()))
    }

    fn schema(&self) -> Value {
        json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 100 })
    }

    fn words(&self) -> String {
        "a number above 0 and at most 100".to_owned()
    }
}

/// A duration in whole seconds; 0 is one.
pub(super) struct Seconds;

impl Kind for Seconds {
    type Value = i64;

    fn read(&self, entry: &Entry) -> Option<i64> {
        if let Node::Int(value) = entry.node {
            return entry.problem(format!("a number without a unit: {value}; expected {}", self.words()));
        }
        let text = entry.text(&self.words())?;
        entry.accept(duration::parse(&text))
    }

    fn schema(&self) -> Value {
        or_variable(json!({ "type": "string", "pattern": "^(?=[0-9])([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$" }))
    }

    fn words(&self) -> String {
        "a duration such as `90d`, `12h`, `45m`, `30s`".to_owned()
    }
}

/// A duration of at least one second.
pub(super) struct PositiveDuration;

impl Kind for PositiveDuration {
    type Value = Duration;

    fn read(&self, entry: &Entry) -> Option<Duration> {
        match u64::try_from(Seconds.read(entry)?) {
            Ok(seconds) if seconds > 0 => Some(Duration::from_secs(seconds)),
            _ => entry.problem("found 0; expected at least `1s`"),
        }
    }

    fn schema(&self) -> Value {
        let mut schema = Seconds.schema();
        let pattern = schema["anyOf"][0]["pattern"].take();
        let pattern = pattern.as_str().unwrap_or_default().trim_start_matches('^');
        schema["anyOf"][0]["pattern"] = json!(format!("^(?=.*[1-9]){pattern}"));
        schema
    }

    fn words(&self) -> String {
        "a duration of at least `1s`".to_owned()
    }
}

/// A string that a parser accepts.
pub(super) struct Text<T> {
    words: &'static str,
    pattern: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Text<T> {
    /// Makes the kind of its name in the documentation, its regular expression in the JSON Schema (empty if every string is
    /// accepted), and its parser.
    pub(super) const fn new(words: &'static str, pattern: &'static str, parse: fn(&str) -> Result<T, String>) -> Self {
        Self { words, pattern, parse }
    }
}

impl<T> Kind for Text<T> {
    type Value = T;

    fn read(&self, entry: &Entry) -> Option<T> {
        let text = entry.text("a string")?;
        entry.accept((self.parse)(&text))
    }

    fn schema(&self) -> Value {
        if self.pattern.is_empty() {
            return json!({ "type": "string" });
        }
        or_variable(json!({ "type": "string", "pattern": self.pattern }))
    }

    fn words(&self) -> String {
        self.words.to_owned()
    }
}

impl<T: fmt::Display> Written for Text<T> {
    fn write(&self, value: &T) -> Value {
        json!(value.to_string())
    }
}

/// The connection string, or the file that holds it; neither is read if another one is given.
pub(super) enum ConnectionString {
    Text,
    File,
}

impl Kind for ConnectionString {
    type Value = String;

    fn read(&self, entry: &Entry) -> Option<String> {
        match entry.node {
            // Only what a variable stands for may begin in another way. The text may be a password, and is not shown.
            Node::Str(raw) if matches!(self, Self::Text) && !raw.starts_with("mongodb") && !raw.contains("${") => {
                entry.problem("expected a connection string that begins with `mongodb://` or `mongodb+srv://`, or a variable such as `${MONGODB_URI}`")
            }
            // The variables in it need not be set.
            Node::Str(_) if entry.context.uri_given => None,
            _ => entry.text("a string"),
        }
    }

    fn schema(&self) -> Value {
        json!({ "type": "string" })
    }

    fn words(&self) -> String {
        match self {
            Self::Text => "a connection string".to_owned(),
            Self::File => "the path of a file".to_owned(),
        }
    }
}

/// A list of at least so many strings, each of which a parser accepts.
pub(super) struct List<T>(pub Text<T>, pub usize);

impl<T> Kind for List<T> {
    type Value = Vec<T>;

    fn read(&self, entry: &Entry) -> Option<Vec<T>> {
        let items = match entry.node {
            Node::Seq(items) if items.len() >= self.1 => items,
            Node::Seq(_) => return entry.unexpected(&self.words()),
            _ => return entry.unexpected("a list of strings"),
        };
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(index, node)| self.0.read(&entry.inner(entry.key, node, PathStep::Item(index))))
            .collect();
        read.into_iter().collect()
    }

    fn schema(&self) -> Value {
        let mut schema = json!({ "type": "array", "items": self.0.schema() });
        if self.1 > 0 {
            schema["minItems"] = json!(self.1);
        }
        schema
    }

    fn words(&self) -> String {
        let at_least = if self.1 > 0 { format!(" of at least {}", self.1) } else { String::new() };
        format!("a list{at_least} of strings, each {}", self.0.words)
    }
}

/// One of a few words.
pub(super) struct Words<T: 'static>(pub &'static [(&'static str, T)]);

impl<T> Words<T> {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(word, _)| *word)
    }
}

impl<T: Copy + Sync> Kind for Words<T> {
    type Value = T;

    fn read(&self, entry: &Entry) -> Option<T> {
        let text = entry.text(&self.words())?;
        let found = self.0.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.or_else(|| {
            // Compared as it was written: the value of a variable may be secret.
            let near = match entry.node {
                Node::Str(raw) => nearest(raw, self.names()),
                _ => None,
            };
            entry.unexpected(&near.map_or_else(|| format!("one of {}", self.words()), |near| format!("`{near}`?")))
        })
    }

    fn schema(&self) -> Value {
        or_variable(json!({ "enum": self.names().collect::<Vec<_>>() }))
    }

    fn words(&self) -> String {
        self.names().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    }
}

impl<T: Copy + Sync + PartialEq> Written for Words<T> {
    fn write(&self, value: &T) -> Value {
        json!(self.0.iter().find(|(_, known)| known == value).map(|(word, _)| *word))
    }
}

/// Accepts a string with an environment variable in it next to what the schema says: its value is not known to an editor.
fn or_variable(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "$ref": "#/definitions/variable" }] })
}
