//! Reports and schemas as JSON.

use serde::Serialize;

/// Returns a value as indented JSON; the text ends with a newline.
pub fn render(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report holds strings, numbers and lists only");
    text.push('\n');
    text
}
