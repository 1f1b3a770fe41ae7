//! The identity of a document: the values that tell it from the others of its collection.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use bson::spec::ElementType;
use bson::{Document, doc};

use crate::base::values::raw::RawValue;
use crate::shell::server::delete::shard_key;

/// The `_id` of a document, and in a sharded collection its shard key with it. In a sharded collection an `_id` is unique on
/// each shard only (MongoDB manual, "Unique Indexes", "Sharded Clusters"; Azure Cosmos DB (RU): per shard key).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Identity {
    /// The paths of the shard key, without the `_id`; empty if the `_id` is unique.
    paths: Vec<String>,
    /// Whether conditions have to name the simple collation, by which the shard key leads to a shard.
    is_collated: bool,
}

impl Identity {
    /// Creates the identity of documents in a collection with this shard key, which is empty if the collection is not sharded,
    /// and with a default collation or not.
    pub(crate) fn new(shard_key: Vec<String>, is_collated: bool) -> Self {
        let is_collated = is_collated && !shard_key.is_empty();
        Self { paths: shard_key.into_iter().filter(|path| path != "_id").collect(), is_collated }
    }

    /// Returns the paths of a shard key that it leaves out.
    pub(crate) fn without<'k>(&self, shard_key: &'k [String]) -> impl Iterator<Item = &'k String> {
        shard_key.iter().filter(|path| *path != "_id" && !self.paths.contains(path))
    }

    /// Returns the bytes of `_id` and shard key of a document, with their types.
    pub(crate) fn of(&self, document: &RawDocument) -> Vec<u8> {
        let mut of = RawDocumentBuf::new();
        if let Ok(Some(id)) = document.get("_id") {
            of.append(cstr!(""), id);
        }
        [of.into_bytes(), Self::bytes_at(document, &self.paths)].concat()
    }

    /// Returns the bytes of the values of a document at the paths of a shard key, with their types.
    pub(crate) fn bytes_at(document: &RawDocument, paths: &[String]) -> Vec<u8> {
        let of_one = |value: RawValue| [&[value.kind() as u8], value.as_bytes()].concat();
        shard_key::of(document, paths).into_iter().flat_map(of_one).collect()
    }

    /// Tells whether a document has an array at or on the way to a path of the shard key: no shard takes it.
    pub(crate) fn has_array(&self, document: &RawDocument) -> bool {
        let is_array = |path: &str| RawValue::at(document, path).is_some_and(|value| value.kind() == ElementType::Array);
        self.paths.iter().any(|path| {
            let parents = path.match_indices('.').map(|(dot, _)| &path[..dot]);
            parents.chain([path.as_str()]).any(is_array)
        })
    }

    /// Returns a condition for the document of the collection that has the identity of this one. It leads a router to one shard.
    ///
    /// Errors: BSON cannot hold the condition.
    pub(crate) fn filter(&self, document: &RawDocument) -> Result<RawDocumentBuf, bson::error::Error> {
        let mut filter = shard_key::is(&shard_key::of(document, &self.paths), &self.paths)?;
        if let Ok(Some(id)) = document.get("_id") {
            filter.append(cstr!("_id"), id);
        }
        Ok(filter)
    }

    /// Returns the collation that goes with the condition; `None` for the collection's own.
    pub(crate) fn collation(&self) -> Option<Document> {
        self.is_collated.then(|| doc! { "locale": "simple" })
    }
}

#[cfg(test)]
mod tests {
    use bson::Bson;

    use super::*;

    fn raw(document: Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(&document).unwrap()
    }

    #[test]
    fn documents_are_told_apart_by_shard_key_and_id() {
        let identity = Identity::new(vec!["a.b".into(), "t".into()], false);
        let of = |document: Document| identity.of(&raw(document));
        let one = doc! { "_id": 1, "a": { "b": 2 }, "t": "x" };
        assert_eq!(of(one.clone()), of(doc! { "t": "x", "a": { "b": 2, "c": 5 }, "_id": 1, "v": 1 }));
        for other in [
            doc! { "_id": 2, "a": { "b": 2 }, "t": "x" },
            doc! { "_id": 1, "a": { "b": 3 }, "t": "x" },
            doc! { "_id": 1, "a": { "b": 2 }, "t": "y" },
            doc! { "_id": 1, "a": { "b": 2 } },
            doc! { "_id": 1, "a": { "b": 2_i64 }, "t": "x" },
        ] {
            assert_ne!(of(one.clone()), of(other.clone()), "{other}");
        }
        // A missing value counts as null.
        assert_eq!(of(doc! { "_id": 1, "a": 5 }), of(doc! { "_id": 1, "a": { "b": Bson::Null }, "t": Bson::Null }));
        // Neither value can be taken for a part of the other.
        assert_ne!(of(doc! { "_id": 1, "a": { "b": "x" }, "t": "" }), of(doc! { "_id": 1, "a": { "b": "" }, "t": "x" }));
        let by_id = Identity::new(vec!["_id".into()], true);
        assert_eq!(by_id.of(&raw(one.clone())), Identity::default().of(&raw(doc! { "_id": 1 })));
    }

    #[test]
    fn a_condition_names_every_value_once() {
        let filter = |paths: &[&str], document: Document| {
            let identity = Identity::new(paths.iter().map(|path| (*path).to_owned()).collect(), false);
            Document::try_from(&*identity.filter(&raw(document)).unwrap()).unwrap()
        };
        let one = doc! { "_id": 1, "a": { "b": 2 } };
        assert_eq!(filter(&["a.b", "t"], one.clone()), doc! { "a.b": 2, "t": Bson::Null, "_id": 1 });
        assert_eq!(filter(&["_id"], one.clone()), doc! { "_id": 1 });
        assert_eq!(filter(&["_id", "a.b"], one.clone()), doc! { "a.b": 2, "_id": 1 });
        assert_eq!(filter(&[], one), doc! { "_id": 1 });
    }

    #[test]
    fn an_array_in_the_shard_key_is_seen_wherever_it_is() {
        let identity = Identity::new(vec!["a.b.c".into()], false);
        for (document, has_array) in [
            (doc! { "a": { "b": { "c": [1] } } }, true),
            (doc! { "a": { "b": [{ "c": 1 }] } }, true),
            (doc! { "a": [] }, true),
            (doc! { "a": { "b": { "c": { "d": [1] } } }, "v": [1] }, false),
            (doc! { "v": [1] }, false),
        ] {
            assert_eq!(identity.has_array(&raw(document.clone())), has_array, "{document}");
        }
    }

    #[test]
    fn only_conditions_on_a_shard_key_name_a_collation() {
        assert_eq!(Identity::new(vec!["t".into()], true).collation(), Some(doc! { "locale": "simple" }));
        assert_eq!(Identity::new(vec!["t".into()], false).collation(), None);
        assert_eq!(Identity::new(Vec::new(), true).collation(), None);
    }
}
