//! Typed access to the mappings of a policy; everything unexpected becomes a [`Problem`] and reading goes on.

use std::cell::RefCell;
use std::collections::HashSet;

use super::duration;
use super::env::expand;
use super::problem::Problem;
use super::yaml::{Node, Step};

/// What all parts of one policy share while it is read.
pub struct Context<'a> {
    /// Looks up an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    pub problems: RefCell<Vec<Problem>>,
}

impl Context<'_> {
    pub fn add(&self, path: &[Step], rule: Option<&str>, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem { path: path.to_vec(), rule: rule.map(str::to_owned), message: message.into() });
    }
}

/// One mapping of the policy.
pub struct Mapping<'a> {
    context: &'a Context<'a>,
    entries: &'a [(Node, Node)],
    path: Vec<Step>,
    /// How messages call the rule this mapping belongs to.
    rule: Option<String>,
}

/// A value and where it stands.
pub struct Entry<'a> {
    pub key: &'a str,
    pub node: &'a Node,
    pub path: Vec<Step>,
}

impl<'a> Mapping<'a> {
    /// Takes a node as a mapping whose keys are all in `known`; says so where it is not one, a key is unknown, or a key comes twice.
    pub fn read(
        context: &'a Context<'a>,
        node: &'a Node,
        path: Vec<Step>,
        rule: Option<String>,
        what: &str,
        known: &[&str],
    ) -> Option<Self> {
        let Node::Map(entries) = node else {
            context.add(&path, rule.as_deref(), format!("{what}: expected a mapping, found {}", node.describe()));
            return None;
        };
        let mapping = Self { context, entries, path, rule };
        let mut seen: HashSet<&str> = HashSet::new();
        for (index, (key, _)) in entries.iter().enumerate() {
            let at = mapping.step(Step::Key(index));
            match key {
                Node::Str(key) if key == "<<" => {
                    mapping.problem(&at, "merge keys (`<<`) are not supported; put what rules share under `defaults`");
                }
                Node::Str(key) if seen.contains(key.as_str()) => {
                    mapping.problem(&at, format!("duplicate key `{key}`; expected it once"));
                }
                Node::Str(key) => {
                    seen.insert(key);
                    if !known.contains(&key.as_str()) {
                        mapping.problem(&at, unknown(key, known));
                    }
                }
                other => mapping.problem(&at, format!("expected a key, found {}", other.describe())),
            }
        }
        Some(mapping)
    }

    /// Reports a problem at a path.
    pub fn problem(&self, path: &[Step], message: impl Into<String>) {
        self.context.add(path, self.rule.as_deref(), message);
    }

    /// Reports a problem of the mapping as a whole.
    pub fn problem_here(&self, message: impl Into<String>) {
        self.problem(&self.path, message);
    }

    pub fn context(&self) -> &'a Context<'a> {
        self.context
    }

