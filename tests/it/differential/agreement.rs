//! Compares an audit with a dry run: what a dry run says, an audit says as well.

use serde_json::Value;

use super::comparison::{Differences, same};

/// Names of the values that may differ.
const MAY_DIFFER: [&str; 9] = [
    // Another command, at another time.
    "command",
    "runId",
    "startedAt",
    "durationMs",
    // A dry run counts the documents that look as if they were meant to expire, an audit all that never do.
    "neverExpires",
    // A checkpoint changes the size of the server's files meanwhile.
    "reusableBytes",
    "compactBytes",
    // The oplog grows meanwhile.
    "oplogWindowSeconds",
    "oplogWindowAfterSeconds",
];

/// Names of the values that depend on the `_id`s of a random sample, and so differ a little.
const OF_A_SAMPLE: [&str; 2] = ["oplogBytes", "oplogBytesPerDocument"];

/// Compares the reports of a dry run and an audit of the same documents at the same `asOf`.
pub(super) fn compare(dry: &Value, audit: &Value, found: &mut Differences) {
    walk("", dry, audit, found);
}

fn walk(path: &str, dry: &Value, audit: &Value, found: &mut Differences) {
    match (dry, audit) {
        (Value::Null, _) => {}
        (Value::Object(of_dry), Value::Object(_)) => {
            for (name, value) in of_dry.iter().filter(|(name, _)| !MAY_DIFFER.contains(&name.as_str())) {
                walk(&format!("{path}.{name}"), value, audit.get(name).unwrap_or(&Value::Null), found);
            }
        }
        // An audit also doubts what it sees in the documents.
        (Value::Array(of_dry), Value::Array(of_audit)) if path.ends_with(".warnings") => {
            for warning in of_dry.iter().filter(|warning| !of_audit.contains(warning)) {
                found.push(format!("{path}: the audit does not say {warning}"));
            }
        }
        (Value::Array(of_dry), Value::Array(of_audit)) => {
            same!(found, of_audit.len(), of_dry.len(), "{path}: length, against that of the dry run");
            for (number, (one, other)) in of_dry.iter().zip(of_audit).enumerate() {
                walk(&format!("{path}[{number}]"), one, other, found);
            }
        }
        (Value::Number(_), Value::Number(_)) if OF_A_SAMPLE.iter().any(|name| path.ends_with(name)) => {
            let [one, other] = [dry, audit].map(|value| value.as_f64().unwrap_or_default());
            same!(found, (one - other).abs() <= one / 10.0, true, "{path} is about {dry} in the audit as well: {audit}");
        }
        _ => same!(found, audit, dry, "{path}, against that of the dry run"),
    }
}
