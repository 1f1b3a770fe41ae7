//! Turns facts into decisions: whether each rule may sweep each of its namespaces, and why not. Sweep, dry run, audit and check
//! share one plan.

mod archive;
pub mod buckets;
pub(crate) mod by_period;
mod collection;
pub mod estimate;
pub mod family;
pub mod fields;
pub mod findings;
pub mod guard;
pub mod holds;
pub mod index;
pub mod judgement;
pub mod keys;
mod native;
pub mod oplog;
pub mod order;
pub mod orphans;
pub mod outcome;
pub mod periods;
pub mod reason;
pub mod selection;
#[cfg(test)]
mod tests;
pub mod verdict;
pub mod waits;

use bson::{DateTime, Document, doc};

pub use family::{ChildRule, Family, ParentKey};
use findings::ReadKeys;
pub use guard::{Approved, Guard, Refusal};
pub use orphans::{OldOrphans, OrphanLimits};
pub use reason::{Reason, SkipReason, Status, StopReason};
pub use selection::{Selection, Storage};

use crate::core::expiry::{self, Expiry};
use crate::core::facts::{Collection, CollectionKind, NamespaceFacts, ServerFacts, Target, Topology};
use crate::core::flavor::Capabilities;
use crate::core::policy::ArchiveTo;
use crate::core::policy::limits::Limits;
use crate::core::policy::namespace::Namespace;
use crate::core::policy::relative::RelativeDate;
use crate::core::policy::{Expect, Order, Rule};

/// All decisions of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The instant at which the run judges expiry.
    pub as_of: DateTime,
    pub rules: Vec<PlannedRule>,
    /// Whether a rule is refused for any field that no document is found to have.
    pub strict: bool,
}

/// One rule in one namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRule {
    pub rule: Rule,
    pub namespace: Namespace,
    /// The collection as it was seen; `None` if it was not looked for, is missing or could not be read.
    pub collection: Option<Box<Collection>>,
    /// The field with the date; `None` if the rule relies on the collection being a time-series collection, and none was seen.
    pub field: Option<String>,
    /// The instant at or before which a date has expired; `None` if only documents with a ttl of their own expire.
    pub threshold: Option<DateTime>,
    /// The relative dates in the filters of the policy's rule, with the dates that the filters of `rule` have in their place.
    pub relative_dates: Vec<RelativeDate>,
    pub decision: Decision,
    /// Warnings, which do not keep the rule from running.
    pub warnings: Vec<String>,
}

/// The plan's verdict on one rule in one namespace.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// The rule may delete.
    Sweep(SweepRule),
    /// The rule has nothing to do here.
    Skip(SkipReason),
    /// A guard forbids the sweep. A dry run still counts a `countable` namespace.
    Refuse { refusal: Refusal, countable: Option<SweepRule> },
    /// The namespace could not be examined, for this reason.
    Fail(String),
}

impl Decision {
    /// Returns the rule that may be swept.
    pub fn swept(&self) -> Option<&SweepRule> {
        match self {
            Self::Sweep(rule) => Some(rule),
            Self::Skip(_) | Self::Refuse { .. } | Self::Fail(_) => None,
        }
    }

    /// Returns the rule to count: one that may be swept, or one that a guard refuses although its documents can be counted.
    pub fn countable(&self) -> Option<&SweepRule> {
        match self {
            Self::Sweep(rule) => Some(rule),
            Self::Refuse { countable, .. } => countable.as_ref(),
            Self::Skip(_) | Self::Fail(_) => None,
        }
    }
}

/// A rule bound to one namespace: all that counting and sweeping need.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRule {
    /// The rule's name in the policy.
    pub name: String,
    /// The namespace as the policy names it; the namespace of the selection holds the documents.
    pub namespace: Namespace,
    pub selection: Selection,
    pub expiry: Expiry,
    /// The limits of the policy; an approval may lower the limit of the deletes.
    pub limits: Limits,
    pub sizes: Sizes,
    /// The index that a query for the oldest document walks, as `maxHeadMs` asks; `None` if no index serves that query.
    pub head_index: Option<String>,
    /// The destination of documents before they are deleted; `None` if they are not archived.
    pub archive: Option<ArchiveTo>,
    /// The approval of a saved plan; `None` if the run does not follow one.
    pub approved: Option<Approved>,
    /// The children of its documents; `None` if the rule names none.
    pub family: Option<Family>,
}

