//! The facts of one rule in a note.

use crate::base::text::{self, bytes, count, duration, plural};
use crate::core::plan::order;
use crate::core::plan::waits::PausedMs;
use crate::core::report::{DeleteOrder, HeldBy, RelativeDateReport, RuleReport, Strategy, estimate};

/// Returns what is known of a rule besides the numbers of its row: dates, index, archive, children, holds, cost and pauses.
/// `title` says which rule it is.
pub(super) fn of(title: &str, rule: &RuleReport) -> String {
    let namespace = Some(rule.namespace.as_str()).filter(|namespace| !title.ends_with(namespace));
    let what: Vec<&str> = namespace.into_iter().chain(rule.field.as_deref()).collect();
    let mut facts = vec![what.join(" ")];
    if let Some(threshold) = rule.threshold {
        facts.push(format!("at or before {threshold}"));
    }
    facts.extend(rule.relative_dates.iter().flatten().map(RelativeDateReport::words));
    if let Some(ttl_field) = &rule.ttl_field {
        facts.push(format!("or by its own `{ttl_field}`"));
    }
    if let Some(oldest) = rule.oldest_expired {
        facts.push(format!("oldest {oldest}"));
    }
    if let Some(size) = rule.estimated_bytes {
        facts.push(format!("about {}", bytes(size)));
    }
    if let Some(measurements) = rule.expired_measurements {
        facts.push(plural(measurements, "measurement"));
    }
    if let Some(holds) = &rule.holds {
        facts.push(kept(holds, rule.held_count, rule.held_by.as_deref().unwrap_or_default()));
    }
    if let Some(periods) = &rule.periods {
        facts.push(by_period(periods, rule.unclear_period_count, rule.unclear_periods.as_deref().unwrap_or_default()));
    }
    facts.push(match (&rule.index, rule.strategy) {
        (Some(index), _) => format!("index {index}"),
        (None, Some(Strategy::Buckets)) => "whole buckets".to_owned(),
        (None, _) if rule.order_reason.as_deref() == Some(order::STRINGS) => format!("collection scan ({})", order::STRINGS),
        (None, _) => "collection scan".to_owned(),
    });
    if let (Some(DeleteOrder::Storage), Some(_), Some(why)) = (rule.order, &rule.index, &rule.order_reason) {
        facts.push(format!("in the order of the storage ({why})"));
    }
    if rule.batches > 0 {
        facts.push(plural(rule.batches, "delete command"));
    }
    if let Some(written) = rule.written_bytes_per_document {
        facts.push(format!("{} written per deleted document", bytes(written as u64)));
    }
    match (&rule.archive, rule.archived_count) {
        (Some(path), Some(number)) => facts.push(format!("{} archived in {path}", plural(number, "document"))),
        (Some(path), None) => facts.push(format!("archives to {path}")),
        (None, _) => {}
    }
    facts.extend(children(
        (rule.children_count, rule.children_deleted_count),
        rule.orphans_deleted_count,
        (rule.orphan_count, rule.old_orphan_count),
    ));
    if let Some(units) = rule.estimated_request_units {
        facts.push(format!("a sweep costs {}", estimate::cost(units, rule.estimated_seconds)));
    }
    if let Some(units) = rule.request_units {
        facts.push(format!("{units:.0} request units"));
    }
    if let Some(what) = &rule.pressure_unknown {
        facts.push(format!("unknown figures of the server's load: {what}"));
    }
    facts.extend(rule.paused_ms.into_iter().flat_map(pauses).map(|pause| format!("paused {pause}")));
    facts.join(", ")
}

/// Says how many children there were and how many went, and how many were without a parent, all and those that the rule deletes.
fn children(
    (expected, deleted): (Option<u64>, Option<u64>),
    orphans_deleted: Option<u64>,
    (orphans, old): (Option<u64>, Option<u64>),
) -> Option<String> {
    let mut parts = Vec::new();
    match (expected, deleted) {
        (_, Some(deleted)) => {
            let orphans = orphans_deleted.filter(|orphans| *orphans > 0);
            let orphans = orphans.map_or_else(String::new, |orphans| format!(" ({})", plural(orphans, "orphan")));
            parts.push(format!("{} deleted{orphans}", text::children(deleted)));
        }
        (Some(expected), None) => parts.push(format!("with {}", text::children(expected))),
        (None, None) => {}
    }
    parts.extend(orphans.map(|orphans| {
        let old = old.map_or_else(String::new, |old| format!(" ({} for a day)", count(old)));
        format!("{} without a parent{old}", text::children(orphans))
    }));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Says where the periods are, and what stays because of those that are unclear.
pub(in crate::core::report) fn by_period(periods: &str, count: Option<u64>, keys: &[HeldBy]) -> String {
    let kept = count
        .filter(|count| *count > 0)
        .map(|count| format!("; {} kept, as their period is unclear{}", plural(count, "document"), HeldBy::most(keys)));
    format!("by the periods in {periods}{}", kept.unwrap_or_default())
}

/// Says what holds keep, and the keys that keep most.
pub(in crate::core::report) fn kept(holds: &str, held_count: Option<u64>, held_by: &[HeldBy]) -> String {
    let Some(held) = held_count else { return format!("kept: what {holds} holds") };
    format!("{} held by {holds}{}", plural(held, "document"), HeldBy::most(held_by))
}

/// Returns the pauses, such as `5.0 s for lag`, without the reasons for which there was no pause.
pub(in crate::core::report) fn pauses(paused: PausedMs) -> Vec<String> {
    let pauses = paused.by_reason().into_iter().filter(|(_, millis)| *millis > 0);
    pauses.map(|(wait, millis)| format!("{} for {}", duration(millis), wait.words())).collect()
}
