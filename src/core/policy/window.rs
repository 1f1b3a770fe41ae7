//! The hours of the day in which a rule may delete.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, NaiveTime, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::problem::nearest;

/// A part of every day, from `start` (included) to `end` (excluded) by the clocks of a time zone.
///
/// With `end` before `start` the window goes over midnight. An hour that daylight saving time skips is in no window; a repeated
/// hour is in the window twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    start: NaiveTime,
    end: NaiveTime,
    timezone: Tz,
}

impl Window {
    /// Makes a window; `None` if it ends when it starts.
    pub fn new(start: NaiveTime, end: NaiveTime, timezone: Tz) -> Option<Self> {
        (start != end).then_some(Self { start, end, timezone })
    }

    /// Returns the length of the window on a day without a change of the clocks.
    pub fn length(&self) -> Duration {
        let seconds = (self.end - self.start).num_seconds().rem_euclid(86_400);
        Duration::from_secs(seconds.unsigned_abs())
    }

    /// Whether the window is open at an instant.
    pub fn contains(&self, instant: DateTime<Utc>) -> bool {
        let time = instant.with_timezone(&self.timezone).time();
        if self.start < self.end { self.start <= time && time < self.end } else { self.start <= time || time < self.end }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} to {} {}", self.start, self.end, self.timezone)
    }
}

/// Parses a time of the day, with seconds or without.
pub fn parse_time(text: &str) -> Result<NaiveTime, String> {
    let parsed = NaiveTime::parse_from_str(text, "%H:%M").or_else(|_| NaiveTime::parse_from_str(text, "%H:%M:%S"));
    let strict = text.len() == 5 || text.len() == 8;
    // The parser accepts `1:5` and, as a leap second, `23:59:60`.
    parsed.ok().filter(|time| strict && chrono::Timelike::nanosecond(time) < 1_000_000_000).ok_or_else(|| {
        format!("{text:?} is not a time of the day; expected hours and minutes from \"00:00\" to \"23:59\", quoted")
    })
}

/// Parses the name of a time zone.
pub fn parse_zone(text: &str) -> Result<Tz, String> {
    text.parse().map_err(|_| {
        let of_city = TZ_VARIANTS.iter().map(|zone| zone.name()).find(|name| name.rsplit('/').next() == Some(text));
        let expected = match of_city.or_else(|| nearest(text, TZ_VARIANTS.iter().map(|zone| zone.name()))) {
            Some(name) => format!("{name:?}?"),
            None => "a name of the IANA time zone database such as \"Europe/Madrid\" or \"UTC\"".to_owned(),
        };
        format!("{text:?} is not a time zone; expected {expected}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: &str, end: &str, timezone: &str) -> Window {
        Window::new(parse_time(start).unwrap(), parse_time(end).unwrap(), parse_zone(timezone).unwrap()).unwrap()
    }

    /// Says at each of these instants whether the window is open.
    fn open(window: &Window, instants: &[&str]) -> Vec<bool> {
        instants.iter().map(|instant| window.contains(instant.parse().unwrap())).collect()
    }

    #[test]
    fn start_is_in_and_end_is_out() {
        let night = window("01:00", "05:00", "UTC");
        let edges = [
            "2026-01-31T00:59:59.999Z",
            "2026-01-31T01:00:00Z",
            "2026-01-31T04:59:59.999Z",
            "2026-01-31T05:00:00Z",
            "2026-01-31T13:00:00Z",
        ];
        assert_eq!(open(&night, &edges), [false, true, true, false, false]);
        let over_midnight = window("22:00", "02:00:30", "UTC");
        let edges = [
            "2026-01-31T21:59:59.999Z",
            "2026-01-31T22:00:00Z",
            "2026-02-01T00:00:00Z",
            "2026-02-01T02:00:29.999Z",
            "2026-02-01T02:00:30Z",
        ];
        assert_eq!(open(&over_midnight, &edges), [false, true, true, true, false]);
        let to_midnight = window("20:00", "00:00", "UTC");
        assert_eq!(open(&to_midnight, &["2026-01-31T23:59:59.999Z", "2026-02-01T00:00:00Z"]), [true, false]);
    }

    #[test]
    fn daylight_saving_moves_the_window_with_the_clocks() {
        let madrid = window("01:00", "05:00", "Europe/Madrid");
        // Winter is an hour ahead of UTC, summer two.
        assert_eq!(open(&madrid, &["2026-01-15T00:00:00Z", "2026-01-15T03:59:59Z", "2026-01-15T04:00:00Z"]), [true, true, false]);
        assert_eq!(open(&madrid, &["2026-07-15T00:00:00Z", "2026-07-15T02:59:59Z", "2026-07-15T03:00:00Z"]), [true, true, false]);
        assert_eq!(open(&madrid, &["2026-07-14T22:59:59Z", "2026-07-14T23:00:00Z"]), [false, true]);

        // 2026-03-29 02:00 to 03:00 does not exist in Madrid: a window that ends within that hour closes when the clocks jump.
        let skipped = window("01:30", "02:30", "Europe/Madrid");
        assert_eq!(
            open(&skipped, &["2026-03-29T00:30:00Z", "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"]),
            [true, true, false]
        );
        let never = window("02:10", "02:50", "Europe/Madrid");
        assert_eq!(
            open(&never, &["2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z"]),
            [false, false, false]
        );

        // 2026-10-25 02:00 to 03:00 comes twice.
        let twice = window("02:00", "02:30", "Europe/Madrid");
        let edges = ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"];
        assert_eq!(open(&twice, &edges), [true, false, true, false]);
    }

    #[test]
    fn only_times_and_zones_that_exist() {
        for text in ["24:00", "1:00", "01:60", "0100", "01:00:60", "23:59:60", "-1:00", "01:00 ", "", "1h"] {
            assert!(parse_time(text).unwrap_err().contains("expected"), "{text}");
        }
        for text in ["CET+1", "Madrid", "europe/madrid ", "", "+01:00"] {
            assert!(parse_zone(text).unwrap_err().contains("expected"), "{text}");
        }
        for (text, near) in
            [("Madrid", "Europe/Madrid"), ("europe/Berln", "Europe/Berlin"), ("utc ", "UTC"), ("New_York", "America/New_York")]
        {
            assert!(
                parse_zone(text).unwrap_err().ends_with(&format!("expected {near:?}?")),
                "{text}: {}",
                parse_zone(text).unwrap_err()
            );
        }
        assert_eq!(window("01:00", "05:00", "Europe/Madrid").to_string(), "01:00:00 to 05:00:00 Europe/Madrid");
    }
}
