//! An index: keys in order, each with the place of a document.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bson::{Bson, Document, doc};

use crate::codes;
use crate::failure::Failure;
use crate::filter::{Comparison, Condition, Filter};
use crate::order::{NULL, compare, is_nan, rank};
use crate::path::Path;
use crate::value::integer;

/// The place of a document in the storage.
pub(crate) type RecordId = u64;

/// One value of a key, or the end of all keys that begin alike.
#[derive(Debug, Clone)]
enum Part {
    Value {
        value: Bson,
        is_descending: bool,
    },
    /// The place before all values of the types from this place in the order of types on.
    Types {
        from: u8,
        is_descending: bool,
    },
    Last,
}

/// A key with the place of its document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IndexEntry {
    key: Vec<Part>,
    pub record: RecordId,
}

/// A range of entries: from the first, to before the last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Range {
    pub from: Option<IndexEntry>,
    pub to: Option<IndexEntry>,
}

#[derive(Debug, Clone)]
pub(crate) struct Index {
    /// The entry of `listIndexes`.
    pub spec: Document,
    paths: Vec<(Path, bool)>,
    pub entries: BTreeSet<IndexEntry>,
    /// Whether a document has ever had an array on this path, for each path; this never ends, as on a server.
    multikey: Vec<bool>,
}

impl Index {
    /// Creates an index from its entry in `listIndexes`, with `key` and `name`, perhaps with `unique` or `sparse`.
    pub(crate) fn new(spec: Document) -> Self {
        let key = spec.get_document("key").expect("the key of an index");
        let paths: Vec<_> = key.iter().map(|(path, direction)| (Path::new(path), integer(direction) == Some(-1))).collect();
        let multikey = vec![false; paths.len()];
        Self { spec, paths, entries: BTreeSet::new(), multikey }
    }

    /// Tells whether a document may have several entries.
    pub(crate) fn is_multikey(&self) -> bool {
        self.multikey.contains(&true)
    }

    /// Tells whether one of the first paths leads to arrays.
    pub(crate) fn has_arrays_in(&self, first: usize) -> bool {
        self.multikey.iter().take(first).any(|is_multikey| *is_multikey)
    }

    pub(crate) fn name(&self) -> &str {
        self.spec.get_str("name").expect("the name of an index")
    }

    pub(crate) fn key(&self) -> &Document {
        self.spec.get_document("key").expect("the key of an index")
    }

    /// Returns the first path, and whether its values descend.
    pub(crate) fn first(&self) -> (&Path, bool) {
        (&self.paths[0].0, self.paths[0].1)
    }

    /// Tells whether entries in their order, or in the reverse one, are in the order of a sort; `None` if in neither.
    pub(crate) fn sorts(&self, sort: &[(Path, bool)]) -> Option<bool> {
        let of = |reverse: bool| {
            sort.len() <= self.paths.len() && sort.iter().zip(&self.paths).all(|(a, b)| a.0 == b.0 && (a.1 != b.1) == reverse)
        };
        if of(false) { Some(false) } else { of(true).then_some(true) }
    }

    /// Returns the entries of a document, and the paths on which it makes the index multikey.
    ///
    /// Errors: several paths lead to arrays.
    fn entries_of(&self, record: RecordId, document: &Document) -> Result<(Vec<IndexEntry>, Vec<bool>), Failure> {
        let flag = |name| self.spec.get_bool(name).unwrap_or(false);
        let is_sparse = flag("sparse");
        let (mut multikey, mut arrays) = (Vec::new(), 0);
        let mut keys: Vec<Vec<Part>> = vec![Vec::new()];
        let mut has_value = false;
        for (path, is_descending) in &self.paths {
            let (values, is_array) = path.keys(document)?;
            has_value |= !is_sparse || path.any(document, false, &mut |value| value.is_some());
            multikey.push(is_array);
            arrays += usize::from(path.meets_array(document));
            if arrays > 1 {
                return Err(Failure::new(171, "cannot index parallel arrays"));
            }
            let with = |value: &Bson, key: &Vec<Part>| {
                let mut key = key.clone();
                key.push(Part::Value { value: value.clone(), is_descending: *is_descending });
                key
            };
            keys = values.iter().flat_map(|value| keys.iter().map(move |key| with(value, key))).collect();
        }
        if !has_value {
            keys.clear();
        }
        let mut entries: Vec<IndexEntry> = keys.into_iter().map(|key| IndexEntry { key, record }).collect();
        entries.sort();
        Ok((entries, multikey))
    }

    /// Checks that a document can be added.
    pub(crate) fn check(&self, record: RecordId, document: &Document) -> Result<(), Failure> {
        let (entries, _) = self.entries_of(record, document)?;
        let is_unique = self.name() == "_id_" || self.spec.get_bool("unique").unwrap_or(false);
        let is_taken = |entry: &IndexEntry| {
            let (from, to) =
                (IndexEntry { key: entry.key.clone(), record: 0 }, IndexEntry { key: entry.key.clone(), record: RecordId::MAX });
            self.entries.range(from..=to).any(|other| other.record != record)
        };
        match entries.iter().find(|entry| is_unique && is_taken(entry)) {
            Some(entry) => Err(self.duplicate(entry)),
            None => Ok(()),
        }
    }

    fn duplicate(&self, entry: &IndexEntry) -> Failure {
        let values = entry.key.iter().map(|part| match part {
            Part::Value { value, .. } => value.clone(),
            Part::Types { .. } | Part::Last => Bson::Null,
        });
        let value: Document = self.key().keys().cloned().zip(values).collect();
        let mut failure = Failure::new(codes::DUPLICATE_KEY, format!("E11000 duplicate key error: index {}", self.name()));
        failure.details = doc! { "keyPattern": self.key().clone(), "keyValue": value };
        failure
    }

