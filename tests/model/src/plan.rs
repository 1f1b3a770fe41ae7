//! The way in which a query reads: which index, which part of it, and whether that is the order of the sort.

use bson::{Bson, Document};

use crate::collection::{Collection, Scan};
use crate::failure::Failure;
use crate::filter::Filter;
use crate::index::{Index, Range};
use crate::path::Path;
use crate::value::integer;

/// Fails on a collation other than the simple one, which the model does not know.
pub(crate) fn check_collation(collation: Option<&Document>) {
    let is_simple = collation.is_none_or(|collation| collation.get_str("locale").is_ok_and(|locale| locale == "simple"));
    assert!(is_simple, "the model does not know collations");
}

/// Reads a sort.
pub(crate) fn sort(sort: Option<&Document>) -> Result<Vec<(Path, bool)>, Failure> {
    let part = |(path, direction): (&String, &Bson)| match integer(direction) {
        Some(1) => Ok((Path::new(path), false)),
        Some(-1) => Ok((Path::new(path), true)),
        _ => Err(Failure::new(15_975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")),
    };
    sort.into_iter().flatten().map(part).collect()
}

/// Chooses a scan for a filter and a sort. Also returns whether the documents have to be sorted afterwards.
///
/// Errors: there is no index as the hint says.
pub(crate) fn scan(
    collection: &Collection,
    filter: &Filter,
    sort: &[(Path, bool)],
    hint: Option<&Bson>,
) -> Result<(Scan, bool), Failure> {
    if let Some(backwards) = natural(hint) {
        return Ok((Scan::Natural { backwards }, !sort.is_empty()));
    }
    let index = match hint {
        None => choose(collection, filter, sort),
        Some(hint) => Some(hinted(collection, hint)?),
    };
    let Some(index) = index else { return Ok((Scan::Natural { backwards: false }, !sort.is_empty())) };
    let ranges = index.ranges(filter);
    let order = index.sorts(sort).filter(|_| !(index.has_arrays_in(sort.len()) && ranges.is_some()));
    let scan = Scan::Index {
        name: index.name().to_owned(),
        ranges: ranges.unwrap_or_else(|| vec![Range::default()]),
        backwards: order.unwrap_or(false),
    };
    Ok((scan, !sort.is_empty() && order.is_none()))
}

/// Returns the index that a hint names.
pub(crate) fn hinted<'a>(collection: &'a Collection, hint: &Bson) -> Result<&'a Index, Failure> {
    let found = match hint {
        Bson::String(name) => collection.index(name),
        Bson::Document(key) => collection.indexes.iter().find(|index| index.key() == key),
        _ => None,
    };
    found.ok_or_else(|| Failure::bad("error processing query: planner returned error :: caused by :: hint provided does not correspond to an existing index"))
}

/// Tells whether a hint on the natural order goes backwards; `None` for any other hint.
fn natural(hint: Option<&Bson>) -> Option<bool> {
    let direction = hint?.as_document()?.get("$natural")?;
    Some(integer(direction) == Some(-1))
}

fn choose<'a>(collection: &'a Collection, filter: &Filter, sort: &[(Path, bool)]) -> Option<&'a Index> {
    let mut bounded = collection.indexes.iter().filter(|index| !is_partial(index) && index.ranges(filter).is_some());
    let mut sorting = collection.indexes.iter().filter(|index| !is_partial(index) && index.sorts(sort).is_some());
    bounded.next().or_else(|| sorting.next().filter(|_| !sort.is_empty()))
}

/// Tells whether an index may lack documents.
fn is_partial(index: &Index) -> bool {
    index.spec.contains_key("sparse") || index.spec.contains_key("partialFilterExpression")
}
