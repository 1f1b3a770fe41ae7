//! The documents that one delete command is restricted to, in addition to the whole predicate of its rule.

use std::sync::Arc;

use bson::{Bson, DateTime, Document, RawDocumentBuf};

use super::document_match::{DocumentState, IndexRange};
use crate::base::values::raw::{self, RawList, RawValue};
use crate::core::expiry::stretch::Stretch;
use crate::core::plan::{ParentKey, Selection};
use crate::shell::server::wire::transport::Extent;

/// Maximum size in bytes of all documents of one command, with the types that are compared with them. The server takes 16 MiB.
const COMMAND_BYTES: usize = 12 * 1024 * 1024;

/// The documents that one delete command may delete, as far as they match the predicate of its rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Restriction {
    /// The documents with these `_id`s. Each list has a statement of its own.
    Ids {
        lists: Vec<Ids>,
        /// The parents that these documents name; `None` if they are no children.
        parents: Option<Arc<Parents>>,
    },
    /// One document of those whose `_id` equals this one under the rule's collation.
    One {
        /// Further condition that leads to a shard; empty if there is none.
        condition: RawDocumentBuf,
        id: RawValue,
    },
    /// A range of an index.
    Range {
        bounds: Document,
        /// The index, by its name or its key.
        hint: Bson,
    },
    /// A stretch of the rule's dates, which is itself the whole predicate.
    Stretch(Stretch),
    /// Documents in the states in which they were archived, and in no other.
    States {
        documents: Vec<DocumentState>,
        /// The index on which they lie close together; `None` if they are to be found by `_id`.
        range: Option<IndexRange>,
    },
}

/// `_id`s, and what else their documents have to match.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ids {
    /// Further condition, such as one that leads to a shard; empty if there is none.
    pub condition: RawDocumentBuf,
    pub ids: RawList,
}

impl Ids {
    fn halves(&self) -> Option<(Self, Self)> {
        let part = |ids| Self { condition: self.condition.clone(), ids };
        self.ids.halves().map(|(first, second)| (part(first), part(second)))
    }
}

/// The parents that a page of children names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parents {
    /// Path in the children that holds the key of the parent.
    pub field: String,
    /// The key of the parents that it holds.
    pub key: ParentKey,
    /// The keys that the children of the page hold.
    pub keys: Vec<RawValue>,
}

impl Parents {
    /// Returns the condition for children that name one of them.
    ///
    /// Errors: the condition is too long.
    pub(crate) fn condition(&self) -> Result<RawDocumentBuf, bson::error::Error> {
        let one_of_them = raw::document([("$in", &RawValue::list(&self.keys)?)])?;
        raw::document([(self.field.as_str(), &one_of_them.into())])
    }
}

impl Restriction {
    /// Creates a restriction to the documents with these `_id`s, as far as they match a condition as well.
    pub(crate) fn of_ids(condition: RawDocumentBuf, ids: RawList) -> Self {
        Self::Ids { lists: vec![Ids { condition, ids }], parents: None }
    }

