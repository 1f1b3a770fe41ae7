//! Pieces of text that several parts of the page use: names, numbers, dates and states, all escaped.

use maud::{Markup, html};
use serde_json::Value;

use crate::base::instant::Instant;
use crate::base::text::{self, clean, count};
use crate::core::audit::figures::AuditReport;
use crate::core::plan::Status;
use crate::core::report::{Report, ReportCommand, RuleReport, Strategy, lines};

/// Maximum number of characters of an `_id` that are shown.
const MAX_ID_CHARS: usize = 160;

/// Shows a text from outside, isolated so that its writing direction does not affect the text around it.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { (clean(text)) } }
}

/// Shows a message, with what is between two backticks as code.
pub(super) fn prose(text: &str) -> Markup {
    let text = clean(text);
    if text.matches('`').count() % 2 == 1 {
        return html! { bdi { (text) } };
    }
    html! { bdi { @for (place, part) in text.split('`').enumerate() { @if place % 2 == 1 { code { (part) } } @else { (part) } } } }
}

pub(super) fn code(text: &str) -> Markup {
    html! { code { bdi { (clean(text)) } } }
}

pub(super) fn unmeasured() -> Markup {
    html! { span.none { "not measured" } }
}

pub(super) fn measured(value: Option<u64>) -> Markup {
    html! { @if let Some(number) = value { (count(number)) } @else { (unmeasured()) } }
}

/// Shows an instant to the millisecond.
pub(super) fn at(instant: Instant) -> Markup {
    html! { time datetime=(instant) { (instant) } }
}

/// Shows an instant to the minute.
pub(super) fn about(instant: Instant) -> Markup {
    html! { time datetime=(instant) title=(instant) { (instant.minute()) } }
}

/// Shows an `_id`, or the beginning of a long one.
pub(super) fn id(value: &Value) -> Markup {
    let text = text::id(value);
    match text.char_indices().nth(MAX_ID_CHARS) {
        Some((end, _)) => html! { code { bdi { (text[..end]) } "…" } },
        None => html! { code { bdi { (text) } } },
    }
}

/// Returns the cell of a number in a table that can be sorted.
pub(super) fn number_cell(label: &str, value: Option<u64>) -> Markup {
    html! { td.n data-l=(label) data-v=(value.map(|number| number.to_string()).unwrap_or_default()) { (measured(value)) } }
}

/// Shows a share as a bar, with its number.
pub(super) fn share(percent: Option<f64>) -> Markup {
    html! {
        @if let Some(percent) = percent {
            span.bar style=(format!("--share:{percent}%")) {} span { (format!("{percent:.1} %")) }
        } @else { (unmeasured()) }
    }
}

/// Wraps a table so that it scrolls on its own if it is too wide, with the keyboard as well.
pub(super) fn scrolling(label: &str, table: Markup) -> Markup {
    html! { div.scroll tabindex="0" role="group" aria-label=(label) { (table) } }
}

/// Returns a number of deleted documents; a lower bound if a reply was lost.
pub(super) fn deleted(number: u64, uncertain: bool) -> String {
    format!("{}{}", if uncertain { "≥ " } else { "" }, count(number))
}

/// Links to the article of a rule.
pub(super) fn link(report: &Report, index: usize) -> Markup {
    html! { a href={"#rule-" (index + 1)} { (rule_name(report, index)) } }
}

/// Returns the rule's name, with its namespace if others share the name.
pub(super) fn rule_name(report: &Report, index: usize) -> Markup {
    name(&lines::title(report, &report.rules[index]))
}

/// Whether the run was one that deletes.
pub(super) fn swept(report: &Report) -> bool {
    report.command == ReportCommand::Sweep && !report.dry_run
}

/// Whether the run counted expired documents: a check never does, a sweep only if it asks for confirmation or a guard needs the
/// count.
pub(super) fn is_counted(report: &Report) -> bool {
    match report.command {
        ReportCommand::Check => false,
        ReportCommand::Audit => true,
        ReportCommand::Sweep => report.dry_run || report.rules.iter().any(|rule| rule.expired_count.is_some()),
    }
}

/// Returns the number of documents that expire within the days of the forecast.
pub(super) fn next_days(audit: &AuditReport) -> Option<u64> {
    audit.forecast.as_ref().map(|days| days.iter().map(|day| day.count).sum())
}

/// Returns the index, or the other way to find the expired documents.
pub(super) fn found_by(rule: &RuleReport) -> Markup {
    html! {
        @match (&rule.index, rule.strategy) {
            (Some(index), _) => { "index " (code(index)) }
            (None, Some(Strategy::Buckets)) => "whole buckets",
            (None, Some(Strategy::CollectionScan | Strategy::Index)) => "collection scan",
            (None, None) => (unmeasured()),
        }
    }
}

/// Shows a status.
pub(super) fn status(report: &Report, status: Status) -> Markup {
    html! { span class={"status " (status)} { (lines::word(report, status)) } }
}

/// Returns the name of the command.
pub(super) fn title(report: &Report) -> &'static str {
    match report.command {
        ReportCommand::Check => "sweeper check",
        ReportCommand::Audit => "sweeper audit",
        ReportCommand::Sweep if report.dry_run => "sweeper dry run",
        ReportCommand::Sweep => "sweeper sweep",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_to_the_minute() {
        let about = |millis| about(Instant(bson::DateTime::from_millis(millis))).0;
        assert!(about(1_769_824_984_000).contains(">2026-01-31 02:03<"));
        assert!(about(253_402_300_800_000).contains(">253402300800000 ms since 1970<"));
    }

    #[test]
    fn what_is_between_backticks_is_code_and_a_single_one_is_text() {
        let shown = |text: &str| prose(text).0;
        assert_eq!(shown("no `a<b` in `c`"), "<bdi>no <code>a&lt;b</code> in <code>c</code></bdi>");
        assert_eq!(shown("one ` of them"), "<bdi>one ` of them</bdi>");
    }

    #[test]
    fn a_long_id_is_shown_by_its_beginning() {
        let markup = id(&Value::String("é".repeat(1_000))).0;
        assert_eq!(markup.matches('é').count(), MAX_ID_CHARS - 1, "{markup}");
        assert!(markup.contains('…'));
    }
}
