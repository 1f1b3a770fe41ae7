//! Figures of an audit in the article of a rule: ages, forecast and backlog as charts and tables, documents that never expire,
//! examples.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::charts::{self, Bar};
use super::words::{at, code, id, measured, name, next_days, scrolling, unmeasured};
use crate::base::text::{count, plural};
use crate::core::audit::figures::{AgeRange, AuditReport, BacklogMonth, ForecastDay, PARENT_FIELD, Sampling};
use crate::core::report::RuleReport;
use crate::core::report::ages::{age, merged};

/// Maximum length of a backlog that is shown by months; a longer one is shown by years.
const MAX_MONTHS: usize = 36;

/// Maximum number of samples of one kind that are shown; the JSON report has all.
const MAX_SAMPLES: usize = 50;

pub(super) fn charts(rule: &RuleReport, audit: &AuditReport) -> Markup {
    if audit.age_histogram.is_none() && audit.forecast.is_none() && audit.backlog.is_none() {
        return html! { p { strong { "Ages, forecast and backlog: " } (unmeasured()) } };
    }
    html! {
        div.charts {
            (figure("Age of the documents", audit.age_histogram.as_deref(), ages))
            (figure("Expiring in the next 30 days", audit.forecast.as_deref().map(|days| if next_days(audit) == Some(0) { &[] } else { days }), forecast))
            (figure("Expired, by the month of their date", audit.backlog.as_deref(), backlog))
        }
        p.muted { (exactness(rule, audit.sampling.as_ref())) }
    }
}

/// Shows a chart, its message and its numbers in a table; `draw` returns these three.
fn figure<T>(title: &str, values: Option<&[T]>, draw: impl Fn(&[T]) -> (Markup, String, Markup)) -> Markup {
    html! {
        figure {
            @match values {
                None => { figcaption { strong { (title) } } p { (unmeasured()) } }
                Some([]) => { figcaption { strong { (title) } } p.none { "none" } }
                Some(values) => {
                    @let (chart, says, table) = draw(values);
                    figcaption { strong { (title) } span.muted { (says) } }
                    div.chart role="img" aria-label={ (title) ": " (says) ". The numbers are in the table below." } { (chart) }
                    details.numbers { summary { "Numbers" } (scrolling(title, table)) }
                }
            }
        }
    }
}

fn exactness(rule: &RuleReport, sampling: Option<&Sampling>) -> String {
    match sampling {
        None => "Every document was looked at.".to_owned(),
        Some(sampling) => format!(
            "Ages, forecast and backlog of {} are projected from {} of {}; 95 % of the shares are within {} percentage points.",
            crate::base::text::clean(&rule.namespace),
            plural(sampling.documents, "document"),
            count(sampling.of),
            sampling.margin_percent
        ),
    }
}

fn ages(ranges: &[AgeRange]) -> (Markup, String, Markup) {
    let bars: Vec<Bar> = merged(ranges)
        .iter()
        .map(|range| Bar { label: age_range(range), expired: range.expired_count, kept: range.not_expired_count })
        .collect();
    let says = format!(
        "{} expired, {} not",
        count(ranges.iter().map(|range| range.expired_count).sum()),
        count(ranges.iter().map(|range| range.not_expired_count).sum())
    );
    let chart =
        html! { (charts::rows(&bars, charts::short)) p.legend { span.expired { "expired" } span.kept { "not expired" } } };
    let table = html! {
        table {
            thead { tr { th scope="col" { "age" } th.n scope="col" { "expired" } th.n scope="col" { "not expired" } } }
            tbody {
                @for range in ranges {
                    tr {
                        th scope="row" { (age_range(range)) }
                        td.n { (count(range.expired_count)) }
                        td.n { (count(range.not_expired_count)) }
                    }
                }
            }
        }
    };
    (chart, says, table)
}

fn age_range(range: &AgeRange) -> String {
    match (range.min_age_seconds, range.max_age_seconds) {
        (None, Some(0)) => "in the future".to_owned(),
        (None, Some(end)) if end < 0 => format!("in over {}", age(end.saturating_neg())),
        (Some(start), Some(end)) if end <= 0 => format!("in {} – {}", age(end.saturating_neg()), age(start.saturating_neg())),
        (None, Some(end)) => format!("under {}", age(end)),
        (Some(start), Some(end)) => format!("{} – {}", age(start), age(end)),
        (Some(start), None) => format!("{} and more", age(start)),
        (None, None) => "any".to_owned(),
    }
}

fn forecast(days: &[ForecastDay]) -> (Markup, String, Markup) {
    let label = |day: &ForecastDay| day.from.day().get(5..).unwrap_or_default().to_owned();
    let bars: Vec<Bar> = days.iter().map(|day| Bar { label: label(day), expired: day.count, kept: 0 }).collect();
    let most = days.iter().max_by_key(|day| day.count).filter(|day| day.count > 0);
    let most = most.map(|day| format!(", most from {} ({})", day.from.day(), count(day.count)));
    let says = format!("{} in all{}", count(days.iter().map(|day| day.count).sum()), most.unwrap_or_default());
    (
        charts::columns(&bars),
        crate::base::text::clean(&says),
        counts("24 hours from", days.iter().map(|day| (at(day.from), day.count))),
    )
}

