//! Judges the journal: what it names when a parent goes, and when an entry may name less.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};
use server_model::{Deletion, View};

use super::{ByRule, Entered, FINDS_OUT, FamilyJudge};
use crate::testing::simulation::relations::{ChildCollection, ID, JOURNAL, has, is_same, name_of, values};

impl FamilyJudge {
    /// Judges the end of a parent by a run, which has these rules for it; returns what is wrong with it.
    pub(in super::super) fn parent_deleted(&mut self, deletion: &Deletion<'_>, run: &str, rules: Vec<ByRule>) -> Option<String> {
        self.last = deletion.write;
        let Deletion { write, document, server, .. } = deletion;
        let at = deletion.now.timestamp_millis();
        let may_be = |rule: &ByRule| !self.family.keeps(&rule.children, document);
        let has_keys = !rules.iter().any(may_be);
        let rules: Vec<&ByRule> = rules.iter().filter(|rule| may_be(rule)).collect();
        // Each key of the parent by which children of a rule name it.
        let keys = |rule: &ByRule| -> Vec<(&ChildCollection, &Bson)> {
            let of_child = |number: &usize| {
                let child = &self.family.collections[*number];
                values(document, child.parent_field)
                    .into_iter()
                    .filter(|value| **value != Bson::Null)
                    .map(move |value| (child, value))
            };
            rule.children.iter().flat_map(of_child).collect()
        };
        let is_entered = rules.iter().any(|rule| {
            keys(rule).into_iter().all(|(child, key)| server.has_majority(JOURNAL, &|entry| names(entry, child, key)))
        });
        // Which rule it was is known where only one has entered it.
        let is_by = |rule: &&&ByRule| {
            let of_rule = |entry: &&Document| is_of(entry, run, &rule.name);
            keys(rule)
                .into_iter()
                .all(|(child, key)| server.documents(JOURNAL).filter(of_rule).any(|entry| names(entry, child, key)))
        };
        let by: Vec<BTreeSet<usize>> = rules.iter().filter(is_by).map(|rule| rule.children.iter().copied().collect()).collect();
        let children = by.into_iter().reduce(|one, other| &one & &other).unwrap_or_default();
        // The entry may be the entry of one rule, while another one has further children.
        let mut firsts: BTreeMap<_, Option<i64>> = BTreeMap::new();
        for (child, key) in rules.iter().flat_map(|rule| keys(rule)) {
            let entries = server.documents(JOURNAL).filter(|entry| names(entry, child, key));
            let first = entries.filter_map(|entry| entry.get_datetime("at").ok()).map(|at| at.timestamp_millis()).min();
            let known = firsts.entry((child.parent_field, name_of(key))).or_default();
            *known = (*known).into_iter().chain(first).min();
        }
        let entered: BTreeMap<_, i64> = firsts.into_iter().map(|(key, first)| (key, first.unwrap_or(at))).collect();
        self.entered.extend(entered.keys().cloned());
        self.changed(*write, &document["_id"], None, Some(Entered { at: entered, children }), at);
        if has_keys {
            return Some("which may have several keys".to_owned());
        }
        // A run whose entry was dropped may go on until it finds out that its lease is gone.
        let is_excused = self.journal_dropped.is_some_and(|dropped| at <= dropped + FINDS_OUT);
        (!is_entered && !is_excused).then(|| "without an entry in the journal that a majority has".to_owned())
    }

    /// Judges that an entry may go from the journal; returns what is wrong with it.
    pub(in super::super) fn entry_removed(&self, entry: &Document, server: &View<'_>) -> Option<String> {
        self.entry_changed(entry, &Document::new(), server)
    }

    /// Judges that an entry may be changed, most often to name less; returns what is wrong with it.
    pub(in super::super) fn entry_changed(&self, before: &Document, after: &Document, server: &View<'_>) -> Option<String> {
        let parents = before.get_array("parents").ok()?;
        self.family.collections.iter().enumerate().find_map(|(number, child)| {
            // Another entry may be the entry of another run, which goes on.
            let is_named = |parent: &Bson| server.documents(JOURNAL).any(|other| names(other, child, parent));
            let mut done =
                parents.iter().filter(|parent| names(before, child, parent) && !names(after, child, parent) && !is_named(parent));
            done.find_map(|parent| self.left_of(number, parent, |namespace| server.documents(namespace).cloned().collect()))
        })
    }

    /// Returns an entry in the journal of which no parent is there, and which names children in one of these collections.
    pub(in super::super) fn needless_entry(
        &self,
        children: &BTreeSet<usize>,
        documents: impl Fn(&str) -> Vec<Document>,
    ) -> Option<String> {
        let parents = documents(&self.parents);
        let is_needless = |entry: &&Document| {
            let (Ok(field), Ok(named)) = (entry.get_str("field"), entry.get_array("parents")) else { return false };
            let ids = entry.get_array("ids").into_iter().flatten().map(|id| (ID, id));
            let mut keys = named.iter().map(|key| (field, key)).chain(ids);
            let is_to_do = children.iter().any(|number| names_children(entry, &self.family.collections[*number]));
            is_to_do && !keys.any(|(field, key)| parents.iter().any(|parent| has(parent, field, key)))
        };
        documents(JOURNAL).iter().find(is_needless).map(Document::to_string)
    }
}

/// Whether an entry of the journal names children in a collection whose parents have a key.
pub(super) fn names(entry: &Document, child: &ChildCollection, key: &Bson) -> bool {
    let is_named = || entry.get_array("parents").is_ok_and(|parents| parents.iter().any(|named| is_same(named, key)));
    names_children(entry, child) && is_named()
}

/// Whether an entry of the journal names a collection of children. One that names none stands for all with its key.
fn names_children(entry: &Document, child: &ChildCollection) -> bool {
    let is_this = |named: &Bson| {
        let text = |key| named.as_document().and_then(|named| named.get_str(key).ok());
        text("namespace") == Some(child.namespace) && text("field") == Some(child.field)
    };
    entry.get_str("field").is_ok_and(|field| field == child.parent_field)
        && entry.get_array("children").map_or(true, |children| children.iter().any(is_this))
}

/// Whether a rule of a run has made an entry of the journal.
fn is_of(entry: &Document, run: &str, rule: &str) -> bool {
    let of_run = entry.get_str("run").is_ok_and(|of_entry| of_entry == run || of_entry.strip_prefix("sweeper ") == Some(run));
    of_run && entry.get_str("rule").is_ok_and(|of_entry| of_entry == rule)
}
