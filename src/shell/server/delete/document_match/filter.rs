//! The filter of a statement for documents in certain states. It is written in one pass, because the documents are most of its
//! bytes.

use bson::RawDocumentBuf;
use bson::raw::{CStr, cstr};

use super::conditions::{TypeConditions, types_expression};
use super::state::DocumentState;
use crate::base::values::raw::{Fields, ListItems, RawRef, RawValue};

/// Name of the expression whose value is not evaluated.
const LITERAL: &CStr = cstr!("$literal");

/// Bytes of a filter around its documents, the condition that selects them, and the conditions on types; rounded up.
const AROUND_STATES: usize = 256;

/// Bytes around a document in a list of states: its place, its length as a number, and the names of both; rounded up.
const AROUND_STATE: usize = 40;

/// A condition for documents in certain states.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StateFilter<'a> {
    /// A condition that selects the documents. It may select others.
    place: RawDocumentBuf,
    documents: &'a [DocumentState],
    comparison: StateComparison,
}

/// The comparison of documents with the states.
#[derive(Debug, Clone, PartialEq)]
enum StateComparison {
    /// With the one state. The DocumentDB engine takes a fifth less time for it than for a list with one document.
    One { types: RawValue },
    /// With states that have the same fields of the same types.
    SameTypes(TypeConditions),
    /// With states of any types. The length of a document is compared as well.
    AnyTypes { types: RawValue },
}

impl<'a> StateFilter<'a> {
    /// Creates the filter for these documents; `place` is a condition that selects them.
    ///
    /// Errors: BSON cannot hold a condition.
    pub(super) fn new(place: RawDocumentBuf, documents: &'a [DocumentState]) -> Result<Self, bson::error::Error> {
        let types = || RawValue::of(types_expression(documents));
        let comparison = match documents {
            [_] => StateComparison::One { types: types()? },
            _ => match TypeConditions::of(documents)? {
                Some(types) => StateComparison::SameTypes(types),
                None => StateComparison::AnyTypes { types: types()? },
            },
        };
        Ok(Self { place, documents, comparison })
    }

    pub(crate) fn write(&self, query: &mut Fields) {
        query.all_of(&self.place);
        query.document(cstr!("$expr"), |expression| match &self.comparison {
            StateComparison::One { types } => self.documents.iter().for_each(|state| is_one(expression, state, types)),
            StateComparison::SameTypes(types) => expression.items(cstr!("$and"), |conditions| {
                equal(conditions, |both| {
                    both.text("$$ROOT");
                    both.document(|found| self.find(found, |states, state| states.value(&*state.document)));
                });
                if let Some((expressions, expected)) = &types.compared {
                    equal(conditions, |both| {
                        both.value(expressions);
                        literal(both, expected);
                    });
                }
            }),
            StateComparison::AnyTypes { types } => expression.items(cstr!("$eq"), |both| {
                both.document(|state| {
                    state.text(cstr!("d"), "$$ROOT");
                    state.document(cstr!("s"), |size| size.text(cstr!("$bsonSize"), "$$ROOT"));
                    state.value(cstr!("t"), types);
                });
                both.document(|found| {
                    self.find(found, |states, state| states.document(|expected| expected_state(expected, state)))
                });
            }),
        });
        if let StateComparison::SameTypes(TypeConditions { fields: Some(fields), .. }) = &self.comparison {
            query.value(cstr!("$and"), fields);
        }
    }

    /// Writes an expression that looks up the archived state by the `_id` of the document. For an `_id` that is not among them it
    /// yields the state of some other document, which cannot be equal.
    fn find(&self, found: &mut Fields, write_state: impl Fn(&mut ListItems, &DocumentState)) {
        found.items(cstr!("$arrayElemAt"), |operands| {
            operands.document(|literal| {
                literal.items(LITERAL, |states| self.documents.iter().for_each(|state| write_state(states, state)));
            });
            operands.document(|place| {
                place.items(cstr!("$indexOfArray"), |find| {
                    find.document(|literal| literal.items(LITERAL, |ids| write_ids(ids, self.documents)));
                    find.text("$_id");
                });
            });
        });
    }

