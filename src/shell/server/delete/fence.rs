//! The condition that keeps a delete from beginning too late, by the server's own clock.

use bson::{RawDocumentBuf, doc};

use crate::shell::lock::fence::Fence;

/// The text by which the error of a late delete is known. It is not a number, so `$toInt` fails with it.
const TOO_LATE: &str = "sweeper: the time of this delete is over";

/// Bytes that a fence adds to a statement.
pub(crate) const FENCE_BYTES: usize = 180;

/// Returns a condition by which a late statement is answered with an error. An answer of no documents would look like documents
/// that are gone.
///
/// `$$NOW` is read once per statement, as it begins, and the condition is then a constant to the planner. No document is
/// compared with that constant, and the plan stays the same (seen with 6.0.5). A statement that is late fails before it looks
/// for a document.
pub(crate) fn in_time(fence: &Fence) -> Result<RawDocumentBuf, bson::error::Error> {
    let in_time = doc! { "$lt": ["$$NOW", fence.begins_before] };
    RawDocumentBuf::try_from(&doc! { "$expr": { "$toInt": { "$cond": [in_time, "1", TOO_LATE] } } })
}

/// Tells whether a server's message says that a statement came too late. Nothing was done by it.
pub(crate) fn is_too_late(message: &str) -> bool {
    message.contains(TOO_LATE)
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Document};

    use super::*;

    #[test]
    fn a_fence_is_an_expression_that_fails_when_it_is_late() {
        let in_time = in_time(&Fence { begins_before: DateTime::from_millis(1_000), max_time: None }).unwrap();
        let before = doc! { "$lt": ["$$NOW", DateTime::from_millis(1_000)] };
        let condition = doc! { "$expr": { "$toInt": { "$cond": [before, "1", TOO_LATE] } } };
        assert_eq!(Document::try_from(&*in_time).unwrap(), condition);
        assert!(TOO_LATE.parse::<f64>().is_err());
    }
}
