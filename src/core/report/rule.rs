//! Report of one rule in one namespace.

mod relative;
mod strategy;
#[cfg(test)]
mod tests;
mod warnings;

use std::collections::BTreeMap;

use bson::Bson;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::native_ttl::{self, NativeSetting};
use super::orphans;
use crate::base::instant::Instant;
use crate::base::text::{clean, count, percent, sha256, without_os_numbers};
use crate::core::audit::figures::{AuditReport, NEVER_EXPIRES_REASONS};
use crate::core::plan::Status;
use crate::core::plan::estimate::Estimate;
use crate::core::plan::findings::{CountedOrphans, Findings, Remaining};
use crate::core::plan::outcome::{Children, HeldDocuments, RuleOutcome, Swept};
use crate::core::plan::verdict::Verdict;
use crate::core::plan::waits::PausedMs;
use crate::core::plan::{Decision, Family, PlannedRule, Reason, Selection, StopReason};
use crate::core::policy::{Rule, Variable};
pub use relative::RelativeDateReport;
pub use strategy::{DeleteOrder, Strategy};

/// One rule in one namespace. A value that was not measured is null.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "rule")]
pub struct RuleReport {
    pub name: String,
    pub namespace: String,
    /// Null if the rule takes the timeField of a time-series collection and no server was asked.
    pub field: Option<String>,
    /// Seconds after the date at which a document expires; -1: only documents with a ttl or a period of their own expire.
    #[schemars(range(min = -1, max = 2_147_483_647))]
    pub expire_after_seconds: i64,
    pub ttl_field: Option<String>,
    /// Dates at or before this instant have expired, but for documents with a ttl or a period of their own. Null if only those
    /// expire, or no server was asked.
    pub threshold: Option<Instant>,
    /// The relative dates in the filters of the rule and of its holds, with the dates that they stand for. Null if the filters
    /// have none, or no server was asked.
    pub relative_dates: Option<Vec<RelativeDateReport>>,
    /// Condition that a document must match to be deleted, as relaxed Extended JSON; null if nothing could be deleted. Holds are
    /// left out, and the times of periods, in whose place it has the rule's own.
    #[schemars(extend("type" = ["object", "null"]))]
    pub predicate: Option<Value>,
    pub status: Status,
    /// The limit (maxDeletes, maxDuration, window, interrupted, stopFile), the lost lease (lockLost), documents that may be left
    /// on shards (missed), or the guard (lock: another run has the lease; unknownField, unknownType, maxDeletePercent,
    /// minOplogWindow, collectionScan, clock, expect, plan, asOf, hint, noSuchNamespace, view, capped, timeSeries, field,
    /// collation, archive, children, holds, periods) that decided the status; for a skipped rule a sentence.
    pub reason: Option<Reason>,
    /// Expired documents without a hold, counted by a query before the first delete. In a time-series collection this and every
    /// other count is of buckets.
    pub expired_count: Option<u64>,
    /// Collection of the holds; null if the rule has none.
    pub holds: Option<String>,
    /// Expired documents that holds keep, counted before the first delete or, where nothing was counted then, after a sweep that
    /// was complete. Null if the rule has no holds, or they were not counted.
    pub held_count: Option<u64>,
    /// The keys that keep most of them, the most first; at most five.
    pub held_by: Option<Vec<HeldBy>>,
    /// Collection of the periods; null if the rule has none.
    pub periods: Option<String>,
    /// Documents that have expired by the shortest period and stay, because their own period is no whole number above 0, or
    /// documents of `periods` differ. Null if the rule has no periods, or they were not counted.
    pub unclear_period_count: Option<u64>,
    /// The keys of such periods that keep most of them, the most first; at most five.
    pub unclear_periods: Option<Vec<HeldBy>>,
    /// Measurements in the expired buckets of a time-series collection.
    pub expired_measurements: Option<u64>,
    /// Documents that one sweep deletes at most, known before it: those that have expired, within `maxDeletes`, of the rule and
    /// of the run, and the `window`. Null where nothing may be swept, not all expired documents were counted, or the sweep is
    /// over.
    pub would_delete_count: Option<u64>,
    /// The limit that keeps it below `expiredCount`, or the orphans below `oldOrphanCount`: maxDeletes or window.
    pub would_delete_limit: Option<StopReason>,
    /// Expired documents that the saved plan approved. Null without one.
    pub approved_count: Option<u64>,
    /// Deleted documents, summed from the server's replies.
    pub deleted_count: u64,
    /// Whether a reply was lost: deletedCount, and childrenDeletedCount, is then a lower bound.
    pub uncertain: bool,
    /// Documents that were deleted on the primary but that no majority of the members had confirmed when the sweep ended: a
    /// fail-over may bring them back, or has. Null where nothing was swept.
    pub unconfirmed_count: Option<u64>,
    /// Expired documents that the run left; a dry run and an audit leave all. Null if that is unknown: in a check, for a skipped
    /// rule, after a limit without an index, or where other rules deleted in the same collection. Null as well if neither metrics
    /// nor a history were to record it.
    pub remaining_count: Option<u64>,
    /// The earliest date of any document that remains.
    pub oldest_remaining: Option<Instant>,
    /// Documents that were written to the archive before they were deleted; at least deletedCount. Null if the rule has no
    /// archive, or nothing was swept.
    pub archived_count: Option<u64>,
    /// The run's directory to which documents were archived; for a rule that was not swept, the directory that the policy names.
    /// Null if the rule has no archive, or its sweep archived neither documents nor children.
    pub archive: Option<String>,
    /// Collections of the children. Null if the rule has none, or no server was asked.
    pub child_namespaces: Option<Vec<String>>,
    /// Children of the expired documents, counted before the first delete. Null if the rule has no children, or they were not
    /// counted.
    pub children_count: Option<u64>,
    /// Deleted children, summed from the server's replies; not part of deletedCount. Null if the rule has no children, or nothing
    /// was swept.
    pub children_deleted_count: Option<u64>,
    /// Orphans among the deleted children: they were without a parent before the sweep. Null if the rule has no children, or
    /// nothing was swept.
    pub orphans_deleted_count: Option<u64>,
    /// Documents in the collections of children whose parent is not there, an upload that has not ended among them. Null if the
    /// rule has no children, or they were not counted: without `orphans: true` only an audit counts them.
    pub orphan_count: Option<u64>,
    /// Orphans that the rule deletes (`orphans: true`): every child of their parent has an ObjectId older than a day. Null if it
    /// deletes none, or they were not counted.
    pub old_orphan_count: Option<u64>,
    /// Orphans that one sweep deletes at most, known before it: within what the documents of the rule leave of `maxDeletes`, and
    /// within the `window`. Null where nothing may be swept, they were not counted, or the sweep is over.
    pub would_delete_orphan_count: Option<u64>,
    /// Documents in the collection by its own count, before the first delete.
    pub document_count: Option<u64>,
    #[schemars(range(min = 0, max = 100))]
    pub expired_percent: Option<f64>,
    pub oldest_expired: Option<Instant>,
    /// Expired documents times the mean size of a document.
    pub estimated_bytes: Option<u64>,
    /// Documents that never expire by the rule, by reason: those that look as if they were meant to expire, or in an audit all of
    /// them, each with one reason. Null if they were not looked for.
    #[schemars(extend("propertyNames" = { "enum": NEVER_EXPIRES_REASONS }))]
    pub never_expires: Option<BTreeMap<String, u64>>,
    /// Delete commands that were sent.
    pub batches: u64,
    /// Deliberate pauses by reason; null if nothing was swept.
    pub paused_ms: Option<PausedMs>,
    /// Figures of the server's load that were unknown during the sweep, and the reason; if it was all of them, the sweep went by
    /// the latency only. Null if nothing was unknown, or nothing was swept.
    pub pressure_unknown: Option<String>,
    /// Cost of everything that the run asked for the rule: the look at the collection, counts, sweep. Null where the service
    /// bills nothing.
    #[schemars(range(min = 0))]
    pub request_units: Option<f64>,
    /// Request units that the sweep costs, estimated from the count before it. Null where the service bills nothing, or not all
    /// expired documents were counted, or the rule is refused.
    #[schemars(range(min = 0))]
    pub estimated_request_units: Option<f64>,
    /// Seconds that these units take at `maxRequestUnits` or the throughput of the collection, the lower of both. Null where
    /// neither is known.
    #[schemars(range(min = 0))]
    pub estimated_seconds: Option<f64>,
    /// The estimate of the sweep, made before it. Null where the expired documents were not all counted, or the rule is refused.
    pub estimate: Option<Estimate>,
    pub duration_ms: u64,
    /// The deployment's own TTL settings of the collection; null if they were not looked at.
    pub native_ttl: Option<Vec<NativeSetting>>,
    pub strategy: Option<Strategy>,
    pub index: Option<String>,
    /// Order of the deletes. Null on a service other than MongoDB, where the policy names the index, and where a sweep found
    /// nothing to delete.
    pub order: Option<DeleteOrder>,
    /// Reason for the order.
    pub order_reason: Option<String>,
    /// Bytes that the server wrote from its cache during the sweep, including for other clients, per deleted document. Null if it
    /// does not tell, or the collection is small.
    #[schemars(range(min = 0))]
    pub written_bytes_per_document: Option<f64>,
    pub warnings: Vec<String>,
    pub error: Option<String>,
    /// Figures of an audit, among the other keys of the rule.
    #[serde(flatten)]
    pub audit: Option<AuditReport>,
}

