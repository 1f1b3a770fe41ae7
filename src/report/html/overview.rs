//! The beginning of the page: what happened, in how many documents, what needs a person, and all rules in one table.

use maud::{Markup, html};

use super::lines::{last, title as rule_title};
use super::words::{at, code, measured, name};
use super::{Command, Report, RuleReport, Status, status};
use crate::text::{bytes, clean, count, duration, plural};

/// More rules than this that need a person are named by their number.
const MOST_URGENT: usize = 20;

/// What would go or what went, in a few words.
pub fn verdict(report: &Report) -> String {
    let bad = report.totals.failed + report.totals.refused;
    if report.command == Command::Check {
        return match (bad, &report.server) {
            (0, Some(_)) => "ready to sweep".to_owned(),
            (0, None) => "no problem found".to_owned(),
            (bad, _) => format!("{} would not run", plural(bad as u64, "rule")),
        };
    }
    if report.dry_run || report.command == Command::Audit {
        let ready = report.rules.iter().filter(|rule| rule.status == Status::Complete);
        return match ready.map(|rule| rule.expired_count).sum::<Option<u64>>() {
            None => "an unknown number of documents would go".to_owned(),
            Some(0) => "nothing would go".to_owned(),
            Some(number) => format!("{} would go", plural(number, "document")),
        };
    }
    let least = if is_uncertain(report) { "at least " } else { "" };
    match report.totals.deleted_count {
        0 if least.is_empty() => "nothing was deleted".to_owned(),
        1 => format!("{least}1 document was deleted"),
        number => format!("{least}{} were deleted", plural(number, "document")),
    }
}

pub fn head(report: &Report, verdict: &str) -> Markup {
    html! {
        p.kind { (super::title(report)) " " (status(report, report.status)) }
        h1 { (verdict) }
        p.last { (if report.command == Command::Check { checked(report) } else { clean(&last(report).1) }) }
        (tiles(report))
        (run(report))
    }
}

fn checked(report: &Report) -> String {
    let rules = plural(report.totals.rules as u64, "rule");
    match &report.server {
        Some(_) => format!("{rules} held against the deployment; nothing was deleted"),
        None => format!("{rules} read; nothing was contacted (`--connect` looks at the deployment as well)"),
    }
}

/// The totals.
fn tiles(report: &Report) -> Markup {
    let tile = |label: &str, value: Markup| html! { div { dt { (label) } dd { (value) } } };
    let looked_at = || report.rules.iter().filter(|rule| rule.status != Status::Skipped);
    let audits: Vec<&RuleReport> = looked_at().filter(|rule| rule.audit.is_some()).collect();
    let forecast = audits.iter().map(|rule| rule.audit.as_ref().and_then(super::rule::next_days));
    let never = audits.iter().map(|rule| rule.never_expires.as_ref().map(|reasons| reasons.values().sum::<u64>()));
    let hold = looked_at().filter(|rule| rule.expired_count != Some(0));
    html! {
        dl.tiles {
            @if is_counted(report) {
                (tile("expired", match report.totals.expired_count {
                    Some(expired) => html! { (count(expired)) },
                    None => sum(looked_at().map(|rule| rule.expired_count), count),
                }))
                (tile("their size, estimated", sum(hold.map(|rule| rule.estimated_bytes), bytes)))
            }
            @if swept(report) { (tile("deleted", html! { (deleted(report.totals.deleted_count, is_uncertain(report))) })) }
            @if !audits.is_empty() {
                (tile("expire in 30 days", sum(forecast, count)))
                (tile("never expire", sum(never, count)))
            }
            (tile("rules", html! {
                (count(report.totals.rules as u64))
                span.under { (report.totals.refused) " refused, " (report.totals.failed) " failed" }
            }))
        }
    }
}

/// The sum of what was measured, and of how many rules it says nothing.
fn sum(values: impl Iterator<Item = Option<u64>>, show: fn(u64) -> String) -> Markup {
    let values: Vec<Option<u64>> = values.collect();
    let known = values.iter().flatten().count();
    let missing = values.len() - known;
    html! {
        @if known == 0 && missing > 0 {
            (measured(None))
        } @else {
            (show(values.iter().flatten().sum()))
            @if missing > 0 { span.under { (plural(missing as u64, "rule")) " not measured" } }
        }
    }
}

fn is_uncertain(report: &Report) -> bool {
    report.rules.iter().any(|rule| rule.uncertain)
}

/// What the server said was deleted; a lower bound where a reply was lost.
pub fn deleted(number: u64, uncertain: bool) -> String {
    format!("{}{}", if uncertain { "≥ " } else { "" }, count(number))
}

/// What ran, on what, by which policy.
fn run(report: &Report) -> Markup {
    html! {
        dl.facts {
            dt { "as of" } dd { @if let Some(as_of) = report.as_of { (at(as_of)) } @else { "–" } }
            dt { "started" } dd { (at(report.started_at)) ", took " (duration(report.duration_ms)) }
            dt { "server" }
            dd {
                @if let Some(server) = &report.server {
                    (clean(&server.flavor)) " " (name(&server.version)) ", " (clean(&server.topology))
                    @if let Some(set) = &server.name { " " (name(set)) }
                    @if !server.hosts.is_empty() { ": " (name(&server.hosts.join(", "))) }
                    @if server.flavor != "mongodb" { " (recognised by " (name(&server.recognised_by)) ")" }
                } @else { "not asked" }
            }
            dt { "policy" } dd { (name(&report.policy.path)) }
            dt { "sha256" } dd { (code(&report.policy.sha256)) }
            dt { "run" } dd { (code(&report.run_id)) }
            dt { "exit code" } dd { (report.exit_code) }
        }
    }
}

/// The rules that did not run to their end.
pub fn attention(report: &Report) -> Markup {
    let bad = || report.rules.iter().enumerate().filter(|(_, rule)| rule.status >= Status::Partial);
    let more = bad().count().saturating_sub(MOST_URGENT);
    let worst_first = [Status::Failed, Status::Refused, Status::Partial];
    let sorted = worst_first.into_iter().flat_map(|status| bad().filter(move |(_, rule)| rule.status == status));
    html! {
        @if bad().next().is_some() {
            section.attention {
                h2 { (if report.command == Command::Check { "Would not run" } else { "Not run to the end" }) }
                ul {
                    @for (index, rule) in sorted.take(MOST_URGENT) {
                        li { (status(report, rule.status)) " " (link(report, index)) @if let Some(why) = rule.why() { ": " (name(&why)) } }
                    }
                    @if more > 0 { li { (count(more as u64)) " more, in the table below" } }
                }
            }
        }
    }
}

pub fn link(report: &Report, index: usize) -> Markup {
    html! { a href={"#rule-" (index + 1)} { (rule_name(report, index)) } }
}

/// The rule's name; with its namespace where others share the name.
pub fn rule_name(report: &Report, index: usize) -> Markup {
    html! { bdi { (rule_title(report, &report.rules[index])) } }
}

pub fn swept(report: &Report) -> bool {
    report.command == Command::Sweep && !report.dry_run
}

/// Whether expired documents were counted: a check never does, a sweep only where somebody asks.
pub fn is_counted(report: &Report) -> bool {
    match report.command {
        Command::Check => false,
        Command::Audit => true,
        Command::Sweep => report.dry_run || report.rules.iter().any(|rule| rule.expired_count.is_some()),
    }
}
