//! Judges children: each goes only once its parent, which a run deletes, is gone for good, and none is left in the end.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};

use crate::server::model::{Deletion, View};
use crate::simulation::relations::{ChildCollection, Family, JOURNAL, is_same, name_of};
use crate::simulation::scenario::MAX_SKEW;

/// Milliseconds after the end of a parent from which on a child with a new ObjectId is taken for one of an upload.
const TOLERANCE: i64 = 300_000;

/// Age of children without a parent, in milliseconds, at which none belongs to an upload in flight.
const DAY: i64 = 24 * 3_600_000;

/// Largest difference of two times by the clocks of servers, in milliseconds, and the second up to which ObjectIds tell it.
const INEXACT: i64 = 2 * MAX_SKEW + 1000;

/// All that happened to parents and to children, as far as no fail-over has taken it back.
pub(super) struct FamilyJudge {
    family: Family,
    /// Namespace of the parents.
    parents: String,
    /// By the names of their `_id`s.
    lives: BTreeMap<String, Vec<Event>>,
    /// The last write of each child by others, by namespace and `_id`.
    children: BTreeMap<(String, String), Vec<u64>>,
    /// Parents that were entered in the journal, by name.
    entered: BTreeSet<String>,
    /// Number of the last write that was seen.
    last: u64,
}

/// The beginning or the end of a parent.
#[derive(Debug, Clone)]
struct Event {
    write: u64,
    is_there: bool,
    /// The time of the entry in the journal before a run ended it; `None` if others did.
    by_run: Option<i64>,
    /// The server's clock.
    at: i64,
}

impl FamilyJudge {
    pub(super) fn new(family: &Family, parents: &str) -> Self {
        Self {
            family: family.clone(),
            parents: parents.to_owned(),
            lives: BTreeMap::new(),
            children: BTreeMap::new(),
            entered: BTreeSet::new(),
            last: 0,
        }
    }

    /// Returns the number of the last write that was seen.
    pub(super) fn last_write(&self) -> u64 {
        self.last
    }