    /// Returns the `_id`s of a restriction that has one list of them, and no other condition.
    pub(crate) fn only_ids(&self) -> Option<&RawList> {
        match self {
            Restriction::Ids { lists, parents: None } => match lists.as_slice() {
                [Ids { condition, ids }] if condition.is_empty() => Some(ids),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the parents of the children that it names; `None` if it names no children.
    pub(crate) fn parents(&self) -> Option<Arc<Parents>> {
        match self {
            Restriction::Ids { parents, .. } => parents.clone(),
            _ => None,
        }
    }

    /// Returns the restrictions that together name all the documents; the documents of each fit into one command, to which every
    /// document adds the bytes that `size` returns.
    pub(crate) fn of_states(
        documents: Vec<DocumentState>,
        range: Option<&IndexRange>,
        size_of: impl Fn(&DocumentState) -> usize,
    ) -> Vec<Self> {
        let mut commands: Vec<Vec<DocumentState>> = Vec::new();
        let mut size = 0;
        for state in documents {
            let bytes = size_of(&state);
            size += bytes;
            match commands.last_mut() {
                Some(command) if size <= COMMAND_BYTES => command.push(state),
                _ => {
                    size = bytes;
                    commands.push(vec![state]);
                }
            }
        }
        commands.into_iter().map(|documents| Self::States { documents, range: range.cloned() }).collect()
    }

    /// Returns the maximum number of documents that it names; `usize::MAX` for a range, whose number is unknown.
    pub(crate) fn max_documents(&self) -> usize {
        match self {
            Restriction::Ids { lists, .. } => lists.iter().map(|list| list.ids.len()).sum(),
            Restriction::One { .. } => 1,
            Restriction::States { documents, .. } => documents.len(),
            Restriction::Range { .. } | Restriction::Stretch(_) => usize::MAX,
        }
    }

    /// Returns the date that no document which it names exceeds, by a condition of its own; `None` if it has none.
    pub(crate) fn latest(&self, selection: &Selection) -> Option<DateTime> {
        match self {
            Restriction::Range { bounds, .. } => {
                let dates = bounds.get_document(selection.date_field()?).ok()?;
                ["$lte", "$lt"].iter().find_map(|operator| dates.get_datetime(*operator).ok().copied())
            }
            Restriction::Stretch(stretch) => Some(stretch.latest()),
            Restriction::Ids { .. } | Restriction::One { .. } | Restriction::States { .. } => None,
        }
    }

    /// Returns the extent of a delete: the maximum number of documents, which is unknown for a range.
    pub(crate) fn extent(&self) -> Extent {
        match self {
            Restriction::Range { .. } | Restriction::Stretch(_) => Extent::Unknown,
            _ => u64::try_from(self.max_documents()).map_or(Extent::Unknown, Extent::Documents),
        }
    }

    /// Returns two restrictions that together name the same documents; `None` if there is nothing to halve.
    pub(crate) fn halves(&self) -> Option<(Self, Self)> {
        match self {
            Restriction::Ids { lists, parents } => {
                let part = |lists| Self::Ids { lists, parents: parents.clone() };
                match lists.as_slice() {
                    [one] => one.halves().map(|(first, second)| (part(vec![first]), part(vec![second]))),
                    lists => {
                        let (first, second) = lists.split_at(lists.len() / 2);
                        Some((part(first.to_vec()), part(second.to_vec())))
                    }
                }
            }
            Restriction::States { documents, range } => {
                let (first, second) = documents.split_at(documents.len() / 2);
                let part = |documents: &[DocumentState]| Self::States { documents: documents.to_vec(), range: range.clone() };
                (!first.is_empty()).then(|| (part(first), part(second)))
            }
            Restriction::Stretch(stretch) => {
                stretch.halves().map(|(first, second)| (Self::Stretch(first), Self::Stretch(second)))
            }
            Restriction::One { .. } | Restriction::Range { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn ids(ids: std::ops::Range<i32>) -> Vec<RawValue> {
        ids.map(|id| RawValue::of(id).unwrap()).collect()
    }

    fn states(ids: std::ops::Range<i32>) -> Vec<DocumentState> {
        ids.map(|id| DocumentState::new(RawDocumentBuf::try_from(&doc! { "_id": id }).unwrap()).unwrap()).collect()
    }

    #[test]
    fn a_command_has_as_many_archived_documents_as_fit() {
        let lengths = |documents, bytes| -> Vec<usize> {
            Restriction::of_states(states(0..documents), None, |_| bytes).iter().map(Restriction::max_documents).collect()
        };
        let four_mib = 4 << 20;
        assert_eq!(lengths(7, four_mib), [3, 3, 1]);
        assert_eq!(lengths(7, four_mib + 1), [2, 2, 2, 1]);
        // One that is too large goes by itself, and its command is refused.
        assert_eq!(lengths(2, 4 * four_mib), [1, 1]);
        assert_eq!(lengths(0, 1), [0; 0]);
    }

    #[test]
    fn the_halves_of_a_restriction_name_its_documents_once() {
        let key = |n: i32| RawDocumentBuf::try_from(&doc! { "k": n }).unwrap();
        let parents = || Arc::new(Parents { field: "p".into(), key: ParentKey::id(), keys: ids(9..10) });
        let list = |condition, numbers| Ids { condition, ids: ids(numbers).iter().collect() };
        let of_ids = |numbers| Restriction::of_ids(RawDocumentBuf::new(), ids(numbers).iter().collect());
        let of_keys = |lists| Restriction::Ids { lists, parents: None };
        let children = |numbers| Restriction::Ids { lists: vec![list(key(7), numbers)], parents: Some(parents()) };
        let of_states = |documents| Restriction::States { documents, range: None };
        for (whole, expected) in [
            (of_ids(0..5), Some((of_ids(0..2), of_ids(2..5)))),
            (children(0..4), Some((children(0..2), children(2..4)))),
            (of_keys(vec![list(key(1), 0..5)]), Some((of_keys(vec![list(key(1), 0..2)]), of_keys(vec![list(key(1), 2..5)])))),
            (
                of_keys((1..5).map(|n| list(key(n), n..n + 1)).collect()),
                Some((
                    of_keys(vec![list(key(1), 1..2), list(key(2), 2..3)]),
                    of_keys(vec![list(key(3), 3..4), list(key(4), 4..5)]),
                )),
            ),
            (of_states(states(0..5)), Some((of_states(states(0..2)), of_states(states(2..5))))),
            (of_ids(0..1), None),
            (children(0..1), None),
            (of_keys(vec![list(key(1), 0..1)]), None),
            (of_states(states(0..1)), None),
            (Restriction::one(RawValue::of(1).unwrap()), None),
        ] {
            assert_eq!(whole.halves(), expected, "{whole:?}");
        }
    }

    #[test]
    fn children_are_named_with_their_parents() {
        let parents = Arc::new(Parents { field: "p".into(), key: ParentKey::id(), keys: ids(7..9) });
        assert_eq!(Document::try_from(&*parents.condition().unwrap()).unwrap(), doc! { "p": { "$in": [7, 8] } });
        let list = Ids { condition: RawDocumentBuf::new(), ids: ids(0..3).iter().collect() };
        let children = Restriction::Ids { lists: vec![list], parents: Some(parents.clone()) };
        assert_eq!((children.parents(), children.max_documents()), (Some(parents), 3));
        assert_eq!(children.extent(), Extent::Documents(3));
        let range = Restriction::Range { bounds: Document::new(), hint: Bson::Null };
        assert_eq!((range.parents(), range.max_documents(), range.extent()), (None, usize::MAX, Extent::Unknown));
    }
}
