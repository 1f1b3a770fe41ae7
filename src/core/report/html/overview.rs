//! Beginning of the page: the outcome of the run, its totals, and the rules that need attention.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::words::{at, code, deleted, is_counted, link, measured, name, next_days, prose, status, swept, title};
use crate::base::text::{bytes, clean, count, duration, plural};
use crate::core::plan::Status;
use crate::core::report::amount::{self, AtMost};
use crate::core::report::lines::{by_rules, last, shared};
use crate::core::report::{Report, ReportCommand, RuleReport, estimate, overlap, preview};

/// Maximum number of rules that are listed as needing attention; of any others only the number is shown.
const MAX_URGENT: usize = 20;

/// Maximum number of rules that a warning or a total links to.
const MAX_LINKS: usize = 5;

/// Returns the outcome of the run in a few words.
pub(super) fn verdict(report: &Report) -> String {
    let bad = report.totals.failed + report.totals.refused;
    if report.command == ReportCommand::Check {
        return match (bad, &report.server) {
            (0, Some(_)) => "ready to sweep".to_owned(),
            (0, None) => "no problem found".to_owned(),
            (bad, _) => format!("{} would not run", plural(bad as u64, "rule")),
        };
    }
    if report.dry_run || report.command == ReportCommand::Audit {
        return match AtMost::of(report) {
            None => "an unknown number of documents would go".to_owned(),
            Some(most) if most.is_none() => "nothing would go".to_owned(),
            Some(most) => format!("{} would go", most.bounded()),
        };
    }
    let least = if is_uncertain(report) { "at least " } else { "" };
    let deleted = amount::deleted(report);
    match deleted.total() {
        0 if least.is_empty() => "nothing was deleted".to_owned(),
        1 => format!("{least}{deleted} was deleted"),
        _ => format!("{least}{deleted} were deleted"),
    }
}

pub(super) fn head(report: &Report, verdict: &str) -> Markup {
    html! {
        p.kind { (title(report)) " " (status(report, report.status)) }
        h1 { (verdict) }
        p.last { (prose(&if report.command == ReportCommand::Check { checked(report) } else { last(report).1 })) }
        @if report.dry_run {
            @for line in preview::of_run(report).into_iter().chain(estimate::of_deployment_once(report)) {
                p.last { (prose(&line)) }
            }
        }
        (tiles(report))
        (run(report))
    }
}

fn checked(report: &Report) -> String {
    let rules = by_rules(report.rules.iter());
    match &report.server {
        Some(_) => format!("{rules} held against the deployment; nothing was deleted"),
        None => format!("{rules} read; nothing was contacted (`--connect` looks at the deployment as well)"),
    }
}

/// Shows the totals.
fn tiles(report: &Report) -> Markup {
    let tile = |label: &str, value: Markup| html! { div { dt { (label) } dd { (value) } } };
    let looked_at = || report.rules.iter().filter(|rule| rule.status != Status::Skipped);
    let audits: Vec<&RuleReport> = looked_at().filter(|rule| rule.audit.is_some()).collect();
    let forecast = audits.iter().map(|rule| (*rule, rule.audit.as_ref().and_then(next_days)));
    let never = audits.iter().map(|rule| (*rule, rule.never_expires.as_ref().map(|reasons| reasons.values().sum::<u64>())));
    let hold = looked_at().filter(|rule| rule.expired_count != Some(0));
    let overlapping = overlap::at_most(&report.rules, |rule| rule.expired_count);
    let names = report.rules.iter().map(|rule| rule.name.as_str()).collect::<BTreeSet<_>>().len();
    let left = overlap::at_most(&report.rules, |rule| rule.remaining_count);
    html! {
        dl.tiles {
            @if is_counted(report) {
                (tile("expired", match report.totals.expired_count {
                    Some(expired) => html! { (overlapping) (count(expired)) },
                    None => sum(report, looked_at().map(|rule| (rule, rule.expired_count)), count),
                }))
                (tile("their size, estimated", html! { (overlapping) (sum(report, hold.map(|rule| (rule, rule.estimated_bytes)), bytes)) }))
            }
            @if let Some(orphans) = report.totals.old_orphan_count.filter(|orphans| *orphans > 0) {
                (tile("orphans", html! { (count(orphans)) }))
            }
            @if swept(report) {
                (tile("deleted", html! { (deleted(report.totals.deleted_count, is_uncertain(report))) }))
                @if let Some(orphans) = report.totals.orphans_deleted_count.filter(|orphans| *orphans > 0) {
                    (tile("orphans deleted", html! { (deleted(orphans, is_uncertain(report))) }))
                }
                (tile("left", html! { (left) (sum(report, looked_at().map(|rule| (rule, rule.remaining_count)), count)) }))
            }
            @if !audits.is_empty() {
                (tile("expire in 30 days", sum(report, forecast, count)))
                (tile("never expire", sum(report, never, count)))
            }
            (tile("rules", html! {
                (count(names as u64))
                span.under {
                    @if report.rules.len() > names { "in " (plural(report.rules.len() as u64, "namespace")) ", " }
                    (report.totals.refused) " refused, " (report.totals.failed) " failed"
                }
            }))
            @if warned(report) > 0 {
                (tile("warnings", html! {
                    (count(warned(report) as u64))
                    span.under { "in " (plural(report.rules.iter().filter(|rule| !rule.warnings.is_empty()).count() as u64, "rule")) }
                }))
            }
        }
    }
}

