//! An index: keys in order, each with the place of a document.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bson::{Bson, Document, doc};

use super::failure::Failure;
use super::filter::{Comparison, Condition, Filter};
use super::order::{NULL, compare, is_nan, rank};
use super::path::Path;
use crate::server::codes;

/// The place of a document in the storage.
pub(super) type RecordId = u64;

/// One value of a key, or the end of all keys that begin alike.
#[derive(Debug, Clone)]
enum Part {
    Value { value: Bson, is_descending: bool },
    Last,
}

/// A key with the place of its document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    key: Vec<Part>,
    pub record: RecordId,
}

/// A range of entries: from the first, to before the last.
#[derive(Debug, Clone, Default)]
pub(super) struct Range {
    pub from: Option<Entry>,
    pub to: Option<Entry>,
}

#[derive(Debug, Clone)]
pub(super) struct Index {
    /// The entry of `listIndexes`.
    pub spec: Document,
    paths: Vec<(Path, bool)>,
    pub entries: BTreeSet<Entry>,
    /// Whether a document has ever had several keys; this never ends, as on a server.
    pub is_multikey: bool,
}

impl Index {
    /// Creates an index from its entry in `listIndexes`, with `key` and `name`, perhaps with `unique` or `sparse`.
    pub(super) fn new(spec: Document) -> Self {
        let key = spec.get_document("key").expect("the key of an index");
        let paths =
            key.iter().map(|(path, direction)| (Path::new(path), crate::values::integer(direction) == Some(-1))).collect();
        Self { spec, paths, entries: BTreeSet::new(), is_multikey: false }
    }

    pub(super) fn name(&self) -> &str {
        self.spec.get_str("name").expect("the name of an index")
    }

    pub(super) fn key(&self) -> &Document {
        self.spec.get_document("key").expect("the key of an index")
    }

    /// Returns the first path, and whether its values descend.
    pub(super) fn first(&self) -> (&Path, bool) {
        (&self.paths[0].0, self.paths[0].1)
    }

    /// Tells whether entries in their order, or in the reverse one, are in the order of a sort; `None` if in neither.
    pub(super) fn sorts(&self, sort: &[(Path, bool)]) -> Option<bool> {
        let of = |reverse: bool| {
            sort.len() <= self.paths.len() && sort.iter().zip(&self.paths).all(|(a, b)| a.0 == b.0 && (a.1 != b.1) == reverse)
        };
        if of(false) { Some(false) } else { of(true).then_some(true) }
    }