/// A key that holds keep documents by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "heldBy")]
pub struct HeldBy {
    /// The value in the documents, as relaxed Extended JSON.
    pub key: Value,
    /// Expired documents with this value.
    pub count: u64,
}

impl RuleReport {
    /// Returns the share of the collection that has expired, in percent and not rounded, as the sums over several rules have it.
    pub fn share(&self) -> Option<f64> {
        percent(self.expired_count?, self.document_count?)
    }

    /// Whether a sweep may delete documents or orphans by the rule, as far as a dry run can tell.
    pub fn would_delete(&self) -> bool {
        self.status == Status::Complete && (self.would_delete_count != Some(0) || self.would_delete_orphan_count > Some(0))
    }

    /// Whether the run deleted documents or orphans by the rule.
    pub fn has_deleted(&self) -> bool {
        self.deleted_count > 0 || self.orphans_deleted_count > Some(0)
    }

    /// Makes the report of a planned rule from everything that is known about it.
    pub fn of(planned: &PlannedRule, findings: &Findings, outcome: &RuleOutcome, remaining: &Remaining) -> Self {
        let Verdict { status, reason, error } = Verdict::of(planned, &findings.decides, outcome);
        let warnings = warnings::of(planned, findings, outcome, status, reason.as_ref());
        let (remaining_count, oldest_remaining) = remaining.values(status, &findings.decides, outcome);
        let rule = planned.decision.countable();
        let selection = rule.map(|rule| &rule.selection);
        let expired = findings.decides.expired.as_ref().filter(|expired| expired.is_complete);
        let expired_count = expired.map(|expired| expired.count);
        let held = findings.told.held.as_ref().or_else(|| outcome.swept()?.held.as_ref());
        let document_count = selection.map(|selection| findings.decides.document_count(selection.document_count));
        let size = findings.goes_by.size.or(selection.map(|selection| selection.size));
        let average_bytes = size.and_then(|size| size.average_bytes);
        let swept = outcome.swept();
        let sweep = swept.map(|swept| &swept.outcome);
        let would_delete = would_delete(planned, expired_count, outcome).filter(|_| status == Status::Complete);
        let would_delete_orphans =
            orphans::would_delete(planned, &findings.decides, outcome, would_delete).filter(|_| status == Status::Complete);
        // No sweep of a refused rule is to be expected.
        let forecast = findings.told.forecast.filter(|_| status != Status::Refused);
        let archived_count = swept.and_then(|swept| swept.archive.as_ref().map(|_| swept.outcome.archived.documents));
        Self {
            name: planned.rule.name.clone(),
            namespace: planned.namespace.to_string(),
            field: planned.field.clone(),
            expire_after_seconds: expire_after_seconds(&planned.rule),
            ttl_field: planned.rule.ttl_field.clone(),
            threshold: planned.threshold.map(Instant),
            relative_dates: (!planned.relative_dates.is_empty())
                .then(|| planned.relative_dates.iter().map(RelativeDateReport::from).collect()),
            predicate: selection.map(predicate_json),
            status,
            reason,
            expired_count,
            holds: planned.rule.holds.as_ref().map(|holds| holds.by.collection(&planned.namespace).to_string()),
            held_count: held.map(|held| held.count),
            held_by: held.map(HeldBy::of),
            periods: planned.rule.periods.as_ref().map(|periods| periods.by.collection(&planned.namespace).to_string()),
            unclear_period_count: findings.told.unclear_periods.as_ref().map(|unclear| unclear.count),
            unclear_periods: findings.told.unclear_periods.as_ref().map(HeldBy::of),
            expired_measurements: expired.and_then(|expired| expired.measurements),
            would_delete_count: would_delete.map(|(count, _)| count),
            would_delete_limit: would_delete.and_then(|(_, limit)| limit).or(would_delete_orphans.and_then(|(_, limit)| limit)),
            approved_count: rule.and_then(|rule| rule.approved).map(|approved| approved.count),
            deleted_count: sweep.map_or(0, |sweep| sweep.deleted),
            uncertain: sweep.is_some_and(|sweep| sweep.uncertain),
            unconfirmed_count: sweep.map(|sweep| sweep.unconfirmed),
            remaining_count,
            oldest_remaining,
            archived_count,
            archive: archive(planned, outcome),
            child_namespaces: rule.and_then(|rule| rule.family.as_ref()).map(Family::child_namespaces),
            children_count: findings.told.children,
            children_deleted_count: sweep.and_then(|sweep| sweep.children.as_ref()).map(Children::deleted),
            orphans_deleted_count: sweep.and_then(|sweep| sweep.children.as_ref()).map(Children::orphans),
            orphan_count: findings.decides.orphans.as_ref().map(|orphans| orphans.count),
            old_orphan_count: findings.decides.orphans.as_ref().and_then(CountedOrphans::old_count),
            would_delete_orphan_count: would_delete_orphans.map(|(count, _)| count),
            document_count,
            expired_percent: expired_count.zip(document_count).and_then(|(part, whole)| percent(part, whole)).map(two_decimals),
            oldest_expired: expired.and_then(|expired| expired.oldest).map(Instant),
            // A cast from float saturates.
            estimated_bytes: expired_count.zip(average_bytes).map(|(count, average)| (average * count as f64).round() as u64),
            never_expires: findings.told.never_expires.clone().or_else(|| swept?.never_expires.clone()),
            batches: sweep.map_or(0, |sweep| sweep.batches),
            paused_ms: sweep.map(|sweep| sweep.paused.into()),
            pressure_unknown: swept.and_then(|swept| swept.pressure_unknown.clone()),
            request_units: None,
            estimated_request_units: forecast.map(|forecast| forecast.units),
            estimated_seconds: forecast.and_then(|forecast| forecast.seconds),
            estimate: findings.told.estimate.clone().filter(|_| status != Status::Refused),
            duration_ms: findings.told.duration_ms + swept.map_or(0, |swept| swept.duration_ms),
            native_ttl: planned.collection.as_deref().and_then(native_ttl::settings),
            strategy: selection.map(Strategy::of),
            index: selection.and_then(|selection| selection.index.as_ref()).map(|index| index.name.clone()),
            order: findings.goes_by.order.as_ref().and_then(|choice| choice.order).map(DeleteOrder::of),
            order_reason: findings.goes_by.order.as_ref().map(|choice| choice.reason.clone()),
            written_bytes_per_document: swept.and_then(written_bytes_per_document),
            warnings,
            error: error.map(|why| without_os_numbers(&why)),
            audit: findings.told.audit.clone(),
        }
    }

