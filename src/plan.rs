//! Facts to decisions: what each rule will do in each namespace, or why it does nothing there. The same plan serves sweep, dry run and check.

mod archive;
pub mod buckets;
pub mod guard;
pub mod index;
mod native;

use bson::{DateTime, Document};

pub use guard::Refusal;
pub use native::NativeSetting;

use crate::approval::Approved;
use crate::expiry::Expiry;
use crate::facts::{CollectionFacts, Seen, ServerFacts, Target};
use crate::policy::namespace::Namespace;
use crate::policy::{DateFormat, Expect, Rule};
use index::IndexChoice;

use crate::flavor::Capabilities;

/// All decisions of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The instant the run calls now.
    pub as_of: DateTime,
    pub rules: Vec<PlannedRule>,
}

/// One rule in one namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRule {
    pub rule: Rule,
    pub namespace: Namespace,
    /// The TTL settings that the deployment itself has there; `None` where they were not looked at.
    pub native_ttl: Option<Vec<NativeSetting>>,
    /// The field with the date; `None` where the rule leaves it to a time-series collection, and none was seen.
    pub field: Option<String>,
    pub expiry: Expiry,
    pub decision: Decision,
    /// What a saved plan allows; `None` where the sweep goes by none.
    pub approved: Option<Approved>,
    /// Whatever a person should know that does not keep the rule from running.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Sweep(Selection),
    /// Nothing to do here; says why.
    Skip(String),
    /// A guard stands in the way; says which and what to do. Where the namespace can be counted all the same, a dry run does.
    Refuse {
        refusal: Refusal,
        countable: Option<Selection>,
    },
    /// The namespace could not be looked at.
    Fail {
        error: String,
    },
}

/// How the documents of a rule are found and deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    pub predicate: Document,
    /// The part of the predicate that says which documents the rule is about at all, expired or not: the rule's filter.
    pub filter: Option<Document>,
    pub collation: Option<Document>,
    /// Whether that collation is not the collection's own, so that it would loosen comparisons of string `_id`s.
    pub folds_ids: bool,
    /// `None`: every document of the collection is looked at, once.
    pub index: Option<IndexChoice>,
    /// Where the documents lie: the rule's namespace, or the buckets behind it.
    pub namespace: Namespace,
    pub storage: Storage,
    /// Paths of the shard key, which deletes by `_id` name so that they go to the shards that have the documents.
    pub shard_key: Vec<String>,
    pub document_count: u64,
    pub average_bytes: Option<f64>,
}

impl Selection {
    /// Whether the documents are the buckets of a time-series collection.
    pub fn is_buckets(&self) -> bool {
        matches!(self.storage, Storage::Buckets { .. })
    }
}

/// How a collection keeps its documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    Plain,
    /// In the order of the `_id`.
    Clustered,
    /// The buckets of a time-series collection, in the order of the `_id`, which is that of their dates.
    Buckets {
        /// Path of the dates of a bucket's measurements.
        measurements: String,
    },
}

/// What holds for the whole run.
pub struct RunFacts<'a> {
    pub server: &'a ServerFacts,
    pub expect: &'a Expect,
    pub as_of: DateTime,
    pub allow_clock_skew: bool,
}

/// Decides everything that can be decided without counting expired documents.
pub fn plan(run: &RunFacts, targets: Vec<Target>) -> Plan {
    let run_guard = guard::of_run(run);
    let rules = targets.into_iter().map(|target| plan_rule(run, target, run_guard.as_ref())).collect();
    Plan { as_of: run.as_of, rules }
}

