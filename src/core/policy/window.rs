//! The times of the week in which a rule may delete.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveTime, Timelike, Utc, Weekday, WeekdaySet};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::problem::nearest;

const DAY: u32 = 86_400;
const WEEK: u32 = 7 * DAY;

/// A part of every day, or of some days of the week, from `start` (included) to `end` (excluded) by the clocks of a time zone.
///
/// With `end` before `start` the window goes over midnight, and belongs to the day on which it opens. An hour that daylight
/// saving time skips is in no window; a repeated hour is in the window twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    start: NaiveTime,
    end: NaiveTime,
    timezone: Tz,
    /// Days on which the window opens; `None` for all.
    days: Option<WeekdaySet>,
}

impl Window {
    /// Makes a window that opens on these days, `None` for every day. With days, one that ends at the time at which it starts
    /// lasts until the day after.
    ///
    /// Returns `None` if it would always be open, or never.
    pub fn new(start: NaiveTime, end: NaiveTime, timezone: Tz, days: Option<WeekdaySet>) -> Option<Self> {
        let is_some_time = days.map_or(start != end, |days| !days.is_empty());
        is_some_time.then_some(Self { start, end, timezone, days })
    }

    /// Whether the window is open at an instant.
    fn contains(&self, instant: DateTime<Utc>) -> bool {
        let now = instant.with_timezone(&self.timezone);
        let opens_on = |day: Weekday| self.days.is_none_or(|days| days.contains(day));
        let (has_started, has_ended) = (self.start <= now.time(), self.end <= now.time());
        match (self.start < self.end, has_started) {
            (true, _) => has_started && !has_ended && opens_on(now.weekday()),
            (false, true) => opens_on(now.weekday()),
            (false, false) => !has_ended && opens_on(now.weekday().pred()),
        }
    }

    /// Returns the openings in a week without a change of the clocks, as seconds since its Monday began.
    fn openings(&self) -> Vec<(u32, u32)> {
        let seconds = |time: NaiveTime| time.num_seconds_from_midnight();
        let length = match (seconds(self.end) + DAY - seconds(self.start)) % DAY {
            0 => DAY,
            length => length,
        };
        let days = self.days.unwrap_or(WeekdaySet::ALL).iter(Weekday::Mon);
        days.map(|day| day.num_days_from_monday() * DAY + seconds(self.start)).map(|opens| (opens, opens + length)).collect()
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} to {} {}", self.start, self.end, self.timezone)?;
        let Some(days) = self.days else { return Ok(()) };
        let days: Vec<String> = days.iter(Weekday::Mon).map(|day| day.to_string()).collect();
        write!(f, " on {}", days.join(", "))
    }
}

/// The windows of a rule, which may delete while one of them is open.
#[derive(Debug, Clone, PartialEq)]
pub struct Windows(pub(super) Vec<Window>);

impl Windows {
    /// Whether one of the windows is open at an instant.
    pub fn contains(&self, instant: DateTime<Utc>) -> bool {
        self.0.iter().any(|window| window.contains(instant))
    }

    /// Returns the longest time, at most a week, for which one window after the other is open, in a week without a change of
    /// the clocks. Time zones are not told apart.
    pub fn length(&self) -> Duration {
        let mut openings: Vec<(u32, u32)> = self.0.iter().flat_map(Window::openings).collect();
        openings.sort_unstable();
        let next_week: Vec<_> = openings.iter().map(|(opens, closes)| (opens + WEEK, closes + WEEK)).collect();
        openings.extend(next_week);
        let (mut since, mut until, mut longest) = (0, 0, 0);
        for (opens, closes) in openings {
            if opens > until {
                since = opens;
            }
            until = until.max(closes);
            longest = longest.max(until - since);
        }
        Duration::from_secs(longest.min(WEEK).into())
    }

    /// Whether a window opens on all days that, at the same times, opened on some of them before.
    pub(super) fn has_lost_days(&self, before: &Self) -> bool {
        let all_days = |window: &Window| Window { days: None, ..window.clone() };
        let had = |window: &Window| before.0.iter().any(|other| other.days.is_some() && all_days(other) == *window);
        self.0.iter().any(|window| window.days.is_none() && had(window))
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let windows: Vec<String> = self.0.iter().map(Window::to_string).collect();
        f.write_str(&windows.join(" or "))
    }
}

