//! Puts documents back: inserts those that are missing, and keeps or replaces those that are there. Each document ends in exactly
//! one count.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::identity::Identity;
use super::insert::{self, Failed, Put, Updated};
use crate::core::facts::CollectionKind;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::look::{catalog, sharding};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use bson::raw::{RawBson, cstr};
use bson::{RawArrayBuf, RawDocumentBuf};

/// Maximum number of times that a document is looked at again because another client removed or changed it meanwhile.
const MAX_ROUNDS: usize = 5;

/// The treatment of documents that exist already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    Keep,
    Replace,
}

/// A collection that documents are put back into.
pub(crate) struct RestoreTarget<'a> {
    deployment: &'a Deployment,
    namespace: Namespace,
    identity: Identity,
    /// Paths by which the archived collection told documents with one `_id` apart, and this one does not.
    apart: Vec<String>,
    present: Present,
    /// Whether the collection was there before.
    exists: bool,
    /// `None` if documents are written.
    dry: Option<DryRun>,
}

/// Documents that a dry run would have written: the hashes of each document, and of what told it apart in its archive, by the
/// hash of its identity. An archive may hold several states of one document.
#[derive(Default)]
struct DryRun(HashMap<u64, (u64, u64)>);

/// State of the collection in the place of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Same,
    Different,
    /// Another document, which its archive told apart.
    Twin,
    Missing,
}

