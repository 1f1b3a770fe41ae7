//! Lines that the table and Markdown share: the cells, the notes below them and the last line.

pub(super) mod facts;

use std::collections::{BTreeMap, BTreeSet};

use super::aligned::Tone;
use super::amount::{self, AtMost};
use super::{Report, ReportCommand, RuleReport, ServerReport, estimate, orphans, overlap};
use crate::base::text::{count, duration, plural};
use crate::core::audit::figures::PARENT_FIELD;
use crate::core::plan::Reason;
use crate::core::plan::Status;

/// Number of columns.
pub(super) const COLUMNS: usize = 8;

/// Index of the first column with numbers.
pub(super) const FIRST_NUMBER: usize = 2;

/// Maximum number of rules with nothing to do that get a row each; if there are more, one line counts them.
const MAX_QUIET: usize = 10;

/// Maximum number of different refusals by one guard that are told.
const MAX_TOLD: usize = 2;

/// Maximum number of rules that a note names, if they share it.
const MAX_NAMED: usize = 3;

/// Maximum number of rules whose reasons stand in the line of a quiet run; of others only the names do.
const MAX_REASONS: usize = 3;

/// Maximum number of rules that this line names.
const MAX_NAMES: usize = 12;

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
        lines.push(server_line(server));
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

/// Names the deployment.
pub(super) fn server_line(server: &ServerReport) -> String {
    let name = server.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    format!("server {} {}, {}{name}", server.flavor, server.version, server.topology)
}

/// Returns the heads of the columns.
pub(super) fn columns(report: &Report) -> [&'static str; COLUMNS] {
    let [went, left] = if report.dry_run { ["would go", "limit"] } else { ["deleted", "left"] };
    ["rule", "status", "expired", "of", "share", went, left, "time"]
}

/// Returns the rules that get a row, and the number of quiet ones that do not.
pub(super) fn shown(report: &Report) -> (Vec<&RuleReport>, usize) {
    let quiet = report.rules.iter().filter(|rule| is_quiet(rule)).count();
    if quiet <= MAX_QUIET {
        return (report.rules.iter().collect(), 0);
    }
    (report.rules.iter().filter(|rule| !is_quiet(rule)).collect(), quiet)
}

/// Whether nothing is to be said about a rule: nothing expired or deleted, no warning, and no document that looks meant to
/// expire.
pub(super) fn is_quiet(rule: &RuleReport) -> bool {
    matches!(rule.status, Status::Complete | Status::Skipped)
        && rule.expired_count.unwrap_or(0) == 0
        && rule.deleted_count == 0
        && rule.old_orphan_count.max(rule.orphans_deleted_count).unwrap_or(0) == 0
        && rule.warnings.is_empty()
        && !rule.uncertain
        && rule.never_expires.as_ref().is_none_or(|counts| counts.values().all(|n| *n == 0))
}

/// Returns the cells of a rule, in the order of [`columns`].
pub(super) fn cells(report: &Report, rule: &RuleReport) -> [String; COLUMNS] {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), count);
    let deleted = || format!("{}{}", if rule.uncertain { ">= " } else { "" }, count(rule.deleted_count));
    let limit = || rule.would_delete_limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let [went, left] = match report.dry_run {
        true => [number(rule.would_delete_count), limit()],
        false => [deleted(), number(rule.remaining_count)],
    };
    [
        title(report, rule),
        word(report, rule.status),
        number(rule.expired_count),
        number(rule.document_count),
        share(rule.share()),
        went,
        left,
        if rule.status == Status::Skipped { "-".to_owned() } else { duration(rule.duration_ms) },
    ]
}

/// Returns the rule's name, with the namespace if several namespaces share the rule.
pub(super) fn title(report: &Report, rule: &RuleReport) -> String {
    let shared = report.rules.iter().filter(|other| other.name == rule.name).nth(1).is_some();
    if shared && rule.name != rule.namespace { format!("{} {}", rule.name, rule.namespace) } else { rule.name.clone() }
}