fn backlog(months: &[BacklogMonth]) -> (Markup, String, Markup) {
    let mut by_period: Vec<(String, u64)> = months.iter().map(|month| (month.month.clone(), month.count)).collect();
    if months.len() > MAX_MONTHS {
        let mut years: BTreeMap<&str, u64> = BTreeMap::new();
        for month in months {
            let year = month.month.rsplit_once('-').map_or(month.month.as_str(), |(year, _)| year);
            let sum = years.entry(year).or_default();
            *sum = sum.saturating_add(month.count);
        }
        by_period = years.into_iter().map(|(year, sum)| (year.to_owned(), sum)).collect();
    }
    let by_years = months.len() > MAX_MONTHS;
    let bars: Vec<Bar> =
        by_period.iter().map(|(period, number)| Bar { label: period.clone(), expired: *number, kept: 0 }).collect();
    let ends = match (by_period.first(), by_period.last()) {
        (Some((from, _)), Some((to, _))) if from != to => format!("from {from} to {to}"),
        (Some((only, _)), _) => format!("in {only}"),
        (None, _) => String::new(),
    };
    let says = format!("{} {ends}", count(months.iter().map(|month| month.count).sum()));
    let table = counts(if by_years { "year" } else { "month" }, by_period.iter().map(|(period, number)| (name(period), *number)));
    (charts::columns(&bars), crate::base::text::clean(&says), table)
}

fn counts(head: &str, rows: impl Iterator<Item = (Markup, u64)>) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { (head) } th.n scope="col" { "documents" } } }
            tbody { @for (label, number) in rows { tr { th scope="row" { (label) } td.n { (count(number)) } } } }
        }
    }
}

/// Shows the documents that never expire by the rule, by reason; with some of their `_id`s if `full`.
pub(super) fn never(rule: &RuleReport, full: bool) -> Markup {
    let Some(reasons) = &rule.never_expires else {
        return html! { @if rule.audit.is_some() { p { strong { "Never expire: " } (unmeasured()) } } };
    };
    let samples = rule.audit.as_ref().filter(|_| full).map(|audit| &audit.never_expires_samples);
    let sampled = samples.into_iter().flat_map(BTreeMap::keys);
    let keys: BTreeSet<&String> = reasons.iter().filter(|(_, n)| **n > 0).map(|(reason, _)| reason).chain(sampled).collect();
    html! {
        @if !keys.is_empty() {
            h4 { "Never expire" }
            (scrolling("Never expire", html! {
                table.cards {
                    thead {
                        tr {
                            th scope="col" { "reason" } th scope="col" { "meaning" } th.n scope="col" { "documents" }
                            @if samples.is_some() { th scope="col" { "some _ids" } }
                        }
                    }
                    tbody {
                        @for reason in keys {
                            tr {
                                th scope="row" { (code(reason)) }
                                td.wrap data-l="meaning" { (meaning(reason)) }
                                td.n data-l="documents" { (measured(reasons.get(reason).copied())) }
                                @if let Some(samples) = samples {
                                    td data-l="some _ids" { @for value in samples.get(reason).into_iter().flatten().take(MAX_SAMPLES) { div { (id(value)) } } }
                                }
                            }
                        }
                    }
                }
            }))
        } @else if rule.audit.is_some() { p { strong { "Never expire: " } "none" } }
    }
}

/// Returns a reason of `neverExpires` in words; an empty text for an unknown reason.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "missing" => "the field is missing",
        "null" => "the field is null",
        "string" => "the field is a string",
        "number" => "the field is a number",
        "timestamp" => "the field is a Timestamp, which is not a date",
        "decimal" => "the field is a Decimal128",
        "date" => "the field is a date, and the rule expects another type",
        "otherType" => "the field has another type that is not a date",
        "emptyArray" => "the field is an empty array",
        "arrayWithoutDate" => "the field is an array with no date in it",
        "before1970" => "the date is before 1970",
        "noTtl" => "the document has no ttl of its own",
        "ttlNever" => "the document's own ttl is -1",
        "ttlNotPositive" => "the document's own ttl is 0 or a negative other than -1",
        "implausibleEpoch" => "the number is not a plausible date in the rule's unit",
        PARENT_FIELD => {
            "it has expired, and an array or a regular expression in a `parentField` makes it unclear which children it has"
        }
        _ => "",
    }
}

pub(super) fn samples(audit: &AuditReport) -> Markup {
    html! {
        @if !audit.samples.is_empty() {
            h4 { "Some expired documents" }
            (scrolling("Some expired documents", html! {
                table.sortable.cards {
                    thead { tr { th scope="col" { "_id" } th scope="col" { "date that decided" } th scope="col" { "why" } } }
                    tbody {
                        @for sample in audit.samples.iter().take(MAX_SAMPLES) {
                            tr {
                                td data-l="_id" { (id(&sample.id)) }
                                td.when data-l="date that decided" { (at(sample.date)) }
                                td.wrap data-l="why" { (name(&sample.why)) }
                            }
                        }
                    }
                }
            }))
            @if audit.samples.len() > MAX_SAMPLES {
                p.muted { (count((audit.samples.len() - MAX_SAMPLES) as u64)) " more are in the JSON report." }
            }
        }
    }
}
