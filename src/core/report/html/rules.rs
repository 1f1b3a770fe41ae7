//! Table of the rules.

use maud::{Markup, html};

use super::words::{
    about, code, deleted, found_by, is_counted, link, next_days, number_cell, prose, rule_name, scrolling, share, status, swept,
    unmeasured,
};
use crate::base::text::{count, duration, plural};
use crate::core::plan::Status;
use crate::core::report::{Report, ReportCommand, RuleReport};

/// Shows the rules in a table, and those with nothing to report in a second table, which is folded.
pub(super) fn rules(report: &Report, loud: &[usize], quiet: &[usize]) -> Markup {
    let folded = plural(quiet.len() as u64, "more rule");
    html! {
        section {
            h2 { "Rules" }
            @if swept(report) && !is_counted(report) { p.muted { "Expired documents were not counted before this sweep." } }
            @if !loud.is_empty() { (scrolling("Rules", table(report, loud, true))) }
            @if !quiet.is_empty() {
                details.quiet {
                    @let what = if report.command == ReportCommand::Check { "without a finding" } else { "with nothing expired" };
                    summary { (folded) " " (what) }
                    (scrolling(&format!("Rules {what}"), table(report, quiet, false)))
                }
            }
        }
    }
}

fn table(report: &Report, rules: &[usize], linked: bool) -> Markup {
    let (swept, counted, check) = (swept(report), is_counted(report), report.command == ReportCommand::Check);
    let audit = report.rules.iter().any(|rule| rule.audit.is_some());
    let asked = report.server.is_some();
    let would = report.dry_run && counted;
    let documents = if counted { "of" } else { "documents" };
    let row = |index: usize| {
        let rule = &report.rules[index];
        html! {
            tr {
                th scope="row" {
                    @if linked { (link(report, index)) } @else { (rule_name(report, index)) }
                    @if !linked && let Some(why) = rule.why() { span.under { (prose(&why)) } }
                }
                td data-l="status" {
                    (status(report, rule.status))
                    @if !rule.warnings.is_empty() { span.under.warned { (plural(rule.warnings.len() as u64, "warning")) } }
                }
                @if !asked { td.wrap data-l="namespace" { (code(&rule.namespace)) } }
                @if counted { (number_cell("expired", rule.expired_count)) }
                @if asked { (number_cell(documents, rule.document_count)) }
                @if counted {
                    td.n data-l="share" data-v=(rule.expired_percent.map(|percent| percent.to_string()).unwrap_or_default()) {
                        (share(rule.share()))
                    }
                }
                @if would { (would_go(rule)) }
                @if swept {
                    td.n data-l="deleted" data-v=(rule.deleted_count) { (deleted(rule.deleted_count, rule.uncertain)) }
                    (number_cell("left", rule.remaining_count))
                }
                @if audit { (number_cell("in 30 days", rule.audit.as_ref().and_then(next_days))) }
                @if counted {
                    td.when data-l="oldest" data-v=(rule.oldest_expired.map(|oldest| oldest.to_string()).unwrap_or_default()) {
                        @if let Some(oldest) = rule.oldest_expired { (about(oldest)) } @else { "–" }
                    }
                }
                @if check && asked { td data-l="found by" { (found_by(rule)) } }
                @if !check { (time_cell(rule)) }
            }
        }
    };
    html! {
        table.sortable.cards {
            thead {
                tr {
                    th scope="col" { "rule" }
                    th scope="col" { "status" }
                    @if !asked { th scope="col" { "namespace" } }
                    @if counted { th.n scope="col" { "expired" } }
                    @if asked { th.n scope="col" { (documents) } }
                    @if counted { th.n scope="col" { "share" } }
                    @if would { th.n scope="col" { "would go" } }
                    @if swept { th.n scope="col" { "deleted" } th.n scope="col" { "left" } }
                    @if audit { th.n scope="col" { "in 30 days" } }
                    @if counted { th scope="col" { "oldest" } }
                    @if check && asked { th scope="col" { "found by" } }
                    @if !check { th.n scope="col" { "time" } }
                }
            }
            tbody { @for &index in rules { (row(index)) } }
        }
    }
}

/// Returns the cell of the documents that one sweep deletes at most, with the limit that keeps it from more.
fn would_go(rule: &RuleReport) -> Markup {
    let goes = rule.would_delete_count;
    html! {
        td.n data-l="would go" data-v=(goes.map(|goes| goes.to_string()).unwrap_or_default()) {
            @match goes {
                Some(goes) => (count(goes)),
                None if rule.status == Status::Complete => (unmeasured()),
                None => "–",
            }
            @if let Some(limit) = rule.would_delete_limit { span.under { (limit) } }
        }
    }
}

fn time_cell(rule: &RuleReport) -> Markup {
    match rule.status {
        Status::Skipped => html! { td.n data-l="time" data-v="" { "–" } },
        _ => html! { td.n data-l="time" data-v=(rule.duration_ms) { (duration(rule.duration_ms)) } },
    }
}
