//! How instants and lengths of time are written, wherever another run reads them: reports, archives, locks and the history.

use std::time::Duration;

use bson::DateTime;
use chrono::{SecondsFormat, Utc};

/// RFC 3339 in UTC with milliseconds; years outside of 0 to 9999 as MongoDB's extended form has no other: milliseconds since 1970.
pub fn rfc3339(at: DateTime) -> String {
    match chrono::DateTime::<Utc>::from_timestamp_millis(at.timestamp_millis()) {
        Some(instant) if (0..=9999).contains(&chrono::Datelike::year(&instant)) => {
            instant.to_rfc3339_opts(SecondsFormat::Millis, true)
        }
        _ => format!("{} ms since 1970", at.timestamp_millis()),
    }
}

/// Reads what [`rfc3339`] wrote.
pub fn parse(text: &str) -> Option<DateTime> {
    match text.strip_suffix(" ms since 1970") {
        Some(millis) => Some(DateTime::from_millis(millis.parse().ok()?)),
        None => Some(DateTime::from_millis(chrono::DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis())),
    }
}

/// Whole milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
