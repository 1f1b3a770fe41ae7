//! The report as JSON: the whole of it, as `schema.json` describes it.

use super::Report;

pub fn render(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report holds strings, numbers and lists only");
    text.push('\n');
    text
}
