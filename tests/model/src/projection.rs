//! Projections of `find` and `$project`: fields that are shown, hidden or computed.

use std::borrow::Cow;

use bson::{Bson, DateTime, Document};

use crate::expression::Expression;
use crate::failure::Failure;
use crate::path::Path;
use crate::value::integer;

#[derive(Debug)]
pub(crate) enum Projection {
    Whole,
    /// The fields, and whether the `_id` is shown.
    Shown {
        fields: Vec<(Vec<String>, Shown)>,
        with_id: bool,
    },
    Hidden(Vec<Vec<String>>),
}

#[derive(Debug)]
pub(crate) enum Shown {
    AsItIs,
    Computed(Expression),
}

impl Projection {
    pub(crate) fn new(projection: Option<&Document>, now: DateTime) -> Result<Self, Failure> {
        let Some(projection) = projection.filter(|projection| !projection.is_empty()) else { return Ok(Self::Whole) };
        let flag = |value: &Bson| match value {
            Bson::Boolean(flag) => Some(*flag),
            value => integer(value).map(|n| n != 0),
        };
        let path = |key: &str| -> Vec<String> { key.split('.').map(str::to_owned).collect() };
        let shows = projection.iter().any(|(key, value)| flag(value) != Some(false) && key != "_id");
        let hides = projection.iter().any(|(key, value)| flag(value) == Some(false) && key != "_id");
        if shows && hides {
            return Err(Failure::new(31_254, "Cannot do exclusion on field in inclusion projection"));
        }
        let id = projection.get("_id").and_then(flag);
        if hides || (!shows && id == Some(false)) {
            let hidden = projection.iter().filter(|(_, value)| flag(value) == Some(false));
            return Ok(Self::Hidden(hidden.map(|(key, _)| path(key)).collect()));
        }
        let mut fields = Vec::new();
        for (key, value) in projection.iter().filter(|(key, value)| *key != "_id" || flag(value).is_none()) {
            let shown = match flag(value) {
                Some(_) => Shown::AsItIs,
                None => Shown::Computed(Expression::new(value, now)?),
            };
            fields.push((path(key), shown));
        }
        Ok(Self::Shown { fields, with_id: id != Some(false) && projection.get("_id").is_none_or(|id| flag(id).is_some()) })
    }

    /// Returns the paths that are shown as they are; `None` if more is looked at.
    pub(crate) fn paths(&self) -> Option<Vec<Path>> {
        let Self::Shown { fields, with_id } = self else { return None };
        let of_field = |(path, shown): &(Vec<String>, Shown)| matches!(shown, Shown::AsItIs).then(|| Path::new(&path.join(".")));
        let mut paths: Vec<Path> = fields.iter().map(of_field).collect::<Option<_>>()?;
        paths.extend(with_id.then(|| Path::new("_id")));
        Some(paths)
    }

    pub(crate) fn of(&self, document: &Bson) -> Result<Bson, Failure> {
        let whole = document.as_document().expect("a document");
        match self {
            Self::Whole => Ok(document.clone()),
            Self::Hidden(paths) => {
                let mut shown = whole.clone();
                paths.iter().for_each(|path| hide(&mut shown, path));
                Ok(shown.into())
            }
            Self::Shown { fields, with_id } => {
                let paths: Vec<&[String]> =
                    fields.iter().filter(|(_, shown)| matches!(shown, Shown::AsItIs)).map(|(path, _)| path.as_slice()).collect();
                let mut shown = Document::new();
                for (key, value) in whole {
                    if key == "_id" && *with_id {
                        shown.insert(key, value);
                        continue;
                    }
                    let below: Vec<&[String]> = paths.iter().filter(|path| path[0] == *key).map(|path| &path[1..]).collect();
                    if !below.is_empty()
                        && let Some(value) = show(value, &below)
                    {
                        shown.insert(key, value);
                    }
                }
                for (path, computed) in fields {
                    let Shown::Computed(expression) = computed else { continue };
                    assert_eq!(path.len(), 1, "the model computes no fields below others");
                    match expression.evaluate(document)? {
                        Some(value) => drop(shown.insert(&path[0], Cow::into_owned(value))),
                        None => drop(shown.remove(&path[0])),
                    }
                }
                Ok(shown.into())
            }
        }
    }
}

/// Returns the part of a value that paths show; `None` if it is nothing.
fn show(value: &Bson, paths: &[&[String]]) -> Option<Bson> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    match value {
        Bson::Document(inner) => {
            let part = |(key, value): (&String, &Bson)| {
                let below: Vec<&[String]> = paths.iter().filter(|path| path[0] == *key).map(|path| &path[1..]).collect();
                if below.is_empty() { None } else { Some((key.clone(), show(value, &below)?)) }
            };
            Some(Bson::Document(inner.iter().filter_map(part).collect()))
        }
        Bson::Array(items) => Some(Bson::Array(items.iter().filter_map(|item| show(item, paths)).collect())),
        _ => None,
    }
}

fn hide(document: &mut Document, path: &[String]) {
    let [name, rest @ ..] = path else { return };
    if rest.is_empty() {
        document.remove(name);
        return;
    }
    if let Some(value) = document.get_mut(name) {
        hide_inside(value, rest);
    }
}

fn hide_inside(value: &mut Bson, path: &[String]) {
    match value {
        Bson::Document(inner) => hide(inner, path),
        Bson::Array(items) => items.iter_mut().for_each(|item| hide_inside(item, path)),
        _ => {}
    }
}
