//! A condition that holds for documents in exactly the states that were read, and in no other.
//!
//! The server compares whole documents, but a number equals any other of the same value, of whatever type, and a symbol a string. So the
//! type of every value is compared as well, and where values of one type can be written differently (decimals, zero), their text. What
//! is not told apart then: the bits of a NaN, and types of equal numbers inside the scope of JavaScript code where the length stays the
//! same.

mod stretch;
mod types;

use bson::raw::{RawBson, RawBsonRef, cstr};
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc};

use super::delete::Restriction;
use super::shard_key;
use crate::plan::Selection;
pub use stretch::Along;
use stretch::Key;
use types::Asked;

/// Documents that one statement names. Each is looked for among the `_id`s of all of them, and each statement costs the planner as much as a
/// few documents.
const DOCUMENTS_PER_STATEMENT: usize = 100;

/// The deepest values that are compared: every level makes the condition deeper as well, and the server takes 200 of BSON.
pub const DEEPEST: usize = 30;

/// Bytes that all documents of one command may come to, with what is compared beside them. The server takes 16 MiB.
const COMMAND_BYTES: usize = 12 * 1024 * 1024;

/// A single document may come to more: nothing else is in its command then.
const LARGEST: usize = 15 * 1024 * 1024;

/// A document in the state in which it was archived, with what tells it from others of equal value.
#[derive(Debug, Clone, PartialEq)]
pub struct Exact {
    pub document: RawDocumentBuf,
    /// What [`types::types_of`] gives for it.
    types: RawArrayBuf,
    depth: usize,
}

impl Exact {
    /// `None` where no delete can compare it: it is too deep, too large, has a name twice, or is no BSON that can be read.
    pub fn new(document: RawDocumentBuf) -> Option<Self> {
        let mut deepest = 0;
        let types = types::types_of(&document, &mut deepest)?;
        let exact = Self { document, types, depth: deepest };
        (exact.depth <= DEEPEST && exact.size() <= LARGEST).then_some(exact)
    }

    fn id(&self) -> Option<RawBsonRef<'_>> {
        self.document.get("_id").ok().flatten()
    }

    /// Whether documents of equal value and of the same types are the same. The scope of JavaScript code has types of its own, of which the
    /// length tells something.
    fn is_told_by_types(&self) -> bool {
        let scope = b"javascriptWithScope";
        !self.types.as_bytes().windows(scope.len()).any(|bytes| bytes == scope)
    }

    /// Bytes that it adds to a command.
    fn size(&self) -> usize {
        // An `_id` that is a document can be large; keys and the like are not.
        let id = match self.id() {
            Some(RawBsonRef::Document(id)) => id.as_bytes().len(),
            Some(RawBsonRef::String(id)) => id.len(),
            Some(RawBsonRef::Binary(id)) => id.bytes.len(),
            _ => 0,
        };
        self.document.as_bytes().len() + self.types.as_bytes().len() + 2 * id + 200
    }
}

/// What the statements are aimed at that together name these documents in these states, but for the predicate of their rule; each with its
/// hint.
///
/// Not one statement: what it costs to find a document among the others in it grows with their number.
pub fn aims(
    documents: &[Exact],
    along: Option<&Along>,
    selection: &Selection,
) -> Result<Vec<(RawDocumentBuf, RawBson)>, bson::error::Error> {
    let mut aims = Vec::new();
    let keys: Vec<Option<Key>> =
        along.map(|along| documents.iter().map(|exact| along.key(&exact.document)).collect()).unwrap_or_default();
    let mut begin = 0;
    while begin < documents.len() {
        let chunk = chunk(&documents[begin..], selection);
        let stretch = along.and_then(|along| Some((along.bounds(&keys[begin..], chunk.len())?, along.hint.clone())));
        let (place, hint) = match stretch {
            Some((bounds, hint)) => (RawDocumentBuf::try_from(&bounds)?, RawBson::try_from(hint)?),
            None => (by_ids(chunk, selection)?, RawBson::Document(RawDocumentBuf::try_from(&doc! { "_id": 1 })?)),
        };
        aims.push((aim(place, chunk)?, hint));
        begin += chunk.len();
    }
    Ok(aims)
}

/// The first documents of a list that go into one statement.
fn chunk<'a>(documents: &'a [Exact], selection: &Selection) -> &'a [Exact] {
    let most = &documents[..documents.len().min(DOCUMENTS_PER_STATEMENT)];
    if selection.shard_key.is_empty() {
        return most;
    }
    // Two shards can have documents of one `_id`, by which a statement finds the state that a document is to be in.
    let is_again = |at: &usize| most[..*at].iter().any(|exact| exact.id() == most[*at].id());
    &most[..(1..most.len()).find(is_again).unwrap_or(most.len())]
}