    /// Whether a namespace is one of children.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.family.collection(namespace).is_some()
    }

    /// Notes a write of others, at a time of the server's clock.
    pub(super) fn wrote(&mut self, write: u64, namespace: &str, id: &Bson, is_there: bool, at: i64) {
        self.last = self.last.max(write);
        if namespace == self.parents {
            self.lives.entry(name_of(id)).or_default().push(Event { write, is_there, by_run: None, at });
        } else if self.has(namespace) {
            self.children.entry((namespace.to_owned(), id.to_string())).or_default().push(write);
        }
    }

    /// Notes that a fail-over took back a write.
    pub(super) fn took_back(&mut self, write: u64) {
        self.lives.values_mut().for_each(|events| events.retain(|event| event.write != write));
        self.children.values_mut().for_each(|writes| writes.retain(|of_child| *of_child != write));
    }

    /// Judges the end of a parent by a run; returns what is wrong with it.
    pub(super) fn parent_deleted(&mut self, deletion: &Deletion<'_>) -> Option<String> {
        self.last = deletion.write;
        let id = deletion.document.get("_id")?;
        let entries = deletion.server.documents(JOURNAL).filter(|entry| names(entry, id));
        let entered = entries.filter_map(|entry| entry.get_datetime("at").ok()).map(|at| at.timestamp_millis()).min();
        let at = deletion.now.timestamp_millis();
        let event = Event { write: deletion.write, is_there: false, by_run: Some(entered.unwrap_or(at)), at };
        self.lives.entry(name_of(id)).or_default().push(event);
        self.entered.insert(name_of(id));
        let is_entered = deletion.server.has_majority(JOURNAL, |entry| names(entry, id));
        (!is_entered).then(|| "without an entry in the journal that a majority has".to_owned())
    }

    /// Judges the end of a child by a run; returns what is wrong with it. `begun` is the last write before the run began.
    pub(super) fn child_deleted(&mut self, deletion: &Deletion<'_>, begun: u64) -> Option<String> {
        self.last = deletion.write;
        let Deletion { namespace, document, server, .. } = deletion;
        let child = self.family.collection(namespace)?;
        let Some(parent) = child.parent(document) else { return Some("which names no parent, or several".into()) };
        let written = self.written(namespace, document);
        let none = Vec::new();
        let life = self.lives.get(&name_of(parent)).unwrap_or(&none);
        let is_there = server.document(&self.parents, parent).is_some();
        let is_parent = |other: &Document| other.get("_id").is_some_and(|id| is_same(id, parent));
        if is_there || server.has_majority(&self.parents, is_parent) {
            // A delete under way may take what was found before the parent was created again.
            let again = life.iter().rposition(|event| event.is_there);
            let was_gone =
                again.is_some_and(|again| life[again].write > written && life[..again].iter().any(|event| !event.is_there));
            if !was_gone {
                return Some(if is_there { "whose parent is there".into() } else { "whose parent a majority has".into() });
            }
        }
        let ended = life.iter().rfind(|event| !event.is_there);
        let of_entry = server.documents(JOURNAL).any(|entry| names(entry, parent));
        if of_entry {
            self.entered.insert(name_of(parent));
        }
        let created = created(document);
        match ended.filter(|_| self.entered.contains(&name_of(parent))) {
            Some(ended) if created.is_none_or(|created| created < ended.at + TOLERANCE + INEXACT) => None,
            _ if self.family.orphans => self.orphan_deleted(deletion, child, parent, begun),
            Some(ended) => {
                Some(format!("which was created {} ms after its parent was gone", created.unwrap_or_default() - ended.at))
            }
            None => Some("whose parent no run deleted".into()),
        }
    }

    /// Judges the end of a child that had no parent before.
    fn orphan_deleted(&self, deletion: &Deletion<'_>, child: &ChildCollection, parent: &Bson, begun: u64) -> Option<String> {
        let Deletion { namespace, document, server, now, .. } = deletion;
        let is_old =
            |document: &Document| created(document).is_some_and(|created| created < now.timestamp_millis() - DAY + INEXACT);
        if !is_old(document) {
            return Some("which has no parent, and is younger than a day".into());
        }
        let is_sibling = |other: &Document| {
            child.parent(other).is_some_and(|of| is_same(of, parent)) && self.written(namespace, other) < begun && !is_old(other)
        };
        server.documents(namespace).any(is_sibling).then(|| "whose upload has a part that is younger than a day".to_owned())
    }

    /// Returns the last write of a child; 0 if it is from the start.
    fn written(&self, namespace: &str, document: &Document) -> u64 {
        let id = document.get("_id").map(Bson::to_string).unwrap_or_default();
        self.children.get(&(namespace.to_owned(), id)).and_then(|writes| writes.last().copied()).unwrap_or(0)
    }

    /// Judges that an entry may go from the journal; returns what is wrong with it.
    pub(super) fn entry_removed(&self, entry: &Document, server: &View<'_>) -> Option<String> {
        let parents = entry.get_array("parents").ok()?;
        // Another entry may be that of another run, which goes on.
        let is_named = |parent: &Bson| server.documents(JOURNAL).any(|other| names(other, parent));
        parents
            .iter()
            .filter(|parent| !is_named(parent))
            .find_map(|parent| self.left_of(parent, |namespace| server.documents(namespace).cloned().collect()))
    }

    /// Returns a child that is left of a parent which a run deleted.
    fn left_of(&self, parent: &Bson, documents: impl Fn(&str) -> Vec<Document>) -> Option<String> {
        let ended = self.lives.get(&name_of(parent))?.last().filter(|event| !event.is_there)?;
        let entered = ended.by_run?;
        self.family.collections.iter().find_map(|child| {
            let is_left = |document: &&Document| {
                child.parent(document).is_some_and(|of| is_same(of, parent))
                    && self.written(child.namespace, document) < ended.write
                    && created(document).is_none_or(|created| created < (entered + TOLERANCE) / 1000 * 1000)
            };
            let all = documents(child.namespace);
            let left = all.iter().find(is_left)?;
            Some(format!("{left} is left in {}, whose parent a run deleted", child.namespace))
        })
    }

    /// Judges that no child of a parent that runs deleted is left, but of those that the journal names if `excuses`. Returns what is wrong.
    pub(super) fn left(&self, documents: impl Fn(&str) -> Vec<Document>, excuses: bool) -> Option<String> {
        let entries = documents(JOURNAL);
        self.family.collections.iter().find_map(|child| {
            documents(child.namespace).iter().filter_map(|left| child.parent(left)).find_map(|parent| {
                let is_excused = excuses && entries.iter().any(|entry| names(entry, parent));
                if is_excused { None } else { self.left_of(parent, &documents) }
            })
        })
    }

    /// Returns an entry in the journal of which no parent is there.
    pub(super) fn needless_entry(&self, documents: impl Fn(&str) -> Vec<Document>) -> Option<String> {
        let parents = documents(&self.parents);
        let is_there = |id: &Bson| parents.iter().any(|parent| parent.get("_id").is_some_and(|of| is_same(of, id)));
        let is_needless = |entry: &&Document| entry.get_array("parents").is_ok_and(|named| !named.iter().any(is_there));
        documents(JOURNAL).iter().find(is_needless).map(Document::to_string)
    }
}

/// Whether an entry of the journal names a parent.
fn names(entry: &Document, parent: &Bson) -> bool {
    entry.get_array("parents").is_ok_and(|parents| parents.iter().any(|named| is_same(named, parent)))
}

/// Returns the time at which a child was created, by its ObjectId; `None` if it tells none.
fn created(child: &Document) -> Option<i64> {
    Some(child.get_object_id("_id").ok()?.timestamp().timestamp_millis())
}
