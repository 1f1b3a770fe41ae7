//! Compares what a sweep did, by the documents before and after and by the oplog, with what it had to do.

use std::collections::BTreeSet;

use mongodb::bson::{Bson, Document, RawDocumentBuf};
use serde_json::Value;

use super::comparison::{Differences, place, rules, same};
use super::databases::Databases;
use super::filters::number;
use super::open;
use super::oracle::{Expected, State, Stored};
use super::policies::{Policy, Rule};
use super::witnesses::{Run, shown};

/// A sweep with the state before and after.
pub(super) struct Swept<'a> {
    pub databases: &'a Databases,
    pub policy: &'a Policy,
    pub before: &'a State,
    pub after: &'a State,
    pub expected: &'a [Expected],
    pub run: &'a Run,
}

impl Swept<'_> {
    /// Adds every difference.
    pub(super) fn compare(&self, archived: &State, found: &mut Differences) {
        let Self { before, after, run, .. } = self;
        same!(found, before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "the namespaces before and after");
        if !run.written.others.is_empty() {
            found.push(format!("it has written: {:?}", run.written.others));
        }
        for (namespace, documents) in after.iter() {
            let changed =
                documents.iter().filter(|(id, document)| before.get(namespace).and_then(|all| all.get(*id)) != Some(document));
            let changed: Vec<String> = changed.map(|(id, _)| shown(id)).collect();
            same!(found, changed, Vec::<String>::new(), "changed in {namespace}");
            let gone = self.gone(namespace);
            let mut deleted = run.written.deletes.get(namespace).cloned().unwrap_or_default();
            deleted.sort();
            let of_state: Vec<Vec<u8>> = gone.keys().cloned().collect();
            same!(found, names(&deleted), names(&of_state), "deletes in the oplog of {namespace}");
            let is_child =
                self.databases.children.iter().any(|(of, _)| *namespace == format!("{}.{}", self.databases.others(), of.name));
            if !is_child {
                self.survivors(namespace, &gone, found);
            }
        }
        self.children(found);
        self.archive(archived, found);
    }

    /// Returns the documents of a namespace that are gone.
    fn gone(&self, namespace: &str) -> Stored {
        let after = self.after.get(namespace);
        let is_gone = |id: &Vec<u8>| after.is_none_or(|after| !after.contains_key(id));
        let before = self.before.get(namespace).into_iter().flatten();
        before.filter(|(id, _)| is_gone(id)).map(|(id, document)| (id.clone(), document.clone())).collect()
    }

    /// Returns what the report says of an expected rule.
    fn said(&self, one: &Expected) -> Option<&Value> {
        let name = &self.policy.rules[one.rule].name;
        rules(&self.run.json).into_iter().find(|rule| rule["name"] == **name && rule["namespace"] == *one.namespace)
    }

    fn survivors(&self, namespace: &str, gone: &Stored, found: &mut Differences) {
        let mut may_go = BTreeSet::new();
        for one in self.expected.iter().filter(|one| one.stored == namespace) {
            let Some(rule) = self.said(one) else { continue };
            let is_swept = rule["status"] == "complete" || rule["status"] == "partial";
            if !is_swept || self.policy.rules[one.rule].is_closed == Some(true) {
                continue;
            }
            may_go.extend(one.expired.keys());
            let stay: Vec<Vec<u8>> = one.expired.keys().filter(|id| !gone.contains_key(*id)).cloned().collect();
            if rule["status"] == "complete" {
                same!(found, names(&stay), Vec::<String>::new(), "expired and not deleted by {:?}", place(rule));
            }
            // With several rules, each may have taken what is oldest for it.
            let is_known = open::overlap(self.expected) || open::is_newest_first(self.databases, one);
            if rule["order"] == "oldestFirst" && !is_known {
                let newest_gone = one.expired.iter().filter(|(id, _)| gone.contains_key(*id)).map(|(_, at)| at).max();
                let oldest_left = stay.iter().filter_map(|id| one.expired.get(id)).min();
                if newest_gone.zip(oldest_left).is_some_and(|(gone, left)| gone > left) {
                    found.push(format!("{:?}: {newest_gone:?} has gone and {oldest_left:?} stays, oldest first", place(rule)));
                }
            }
        }
        let wrong: Vec<Vec<u8>> = gone.keys().filter(|id| !may_go.contains(id)).cloned().collect();
        same!(found, names(&wrong), Vec::<String>::new(), "deleted in {namespace} although they must stay");
    }

    fn children(&self, found: &mut Differences) {
        let others = self.databases.others();
        for (of, _) in &self.databases.children {
            let namespace = format!("{others}.{}", of.name);
            let gone = self.gone(&namespace);
            let (mut wanted, mut may_go) = (BTreeSet::new(), BTreeSet::new());
            for one in self.expected {
                let Rule { children: Some(children), orphans, .. } = &self.policy.rules[one.rule] else { continue };
                let Some(rule) = self.said(one).filter(|_| children.name == of.name) else { continue };
                if rule["status"] != "complete" && rule["status"] != "partial" {
                    continue;
                }
                let parents = self.gone(&one.stored);
                let keys = |all: &Stored| all.values().filter_map(|raw| value(raw, of.parent_field)).collect::<Vec<_>>();
                let (of_gone, of_left) = (keys(&parents), keys(&self.after[&one.stored]));
                let (mut of_rule, mut without_parent) = (BTreeSet::new(), BTreeSet::new());
                for (id, child) in &self.before[&namespace] {
                    let Some(parent) = value(child, of.field) else { continue };
                    let is_it = |key: &Bson| is_same(key, &parent);
                    let is_one_of = |key: &Bson| is_it(key) || key.as_array().is_some_and(|keys| keys.iter().any(is_it));
                    if of_left.iter().any(is_one_of) || parent.as_array().is_some() {
                        continue;
                    }
                    let had_parent = of_gone.iter().any(is_it);
                    let _ = if had_parent { of_rule.insert(id.clone()) } else { without_parent.insert(id.clone()) };
                }
                may_go.extend(if *orphans { without_parent } else { BTreeSet::new() });
                if !open::overlap(self.expected) {
                    let deleted = if *orphans { gone.len() } else { of_rule.len() } as u64;
                    let said = rule["childrenDeletedCount"].as_u64();
                    same!(found, said.unwrap_or(0), deleted, "childrenDeletedCount of {:?}", place(rule));
                }
                wanted.extend(of_rule);
            }
            may_go.extend(wanted.iter().cloned());
            let wrong: Vec<Vec<u8>> = gone.keys().filter(|id| !may_go.contains(*id)).cloned().collect();
            same!(found, names(&wrong), Vec::<String>::new(), "children that had to stay in {namespace}");
            // Which of two rules a parent went by is not known, and only one of them has children.
            if !open::overlap(self.expected) {
                let left: Vec<Vec<u8>> = wanted.iter().filter(|id| !gone.contains_key(*id)).cloned().collect();
                same!(found, names(&left), Vec::<String>::new(), "children of deleted parents that are left in {namespace}");
            }
        }
    }

    fn archive(&self, archived: &State, found: &mut Differences) {
        if open::overlap(self.expected) {
            return;
        }
        let others = self.databases.others();
        let mut wanted = State::new();
        for one in self.expected {
            let rule = &self.policy.rules[one.rule];
            if rule.archive.is_some() {
                let children = rule.children.map(|children| format!("{others}.{}", children.name));
                for namespace in [Some(one.stored.clone()), children].into_iter().flatten() {
                    let gone = self.gone(&namespace);
                    if !gone.is_empty() {
                        wanted.insert(namespace, gone);
                    }
                }
            }
        }
        let archived: State =
            archived.iter().filter(|(_, all)| !all.is_empty()).map(|(name, all)| (name.clone(), all.clone())).collect();
        let shown = |state: &State| state.iter().map(|(name, all)| (name.clone(), names(all.keys()))).collect::<Vec<_>>();
        same!(found, shown(&archived), shown(&wanted), "archived");
        if archived != wanted {
            found.push("an archived document has other bytes than the deleted one".to_owned());
        }
    }
}

fn names<'a>(ids: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<String> {
    ids.into_iter().map(|id| shown(id)).collect()
}

fn value(document: &RawDocumentBuf, field: &str) -> Option<Bson> {
    let document = Document::try_from(document.clone()).expect("BSON");
    document.get(field).filter(|value| !matches!(value, Bson::Null)).cloned()
}

/// Whether a child with this value is one of a parent with that key.
fn is_same(key: &Bson, value: &Bson) -> bool {
    match (number(key), number(value)) {
        (Some(key), Some(value)) => key == value,
        _ => value.as_array().is_none() && key == value,
    }
}
