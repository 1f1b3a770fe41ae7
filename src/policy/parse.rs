//! Text to [`Policy`]: everything that is wrong is found in one go, and nothing is contacted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::namespace::{Namespace, NamespacePattern};
use super::reader::{Context, Mapping};
use super::rule::{Keys, read_defaults, read_rule};
use super::yaml::{self, Node, Step};
use super::{Connection, Expect, Policy, PolicyError, Rule, RunLimits};
use crate::flavor::Flavor;
use crate::text;

/// Largest policy that is read, in bytes. Globs and `defaults` keep real ones far below it.
pub const MAX_BYTES: usize = 1_048_576;

/// Parses and validates a policy.
///
/// `path` is how messages call the file. `uri_given` says that the connection string comes from elsewhere: the policy's own is then
/// not looked at, so that a variable it names need not be set.
///
/// Errors: all problems of the text, with their places.
pub fn parse(path: &str, text: &str, env: &dyn Fn(&str) -> Option<String>, uri_given: bool) -> Result<Policy, PolicyError> {
    if text.len() > MAX_BYTES {
        return Err(PolicyError::single(
            path,
            None,
            format!(
                "the policy is {} bytes long; expected at most {MAX_BYTES}; a glob in `namespace` and `defaults` save repeating rules",
                text.len()
            ),
        ));
    }
    let root = yaml::parse(text).map_err(|(message, place)| PolicyError::single(path, place, message))?;
    let context = Context { env, problems: RefCell::default() };
    let policy = read(&context, &root, uri_given);
    let problems = context.problems.into_inner();
    match policy {
        Some(policy) if problems.is_empty() => {
            Ok(Policy { path: path.to_owned(), sha256: text::sha256(text.as_bytes()), ..policy })
        }
        _ => Err(PolicyError::new(path, text, &problems)),
    }
}

fn read<'a>(context: &'a Context<'a>, root: &'a Node, uri_given: bool) -> Option<Policy> {
    let known = ["version", "connection", "run", "lock", "history", "defaults", "collections"];
    let map = Mapping::read(context, root, Vec::new(), None, "the policy", &known)?;
    if map.has("version") {
        map.whole("version", 1, 1);
    } else {
        map.problem_here("no `version`; expected `version: 1`");
    }
    let connection = sub(&map, "connection", &["uri", "flavor", "expect"]).map(|map| read_connection(&map, uri_given));
    let run = sub(&map, "run", &["maxDuration", "concurrency", "rate"]).map(|map| read_run(&map));
    let lock = sub(&map, "lock", &["collection"]).and_then(|map| read_collection(&map));
    let history = sub(&map, "history", &["collection"]).and_then(|map| read_collection(&map));
    let own: Vec<&Namespace> = [&lock, &history].into_iter().flatten().collect();
    let defaults = map.get("defaults").map_or_else(Keys::default, |entry| read_defaults(context, entry.node, entry.path));
    let mut rules = read_rules(&map, &defaults);
    leave_out(&map, &mut rules, &own);
    Some(Policy {
        path: String::new(),
        sha256: String::new(),
        connection: connection.unwrap_or_default(),
        run: run.unwrap_or_default(),
        lock,
        history,
        rules,
    })
}

