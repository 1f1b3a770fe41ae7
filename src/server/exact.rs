//! A condition that holds for documents in exactly the states that were read, and in no other.
//!
//! The server compares whole documents, but a number equals any other of the same value, of whatever type, and a symbol a string. So the
//! type of every value is compared as well, and where values of one type can be written differently (decimals, zero), their text. What
//! is not told apart then: the bits of a NaN, and types of equal numbers inside the scope of JavaScript code where the length stays the
//! same.

use std::collections::HashSet;

use bson::raw::{CStr, RawBson, RawBsonRef, cstr};
use bson::{Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, doc};

use super::delete::Restriction;
use super::shard_key;
use crate::plan::Selection;

/// Documents that one statement names. Each is compared with half of them on the way, and each statement costs the planner as much as a few
/// documents.
const DOCUMENTS_PER_STATEMENT: usize = 50;

/// The deepest values that are compared: every level makes the condition deeper as well, and the server takes 200 of BSON.
pub const DEEPEST: usize = 30;

/// Bytes that all documents of one command may come to, with what is compared beside them. The server takes 16 MiB.
const COMMAND_BYTES: usize = 12 * 1024 * 1024;

/// A single document may come to more: nothing else is in its command then.
const LARGEST: usize = 15 * 1024 * 1024;

/// Fields that are asked for by name. Of more the expression would be long for every statement.
const MOST_NAMES: usize = 100;

/// A document in the state in which it was archived, with what tells it from others of equal value.
#[derive(Debug, Clone, PartialEq)]
pub struct Exact {
    pub document: RawDocumentBuf,
    /// What [`types_of`] gives for it.
    types: RawArrayBuf,
    depth: usize,
}

