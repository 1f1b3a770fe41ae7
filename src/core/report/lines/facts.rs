//! The facts of one rule in a note.

use crate::base::text::{self, bytes, clean, count, duration, plural};
use crate::core::plan::order;
use crate::core::report::{DeleteOrder, HeldBy, PausedMs, RuleReport, Strategy, estimate};

/// Returns what is known of a rule besides the numbers of its row: dates, index, archive, children, holds, cost and pauses. `title` says which rule it is.
pub(super) fn of(title: &str, rule: &RuleReport) -> String {
    // Every field is named, so that a new one does not compile without a decision.
    let RuleReport {
        namespace,
        field,
        ttl_field,
        threshold,
        archived_count,
        archive,
        children_count,
        children_deleted_count,
        orphans_deleted_count,
        orphan_count,
        old_orphan_count,
        oldest_expired,
        estimated_bytes,
        expired_measurements,
        holds,
        held_count,
        held_by,
        batches,
        paused_ms,
        pressure_unknown,
        request_units,
        estimated_request_units,
        estimated_seconds,
        strategy,
        index,
        order,
        order_reason,
        written_bytes_per_document,
        // In the row of the rule, or in notes and sections of their own.
        name: _,
        status: _,
        reason: _,
        estimate: _,
        expired_count: _,
        would_delete_count: _,
        would_delete_limit: _,
        would_delete_orphan_count: _,
        approved_count: _,
        deleted_count: _,
        uncertain: _,
        document_count: _,
        expired_percent: _,
        never_expires: _,
        duration_ms: _,
        warnings: _,
        error: _,
        audit: _,
        // Only in other formats; documents that are not confirmed have a warning.
        expire_after_seconds: _,
        predicate: _,
        unconfirmed_count: _,
        remaining_count: _,
        oldest_remaining: _,
        native_ttl: _,
    } = rule;
    let namespace = Some(namespace.as_str()).filter(|namespace| !title.ends_with(namespace));
    let what: Vec<&str> = namespace.into_iter().chain(field.as_deref()).collect();
    let mut facts = vec![what.join(" ")];
    if let Some(threshold) = threshold {
        facts.push(format!("at or before {threshold}"));
    }
    if let Some(ttl_field) = ttl_field {
        facts.push(format!("or by its own `{ttl_field}`"));
    }
    if let Some(oldest) = oldest_expired {
        facts.push(format!("oldest {oldest}"));
    }
    if let Some(size) = *estimated_bytes {
        facts.push(format!("about {}", bytes(size)));
    }
    if let Some(measurements) = *expired_measurements {
        facts.push(plural(measurements, "measurement"));
    }
    if let Some(holds) = holds {
        facts.push(kept(holds, *held_count, held_by.as_deref().unwrap_or_default()));
    }
    facts.push(match (index, strategy) {
        (Some(index), _) => format!("index {index}"),
        (None, Some(Strategy::Buckets)) => "whole buckets".to_owned(),
        (None, _) if order_reason.as_deref() == Some(order::STRINGS) => format!("collection scan ({})", order::STRINGS),
        (None, _) => "collection scan".to_owned(),
    });
    if let (Some(DeleteOrder::Storage), Some(_), Some(why)) = (order, index, order_reason) {
        facts.push(format!("in the order of the storage ({why})"));
    }
    if *batches > 0 {
        facts.push(plural(*batches, "delete command"));
    }
    if let Some(written) = *written_bytes_per_document {
        facts.push(format!("{} written per deleted document", bytes(written as u64)));
    }
    match (archive, *archived_count) {
        (Some(path), Some(number)) => facts.push(format!("{} archived in {path}", plural(number, "document"))),
        (Some(path), None) => facts.push(format!("archives to {path}")),
        (None, _) => {}
    }
    facts.extend(children(
        (*children_count, *children_deleted_count),
        *orphans_deleted_count,
        (*orphan_count, *old_orphan_count),
    ));
    if let Some(units) = *estimated_request_units {
        facts.push(format!("a sweep costs {}", estimate::cost(units, *estimated_seconds)));
    }
    if let Some(units) = request_units {
        facts.push(format!("{units:.0} request units"));
    }
    if let Some(what) = pressure_unknown {
        facts.push(format!("unknown of the server's load: {what}"));
    }
    facts.extend(paused_ms.iter().copied().flat_map(pauses).map(|pause| format!("paused {pause}")));
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

/// Says what holds keep, and the keys that keep most.
pub(in crate::core::report) fn kept(holds: &str, held_count: Option<u64>, held_by: &[HeldBy]) -> String {
    let Some(held) = held_count else { return format!("kept: what {holds} holds") };
    let most: Vec<String> =
        held_by.iter().map(|held| format!("{} {}", clean(&held.key.to_string()), count(held.count))).collect();
    let most = if most.is_empty() { String::new() } else { format!(" (most by {})", most.join(", ")) };
    format!("{} held by {holds}{most}", plural(held, "document"))
}

/// Returns the pauses, such as `5.0 s for lag`, without the reasons for which there was no pause.
pub(in crate::core::report) fn pauses(paused: PausedMs) -> Vec<String> {
    let word = |reason| match reason {
        "throttle" => "throttling",
        "pauseFile" => "the pause file",
        "head" => "the oldest document",
        reason => reason,
    };
    let pauses = paused.by_reason().into_iter().filter(|(_, millis)| *millis > 0);
    pauses.map(|(reason, millis)| format!("{} for {}", duration(millis), word(reason))).collect()
}
