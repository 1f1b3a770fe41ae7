//! Parses Prometheus' text format strictly: a text that the format does not allow fails the test.
//!
//! Source: Prometheus, "Exposition formats", text-based format.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Labels = BTreeMap<String, String>;

/// The samples of a file.
#[derive(Debug)]
pub(crate) struct Scrape(BTreeMap<(String, Labels), f64>);

impl Scrape {
    pub(crate) fn read(text: &str) -> Self {
        let body = text.strip_suffix('\n').unwrap_or_else(|| panic!("the last line does not end: {text}"));
        let (mut samples, mut ended, mut family) = (BTreeMap::new(), BTreeSet::new(), String::new());
        let mut lines = body.split('\n');
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let name = help.split(' ').next().expect("a name").to_owned();
                assert_eq!(lines.next(), Some(format!("# TYPE {name} gauge").as_str()), "the type follows {line}");
                assert!(ended.insert(std::mem::replace(&mut family, name)), "a family comes once: {line}");
                continue;
            }
            let (name, labels, value) = sample(line);
            assert_eq!(name, family, "samples follow their family: {line}");
            assert!(samples.insert((name, labels), value).is_none(), "a series comes once: {line}");
        }
        Self(samples)
    }

    /// Returns the value of a series without labels.
    pub(crate) fn run(&self, name: &str) -> Option<f64> {
        self.0.get(&(format!("sweeper_{name}"), Labels::new())).copied()
    }

    /// Returns the values of a family by the labels `rule` and `namespace`, and a third label if the family has one.
    pub(crate) fn rules(&self, name: &str) -> BTreeMap<Vec<String>, f64> {
        let of_family = self.0.iter().filter(|((found, _), _)| *found == format!("sweeper_{name}"));
        of_family
            .map(|((_, labels), value)| {
                let mut labels = labels.clone();
                let first = ["rule", "namespace"].map(|key| labels.remove(key).unwrap_or_else(|| panic!("{name} has no {key}")));
                (first.into_iter().chain(labels.into_values()).collect(), *value)
            })
            .collect()
    }

    /// Returns the value of a rule that is named after its namespace.
    pub(crate) fn rule(&self, name: &str, namespace: &str) -> Option<f64> {
        self.rules(name).get(&vec![namespace.to_owned(), namespace.to_owned()]).copied()
    }
}

fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(name.starts_with("sweeper_") && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
    let mut labels = Labels::new();
    while let Some(after) = rest.strip_prefix(['{', ',']) {
        let (key, after) = after.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(key.chars().all(|c| c.is_ascii_lowercase()), "{line}");
        let (value, after) = quoted(after).unwrap_or_else(|| panic!("a label's value does not end: {line}"));
        assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
        rest = after;
        if let Some(after) = rest.strip_prefix('}') {
            rest = after;
            break;
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}"));
    (name.to_owned(), labels, value.parse().unwrap_or_else(|cause| panic!("{cause}: {line}")))
}

/// Returns the unescaped text up to the closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                other => panic!("\\{other} is no escape: {text}"),
            }),
            c => value.push(c),
        }
    }
    None
}