impl SweepRule {
    /// Tells whether the documents have to be found before they are deleted where a service bills what it loads. They have to
    /// if the rule has a limit that a delete of an unknown number of documents cannot keep. They also have to if the collection
    /// is sharded, so that a delete has to name the key.
    pub fn finds_first(&self) -> bool {
        let Limits { rate, max_request_units, max_deletes, .. } = self.limits;
        let is_limited = rate.is_some() || max_request_units.is_some() || max_deletes.is_some();
        is_limited || self.archive.is_some() || !self.selection.shard_key.is_empty()
    }

    /// Returns the number of batches that may be in flight under these limits. With an archive it is one more by default, because
    /// one of them is nearly always being written there.
    pub fn concurrency(&self, limits: &Limits, capabilities: &Capabilities) -> u32 {
        let of_service = capabilities.concurrency;
        match limits.concurrency {
            // Requests go one after another, and the next stretch follows from the cost of the last one.
            _ if capabilities.request_charge => 1,
            None if self.archive.is_some() && of_service > 1 => of_service + 1,
            concurrency => concurrency.unwrap_or(of_service),
        }
    }

    /// Returns the rule with the keys of holds and periods, as far as they were read. What can have expired by the shortest
    /// period is selected from then on.
    pub fn with_keys(&self, read: &ReadKeys) -> Self {
        let mut rule = self.clone();
        if let (Some(holds), Some(keys)) = (&mut rule.selection.holds, &read.holds) {
            *holds = holds.with(keys);
        }
        let Some((periods, keys)) = rule.selection.periods.as_ref().zip(read.periods.as_ref()) else { return rule };
        let mut periods = periods.with(keys);
        if let Some(of_rule) = &mut periods.periods {
            let own = of_rule.expiry.expire_after_seconds;
            of_rule.shortest = keys.periods.as_ref().and_then(|keys| keys.shortest(own));
            // Beyond the longest time of a rule the condition of the periods decides.
            let seconds = of_rule.shortest.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
            rule.expiry.expire_after_seconds = seconds;
            if let Storage::Buckets { measurements } = &rule.selection.storage {
                let time_field = measurements.trim_start_matches("data.");
                let terms = buckets::terms(rule.expiry.as_of, seconds, time_field, rule.selection.filter.as_ref());
                rule.expiry.filter = Some(terms);
            }
            rule.selection.predicate = rule.expiry.predicate();
        }
        rule.selection.periods = Some(periods);
        rule
    }

    /// Returns the rule as if it had neither holds nor periods, to count what it means but may not delete.
    pub fn without_keys(&self) -> Self {
        Self { selection: Selection { holds: None, periods: None, ..self.selection.clone() }, ..self.clone() }
    }

    /// Returns the filter that the policy gives the rule.
    pub fn own_filter(&self) -> Option<&Document> {
        self.family.as_ref().map_or(self.selection.filter.as_ref(), |family| family.filter.as_ref())
    }

    /// Returns the predicate for documents that would be deleted, but stay because it is unclear which children they have; `None`
    /// if it is always clear.
    pub fn of_unclear_key(&self) -> Option<Document> {
        let one_key = self.family.as_ref().and_then(Family::one_key)?;
        let filter: Vec<Document> = self.own_filter().cloned().into_iter().chain([doc! { "$nor": [one_key] }]).collect();
        Some(Expiry { filter: Some(doc! { "$and": filter }), ..self.expiry.clone() }.predicate())
    }

    fn new(rule: &Rule, namespace: &Namespace, expiry: Expiry, selection: Selection, capabilities: &Capabilities) -> Self {
        Self {
            name: rule.name.clone(),
            namespace: namespace.clone(),
            sizes: Sizes::of(&rule.limits, &selection, capabilities),
            selection,
            expiry,
            limits: rule.limits.clone(),
            head_index: None,
            archive: rule.archive.clone(),
            approved: None,
            family: None,
        }
    }
}

/// The sizes of a rule's batches, as far as the flavor takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Maximum number of documents per delete command.
    pub batch: u32,
    /// Maximum number of documents that a delete command goes through along the storage, those that stay included.
    pub range: u32,
}

impl Sizes {
    /// Returns the sizes for a selection under the limits of its rule.
    pub(crate) fn of(limits: &Limits, selection: &Selection, capabilities: &Capabilities) -> Self {
        let at_most = |times: u32| {
            let size = limits.batch_size.unwrap_or(capabilities.default_batch * times);
            size.min(capabilities.largest_batch)
        };
        // A batch that carries the keys of all holds or periods costs as much for them as for many documents. One that goes to
        // several shards is divided among them.
        let is_large = selection.has_keys() || !selection.shard_key.is_empty();
        Self { batch: at_most(if is_large { 4 } else { 1 }), range: at_most(4) }
    }
}

