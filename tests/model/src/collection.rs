//! The documents of one collection, with its indexes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bson::{Bson, Document, Uuid, doc};

use crate::failure::Failure;
use crate::index::{Index, IndexEntry, Range, RecordId};

/// The order in which a scan reads.
#[derive(Debug, Clone)]
pub(crate) enum Scan {
    Natural {
        backwards: bool,
    },
    /// Along an index, given by its name.
    Index {
        name: String,
        ranges: Vec<Range>,
        backwards: bool,
    },
}

/// The place that a scan has reached.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    record: Option<RecordId>,
    /// Number of ranges that are done.
    ranges: usize,
    pub entry: Option<IndexEntry>,
}

/// The collections of a server, by their namespaces.
pub(crate) type Collections = BTreeMap<String, Collection>;

#[derive(Debug, Clone)]
pub(crate) struct Collection {
    /// Number of the collection: one that is dropped and created again is another.
    pub number: u64,
    documents: BTreeMap<RecordId, Arc<Bson>>,
    /// The index on `_id` first.
    pub indexes: Vec<Index>,
    next: RecordId,
    /// Difference of the collection's own count to the truth, as after a crash.
    pub miscount: i64,
}

impl Collection {
    pub(crate) fn new(number: u64) -> Self {
        let by_id = Index::new(doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
        Self { number, documents: BTreeMap::new(), indexes: vec![by_id], next: 1, miscount: 0 }
    }

    pub(crate) fn uuid(&self) -> Uuid {
        let mut bytes = [0x40; 16];
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        Uuid::from_bytes(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    pub(crate) fn documents(&self) -> impl Iterator<Item = &Document> {
        self.documents.values().map(|document| document.as_document().expect("a document"))
    }

    /// Returns the places of all documents, with what is in them.
    pub(crate) fn records(&self) -> impl Iterator<Item = (&RecordId, &Arc<Bson>)> {
        self.documents.iter()
    }

    pub(crate) fn get(&self, record: RecordId) -> Option<&Arc<Bson>> {
        self.documents.get(&record)
    }

    /// Returns the place of the document with an `_id`.
    pub(crate) fn find(&self, id: &Bson) -> Option<RecordId> {
        let from = self.indexes[0].bound(&doc! { "_id": id }).expect("a key of `_id`");
        let next = self.indexes[0].entries.range(from..).next()?.record;
        let found = self.documents[&next].as_document()?.get("_id")?;
        crate::order::compare(found, id).is_eq().then_some(next)
    }

    /// Creates an index.
    ///
    /// Errors: the documents do not fit into it.
    pub(crate) fn create_index(&mut self, spec: Document) -> Result<(), Failure> {
        let mut index = Index::new(spec);
        for (record, document) in &self.documents {
            let document = document.as_document().expect("a document");
            index.check(*record, document)?;
            index.add(*record, document);
        }
        self.indexes.push(index);
        Ok(())
    }

    /// Returns a place for a new document.
    pub(crate) fn place(&mut self) -> RecordId {
        self.next += 1;
        self.next
    }

    /// Checks that a document can be put into a place.
    pub(crate) fn check(&self, record: RecordId, document: &Bson) -> Result<(), Failure> {
        let document = document.as_document().expect("a document");
        self.indexes.iter().try_for_each(|index| index.check(record, document))
    }

    /// Puts a document that was checked into a place, or removes the one that is there; returns the one that was there.
    pub(crate) fn put(&mut self, record: RecordId, document: Option<Arc<Bson>>) -> Option<Arc<Bson>> {
        let before = self.documents.remove(&record);
        for index in &mut self.indexes {
            if let Some(Bson::Document(before)) = before.as_deref() {
                index.remove(record, before);
            }
            if let Some(Bson::Document(document)) = document.as_deref() {
                index.add(record, document);
            }
        }
        if let Some(document) = document {
            self.documents.insert(record, document);
        }
        before
    }

    pub(crate) fn index(&self, name: &str) -> Option<&Index> {
        self.indexes.iter().find(|index| index.name() == name)
    }

    /// Advances a scan and returns the place of the next document; `None` at the end, or if the index is gone.
    pub(crate) fn next(&self, scan: &Scan, progress: &mut Progress) -> Option<RecordId> {
        match scan {
            Scan::Natural { backwards } => {
                progress.record = match (backwards, progress.record) {
                    (false, Some(record)) => self.documents.range(record + 1..).next(),
                    (false, None) => self.documents.iter().next(),
                    (true, Some(record)) => self.documents.range(..record).next_back(),
                    (true, None) => self.documents.iter().next_back(),
                }
                .map(|(record, _)| *record);
                progress.record
            }
            Scan::Index { name, ranges, backwards } => {
                let index = self.index(name)?;
                while progress.ranges < ranges.len() {
                    let at = if *backwards { ranges.len() - 1 - progress.ranges } else { progress.ranges };
                    let found = entry(index, &ranges[at], progress.entry.as_ref(), *backwards);
                    if let Some(found) = found {
                        progress.entry = Some(found.clone());
                        return Some(found.record);
                    }
                    progress.ranges += 1;
                    progress.entry = None;
                }
                None
            }
        }
    }
}

/// Returns the next entry of a range after another one.
fn entry<'a>(index: &'a Index, range: &Range, after: Option<&IndexEntry>, backwards: bool) -> Option<&'a IndexEntry> {
    let mut from = range.from.as_ref().map_or(Bound::Unbounded, Bound::Included);
    let mut to = range.to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    if let Some(after) = after {
        if backwards {
            to = Bound::Excluded(after);
        } else {
            from = Bound::Excluded(after);
        }
    }
    if let (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) = (from, to)
        && from >= to
    {
        return None;
    }
    let mut found = index.entries.range::<IndexEntry, _>((from, to));
    if backwards { found.next_back() } else { found.next() }
}