    pub(crate) fn add(&mut self, record: RecordId, document: &Document) {
        let (entries, multikey) = self.entries_of(record, document).expect("a document that was checked");
        self.multikey.iter_mut().zip(multikey).for_each(|(before, now)| *before |= now);
        self.entries.extend(entries);
    }

    pub(crate) fn remove(&mut self, record: RecordId, document: &Document) {
        let (entries, _) = self.entries_of(record, document).expect("a document that was checked");
        entries.iter().for_each(|entry| {
            self.entries.remove(entry);
        });
    }

    /// Returns the ranges that hold all matches of a filter, in order; `None` if the filter does not bound the first value.
    pub(crate) fn ranges(&self, filter: &Filter) -> Option<Vec<Range>> {
        let (path, is_descending) = self.first();
        let conditions = filter.conditions_on(path);
        let points = conditions.iter().find_map(|condition| match condition {
            Condition::In(values) if values.iter().all(is_key) => Some(values.as_slice()),
            Condition::Compared { is: Comparison::Equal, operand } if is_key(operand) => Some(std::slice::from_ref(operand)),
            _ => None,
        });
        if let Some(points) = points {
            let mut ranges: Vec<Range> =
                points.iter().map(|value| self.range(Some((value, true)), Some((value, true)), is_descending)).collect();
            if is_descending {
                ranges.reverse();
            }
            return Some(ranges);
        }
        let bound = |greater: bool| {
            conditions.iter().find_map(|condition| match condition {
                Condition::Compared { is, operand } if is_key(operand) => match (is, greater) {
                    (Comparison::Greater, true) | (Comparison::Less, false) => Some((operand, false)),
                    (Comparison::GreaterOrEqual, true) | (Comparison::LessOrEqual, false) => Some((operand, true)),
                    _ => None,
                },
                _ => None,
            })
        };
        let (mut lower, upper) = (bound(true), bound(false));
        if self.has_arrays_in(1) && upper.is_some() {
            // Different elements of an array may meet the two bounds.
            lower = None;
        }
        if lower.is_none() && upper.is_none() {
            return None;
        }
        Some(vec![self.range(lower, upper, is_descending)])
    }

    /// Returns the range between two values of the first path, each with whether it is in the range. A comparison finds values of
    /// one type.
    fn range(&self, lower: Option<(&Bson, bool)>, upper: Option<(&Bson, bool)>, is_descending: bool) -> Range {
        let part = |value: &Bson| Part::Value { value: value.clone(), is_descending };
        let types = |from| vec![Part::Types { from, is_descending }];
        let before = |value: &Bson| vec![part(value)];
        let after = |value: &Bson| vec![part(value), Part::Last];
        // In a descending order, smaller values come later.
        let edge = |(value, is_in): (&Bson, bool), is_first: bool| if is_in == is_first { before(value) } else { after(value) };
        let least = upper.map(|(value, _)| rank(value)).or(lower.map(|(value, _)| rank(value))).unwrap_or(0);
        let (first, last, none_first, none_last) = match is_descending {
            false => (lower, upper, types(least), types(least + 1)),
            true => (upper, lower, types(least + 1), types(least)),
        };
        let entry = |key| Some(IndexEntry { key, record: 0 });
        Range {
            from: entry(first.map_or(none_first, |first| edge(first, true))),
            to: entry(last.map_or(none_last, |last| edge(last, false))),
        }
    }

    /// Returns the document that a key of the index shows of the whole one.
    pub(crate) fn shown(&self, entry: &IndexEntry) -> Document {
        let mut shown = Document::new();
        for ((path, _), part) in self.paths.iter().zip(&entry.key) {
            let Part::Value { value, .. } = part else { continue };
            path.insert(&mut shown, value);
        }
        shown
    }

    /// Tells whether all of these paths are among the paths of the index.
    pub(crate) fn has(&self, paths: &[Path]) -> bool {
        paths.iter().all(|path| self.paths.iter().any(|(of, _)| of == path))
    }

    /// Returns the bound that `min` or `max` of a `find` sets: before the key.
    pub(crate) fn bound(&self, key: &Document) -> Result<IndexEntry, Failure> {
        if !key.keys().eq(self.key().keys()) {
            return Err(Failure::new(51_174, "min or max does not have the keys of the hinted index"));
        }
        let parts = key.values().zip(&self.paths);
        let key = parts.map(|(value, (_, is_descending))| Part::Value { value: value.clone(), is_descending: *is_descending });
        Ok(IndexEntry { key: key.collect(), record: 0 })
    }
}

/// Tells whether a value is the key of the documents that have it.
fn is_key(value: &Bson) -> bool {
    rank(value) > NULL && !matches!(value, Bson::Array(_) | Bson::MaxKey) && !is_nan(value)
}

impl Ord for Part {
    fn cmp(&self, other: &Self) -> Ordering {
        let turned = |order: Ordering, is_descending: bool| if is_descending { order.reverse() } else { order };
        match (self, other) {
            (Self::Last, Self::Last) => Ordering::Equal,
            (Self::Last, _) => Ordering::Greater,
            (_, Self::Last) => Ordering::Less,
            (Self::Value { value: a, is_descending }, Self::Value { value: b, .. }) => turned(compare(a, b), *is_descending),
            (Self::Types { from: a, is_descending }, Self::Types { from: b, .. }) => turned(a.cmp(b), *is_descending),
            (Self::Value { value, is_descending }, Self::Types { from, .. }) => {
                turned(if rank(value) < *from { Ordering::Less } else { Ordering::Greater }, *is_descending)
            }
            (Self::Types { .. }, Self::Value { .. }) => other.cmp(self).reverse(),
        }
    }
}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Part {}
