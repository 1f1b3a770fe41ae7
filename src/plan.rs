//! Facts to decisions: what each rule will do in each namespace, or why it does nothing there. The same plan serves sweep, dry run and check.

use bson::{DateTime, Document};

use crate::expiry::Expiry;
use crate::facts::{CollectionFacts, Seen, ServerFacts, Target};
use crate::index::{self, IndexChoice};
use crate::policy::namespace::Namespace;
use crate::policy::{DateFormat, Expect, Rule};

/// More documents than this are gone through without an index only where the rule allows it.
pub const SCAN_GUARD_DOCUMENTS: u64 = 1_000_000;

/// Clocks of client and server further apart than this stop a sweep, in milliseconds.
pub const CLOCK_SKEW_GUARD_MS: i64 = 300_000;

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
    pub expiry: Expiry,
    pub decision: Decision,
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

/// Why a guard does not let a rule run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One word for machines: the guard.
    pub guard: &'static str,
    /// What was found, what was expected and what to do.
    pub detail: String,
}

impl Refusal {
    fn new(guard: &'static str, detail: impl Into<String>) -> Self {
        Self { guard, detail: detail.into() }
    }
}

/// How the documents of a rule are found and deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    pub predicate: Document,
    pub collation: Option<Document>,
    /// Whether that collation is not the collection's own, so that it would loosen comparisons of string `_id`s.
    pub folds_ids: bool,
    /// `None`: every document of the collection is looked at, once.
    pub index: Option<IndexChoice>,
    pub clustered: bool,
    pub document_count: u64,
    pub average_bytes: Option<f64>,
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
    let run_guard = run_guard(run);
    let rules = targets.into_iter().map(|target| plan_rule(run, target, run_guard.as_ref())).collect();
    Plan { as_of: run.as_of, rules }
}

/// Says why nothing at all may be deleted in this run.
fn run_guard(run: &RunFacts) -> Option<Refusal> {
    if let Some(reason) = run.server.unexpected(run.expect) {
        return Some(Refusal::new("expect", reason));
    }
    let ahead = run.as_of.timestamp_millis() - run.server.local_time.timestamp_millis();
    if ahead > 0 {
        return Some(Refusal::new(
            "asOf",
            format!("`--as-of` is later than the server's clock, by {ahead} ms; expected an earlier instant"),
        ));
    }
    let skew = run.server.clock_skew_ms;
    if skew.abs() > CLOCK_SKEW_GUARD_MS && !run.allow_clock_skew {
        return Some(Refusal::new(
            "clock",
            format!(
                "the clocks of this machine and of the server are {} s apart, {} s are allowed; set the wrong one, or pass `--allow-clock-skew`: the server's clock decides",
                skew.abs() / 1000,
                CLOCK_SKEW_GUARD_MS / 1000
            ),
        ));
    }
    None
}

