//! The guard of rules with `archive`: archiving needs a delete that compares whole documents, byte by byte.

use bson::{Bson, Document};

use super::{Guard, Refusal};
use crate::core::facts::{Collection, CollectionKind};
use crate::core::flavor::Capabilities;
use crate::core::policy::Rule;

/// Returns the refusal of a rule with `archive` whose documents cannot be archived; `None` for any other rule.
pub(super) fn refusal(rule: &Rule, collection: &Collection, capabilities: &Capabilities) -> Option<Refusal> {
    rule.archive.as_ref()?;
    let refuse = |detail: &str| Some(Refusal::new(Guard::Archive, format!("`archive`: {detail}")));
    if !capabilities.exact_states {
        return refuse(
            "deletes cannot compare whole documents on this service, so a document that changes after it was archived would be lost",
        );
    }
    match &collection.kind {
        CollectionKind::TimeSeries(_) => {
            refuse("the buckets of time-series collections cannot be archived by this version; leave it out here")
        }
        _ if !is_simple(collection.collation.as_ref()) => refuse(
            "the collection's collation treats different texts as equal, so a change could go unnoticed; leave `archive` out here",
        ),
        _ if !is_simple(rule.collation.as_ref()) => {
            refuse("with `collation` different texts count as equal, so a change could go unnoticed; leave one of them out")
        }
        _ => None,
    }
}

/// Whether a collation is the simple one, which is the default and compares byte by byte.
pub(super) fn is_simple(collation: Option<&Document>) -> bool {
    collation.is_none_or(|collation| collation.get("locale") == Some(&Bson::from("simple")))
}