fn plan_rule(run: &RunFacts, target: Target, run_guard: Option<&Refusal>) -> PlannedRule {
    let Target { rule, namespace, seen } = target;
    let mut warnings = Vec::new();
    let mut field = rule.field.clone();
    let mut expiry = expiry(run, &rule, &seen);
    let decision = match &seen {
        Seen::NotLookedFor => Decision::Skip("disabled in the policy".into()),
        Seen::Missing => {
            warnings.push(format!("no such namespace: `{namespace}`"));
            Decision::Skip("no such namespace".into())
        }
        Seen::View => {
            refuse("view", "a view holds no documents of its own; name the collection behind it, or put it under `exclude`")
        }
        Seen::TimeSeries(facts) => {
            field = Some(facts.time_field.clone());
            match buckets::select(&rule, &namespace, facts, run.as_of) {
                Err(refusal) => Decision::Refuse { refusal, countable: None },
                Ok((of_buckets, selection)) => {
                    expiry = of_buckets;
                    warnings.extend(unused(&rule, &run.server.capabilities));
                    warnings.extend(native::time_series_warning(facts));
                    match run_guard {
                        Some(refusal) => Decision::Refuse { refusal: refusal.clone(), countable: Some(selection) },
                        None => Decision::Sweep(selection),
                    }
                }
            }
        }
        Seen::Unreadable { error } => Decision::Fail { error: error.clone() },
        Seen::Collection(facts) if facts.capped => {
            refuse("capped", "a capped collection drops its oldest documents by itself; put it under `exclude`")
        }
        Seen::Collection(_) if rule.field.is_none() => {
            refuse("field", "only time-series collections have a field of their own for the date; name it with `field`")
        }
        Seen::Collection(_) if rule.collation.is_some() && !run.server.capabilities.collations => {
            refuse("collation", "deletes compare by no collation on this service; leave `collation` out")
        }
        Seen::Collection(facts) => {
            warnings.extend(unused(&rule, &run.server.capabilities));
            plan_collection(&rule, &namespace, &expiry, facts, run_guard, &mut warnings)
        }
    };
    let decision = match (decision, archive::refusal(&rule, &seen, &run.server.capabilities)) {
        (Decision::Sweep(selection), Some(refusal)) => Decision::Refuse { refusal, countable: Some(selection) },
        (decision, _) => decision,
    };
    PlannedRule { rule, namespace, native_ttl: native::settings(&seen), field, expiry, decision, approved: None, warnings }
}

fn expiry(run: &RunFacts, rule: &Rule, seen: &Seen) -> Expiry {
    let clustered = matches!(seen, Seen::Collection(facts) if facts.clustered);
    let is_id = rule.field.as_deref() == Some("_id");
    Expiry {
        field: rule.field.clone().unwrap_or_default(),
        format: rule.date_format.unwrap_or(if is_id && !clustered { DateFormat::ObjectId } else { DateFormat::Date }),
        expire_after_seconds: rule.expire_after_seconds,
        ttl_field: rule.ttl_field.clone(),
        not_before_1970: is_id && clustered && run.server.clustered_keeps_before_1970(),
        filter: rule.filter.clone(),
        as_of: run.as_of,
    }
}

fn refuse(guard: &'static str, detail: &str) -> Decision {
    Decision::Refuse { refusal: Refusal::new(guard, detail), countable: None }
}

fn plan_collection(
    rule: &Rule,
    namespace: &Namespace,
    expiry: &Expiry,
    facts: &CollectionFacts,
    run_guard: Option<&Refusal>,
    warnings: &mut Vec<String>,
) -> Decision {
    let field = &expiry.field;
    if facts.document_count > 0 {
        warnings.extend(native::warning(field, facts));
    }
    let selection = |index| Selection {
        predicate: expiry.predicate(),
        filter: rule.filter.clone(),
        collation: rule.collation.clone(),
        folds_ids: rule.collation.is_some() && !index::is_same_collation(rule.collation.as_ref(), facts.collation.as_ref()),
        index,
        namespace: namespace.clone(),
        shard_key: facts.shard_key.clone(),
        storage: if facts.clustered { Storage::Clustered } else { Storage::Plain },
        document_count: facts.document_count,
        average_bytes: facts.average_bytes,
    };
    let index = match index::choose(rule, field, facts) {
        Ok(index) => index,
        Err(reason) => {
            return Decision::Refuse { refusal: Refusal::new("hint", reason), countable: Some(selection(None)) };
        }
    };
    if let Some(refusal) = run_guard {
        return Decision::Refuse { refusal: refusal.clone(), countable: Some(selection(index)) };
    }
    if let Some(refusal) = guard::scan(rule, namespace, field, index.as_ref(), facts) {
        return Decision::Refuse { refusal, countable: Some(selection(None)) };
    }
    Decision::Sweep(selection(index))
}

/// The command of mongosh that makes the index that serves a field.
pub fn create_index(namespace: &Namespace, field: &str) -> String {
    let Namespace { database, collection } = namespace;
    format!("db.getSiblingDB({database:?}).getCollection({collection:?}).createIndex({{{field:?}: 1}})")
}

/// Warns of what the rule asks for and this deployment does not have.
fn unused(rule: &Rule, capabilities: &Capabilities) -> Vec<String> {
    let mut unused = Vec::new();
    if rule.max_request_units.is_some() && !capabilities.request_charge {
        unused.push("`maxRequestUnits` is for Azure Cosmos DB (RU) and has no effect here".into());
    }
    if rule.max_lag.is_some() && !capabilities.member_status {
        unused.push("`maxLag` is for replica sets and has no effect here: the service does not show its members".into());
    }
    if rule.batch_size > capabilities.largest_batch {
        unused.push(format!(
            "`batchSize`: batches of more than {} documents are not sent to this service",
            capabilities.largest_batch
        ));
    }
    unused
}
