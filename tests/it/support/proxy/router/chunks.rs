//! The chunks of a sharded collection: which shard owns a document, and which shards may own what a query asks for.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use mongodb::bson::{Bson, Document, doc};
use server_model::compare;

/// Maximum number of combinations of values of a query that are looked up one by one.
const MAX_COMBINATIONS: usize = 10_000;

/// A sharded collection.
#[derive(Debug, Clone)]
pub(crate) struct Sharded {
    /// The shard key, as `config.collections` has it.
    pub key: Document,
    /// The default collation of the collection, if it has one: by it no text leads to a shard.
    pub collation: Option<Document>,
    /// The chunks in order: the upper bound, which does not belong to it, and the shard. The last one has no bound.
    pub chunks: Vec<(Option<Vec<Bson>>, usize)>,
}

impl Sharded {
    /// Splits a collection at one key: below it the documents are on the first shard, from it on the second.
    pub(crate) fn halves(key: Document, split: impl IntoIterator<Item = Bson>) -> Self {
        Self { key, collation: None, chunks: vec![(Some(split.into_iter().collect()), 0), (None, 1)] }
    }

    /// Returns the filter for the documents of a shard. It takes a shard key of one path that holds integers.
    pub(super) fn owned(&self, shard: usize) -> Document {
        let path = self.key.keys().next().expect("a path");
        let bound = |chunk: usize, operator: &str| {
            let values = self.chunks.get(chunk).and_then(|(bound, _)| bound.as_ref());
            values.map(|values| (operator.to_owned(), values[0].clone()))
        };
        let range = |chunk: usize| {
            let lower = chunk.checked_sub(1).and_then(|before| bound(before, "$gte"));
            doc! { path: lower.into_iter().chain(bound(chunk, "$lt")).collect::<Document>() }
        };
        let own = (0..self.chunks.len()).filter(|chunk| self.chunks[*chunk].1 == shard);
        doc! { "$or": own.map(range).collect::<Vec<_>>() }
    }

    pub(super) fn shards(&self) -> Vec<usize> {
        let shards: BTreeSet<usize> = self.chunks.iter().map(|(_, shard)| *shard).collect();
        shards.into_iter().collect()
    }

    /// Returns the shard key of a document, missing values as null; `None` if an array is in it.
    ///
    /// Source: `extractShardKeyFromDoc` in s/shard_key_pattern.cpp.
    pub(super) fn key_of(&self, document: &Document) -> Option<Vec<Bson>> {
        self.key.keys().map(|path| value_at(document, path)).collect()
    }

    /// Returns the shard key that a query demands by equality; `None` if it does not demand all of it.
    ///
    /// Source: `extractShardKeyFromQuery` in s/shard_key_pattern.cpp.
    pub(super) fn key_of_query(&self, filter: &Document) -> Option<Vec<Bson>> {
        self.key
            .keys()
            .map(|path| demanded(filter, path).and_then(|values| <[Bson; 1]>::try_from(values).ok()).map(|[one]| one))
            .collect()
    }

    /// Returns the shard that owns a key.
    ///
    /// Source: `findIntersectingChunk` in s/chunk_manager.cpp.
    pub(crate) fn shard_of(&self, key: &[Bson]) -> usize {
        self.chunks[self.chunk_of(key)].1
    }

    /// Returns the place of the chunk that a key is in.
    pub(super) fn chunk_of(&self, key: &[Bson]) -> usize {
        let placed: Vec<Bson> =
            self.key.values().zip(key).map(|(kind, value)| if is_hashed(kind) { hash(value) } else { value.clone() }).collect();
        let below = |bound: &Vec<Bson>| {
            placed.iter().zip(bound).map(|(value, bound)| compare(value, bound)).find(|order| order.is_ne())
                == Some(Ordering::Less)
        };
        let chunk = self.chunks.iter().position(|(bound, _)| bound.as_ref().is_none_or(below));
        chunk.expect("the last chunk has no bound")
    }