impl Exact {
    /// `None` where no delete can compare it: it is too deep, too large, or no BSON that can be read.
    pub fn new(document: RawDocumentBuf) -> Option<Self> {
        let mut deepest = 0;
        let types = types_of(&document, 0, &mut deepest).ok()?;
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

/// The types of the values of a document, and of the values inside of them.
fn types_of(document: &RawDocument, depth: usize, deepest: &mut usize) -> Result<RawArrayBuf, bson::error::Error> {
    let mut types = RawArrayBuf::new();
    *deepest = depth.max(*deepest);
    // An array is a document as well, whose keys do not matter.
    for element in document {
        match element?.1 {
            // Nobody compares them, and recursion must end.
            RawBsonRef::Document(_) | RawBsonRef::Array(_) if depth > DEEPEST => {}
            RawBsonRef::Document(inner) => types.push(RawBson::Array(types_of(inner, depth + 1, deepest)?)),
            RawBsonRef::Array(inner) => {
                let inner = RawDocument::from_bytes(inner.as_bytes())?;
                types.push(RawBson::Array(types_of(inner, depth + 1, deepest)?));
            }
            scalar => types.push(type_of(scalar).as_str()),
        }
    }
    Ok(types)
}

/// The type as `$type` names it; of decimals, and of zero, with the text that `$toString` makes.
fn type_of(value: RawBsonRef) -> String {
    let name = match value {
        RawBsonRef::Double(value) if value == 0.0 => {
            return format!("double {}", if value.is_sign_negative() { "-0" } else { "0" });
        }
        RawBsonRef::Int32(0) => return "int 0".into(),
        RawBsonRef::Int64(0) => return "long 0".into(),
        RawBsonRef::Decimal128(value) => return format!("decimal {value}"),
        RawBsonRef::Double(_) => "double",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::MaxKey => "maxKey",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::DbPointer(_) => "dbPointer",
    };
    name.into()
}

/// An aggregation expression that gives [`types_of`] for each of these documents.
///
/// Where all have the same fields each is asked by its name, and where no value has any inside, for its type alone: that costs a third.
fn types(documents: &[Exact]) -> Bson {
    let depth = documents.iter().map(|exact| exact.depth).max().unwrap_or(0);
    let Some(names) = same_names(documents) else {
        let values = doc! { "$map": { "input": { "$objectToArray": "$$ROOT" }, "in": "$$this.v" } };
        return doc! { "$map": { "input": values, "as": "v0", "in": types_below("$$v0", 0, depth) } }.into();
    };
    let mut seen = vec![(false, false); names.len()];
    for exact in documents {
        for (value, (inside, text)) in exact.types.into_iter().flatten().zip(&mut seen) {
            *inside |= value.as_array().is_some();
            *text |= value.as_str().is_some_and(|name| name.contains(' '));
        }
    }
    let types = names.into_iter().zip(seen).map(|(name, (inside, text))| {
        let value = format!("${name}");
        match (inside, text) {
            (true, _) => types_below(&value, 0, depth),
            (false, true) => types_below(&value, depth, depth),
            (false, false) => doc! { "$type": value },
        }
    });
    types.collect::<Vec<_>>().into()
}

/// The names of the fields, where all documents have the same ones in the same order, each once, and an expression can ask for them.
fn same_names(documents: &[Exact]) -> Option<Vec<&str>> {
    let first = names(documents.first()?)?;
    let askable = |name: &&str| !name.is_empty() && !name.starts_with('$') && !name.contains('.');
    let unique: HashSet<&str> = first.iter().copied().collect();
    let usable = first.len() <= MOST_NAMES && unique.len() == first.len() && first.iter().all(askable);
    (usable && documents.iter().all(|exact| names(exact).as_ref() == Some(&first))).then_some(first)
}

fn names(exact: &Exact) -> Option<Vec<&str>> {
    exact.document.iter().map(|element| Some(element.ok()?.0.as_str())).collect()
}

/// An expression for the type of a value, and of those inside of it down to a depth.
fn types_below(value: &str, level: usize, depth: usize) -> Document {
    let name = || doc! { "$type": value };
    let scalar = doc! { "$cond": [
        { "$or": [{ "$eq": [name(), "decimal"] }, { "$eq": [value, 0] }] },
        { "$concat": [name(), " ", { "$toString": value }] },
        name(),
    ] };
    if level == depth {
        return scalar;
    }
    let inner = doc! { "$cond": [
        { "$isArray": value },
        value,
        { "$map": { "input": { "$objectToArray": value }, "in": "$$this.v" } },
    ] };
    let below = format!("v{}", level + 1);
    let next = types_below(&format!("$${below}"), level + 1, depth);
    doc! { "$cond": [
        { "$in": [name(), ["object", "array"]] },
        { "$map": { "input": inner, "as": below, "in": next } },
        scalar,
    ] }
}

/// Statement filters that together name these documents in these states, but for the predicate of their rule.
///
/// Not one filter: what it costs to compare grows with the square of the documents in it. On mongod 6.0 the server's set operators rebuild
/// their set for every document, because a plan's copy of the filter is not optimised.
pub fn filters(documents: &[Exact], selection: &Selection) -> Result<Vec<RawDocumentBuf>, bson::error::Error> {
    documents.chunks(DOCUMENTS_PER_STATEMENT).map(|documents| filter(documents, selection)).collect()
}

fn filter(documents: &[Exact], selection: &Selection) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut ids = RawArrayBuf::new();
    let mut keys = Vec::new();
    for exact in documents {
        if let Some(id) = exact.id() {
            ids.push(id);
        }
        if !selection.shard_key.is_empty() {
            keys.push(shard_key::of(&Document::try_from(&*exact.document)?, &selection.shard_key));
        }
    }
    let mut filter = RawDocumentBuf::try_from(&shard_key::any_of(&keys, &selection.shard_key))?;
    let mut of_batch = RawDocumentBuf::new();
    of_batch.append(cstr!("$in"), RawBson::Array(ids));
    filter.append(cstr!("_id"), RawBson::Document(of_batch));
    let states = match documents {
        [first, rest @ ..] if first.is_told_by_types() && rest.iter().all(|exact| exact.types == first.types) => {
            of_same_types(documents, first)?
        }
        documents => of_other_types(documents)?,
    };
    filter.append(cstr!("$expr"), RawBson::Document(states));
    Ok(filter)
}

/// An expression for documents whose values all have the same types: those are compared once. A quarter faster than the other.
fn of_same_types(documents: &[Exact], first: &Exact) -> Result<RawDocumentBuf, bson::error::Error> {
    let states = documents.iter().map(|exact| RawBson::Document(exact.document.clone())).collect();
    let equal = operator(cstr!("$in"), "$$ROOT".into(), states);
    let types = operator(cstr!("$eq"), RawBson::try_from(types(documents))?, first.types.clone());
    Ok(RawDocumentBuf::from_iter([(cstr!("$and"), RawBson::Array([equal, types].into_iter().map(RawBson::Document).collect()))]))
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
        states.push(RawBson::Document(state));
    }
    let state = doc! { "d": "$$ROOT", "s": { "$bsonSize": "$$ROOT" }, "t": types(documents) };
    Ok(operator(cstr!("$in"), RawBson::Document(RawDocumentBuf::try_from(&state)?), states))
}

/// An operator over an expression and a constant list.
fn operator(name: &CStr, left: RawBson, list: RawArrayBuf) -> RawDocumentBuf {
    let mut literal = RawDocumentBuf::new();
    literal.append(cstr!("$literal"), RawBson::Array(list));
    let mut operands = RawArrayBuf::new();
    operands.push(left);
    operands.push(RawBson::Document(literal));
    let mut operator = RawDocumentBuf::new();
    operator.append(name, RawBson::Array(operands));
    operator
}

/// Restrictions that name all the documents, each of which fits into one command.
pub fn restrictions(documents: Vec<Exact>) -> Vec<Restriction> {
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
    commands.into_iter().map(Restriction::Exact).collect()
}
