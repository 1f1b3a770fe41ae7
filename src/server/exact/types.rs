//! The types of the values of documents, and how a statement asks for them: equal values can be of different types.

use std::collections::HashSet;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawArrayBuf, RawDocument, doc};

use super::{DEEPEST, Exact};

/// Fields that are asked for by name. Of more the condition would be long for every statement.
const MOST_NAMES: usize = 100;

/// The types of the values of a document, and of the values inside of them.
///
/// `None` where it is no BSON that can be read, or has a name twice: mongod compares the first value of that name twice, and the second never.
pub fn types_of(document: &RawDocument, deepest: &mut usize) -> Option<RawArrayBuf> {
    below(document, 0, deepest)
}

fn below(document: &RawDocument, depth: usize, deepest: &mut usize) -> Option<RawArrayBuf> {
    let mut names: Vec<&str> = document.iter().map(|element| Some(element.ok()?.0.as_str())).collect::<Option<_>>()?;
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    of_values(document, depth, deepest)
}

fn of_values(values: &RawDocument, depth: usize, deepest: &mut usize) -> Option<RawArrayBuf> {
    let mut types = RawArrayBuf::new();
    *deepest = depth.max(*deepest);
    for value in values {
        match value.ok()?.1 {
            // Nobody compares them, and recursion must end.
            RawBsonRef::Document(_) | RawBsonRef::Array(_) if depth > DEEPEST => {}
            RawBsonRef::Document(inner) => types.push(below(inner, depth + 1, deepest)?),
            RawBsonRef::Array(inner) => {
                // The same in bytes; the keys do not matter.
                let inner = RawDocument::from_bytes(inner.as_bytes()).ok()?;
                types.push(of_values(inner, depth + 1, deepest)?);
            }
            scalar => types.push(type_of(scalar).as_str()),
        }
    }
    Some(types)
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
pub fn types(documents: &[Exact]) -> Bson {
    let depth = deepest(documents);
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

fn deepest(documents: &[Exact]) -> usize {
    documents.iter().map(|exact| exact.depth).max().unwrap_or(0)
}

/// What the values of documents that all have the same fields and the same types are asked for, beside being equal to theirs.
#[derive(Debug, Default)]
pub struct Asked {
    /// Conditions that need no expression, each for one field.
    pub fields: Vec<Document>,
    /// Expressions, and what they are to give.
    pub expressions: Vec<Bson>,
    pub expected: RawArrayBuf,
}

impl Asked {
    /// `None` where a field cannot be asked for by its name.
    ///
    /// A value that equals a number can be a number of another type, and one that equals a string a symbol; all others have a type to
    /// themselves (`canonicalizeBSONType` in the server's `bsontypes.h`). A condition on a field holds for lists with such a value as
    /// well, but those equal no number and no string.
    pub fn of(documents: &[Exact]) -> Option<Self> {
        let names = same_names(documents)?;
        let depth = deepest(documents);
        let mut asked = Self::default();
        for (name, of_value) in names.into_iter().zip(&documents.first()?.types) {
            let value = format!("${name}");
            match of_value.ok()? {
                RawBsonRef::String(type_name @ ("int" | "long" | "double" | "string" | "symbol")) => {
                    asked.fields.push(doc! { name: { "$type": type_name } });
                }
                RawBsonRef::String(type_name) if !type_name.contains(' ') => {}
                with_text @ RawBsonRef::String(_) => {
                    asked.expressions.push(types_below(&value, depth, depth).into());
                    asked.expected.push(with_text);
                }
                inside => {
                    asked.expressions.push(types_below(&value, 0, depth).into());
                    asked.expected.push(inside);
                }
            }
        }
        Some(asked)
    }
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

#[cfg(test)]
mod tests {
    use bson::RawDocumentBuf;
    use bson::raw::cstr;

    use super::*;

    #[test]
    fn a_name_twice_has_no_types() {
        let mut twice = RawDocumentBuf::new();
        twice.append(cstr!("b"), 1);
        twice.append(cstr!("a"), 1);
        let once = twice.clone();
        twice.append(cstr!("b"), 1);
        let within = |document: &RawDocumentBuf| {
            let mut list = RawArrayBuf::new();
            list.push(RawBsonRef::Document(document));
            list.push(RawBsonRef::Document(document));
            let mut outer = RawDocumentBuf::new();
            outer.append(cstr!("v"), list);
            outer
        };
        let has_types = |document: &RawDocumentBuf| types_of(document, &mut 0).is_some();
        assert!(has_types(&once) && has_types(&within(&once)));
        assert!(!has_types(&twice) && !has_types(&within(&twice)));
    }
}
