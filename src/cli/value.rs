//! Values of options.

use std::time::Duration;

use bson::DateTime;

use crate::policy::duration;

pub fn parse_instant(text: &str) -> Result<DateTime, String> {
    let instant = chrono::DateTime::parse_from_rfc3339(text)
        .map_err(|_| "expected an instant such as 2026-01-31T02:00:00Z, with its offset from UTC".to_owned())?;
    Ok(DateTime::from_millis(instant.timestamp_millis()))
}

pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        0 => Err("expected at least 1s".into()),
        seconds => Ok(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_need_an_offset() {
        assert_eq!(parse_instant("1970-01-01T01:00:00.5+01:00"), Ok(DateTime::from_millis(500)));
        assert!(parse_instant("2026-01-31").is_err());
        assert!(parse_instant("2026-01-31T02:00:00").is_err());
    }
}
