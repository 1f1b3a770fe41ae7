//! The collections that a rule is bound to: those that the catalog showed when it was planned, by their UUIDs.
//!
//! Where the server takes `collectionUUID`, every find, aggregation and delete of the rule names the collection that it is for.
//! Each fails with code 361 where the name belongs to another collection, or to none. Elsewhere the catalog is looked at again
//! ([`Deployment::change`]).

use std::sync::Arc;

use bson::{Uuid, doc};

use super::catalog;
use crate::core::plan::SweepRule;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Collections with the UUIDs that commands name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bound(Arc<[(Namespace, Uuid)]>);

impl Bound {
    /// Returns the UUID that a command for a collection names; `None` if it names none.
    pub(crate) fn uuid(&self, database: &str, collection: &str) -> Option<Uuid> {
        let is_it = |namespace: &Namespace| namespace.database == database && namespace.collection == collection;
        self.0.iter().find(|(namespace, _)| is_it(namespace)).map(|(_, uuid)| *uuid)
    }
}

/// The change of a collection that a rule is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoundChange {
    namespace: Namespace,
    /// The name that the collection has now; `None` if it is not in its database any more.
    now: Option<String>,
    /// Whether another collection, or a view, has the name.
    is_taken: bool,
}

impl BoundChange {
    /// Says what happened.
    pub(crate) fn said(&self) -> String {
        let Self { namespace, now, is_taken } = self;
        match (now, is_taken) {
            (None, false) => format!("`{namespace}` was dropped during the run"),
            (None, true) => format!("`{namespace}` was replaced by another collection during the run"),
            (Some(now), is_taken) => {
                let other = if *is_taken { ", and another collection has its name" } else { "" };
                format!("`{namespace}` was renamed to `{}.{now}` during the run{other}", namespace.database)
            }
        }
    }

    /// Whether another collection has the name.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken
    }
}

/// Returns the collections of a rule and the collections of its children, with the UUIDs that the plan knows.
pub(crate) fn collections(rule: &SweepRule) -> Vec<(Namespace, Option<Uuid>)> {
    let children = rule.family.iter().flat_map(|family| &family.children).map(|child| &child.rule.selection);
    [&rule.selection].into_iter().chain(children).map(|selection| (selection.namespace.clone(), selection.uuid)).collect()
}

impl Deployment {
    /// Returns the same deployment with its reads and deletes bound to the collections of a rule as well, if the server takes
    /// `collectionUUID`.
    pub(crate) fn bound_to(&self, rule: &SweepRule) -> Self {
        if !self.facts.takes_collection_uuids() {
            return self.clone();
        }
        let collections = collections(rule).into_iter().filter_map(|(namespace, uuid)| Some((namespace, uuid?)));
        let others = self.bound.0.iter().cloned();
        Self { bound: Bound(collections.chain(others).collect()), ..self.clone() }
    }

    /// Whether the commands for a collection name it by its UUID.
    pub(crate) fn is_bound(&self, Namespace { database, collection }: &Namespace) -> bool {
        self.bound.uuid(database, collection).is_some()
    }

    /// Does without `collectionUUID` if the server does not take it: there are services and proxies that announce a version which
    /// does. `namespace` is a collection that the user may read.
    pub(crate) async fn without_refused_uuids(mut self, namespace: &Namespace, uuid: Uuid) -> Self {
        if self.facts.takes_collection_uuids() {
            let bound = Self { bound: Bound([(namespace.clone(), uuid)].into()), ..self.clone() };
            let look = Query::find(namespace, doc! { "_id": { "$in": [] } }).limit(1).first_batch(&bound).await;
            let is_refused = |code: i32| codes::OF_FIELDS.contains(&code) || code == codes::COMMAND_NOT_SUPPORTED;
            self.facts.capabilities.collection_uuids = !look.is_err_and(|cause| cause.code().is_some_and(is_refused));
        }
        self
    }

    /// Looks whether a collection is still the one with this UUID; `None` if it is. Where the deployment shows no UUIDs, one that
    /// is there is the same.
    pub(crate) async fn change(&self, namespace: &Namespace, uuid: Option<Uuid>) -> Result<Option<BoundChange>> {
        let entry = catalog::entry(self, namespace).await?;
        let is_same = entry.as_ref().is_some_and(|entry| {
            let is_view = entry.get_str("type").is_ok_and(|kind| kind == "view");
            !is_view && (uuid.is_none() || catalog::uuid(entry) == uuid)
        });
        if is_same {
            return Ok(None);
        }
        let now = match uuid {
            // Without the new name the finding is the same.
            Some(uuid) => catalog::name_of(self, &namespace.database, uuid).await.unwrap_or_default(),
            None => None,
        };
        Ok(Some(BoundChange { namespace: namespace.clone(), now, is_taken: entry.is_some() }))
    }
}
