//! The data of the model: collections, cursors, and the writes that a fail-over may take back.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bson::{Bson, DateTime, Document, doc};
use tokio::time::Instant;

use crate::codes;
use crate::collection::{Collection, Collections};
use crate::cursor::Cursor;
use crate::failure::Failure;
use crate::faults::{Fate, Faults, Pace, happens};
use crate::index::RecordId;
use crate::release::Release;

/// Milliseconds of the clock of the server at the beginning: 2027-01-15T08:00:00Z.
pub const BEGINNING: i64 = 1_800_000_000_000;

pub(crate) struct State {
    pub random: fastrand::Rng,
    pub faults: Faults,
    pub pace: Pace,
    pub release: Release,
    pub collections: Collections,
    pub cursors: BTreeMap<i64, Cursor>,
    /// Numbers of the commands that the server is at work on.
    pub running: BTreeSet<u64>,
    commands: u64,
    /// Number of fail-overs so far. Commands and cursors of an earlier primary end with an error.
    pub term: u64,
    /// Instant from which there is a primary.
    pub primary_from: Instant,
    /// Sections of `serverStatus`; without them no figures of the storage engine.
    pub status: Document,
    /// Difference of the server's clock to the clock of the runtime, in milliseconds.
    pub skew: i64,
    begun: Instant,
    /// Number of the last write.
    pub written: u64,
    /// The writes that a majority does not have, or only just has, oldest first.
    log: VecDeque<Write>,
    /// Numbers of the writes that fail-overs have taken back.
    pub taken_back: BTreeSet<u64>,
    /// Instant before which no write reaches a majority.
    replication_from: Instant,
    collections_made: u64,
}

