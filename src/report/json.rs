//! Reports of any kind as JSON, for machines.

use serde::Serialize;

/// The whole of a report, indented; ends with a newline.
pub fn render(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report holds strings, numbers and lists only");
    text.push('\n');
    text
}
