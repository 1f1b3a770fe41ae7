//! Log lines about the beginning and the end of rules and runs, with the report's values as fields.

use tracing::{error, info, warn};

use crate::log::RUN;
use crate::plan::SweepRule;
use crate::report::{self, Report, RuleReport, Status, Totals};
use crate::text::{clean, plural};

/// Logs that a rule begins to delete.
pub fn rule_begins(rule: &SweepRule, expired_count: Option<u64>) {
    let namespace = rule.namespace.to_string();
    info!(
        target: RUN,
        event = "ruleBegins",
        rule = rule.name,
        namespace,
        expiredCount = expired_count,
        "{}: sweeping",
        clean(&namespace)
    );
}

/// Logs that a rule has ended, or will not be swept.
pub fn rule_ended(rule: &RuleReport) {
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
    let deleted = format!("{} deleted in {}", rule.deleted_count, plural(rule.batches, "delete command"));
    format!("{}: {}{why}, {deleted}", clean(&rule.namespace), rule.status)
}

/// Logs that a run has ended, with its exit code.
pub fn run_ended(report: &Report, exit_code: u8) {
    let Totals {
        rules,
        expired_count,
        deleted_count,
        remaining_count,
        failed,
        refused,
        // Only in the report.
        document_count: _,
        estimated_bytes: _,
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
        durationMs = report.duration_ms,
        "{}",
        report::reason(report)
    );
}
