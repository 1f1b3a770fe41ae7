//! Parses the HTML report.

use std::collections::BTreeMap;

use scraper::{ElementRef, Selector};
use serde_json::Value;
use ttl_sweeper::base::text::count;
use ttl_sweeper::core::report::{Format, Report, TableStyle, render};

/// Returns the report of an audit.
pub(crate) fn audit() -> Value {
    serde_json::from_str(include_str!("reports/audit.json")).expect("the fixture is JSON")
}

pub(crate) fn page(report: &Value) -> String {
    let report: Report = serde_json::from_value(report.clone()).expect("the fixture is a report");
    render(&report, Format::Html, TableStyle::default())
}

pub(crate) fn all<'a>(root: ElementRef<'a>, css: &str) -> Vec<ElementRef<'a>> {
    let selector = Selector::parse(css).expect("a selector");
    root.select(&selector).collect()
}

/// Returns the text of an element with its white space collapsed.
pub(crate) fn text(element: ElementRef) -> String {
    element.text().collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn texts(root: ElementRef, css: &str) -> Vec<String> {
    all(root, css).into_iter().map(text).collect()
}

/// Returns the facts of a rule by their labels.
pub(crate) fn facts(rule: ElementRef) -> BTreeMap<String, String> {
    all(rule, "dl.grid > div").into_iter().map(|fact| (texts(fact, "dt")[0].clone(), texts(fact, "dd")[0].clone())).collect()
}

/// Returns the cells of all rows in the body of a table.
pub(crate) fn rows(root: ElementRef, css: &str) -> Vec<Vec<String>> {
    all(root, &format!("{css} > tbody > tr")).into_iter().map(|row| texts(row, "th, td")).collect()
}

/// Formats a number as the page shows it.
pub(crate) fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "not measured".to_owned(), count)
}
