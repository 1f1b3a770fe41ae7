//! Durations as people write them: `90d`, `1h30m`. Only units of a fixed length: a month or a year has none.

/// Largest `expireAfterSeconds` that MongoDB accepts, and so the longest duration here: 2^31 - 1 seconds, about 68 years.
pub const MAX_SECONDS: i64 = 2_147_483_647;

const UNITS: [(char, i64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Parses a duration to whole seconds: numbers with a unit of `w`, `d`, `h`, `m` or `s`, the larger unit first.
///
/// Errors: what was found and what was expected. Zero is accepted; a sign, a fraction, a blank or a missing unit is not.
pub fn parse(text: &str) -> Result<i64, String> {
    let wrong = |why: &str| format!("{why}: {text:?}; {}", expected(text));
    let mut seconds: i64 = 0;
    let mut units = UNITS.iter();
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong("empty duration"));
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            return Err(wrong("not a duration"));
        }
        let (number, tail) = rest.split_at(digits);
        let Some(unit) = tail.chars().next() else {
            return Err(wrong("a number without a unit"));
        };
        if unit == '.' || unit == ',' {
            return Err(wrong("a fraction"));
        }
        let Some((_, length)) = units.find(|(letter, _)| *letter == unit) else {
            let known = UNITS.iter().any(|(letter, _)| *letter == unit);
            return Err(wrong(if known { "units out of order or repeated" } else { "an unknown unit" }));
        };
        seconds = number
            .parse::<i64>()
            .ok()
            .and_then(|n| n.checked_mul(*length))
            .and_then(|n| n.checked_add(seconds))
            .filter(|n| *n <= MAX_SECONDS)
            .ok_or_else(|| wrong("longer than 2147483647 seconds"))?;
        rest = &tail[unit.len_utf8()..];
    }
    Ok(seconds)
}

/// Says what to write instead: the same duration in valid units if the text can be understood, else an example.
fn expected(text: &str) -> String {
    let compact: String = text.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
    let digits = compact.len() - compact.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, word) = compact.split_at(digits);
    let letter = match word {
        "month" | "months" | "mo" => return without_length(number, 30),
        "year" | "years" | "yr" | "y" => return without_length(number, 365),
        "weeks" | "week" | "w" => "w",
        "days" | "day" | "d" => "d",
        "hours" | "hour" | "hrs" | "hr" | "h" => "h",
        "minutes" | "minute" | "mins" | "min" => "m",
        "seconds" | "second" | "secs" | "sec" | "s" => "s",
        _ => "",
    };
    let meant = format!("{number}{letter}");
    // The duration may be too long; and an `M` may mean a month as well as a minute.
    if letter.is_empty() || meant == text || parse(&meant).is_err() {
        return "expected a duration such as `90d`, `12h`, `45m`, `30s`".to_owned();
    }
    format!("expected `{meant}`?")
}

fn without_length(number: &str, days: i64) -> String {
    let days = number.parse::<i64>().ok().and_then(|n| n.checked_mul(days)).unwrap_or(days);
    format!("months and years have no fixed length; expected days, such as `{days}d`")
}

/// Formats whole seconds as [`parse`] reads them, in days and smaller units.
pub fn format(seconds: i64) -> String {
    let mut rest = seconds;
    let mut out = String::new();
    for (letter, length) in &UNITS[1..] {
        if rest >= *length {
            out.push_str(&format!("{}{letter}", rest / length));
            rest %= length;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_duration_is_parsed_back() {
        for (seconds, text) in
            [(0, "0s"), (3_600, "1h"), (2_592_000, "30d"), (694_861, "8d1h1m1s"), (MAX_SECONDS, "24855d3h14m7s")]
        {
            assert_eq!(format(seconds), text);
            assert_eq!(parse(text), Ok(seconds));
        }
    }

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("0s", 0),
            ("30s", 30),
            ("45m", 2_700),
            ("12h", 43_200),
            ("90d", 7_776_000),
            ("2w", 1_209_600),
            ("1h30m", 5_400),
            ("1w1d1h1m1s", 694_861),
            ("2147483647s", MAX_SECONDS),
        ] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
        }
        for (text, part) in [
            ("", "empty"),
            ("30", "without a unit"),
            ("h", "not a duration"),
            ("-1d", "not a duration"),
            ("+1d", "not a duration"),
            ("1.5d", "fraction"),
            ("1 d", "unknown unit"),
            ("1d ", "not a duration"),
            ("3M", "unknown unit"),
            ("1y", "unknown unit"),
            ("30m1h", "out of order"),
            ("1h1h", "out of order"),
            ("2147483648s", "longer"),
            ("99999999999999999999d", "longer"),
            ("9223372036854775807w", "longer"),
            ("1é", "unknown unit"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn common_mistakes_are_answered_with_the_correct_duration() {
        for (text, part) in [
            ("90 days", "; expected `90d`?"),
            ("1 hour", "; expected `1h`?"),
            ("5min", "; expected `5m`?"),
            ("90D", "; expected `90d`?"),
            (" 30s ", "; expected `30s`?"),
            ("3 months", "no fixed length; expected days, such as `90d`"),
            ("1y", "no fixed length; expected days, such as `365d`"),
            ("99999999999999999999 years", "such as `365d`"),
            ("3M", "; expected a duration such as"),
            ("99999 days", "; expected a duration such as"),
            ("2147483648s", "; expected a duration such as"),
            ("days", "; expected a duration such as"),
            ("1.5 h", "; expected a duration such as"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.ends_with(part) || message.contains(&format!("{part} `90d`")), "{text}: {message}");
        }
    }
}