fn plan_rule(run: &RunFacts, target: Target, run_guard: Option<&Refusal>) -> PlannedRule {
    let Target { rule, namespace, seen } = target;
    let facts = if let Seen::Collection(facts) = &seen { Some(facts) } else { None };
    let clustered = facts.is_some_and(|facts| facts.clustered);
    let is_id = rule.field == "_id";
    let format = rule.date_format.unwrap_or(if is_id && !clustered { DateFormat::ObjectId } else { DateFormat::Date });
    let expiry = Expiry {
        field: rule.field.clone(),
        format,
        expire_after_seconds: rule.expire_after_seconds,
        ttl_field: rule.ttl_field.clone(),
        not_before_1970: is_id && clustered && run.server.clustered_keeps_before_1970(),
        filter: rule.filter.clone(),
        as_of: run.as_of,
    };
    let mut warnings = Vec::new();
    let decision = match &seen {
        Seen::NotLookedFor => Decision::Skip("disabled in the policy".into()),
        Seen::Missing => {
            warnings.push(format!("no such namespace: `{namespace}`"));
            Decision::Skip("no such namespace".into())
        }
        Seen::View => {
            refuse("view", "a view holds no documents of its own; name the collection behind it, or put it under `exclude`")
        }
        Seen::TimeSeries => {
            refuse("timeSeries", "time-series collections are not yet supported by this version; put it under `exclude`")
        }
        Seen::Unreadable { error } => Decision::Fail { error: error.clone() },
        Seen::Collection(facts) if facts.capped => {
            refuse("capped", "a capped collection drops its oldest documents by itself; put it under `exclude`")
        }
        Seen::Collection(facts) => plan_collection(&rule, &namespace, &expiry, facts, run_guard, &mut warnings),
    };
    PlannedRule { rule, namespace, expiry, decision, warnings }
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
    if rule.max_request_units.is_some() {
        warnings.push("`maxRequestUnits` is for Azure Cosmos DB (RU) and has no effect here".into());
    }
    if facts.document_count > 0 {
        warnings.extend(native_ttl(rule, facts));
    }
    let selection = |index| Selection {
        predicate: expiry.predicate(),
        collation: rule.collation.clone(),
        folds_ids: rule.collation.is_some() && !index::is_same_collation(rule.collation.as_ref(), facts.collation.as_ref()),
        index,
        clustered: facts.clustered,
        document_count: facts.document_count,
        average_bytes: facts.average_bytes,
    };
    let index = match index::choose(rule, facts) {
        Ok(index) => index,
        Err(reason) => {
            return Decision::Refuse { refusal: Refusal::new("hint", reason), countable: Some(selection(None)) };
        }
    };
    if let Some(refusal) = run_guard {
        return Decision::Refuse { refusal: refusal.clone(), countable: Some(selection(index)) };
    }
    if !index.as_ref().is_some_and(|index| index.bounded)
        && facts.document_count > SCAN_GUARD_DOCUMENTS
        && !rule.allow_collection_scan
    {
        let detail = format!(
            "no index serves `{field}`, and the collection has {count} documents; at most {SCAN_GUARD_DOCUMENTS} are gone through without one; \
             create it: db.getSiblingDB({database:?}).getCollection({collection:?}).createIndex({{{field:?}: 1}}), or set `allowCollectionScan: true`",
            field = rule.field,
            count = facts.document_count,
            database = namespace.database,
            collection = namespace.collection,
        );
        return Decision::Refuse { refusal: Refusal::new("collectionScan", detail), countable: Some(selection(None)) };
    }
    Decision::Sweep(selection(index))
}

/// Warns of a native TTL index on the same field: the server deletes there as well.
fn native_ttl(rule: &Rule, facts: &CollectionFacts) -> Option<String> {
    let index = facts
        .indexes
        .iter()
        .find(|index| index.expire_after_seconds.is_some() && index.key.len() == 1 && index.key[0].0 == rule.field)?;
    let seconds = index.expire_after_seconds.as_ref()?;
    Some(format!("the TTL index `{}` (expireAfterSeconds {seconds}) deletes from this collection as well", index.name))
}

/// Refuses a rule whose expired documents are too great a share of the collection.
///
/// `document_count` is the collection's own count; an expired count above it makes the share 100 %.
pub fn share_guard(rule: &Rule, expired_count: u64, document_count: u64) -> Option<Refusal> {
    let limit = rule.max_delete_percent?;
    let percent = percent(expired_count, document_count)?;
    (percent > limit).then(|| {
        Refusal::new(
            "maxDeletePercent",
            format!(
                "{expired_count} of {document_count} documents have expired, {percent:.2} %, and {limit} % may be deleted; \
             raise `maxDeletePercent` if that is intended"
            ),
        )
    })
}

/// The share in percent; `None` of an empty collection without expired documents.
pub fn percent(expired_count: u64, document_count: u64) -> Option<f64> {
    match document_count.max(expired_count) {
        0 => None,
        whole => Some(expired_count as f64 * 100.0 / whole as f64),
    }
}
