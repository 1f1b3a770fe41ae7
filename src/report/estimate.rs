//! The estimate of a sweep in words.

use serde_json::Value;

use crate::plan::estimate::{Estimate, SpeedSource};
use crate::text::{bytes, count, duration, plural};

/// Returns the estimate in clauses, without what is unknown: `adds 1.17 MiB to the oplog`.
pub(super) fn clauses(estimate: &Estimate) -> Vec<String> {
    let mut clauses = vec![format!("would delete {}{}", plural(estimate.documents, "document"), in_size_and_time(estimate))];
    clauses.extend(estimate.oplog_bytes.map(|size| format!("adds {} to the oplog", bytes(size))));
    clauses.extend(estimate.oplog_window_seconds.map(|now| match estimate.oplog_window_after_seconds {
        Some(after) => format!("the oplog covers {} now and {} after it, once full", seconds(now), seconds(after)),
        None => format!("the oplog covers {} now, and an unknown time after it", seconds(now)),
    }));
    clauses.extend(estimate.oplog_unknown.as_ref().map(|why| format!("what that leaves of the oplog is unknown: {why}")));
    clauses.extend(estimate.reusable_bytes.map(|size| format!("makes {} reusable", bytes(size))));
    clauses.extend(estimate.compact_bytes.filter(|size| *size > 0).map(|size| {
        let members = match estimate.compact_members.as_deref() {
            None | Some([]) => "each member, the primary last".to_owned(),
            Some([only]) => only.clone(),
            Some([secondaries @ .., primary]) => format!("{} and at last {primary}", secondaries.join(", ")),
        };
        format!("`compact` then gives back {} on {members}", bytes(size))
    }));
    clauses
}

/// Returns the values that are known, by their names in the report.
pub(super) fn named(estimate: &Estimate) -> Vec<(String, String)> {
    let Ok(Value::Object(values)) = serde_json::to_value(estimate) else { return Vec::new() };
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    };
    values.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name, text(value))).collect()
}

/// Returns the estimate in a few words, for a question: `about 12.0 s, 1.17 MiB of oplog`.
pub(crate) fn brief(estimate: &Estimate) -> String {
    let mut parts = vec![time(estimate)];
    parts.extend(estimate.oplog_bytes.map(|size| {
        let after = estimate.oplog_window_after_seconds.map(|after| format!(", which then covers {}", seconds(after)));
        format!("{} of oplog{}", bytes(size), after.unwrap_or_default())
    }));
    parts.join(", ")
}

fn in_size_and_time(estimate: &Estimate) -> String {
    let size = estimate.bytes.map(|size| format!(" of {}", bytes(size))).unwrap_or_default();
    let source = match estimate.speed_source {
        SpeedSource::History => "the speed of earlier sweeps",
        SpeedSource::Assumption => "an assumed speed",
    };
    let speed = format!("{source} of {} documents per second", count(estimate.documents_per_second as u64));
    format!("{size} in {}, by {speed} and the limits", time(estimate))
}

fn time(estimate: &Estimate) -> String {
    match estimate.seconds {
        None => "an unknown time".to_owned(),
        Some(..1.0) => "less than a second".to_owned(),
        // A cast from float saturates.
        Some(seconds) => format!("about {}", duration((seconds * 1000.0) as u64)),
    }
}

fn seconds(seconds: u64) -> String {
    duration(seconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_said_or_left_out_and_never_zero() {
        let known = Estimate {
            documents: 1200,
            bytes: Some(2048),
            seconds: Some(12.0),
            documents_per_second: 100.0,
            speed_source: SpeedSource::History,
            oplog_bytes_per_document: Some(125.0),
            oplog_bytes: Some(150_000),
            oplog_window_seconds: Some(86_400),
            oplog_window_after_seconds: Some(80_000),
            oplog_unknown: None,
            reusable_bytes: Some(4096),
            compact_bytes: Some(8192),
            compact_members: Some(vec!["b:1".into(), "c:1".into(), "a:1".into()]),
        };
        assert_eq!(
            clauses(&known),
            [
                "would delete 1,200 documents of 2.00 KiB in about 12.0 s, by the speed of earlier sweeps of 100 documents per second and the limits",
                "adds 146.48 KiB to the oplog",
                "the oplog covers 24h 00m now and 22h 13m after it, once full",
                "makes 4.00 KiB reusable",
                "`compact` then gives back 8.00 KiB on b:1, c:1 and at last a:1",
            ]
        );
        assert_eq!(brief(&known), "about 12.0 s, 146.48 KiB of oplog, which then covers 22h 13m");
        let short = Estimate { seconds: Some(0.9), oplog_bytes: None, ..known.clone() };
        assert_eq!(brief(&short), "less than a second");
        let unknown = Estimate {
            bytes: None,
            seconds: None,
            speed_source: SpeedSource::Assumption,
            oplog_bytes_per_document: None,
            oplog_bytes: None,
            oplog_window_seconds: None,
            oplog_window_after_seconds: None,
            oplog_unknown: Some("not shown".into()),
            reusable_bytes: None,
            compact_bytes: None,
            compact_members: None,
            ..known
        };
        assert_eq!(
            clauses(&unknown),
            [
                "would delete 1,200 documents in an unknown time, by an assumed speed of 100 documents per second and the limits",
                "what that leaves of the oplog is unknown: not shown",
            ]
        );
        assert_eq!(brief(&unknown), "an unknown time");
    }
}