/// A condition that leads to these documents and their shards.
fn by_ids(documents: &[Exact], selection: &Selection) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut keys = Vec::new();
    if !selection.shard_key.is_empty() {
        for exact in documents {
            keys.push(shard_key::of(&Document::try_from(&*exact.document)?, &selection.shard_key));
        }
    }
    let mut place = RawDocumentBuf::try_from(&shard_key::any_of(&keys, &selection.shard_key))?;
    let mut of_batch = RawDocumentBuf::new();
    of_batch.append(cstr!("$in"), ids(documents));
    place.append(cstr!("_id"), of_batch);
    Ok(place)
}

fn ids(documents: &[Exact]) -> RawArrayBuf {
    let mut ids = RawArrayBuf::new();
    documents.iter().filter_map(Exact::id).for_each(|id| ids.push(id));
    ids
}

/// A condition for these documents in these states, in a place where they are.
fn aim(mut place: RawDocumentBuf, documents: &[Exact]) -> Result<RawDocumentBuf, bson::error::Error> {
    let has_same_types = match documents {
        [first, rest @ ..] => first.is_told_by_types() && rest.iter().all(|exact| exact.types == first.types),
        [] => false,
    };
    let Some(asked) = has_same_types.then(|| Asked::of(documents)).flatten() else {
        place.append(cstr!("$expr"), of_other_types(documents)?);
        return Ok(place);
    };
    let mut states = RawArrayBuf::new();
    documents.iter().for_each(|exact| states.push(RawBsonRef::Document(&exact.document)));
    let mut conditions = RawArrayBuf::new();
    conditions.push(equal("$$ROOT".into(), of_id(documents, states)));
    if !asked.expressions.is_empty() {
        conditions.push(equal(RawBson::try_from(Bson::from(asked.expressions))?, literal(asked.expected)));
    }
    let mut all = RawDocumentBuf::new();
    all.append(cstr!("$and"), conditions);
    place.append(cstr!("$expr"), all);
    if !asked.fields.is_empty() {
        place.append(cstr!("$and"), RawBson::try_from(Bson::from(asked.fields))?);
    }
    Ok(place)
}

/// An expression for any documents; their lengths are compared as well.
fn of_other_types(documents: &[Exact]) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut states = RawArrayBuf::new();
    for exact in documents {
        let length = i32::try_from(exact.document.as_bytes().len()).unwrap_or(i32::MAX);
        let mut state = RawDocumentBuf::new();
        state.append(cstr!("d"), RawBsonRef::Document(&exact.document));
        state.append(cstr!("s"), length);
        state.append(cstr!("t"), RawBsonRef::Array(&exact.types));
        states.push(state);
    }
    let state = doc! { "d": "$$ROOT", "s": { "$bsonSize": "$$ROOT" }, "t": types::types(documents) };
    Ok(equal(RawDocumentBuf::try_from(&state)?.into(), of_id(documents, states)))
}

/// An expression for the state that belongs to the `_id` of the document. To one that is not among them belongs any, with an `_id` that is
/// not its own.
fn of_id(documents: &[Exact], states: RawArrayBuf) -> RawDocumentBuf {
    let mut find = RawArrayBuf::new();
    find.push(literal(ids(documents)));
    find.push("$_id");
    let mut place = RawDocumentBuf::new();
    place.append(cstr!("$indexOfArray"), find);
    let mut operands = RawArrayBuf::new();
    operands.push(literal(states));
    operands.push(place);
    let mut state = RawDocumentBuf::new();
    state.append(cstr!("$arrayElemAt"), operands);
    state
}

fn equal(left: RawBson, right: RawDocumentBuf) -> RawDocumentBuf {
    let mut operands = RawArrayBuf::new();
    operands.push(left);
    operands.push(right);
    let mut equal = RawDocumentBuf::new();
    equal.append(cstr!("$eq"), operands);
    equal
}

fn literal(list: RawArrayBuf) -> RawDocumentBuf {
    let mut literal = RawDocumentBuf::new();
    literal.append(cstr!("$literal"), list);
    literal
}

/// Restrictions that name all the documents, each of which fits into one command.
pub fn restrictions(documents: Vec<Exact>, along: Option<&Along>) -> Vec<Restriction> {
    let mut commands: Vec<Vec<Exact>> = Vec::new();
    let mut size = 0;
    for exact in documents {
        size += exact.size();
        match commands.last_mut() {
            Some(command) if size <= COMMAND_BYTES => command.push(exact),
            _ => {
                size = exact.size();
                commands.push(vec![exact]);
            }
        }
    }
    commands.into_iter().map(|documents| Restriction::Exact { documents, along: along.cloned() }).collect()
}
