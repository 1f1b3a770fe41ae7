//! Judges children: each goes only once its parent, which a run deletes, is gone for good, and none is left in the end.

mod entries;

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};
use server_model::Deletion;

use entries::names;

use crate::testing::simulation::relations::{
    ChildCollection, DAY, ID, JOURNAL, SimulatedFamily, TOLERANCE, has, is_same, name_of, values,
};
use crate::testing::simulation::scenario::Scenario;

/// Milliseconds after a look at a parent in which a delete of its children may begin.
const MAX_LOOK_AGE: i64 = 2_000;

/// Milliseconds up to which ObjectIds tell a time.
const SECOND: i64 = 1000;

/// Milliseconds after which a run knows that its lease was dropped.
const FINDS_OUT: i64 = 5_000;

/// All that happened to parents and to children, as far as no fail-over has taken it back.
pub(super) struct FamilyJudge {
    family: SimulatedFamily,
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
    /// The time at which the journal was dropped, by the server's clock.
    journal_dropped: Option<i64>,
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
    /// Entry of the run that ended it; `None` if others did.
    by_run: Option<Entered>,
    /// The server's clock.
    at: i64,
    /// Whether its collection was taken away, which no fail-over takes back.
    is_moved: bool,
}

/// The beginning or the end of all parents with a key.
struct Event<'a> {
    write: u64,
    /// Name of the first or the last of them.
    parent: &'a str,
    is_there: bool,
    /// The time of the entry in the journal before a run ended the last one, and the collections whose documents had to go with
    /// it; `None` if others did.
    by_run: Option<(i64, &'a BTreeSet<usize>)>,
    /// The server's clock.
    at: i64,
}

/// What the journal said of a parent when a run deleted it.
struct Entered {
    /// The times of the entries for its keys.
    at: BTreeMap<Key, i64>,
    /// The numbers of the collections of children that each rule by which it may have been deleted has.
    children: BTreeSet<usize>,
}

/// A rule by which a run may have deleted a parent.
pub(super) struct ByRule {
    pub name: String,
    /// The numbers of the collections of its children.
    pub children: Vec<usize>,
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
            inexact: scenario.troubles.fail_over_every.map_or(0, |_| 2 * scenario.max_skew),
            is_orphan: false,
            journal_dropped: None,
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

