//! The condition that keeps a delete from beginning too late, by the server's own clock.

use bson::raw::{RawBson, cstr};
use bson::{RawArrayBuf, RawDocumentBuf, doc};

use crate::lock::fence::Fence;

/// The words by which the error of a late delete is known. They are no number, so that converting them to one fails.
const TOO_LATE: &str = "sweeper: the time of this delete is over";

/// Bytes that a fence adds to a statement.
pub(crate) const FENCE_BYTES: usize = 180;

/// Returns a query to which a late statement answers with an error. An answer of no documents would look like documents that are gone.
///
/// `$$NOW` is read once per statement, as it begins, and the condition is then a constant to the planner: no document is compared with it, and the plan
/// stays the same (seen with 6.0.5). A statement that is late fails before it looks for a document.
pub(crate) fn fenced(query: RawDocumentBuf, fence: &Fence) -> Result<RawDocumentBuf, bson::error::Error> {
    let in_time = doc! { "$lt": ["$$NOW", fence.begins_before] };
    let condition = doc! { "$expr": { "$toInt": { "$cond": [in_time, "1", TOO_LATE] } } };
    let mut all = RawArrayBuf::new();
    all.push(RawBson::Document(query));
    all.push(RawBson::Document(RawDocumentBuf::try_from(&condition)?));
    let mut fenced = RawDocumentBuf::new();
    fenced.append(cstr!("$and"), RawBson::Array(all));
    Ok(fenced)
}

/// Tells whether a server's message says that a statement came too late. Nothing was done by it.
pub(super) fn is_too_late(message: &str) -> bool {
    message.contains(TOO_LATE)
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Document};

    use super::*;

    #[test]
    fn a_fence_leaves_the_query_whole_and_has_a_known_size() {
        let query = RawDocumentBuf::try_from(&doc! { "$and": [{ "_id": 5 }, { "at": 3 }], "$expr": true }).unwrap();
        let fence = Fence { begins_before: DateTime::from_millis(1_000), max_time: None };
        let fenced = fenced(query.clone(), &fence).unwrap();
        let in_time = doc! { "$lt": ["$$NOW", DateTime::from_millis(1_000)] };
        let condition = doc! { "$expr": { "$toInt": { "$cond": [in_time, "1", TOO_LATE] } } };
        let whole = Document::try_from(&*query).unwrap();
        assert_eq!(Document::try_from(&*fenced).unwrap(), doc! { "$and": [whole, condition] });
        let added = fenced.as_bytes().len() - query.as_bytes().len();
        assert!(added <= FENCE_BYTES, "{added}");
        assert!(TOO_LATE.parse::<f64>().is_err());
    }
}
