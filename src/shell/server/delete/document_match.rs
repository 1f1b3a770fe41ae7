//! A condition that holds for documents in exactly the states that were read, and in no other.
//!
//! The server compares whole documents, but to it a number equals any number of the same value, whatever the types, and a symbol
//! equals a string. So the type of every value is compared as well and, for values that can be written differently within one
//! type (decimals, zero), their text. The comparison still misses two differences: the bits of a NaN, and types of equal numbers
//! inside the scope of JavaScript code if the length stays the same.

mod conditions;
mod filter;
mod range;
mod state;
mod types;

use std::collections::HashSet;

use bson::raw::{RawBson, cstr};
use bson::{RawDocumentBuf, doc};

use super::shard_key;
use crate::base::values::raw;
use crate::core::plan::Selection;
pub(crate) use filter::StateFilter;
use filter::write_ids;
pub(crate) use range::IndexRange;
use range::{IndexKey, IndexPlace};
pub(crate) use state::DocumentState;
pub(crate) use types::MAX_DEPTH;

/// Maximum number of documents that one statement names. Each is looked up among the `_id`s of all of them, and each statement
/// costs the planner as much as a few documents.
const DOCUMENTS_PER_STATEMENT: usize = 100;

/// The parts of a statement for documents in certain states.
pub(crate) struct StateStatement<'a> {
    pub filter: StateFilter<'a>,
    /// A predicate that implies the predicate of the rule, and takes its place in the statement; `None` for that of the rule.
    pub predicate: Option<RawDocumentBuf>,
    pub hint: RawBson,
}

/// Returns the parts of the statements that together name these documents in these states.
///
/// There are several statements, because looking up a document costs more the more documents its statement names; with
/// `one_by_one` each document that is not found along an index has its own.
pub(crate) fn statements<'a>(
    documents: &'a [DocumentState],
    range: Option<&IndexRange>,
    selection: &Selection,
    one_by_one: bool,
) -> Result<Vec<StateStatement<'a>>, bson::error::Error> {
    let mut statements = Vec::new();
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
                let filter = StateFilter::new(bounds, chunk)?;
                statements.push(StateStatement { filter, predicate, hint: RawBson::try_from(hint)? });
            }
            None => {
                let length = if one_by_one { 1 } else { chunk.len() };
                for documents in chunk.chunks(length) {
                    let filter = StateFilter::new(by_ids(documents, selection, one_by_one)?, documents)?;
                    let hint = RawBson::Document(RawDocumentBuf::try_from(&doc! { "_id": 1 })?);
                    statements.push(StateStatement { filter, predicate: None, hint });
                }
            }
        }
        begin += chunk.len();
    }
    Ok(statements)
}

/// Returns as many of the first documents of a list as fit into one statement.
fn chunk<'a>(documents: &'a [DocumentState]) -> &'a [DocumentState] {
    let most = &documents[..documents.len().min(DOCUMENTS_PER_STATEMENT)];
    // Two shards can have documents with the same `_id`, also where the shard key may not be read. A statement looks up the
    // expected state of a document by its `_id`.
    let mut seen = HashSet::new();
    let id = |state: &'a DocumentState| state.id().map(|id| (id.kind() as u8, id.as_bytes()));
    let first_again = most.iter().position(|state| !seen.insert(id(state)));
    &most[..first_again.unwrap_or(most.len())]
}

/// Returns a condition that selects these documents and their shards.
fn by_ids(documents: &[DocumentState], selection: &Selection, one_by_one: bool) -> Result<RawDocumentBuf, bson::error::Error> {
    let keys: Vec<_> = documents.iter().map(|state| shard_key::of(&state.document, &selection.shard_key)).collect();
    let keys = shard_key::any_of(keys.iter(), &selection.shard_key)?;
    raw::written(0, |place| {
        place.all_of(&keys);
        match documents {
            [one] if one_by_one => one.id().into_iter().for_each(|id| place.value(cstr!("_id"), id)),
            documents => {
                place.document(cstr!("_id"), |of_batch| of_batch.items(cstr!("$in"), |ids| write_ids(ids, documents)));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Decimal128, Document};

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
                [false, true].into_iter().flat_map(|one_by_one| statements(&states, None, selection, one_by_one).unwrap())
            {
                let filter = raw::written(0, |query| of_states.filter.write(query)).unwrap();
                assert_portable(&Bson::Document(Document::try_from(&*filter).unwrap()));
            }
        }
    }
}
