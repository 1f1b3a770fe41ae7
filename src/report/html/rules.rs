//! Table of the rules.

use maud::{Markup, html};

use super::words::{
    about, code, deleted, found_by, is_counted, link, name, next_days, number_cell, rule_name, scrolling, share, status, swept,
};
use crate::report::{Report, ReportCommand, RuleReport, Status};
use crate::text::{duration, plural};

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
                    summary { (folded) " with nothing expired" }
                    (scrolling("Rules with nothing expired", table(report, quiet, false)))
                }
            }
        }
    }
}

fn table(report: &Report, rules: &[usize], linked: bool) -> Markup {
    let (swept, counted, check) = (swept(report), is_counted(report), report.command == ReportCommand::Check);
    let audit = report.rules.iter().any(|rule| rule.audit.is_some());
    let asked = report.server.is_some();
    let row = |index: usize| {
        let rule = &report.rules[index];
        html! {
            tr {
                th scope="row" {
                    @if linked { (link(report, index)) } @else { (rule_name(report, index)) }
                    @if !linked && let Some(why) = rule.why() { span.under { (name(&why)) } }
                }
                td { (status(report, rule.status)) }
                @if !asked { td.wrap { (code(&rule.namespace)) } }
                @if counted { (number_cell(rule.expired_count)) }
                @if asked { (number_cell(rule.document_count)) }
                @if counted {
                    td.n data-v=(rule.expired_percent.map(|percent| percent.to_string()).unwrap_or_default()) {
                        (share(rule.expired_percent))
                    }
                }
                @if swept { td.n data-v=(rule.deleted_count) { (deleted(rule.deleted_count, rule.uncertain)) } }
                @if audit { (number_cell(rule.audit.as_ref().and_then(next_days))) }
                @if counted {
                    td.when data-v=(rule.oldest_expired.map(|oldest| oldest.to_string()).unwrap_or_default()) {
                        @if let Some(oldest) = rule.oldest_expired { (about(oldest)) } @else { "–" }
                    }
                }
                @if check && asked { td { (found_by(rule)) } }
                @if !check { (time_cell(rule)) }
            }
        }
    };
    html! {
        table.sortable {
            thead {
                tr {
                    th scope="col" { "rule" }
                    th scope="col" { "status" }
                    @if !asked { th scope="col" { "namespace" } }
                    @if counted { th.n scope="col" { "expired" } }
                    @if asked { th.n scope="col" { (if counted { "of" } else { "documents" }) } }
                    @if counted { th.n scope="col" { "share" } }
                    @if swept { th.n scope="col" { "deleted" } }
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

fn time_cell(rule: &RuleReport) -> Markup {
    match rule.status {
        Status::Skipped => html! { td.n data-v="" { "–" } },
        _ => html! { td.n data-v=(rule.duration_ms) { (duration(rule.duration_ms)) } },
    }
}