/// Facts and options that hold for the whole run.
pub struct RunFacts<'a> {
    pub server: &'a ServerFacts,
    pub expect: &'a Expect,
    pub as_of: DateTime,
    pub allow_clock_skew: bool,
    /// Whether a namespace that does not exist, or a field that no document has, is a refusal and not a warning.
    pub strict: bool,
}

/// Decides everything that can be decided without counting expired documents. Keeps the order of the targets.
pub fn plan(run: &RunFacts, targets: Vec<Target>) -> Plan {
    let run_refusal = guard::of_run(run);
    let rules = targets.into_iter().map(|target| plan_rule(run, target, run_refusal.as_ref())).collect();
    Plan { as_of: run.as_of, rules, strict: run.strict }
}

fn plan_rule(run: &RunFacts, mut target: Target, run_refusal: Option<&Refusal>) -> PlannedRule {
    let relative_dates = target.rule.fix_relative_dates(run.as_of);
    let decision = decide(run, &target, run_refusal);
    let warnings = warnings(run, &target, &decision);
    let Target { rule, namespace, seen, .. } = target;
    let collection = if let NamespaceFacts::Collection(collection, _) = seen { Some(collection) } else { None };
    PlannedRule {
        field: match collection.as_ref().map(|collection| &collection.kind) {
            Some(CollectionKind::TimeSeries(series)) => Some(series.time_field.clone()),
            _ => rule.field.clone(),
        },
        collection,
        threshold: expiry::threshold(run.as_of, rule.expire_after_seconds),
        relative_dates,
        rule,
        namespace,
        decision,
        warnings,
    }
}

/// Decides on one namespace. A namespace without documents of its own is not even counted; otherwise the first guard that objects
/// decides.
fn decide(run: &RunFacts, target: &Target, run_refusal: Option<&Refusal>) -> Decision {
    let Target { rule, namespace, seen, children } = target;
    let (collection, figures) = match seen {
        NamespaceFacts::NotLookedFor => return Decision::Skip(SkipReason::Disabled),
        NamespaceFacts::Missing if run.strict => {
            return Decision::Refuse { refusal: guard::no_such_namespace(namespace), countable: None };
        }
        NamespaceFacts::Missing if rule.family.as_ref().is_some_and(|family| family.orphans) => {
            return Decision::Refuse { refusal: orphans::no_collection(namespace), countable: None };
        }
        NamespaceFacts::Missing => return Decision::Skip(SkipReason::NoSuchNamespace),
        NamespaceFacts::Unreadable { error } => return Decision::Fail(error.clone()),
        NamespaceFacts::Collection(collection, figures) => (collection, figures),
    };
    let bound = match &collection.kind {
        CollectionKind::View => Err(Refusal::new(
            Guard::View,
            "a view holds no documents of its own; name the collection behind it, or put it under `exclude`",
        )),
        CollectionKind::Capped => {
            Err(Refusal::new(Guard::Capped, "a capped collection drops its oldest documents by itself; put it under `exclude`"))
        }
        CollectionKind::TimeSeries(series) => {
            buckets::select(rule, namespace, series, figures, run.as_of).map(|(expiry, selection)| {
                (SweepRule::new(rule, namespace, expiry, selection, &run.server.capabilities), run_refusal.cloned())
            })
        }
        CollectionKind::Plain | CollectionKind::Clustered | CollectionKind::CosmosRu => {
            collection::bind(run, rule, collection, figures, run_refusal)
        }
    };
    match bound {
        Err(refusal) => Decision::Refuse { refusal, countable: None },
        Ok((sweep, refusal)) => {
            let family = family::bind(run.server, rule, &sweep, collection, children);
            let refusal = refusal.or_else(|| archive::refusal(rule, collection, &run.server.capabilities));
            match (refusal, family) {
                (Some(refusal), _) | (None, Err(refusal)) => Decision::Refuse { refusal, countable: Some(sweep) },
                (None, Ok(family)) => Decision::Sweep(SweepRule { family, ..sweep }),
            }
        }
    }
}

