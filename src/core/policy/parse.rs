//! Parses a policy: all its problems are found at once, and nothing is contacted.

use std::collections::BTreeMap;

use super::entry::{Context, Entry};
use super::mapping::Mapping;
use super::namespace::{Namespace, NamespacePattern};
use super::place::PathStep;
use super::rule::read_rule;
use super::yaml::{self, Node};
use super::{Policy, PolicyError, Rule, keys};
use crate::base::text;

/// Maximum size of a policy in bytes. With globs and `defaults`, real policies are far smaller.
pub const MAX_BYTES: usize = 1_048_576;

/// Whether the end of a policy may be missing: its last line is not ended. A file that is read while it is being written ends
/// anywhere, and `expireAfterSeconds: 77` is valid where `7776000` was to come. A policy in one pair of braces, as JSON is, is
/// not valid before its last one.
pub fn may_be_cut(text: &str) -> bool {
    let is_in_braces = text.trim_start().starts_with('{') && text.ends_with('}');
    !text.is_empty() && !text.ends_with(['\n', '\r']) && !is_in_braces
}

/// Parses and validates a policy.
///
/// Messages name the file by `path`, which is not read. With `uri_given` the connection string comes from elsewhere: the policy's
/// own is not read, so that an environment variable in it need not be set.
///
/// Errors: all problems of the text, with their places.
pub fn parse(path: &str, text: &str, env: &dyn Fn(&str) -> Option<String>, uri_given: bool) -> Result<Policy, PolicyError> {
    if text.len() > MAX_BYTES {
        return Err(PolicyError::single(
            path,
            None,
            format!(
                "too long for a policy; expected at most {MAX_BYTES} bytes; a glob in `namespace` and `defaults` save repeating rules"
            ),
        ));
    }
    // Editors of Windows begin a file with a byte order mark, and with two where it had one.
    let yaml = text.trim_start_matches('\u{feff}');
    let root = yaml::parse(yaml).map_err(|(message, place)| PolicyError::single(path, place, message))?;
    let context = Context::new(env, uri_given);
    let policy = read(&context, &root);
    let problems = context.into_problems();
    match policy {
        Some(policy) if problems.is_empty() => {
            Ok(Policy { path: path.to_owned(), sha256: text::sha256(text.as_bytes()), ..policy })
        }
        _ => Err(PolicyError::new(path, yaml, &problems)),
    }
}

fn read(context: &Context, root: &Node) -> Option<Policy> {
    let entry = Entry { context, key: "", node: root, path: Vec::new(), rule: None, reports: true };
    let map = Mapping::open(entry, &keys::POLICY)?;
    let lock = map.optional(&keys::LOCK);
    let history = map.optional(&keys::HISTORY);
    let journal = map.optional(&keys::JOURNAL);
    let own: Vec<&Namespace> = [&lock, &history, &journal].into_iter().flatten().collect();
    let mut rules = read_rules(&map, journal.as_ref());
    leave_out(&map, &mut rules, &own);
    let rules = rules.into_iter().map(|(_, rule)| rule).collect();
    Some(Policy {
        path: String::new(),
        sha256: String::new(),
        connection: map.optional(&keys::CONNECTION).unwrap_or_default(),
        run: map.optional(&keys::RUN).unwrap_or_default(),
        lock,
        history,
        journal,
        rules,
    })
}

/// Returns the rules with their positions in the list.
fn read_rules(map: &Mapping, journal: Option<&Namespace>) -> Vec<(usize, Rule)> {
    // The problems of `defaults` were reported when the policy was opened, once and not for each rule.
    let defaults =
        map.own(&keys::DEFAULTS_KEY).and_then(|entry| Mapping::open(Entry { reports: false, ..entry }, &keys::DEFAULTS));
    let Some(list) = map.own(&keys::COLLECTIONS) else { return Vec::new() };
    let Node::Seq(items) = list.node else { return Vec::new() };
    let rules = items
        .iter()
        .enumerate()
        .filter_map(|(index, node)| {
            read_rule(&list, node, index, defaults.as_ref(), journal).map(|(name, rule)| NamedRule { index, name, rule })
        })
        .collect();
    name_rules(&list, rules)
}

/// A rule with its position in the list and the name that the policy gives it.
struct NamedRule {
    index: usize,
    name: Option<String>,
    rule: Rule,
}

/// Gives every rule its name, and reports names that are taken.
fn name_rules(list: &Entry, rules: Vec<NamedRule>) -> Vec<(usize, Rule)> {
    let mut unnamed: BTreeMap<String, usize> = BTreeMap::new();
    for NamedRule { rule, .. } in rules.iter().filter(|rule| rule.name.is_none()) {
        *unnamed.entry(rule.namespace.to_string()).or_default() += 1;
    }
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    rules
        .into_iter()
        .map(|NamedRule { index, name, rule }| {
            let name = name.unwrap_or_else(|| {
                let namespace = rule.namespace.to_string();
                match &rule.field {
                    Some(field) if unnamed.get(&namespace).is_some_and(|count| *count > 1) => format!("{namespace}:{field}"),
                    _ => namespace,
                }
            });
            if let Some(first) = taken.get(&name) {
                Entry { rule: Some(format!("collections[{index}]")), ..list.clone() }.problem_at(
                    list.step(PathStep::Item(index)),
                    format!("its name is taken by collections[{first}]; expected a `name` of its own"),
                );
            } else {
                taken.insert(name.clone(), index);
            }
            (index, Rule { name, ..rule })
        })
        .collect()
}

/// Keeps the collections of sweeper's own records out of every rule: a rule with a `*` excludes them, and a rule that names one
/// is a problem.
fn leave_out(map: &Mapping, rules: &mut [(usize, Rule)], own: &[&Namespace]) {
    for (index, rule) in rules {
        for namespace in own.iter().filter(|namespace| rule.namespace.matches(namespace)) {
            if rule.namespace.is_glob() {
                rule.exclude.push(NamespacePattern::from(*namespace));
            } else {
                let problem =
                    format!("collections[{index}]: its namespace is where the runs keep their own records, and is never swept");
                map.problem(&keys::COLLECTIONS, problem);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collections_of_the_runs_own_records_are_never_swept() {
        for key in ["lock", "history", "journal"] {
            let parsed = |namespace: &str| {
                let rule = format!("{{namespace: {namespace}, field: at, expireAfter: 1d}}");
                parse("p", &format!("version: 1\n{key}: {{collection: ops.own}}\ncollections: [{rule}]\n"), &|_| None, true)
            };
            let refused = parsed("ops.own").unwrap_err().problems;
            assert_eq!(refused.len(), 1, "{key}");
            assert!(refused[0].1.ends_with("is where the runs keep their own records, and is never swept"), "{refused:?}");
            let own = NamespacePattern { database: "ops".into(), collection: "own".into() };
            assert_eq!(parsed("'o*.*'").unwrap().rules[0].exclude, [own], "{key}");
            assert_eq!(parsed("'app.*'").unwrap().rules[0].exclude, [], "{key}");
        }
    }
}