/// A write that a fail-over may take back.
struct Write {
    number: u64,
    /// Instant at which a majority has it.
    committed_at: Instant,
    namespace: String,
    /// Number of the collection.
    collection: u64,
    record: RecordId,
    before: Option<Arc<Bson>>,
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        let now = Instant::now();
        Self {
            random: fastrand::Rng::with_seed(seed),
            faults: Faults::default(),
            pace: Pace::default(),
            release: Release::default(),
            collections: Collections::new(),
            cursors: BTreeMap::new(),
            running: BTreeSet::new(),
            commands: 0,
            term: 0,
            primary_from: now,
            status: Document::new(),
            skew: 0,
            begun: now,
            written: 0,
            log: VecDeque::new(),
            taken_back: BTreeSet::new(),
            replication_from: now,
            collections_made: 0,
        }
    }

    /// Returns the server's clock.
    pub(crate) fn now(&self) -> DateTime {
        let elapsed = i64::try_from(self.begun.elapsed().as_millis()).expect("a short test");
        DateTime::from_millis(BEGINNING + elapsed + self.skew)
    }

    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        happens(&mut self.random, chance)
    }

    /// Returns a number for a command.
    pub(crate) fn command_number(&mut self) -> u64 {
        self.commands += 1;
        self.commands
    }

    /// Decides what happens to the next command.
    pub(crate) fn fate(&mut self, is_delete: bool) -> Fate {
        Fate::of_next(&mut self.random, &self.faults, &self.pace, is_delete)
    }

    /// Returns a collection, which is created if it is missing.
    pub(crate) fn collection(&mut self, namespace: &str) -> &mut Collection {
        if !self.collections.contains_key(namespace) {
            self.collections_made += 1;
            self.collections.insert(namespace.to_owned(), Collection::new(self.collections_made));
        }
        self.collections.get_mut(namespace).expect("a collection")
    }

    /// Drops a collection, with all that is known of its writes.
    pub(crate) fn drop_collection(&mut self, namespace: &str) {
        self.collections.remove(namespace);
    }

    /// Gives a collection another name; one that has the name is dropped.
    pub(crate) fn rename_collection(&mut self, namespace: &str, to: &str) {
        let Some(collection) = self.collections.remove(namespace) else { return };
        let of_collection = self.log.iter_mut().filter(|write| write.collection == collection.number);
        of_collection.for_each(|write| write.namespace = to.to_owned());
        self.collections.insert(to.to_owned(), collection);
    }

    /// Fails if a command names another collection than the one that has the name. The details are in the error of a statement as
    /// well (seen with 6.0.5).
    pub(crate) fn check_uuid(&self, command: &Document, namespace: &str) -> Result<(), Failure> {
        let Some(asked) = command.get("collectionUUID") else { return Ok(()) };
        let has = |collection: &Collection| Bson::from(collection.uuid()) == *asked;
        if self.collections.get(namespace).is_some_and(has) {
            return Ok(());
        }
        let (database, expected) = namespace.split_once('.').expect("a namespace");
        let of_database = self.collections.iter().filter(|(_, collection)| has(collection));
        let mut names = of_database.filter_map(|(name, _)| name.strip_prefix(database)?.strip_prefix('.'));
        let actual = names.next().map_or(Bson::Null, Bson::from);
        let details =
            doc! { "db": database, "collectionUUID": asked, "expectedCollection": expected, "actualCollection": actual };
        let mismatch = Failure::new(codes::COLLECTION_UUID_MISMATCH, "Collection UUID does not match that specified");
        Err(Failure { details, ..mismatch })
    }

    /// Puts a document into a place, or removes the one that is there.
    ///
    /// Errors: an index refuses the document.
    pub(crate) fn write(&mut self, namespace: &str, record: RecordId, document: Option<Bson>) -> Result<u64, Failure> {
        let collection = self.collection(namespace);
        if let Some(document) = &document {
            collection.check(record, document)?;
        }
        let number = collection.number;
        let before = collection.put(record, document.map(Arc::new));
        let now = Instant::now();
        while self.log.front().is_some_and(|write| write.committed_at <= now) {
            self.log.pop_front();
        }
        let lag = self.random.u64(self.pace.replication.clone());
        let due = (now + std::time::Duration::from_millis(lag)).max(self.replication_from);
        let committed_at = self.log.back().map_or(due, |last| due.max(last.committed_at));
        self.written += 1;
        let namespace = namespace.to_owned();
        self.log.push_back(Write { number: self.written, committed_at, namespace, collection: number, record, before });
        Ok(self.written)
    }

    /// Inserts a document; its `_id` comes first.
    ///
    /// Errors: there is no room for its `_id`, or an index refuses it.
    pub(crate) fn insert(&mut self, namespace: &str, document: Document) -> Result<u64, Failure> {
        let id = document.get("_id").expect("an _id").clone();
        if matches!(id, Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined) {
            return Err(Failure::new(53, "The '_id' value cannot be of this type"));
        }
        let is_first = document.keys().next().is_some_and(|key| key == "_id");
        let document = if is_first {
            document
        } else {
            let rest = document.into_iter().filter(|(key, _)| key != "_id");
            std::iter::once(("_id".to_owned(), id)).chain(rest).collect()
        };
        let record = self.collection(namespace).place();
        self.write(namespace, record, Some(document.into()))
    }

    /// Returns the instant at which a majority has a write, which may be past.
    pub(crate) fn committed_at(&self, write: u64) -> Option<Instant> {
        let first = self.log.front()?.number;
        let at = usize::try_from(write.checked_sub(first)?).ok()?;
        self.log.get(at).map(|write| write.committed_at)
    }

    /// Returns the instant from which on a majority confirms a write, and that the primary is one, which may be past.
    pub(crate) fn confirmed_from(&self, write: u64) -> Instant {
        self.committed_at(write).map_or(self.replication_from, |at| at.max(self.replication_from))
    }

    /// Returns the data of which a majority has all, as far as they concern a collection.
    pub(crate) fn by_majority(&self, namespace: &str) -> Cow<'_, Collections> {
        let Some(collection) = self.collections.get(namespace) else { return Cow::Borrowed(&self.collections) };
        let mut open = self.open_writes(namespace, collection.number).peekable();
        if open.peek().is_none() {
            return Cow::Borrowed(&self.collections);
        }
        let mut collection = collection.clone();
        for write in open {
            collection.put(write.record, write.before.clone());
        }
        Cow::Owned(Collections::from([(namespace.to_owned(), collection)]))
    }

    /// Returns the documents of a collection as a majority has them, in any order.
    pub(crate) fn documents_of_majority(&self, namespace: &str) -> impl Iterator<Item = &Document> {
        let collection = self.collections.get(namespace);
        let open = collection.map(|collection| self.open_writes(namespace, collection.number));
        // The oldest of them comes last, and has what was there before all of them.
        let before: BTreeMap<RecordId, Option<&Arc<Bson>>> =
            open.into_iter().flatten().map(|write| (write.record, write.before.as_ref())).collect();
        let back: Vec<&Arc<Bson>> = before.values().flatten().copied().collect();
        let records = collection.into_iter().flat_map(Collection::records);
        let unchanged = records.filter(move |(record, _)| !before.contains_key(record)).map(|(_, document)| document);
        unchanged.chain(back).filter_map(|document| document.as_document())
    }

    /// Returns the writes to a collection that a majority does not have, the newest first.
    fn open_writes(&self, namespace: &str, number: u64) -> impl Iterator<Item = &Write> {
        let now = Instant::now();
        let open = self.log.iter().rev().take_while(move |write| write.committed_at > now);
        open.filter(move |write| write.collection == number && write.namespace == namespace)
    }

    /// Keeps all writes from now on from reaching a majority for a while, and those that have not.
    pub(crate) fn hold_replication(&mut self, until: Instant) {
        let now = Instant::now();
        self.replication_from = until;
        self.log.iter_mut().filter(|write| write.committed_at > now).for_each(|write| {
            write.committed_at = write.committed_at.max(until);
        });
    }

    /// Lets a majority have all writes.
    pub(crate) fn commit_all(&mut self) {
        self.replication_from = Instant::now();
        self.log.clear();
    }

    /// Elects another primary, which lacks some of the writes that no majority has; returns the numbers of those that it lacks,
    /// the newest first.
    pub(crate) fn fail_over(&mut self) -> Vec<u64> {
        let now = Instant::now();
        self.term += 1;
        let open = self.log.iter().filter(|write| write.committed_at > now).count();
        let lost = self.random.usize(0..=open);
        let mut taken_back = Vec::new();
        for write in (0..lost).filter_map(|_| self.log.pop_back()).collect::<Vec<_>>() {
            taken_back.push(write.number);
            self.taken_back.insert(write.number);
            let collection = self.collections.get_mut(&write.namespace).filter(|found| found.number == write.collection);
            if let Some(collection) = collection {
                collection.put(write.record, write.before);
            }
        }
        // The new primary has the rest, and a majority follows it.
        self.log.clear();
        taken_back
    }

    /// Returns the error of a command or a cursor that an earlier primary began.
    pub(crate) fn check_term(&self, term: u64) -> Result<(), Failure> {
        match self.term == term {
            true => Ok(()),
            false => Err(Failure::new(codes::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE, "operation was interrupted")),
        }
    }
}