    /// Returns the bytes of the filter, rounded up.
    pub(crate) fn bytes(&self) -> usize {
        let types = match &self.comparison {
            StateComparison::One { types } | StateComparison::AnyTypes { types } => types.as_bytes().len(),
            StateComparison::SameTypes(types) => types.bytes(),
        };
        let bytes_of = |state: &DocumentState| {
            // One document is not looked up in a list.
            let id = state.id().filter(|_| self.documents.len() > 1).map_or(0, |id| id.as_bytes().len());
            state.document.as_bytes().len() + state.types.compared.as_bytes().len() + id + AROUND_STATE
        };
        self.place.as_bytes().len() + types + self.documents.iter().map(bytes_of).sum::<usize>() + AROUND_STATES
    }
}

/// Writes the `_id`s of documents.
pub(super) fn write_ids(ids: &mut ListItems, documents: &[DocumentState]) {
    documents.iter().filter_map(DocumentState::id).for_each(|id| ids.value(id));
}

/// Writes an expression for one document of any types.
fn is_one(expression: &mut Fields, state: &DocumentState, types: &RawValue) {
    expression.items(cstr!("$and"), |conditions| {
        equal(conditions, |both| {
            both.text("$$ROOT");
            literal(both, &*state.document);
        });
        equal(conditions, |both| {
            both.value(types);
            literal(both, &state.types.compared);
        });
        if state.types.has_code_scope {
            equal(conditions, |both| {
                both.document(|size| size.text(cstr!("$bsonSize"), "$$ROOT"));
                both.document(|expected| expected.number(LITERAL, length(state)));
            });
        }
    });
}

/// Writes the state of a document of any types.
fn expected_state(expected: &mut Fields, state: &DocumentState) {
    expected.value(cstr!("d"), &*state.document);
    expected.number(cstr!("s"), length(state));
    expected.value(cstr!("t"), &state.types.compared);
}

/// Returns the length of a document in bytes, which depends on the types in the scope of JavaScript code.
fn length(state: &DocumentState) -> i32 {
    i32::try_from(state.document.as_bytes().len()).unwrap_or(i32::MAX)
}

fn equal(conditions: &mut ListItems, write: impl FnOnce(&mut ListItems)) {
    conditions.document(|equal| equal.items(cstr!("$eq"), write));
}

fn literal<'v>(operands: &mut ListItems, value: impl Into<RawRef<'v>>) {
    operands.document(|literal| literal.value(LITERAL, value));
}

#[cfg(test)]
mod tests {
    use bson::{Decimal128, Document, JavaScriptCodeWithScope, doc};

    use super::*;
    use crate::base::values::raw::written;

    #[test]
    fn a_filter_takes_no_more_bytes_than_were_reckoned() {
        let code = JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "x": 1 } };
        let of_kind = |kind: usize, id: String| match kind {
            0 => doc! { "_id": id },
            1 => doc! { "_id": id, "n": 0, "d": "1.50".parse::<Decimal128>().unwrap(), "v": [{ "n": 0.0 }], "s": "x" },
            2 => doc! { "_id": id, "code": code.clone() },
            _ => doc! { "_id": id, "list": [[0.0]], "x.y": 1 },
        };
        for kinds in [&[0][..], &[1], &[2], &[3], &[0, 1, 2, 3], &[1, 1], &[2, 2], &[3, 3], &[0; 100], &[1; 100], &[2; 100]] {
            for length in [1, 200] {
                let documents = kinds.iter().enumerate().map(|(n, kind)| of_kind(*kind, format!("{n}{}", "i".repeat(length))));
                let state = |document: Document| DocumentState::new(RawDocumentBuf::try_from(&document).unwrap()).unwrap();
                let states: Vec<DocumentState> = documents.map(state).collect();
                let place = RawDocumentBuf::try_from(&doc! { "at": { "$gt": 5 } }).unwrap();
                let filter = StateFilter::new(place, &states).unwrap();
                let taken = written(0, |query| filter.write(query)).unwrap().as_bytes().len();
                let of_types: usize = states.iter().map(|state| state.types.compared.as_bytes().len() + AROUND_STATE).sum();
                assert!(
                    (taken..taken + of_types + AROUND_STATES).contains(&filter.bytes()),
                    "{kinds:?} {taken} {}",
                    filter.bytes()
                );
            }
        }
    }
}
