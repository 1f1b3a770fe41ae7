//! Judges children: each goes only once its parent, which a run deletes, is gone for good, and none is left in the end.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};

use crate::server::model::{Deletion, View};
use crate::simulation::relations::{ChildCollection, Family, ID, JOURNAL, has, is_same, name_of, values};
use crate::simulation::scenario::Scenario;

/// Milliseconds after the end of a parent from which on a child with a new ObjectId is taken for one of an upload.
const TOLERANCE: i64 = 300_000;

/// Age of children without a parent, in milliseconds, at which none belongs to an upload in flight.
const DAY: i64 = 24 * 3_600_000;

/// Milliseconds after a look at a parent in which a delete of its children may begin.
const MAX_LOOK_AGE: i64 = 2_000;

/// Milliseconds up to which ObjectIds tell a time.
const SECOND: i64 = 1000;

/// All that happened to parents and to children, as far as no fail-over has taken it back.
pub(super) struct FamilyJudge {
    family: Family,
    /// Namespace of the parents.
    parents: String,
    /// The states of parents, one after another.
    changes: Vec<Change>,
    /// The last write of each child by others, by namespace and `_id`.
    children: BTreeMap<(String, String), Vec<u64>>,
    /// Keys that were entered in the journal.
    entered: BTreeSet<Key>,
    /// Number of the last write that was seen.
    last: u64,
    /// Whether the last child that went was an orphan: no run had entered its parent in the journal.
    is_orphan: bool,
    /// Milliseconds up to which two times can be compared: the clock of another primary differs.
    inexact: i64,
}

/// A key of parents: its path, and a name of its value.
type Key = (&'static str, String);

/// Another state of a parent.
struct Change {
    write: u64,
    /// Name of its `_id`.
    parent: String,
    /// The keys that it has; `None` if it is gone.
    keys: Option<BTreeSet<Key>>,
    /// The times of the entries in the journal for its keys, if a run ended it.
    entered: Option<BTreeMap<Key, i64>>,
    /// The server's clock.
    at: i64,
}

/// The beginning or the end of all parents with a key.
struct Event<'a> {
    write: u64,
    /// Name of the first or the last of them.
    parent: &'a str,
    is_there: bool,
    /// The time of the entry in the journal before a run ended the last one; `None` if others did.
    by_run: Option<i64>,
    /// The server's clock.
    at: i64,
}

impl Change {
    fn has(&self, key: &Key) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.contains(key))
    }
}

impl FamilyJudge {
    /// Creates the judge of the children in a scenario; `None` if there are none.
    pub(super) fn new(scenario: &Scenario) -> Option<Self> {
        let family = scenario.family.clone()?;
        Some(Self {
            family,
            parents: scenario.rules[0].rule.namespace.clone(),
            inexact: scenario.troubles.fail_over_every.map_or(0, |_| 2 * scenario.max_skew) + SECOND,
            is_orphan: false,
            changes: Vec::new(),
            children: BTreeMap::new(),
            entered: BTreeSet::new(),
            last: 0,
        })
    }

    /// Returns the number of the last write that was seen.
    pub(super) fn last_write(&self) -> u64 {
        self.last
    }