/// Returns the word for a status. What a dry run or an audit calls complete is ready to be swept.
pub(super) fn word(report: &Report, status: Status) -> String {
    match (report.command, status) {
        (ReportCommand::Check, Status::Complete) => "ok".to_owned(),
        (_, Status::Complete) if report.dry_run => "ready".to_owned(),
        _ => status.to_string(),
    }
}

/// Returns the notes below the rows: the facts about each rule, its warnings and its errors. Unless `is_detailed`, a dry run
/// leaves out the facts, and a sweep those of rules that were refused.
pub(super) fn notes(report: &Report, is_detailed: bool) -> Vec<(Tone, String)> {
    let in_full = is_detailed || report.command == ReportCommand::Audit;
    let has_facts = |rule: &RuleReport| in_full || !report.dry_run && rule.status != Status::Refused;
    let rules = shown(report).0;
    let loud = || rules.iter().copied().filter(|rule| !is_quiet(rule));
    let warnings = shared(loud().flat_map(|rule| rule.warnings.iter().map(move |warning| (rule, warning.clone()))));
    let elsewhere = (!in_full).then_some("; `-v` shows why");
    let whys = whys_of(loud().filter(|rule| rule.status != Status::Skipped), elsewhere);
    let first_of = |groups: &[(String, Vec<&RuleReport>)], rule: &RuleReport| -> Vec<(String, String)> {
        let of_rule = groups.iter().filter(|(_, sharing)| sharing.first().is_some_and(|first| std::ptr::eq(*first, rule)));
        of_rule.map(|(text, sharing)| (named(report, sharing), text.clone())).collect()
    };
    let mut notes = Vec::new();
    for rule in rules.iter().filter(|rule| !is_quiet(rule) || rule.audit.is_some()) {
        let title = title(report, rule);
        if rule.strategy.is_some() && has_facts(rule) {
            notes.push((Tone::Plain, format!("{title}: {}", facts::of(&title, rule))));
        }
        if report.dry_run && in_full && rule.estimate.as_ref().is_some_and(|expected| expected.documents > 0) {
            notes.push((Tone::Plain, format!("{title}: a sweep {}", estimate::of_rule(rule).join("; "))));
        }
        // An audit shows the documents that never expire in a section of its own.
        let kept = rule.never_expires.iter().flatten().filter(|(_, number)| **number > 0 && rule.audit.is_none());
        for (reason, number) in kept {
            notes.push((Tone::Warning, format!("{title}: kept {} {}", plural(*number, "document"), kept_because(reason))));
        }
        // A reason that several rules share is shown once, at the first of them.
        for (titles, warning) in first_of(&warnings, rule) {
            notes.push((Tone::Warning, format!("{titles}: {warning}")));
        }
        for (titles, why) in first_of(&whys, rule) {
            notes.push((tone(rule.status), format!("{titles}: {why}")));
        }
        if rule.uncertain {
            notes.push((
                Tone::Warning,
                format!("{title}: a reply was lost; at least {} deleted", plural(rule.deleted_count, "document")),
            ));
        }
    }
    notes.extend(report.pacing_changes.iter().map(|change| (Tone::Plain, change.words())));
    notes
}

/// Returns a line with the number of rules that have no row; `None` if every rule has one.
pub(super) fn without_row(report: &Report) -> Option<String> {
    let quiet = shown(report).1 as u64;
    (quiet > 0).then(|| format!("{} more with nothing expired", plural(quiet, "rule")))
}

/// Returns the reasons of rules, each with the rules that share it. Of different refusals by one guard the first
/// [`MAX_TOLD`] are told, and the other rules are named together, if `elsewhere` says in some words what tells the rest.
pub(super) fn whys_of<'a>(
    rules: impl Iterator<Item = &'a RuleReport>,
    elsewhere: Option<&str>,
) -> Vec<(String, Vec<&'a RuleReport>)> {
    let groups = shared(rules.filter_map(|rule| Some((rule, said(rule)?))));
    let Some(elsewhere) = elsewhere else { return groups };
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    let brief = groups.into_iter().flat_map(|(text, rules)| {
        let guard = rules.first().and_then(|rule| match (rule.status, &rule.reason, &rule.error) {
            (Status::Refused, Some(guard), Some(_)) => Some(guard.to_string()),
            _ => None,
        });
        let number = guard.as_ref().map_or(0, |guard| {
            let number = told.entry(guard.clone()).or_default();
            *number += 1;
            *number
        });
        let text = match guard.filter(|_| number > MAX_TOLD) {
            Some(guard) => format!("{}: {guard} as well{elsewhere}", Status::Refused),
            None => text,
        };
        rules.into_iter().map(move |rule| (rule, text.clone()))
    });
    shared(brief)
}

