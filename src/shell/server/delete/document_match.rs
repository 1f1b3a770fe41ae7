//! A condition that holds for documents in exactly the states that were read, and in no other.
//!
//! The server compares whole documents, but to it a number equals any number of the same value, whatever the types, and a symbol
//! equals a string. So the type of every value is compared as well and, for values that can be written differently within one
//! type (decimals, zero), their text. The comparison still misses two differences: the bits of a NaN, and types of equal numbers
//! inside the scope of JavaScript code if the length stays the same.

mod conditions;
mod range;
mod state;
mod types;

use std::collections::HashSet;
use std::slice;

use bson::raw::{BindRawBsonRef, RawBson, RawBsonRef, cstr};
use bson::{Bson, RawArrayBuf, RawDocumentBuf, doc};

use super::shard_key;
use crate::base::values::raw::RawRef;
use crate::core::plan::Selection;
use conditions::{TypeConditions, types_expression};
pub(crate) use range::IndexRange;
use range::{IndexKey, IndexPlace};
pub(crate) use state::DocumentState;
pub(crate) use types::MAX_DEPTH;

/// Maximum number of documents that one statement names. Each is looked up among the `_id`s of all of them, and each statement
/// costs the planner as much as a few documents.
const DOCUMENTS_PER_STATEMENT: usize = 100;

/// A filter for documents in certain states.
pub(crate) struct StateFilter {
    pub filter: RawDocumentBuf,
    /// A predicate that implies the predicate of the rule, and takes its place in the statement; `None` for that of the rule.
    pub predicate: Option<RawDocumentBuf>,
    pub hint: RawBson,
}

/// Returns the filters of the statements that together name these documents in these states.
///
/// There are several statements, because looking up a document costs more the more documents its statement names; with
/// `one_by_one` each document that is not found along an index has its own.
pub(crate) fn filters(
    documents: &[DocumentState],
    range: Option<&IndexRange>,
    selection: &Selection,
    one_by_one: bool,
) -> Result<Vec<StateFilter>, bson::error::Error> {
    let mut filters = Vec::new();
    let keys: Vec<Option<IndexKey>> =
        range.map(|range| documents.iter().map(|state| range.key(&state.document)).collect()).unwrap_or_default();
    let mut begin = 0;
    while begin < documents.len() {
        let chunk = chunk(&documents[begin..]);
        let along_index = range.and_then(|range| Some((range.place(&keys[begin..], chunk.len())?, range.hint.clone())));
        match along_index {
            Some((place, hint)) => {
                let (bounds, predicate) = match place {
                    IndexPlace::Bounds(bounds) => (RawDocumentBuf::try_from(&bounds)?, None),
                    IndexPlace::Part(stretch) => (RawDocumentBuf::new(), Some(RawDocumentBuf::try_from(&stretch.predicate())?)),
                };
                filters.push(StateFilter { filter: states(bounds, chunk)?, predicate, hint: RawBson::try_from(hint)? });
            }
            None => {
                let length = if one_by_one { 1 } else { chunk.len() };
                for documents in chunk.chunks(length) {
                    let filter = states(by_ids(documents, selection, one_by_one)?, documents)?;
                    let hint = RawBson::Document(RawDocumentBuf::try_from(&doc! { "_id": 1 })?);
                    filters.push(StateFilter { filter, predicate: None, hint });
                }
            }
        }
        begin += chunk.len();
    }
    Ok(filters)
}

/// Returns as many of the first documents of a list as fit into one statement.
fn chunk<'a>(documents: &'a [DocumentState]) -> &'a [DocumentState] {
    let most = &documents[..documents.len().min(DOCUMENTS_PER_STATEMENT)];
    // Two shards can have documents with the same `_id`, also where the shard key may not be read. A statement looks up the
    // expected state of a document by its `_id`.
    let mut seen = HashSet::new();
    let id = |state: &'a DocumentState| RawRef::at(&state.document, "_id").map(|id| (id.kind() as u8, id.as_bytes()));
    let first_again = most.iter().position(|state| !seen.insert(id(state)));
    &most[..first_again.unwrap_or(most.len())]
}

/// Returns a condition that selects these documents and their shards.
fn by_ids(documents: &[DocumentState], selection: &Selection, one_by_one: bool) -> Result<RawDocumentBuf, bson::error::Error> {
    let keys: Vec<_> = documents.iter().map(|state| shard_key::of(&state.document, &selection.shard_key)).collect();
    let mut place = shard_key::any_of(keys.iter(), &selection.shard_key)?;
    match documents {
        [one] if one_by_one => one.id().into_iter().for_each(|id| place.append(cstr!("_id"), id)),
        documents => {
            let mut of_batch = RawDocumentBuf::new();
            of_batch.append(cstr!("$in"), ids(documents));
            place.append(cstr!("_id"), of_batch);
        }
    }
    Ok(place)
}

fn ids(documents: &[DocumentState]) -> RawArrayBuf {
    let mut ids = RawArrayBuf::new();
    documents.iter().filter_map(DocumentState::id).for_each(|id| ids.push(id));
    ids
}

