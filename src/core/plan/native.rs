//! Warnings about native TTL settings: the server deletes in addition to the rule, or is meant to and does not.

use bson::Bson;

use crate::core::facts::{Collection, NativeTtl, Scope, ServerFacts};

/// Returns a warning about each native setting by which the server deletes, or is meant to delete, what the rule could delete.
/// `field` is the rule's, or the timeField.
pub(super) fn warnings(field: &str, collection: &Collection, server: &ServerFacts) -> Vec<String> {
    collection.ttl().iter().filter(|ttl| concerns(ttl, field)).map(|ttl| warning(ttl, collection, server)).collect()
}

/// Whether the server deletes by a native setting what the rule could delete.
pub(super) fn deletes(field: &str, collection: &Collection, server: &ServerFacts) -> bool {
    collection.ttl().iter().any(|ttl| concerns(ttl, field) && ttl.idle(collection, server).is_none())
}

/// Whether the server deletes by any native setting of the collection.
pub(super) fn deletes_any(collection: &Collection, server: &ServerFacts) -> bool {
    collection.ttl().iter().any(|ttl| ttl.idle(collection, server).is_none())
}

fn concerns(ttl: &NativeTtl, field: &str) -> bool {
    ttl.scope == Scope::LastChange || matches!(ttl.key.as_slice(), [(on, _)] if on == field)
}

fn warning(ttl: &NativeTtl, collection: &Collection, server: &ServerFacts) -> String {
    let seconds = &ttl.expire_after_seconds;
    if ttl.scope == Scope::LastChange {
        return match seconds {
            Bson::Int32(-1) | Bson::Int64(-1) => {
                "the service's own TTL is on and deletes documents by their own `ttl` as well".into()
            }
            _ => format!("the service's own TTL also deletes documents, {seconds} s after their last change"),
        };
    }
    let name = ttl.name();
    match ttl.idle(collection, server) {
        Some(idle) => format!("{name} deletes nothing: {}", idle.detail),
        None if ttl.index.is_none() => format!("{name} deletes from it as well"),
        None => format!("{name} deletes from this collection as well"),
    }
}
