//! Judges what runs of `restore` write: the state that was archived last, of documents that are gone, children before their
//! parents.

use std::collections::BTreeMap;

use bson::{Bson, Document};
use server_model::{Insertion, Updated, View};

use super::{Facts, Judge};
use crate::core::report::restore::RestoreReport;
use crate::testing::simulation::archives::{LastStates, are_same};
use crate::testing::simulation::relations::{is_same, name_of};

/// A run of `restore`.
pub(super) struct Restoring {
    /// The documents that it has to put back.
    states: LastStates,
    replaces: bool,
    /// The time of its beginning, and how much had happened by then.
    begun: u64,
    gone: usize,
    children: usize,
    disturbed: usize,
    /// The times of its own writes, by namespace and `_id`.
    own: BTreeMap<(String, String), u64>,
}

impl Facts {
    /// Returns the number of events after which nothing is said of documents that should be there.
    fn disturbed(&self) -> usize {
        self.taken_back + self.moved.len()
    }

    /// Whether others have written or deleted a document since a run of `restore` began.
    fn is_disturbed(&self, restoring: &Restoring, namespace: &str, id: &Bson) -> bool {
        let key = (namespace.to_owned(), id.to_string());
        let touched =
            self.touched.get(&key).filter(|touched| **touched > restoring.begun && restoring.own.get(&key) != Some(touched));
        let mut gone = self.gone[restoring.gone..].iter().chain(&self.children[restoring.children..]);
        touched.is_some() || gone.any(|gone| gone.namespace == namespace && gone.id == key.1)
    }
}

impl Judge {
    /// Returns the number of documents that runs have deleted so far.
    pub(in crate::testing::simulation) fn deleted(&self) -> usize {
        let facts = self.facts.lock();
        facts.gone.len() + facts.children.len()
    }

    /// Notes that a run of `restore` begins, which has to put these documents back.
    pub(in crate::testing::simulation) fn restore_begins(&self, run: &str, states: LastStates, replaces: bool) {
        let mut facts = self.facts.lock();
        let (begun, gone, children, disturbed) = (facts.time, facts.gone.len(), facts.children.len(), facts.disturbed());
        let restoring = Restoring { states, replaces, begun, gone, children, disturbed, own: BTreeMap::new() };
        facts.restores.insert(run.to_owned(), restoring);
    }

    /// Judges a document that a command inserts, if it is one of a run of `restore`.
    pub(super) fn restore_inserted(&self, run: &str, insertion: &Insertion<'_>) {
        let Insertion { write, namespace, document, now, server, .. } = insertion;
        {
            let facts = self.facts.lock();
            let Some(restoring) = facts.restores.get(run) else { return };
            self.trace.step(*write, || format!("{run} inserts {document} into {namespace}"));
            let id = document.get("_id").map(name_of).unwrap_or_default();
            let last = restoring.states.get(&((*namespace).to_owned(), id));
            // What is deleted again while it is put back may come back in an older state, of those that the archive has.
            let is_again = last.is_some() && facts.is_disturbed(restoring, namespace, &document["_id"]);
            if !restoring.replaces && !is_again && !last.is_some_and(|last| are_same(last, document)) {
                self.trace.violated(|| {
                    format!("{run} inserts {document} into {namespace}, which is not the last state in the archive")
                });
            }
            if let Some(child) = self.missing_child(&facts, restoring, namespace, document, server) {
                self.trace.violated(|| format!("{run} inserts {document} into {namespace} before its child {child}"));
            }
        }
        self.restore_wrote(run, *write, namespace, document, now.timestamp_millis());
    }

    /// Judges a document that a command changes, if it is one of a run of `restore`.
    pub(super) fn restore_updated(&self, run: &str, update: &Updated<'_>) {
        let Updated { write, namespace, before, after, now, .. } = update;
        let Some(replaces) = self.facts.lock().restores.get(run).map(|restoring| restoring.replaces) else { return };
        self.trace.step(*write, || format!("{run} replaces {before} by {after} in {namespace}"));
        if !replaces {
            self.trace.violated(|| format!("{run} replaces {before} in {namespace}"));
        }
        self.restore_wrote(run, *write, namespace, after, now.timestamp_millis());
    }

    fn restore_wrote(&self, run: &str, write: u64, namespace: &str, document: &Document, at: i64) {
        let id = &document["_id"];
        self.wrote(write, namespace, id, Some(document), at);
        let mut facts = self.facts.lock();
        let time = facts.time;
        if let Some(restoring) = facts.restores.get_mut(run) {
            restoring.own.insert((namespace.to_owned(), id.to_string()), time);
        }
    }

    /// Returns a child in the archive of a document that is inserted, which is not there yet.
    fn missing_child<'a>(
        &self,
        facts: &Facts,
        restoring: &'a Restoring,
        namespace: &str,
        parent: &Document,
        server: &View<'_>,
    ) -> Option<&'a Document> {
        let family = self.scenario.family_of(namespace).filter(|_| restoring.disturbed == facts.disturbed())?;
        restoring.states.iter().find_map(|((of_child, _), document)| {
            let child = family.collection(of_child)?;
            let key = child.parent(document)?;
            let is_there = server.document(of_child, &document["_id"]).is_some();
            let is_missing = child.keys(parent).iter().any(|of_parent| is_same(of_parent, key)) && !is_there;
            (is_missing && !facts.is_disturbed(restoring, of_child, &document["_id"])).then_some(document)
        })
    }

    /// Judges what a run of `restore` left that has ended. `documents` returns the documents of a namespace.
    pub(in crate::testing::simulation) fn restore_ended(
        &self,
        run: &str,
        report: &RestoreReport,
        documents: impl Fn(&str) -> Vec<Document>,
    ) {
        let facts = self.facts.lock();
        let restoring = &facts.restores[run];
        if restoring.disturbed != facts.disturbed() {
            return;
        }
        for told in report.namespaces.iter().filter(|told| told.error.is_none()) {
            let there: BTreeMap<String, Document> =
                documents(&told.to).into_iter().map(|document| (name_of(&document["_id"]), document)).collect();
            let of_namespace = restoring.states.iter().filter(|((namespace, _), _)| *namespace == told.namespace);
            for ((namespace, id), state) in of_namespace {
                if facts.is_disturbed(restoring, namespace, &state["_id"]) {
                    continue;
                }
                match there.get(id) {
                    None => self.trace.violated(|| format!("{run} has ended, and {state} is not back in {namespace}")),
                    Some(found) if restoring.replaces && !are_same(found, state) => {
                        self.trace.violated(|| format!("{run} has ended, and {namespace} has {found} instead of {state}"))
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