/// Parses a day of the week in three small letters.
pub fn parse_day(text: &str) -> Result<Weekday, String> {
    let short = |day: Weekday| day.to_string().to_lowercase();
    match text.parse::<Weekday>() {
        Ok(day) if short(day) == text => Ok(day),
        Ok(day) => Err(format!("{text:?} is not written as a day here; expected `{}`", short(day))),
        Err(_) => Err(format!("{text:?} is not a day; expected one of `mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun`")),
    }
}

/// Parses a time of the day, with seconds or without.
pub fn parse_time(text: &str) -> Result<NaiveTime, String> {
    let parsed = NaiveTime::parse_from_str(text, "%H:%M").or_else(|_| NaiveTime::parse_from_str(text, "%H:%M:%S"));
    let strict = text.len() == 5 || text.len() == 8;
    // The parser accepts `1:5` and, as a leap second, `23:59:60`.
    parsed.ok().filter(|time| strict && time.nanosecond() < 1_000_000_000).ok_or_else(|| {
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
        on(None, start, end, timezone)
    }

    /// Returns a window that opens on days, such as `sat sun`.
    fn on(days: Option<&str>, start: &str, end: &str, timezone: &str) -> Window {
        let days = days.map(|days| days.split(' ').map(|day| parse_day(day).unwrap()).collect());
        Window::new(parse_time(start).unwrap(), parse_time(end).unwrap(), parse_zone(timezone).unwrap(), days).unwrap()
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

    /// Compares windows with the clocks of a zone, minute by minute, around a change: `offsets` are the minutes by which the
    /// clocks are ahead of UTC before and after it.
    fn assert_by_the_clocks(zone: &str, change: &str, offsets: [i64; 2]) {
        const MINUTES: i64 = 24 * 60;
        // Mondays, at 00:00 UTC.
        const A_MONDAY: i64 = 1_767_571_200;
        let change: DateTime<Utc> = change.parse().unwrap();
        // Days, the minutes at which the window opens and closes.
        let cases: [(Option<&[i64]>, i64, i64); 8] = [
            (None, 90, 150),
            (None, 100, 115),
            (None, 1380, 180),
            (Some(&[6]), 60, 300),
            (Some(&[5]), 1320, 165),
            (Some(&[5, 6]), 0, 0),
            (Some(&[6]), 120, 120),
            (Some(&[0, 5]), 1380, 1370),
        ];
        let (mut open, mut closed) = (0, 0);
        for (days, opens, closes) in cases {
            let time = |minute: i64| format!("{:02}:{:02}", minute / 60, minute % 60);
            let names = days.map(|days| {
                days.iter()
                    .map(|day| ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][*day as usize])
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            let window = on(names.as_deref(), &time(opens), &time(closes), zone);
            for minute in -2 * MINUTES..2 * MINUTES {
                let instant = change + chrono::Duration::minutes(minute);
                let local = (instant.timestamp() - A_MONDAY) / 60 + offsets[usize::from(minute >= 0)];
                let (day, now) = (local.div_euclid(MINUTES).rem_euclid(7), local.rem_euclid(MINUTES));
                let is_on = |day: i64| days.is_none_or(|days| days.contains(&day.rem_euclid(7)));
                // Opened today and not closed yet, or opened yesterday and not closed before today.
                let lasts = if closes > opens { closes - opens } else { closes + MINUTES - opens };
                let expected = (0..=1).any(|ago| is_on(day - ago) && (opens..opens + lasts).contains(&(now + ago * MINUTES)));
                assert_eq!(window.contains(instant), expected, "{window} at {instant}");
                *(if expected { &mut open } else { &mut closed }) += 1;
            }
        }
        assert!(open > 1000 && closed > 1000, "{open} {closed}");
    }

    #[test]
    fn windows_go_by_the_clocks_of_their_zone_when_these_are_changed() {
        for (zone, change, offsets) in [
            ("Europe/Madrid", "2026-03-29T01:00:00Z", [60, 120]),
            ("Europe/Madrid", "2026-10-25T01:00:00Z", [120, 60]),
            ("America/New_York", "2026-03-08T07:00:00Z", [-300, -240]),
            ("America/New_York", "2026-11-01T06:00:00Z", [-240, -300]),
            // Half an hour, in the other half of the year.
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z", [630, 660]),
            ("Australia/Lord_Howe", "2026-04-04T15:00:00Z", [660, 630]),
        ] {
            assert_by_the_clocks(zone, change, offsets);
        }
    }

    #[test]
    fn a_window_belongs_to_the_day_on_which_it_opens() {
        // 2026-01-31 is a Saturday.
        let weekend = on(Some("sat sun"), "22:00", "02:00", "UTC");
        let edges = [
            "2026-01-31T01:59:59Z",
            "2026-01-31T22:00:00Z",
            "2026-02-01T01:59:59.999Z",
            "2026-02-01T02:00:00Z",
            "2026-02-02T01:59:59.999Z",
            "2026-02-02T22:00:00Z",
        ];
        assert_eq!(open(&weekend, &edges), [false, true, true, false, true, false]);
        let whole = on(Some("sat"), "06:00", "06:00", "UTC");
        let edges = ["2026-01-31T05:59:59.999Z", "2026-01-31T06:00:00Z", "2026-02-01T05:59:59.999Z", "2026-02-01T06:00:00Z"];
        assert_eq!(open(&whole, &edges), [false, true, true, false]);
        assert_eq!(weekend.to_string(), "22:00:00 to 02:00:00 UTC on Sat, Sun");
    }

    #[test]
    fn several_windows_are_open_while_one_of_them_is() {
        let windows = Windows(vec![window("01:00", "05:00", "UTC"), on(Some("sun"), "04:00", "08:00", "UTC")]);
        // 2026-02-01 is a Sunday.
        let instants = ["2026-02-01T07:59:59Z", "2026-02-01T08:00:00Z", "2026-02-02T04:59:59Z", "2026-02-02T05:00:00Z"];
        assert_eq!(instants.map(|instant| windows.contains(instant.parse().unwrap())), [true, false, true, false]);
        assert_eq!(windows.to_string(), "01:00:00 to 05:00:00 UTC or 04:00:00 to 08:00:00 UTC on Sun");
    }

    #[test]
    fn the_length_is_the_longest_time_without_a_pause() {
        let hours = |windows: &[Window]| Windows(windows.to_vec()).length().as_secs_f64() / 3600.0;
        let night = window("01:00", "05:00", "UTC");
        assert_eq!(hours(std::slice::from_ref(&night)), 4.0);
        assert_eq!(hours(&[window("22:00", "02:30", "UTC")]), 4.5);
        assert_eq!(hours(&[night.clone(), on(Some("sun"), "04:00", "08:00", "UTC")]), 7.0);
        assert_eq!(hours(&[night, window("20:00", "01:00", "UTC")]), 9.0);
        let days = on(Some("sat sun mon"), "00:00", "00:00", "UTC");
        assert_eq!(hours(std::slice::from_ref(&days)), 72.0, "over the end of the week");
        assert_eq!(hours(&[days, window("22:00", "00:00", "UTC")]), 74.0);
        assert_eq!(hours(&[window("00:00", "12:00", "UTC"), window("12:00", "00:00", "UTC")]), 168.0, "always");
    }

    #[test]
    fn only_times_and_zones_that_exist() {
        for text in ["Sat", "saturday", "sa", "SUN", "", "6", "sat "] {
            assert!(parse_day(text).unwrap_err().contains("expected"), "{text}");
        }
        assert!(parse_day("Saturday").unwrap_err().ends_with("expected `sat`"));
        let midnight = parse_time("00:00").unwrap();
        assert_eq!(Window::new(midnight, midnight, Tz::UTC, None), None, "always open");
        assert_eq!(Window::new(midnight, parse_time("01:00").unwrap(), Tz::UTC, Some(WeekdaySet::EMPTY)), None, "never open");
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
