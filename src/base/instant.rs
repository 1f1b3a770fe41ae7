//! Instants and lengths of time in the form in which other runs read them: in reports, archives, locks and the history.

use std::fmt;
use std::time::Duration;

use bson::DateTime;
use chrono::{Datelike, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// RFC 3339 in UTC with milliseconds or, outside the years 0 to 9999, milliseconds since 1970, as in MongoDB's Extended JSON.
///
/// JSON holds the text, BSON a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(rename = "instant")]
pub struct Instant(#[schemars(with = "String", regex(pattern = PATTERN))] pub DateTime);

impl Default for Instant {
    /// Returns the Unix epoch.
    fn default() -> Self {
        Self(DateTime::from_millis(0))
    }
}

const PATTERN: &str = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z|-?[0-9]+ ms since 1970)$";

impl Instant {
    /// Returns the minute, such as `2026-01-31 02:03`.
    pub fn minute(self) -> String {
        let text = self.to_string();
        text.get(..16).filter(|_| text.ends_with('Z')).map_or_else(|| text.clone(), |minute| minute.replace('T', " "))
    }

    /// Returns the day, such as `2026-01-31`.
    pub fn day(self) -> String {
        let text = self.to_string();
        text.get(..10).filter(|_| text.ends_with('Z')).map_or_else(|| text.clone(), str::to_owned)
    }

    /// Returns the milliseconds since 1970.
    pub fn millis(self) -> i64 {
        self.0.timestamp_millis()
    }
}

impl From<DateTime> for Instant {
    fn from(at: DateTime) -> Self {
        Self(at)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map(Self).ok_or_else(|| D::Error::custom(format!("`{text}` is not an RFC 3339 instant")))
    }
}

/// Returns an instant as [`Instant`] shows it.
pub fn rfc3339(at: DateTime) -> String {
    match chrono::DateTime::<Utc>::from_timestamp_millis(at.timestamp_millis()) {
        Some(instant) if (0..=9999).contains(&instant.year()) => instant.to_rfc3339_opts(SecondsFormat::Millis, true),
        _ => format!("{} ms since 1970", at.timestamp_millis()),
    }
}

/// Reads an instant from the text that [`rfc3339`] returns.
pub fn parse(text: &str) -> Option<DateTime> {
    match text.strip_suffix(" ms since 1970") {
        Some(millis) => Some(DateTime::from_millis(millis.parse().ok()?)),
        None => Some(DateTime::from_millis(chrono::DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis())),
    }
}

/// Returns a length of time in whole milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_a_text_in_json_and_a_date_in_bson() {
        for (millis, text) in [(0, "1970-01-01T00:00:00.000Z"), (253_402_300_800_000, "253402300800000 ms since 1970")] {
            let at = Instant(DateTime::from_millis(millis));
            let json = serde_json::to_value(at).unwrap();
            assert_eq!(json, text);
            assert_eq!(serde_json::from_value::<Instant>(json).unwrap(), at);
            let bytes = bson::serialize_to_vec(&std::collections::BTreeMap::from([("at", at)])).unwrap();
            let document: bson::Document = bson::deserialize_from_slice(&bytes).unwrap();
            assert_eq!(document, bson::doc! { "at": at.0 });
        }
        assert!(serde_json::from_str::<Instant>("\"yesterday\"").unwrap_err().to_string().contains("`yesterday`"));
    }
}
