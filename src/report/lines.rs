//! Lines that the table and Markdown share: the cells, the notes below them and the last line.

use std::collections::BTreeSet;

use super::{DeleteOrder, PausedMs, Report, ReportCommand, RuleReport, Status, Strategy, estimate};
use crate::plan::Reason;
use crate::text::{bytes, count, duration, plural};

/// Heads of the columns.
pub(super) const COLUMNS: [&str; 7] = ["rule", "status", "expired", "of", "share", "deleted", "time"];

/// Index of the first column with numbers.
pub(super) const FIRST_NUMBER: usize = 2;

/// Maximum number of rules with nothing to do that get a row each; if there are more, one line counts them.
const MAX_QUIET: usize = 10;

/// Severity of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Warning,
    Error,
}

/// Returns the lines about the run, the deployment and the policy.
pub(super) fn head(report: &Report) -> Vec<String> {
    let mode = match (report.command, report.dry_run) {
        (ReportCommand::Audit, _) => "audit",
        (_, true) => "dry run",
        _ => "sweep",
    };
    let mut lines =
        vec![format!("sweeper {mode}, as of {}", report.as_of.map_or_else(|| "-".to_owned(), |as_of| as_of.to_string()))];
    if let Some(server) = &report.server {
        let name = server.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
        lines.push(format!("server {} {}, {}{name}", server.flavor, server.version, server.topology));
        if server.flavor != "mongodb" {
            lines.push(format!("recognised by {}", server.recognised_by));
        }
        lines.extend(server.untested.as_ref().map(|why| format!("untested: {why}")));
    }
    let sha256 = &report.policy.sha256;
    lines.push(format!("policy {} (sha256 {})", report.policy.path, &sha256[..sha256.len().min(12)]));
    lines.push(format!("run {}", report.run_id));
    lines
}

/// Returns the rules that get a row, and the number of quiet ones that do not.
pub(super) fn shown(report: &Report) -> (Vec<&RuleReport>, usize) {
    let quiet = report.rules.iter().filter(|rule| is_quiet(rule)).count();
    if quiet <= MAX_QUIET {
        return (report.rules.iter().collect(), 0);
    }
    (report.rules.iter().filter(|rule| !is_quiet(rule)).collect(), quiet)
}

/// Whether nothing is to be said about a rule: nothing expired or deleted, no warning, and no document that looks meant to expire.
pub(super) fn is_quiet(rule: &RuleReport) -> bool {
    matches!(rule.status, Status::Complete | Status::Skipped)
        && rule.expired_count.unwrap_or(0) == 0
        && rule.deleted_count == 0
        && rule.warnings.is_empty()
        && !rule.uncertain
        && rule.never_expires.as_ref().is_none_or(|counts| counts.values().all(|n| *n == 0))
}

/// Returns the cells of a rule, in the order of [`COLUMNS`].
pub(super) fn cells(report: &Report, rule: &RuleReport) -> [String; 7] {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), count);
    let deleted = format!("{}{}", if rule.uncertain { ">= " } else { "" }, count(rule.deleted_count));
    [
        title(report, rule),
        rule.status.to_string(),
        number(rule.expired_count),
        number(rule.document_count),
        rule.expired_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %")),
        deleted,
        if rule.status == Status::Skipped { "-".to_owned() } else { duration(rule.duration_ms) },
    ]
}

/// Returns the rule's name, with the namespace if several namespaces share the rule.
pub(super) fn title(report: &Report, rule: &RuleReport) -> String {
    let shared = report.rules.iter().filter(|other| other.name == rule.name).nth(1).is_some();
    if shared && rule.name != rule.namespace { format!("{} {}", rule.name, rule.namespace) } else { rule.name.clone() }
}

/// Returns the notes below the rows: the facts about each rule, its warnings and its errors.
pub(super) fn notes(report: &Report) -> Vec<(Tone, String)> {
    let (rules, quiet) = shown(report);
    let mut notes = Vec::new();
    for rule in rules.iter().filter(|rule| !is_quiet(rule) || rule.audit.is_some()) {
        let title = title(report, rule);
        if rule.strategy.is_some() {
            notes.push((Tone::Plain, format!("{title}: {}", facts(&title, rule))));
        }
        if let Some(expected) = rule.estimate.as_ref().filter(|expected| report.dry_run && expected.documents > 0) {
            notes.push((Tone::Plain, format!("{title}: a sweep {}", estimate::clauses(expected).join("; "))));
        }
        // An audit shows the documents that never expire in a section of its own.
        let kept = rule.never_expires.iter().flatten().filter(|(_, number)| **number > 0 && rule.audit.is_none());
        for (reason, number) in kept {
            notes.push((Tone::Warning, format!("{title}: kept {} {}", plural(*number, "document"), kept_because(reason))));
        }
        for warning in &rule.warnings {
            notes.push((Tone::Warning, format!("{title}: {warning}")));
        }
        let tone = match rule.status {
            Status::Failed => Tone::Error,
            Status::Refused | Status::Partial => Tone::Warning,
            Status::Complete | Status::Skipped => Tone::Plain,
        };
        if let (Some(why), true) = (rule.why(), rule.status != Status::Skipped) {
            notes.push((tone, format!("{title}: {}: {why}", rule.status)));
        }
        if rule.uncertain {
            notes.push((
                Tone::Warning,
                format!("{title}: a reply was lost; at least {} deleted", plural(rule.deleted_count, "document")),
            ));
        }
    }
    if quiet > 0 {
        notes.push((Tone::Plain, format!("{} more with nothing expired", plural(quiet as u64, "rule"))));
    }
    notes
}

