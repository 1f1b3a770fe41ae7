//! The statements of a delete command: the filters for a restriction, each with the whole predicate of its rule.

use bson::raw::{RawBson, cstr};
use bson::{Document, RawArrayBuf, RawDocumentBuf, doc};

use super::document_match;
use super::restriction::Restriction;
use crate::plan::Selection;

/// One statement of a delete command. A read with the same query finds the same documents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    /// The filter of the restriction together with the whole predicate of the rule.
    pub query: RawDocumentBuf,
    /// Maximum number of documents; 0 for no limit.
    pub limit: i32,
    /// The index that the query walks, by its name or its key.
    pub hint: RawBson,
}

impl Statement {
    fn new(filter: RawDocumentBuf, limit: i32, hint: RawBson, selection: &Selection) -> Result<Self, bson::error::Error> {
        Ok(Self { query: with_predicate(filter, selection)?, limit, hint })
    }
}

/// Returns the statements that together name the documents of a restriction.
///
/// They are built raw: `_id`s go from the server's reply to the command without being decoded.
///
/// Errors: BSON cannot hold a part of the selection.
pub(crate) fn statements(restriction: &Restriction, selection: &Selection) -> Result<Vec<Statement>, bson::error::Error> {
    let by_id = RawBson::Document(RawDocumentBuf::try_from(&doc! { "_id": 1 })?);
    match restriction {
        Restriction::Ids(ids) => Ok(vec![Statement::new(is_in(ids, selection), 0, by_id, selection)?]),
        Restriction::Sharded(groups) => {
            let statement = |(key, ids): &(Document, RawArrayBuf)| {
                let mut filter = RawDocumentBuf::try_from(key)?;
                for element in &is_in(ids, selection) {
                    let (name, value) = element?;
                    filter.append(name, value);
                }
                Statement::new(filter, 0, by_id.clone(), selection)
            };
            groups.iter().map(statement).collect()
        }
        Restriction::One(id) => {
            let mut filter = RawDocumentBuf::new();
            filter.append(cstr!("_id"), id.clone());
            Ok(vec![Statement::new(filter, 1, by_id, selection)?])
        }
        Restriction::Range { bounds, hint } => {
            let filter = RawDocumentBuf::try_from(bounds)?;
            Ok(vec![Statement::new(filter, 0, RawBson::try_from(hint.clone())?, selection)?])
        }
        Restriction::States { documents, range } => {
            let filters = document_match::filters(documents, range.as_ref(), selection)?;
            filters.into_iter().map(|(filter, hint)| Statement::new(filter, 0, hint, selection)).collect()
        }
    }
}

/// Returns a filter together with the whole predicate of the rule.
fn with_predicate(filter: RawDocumentBuf, selection: &Selection) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut all = RawArrayBuf::new();
    all.push(RawBson::Document(filter));
    all.push(RawBson::Document(RawDocumentBuf::try_from(&selection.predicate)?));
    let mut query = RawDocumentBuf::new();
    query.append(cstr!("$and"), RawBson::Array(all));
    Ok(query)
}

/// Returns the condition for a list of `_id`s.
fn is_in(ids: &RawArrayBuf, selection: &Selection) -> RawDocumentBuf {
    let mut condition = RawDocumentBuf::new();
    condition.append(cstr!("$in"), RawBson::Array(ids.clone()));
    if selection.is_buckets() {
        // The server walks a clustered collection from the first to the last `_id` only if the condition names both.
        let ids = || ids.into_iter().filter_map(|id| id.ok()?.as_object_id());
        if let (Some(first), Some(last)) = (ids().min(), ids().max()) {
            condition.append(cstr!("$gte"), first);
            condition.append(cstr!("$lte"), last);
        }
    }
    let mut by_id = RawDocumentBuf::new();
    by_id.append(cstr!("_id"), RawBson::Document(condition));
    by_id
}