impl<'a> RestoreTarget<'a> {
    /// Looks at a collection. Returns the reason why documents should not be put back into it, if there is one. `shard_key` has
    /// the paths by which the archived collection told documents apart. With `is_dry` nothing is written, only counted.
    ///
    /// Errors: no answer, or the collection is sharded by a key that is not known.
    pub(crate) async fn open(
        deployment: &'a Deployment,
        namespace: &Namespace,
        shard_key: &[String],
        present: Present,
        is_dry: bool,
    ) -> Result<std::result::Result<Self, &'static str>> {
        let found = catalog::collection(deployment, namespace).await?;
        let unsuitable = match found.as_ref().map(|collection| &collection.kind) {
            Some(CollectionKind::Capped) => Some("the collection is capped, and would drop other documents to make room"),
            Some(CollectionKind::View) => Some("a view holds no documents of its own"),
            Some(CollectionKind::TimeSeries(_)) => Some("a time-series collection does not keep documents as they are"),
            Some(CollectionKind::Plain | CollectionKind::Clustered | CollectionKind::CosmosRu) | None => None,
        };
        if let Some(why) = unsuitable {
            return Ok(Err(why));
        }
        let identity = match &found {
            Some(collection) => {
                Identity::new(sharding::certain_key(deployment, namespace).await?, collection.collation.is_some())
            }
            // The first insert creates it, unsharded.
            None => Identity::default(),
        };
        let (exists, apart) = (found.is_some(), identity.without(shard_key).cloned().collect());
        Ok(Ok(Self { identity, apart, exists, ..Self::unsharded(deployment, namespace, present, is_dry) }))
    }

    /// Creates a target whose documents are known by their `_id`s.
    pub(crate) fn unsharded(deployment: &'a Deployment, namespace: &Namespace, present: Present, is_dry: bool) -> Self {
        let dry = is_dry.then(DryRun::default);
        let (namespace, identity) = (namespace.clone(), Identity::default());
        Self { deployment, namespace, identity, apart: Vec::new(), present, exists: true, dry }
    }

    /// Whether the collection was there before.
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// Whether nothing is written.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry.is_some()
    }

    /// Puts documents back. On an error, those that are in no count were perhaps not looked at.
    pub(crate) async fn put(&mut self, documents: &[RawDocumentBuf], put: &mut Put) -> Result<()> {
        let there = self.existing(documents).await?;
        if self.dry.is_some() {
            documents.iter().for_each(|document| self.count(document, &there, put));
            return Ok(());
        }
        let (mut missing, mut different) = (Vec::new(), Vec::new());
        for document in documents {
            match there.get(&self.identity.of(document)) {
                _ if self.identity.has_array(document) => put.refuse(IN_ARRAY),
                Some(existing) => match self.compare(document, existing) {
                    Found::Same => put.same += 1,
                    Found::Twin => put.leave_out(),
                    Found::Different | Found::Missing => different.push(document),
                },
                None => missing.push(document),
            }
        }
        for Failed { index, cause } in insert::insert(self.deployment, &self.namespace, &self.identity, &missing, put).await? {
            let Some(document) = missing.get(index) else { continue };
            if !cause.has_code(codes::DUPLICATE_KEY) {
                put.refuse(cause);
                continue;
            }
            // Servers name the index in different ways, so the documents are compared instead.
            match self.look(document).await? {
                Found::Same => put.same += 1,
                Found::Different => different.push(document),
                Found::Twin => put.leave_out(),
                Found::Missing => put.conflicts += 1,
            }
        }
        match self.present {
            Present::Keep => put.different += different.len() as u64,
            Present::Replace => {
                for document in different {
                    self.replace(document, put).await?;
                }
            }
        }
        Ok(())
    }

    /// Counts what would be done with a document.
    fn count(&mut self, document: &RawDocumentBuf, there: &HashMap<Vec<u8>, RawDocumentBuf>, put: &mut Put) {
        let identity = self.identity.of(document);
        let (key, state) = (hash(&identity), (hash(document.as_bytes()), hash(&Identity::bytes_at(document, &self.apart))));
        let found = match (self.dry.as_ref().and_then(|dry| dry.0.get(&key)), there.get(&identity)) {
            (Some(written), _) if *written == state => Found::Same,
            (Some((_, apart)), _) if *apart != state.1 => Found::Twin,
            (Some(_), _) => Found::Different,
            (None, Some(existing)) => self.compare(document, existing),
            (None, None) => Found::Missing,
        };
        match (found, self.present) {
            _ if self.identity.has_array(document) => return put.refuse(IN_ARRAY),
            (Found::Missing, _) => put.inserted += 1,
            (Found::Same, _) => put.same += 1,
            (Found::Twin, _) => put.leave_out(),
            (Found::Different, Present::Replace) => put.replaced += 1,
            (Found::Different, Present::Keep) => put.different += 1,
        }
        if found == Found::Missing || found == Found::Different && self.present == Present::Replace {
            self.dry.get_or_insert_default().0.insert(key, state);
        }
    }

    /// Compares a document with the one that is in its place.
    fn compare(&self, document: &RawDocumentBuf, existing: &RawDocumentBuf) -> Found {
        let told_apart = |document| Identity::bytes_at(document, &self.apart);
        match existing == document {
            true => Found::Same,
            false if told_apart(document) == told_apart(existing) => Found::Different,
            false => Found::Twin,
        }
    }

    /// Replaces a document that was there in another state. If it is no longer, another client has removed or moved it, and it is
    /// looked at again.
    async fn replace(&self, document: &RawDocumentBuf, put: &mut Put) -> Result<()> {
        for _ in 0..MAX_ROUNDS {
            let updated = insert::replace(self.deployment, &self.namespace, &self.identity, document, put).await?;
            match updated {
                Updated { refused: Some(cause), .. } if cause.has_code(codes::DUPLICATE_KEY) => {
                    put.conflicts += 1;
                    return Ok(());
                }
                Updated { refused: Some(cause), .. } => {
                    put.refuse(cause);
                    return Ok(());
                }
                Updated { n: 0, was_sent_before, .. } => {
                    // Perhaps after the attempt whose reply was lost had replaced it.
                    put.is_uncertain |= was_sent_before;
                    if self.settle(document, put).await? {
                        return Ok(());
                    }
                }
                // The attempt whose reply was lost may be the one that changed it.
                Updated { is_unchanged: true, was_sent_before: false, .. } => {
                    put.same += 1;
                    return Ok(());
                }
                Updated { .. } => {
                    put.replaced += 1;
                    return Ok(());
                }
            }
        }
        put.refuse("other clients remove or change the document again and again");
        Ok(())
    }

    /// Looks at a document that a replacement did not find, and inserts it if it is missing. Returns whether it is in a count
    /// now; otherwise it is there again, in another state.
    async fn settle(&self, document: &RawDocumentBuf, put: &mut Put) -> Result<bool> {
        match self.look(document).await? {
            Found::Different => return Ok(false),
            Found::Same => {
                put.same += 1;
                return Ok(true);
            }
            Found::Twin => {
                put.leave_out();
                return Ok(true);
            }
            Found::Missing => {}
        }
        let failed = insert::insert(self.deployment, &self.namespace, &self.identity, &[document], put).await?;
        let Some(Failed { cause, .. }) = failed.into_iter().next() else { return Ok(true) };
        if !cause.has_code(codes::DUPLICATE_KEY) {
            put.refuse(cause);
            return Ok(true);
        }
        let found = self.look(document).await?;
        put.same += u64::from(matches!(found, Found::Same));
        put.conflicts += u64::from(matches!(found, Found::Missing));
        if found == Found::Twin {
            put.leave_out();
        }
        Ok(found != Found::Different)
    }

    /// Reads the document that has the identity of this one, as the server compares values.
    async fn look(&self, document: &RawDocumentBuf) -> Result<Found> {
        let query = Query::find(&self.namespace, self.identity.filter(document)?).collation(self.identity.collation().as_ref());
        let found = query.all_raw(self.deployment).await?;
        Ok(match found.as_slice() {
            [] => Found::Missing,
            found if found.contains(document) => Found::Same,
            [existing, ..] => self.compare(document, existing),
        })
    }

    /// Reads the documents of the collection that have the same `_id`s as these, by their identities. On a sharded cluster every
    /// shard is asked: what it has is told apart here.
    async fn existing(&self, documents: &[RawDocumentBuf]) -> Result<HashMap<Vec<u8>, RawDocumentBuf>> {
        let ids: RawArrayBuf = documents.iter().filter_map(|document| Some(RawBson::from(document.get("_id").ok()??))).collect();
        let mut of_ids = RawDocumentBuf::new();
        of_ids.append(cstr!("$in"), RawBson::Array(ids));
        let mut filter = RawDocumentBuf::new();
        filter.append(cstr!("_id"), RawBson::Document(of_ids));
        let found = Query::find(&self.namespace, filter).all_raw(self.deployment).await?;
        Ok(found.into_iter().map(|document| (self.identity.of(&document), document)).collect())
    }
}

/// The reason why no shard takes a document.
const IN_ARRAY: &str = "it has an array in the shard key of the collection";

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
