//! Kinds of values with keys of their own: for each its reading, its JSON Schema, and its name in the documentation.

use bson::Document;
use serde_json::{Value, json};

use super::entry::Entry;
use super::filter;
use super::key::{Kind, Section};
use super::mapping::Mapping;
use super::place::PathStep;
use super::yaml::Node;

/// A predicate in MongoDB's query language.
pub(super) struct Filter;

impl Kind for Filter {
    type Value = Document;

    fn read(&self, entry: &Entry) -> Option<Document> {
        entry.accept_all(filter::parse_filter(entry.node, entry.context.env))
    }

    fn schema(&self) -> Value {
        let top_level = filter::TOP_LEVEL.map(|operator| operator.trim_start_matches('$')).join("|");
        json!({
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": format!("^(?!\\$)|^\\$({top_level})$") },
            "additionalProperties": { "$ref": "#/definitions/query" },
        })
    }

    fn words(&self) -> String {
        "a filter".to_owned()
    }
}

/// A collation document.
pub(super) struct Collation(pub &'static Section);

impl Kind for Collation {
    type Value = Document;

    fn read(&self, entry: &Entry) -> Option<Document> {
        let known: Vec<&str> = self.0.names().collect();
        entry.accept_all(filter::parse_collation(entry.node, &known, entry.context.env))
    }

    fn schema(&self) -> Value {
        self.0.schema(|key| key.schema())
    }

    fn words(&self) -> String {
        "a mapping".to_owned()
    }

    fn section(&self) -> Option<&'static Section> {
        Some(self.0)
    }
}

/// A value that is passed on to MongoDB as it is.
pub(super) struct Any;

impl Kind for Any {
    type Value = ();

    fn read(&self, _: &Entry) -> Option<()> {
        Some(())
    }

    fn schema(&self) -> Value {
        json!({})
    }

    fn words(&self) -> String {
        "as in MongoDB".to_owned()
    }
}

/// A mapping that is read to a `T` once its own keys have been checked.
pub(super) struct Nested<T> {
    pub section: &'static Section,
    pub read: fn(&Mapping) -> Option<T>,
}

impl<T> Kind for Nested<T> {
    type Value = T;

    fn read(&self, entry: &Entry) -> Option<T> {
        Mapping::open(entry.clone(), self.section).and_then(|mapping| (self.read)(&mapping))
    }

    fn schema(&self) -> Value {
        self.section.schema(|key| key.schema())
    }

    fn words(&self) -> String {
        "a mapping".to_owned()
    }

    fn section(&self) -> Option<&'static Section> {
        Some(self.section)
    }
}

/// A list of mappings, each of which is read to a `T` once its own keys have been checked.
pub(super) struct Items<T> {
    pub section: &'static Section,
    pub read: fn(&Mapping) -> Option<T>,
}

impl<T> Kind for Items<T> {
    type Value = Vec<T>;

    fn read(&self, entry: &Entry) -> Option<Vec<T>> {
        let items = match entry.node {
            Node::Seq(items) if !items.is_empty() => items,
            _ => return entry.unexpected("a list of at least one mapping"),
        };
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let item = entry.inner(entry.key, node, PathStep::Item(index));
                Mapping::open(item, self.section).and_then(|mapping| (self.read)(&mapping))
            })
            .collect();
        read.into_iter().collect()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "minItems": 1, "items": self.section.schema(|key| key.schema()) })
    }

    fn words(&self) -> String {
        "a list of mappings".to_owned()
    }

    fn section(&self) -> Option<&'static Section> {
        Some(self.section)
    }
}

/// A mapping that is read to a `T`, or a list of such mappings.
pub(super) struct OneOrMore<T> {
    pub section: &'static Section,
    pub read: fn(&Mapping) -> Option<T>,
}

impl<T> OneOrMore<T> {
    fn one(&self) -> Nested<T> {
        Nested { section: self.section, read: self.read }
    }

    fn several(&self) -> Items<T> {
        Items { section: self.section, read: self.read }
    }
}

impl<T> Kind for OneOrMore<T> {
    type Value = Vec<T>;

    fn read(&self, entry: &Entry) -> Option<Vec<T>> {
        match entry.node {
            Node::Seq(_) => self.several().read(entry),
            _ => self.one().read(entry).map(|one| vec![one]),
        }
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [self.one().schema(), self.several().schema()] })
    }

    fn words(&self) -> String {
        "a mapping, or a list of mappings".to_owned()
    }

    fn section(&self) -> Option<&'static Section> {
        Some(self.section)
    }
}

/// The list of rules, each of which is read by itself.
pub(super) struct Rules;

impl Kind for Rules {
    type Value = ();

    fn read(&self, entry: &Entry) -> Option<()> {
        match entry.node {
            Node::Seq(items) if !items.is_empty() => Some(()),
            _ => entry.unexpected("a list of at least one rule"),
        }
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "minItems": 1, "items": { "$ref": "#/definitions/rule" } })
    }

    fn words(&self) -> String {
        "a list of rules".to_owned()
    }
}