    /// Whether a namespace is one of children.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.family.collection(namespace).is_some()
    }

    /// Notes the parents that are there from the start.
    pub(super) fn filled(&mut self, parents: &[Document]) {
        for parent in parents {
            let keys = Some(self.keys(parent));
            self.changed(0, &parent["_id"], keys, None, i64::MIN);
        }
    }

    /// Notes a write of others, at a time of the server's clock.
    pub(super) fn wrote(&mut self, write: u64, namespace: &str, id: &Bson, document: Option<&Document>, at: i64) {
        self.last = self.last.max(write);
        if namespace == self.parents {
            let keys = document.map(|parent| self.keys(parent));
            self.changed(write, id, keys, None, at);
        } else if self.has(namespace) {
            self.children.entry((namespace.to_owned(), id.to_string())).or_default().push(write);
        }
    }

    fn changed(&mut self, write: u64, id: &Bson, keys: Option<BTreeSet<Key>>, entered: Option<BTreeMap<Key, i64>>, at: i64) {
        self.changes.push(Change { write, parent: name_of(id), keys, entered, at });
    }

    /// Returns all keys by which children may name a parent.
    fn keys(&self, parent: &Document) -> BTreeSet<Key> {
        let of_field = |field| values(parent, field).into_iter().map(move |value| (field, name_of(value)));
        self.family.parent_fields().into_iter().flat_map(of_field).collect()
    }

    /// Returns the times between which some parent had a key.
    fn life(&self, key: &Key) -> Vec<Event<'_>> {
        let (mut having, mut events) = (BTreeSet::new(), Vec::new());
        for change in &self.changes {
            let was_there = !having.is_empty();
            match change.has(key) {
                true => having.insert(&change.parent),
                false => having.remove(&change.parent),
            };
            let is_there = !having.is_empty();
            if is_there != was_there {
                let entered = change.entered.as_ref().map(|entered| entered.get(key).copied().unwrap_or(change.at));
                events.push(Event { write: change.write, parent: &change.parent, is_there, by_run: entered, at: change.at });
            }
        }
        events
    }

    /// Whether a parent that had a key was deleted, by anyone.
    fn has_ended(&self, key: &Key) -> bool {
        let mut had = BTreeSet::new();
        self.changes.iter().any(|change| {
            if change.has(key) {
                had.insert(&change.parent);
            }
            change.keys.is_none() && had.contains(&change.parent)
        })
    }

    /// Notes that a fail-over took back a write.
    pub(super) fn took_back(&mut self, write: u64) {
        self.changes.retain(|change| change.write != write);
        self.children.values_mut().for_each(|writes| writes.retain(|of_child| *of_child != write));
    }

    /// Judges the end of a parent by a run; returns what is wrong with it.
    pub(super) fn parent_deleted(&mut self, deletion: &Deletion<'_>) -> Option<String> {
        self.last = deletion.write;
        let Deletion { write, document, server, .. } = deletion;
        let at = deletion.now.timestamp_millis();
        let (mut entered, mut is_entered) = (BTreeMap::new(), true);
        for field in self.family.parent_fields() {
            for value in values(document, field).into_iter().filter(|value| **value != Bson::Null) {
                let entries = server.documents(JOURNAL).filter(|entry| names(entry, field, value));
                let of_value = entries.filter_map(|entry| entry.get_datetime("at").ok()).map(|at| at.timestamp_millis()).min();
                entered.insert((field, name_of(value)), of_value.unwrap_or(at));
                is_entered &= server.has_majority(JOURNAL, |entry| names(entry, field, value));
            }
        }
        self.entered.extend(entered.keys().cloned());
        self.changed(*write, &document["_id"], None, Some(entered), at);
        if self.family.keeps(document) {
            return Some("which may have several keys".to_owned());
        }
        (!is_entered).then(|| "without an entry in the journal that a majority has".to_owned())
    }

    /// Judges the end of a child by a run; returns what is wrong with it. `begun` is the last write before the run began.
    pub(super) fn child_deleted(&mut self, deletion: &Deletion<'_>, begun: u64) -> Option<String> {
        self.last = deletion.write;
        self.is_orphan = false;
        let Deletion { namespace, document, server, .. } = deletion;
        let child = self.family.collection(namespace)?;
        let Some(parent) = child.parent(document) else { return Some("which names no parent, or several".into()) };
        let written = self.written(namespace, document);
        let field = child.parent_field;
        let key = (field, name_of(parent));
        if server.documents(JOURNAL).any(|entry| names(entry, field, parent)) {
            self.entered.insert(key.clone());
        }
        let life = self.life(&key);
        let is_parent = |other: &Document| has(other, field, parent);
        let is_there = match field {
            ID => server.document(&self.parents, parent).is_some(),
            _ => server.documents(&self.parents).any(is_parent),
        };
        if is_there || server.has_majority(&self.parents, is_parent) {
            // A delete that begins within two seconds of a look may take what was there then.
            let again = life.iter().rposition(|event| event.is_there);
            let was_gone = again.is_some_and(|again| {
                let Event { write, at, .. } = life[again];
                let worked = i64::try_from(deletion.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
                let begun = deletion.now.timestamp_millis() - worked;
                let is_recent = begun <= at.saturating_add(MAX_LOOK_AGE + self.inexact);
                write > written && is_recent && life[..again].iter().any(|event| !event.is_there)
            });
            if !was_gone {
                return Some(if is_there { "whose parent is there".into() } else { "whose parent a majority has".into() });
            }
        }
        let ended = life.iter().rfind(|event| !event.is_there);
        let created = created(document);
        // A parent that has another key by now may be about to give it to its children.
        match ended.filter(|_| self.entered.contains(&key) && self.has_ended(&key)) {
            Some(ended) if created.is_none_or(|created| created < ended.at + TOLERANCE + self.inexact) => None,
            _ if self.family.orphans => {
                self.is_orphan = !self.entered.contains(&key);
                self.orphan_deleted(deletion, self.family.collection(namespace)?, parent, begun)
            }
            Some(ended) => {
                Some(format!("which was created {} ms after its parent was gone", created.unwrap_or_default() - ended.at))
            }
            None => Some("whose parent no run deleted, or is there by another key".into()),
        }
    }

    /// Whether the last child that went was an orphan, which counts towards the limits.
    pub(super) fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// Judges the end of a child that had no parent before.
    fn orphan_deleted(&self, deletion: &Deletion<'_>, child: &ChildCollection, parent: &Bson, begun: u64) -> Option<String> {
        let Deletion { namespace, document, server, now, .. } = deletion;
        let is_old =
            |document: &Document| created(document).is_some_and(|created| created < now.timestamp_millis() - DAY + self.inexact);
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
        let field = entry.get_str("field").ok()?;
        // Another entry may be that of another run, which goes on.
        let is_named = |parent: &Bson| server.documents(JOURNAL).any(|other| names(other, field, parent));
        let mut done = parents.iter().filter(|parent| !is_named(parent));
        done.find_map(|parent| self.left_of(field, parent, |namespace| server.documents(namespace).cloned().collect()))
    }

    /// Returns a child that is left of parents with a key, the last of which a run deleted.
    fn left_of(&self, field: &str, parent: &Bson, documents: impl Fn(&str) -> Vec<Document>) -> Option<String> {
        self.family.collections.iter().filter(|child| child.parent_field == field).find_map(|child| {
            let life = self.life(&(child.parent_field, name_of(parent)));
            let ended = life.last().filter(|event| !event.is_there)?;
            let entered = ended.by_run?;
            // A parent that is there once more with another key looks like one whose key has changed.
            let is_again = |change: &Change| change.write > ended.write && change.parent == ended.parent && change.keys.is_some();
            if self.changes.iter().any(is_again) {
                return None;
            }
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
            let field = child.parent_field;
            documents(child.namespace).iter().filter_map(|left| child.parent(left)).find_map(|parent| {
                let is_excused = excuses && entries.iter().any(|entry| names(entry, field, parent));
                if is_excused { None } else { self.left_of(field, parent, &documents) }
            })
        })
    }

    /// Returns an entry in the journal of which no parent is there.
    pub(super) fn needless_entry(&self, documents: impl Fn(&str) -> Vec<Document>) -> Option<String> {
        let parents = documents(&self.parents);
        let is_needless = |entry: &&Document| {
            let (Ok(field), Ok(named)) = (entry.get_str("field"), entry.get_array("parents")) else { return false };
            let ids = entry.get_array("ids").into_iter().flatten().map(|id| (ID, id));
            let mut keys = named.iter().map(|key| (field, key)).chain(ids);
            !keys.any(|(field, key)| parents.iter().any(|parent| has(parent, field, key)))
        };
        documents(JOURNAL).iter().find(is_needless).map(Document::to_string)
    }
}

/// Whether an entry of the journal names parents with a key.
fn names(entry: &Document, field: &str, key: &Bson) -> bool {
    let is_named = || entry.get_array("parents").is_ok_and(|parents| parents.iter().any(|named| is_same(named, key)));
    entry.get_str("field").is_ok_and(|of_entry| of_entry == field) && is_named()
}

/// Returns the time at which a child was created, by its ObjectId; `None` if it tells none.
fn created(child: &Document) -> Option<i64> {
    Some(child.get_object_id("_id").ok()?.timestamp().timestamp_millis())
}
