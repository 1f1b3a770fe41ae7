//! Log lines about the beginning and the end of rules and runs, with the report's values as fields.

use tracing::{error, info, warn};

use crate::base::log::RUN;
use crate::base::text::plural;
use crate::core::plan::Status;
use crate::core::plan::SweepRule;
use crate::core::report::{self, Report, RuleReport, Totals};

/// Logs that a rule begins to delete.
pub(crate) fn rule_begins(rule: &SweepRule, expired_count: Option<u64>) {
    let namespace = rule.namespace.to_string();
    info!(
        target: RUN,
        event = "ruleBegins",
        rule = rule.name,
        namespace,
        expiredCount = expired_count,
        "{}: sweeping",
        namespace
    );
}

/// Logs that a rule has ended, or will not be swept.
pub(crate) fn rule_ended(rule: &RuleReport) {
    // Every field is named, so that a new one does not compile without a decision.
    let RuleReport {
        name,
        namespace,
        status,
        reason,
        expired_count,
        deleted_count,
        uncertain,
        unconfirmed_count,
        children_deleted_count,
        orphans_deleted_count,
        old_orphan_count,
        batches,
        request_units,
        duration_ms,
        error,
        // Only in the report.
        field: _,
        expire_after_seconds: _,
        ttl_field: _,
        threshold: _,
        predicate: _,
        expired_measurements: _,
        holds: _,
        held_count: _,
        held_by: _,
        would_delete_count: _,
        would_delete_limit: _,
        approved_count: _,
        remaining_count: _,
        oldest_remaining: _,
        archived_count: _,
        archive: _,
        children_count: _,
        orphan_count: _,
        would_delete_orphan_count: _,
        document_count: _,
        expired_percent: _,
        oldest_expired: _,
        estimated_bytes: _,
        never_expires: _,
        paused_ms: _,
        pressure_unknown: _,
        estimated_request_units: _,
        estimated_seconds: _,
        estimate: _,
        native_ttl: _,
        strategy: _,
        index: _,
        order: _,
        order_reason: _,
        written_bytes_per_document: _,
        warnings: _,
        audit: _,
    } = rule;
    macro_rules! say {
        ($level:ident) => {
            $level!(
                target: RUN,
                event = "ruleEnds",
                rule = name,
                namespace,
                %status,
                reason = reason.as_ref().map(tracing::field::display),
                expiredCount = expired_count,
                deletedCount = deleted_count,
                uncertain,
                unconfirmedCount = unconfirmed_count,
                childrenDeletedCount = children_deleted_count,
                oldOrphanCount = old_orphan_count,
                orphansDeletedCount = orphans_deleted_count,
                batches,
                requestUnits = request_units,
                durationMs = duration_ms,
                error,
                "{}",
                ended(rule)
            )
        };
    }
    match status {
        Status::Failed => say!(error),
        Status::Partial | Status::Refused => say!(warn),
        Status::Complete | Status::Skipped => say!(info),
    }
}

fn ended(rule: &RuleReport) -> String {
    let why = rule.why().map(|why| format!(" ({why})")).unwrap_or_default();
    let children = rule.children_deleted_count.map_or_else(String::new, |children| format!(" and {children} children"));
    let orphans = rule.orphans_deleted_count.filter(|orphans| *orphans > 0);
    let orphans = orphans.map_or_else(String::new, |orphans| format!(" ({})", plural(orphans, "orphan")));
    let deleted = format!("{}{children}{orphans} deleted in {}", rule.deleted_count, plural(rule.batches, "delete command"));
    format!("{}: {}{why}, {deleted}", rule.namespace, rule.status)
}

/// Logs that a run has ended, with its exit code.
pub(crate) fn run_ended(report: &Report, exit_code: u8) {
    let Totals {
        rules,
        expired_count,
        deleted_count,
        remaining_count,
        request_units,
        old_orphan_count,
        orphans_deleted_count,
        failed,
        refused,
        // Only in the report.
        overlapping: _,
        would_delete_count: _,
        document_count: _,
        estimated_bytes: _,
        oplog_bytes: _,
    } = report.totals;
    info!(
        target: RUN,
        event = "runEnds",
        command = "sweep",
        dryRun = report.dry_run,
        exitCode = exit_code,
        status = %report.status,
        rules,
        failed,
        refused,
        expiredCount = expired_count,
        deletedCount = deleted_count,
        remainingCount = remaining_count,
        oldOrphanCount = old_orphan_count,
        orphansDeletedCount = orphans_deleted_count,
        requestUnits = request_units,
        durationMs = report.duration_ms,
        "{}",
        report::reason(report)
    );
}