fn read_rules(map: &Mapping, defaults: &Keys) -> Vec<Rule> {
    let Some(entry) = map.get("collections") else {
        map.problem_here("no `collections`; expected a list of rules");
        return Vec::new();
    };
    let items = match entry.node {
        Node::Seq(items) if !items.is_empty() => items,
        _ => {
            map.unexpected::<()>(&entry, "a list of at least one rule");
            return Vec::new();
        }
    };
    let path_of = |index: usize| [entry.path.as_slice(), &[Step::Item(index)]].concat();
    let mut rules = Vec::new();
    for (index, node) in items.iter().enumerate() {
        if let Some((name, rule)) = read_rule(map.context(), node, path_of(index), index, defaults) {
            rules.push((index, name, rule));
        }
    }

    let mut namespaces: BTreeMap<String, usize> = BTreeMap::new();
    for (_, name, rule) in &rules {
        if name.is_none() {
            *namespaces.entry(rule.namespace.to_string()).or_default() += 1;
        }
    }
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut named = Vec::new();
    for (index, name, mut rule) in rules {
        let namespace = rule.namespace.to_string();
        rule.name = match name {
            Some(name) => name,
            None if namespaces[&namespace] > 1 => match &rule.field {
                Some(field) => format!("{namespace}:{field}"),
                None => namespace,
            },
            None => namespace,
        };
        if let Some(first) = taken.get(&rule.name) {
            map.context().add(
                &path_of(index),
                Some(&format!("collections[{index}]")),
                format!("the name `{}` is taken by collections[{first}]; expected a `name` of its own", rule.name),
            );
        } else {
            taken.insert(rule.name.clone(), index);
        }
        named.push(rule);
    }
    named
}

fn sub<'a>(map: &Mapping<'a>, key: &'static str, known: &[&str]) -> Option<Mapping<'a>> {
    let entry = map.get(key)?;
    Mapping::read(map.context(), entry.node, entry.path, None, &format!("`{key}`"), known)
}

fn read_connection(map: &Mapping, uri_given: bool) -> Connection {
    let expect = sub(map, "expect", &["replicaSet", "hosts"]).map(|map| Expect {
        replica_set: map.string("replicaSet"),
        hosts: map
            .list("hosts", |text| match text.trim() {
                "" => Err("an empty host; expected `host:port`".into()),
                host if host.contains("://") || host.contains('@') => Err("a URI; expected `host:port`".into()),
                host if host.contains(':') => Ok(host.to_lowercase()),
                host => Ok(format!("{}:27017", host.to_lowercase())),
            })
            .unwrap_or_default(),
    });
    if expect.as_ref().is_some_and(|expect| *expect == Expect::default()) {
        map.problem(&map.key_path("expect"), "`expect` says nothing; expected `replicaSet`, `hosts` or both");
    }
    Connection {
        uri: if uri_given { None } else { map.string("uri") },
        flavor: map
            .one_of(
                "flavor",
                &[
                    ("auto", None),
                    ("mongodb", Some(Flavor::MongoDb)),
                    ("cosmosRu", Some(Flavor::CosmosRu)),
                    ("documentDb", Some(Flavor::DocumentDb)),
                ],
            )
            .flatten(),
        expect: expect.unwrap_or_default(),
    }
}

fn read_run(map: &Mapping) -> RunLimits {
    let small = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    RunLimits {
        max_duration: map
            .positive_duration("maxDuration")
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs),
        concurrency: small(map.whole("concurrency", 1, 64)),
        rate: small(map.whole("rate", 1, 1_000_000_000)),
    }
}

/// Collections that the runs themselves write to are never swept: a `*` does not stand for them, and their names are problems.
fn leave_out(map: &Mapping, rules: &mut [Rule], own: &[&Namespace]) {
    for rule in rules {
        for namespace in own.iter().filter(|namespace| rule.namespace.matches(namespace)) {
            let Namespace { database, collection } = (**namespace).clone();
            if rule.namespace.is_glob() {
                rule.exclude.push(NamespacePattern { database, collection });
            } else {
                let problem =
                    format!("rule `{}`: {namespace} is where the runs keep their own records, and is never swept", rule.name);
                map.problem(&map.key_path("collections"), problem);
            }
        }
    }
}

fn read_collection(map: &Mapping) -> Option<Namespace> {
    if !map.has("collection") {
        map.problem_here("no `collection`; expected `database.collection`");
    }
    map.parsed("collection", |text| {
        let pattern = NamespacePattern::parse(text)?;
        if pattern.is_glob() {
            return Err(format!("{text:?} has a `*`; expected one collection"));
        }
        Ok(Namespace { database: pattern.database, collection: pattern.collection })
    })
}