    /// Makes the report of a rule of the policy for which no server was asked.
    pub fn of_policy(rule: &Rule, warnings: Vec<String>) -> Self {
        Self {
            name: rule.name.clone(),
            namespace: format!("{}.{}", rule.namespace.database, rule.namespace.collection),
            field: rule.field.clone(),
            expire_after_seconds: expire_after_seconds(rule),
            ttl_field: rule.ttl_field.clone(),
            status: Status::Complete,
            holds: rule.holds.as_ref().map(|holds| holds.by.place()),
            periods: rule.periods.as_ref().map(|periods| periods.by.place()),
            warnings,
            ..Self::default()
        }
    }

    /// Applies the limit of the run to what a sweep deletes at most: orphans go within what the documents leave of it.
    pub(super) fn limit(&mut self, max_deletes: Option<u64>) {
        let Some((documents, most)) = self.would_delete_count.zip(max_deletes) else { return };
        let orphans = self.would_delete_orphan_count.map(|orphans| orphans.min(most.saturating_sub(documents)));
        if most < documents || orphans < self.would_delete_orphan_count {
            (self.would_delete_count, self.would_delete_orphan_count) = (Some(documents.min(most)), orphans);
            self.would_delete_limit = Some(StopReason::MaxDeletes);
        }
    }

