//! The load of deleting so many documents of a rule: children, bytes, entries of the oplog, seconds without a limit.

use bson::Bson;

use super::EstimateFacts;
use super::speed::{RULE, assumed_seconds, assumed_seconds_of_child};
use crate::core::plan::oplog::Entries;
use crate::core::plan::{ChildRule, SweepRule};

/// Children of one collection that a sweep deletes.
#[derive(Debug)]
pub struct CountedChildren<'a> {
    pub child: &'a ChildRule,
    /// Children of the documents that have expired.
    pub of_expired: u64,
    /// Children that have been without a parent before, and that the rule deletes.
    pub orphans: u64,
    /// `_id`s of some children.
    pub ids: Vec<Bson>,
}

/// A number of documents with what goes with them. A value that cannot be told is `None`.
#[derive(Debug)]
pub(super) struct EstimatedLoad {
    pub documents: u64,
    pub children: Option<u64>,
    /// Size of documents and children.
    pub bytes: Option<u64>,
    pub oplog_bytes: Option<u64>,
    /// Seconds without a limit.
    pub seconds: Option<f64>,
    /// Documents per second without a limit, each with its children.
    pub documents_per_second: f64,
}

impl EstimatedLoad {
    /// Returns what goes with so many documents of those that have expired.
    pub(super) fn of(rule: &SweepRule, facts: &EstimateFacts, documents: u64) -> Self {
        let number = documents as f64;
        let children = facts.children.map(|children| of_collections(rule, facts, documents, children));
        let sum = |own: Option<f64>, of_child: fn(&ChildLoad) -> Option<f64>| {
            let of_children: f64 = children.as_ref()?.iter().map(of_child).sum::<Option<f64>>()?;
            Some((own? + of_children).round() as u64)
        };
        let number_of = |children: &Vec<ChildLoad>| children.iter().map(|part| part.number).sum::<f64>().round() as u64;
        let own_oplog = oplog_bytes_per_document(rule, facts.ids, facts.wire_version)
            .map(|each| number * each + Entries::of(facts.wire_version).journal_bytes(rule, facts.ids, documents));

        let own_seconds = assumed_seconds(rule, facts.cache);
        let seconds_of = |number: fn(&ChildLoad) -> f64| -> f64 {
            children.iter().flatten().map(|part| number(part) * assumed_seconds_of_child(part.child, facts.cache)).sum()
        };
        let of_children = seconds_of(|part| part.number);
        // What earlier sweeps took for a document, they took with its children.
        let orphans = seconds_of(|part| part.orphans);
        let (seconds, documents_per_second) = match facts.measured_speed {
            Some(speed) => (Some(number / speed + orphans), speed),
            None => {
                let seconds = number * own_seconds + of_children;
                let of_rule = if seconds > 0.0 { RULE } else { 0.0 };
                (
                    children.as_ref().map(|_| seconds + of_rule),
                    if number > 0.0 { number / (seconds - orphans) } else { 1.0 / own_seconds },
                )
            }
        };
        Self {
            documents,
            children: children.as_ref().map(number_of),
            bytes: sum(rule.selection.size.average_bytes.map(|average| average * number), |part| part.bytes),
            oplog_bytes: sum(own_oplog.or((documents == 0).then_some(0.0)), |part| part.oplog_bytes),
            seconds,
            documents_per_second,
        }
    }
}

/// Children of one collection that go.
struct ChildLoad<'a> {
    child: &'a ChildRule,
    /// With the documents, and orphans.
    number: f64,
    orphans: f64,
    bytes: Option<f64>,
    oplog_bytes: Option<f64>,
}

/// Returns the children that go with so many documents: their part of those that were counted, and the orphans for which the
/// limits leave room.
fn of_collections<'a>(
    rule: &SweepRule,
    facts: &EstimateFacts,
    documents: u64,
    children: &[CountedChildren<'a>],
) -> Vec<ChildLoad<'a>> {
    let part_of = |number: u64, whole: u64| if whole == 0 { 0.0 } else { (number as f64 / whole as f64).min(1.0) };
    let share = part_of(documents, facts.expired);
    let most = [rule.limits.max_deletes, facts.run.max_deletes].into_iter().flatten().min();
    let all_orphans: u64 = children.iter().map(|of| of.orphans).sum();
    let orphan_share = most.map_or(1.0, |most| part_of(most.saturating_sub(documents), all_orphans));
    let part = |of: &CountedChildren<'a>| {
        let orphans = of.orphans as f64 * orphan_share;
        let number = of.of_expired as f64 * share + orphans;
        let times = |each: Option<f64>| if number == 0.0 { Some(0.0) } else { each.map(|each| each * number) };
        let oplog_bytes = oplog_bytes_per_document(&of.child.rule, &of.ids, facts.wire_version);
        ChildLoad {
            child: of.child,
            number,
            orphans,
            bytes: times(of.child.rule.selection.size.average_bytes),
            oplog_bytes: times(oplog_bytes),
        }
    };
    children.iter().map(part).collect()
}

/// Returns the bytes that each deleted document of a rule adds to the oplog, by some `_id`s of its collection.
pub fn oplog_bytes_per_document(rule: &SweepRule, ids: &[Bson], wire_version: i32) -> Option<f64> {
    let selection = &rule.selection;
    Entries::of(wire_version).bytes_per_document(&selection.namespace.to_string(), ids, selection.size.average_bytes)
}