/// Returns the status of a rule with its reason, if it has one.
fn said(rule: &RuleReport) -> Option<String> {
    Some(format!("{}: {}", rule.status, rule.why()?))
}

/// Returns the severity of a status.
pub(super) fn tone(status: Status) -> Tone {
    match status {
        Status::Failed => Tone::Error,
        Status::Refused | Status::Partial => Tone::Warning,
        Status::Complete | Status::Skipped => Tone::Plain,
    }
}

/// Groups rules by a text that they share, in the order of the first of each.
pub(super) fn shared<'a>(texts: impl Iterator<Item = (&'a RuleReport, String)>) -> Vec<(String, Vec<&'a RuleReport>)> {
    let mut groups: Vec<(String, Vec<&RuleReport>)> = Vec::new();
    for (rule, text) in texts {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, sharing)) => sharing.push(rule),
            None => groups.push((text, vec![rule])),
        }
    }
    groups
}

/// Names rules: `a, b, c and 5 more`.
pub(super) fn named(report: &Report, rules: &[&RuleReport]) -> String {
    let titles: Vec<String> = rules.iter().take(MAX_NAMED).map(|rule| title(report, rule)).collect();
    let more = match rules.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {} more", count(more as u64)),
    };
    format!("{}{more}", titles.join(", "))
}

/// Returns a reason of `neverExpires` in words.
fn kept_because(reason: &str) -> String {
    match reason {
        "ttlNotPositive" => "whose ttl is 0 or a negative other than -1 (ttlNotPositive)".to_owned(),
        "string" => "whose string is no date by RFC 3339 with `Z` or an offset (string)".to_owned(),
        "implausibleEpoch" => "whose number is not a plausible date in the rule's unit (implausibleEpoch)".to_owned(),
        PARENT_FIELD => {
            "with an array or a regular expression in a `parentField`: which children they have is unclear (parentField)"
                .to_owned()
        }
        other => format!("({other})"),
    }
}

/// Returns the cell of a share in percent.
pub(super) fn share(percent: Option<f64>) -> String {
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %"))
}

/// Returns the number of some rules, and if they are rules with a `*` the number of their namespaces.
pub(super) fn by_rules<'a>(reports: impl Iterator<Item = &'a RuleReport>) -> String {
    let places: BTreeSet<(&str, &str)> = reports.map(|rule| (rule.name.as_str(), rule.namespace.as_str())).collect();
    let names: BTreeSet<&str> = places.iter().map(|(name, _)| *name).collect();
    let namespaces: BTreeSet<&str> = places.iter().map(|(_, namespace)| *namespace).collect();
    let rules = plural(names.len() as u64, "rule");
    if places.len() == names.len() { rules } else { format!("{rules} in {}", plural(namespaces.len() as u64, "namespace")) }
}

/// Returns the number of some rules, and apart from it how many of them delete nothing.
fn by_those_that_delete<'a>(report: &Report, rules: impl Iterator<Item = &'a RuleReport>) -> String {
    let deletes = |rule: &&RuleReport| match report.dry_run {
        true => rule.would_delete(),
        false => rule.has_deleted() || rule.children_deleted_count > Some(0) || rule.uncertain,
    };
    let (deleting, others): (Vec<_>, Vec<_>) = rules.partition(deletes);
    match deleting.is_empty() || others.is_empty() {
        true => by_rules(deleting.into_iter().chain(others)),
        false => format!("{}, nothing by {}", by_rules(deleting.into_iter()), by_rules(others.into_iter())),
    }
}