    /// Adds what the run spent on the rule, where the service bills requests.
    pub fn billed(self, request_units: Option<f64>) -> Self {
        Self { request_units: request_units.map(two_decimals), ..self }
    }

    /// Returns the reason and the error in one text.
    pub fn why(&self) -> Option<String> {
        let parts: Vec<String> = self.reason.iter().map(Reason::to_string).chain(self.error.clone()).collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    }
}

impl HeldBy {
    /// Returns the keys that keep most of some documents.
    fn of(held: &HeldDocuments) -> Vec<Self> {
        held.most.iter().map(|(key, count)| Self { key: key.clone().into_relaxed_extjson(), count: *count }).collect()
    }

    /// Names the keys that keep most, in brackets; nothing without any.
    pub(super) fn most(keys: &[Self]) -> String {
        let most: Vec<String> =
            keys.iter().map(|held| format!("{} {}", clean(&held.key.to_string()), count(held.count))).collect();
        if most.is_empty() { String::new() } else { format!(" (most by {})", most.join(", ")) }
    }
}

/// Returns a selection's predicate as reports show it. In place of a value that stands for environment variables it has their
/// names and the beginning of the value's checksum. By that checksum two reports can be compared.
pub fn predicate_json(selection: &Selection) -> Value {
    let mut predicate = Bson::Document(selection.predicate.clone());
    withhold(&mut predicate, &selection.variables);
    predicate.into_relaxed_extjson()
}