    fn changed(&mut self, write: u64, id: &Bson, keys: Option<BTreeSet<Key>>, by_run: Option<Entered>, at: i64) {
        self.changes.push(Change { write, parent: name_of(id), keys, by_run, at, is_moved: false });
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
                let by_run = change.by_run.as_ref();
                let by_run = by_run.map(|by| (by.at.get(key).copied().unwrap_or(change.at), &by.children));
                events.push(Event { write: change.write, parent: &change.parent, is_there, by_run, at: change.at });
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

    /// Notes that the journal was dropped at a time of the server's clock, with all entries.
    pub(super) fn journal_dropped(&mut self, now: i64) {
        self.journal_dropped = Some(now);
    }

    /// Notes that others took a collection away at a time of the server's clock.
    pub(super) fn moved(&mut self, namespace: &str, now: i64) {
        if namespace == self.parents {
            // Those that were deleted before are named too: a fail-over that takes the delete back does not bring them back.
            let parents: BTreeSet<String> = self.changes.iter().map(|change| change.parent.clone()).collect();
            let write = self.last;
            for parent in parents {
                self.changes.push(Change { write, parent, keys: None, by_run: None, at: now, is_moved: true });
            }
        }
    }

    /// Notes that a fail-over took back a write.
    pub(super) fn took_back(&mut self, write: u64) {
        self.changes.retain(|change| change.is_moved || change.write != write);
        self.children.values_mut().for_each(|writes| writes.retain(|of_child| *of_child != write));
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
        if server.documents(JOURNAL).any(|entry| names(entry, child, parent)) {
            self.entered.insert(key.clone());
        }
        let life = self.life(&key);
        let is_parent = |other: &Document| has(other, field, parent);
        let is_there = match field {
            ID => server.document(&self.parents, parent).is_some(),
            _ => server.documents(&self.parents).any(is_parent),
        };
        if is_there || server.has_majority(&self.parents, &is_parent) {
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

    /// Returns the border of a promise that a child lies at, within a second, where the last run judged expiry at a time.
    pub(super) fn border(&self, namespace: &str, document: &Document, as_of: i64) -> Option<String> {
        let child = self.family.collection(namespace)?;
        let key = (child.parent_field, name_of(child.parent(document)?));
        let created = created(document)? / SECOND;
        let (name, border) = match self.life(&key).last().filter(|event| !event.is_there).map(|event| event.by_run) {
            Some(by_run) => ("tolerance", by_run?.0 + TOLERANCE),
            None => ("a day", as_of - DAY),
        };
        let after = created - border / SECOND;
        (-1..=1).contains(&after).then(|| format!("{name} {after:+} s"))
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

    /// Returns a child that is left in a collection, of parents with a key, the last of which a run deleted by a rule with these
    /// children.
    fn left_of(&self, number: usize, parent: &Bson, documents: impl Fn(&str) -> Vec<Document>) -> Option<String> {
        let child = &self.family.collections[number];
        let life = self.life(&(child.parent_field, name_of(parent)));
        let ended = life.last().filter(|event| !event.is_there)?;
        // A rule that has not these children leaves them.
        let (entered, _) = ended.by_run.filter(|(_, children)| children.contains(&number))?;
        // Without its entry no later run knows of the parent.
        if self.journal_dropped.is_some_and(|dropped| entered <= dropped + FINDS_OUT) {
            return None;
        }
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
    }

    /// Judges that no child of a parent that runs deleted is left, but of those that the journal names if `excuses`. Returns what
    /// is wrong.
    pub(super) fn left(&self, documents: impl Fn(&str) -> Vec<Document>, excuses: bool) -> Option<String> {
        let entries = documents(JOURNAL);
        self.family.collections.iter().enumerate().find_map(|(number, child)| {
            documents(child.namespace).iter().filter_map(|left| child.parent(left)).find_map(|parent| {
                let is_excused = excuses && entries.iter().any(|entry| names(entry, child, parent));
                if is_excused { None } else { self.left_of(number, parent, &documents) }
            })
        })
    }

    /// Returns the largest part, in percent, of a collection of children that has no parent.
    pub(super) fn orphans_share(&self, documents: impl Fn(&str) -> Vec<Document>) -> f64 {
        let parents = documents(&self.parents);
        let of_collection = |child: &ChildCollection| {
            let all = documents(child.namespace);
            let is_orphan = |document: &&Document| {
                child.parent(document).is_some_and(|key| !parents.iter().any(|parent| has(parent, child.parent_field, key)))
            };
            all.iter().filter(is_orphan).count() as f64 * 100.0 / all.len().max(1) as f64
        };
        let shares = self.family.collections.iter().map(of_collection);
        if self.family.orphans { shares.fold(0.0, f64::max) } else { 0.0 }
    }

    /// Returns a child without a parent that has to go by a rule with `orphans`, where the run judged expiry at this time.
    /// Parents that the run itself has deleted were there when it looked for orphans.
    pub(super) fn old_orphan(
        &self,
        number: usize,
        documents: impl Fn(&str) -> Vec<Document>,
        gone: &[&Document],
        as_of: i64,
    ) -> Option<String> {
        let child = &self.family.collections[number];
        let (all, parents) = (documents(child.namespace), documents(&self.parents));
        let is_there = |key: &Bson| parents.iter().chain(gone.iter().copied()).any(|parent| has(parent, child.parent_field, key));
        let is_old = |document: &Document| created(document).is_some_and(|created| created / SECOND < (as_of - DAY) / SECOND);
        let is_whole = |key: &Bson| {
            let mut siblings = all.iter().filter(|other| child.parent(other).is_some_and(|of| is_same(of, key)));
            siblings.all(is_old)
        };
        let is_left = |document: &&Document| child.parent(document).is_some_and(|key| !is_there(key) && is_whole(key));
        all.iter().find(is_left).filter(|_| self.family.orphans && !parents.is_empty()).map(Document::to_string)
    }
}

/// Returns the time at which a child was created, by its ObjectId; `None` if it tells none.
fn created(child: &Document) -> Option<i64> {
    Some(child.get_object_id("_id").ok()?.timestamp().timestamp_millis())
}