    /// Returns the entries of a document, and whether it makes the index multikey.
    ///
    /// Errors: several paths lead to arrays.
    fn entries_of(&self, record: RecordId, document: &Document) -> Result<(Vec<Entry>, bool), Failure> {
        let flag = |name| self.spec.get_bool(name).unwrap_or(false);
        let is_sparse = flag("sparse");
        let mut is_multikey = false;
        let mut keys: Vec<Vec<Part>> = vec![Vec::new()];
        let mut has_value = false;
        for (path, is_descending) in &self.paths {
            let (values, is_array) = path.keys(document);
            has_value |= !is_sparse || path.any(document, false, &mut |value| value.is_some());
            if is_array && is_multikey {
                return Err(Failure::new(171, "cannot index parallel arrays"));
            }
            is_multikey |= is_array;
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
        Ok((keys.into_iter().map(|key| Entry { key, record }).collect(), is_multikey))
    }

    /// Checks that a document can be added.
    pub(super) fn check(&self, record: RecordId, document: &Document) -> Result<(), Failure> {
        let (entries, _) = self.entries_of(record, document)?;
        let is_unique = self.name() == "_id_" || self.spec.get_bool("unique").unwrap_or(false);
        let is_taken = |entry: &Entry| {
            let (from, to) =
                (Entry { key: entry.key.clone(), record: 0 }, Entry { key: entry.key.clone(), record: RecordId::MAX });
            self.entries.range(from..=to).any(|other| other.record != record)
        };
        match entries.iter().find(|entry| is_unique && is_taken(entry)) {
            Some(entry) => Err(self.duplicate(entry)),
            None => Ok(()),
        }
    }

    fn duplicate(&self, entry: &Entry) -> Failure {
        let values = entry.key.iter().map(|part| match part {
            Part::Value { value, .. } => value.clone(),
            Part::Last => Bson::Null,
        });
        let value: Document = self.key().keys().cloned().zip(values).collect();
        let mut failure = Failure::new(codes::DUPLICATE_KEY, format!("E11000 duplicate key error: index {}", self.name()));
        failure.details = doc! { "keyPattern": self.key().clone(), "keyValue": value };
        failure
    }

    pub(super) fn add(&mut self, record: RecordId, document: &Document) {
        let (entries, is_multikey) = self.entries_of(record, document).expect("a document that was checked");
        self.is_multikey |= is_multikey;
        self.entries.extend(entries);
    }

    pub(super) fn remove(&mut self, record: RecordId, document: &Document) {
        let (entries, _) = self.entries_of(record, document).expect("a document that was checked");
        entries.iter().for_each(|entry| {
            self.entries.remove(entry);
        });
    }

    /// Returns the ranges that hold all matches of a filter, in order; `None` if the filter does not bound the first value.
    pub(super) fn ranges(&self, filter: &Filter) -> Option<Vec<Range>> {
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
        let bounds = |greater: bool| {
            let bound = |condition: &&'_ Condition| match condition {
                Condition::Compared { is, operand } if is_key(operand) => match (is, greater) {
                    (Comparison::Greater, true) | (Comparison::Less, false) => Some((operand.clone(), false)),
                    (Comparison::GreaterOrEqual, true) | (Comparison::LessOrEqual, false) => Some((operand.clone(), true)),
                    _ => None,
                },
                _ => None,
            };
            conditions.iter().find_map(bound)
        };
        let (lower, mut upper) = (bounds(true), bounds(false));
        if self.is_multikey && lower.is_some() {
            // Different elements of an array may meet the two bounds.
            upper = None;
        }
        if lower.is_none() && upper.is_none() {
            return None;
        }
        let bound = |bound: &'_ Option<(Bson, bool)>| bound.as_ref().map(|(value, is_in)| (value.clone(), *is_in));
        let (lower, upper) = (bound(&lower), bound(&upper));
        let lower = lower.as_ref().map(|(value, is_in)| (value, *is_in));
        let upper = upper.as_ref().map(|(value, is_in)| (value, *is_in));
        Some(vec![self.range(lower, upper, is_descending)])
    }

    /// Returns the range between two values of the first path, each with whether it is in the range.
    fn range(&self, lower: Option<(&Bson, bool)>, upper: Option<(&Bson, bool)>, is_descending: bool) -> Range {
        let part = |value: &Bson| Part::Value { value: value.clone(), is_descending };
        let before = |value: &Bson| Entry { key: vec![part(value)], record: 0 };
        let after = |value: &Bson| Entry { key: vec![part(value), Part::Last], record: 0 };
        let (first, last) = if is_descending { (upper, lower) } else { (lower, upper) };
        Range {
            from: first.map(|(value, is_in)| if is_in { before(value) } else { after(value) }),
            to: last.map(|(value, is_in)| if is_in { after(value) } else { before(value) }),
        }
    }

    /// Returns the bound that `min` or `max` of a `find` sets: before the key.
    pub(super) fn bound(&self, key: &Document) -> Result<Entry, Failure> {
        if !key.keys().eq(self.key().keys()) {
            return Err(Failure::new(51_174, "min or max does not have the keys of the hinted index"));
        }
        let parts = key.values().zip(&self.paths);
        let key = parts.map(|(value, (_, is_descending))| Part::Value { value: value.clone(), is_descending: *is_descending });
        Ok(Entry { key: key.collect(), record: 0 })
    }
}

/// Tells whether a value is the key of the documents that have it.
fn is_key(value: &Bson) -> bool {
    rank(value) > NULL && !matches!(value, Bson::Array(_) | Bson::MaxKey) && !is_nan(value)
}

impl Ord for Part {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Value { value: a, is_descending }, Self::Value { value: b, .. }) => {
                if *is_descending {
                    compare(b, a)
                } else {
                    compare(a, b)
                }
            }
            (Self::Last, Self::Last) => Ordering::Equal,
            (Self::Last, _) => Ordering::Greater,
            (_, Self::Last) => Ordering::Less,
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