/// Returns a condition for these documents in these states; `place` is a condition that selects the documents.
fn states(mut place: RawDocumentBuf, documents: &[DocumentState]) -> Result<RawDocumentBuf, bson::error::Error> {
    if let [state] = documents {
        place.append(cstr!("$expr"), of_one(state)?);
        return Ok(place);
    }
    let has_same_types = match documents {
        [first, rest @ ..] => {
            !first.types.has_code_scope && rest.iter().all(|state| state.types.compared == first.types.compared)
        }
        [] => false,
    };
    let Some(types) = has_same_types.then(|| TypeConditions::of(documents)).flatten() else {
        place.append(cstr!("$expr"), of_other_types(documents)?);
        return Ok(place);
    };
    let mut expected = RawArrayBuf::new();
    documents.iter().for_each(|state| expected.push(RawBsonRef::Document(&state.document)));
    let mut conditions = RawArrayBuf::new();
    conditions.push(equal("$$ROOT".into(), of_id(documents, expected)));
    if !types.expressions.is_empty() {
        conditions.push(equal(RawBson::try_from(Bson::from(types.expressions))?, literal(types.expected)));
    }
    place.append(cstr!("$expr"), all_of(conditions));
    if !types.fields.is_empty() {
        place.append(cstr!("$and"), RawBson::try_from(Bson::from(types.fields))?);
    }
    Ok(place)
}

/// Returns an expression for one document of any types. The DocumentDB engine takes a fifth less time for it than for a list with
/// one document.
fn of_one(state: &DocumentState) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut conditions = RawArrayBuf::new();
    conditions.push(equal("$$ROOT".into(), literal(RawBsonRef::Document(&state.document))));
    let types = RawBson::try_from(types_expression(slice::from_ref(state)))?;
    conditions.push(equal(types, literal(RawBsonRef::Array(&state.types.compared))));
    if state.types.has_code_scope {
        let size = RawDocumentBuf::try_from(&doc! { "$bsonSize": "$$ROOT" })?;
        conditions.push(equal(size.into(), literal(length(state))));
    }
    Ok(all_of(conditions))
}

/// Returns the length of a document in bytes, which depends on the types in the scope of JavaScript code.
fn length(state: &DocumentState) -> i32 {
    i32::try_from(state.document.as_bytes().len()).unwrap_or(i32::MAX)
}

/// Returns an expression for documents of any types. It compares their lengths as well.
fn of_other_types(documents: &[DocumentState]) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut states = RawArrayBuf::new();
    for state in documents {
        let mut compared = RawDocumentBuf::new();
        compared.append(cstr!("d"), RawBsonRef::Document(&state.document));
        compared.append(cstr!("s"), length(state));
        compared.append(cstr!("t"), RawBsonRef::Array(&state.types.compared));
        states.push(compared);
    }
    let state = doc! { "d": "$$ROOT", "s": { "$bsonSize": "$$ROOT" }, "t": types_expression(documents) };
    Ok(equal(RawDocumentBuf::try_from(&state)?.into(), of_id(documents, states)))
}

/// Returns an expression that looks up the archived state by the `_id` of the document. For an `_id` that is not among them it
/// yields the state of some other document, which cannot be equal.
fn of_id(documents: &[DocumentState], states: RawArrayBuf) -> RawDocumentBuf {
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

fn all_of(conditions: RawArrayBuf) -> RawDocumentBuf {
    let mut all = RawDocumentBuf::new();
    all.append(cstr!("$and"), conditions);
    all
}

fn literal(value: impl BindRawBsonRef) -> RawDocumentBuf {
    let mut literal = RawDocumentBuf::new();
    literal.append(cstr!("$literal"), value);
    literal
}

#[cfg(test)]
mod tests {
    use bson::{Decimal128, Document};

    use super::*;
    use crate::testing::made_up::planned;
    use crate::testing::portable::assert_portable;

    #[test]
    fn no_condition_relies_on_what_the_engines_evaluate_in_different_ways() {
        let nested =
            |id: i32, n: Bson| doc! { "_id": id, "zero": 0, "d": "1.50".parse::<Decimal128>().unwrap(), "v": [{ "n": n }] };
        let same = [nested(1, 1.into()), nested(2, 2.into())];
        let others = [nested(1, 1.into()), nested(2, "x".into())];
        let unlike = [nested(1, 1.into()), doc! { "_id": 2, "list": [[0.0]] }];
        let rule = planned("", 2);
        let selection = &rule.decision.countable().unwrap().selection;
        for documents in [same, others, unlike] {
            let state = |document: &Document| DocumentState::new(RawDocumentBuf::try_from(document).unwrap()).unwrap();
            let states = documents.each_ref().map(state);
            for of_states in
                [false, true].into_iter().flat_map(|one_by_one| filters(&states, None, selection, one_by_one).unwrap())
            {
                assert_portable(&Bson::Document(Document::try_from(&*of_states.filter).unwrap()));
            }
        }
    }
}
