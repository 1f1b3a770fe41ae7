//! What the log says of how rules and runs begin and end, with the report's values as fields.

use tracing::{error, info, warn};

use crate::log::RUN;
use crate::report::{self, Report, RuleReport, Status};
use crate::text::{clean, plural};

/// A rule begins to delete.
pub fn rule_begins(rule: &RuleReport) {
    info!(
        target: RUN,
        event = "ruleBegins",
        rule = rule.name,
        namespace = rule.namespace,
        expiredCount = rule.expired_count,
        "{}: sweeping",
        clean(&rule.namespace)
    );
}

/// A rule has ended, or is not going to be swept.
pub fn rule_ended(rule: &RuleReport) {
    macro_rules! say {
        ($level:ident) => {
            $level!(
                target: RUN,
                event = "ruleEnds",
                rule = rule.name,
                namespace = rule.namespace,
                status = rule.status.word(),
                reason = rule.reason,
                expiredCount = rule.expired_count,
                deletedCount = rule.deleted_count,
                uncertain = rule.uncertain,
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
    let why: Vec<&str> = rule.reason.as_deref().into_iter().chain(rule.error.as_deref()).collect();
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(": ")) };
    let deleted = format!("{} deleted in {}", rule.deleted_count, plural(rule.batches, "delete command"));
    format!("{}: {}{why}, {deleted}", clean(&rule.namespace), rule.status.word())
}

/// A run has ended, with this exit code.
pub fn run_ended(report: &Report, exit_code: u8) {
    let totals = &report.totals;
    info!(
        target: RUN,
        event = "runEnds",
        command = "sweep",
        dryRun = report.dry_run,
        exitCode = exit_code,
        status = report.status.word(),
        rules = totals.rules,
        failed = totals.failed,
        refused = totals.refused,
        expiredCount = totals.expired_count,
        deletedCount = totals.deleted_count,
        remainingCount = totals.remaining_count,
        durationMs = report.duration_ms,
        "{}",
        report::reason(report)
    );
}
