//! Documents that lie close together on an index: a statement that walks the index finds them in half the time that a search by
//! `_id` takes.

use bson::oid::ObjectId;
use bson::raw::RawBsonRef;
use bson::{Bson, DateTime, Document, RawDocument, doc};

use crate::base::values;
use crate::core::expiry::stretch::Stretch;

/// The index along which documents were read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexRange {
    pub field: String,
    /// The index, by its name or its key.
    pub hint: Bson,
    /// The stretch of the rule's dates that was read, if the server walks the index along every condition on the field. A part of
    /// it then takes the place of the rule's predicate.
    pub stretch: Option<Stretch>,
}

/// A condition that leads to some documents along an index.
#[derive(Debug, PartialEq)]
pub(super) enum IndexPlace {
    /// Bounds for the field, next to the predicate of the rule.
    Bounds(Document),
    /// A part of the stretch that was read, which is the whole predicate of the rule as well.
    Part(Stretch),
}

/// The key of a document on the index. Other types have no key here, because they compare in other ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexKey {
    Date(DateTime),
    Id(ObjectId),
}

impl From<IndexKey> for Bson {
    fn from(key: IndexKey) -> Self {
        match key {
            IndexKey::Date(date) => date.into(),
            IndexKey::Id(id) => id.into(),
        }
    }
}

impl IndexRange {
    /// Returns the key of a document; `None` if it is of another type, or in an array.
    pub(crate) fn key(&self, document: &RawDocument) -> Option<IndexKey> {
        match values::at_raw(document, &self.field)? {
            RawBsonRef::DateTime(date) => Some(IndexKey::Date(date)),
            RawBsonRef::ObjectId(id) => Some(IndexKey::Id(id)),
            _ => None,
        }
    }

    /// Returns the place of the `first` documents of a list, by the keys of the whole list. `None` if it would include more other
    /// documents than these, or a document has no key.
    pub(super) fn place(&self, keys: &[Option<IndexKey>], first: usize) -> Option<IndexPlace> {
        let (of_these, others) = keys.split_at_checked(first)?;
        let of_these: Vec<IndexKey> = of_these.iter().copied().collect::<Option<_>>()?;
        let (least, greatest) = (*of_these.iter().min()?, *of_these.iter().max()?);
        let between = others.iter().flatten().filter(|key| (least..=greatest).contains(key)).count();
        if between > first {
            return None;
        }
        match (&self.stretch, least, greatest) {
            (Some(stretch), IndexKey::Date(from), IndexKey::Date(to)) => Some(IndexPlace::Part(stretch.part(from, to))),
            (None, IndexKey::Date(_), IndexKey::Date(_)) | (None, IndexKey::Id(_), IndexKey::Id(_)) => {
                Some(IndexPlace::Bounds(doc! { &self.field: { "$gte": least, "$lte": greatest } }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_all_and_few_others() {
        let range = IndexRange { field: "at".into(), hint: "at_1".into(), stretch: None };
        let dates = |millis: &[i64]| millis.iter().map(|at| Some(IndexKey::Date(DateTime::from_millis(*at)))).collect::<Vec<_>>();
        let bounds_of = |keys: &[Option<IndexKey>], first| {
            range.place(keys, first).map(|place| match place {
                IndexPlace::Bounds(bounds) => bounds,
                IndexPlace::Part(part) => panic!("{part:?}"),
            })
        };
        let bounds = |first: i64, last: i64| {
            Some(doc! { "at": { "$gte": DateTime::from_millis(first), "$lte": DateTime::from_millis(last) } })
        };
        assert_eq!(bounds_of(&dates(&[1, 2, 3, 4]), 2), bounds(1, 2));
        // In no order, negative, with others of the same date.
        assert_eq!(bounds_of(&dates(&[7, -3, 7, 7]), 2), bounds(-3, 7));
        assert_eq!(bounds_of(&dates(&[7, 7, 7, 7, 7]), 2), None);
        assert_eq!(bounds_of(&dates(&[5]), 1), bounds(5, 5));
        assert_eq!(bounds_of(&[None, dates(&[5])[0]], 2), None);
        assert_eq!(bounds_of(&[Some(IndexKey::Id(ObjectId::new())), dates(&[5])[0]], 2), None);
    }

    #[test]
    fn keys_are_found_through_documents_only() {
        let key = |document: Document, field: &str| {
            let document = bson::RawDocumentBuf::try_from(&document).unwrap();
            IndexRange { field: field.into(), hint: "i".into(), stretch: None }.key(&document)
        };
        let at = DateTime::from_millis(5);
        assert_eq!(key(doc! { "a": { "b": at } }, "a.b"), Some(IndexKey::Date(at)));
        assert_eq!(key(doc! { "a.b": at }, "a.b"), None);
        assert_eq!(key(doc! { "a": [{ "b": at }] }, "a.b"), None);
        assert_eq!(key(doc! { "a": [at] }, "a"), None);
        assert_eq!(key(doc! { "a": 5 }, "a"), None);
        let id = ObjectId::new();
        assert_eq!(key(doc! { "_id": id }, "_id"), Some(IndexKey::Id(id)));
    }
}
