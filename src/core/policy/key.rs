//! A key of the policy: its name, the kind of its value, its documentation and its default. The keys themselves are listed in
//! `keys`.

use serde_json::{Map, Value, json};

use super::entry::Entry;

/// Kind of a value: knows how to read it, its JSON Schema, and its name in the documentation.
pub(super) trait Kind: Sync {
    type Value;

    /// Reads a value; `None` if it is wrong, which the entry reports.
    fn read(&self, entry: &Entry) -> Option<Self::Value>;

    /// Returns the JSON Schema of the values that [`Kind::read`] accepts.
    fn schema(&self) -> Value;

    /// Names the kind for the documentation of the keys.
    fn words(&self) -> String;

    /// Returns the keys of the value if it is a mapping.
    fn section(&self) -> Option<&'static Section> {
        None
    }
}

/// Kind whose values can be written as JSON, as a default has to be.
pub(super) trait Written: Kind {
    /// Writes a value as the policy would.
    fn write(&self, value: &Self::Value) -> Value;
}

/// Everything about a key but the kind of its value.
pub(super) struct About {
    pub name: &'static str,
    /// Sentences for the JSON Schema and the documentation.
    pub doc: &'static str,
    /// Values as YAML.
    pub examples: &'static [&'static str],
    /// Expected value, as the message about a missing key names it; `None` if the key is optional.
    pub required: Option<&'static str>,
}

/// A key without a default.
pub(super) struct Key<K> {
    about: About,
    kind: K,
}

impl<K: Kind> Key<K> {
    pub(super) const fn new(name: &'static str, kind: K, doc: &'static str) -> Self {
        Self { about: About { name, doc, examples: &[], required: None }, kind }
    }

    /// Adds values to show, as YAML.
    pub(super) const fn examples(mut self, examples: &'static [&'static str]) -> Self {
        self.about.examples = examples;
        self
    }

    /// Makes the key required; `expected` is the value that the message about a missing key names.
    pub(super) const fn required(mut self, expected: &'static str) -> Self {
        self.about.required = Some(expected);
        self
    }

    /// Gives the key a default.
    pub(super) const fn default(self, default: K::Value) -> Defaulted<K> {
        Defaulted { key: self, default }
    }

    /// Reads the value of the key; `None` if it is wrong, which the entry reports.
    pub(super) fn read(&self, entry: &Entry) -> Option<K::Value> {
        self.kind.read(entry)
    }
}

/// A key with a default: the value that it has in a policy without the key.
pub(super) struct Defaulted<K: Kind> {
    pub key: Key<K>,
    pub default: K::Value,
}

/// A key of any kind.
pub(super) trait AnyKey: Sync {
    fn about(&self) -> &About;

    /// Reads the value in order to report its problems.
    fn check(&self, entry: &Entry);

    /// Returns the JSON Schema of the value, without its documentation.
    fn value_schema(&self) -> Value;

    /// Names the kind of the value.
    fn words(&self) -> String;

    /// Returns the keys of the value if it is a mapping.
    fn section(&self) -> Option<&'static Section>;

    /// Returns the default as JSON.
    fn default(&self) -> Option<Value>;

    /// Returns the examples as JSON.
    fn examples(&self) -> Vec<Value> {
        self.about().examples.iter().map(|text| serde_yaml::from_str(text).unwrap_or_else(|_| json!(text))).collect()
    }

    /// Returns the JSON Schema of the value, with its documentation.
    fn schema(&self) -> Value {
        let mut schema = self.value_schema();
        schema["description"] = json!(self.about().doc);
        if let Some(default) = self.default() {
            schema["default"] = default;
        }
        if !self.about().examples.is_empty() {
            schema["examples"] = json!(self.examples());
        }
        schema
    }
}

impl<K: Kind> AnyKey for Key<K> {
    fn about(&self) -> &About {
        &self.about
    }

    fn check(&self, entry: &Entry) {
        self.kind.read(entry);
    }

    fn value_schema(&self) -> Value {
        self.kind.schema()
    }

    fn words(&self) -> String {
        self.kind.words()
    }

    fn section(&self) -> Option<&'static Section> {
        self.kind.section()
    }

    fn default(&self) -> Option<Value> {
        None
    }
}

impl<K: Written> AnyKey for Defaulted<K>
where
    K::Value: Sync,
{
    fn about(&self) -> &About {
        self.key.about()
    }

    fn check(&self, entry: &Entry) {
        self.key.check(entry);
    }

    fn value_schema(&self) -> Value {
        self.key.value_schema()
    }

    fn words(&self) -> String {
        self.key.words()
    }

    fn section(&self) -> Option<&'static Section> {
        self.key.section()
    }

    fn default(&self) -> Option<Value> {
        Some(self.key.kind.write(&self.default))
    }
}

/// Keys that a mapping may have.
pub(super) struct Section {
    /// Name of the mapping in messages, for a mapping that is not the value of a key.
    pub title: &'static str,
    /// Lists of keys, one after the other: `defaults` and the rules share one.
    pub lists: &'static [&'static [&'static dyn AnyKey]],
}

impl Section {
    /// Returns all keys, in the order of the documentation.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static dyn AnyKey> {
        self.lists.iter().flat_map(|list| list.iter().copied())
    }

    /// Returns the names of all keys.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys().map(|key| key.about().name)
    }

    /// Returns the JSON Schema of the mapping, where `property` makes the schema of each key.
    pub(super) fn schema(&self, property: impl Fn(&dyn AnyKey) -> Value) -> Value {
        let mut schema = json!({ "type": "object", "additionalProperties": false });
        let required: Vec<&str> =
            self.keys().map(AnyKey::about).filter(|about| about.required.is_some()).map(|about| about.name).collect();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let properties: Map<String, Value> = self.keys().map(|key| (key.about().name.to_owned(), property(key))).collect();
        schema["properties"] = Value::Object(properties);
        schema
    }
}