/// Shows the sum of the measured values, and the rules without one.
fn sum<'a>(report: &'a Report, values: impl Iterator<Item = (&'a RuleReport, Option<u64>)>, show: fn(u64) -> String) -> Markup {
    let (missing, known): (Vec<_>, Vec<_>) = values.partition(|(_, value)| value.is_none());
    html! {
        @if known.is_empty() && !missing.is_empty() {
            (measured(None))
        } @else {
            (show(known.iter().filter_map(|(_, value)| *value).sum()))
            @if !missing.is_empty() {
                span.under { "without " (links(report, &missing.iter().map(|(rule, _)| *rule).collect::<Vec<_>>())) }
            }
        }
    }
}

/// Links to the first of some rules, and counts the others.
fn links(report: &Report, rules: &[&RuleReport]) -> Markup {
    let index = |rule: &RuleReport| report.rules.iter().position(|other| std::ptr::eq(other, rule));
    html! {
        @for (place, rule) in rules.iter().take(MAX_LINKS).enumerate() {
            @if place > 0 { ", " }
            @if let Some(index) = index(rule) { (link(report, index)) }
        }
        @if rules.len() > MAX_LINKS { " and " (count((rules.len() - MAX_LINKS) as u64)) " more" }
    }
}

/// Returns the number of warnings of all rules.
fn warned(report: &Report) -> usize {
    report.rules.iter().map(|rule| rule.warnings.len()).sum()
}

fn is_uncertain(report: &Report) -> bool {
    report.rules.iter().any(|rule| rule.uncertain)
}

/// Shows the run, the deployment and the policy.
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
                    @if let Some(why) = &server.untested { br; strong { "untested: " } (name(why)) }
                } @else { "not asked" }
            }
            dt { "policy" } dd { (name(&report.policy.path)) }
            dt { "sha256" } dd { (code(&report.policy.sha256)) }
            dt { "run" } dd { (code(&report.run_id)) }
            dt { "exit code" } dd { (report.exit_code) }
            @if !report.pacing_changes.is_empty() {
                dt { "read again" }
                dd { @for change in &report.pacing_changes { div { (prose(&change.words())) } } }
            }
        }
    }
}

/// Lists the rules that did not run to the end.
pub(super) fn attention(report: &Report) -> Markup {
    let bad = || report.rules.iter().enumerate().filter(|(_, rule)| rule.status >= Status::Partial);
    let more = bad().count().saturating_sub(MAX_URGENT);
    let worst_first = [Status::Failed, Status::Refused, Status::Partial];
    let sorted = worst_first.into_iter().flat_map(|status| bad().filter(move |(_, rule)| rule.status == status));
    html! {
        @if bad().next().is_some() {
            section.attention {
                h2 { (if report.command == ReportCommand::Check { "Would not run" } else { "Refused or unfinished rules" }) }
                ul {
                    @for (index, rule) in sorted.take(MAX_URGENT) {
                        li { (status(report, rule.status)) " " (link(report, index)) @if let Some(why) = rule.why() { ": " (prose(&why)) } }
                    }
                    @if more > 0 { li { (count(more as u64)) " more, in the table below" } }
                }
            }
        }
    }
}

/// Lists the warnings, each once with the rules that share it.
pub(super) fn warnings(report: &Report) -> Markup {
    let warnings = report.rules.iter().flat_map(|rule| rule.warnings.iter().map(move |warning| (rule, warning.clone())));
    let warnings = shared(warnings);
    let more = warnings.len().saturating_sub(MAX_URGENT);
    html! {
        @if !warnings.is_empty() {
            section.attention {
                h2 { (plural(warned(report) as u64, "warning")) }
                ul {
                    @for (warning, rules) in warnings.iter().take(MAX_URGENT) {
                        li.note.warning {
                            (links(report, rules)) ": " (prose(warning))
                        }
                    }
                    @if more > 0 { li { (count(more as u64)) " more, at the rules below" } }
                }
            }
        }
    }
}
