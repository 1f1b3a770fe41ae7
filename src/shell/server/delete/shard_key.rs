//! Conditions on the shard key that go with lists of `_id`s.

use std::collections::HashSet;

use bson::error::Error;
use bson::{RawDocument, RawDocumentBuf};

use crate::base::values::raw::{self, RawList, RawRef, RawValue};

/// Maximum number of shard keys that a statement names, where several statements can share them. A router looks up each
/// combination of the values, up to four million (mongo `s/shard_key_pattern.cpp`, `flattenBounds`).
const MAX_KEYS: usize = 10_000;

/// Path of the `_id`, which each statement names anyway.
const ID: &str = "_id";

/// The values of a document at the paths of a shard key, in the order of the paths.
pub(crate) type KeyValues = Vec<RawValue>;

/// Returns the values of a document at the paths of a shard key.
pub(crate) fn of(document: &RawDocument, paths: &[String]) -> KeyValues {
    // A condition for null also matches documents without the key.
    paths.iter().map(|path| RawValue::at(document, path).unwrap_or(RawValue::NULL)).collect()
}

/// Returns a condition for documents with this key, without the `_id`, which each caller names.
pub(crate) fn is(key: &KeyValues, paths: &[String]) -> Result<RawDocumentBuf, Error> {
    raw::document(paths.iter().map(String::as_str).zip(key).filter(|(path, _)| *path != ID))
}

/// Returns a condition for documents with any of these keys: at each path but the `_id`, every value that occurs there.
pub(crate) fn any_of<'k>(keys: impl Iterator<Item = &'k KeyValues> + Clone, paths: &[String]) -> Result<RawDocumentBuf, Error> {
    let others = || paths.iter().enumerate().filter(|(_, path)| *path != ID);
    let conditions = others().map(|(at, _)| {
        let values: Vec<RawValue> = values(keys.clone(), at).into_iter().cloned().collect();
        raw::document([("$in", &RawValue::list(&values)?)]).map(RawValue::from)
    });
    let conditions: Vec<RawValue> = conditions.collect::<Result<_, _>>()?;
    raw::document(others().map(|(_, path)| path.as_str()).zip(&conditions))
}

/// Returns lists of the `_id`s of documents that have these shard keys, each with the condition of its keys. The lists are as
/// few as name at most [`MAX_KEYS`] keys each, and at most `most`.
pub(crate) fn lists(
    ids: &RawList,
    keys: &[KeyValues],
    paths: &[String],
    most: usize,
) -> Result<Vec<(RawDocumentBuf, RawList)>, Error> {
    let mut parts: Vec<Vec<(RawRef, &KeyValues)>> = vec![ids.iter().zip(keys).collect()];
    let is_too_long = |part: &Vec<(RawRef, &KeyValues)>| part.len() > 1 && number_of_keys(part, paths) > MAX_KEYS;
    while parts.len() < most
        && let Some(at) = parts.iter().position(is_too_long)
    {
        let part = &mut parts[at];
        part.sort_by(|(_, a), (_, b)| order(a).cmp(order(b)));
        let second = part.split_off(part.len() / 2);
        parts.insert(at + 1, second);
    }
    let list = |part: Vec<(RawRef, &KeyValues)>| {
        let condition = any_of(part.iter().map(|(_, key)| *key), paths)?;
        Ok((condition, part.into_iter().map(|(id, _)| id).collect()))
    };
    parts.into_iter().map(list).collect()
}

/// Returns the number of combinations of the values at the paths.
fn number_of_keys(documents: &[(RawRef, &KeyValues)], paths: &[String]) -> usize {
    let number_at =
        |at: usize| if paths[at] == ID { documents.len() } else { values(documents.iter().map(|(_, key)| *key), at).len() };
    (0..paths.len()).map(number_at).fold(1, usize::saturating_mul)
}

/// Returns the different values at a path, by its place.
fn values<'k>(keys: impl Iterator<Item = &'k KeyValues>, at: usize) -> Vec<&'k RawValue> {
    let mut seen = HashSet::new();
    keys.filter_map(|key| key.get(at)).filter(|value| seen.insert((value.kind() as u8, value.as_bytes()))).collect()
}

/// Returns the bytes of each value, by which documents with the same values come together.
fn order(key: &KeyValues) -> impl Iterator<Item = &[u8]> {
    key.iter().map(RawValue::as_bytes)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, doc};

    use super::*;

    fn lists_of(documents: &[Document], paths: &[&str], most: usize) -> Vec<(Document, Vec<Bson>)> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let raw: Vec<RawDocumentBuf> = documents.iter().map(|document| document.try_into().unwrap()).collect();
        let keys: Vec<KeyValues> = raw.iter().map(|document| of(document, &paths)).collect();
        let ids: RawList = raw.iter().map(|document| RawRef::at(document, ID).unwrap()).collect();
        let lists = lists(&ids, &keys, &paths, most).unwrap();
        let decoded = |id: RawRef| RawValue::from(id).decoded().unwrap();
        let list = |(condition, ids): (RawDocumentBuf, RawList)| {
            (Document::try_from(&*condition).unwrap(), ids.iter().map(decoded).collect())
        };
        lists.into_iter().map(list).collect()
    }

    #[test]
    fn the_values_of_the_key_are_named_once_and_the_id_only_in_its_list() {
        let documents = [doc! { "_id": 1, "k": 5 }, doc! { "_id": 2, "k": 5 }, doc! { "_id": 3 }];
        let ids = || (1..4).map(Bson::Int32).collect::<Vec<_>>();
        for paths in [&["k", "_id"][..], &["k"], &["_id", "k"]] {
            assert_eq!(lists_of(&documents, paths, 9), [(doc! { "k": { "$in": [5, Bson::Null] } }, ids())], "{paths:?}");
        }
        assert_eq!(lists_of(&documents, &["_id"], 9), [(doc! {}, ids())]);
        assert_eq!(lists_of(&documents, &[], 9), [(doc! {}, ids())]);
    }

    #[test]
    fn a_list_names_few_keys_and_all_lists_name_each_document_once() {
        // 2,000 documents of 700 tenants: 1.4 million combinations in one statement.
        let documents: Vec<Document> = (0..2_000).map(|id| doc! { "_id": id, "tenant": id * 7 % 700, "at": id / 9 }).collect();
        for paths in [&["tenant", "_id"][..], &["tenant", "at"], &["at", "tenant", "_id"]] {
            let lists = lists_of(&documents, paths, usize::MAX);
            let mut named: Vec<i32> = lists.iter().flat_map(|(_, ids)| ids.iter().map(|id| id.as_i32().unwrap())).collect();
            named.sort_unstable();
            assert_eq!(named, (0..2_000).collect::<Vec<_>>(), "{paths:?}");
            for (condition, ids) in &lists {
                let listed = |path: &str| condition.get_document(path).unwrap().get_array("$in").unwrap();
                let number = |path: &&str| if *path == ID { ids.len() } else { listed(path).len() };
                assert!(paths.iter().map(number).product::<usize>() <= MAX_KEYS, "{condition}");
                let is_named = |id: &Bson, path: &&str| listed(path).contains(&documents[id.as_i32().unwrap() as usize][*path]);
                assert!(ids.iter().all(|id| paths.iter().filter(|path| **path != ID).all(|path| is_named(id, path))));
            }
            assert!(lists.len() > 1 && lists.len() <= 300, "{}", lists.len());
        }
        assert_eq!(lists_of(&documents, &["tenant", "_id"], 3).len(), 3);
    }
}