/// Returns the outcome of the run in one line.
pub(super) fn last(report: &Report) -> (Tone, String) {
    let has_run = |rule: &&RuleReport| matches!(rule.status, Status::Complete | Status::Partial) || rule.has_deleted();
    let ran = by_those_that_delete(report, report.rules.iter().filter(has_run));
    let mut parts = Vec::new();
    if report.dry_run {
        parts.push(match (report.rules.iter().any(|rule| rule.status == Status::Complete), AtMost::of(report)) {
            (false, _) => "nothing would be deleted".to_owned(),
            (true, None) => format!("would delete an unknown number of documents by {ran}"),
            (true, Some(most)) => format!("would delete {} by {ran}", most.bounded()),
        });
    } else if report.command == ReportCommand::Sweep {
        let least = if report.rules.iter().any(|rule| rule.uncertain) { "at least " } else { "" };
        let deleted = amount::deleted(report);
        parts.push(match report.rules.iter().any(|rule| has_run(&rule) || rule.uncertain) {
            true => format!("deleted {least}{deleted} by {ran}"),
            false => "nothing was deleted".to_owned(),
        });
        parts.extend(left(report));
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
    let units = report.totals.request_units.map_or_else(String::new, |units| format!(", for {units:.0} request units"));
    (
        tone(report.status),
        format!("{}: {}, in {}{units}", word(report, report.status), parts.join("; "), duration(report.duration_ms)),
    )
}

/// Says how many expired documents and orphans a sweep left; `None` if it left none.
pub(super) fn left(report: &Report) -> Option<String> {
    // After a lost reply, or a second signal, at least so many were deleted.
    let most = |rule: &RuleReport| rule.remaining_count.or_else(|| Some(rule.expired_count?.saturating_sub(rule.deleted_count)));
    let ran = || report.rules.iter().filter(|rule| rule.status != Status::Skipped);
    let unknown = ran().filter(|rule| most(rule).is_none()).count() as u64;
    let orphans = |rule: &RuleReport| orphans::left(rule).unwrap_or(0);
    let known = amount::left(report, |rule| if rule.status == Status::Skipped { 0 } else { most(rule).unwrap_or(0) }, orphans);
    let is_bound = ran().any(|rule| rule.remaining_count.is_none() && most(rule).is_some());
    let is_bound = is_bound || overlap::is_shared(ran(), most);
    let at_most = if is_bound { "at most " } else { "" };
    match (ran().any(|rule| most(rule).is_some_and(|left| left > 0) || orphans(rule) > 0), unknown) {
        (false, 0) => None,
        (true, 0) => Some(format!("left: {at_most}{known}")),
        (true, unknown) => Some(format!("left: {at_most}{known}; unknown: {}", plural(unknown, "rule"))),
        (false, unknown) => Some(format!("left: unknown ({})", plural(unknown, "rule"))),
    }
}

/// Names every rule that did not run to its end, the worst first, the first of them with their reasons.
pub(super) fn unfinished(report: &Report) -> Vec<String> {
    let of = |status: Status| report.rules.iter().filter(move |rule| rule.status == status);
    let rules: Vec<&RuleReport> = [Status::Failed, Status::Refused, Status::Partial].into_iter().flat_map(of).collect();
    let said = shared(rules.iter().filter_map(|rule| Some((*rule, said(rule)?))));
    let (told, others) = said.split_at(said.len().min(MAX_REASONS));
    let mut parts: Vec<String> = told.iter().map(|(why, sharing)| format!("{}: {why}", namespaces(sharing))).collect();
    let others: Vec<&RuleReport> = others.iter().flat_map(|(_, sharing)| sharing.iter().copied()).collect();
    if !others.is_empty() {
        parts.push(format!("also {}", namespaces(&others)));
    }
    parts
}

/// Names rules by their namespaces, and by their own names where they have some, up to [`MAX_NAMES`] of them.
fn namespaces(rules: &[&RuleReport]) -> String {
    let name = |rule: &&RuleReport| match rule.name == rule.namespace {
        true => rule.namespace.clone(),
        false => format!("{} ({})", rule.name, rule.namespace),
    };
    let names: Vec<String> = rules.iter().take(MAX_NAMES).map(name).collect();
    let more = match rules.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {} more", count(more as u64)),
    };
    format!("{}{more}", names.join(", "))
}
