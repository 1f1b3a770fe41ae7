//! Warnings about native TTL settings, by which the server deletes in addition to the rule.

use bson::Bson;

use crate::facts::{Collection, LAST_CHANGE};
use crate::values::integer;

/// Returns a warning about the TTL of a clustered or time-series collection itself.
pub(super) fn own_warning(collection: &Collection) -> Option<String> {
    let seconds = collection.expire_after_seconds.as_ref().and_then(integer)?;
    Some(format!("the collection's own expireAfterSeconds ({seconds}) deletes from it as well"))
}

/// Returns a warning about a TTL index on the rule's field or on the time of the last change.
pub(super) fn warning(field: &str, collection: &Collection) -> Option<String> {
    let (index, on, seconds) = collection.indexes.iter().find_map(|index| match index.key.as_slice() {
        [(on, _)] if on == field || on == LAST_CHANGE => Some((index, on, index.expire_after_seconds.as_ref()?)),
        _ => None,
    })?;
    Some(if on == field {
        format!("the TTL index `{}` (expireAfterSeconds {seconds}) deletes from this collection as well", index.name)
    } else if matches!(seconds, Bson::Int32(-1) | Bson::Int64(-1)) {
        "the service's own TTL is on and deletes documents by their own `ttl` as well".into()
    } else {
        format!(
            "the service's own TTL also deletes documents, {seconds} s after their last change, or as long as their own `ttl` says"
        )
    })
}
