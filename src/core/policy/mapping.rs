//! A mapping of the policy, checked against its section of the table of keys.

use std::collections::HashSet;

use super::entry::Entry;
use super::key::{AnyKey, Defaulted, Key, Kind, Section, Written};
use super::place::PathStep;
use super::problem::{Problems, meant, unknown_key};
use super::traps::NO_POLICY;
use super::yaml::Node;

/// One mapping of the policy, whose values have been checked.
pub(super) struct Mapping<'a> {
    entry: Entry<'a>,
    entries: &'a [(Node, Node)],
    section: &'static Section,
    /// Mapping whose values stand in for keys that this one does not have.
    defaults: Option<&'a Mapping<'a>>,
}

impl<'a> Mapping<'a> {
    /// Opens a mapping, and reports everything that is wrong with its keys and with each value by itself.
    ///
    /// `None` if the value is not a mapping. Reading values later reports nothing a second time.
    pub(super) fn open(entry: Entry<'a>, section: &'static Section) -> Option<Self> {
        let Node::Map(entries) = entry.node else {
            if entry.key.is_empty() && entry.rule.is_none() && matches!(entry.node, Node::Nothing | Node::Null) {
                entry.problem_at(entry.path.clone(), NO_POLICY);
                return None;
            }
            let title = if entry.key.is_empty() { section.title.to_owned() } else { format!("`{}`", entry.key) };
            let names: Vec<&str> = section.names().collect();
            let message = match entry.node {
                Node::Str(text) if text.contains(':') && meant(text, &names).is_some() => unknown_key(text, &names),
                node => format!("expected a mapping, found {}", node.describe()),
            };
            entry.problem_at(entry.path.clone(), format!("{title}: {message}"));
            return None;
        };
        let mapping = Self { entry, entries, section, defaults: None };
        if mapping.entry.reports {
            mapping.check_keys();
            mapping.check_values();
        }
        Some(mapping)
    }

    /// Lets the values of `defaults` stand in for keys that the mapping does not have.
    pub(super) fn over(self, defaults: Option<&'a Self>) -> Self {
        Self { defaults, ..self }
    }

    /// Returns the mapping that stands in for missing keys.
    pub(super) fn defaults(&self) -> Option<&Self> {
        self.defaults
    }

    /// Whether the mapping itself has a key.
    pub(super) fn has(&self, key: &dyn AnyKey) -> bool {
        self.position(key.about().name).is_some()
    }

    /// Whether an unknown key of the mapping or its defaults was most likely meant to be this one, which is then not missing.
    pub(super) fn means(&self, key: &dyn AnyKey) -> bool {
        let known: Vec<&str> = self.section.names().collect();
        let is_meant = |(written, _): &(Node, Node)| match written {
            Node::Str(written) if !known.contains(&written.as_str()) => meant(written, &known) == Some(key.about().name),
            _ => false,
        };
        self.entries.iter().any(is_meant) || self.defaults.is_some_and(|defaults| defaults.means(key))
    }

    /// Returns the entry of a key that the mapping itself has.
    pub(super) fn own(&self, key: &dyn AnyKey) -> Option<Entry<'a>> {
        let name = key.about().name;
        let index = self.position(name)?;
        Some(self.entry.inner(name, &self.entries[index].1, PathStep::Value(index)))
    }

    /// Returns the entry of a key, its own or the entry of the defaults.
    pub(super) fn entry(&self, key: &dyn AnyKey) -> Option<Entry<'a>> {
        self.own(key).or_else(|| self.defaults?.entry(key))
    }

    /// Reads the value of a key, from the mapping or from its defaults. `None` if neither has the key, or the value is wrong.
    pub(super) fn optional<K: Kind>(&self, key: &Key<K>) -> Option<K::Value> {
        key.read(&Entry { reports: false, ..self.entry(key)? })
    }

    /// Reads the value of a key that has a default.
    pub(super) fn value<K: Written<Value: Clone>>(&self, key: &Defaulted<K>) -> K::Value {
        self.optional(&key.key).unwrap_or_else(|| key.default.clone())
    }

    /// Reports a problem of a key; of the mapping as a whole if it does not have the key.
    pub(super) fn problem(&self, key: &dyn AnyKey, message: impl Into<String>) {
        let path = self.position(key.about().name).map(|index| self.entry.step(PathStep::Key(index)));
        self.entry.problem_at(path.unwrap_or_else(|| self.entry.path.clone()), message);
    }

    /// Reports problems inside the value of a key; of the mapping as a whole if it does not have the key.
    pub(super) fn problems_in(&self, key: &dyn AnyKey, problems: Problems) {
        for (path, message) in problems {
            let path = self.own(key).map(|entry| [entry.path.as_slice(), &path].concat());
            self.entry.problem_at(path.unwrap_or_else(|| self.entry.path.clone()), message);
        }
    }

    /// Reports a problem of the mapping as a whole.
    pub(super) fn problem_here(&self, message: impl Into<String>) {
        self.entry.problem_at(self.entry.path.clone(), message);
    }

    fn check_keys(&self) {
        let known: Vec<&str> = self.section.names().collect();
        let mut seen: HashSet<&str> = HashSet::new();
        for (index, (key, _)) in self.entries.iter().enumerate() {
            let message = match key {
                Node::Str(key) if key == "<<" => {
                    "merge keys (`<<`) are not supported; put what rules share under `defaults`".to_owned()
                }
                Node::Str(key) if !seen.insert(key) => format!("duplicate key `{key}`; expected it once"),
                Node::Str(key) if !known.contains(&key.as_str()) => unknown_key(key, &known),
                Node::Str(_) => continue,
                other => format!("expected a key, found {}", other.describe()),
            };
            self.entry.problem_at(self.entry.step(PathStep::Key(index)), message);
        }
    }

    fn check_values(&self) {
        for key in self.section.keys() {
            match (self.own(key), key.about().required) {
                (Some(entry), _) => key.check(&entry),
                (None, Some(expected)) if !self.means(key) => {
                    let of = if self.entry.key.is_empty() { String::new() } else { format!("`{}`: ", self.entry.key) };
                    self.problem_here(format!("{of}no `{}`; expected {expected}", key.about().name));
                }
                (None, _) => {}
            }
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|(key, _)| matches!(key, Node::Str(key) if key == name))
    }
}