/// Returns a reason of `neverExpires` in words.
fn kept_because(reason: &str) -> String {
    match reason {
        "ttlNotPositive" => "whose ttl is 0 or a negative other than -1 (ttlNotPositive)".to_owned(),
        "implausibleEpoch" => "whose number is not a plausible date in the rule's unit (implausibleEpoch)".to_owned(),
        other => format!("({other})"),
    }
}

fn facts(title: &str, rule: &RuleReport) -> String {
    // Every field is named, so that a new one does not compile without a decision.
    let RuleReport {
        namespace,
        field,
        ttl_field,
        threshold,
        archived_count,
        archive,
        oldest_expired,
        estimated_bytes,
        expired_measurements,
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
    facts.push(match (index, strategy) {
        (Some(index), _) => format!("index {index}"),
        (None, Some(Strategy::Buckets)) => "whole buckets".to_owned(),
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
    if let Some(units) = *estimated_request_units {
        facts.push(format!("a sweep costs {}", cost(units, *estimated_seconds)));
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

/// Returns the estimated cost of a sweep, such as `about 7000 request units, at least 18 s`.
pub(crate) fn cost(units: f64, seconds: Option<f64>) -> String {
    let time = seconds.map_or_else(String::new, |seconds| format!(", at least {}", duration((seconds * 1000.0) as u64)));
    format!("about {units:.0} request units{time}")
}

/// Returns the pauses, such as `5.0 s for lag`, without the reasons for which there was no pause.
pub(super) fn pauses(paused: PausedMs) -> Vec<String> {
    let word = |reason| if reason == "throttle" { "throttling" } else { reason };
    let pauses = paused.by_reason().into_iter().filter(|(_, millis)| *millis > 0);
    pauses.map(|(reason, millis)| format!("{} for {}", duration(millis), word(reason))).collect()
}

/// Returns the outcome of the run in one line.
pub(super) fn last(report: &Report) -> (Tone, String) {
    let totals = &report.totals;
    let ran = report.rules.iter().filter(|rule| matches!(rule.status, Status::Complete | Status::Partial)).count();
    let mut parts = Vec::new();
    if report.dry_run {
        let ready: Option<u64> =
            report.rules.iter().filter(|rule| rule.status == Status::Complete).map(|rule| rule.expired_count).sum();
        let number = ready.map_or_else(|| "an unknown number of documents".to_owned(), |n| plural(n, "document"));
        parts.push(format!("would delete {number} by {}", plural(ran as u64, "rule")));
    } else if report.command == ReportCommand::Sweep {
        let least = if report.rules.iter().any(|rule| rule.uncertain) { "at least " } else { "" };
        parts.push(format!("deleted {least}{} by {}", plural(totals.deleted_count, "document"), plural(ran as u64, "rule")));
    }
    for (status, word) in
        [(Status::Partial, "partial"), (Status::Refused, "refused"), (Status::Failed, "failed"), (Status::Skipped, "skipped")]
    {
        let of_status: Vec<_> = report.rules.iter().filter(|rule| rule.status == status).collect();
        if of_status.is_empty() {
            continue;
        }
        let reasons: BTreeSet<String> = of_status.iter().filter_map(|rule| rule.reason.as_ref()).map(Reason::to_string).collect();
        let why = if reasons.is_empty() || status == Status::Skipped {
            String::new()
        } else {
            format!(" ({})", Vec::from_iter(reasons).join(", "))
        };
        parts.push(format!("{} {word}{why}", of_status.len()));
    }
    if report.dry_run {
        let mode = if report.command == ReportCommand::Audit { "audit" } else { "dry run" };
        parts.push(format!("nothing was deleted ({mode})"));
    }
    let tone = match report.status {
        Status::Failed => Tone::Error,
        Status::Partial | Status::Refused => Tone::Warning,
        Status::Complete | Status::Skipped => Tone::Plain,
    };
    let units = totals.request_units.map_or_else(String::new, |units| format!(", for {units:.0} request units"));
    (tone, format!("{}: {}, in {}{units}", report.status, parts.join("; "), duration(report.duration_ms)))
}
