//! The order of a sort.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::Bson;

use crate::failure::Failure;
use crate::order;
use crate::path::Path;

/// Sorts documents by the least of their keys, or by the greatest where the order descends.
///
/// Errors: a document has no key.
pub(crate) fn sort(documents: &mut Vec<Arc<Bson>>, sort: &[(Path, bool)]) -> Result<(), Failure> {
    let key = |document: &Arc<Bson>| -> Result<Vec<Bson>, Failure> {
        let document = document.as_document().expect("a document");
        let of_path = |(path, is_descending): &(Path, bool)| {
            let (keys, _) = path.keys(document)?;
            let best = if *is_descending {
                keys.into_iter().max_by(|a, b| order::compare(a, b))
            } else {
                keys.into_iter().min_by(|a, b| order::compare(a, b))
            };
            Ok(best.map_or(Bson::Null, std::borrow::Cow::into_owned))
        };
        sort.iter().map(of_path).collect()
    };
    let descending: Vec<bool> = sort.iter().map(|part| part.1).collect();
    let keyed =
        documents.drain(..).map(|document| Ok((SortKey { values: key(&document)?, descending: descending.clone() }, document)));
    let mut keyed: Vec<(SortKey, Arc<Bson>)> = keyed.collect::<Result<_, Failure>>()?;
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    documents.extend(keyed.into_iter().map(|(_, document)| document));
    Ok(())
}

#[derive(PartialEq, Eq)]
struct SortKey {
    values: Vec<Bson>,
    descending: Vec<bool>,
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = self.values.iter().zip(&other.values).zip(&self.descending);
        let mut orders =
            parts.map(|((a, b), is_descending)| if *is_descending { order::compare(b, a) } else { order::compare(a, b) });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