    /// How messages call the rule this mapping belongs to.
    pub fn rule(&self) -> Option<String> {
        self.rule.clone()
    }

    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(k, _)| matches!(k, Node::Str(k) if k == key))
    }

    /// The value of a key, where it is there.
    pub fn get(&self, key: &'static str) -> Option<Entry<'a>> {
        let index = self.entries.iter().position(|(k, _)| matches!(k, Node::Str(k) if k == key))?;
        Some(Entry { key, node: &self.entries[index].1, path: self.step(Step::Value(index)) })
    }

    /// The path of a key itself, for problems that are not about its value.
    pub fn key_path(&self, key: &str) -> Vec<Step> {
        let index = self.entries.iter().position(|(k, _)| matches!(k, Node::Str(k) if k == key));
        index.map_or_else(|| self.path.clone(), |index| self.step(Step::Key(index)))
    }

    /// A string with its environment variables replaced.
    pub fn string(&self, key: &'static str) -> Option<String> {
        let entry = self.get(key)?;
        self.text(&entry, "a string")
    }

    /// A string that `parse` accepts.
    pub fn parsed<T>(&self, key: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let entry = self.get(key)?;
        let text = self.text(&entry, "a string")?;
        self.accept(&entry, parse(&text))
    }

    /// One of a few words.
    pub fn one_of<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let expected = words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let entry = self.get(key)?;
        let text = self.text(&entry, &expected)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            // Compared as it was written: what a variable stands for may be secret.
            let near = match entry.node {
                Node::Str(raw) => nearest(raw, words.iter().map(|(word, _)| *word)),
                _ => None,
            };
            let expected = near.map_or_else(|| format!("one of {expected}"), |near| format!("`{near}`?"));
            self.problem(&entry.path, format!("`{key}`: found {}; expected {expected}", entry.node.describe()));
        }
        found
    }

    pub fn boolean(&self, key: &'static str) -> Option<bool> {
        let entry = self.get(key)?;
        match entry.node {
            Node::Bool(value) => Some(*value),
            _ => self.unexpected(&entry, "`true` or `false`"),
        }
    }

    /// A whole number between two bounds, both included.
    pub fn whole(&self, key: &'static str, low: i64, high: i64) -> Option<i64> {
        let entry = self.get(key)?;
        match entry.node {
            Node::Int(value) if (low..=high).contains(value) => Some(*value),
            _ if low == high => self.unexpected(&entry, &low.to_string()),
            _ => self.unexpected(&entry, &format!("a whole number from {low} to {high}")),
        }
    }

    /// A share in percent: above 0, at most 100; a fraction is allowed.
    pub fn percent(&self, key: &'static str) -> Option<f64> {
        let entry = self.get(key)?;
        let value = match entry.node {
            Node::Int(value) => *value as f64,
            Node::Float(value) => *value,
            _ => f64::NAN,
        };
        if value > 0.0 && value <= 100.0 {
            return Some(value);
        }
        self.unexpected(&entry, "a number above 0 and at most 100")
    }

    /// A duration in whole seconds.
    pub fn duration(&self, key: &'static str) -> Option<i64> {
        let entry = self.get(key)?;
        if let Node::Int(value) = entry.node {
            self.problem(
                &entry.path,
                format!("`{key}`: a number without a unit: {value}; expected a duration such as `90d`, `12h`, `45m`, `30s`"),
            );
            return None;
        }
        let text = self.text(&entry, "a duration such as `90d`, `12h`, `45m`, `30s`")?;
        self.accept(&entry, duration::parse(&text))
    }

    /// A duration of at least one second, in whole seconds.
    pub fn positive_duration(&self, key: &'static str) -> Option<i64> {
        let seconds = self.duration(key)?;
        if seconds == 0 {
            self.problem(&self.get(key)?.path, format!("`{key}`: found 0; expected at least `1s`"));
            return None;
        }
        Some(seconds)
    }

    /// A list of strings, each of which `parse` accepts. Bad items are reported and left out.
    pub fn list<T>(&self, key: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
        let entry = self.get(key)?;
        let Node::Seq(items) = entry.node else {
            return self.unexpected(&entry, "a list of strings");
        };
        let items = items.iter().enumerate().filter_map(|(index, node)| {
            let mut path = entry.path.clone();
            path.push(Step::Item(index));
            let item = Entry { key, node, path };
            let text = self.text(&item, "a string")?;
            self.accept(&item, parse(&text))
        });
        Some(items.collect())
    }

    /// Reports that an entry is not what was expected, and gives `None`.
    pub fn unexpected<T>(&self, entry: &Entry, expected: &str) -> Option<T> {
        self.problem(&entry.path, format!("`{}`: found {}; expected {expected}", entry.key, entry.node.describe()));
        None
    }

    /// Unwraps a parser's result, or reports its message under the entry's key.
    pub fn accept<T>(&self, entry: &Entry, result: Result<T, String>) -> Option<T> {
        result
            .map_err(|message| {
                // The message of a parser quotes what it was given; what came out of the environment may be secret.
                let from_env = matches!(entry.node, Node::Str(raw) if raw.contains("${"));
                let message = match entry.node {
                    Node::Str(raw) if from_env => format!("what `{raw}` stands for is not valid here"),
                    _ => message,
                };
                self.problem(&entry.path, format!("`{}`: {message}", entry.key));
            })
            .ok()
    }

    fn text(&self, entry: &Entry, expected: &str) -> Option<String> {
        let Node::Str(raw) = entry.node else {
            return self.unexpected(entry, expected);
        };
        match expand(raw, self.context.env) {
            Ok(text) => Some(text),
            Err(message) => {
                self.problem(&entry.path, format!("`{}`: {message}", entry.key));
                None
            }
        }
    }

    fn step(&self, step: Step) -> Vec<Step> {
        let mut path = self.path.clone();
        path.push(step);
        path
    }
}

fn unknown(key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        Some(candidate) => format!("unknown key `{key}`; expected `{candidate}`?"),
        None => format!("unknown key `{key}`; expected one of {}", known.join(", ")),
    }
}

/// The candidate that a text was most likely meant to be; `None` where none is near.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&text, &candidate.to_lowercase()), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 2.max(candidate.len() / 4) && *distance < candidate.chars().count())
        .map(|(_, candidate)| candidate)
}