    /// Returns the shards that may own what a query asks for: the shards of the values that it lists for every path of the key,
    /// otherwise all. A mongos also narrows ranges down, which finds the same documents.
    ///
    /// Source: `getShardIdsForQuery` in s/chunk_manager.cpp.
    pub(super) fn shards_of(&self, filter: &Document) -> Vec<usize> {
        let mut keys: Vec<Vec<Bson>> = vec![Vec::new()];
        for path in self.key.keys() {
            let Some(values) = demanded(filter, path) else { return self.shards() };
            if keys.len() * values.len() > MAX_COMBINATIONS {
                return self.shards();
            }
            let with = |key: &Vec<Bson>, value: &Bson| [key.as_slice(), std::slice::from_ref(value)].concat();
            keys = keys.iter().flat_map(|key| values.iter().map(move |value| with(key, value))).collect();
        }
        let shards: BTreeSet<usize> = keys.iter().map(|key| self.shard_of(key)).collect();
        shards.into_iter().collect()
    }
}

/// Returns the tenant of a new document: one of a few by its `_id`, or none.
pub(super) fn tenant_of(document: &Document) -> Option<Bson> {
    let Bson::Int64(hash) = hash(document.get("_id")?) else { return None };
    Some(hash.rem_euclid(8)).filter(|tenant| *tenant < 7).map(|tenant| format!("t{tenant}").into())
}

fn is_hashed(kind: &Bson) -> bool {
    kind.as_str() == Some("hashed")
}

/// Returns the value at a path, null if there is none; `None` if an array is at or on the way to it.
fn value_at(document: &Document, path: &str) -> Option<Bson> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match (document.get(name), rest) {
        (Some(Bson::Array(_)), _) => None,
        (Some(Bson::Document(inner)), Some(rest)) => value_at(inner, rest),
        (Some(value), None) => Some(value.clone()),
        _ => Some(Bson::Null),
    }
}

impl Sharded {
    /// Whether a command or a statement compares by a collation that is not the simple one.
    ///
    /// Source: `findIntersectingChunk` in s/chunk_manager.cpp. That one lets other values than texts lead to a shard
    /// nevertheless.
    pub(super) fn is_collated(&self, asked: &Document) -> bool {
        let collation = asked.get_document("collation").ok().or(self.collation.as_ref());
        collation.is_some_and(|collation| collation.get_str("locale").is_ok_and(|locale| locale != "simple"))
    }
}

/// Returns the values of which a query demands one at this path; `None` if it demands none by equality.
pub(super) fn demanded(filter: &Document, path: &str) -> Option<Vec<Bson>> {
    let at_path = match filter.get(path) {
        Some(Bson::Document(condition)) if condition.keys().next().is_some_and(|name| name.starts_with('$')) => {
            match (condition.get("$eq"), condition.get_array("$in")) {
                (Some(value), _) => Some(vec![value.clone()]),
                (None, Ok(values)) => Some(values.clone()),
                _ => None,
            }
        }
        Some(Bson::RegularExpression(_)) | None => None,
        Some(value) => Some(vec![value.clone()]),
    };
    let conditions = filter.get_array("$and").into_iter().flatten().filter_map(Bson::as_document);
    at_path.or_else(|| conditions.filter_map(|condition| demanded(condition, path)).next())
}

/// Returns the value of a number; a test needs none that an f64 cannot hold.
fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        Bson::Decimal128(n) => n.to_string().parse().ok(),
        _ => None,
    }
}

/// Returns a hash of a value. Equal numbers of any types have one, and fractions are cut off.
///
/// Source: db/hasher.cpp. That one is made by MD5; which shard a hash falls to does not matter here.
fn hash(value: &Bson) -> Bson {
    let text = match number(value) {
        Some(n) => format!("{}", n.trunc() as i64),
        None => format!("{value:?}"),
    };
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    // The high bits of neighbours hardly differ.
    Bson::Int64((hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash).cast_signed())
}