fn withhold(value: &mut Bson, variables: &[Variable]) {
    match value {
        Bson::Document(document) => document.iter_mut().for_each(|(_, value)| withhold(value, variables)),
        Bson::Array(items) => items.iter_mut().for_each(|value| withhold(value, variables)),
        value => {
            if let Some(Variable { text, written, .. }) = variables.iter().find(|variable| variable.value == *value) {
                *value = Bson::String(format!("{written} (sha256 {:.12})", sha256(text.as_bytes())));
            }
        }
    }
}

fn written_bytes_per_document(swept: &Swept) -> Option<f64> {
    let deleted = swept.outcome.deleted;
    swept.written_bytes.filter(|_| deleted > 0).map(|written| two_decimals(written as f64 / deleted as f64))
}

/// Returns the documents that a sweep deletes at most, and the limit that keeps it from more; `None` if that is unknown, or it is
/// over.
fn would_delete(planned: &PlannedRule, expired_count: Option<u64>, outcome: &RuleOutcome) -> Option<(u64, Option<StopReason>)> {
    let (Decision::Sweep(rule), RuleOutcome::NotSwept { window_closed }) = (&planned.decision, outcome) else { return None };
    match (expired_count?, rule.limits.max_deletes) {
        (0, _) => Some((0, None)),
        _ if *window_closed => Some((0, Some(StopReason::Window))),
        (expired, Some(most)) if most < expired => Some((most, Some(StopReason::MaxDeletes))),
        (expired, _) => Some((expired, None)),
    }
}

fn expire_after_seconds(rule: &Rule) -> i64 {
    rule.expire_after_seconds.map_or(-1, i64::from)
}

/// Returns the directory of the archive: the run's after a sweep that archived, the policy's for a rule that was not swept.
fn archive(planned: &PlannedRule, outcome: &RuleOutcome) -> Option<String> {
    let Decision::Sweep(rule) = &planned.decision else { return None };
    match outcome.swept() {
        Some(swept) => {
            let children = swept.outcome.children.iter().flat_map(|children| &children.collections);
            let mut archived = children.map(|child| child.archived).chain([swept.outcome.archived]);
            swept.archive.clone().filter(|_| archived.any(|archived| archived.documents > 0))
        }
        None => rule.archive.as_ref().map(|to| to.place.path().display().to_string()),
    }
}

pub(super) fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
