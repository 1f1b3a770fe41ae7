//! The values that a dotted path leads to: for conditions, and for the keys of an index.

use std::borrow::Cow;

use bson::{Bson, Document};

use crate::failure::Failure;

/// The names of a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path(Vec<String>);

impl Path {
    pub(crate) fn new(path: &str) -> Self {
        Self(path.split('.').map(str::to_owned).collect())
    }

    /// Puts a value into a document, below documents that are created where they are missing.
    pub(crate) fn insert(&self, document: &mut Document, value: &Bson) {
        insert(document, &self.0, value);
    }

    /// Tells whether a condition holds for one of the values that the path leads to. A missing value is `None`. With
    /// `with_elements`, an array at the end stands for its elements and for itself.
    ///
    /// Source: mongo `src/mongo/db/matcher/path.cpp`, BSONElementIterator.
    pub(crate) fn any(&self, document: &Document, with_elements: bool, holds: &mut dyn FnMut(Option<&Bson>) -> bool) -> bool {
        any(document, &self.0, with_elements, holds)
    }

    /// Tells whether an array is on the way or at the end.
    pub(crate) fn meets_array(&self, document: &Document) -> bool {
        let mut value = document.get(&self.0[0]);
        for name in &self.0[1..] {
            let Some(Bson::Document(inner)) = value else { break };
            value = inner.get(name);
        }
        matches!(value, Some(Bson::Array(_)))
    }

    /// Returns the keys of a document under the path, and whether they come from an array.
    ///
    /// Errors: a name is both a position in an array and the name of a field of one of its elements.
    ///
    /// Source: mongo `src/mongo/db/index/btree_key_generator.cpp`.
    pub(crate) fn keys<'a>(&self, document: &'a Document) -> Result<(Vec<Cow<'a, Bson>>, bool), Failure> {
        let mut keys = Vec::new();
        let is_multikey = keys_below(document.get(&self.0[0]), &self.0[1..], &mut keys)?;
        Ok((keys, is_multikey))
    }
}

fn insert(document: &mut Document, path: &[String], value: &Bson) {
    match path {
        [] => {}
        [name] => drop(document.insert(name, value)),
        [name, rest @ ..] => {
            if !matches!(document.get(name), Some(Bson::Document(_))) {
                document.insert(name, Document::new());
            }
            if let Ok(inner) = document.get_document_mut(name) {
                insert(inner, rest, value);
            }
        }
    }
}

fn any(document: &Document, path: &[String], with_elements: bool, holds: &mut dyn FnMut(Option<&Bson>) -> bool) -> bool {
    let value = document.get(&path[0]);
    let rest = &path[1..];
    match value {
        Some(Bson::Array(items)) if rest.is_empty() => {
            (with_elements && items.iter().any(|item| holds(Some(item)))) || holds(value)
        }
        value if rest.is_empty() => holds(value),
        Some(Bson::Document(inner)) => any(inner, rest, with_elements, holds),
        Some(Bson::Array(items)) => any_inside(items, rest, with_elements, holds),
        _ => holds(None),
    }
}

/// Tells whether a condition holds for one of the values that the path leads to inside an array on the way.
fn any_inside(items: &[Bson], path: &[String], with_elements: bool, holds: &mut dyn FnMut(Option<&Bson>) -> bool) -> bool {
    let position = position(&path[0]);
    items.iter().enumerate().any(|(at, item)| {
        if let Bson::Document(inner) = item
            && any(inner, path, with_elements, holds)
        {
            return true;
        }
        if position != Some(at) {
            return false;
        }
        match item {
            item if path.len() == 1 => holds(Some(item)),
            Bson::Document(inner) => any(inner, &path[1..], with_elements, holds),
            Bson::Array(inner) => any_inside(inner, &path[1..], with_elements, holds),
            _ => false,
        }
    })
}

/// Returns the position in an array that a name stands for.
pub(crate) fn position(name: &str) -> Option<usize> {
    let is_position = name == "0" || (!name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit()));
    if is_position { name.parse().ok() } else { None }
}

/// Adds the keys of a value, and returns whether they come from an array.
fn keys_below<'a>(value: Option<&'a Bson>, rest: &[String], keys: &mut Vec<Cow<'a, Bson>>) -> Result<bool, Failure> {
    Ok(match (value, rest.first()) {
        (Some(Bson::Array(items)), None) => {
            match items.as_slice() {
                [] => keys.push(Cow::Owned(Bson::Undefined)),
                items => keys.extend(items.iter().map(Cow::Borrowed)),
            }
            true
        }
        (Some(Bson::Array(items)), Some(name)) => {
            let at_position = position(name).and_then(|at| items.get(at));
            let is_named = |item: &Bson| matches!(item, Bson::Document(inner) if inner.contains_key(name));
            if let Some(item) = at_position {
                if items.iter().any(is_named) {
                    return Err(Failure::new(16_746, "Ambiguous field name found in array"));
                }
                return keys_at(item, &rest[1..], keys);
            }
            if items.is_empty() {
                keys.push(Cow::Owned(Bson::Null));
            }
            for item in items {
                match item {
                    Bson::Document(inner) => {
                        keys_below(inner.get(name), &rest[1..], keys)?;
                    }
                    _ => keys.push(Cow::Owned(Bson::Null)),
                }
            }
            true
        }
        (Some(Bson::Document(inner)), Some(name)) => keys_below(inner.get(name), &rest[1..], keys)?,
        (Some(value), None) => {
            keys.push(Cow::Borrowed(value));
            false
        }
        (None, _) | (Some(_), Some(_)) => {
            keys.push(Cow::Owned(Bson::Null));
            false
        }
    })
}

/// Adds the keys of an element that a path names by its position. That does not make an index multikey, an array below it does.
fn keys_at<'a>(item: &'a Bson, rest: &[String], keys: &mut Vec<Cow<'a, Bson>>) -> Result<bool, Failure> {
    match item {
        // Such an array is one key, not one for each of its elements.
        Bson::Array(items) if rest.is_empty() && !items.is_empty() => {
            keys.push(Cow::Borrowed(item));
            Ok(true)
        }
        item => keys_below(Some(item), rest, keys),
    }
}
