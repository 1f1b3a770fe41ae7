//! Log lines about the beginning and the end of rules and runs, with the report's values as fields.

use tracing::{error, info, warn};

use crate::base::log::RUN;
use crate::base::text::plural;
use crate::core::plan::Status;
use crate::core::plan::SweepRule;
use crate::core::report::{self, Report, RuleReport};

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
    macro_rules! say {
        ($level:ident) => {
            $level!(
                target: RUN,
                event = "ruleEnds",
                rule = rule.name,
                namespace = rule.namespace,
                status = %rule.status,
                reason = rule.reason.as_ref().map(tracing::field::display),
                expiredCount = rule.expired_count,
                deletedCount = rule.deleted_count,
                uncertain = rule.uncertain,
                unconfirmedCount = rule.unconfirmed_count,
                childrenDeletedCount = rule.children_deleted_count,
                oldOrphanCount = rule.old_orphan_count,
                orphansDeletedCount = rule.orphans_deleted_count,
                batches = rule.batches,
                requestUnits = rule.request_units,
                durationMs = rule.duration_ms,
                error = rule.error,
                "{}",
                ended(rule)
            )
        };
    }
    match rule.status {
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
    let totals = &report.totals;
    info!(
        target: RUN,
        event = "runEnds",
        command = "sweep",
        dryRun = report.dry_run,
        exitCode = exit_code,
        status = %report.status,
        rules = totals.rules,
        failed = totals.failed,
        refused = totals.refused,
        expiredCount = totals.expired_count,
        deletedCount = totals.deleted_count,
        remainingCount = totals.remaining_count,
        oldOrphanCount = totals.old_orphan_count,
        orphansDeletedCount = totals.orphans_deleted_count,
        requestUnits = totals.request_units,
        durationMs = report.duration_ms,
        "{}",
        report::reason(report)
    );
}