/// Returns the warnings about a namespace. They say that it is missing or, if its documents can be counted, that something else
/// expires them too or a key of the rule has no effect.
fn warnings(run: &RunFacts, target: &Target, decision: &Decision) -> Vec<String> {
    let Target { rule, namespace, seen, .. } = target;
    if *seen == NamespaceFacts::Missing && !run.strict {
        return vec![format!("no such namespace: `{namespace}`")];
    }
    let (NamespaceFacts::Collection(collection, figures), Some(sweep)) = (seen, decision.countable()) else { return Vec::new() };
    let field = match &collection.kind {
        CollectionKind::TimeSeries(series) => &series.time_field,
        _ => &sweep.expiry.field,
    };
    // The server's own TTL deletes nothing from an empty collection; a time-series collection has no count if its buckets are not
    // shown.
    let is_empty = figures.document_count == 0 && !sweep.selection.is_buckets();
    let native = if is_empty { Vec::new() } else { native::warnings(field, collection, run.server) };
    let orphaned = rule.family.is_some() && !is_empty && native::deletes_any(collection, run.server);
    let orphaned = orphaned.then(|| {
        "native TTL deletes documents here as well, and leaves their children behind: drop the TTL index, or index the field without \
         expireAfterSeconds"
            .to_owned()
    });
    let held = (rule.holds.is_some() && !is_empty && native::deletes(field, collection, run.server))
        .then(|| "`holds` keeps documents only from sweeper: the server's own TTL deletes what is held as well".to_owned());
    let unaimed = figures.shard_key_unknown.as_ref().filter(|_| !is_empty).map(|why| {
        let twins = "; if `_id`s are there on several shards, documents that were archived may stay";
        let twins = if sweep.archive.is_some() { twins } else { "" };
        format!("its shard key is not known, so that each batch goes to all shards{twins}: {why}")
    });
    let unused = unused(rule, sweep, run.server);
    unused.into_iter().chain(unaimed).chain(native).chain(orphaned).chain(held).collect()
}

/// Returns warnings about keys of a rule that have no effect on this deployment.
fn unused(rule: &Rule, sweep: &SweepRule, server: &ServerFacts) -> Vec<String> {
    let (capabilities, mut unused) = (&server.capabilities, Vec::new());
    if rule.order == Order::Storage && server.topology == Topology::Sharded && sweep.selection.index.is_some() {
        unused.push("`order: storage` has no effect here: each shard has a storage of its own, and the oldest go first".into());
    }
    if rule.limits.max_request_units.is_some() && !capabilities.request_charge {
        unused.push("`maxRequestUnits` is for Azure Cosmos DB (RU) and has no effect here".into());
    }
    if rule.limits.max_lag.is_some() && !capabilities.member_status {
        unused.push("`maxLag` is for replica sets and has no effect here: the service does not show its members".into());
    }
    if rule.limits.min_oplog_window.is_some() && !capabilities.member_status {
        unused.push("`minOplogWindow` is for replica sets and has no effect here: the service has no oplog".into());
    }
    if rule.limits.max_dirty.is_some() && !capabilities.server_load {
        unused.push("`maxDirty` is for MongoDB and has no effect here: the service does not show the load of its storage".into());
    }
    if rule.limits.max_head.is_some() && sweep.head_index.is_none() {
        unused.push(if !capabilities.sorts {
            "`maxHeadMs` is for MongoDB and has no effect here: the service does not sort by an index".into()
        } else if sweep.selection.is_buckets() {
            "`maxHeadMs` has no effect here: a time-series collection is swept by its buckets".into()
        } else {
            let field = &sweep.expiry.field;
            format!("`maxHeadMs` has no effect here: no index begins with `{field}` and holds every document")
        });
    }
    if rule.limits.concurrency.is_some_and(|concurrency| concurrency > 1) && capabilities.request_charge {
        unused.push(
            "`concurrency` has no effect here: requests go one after another over one connection, because the service shows the cost of only \
             the last request on a connection"
                .into(),
        );
    }
    if rule.limits.batch_size.is_some_and(|size| size > capabilities.largest_batch) {
        unused.push(format!(
            "`batchSize`: batches of more than {} documents are not sent to this service",
            capabilities.largest_batch
        ));
    }
    unused
}

/// Returns the command of mongosh that creates the index that serves a field.
pub fn create_index(namespace: &Namespace, field: &str) -> String {
    let Namespace { database, collection } = namespace;
    format!("db.getSiblingDB({database:?}).getCollection({collection:?}).createIndex({{{field:?}: 1}})")
}
