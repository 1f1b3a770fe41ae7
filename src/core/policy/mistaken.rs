//! Strings in a filter that were meant as values of another type, and what to write in their place.

use bson::Bson;

use crate::base::text::meant_number;
use crate::base::values::mongosh;

/// Functions of shells and drivers that make a value, in small letters.
const FUNCTIONS: [&str; 27] = [
    "isodate",
    "objectid",
    "numberlong",
    "numberint",
    "numberdecimal",
    "numberdouble",
    "uuid",
    "csuuid",
    "juuid",
    "pyuuid",
    "luuid",
    "bindata",
    "hexdata",
    "minkey",
    "maxkey",
    "regexp",
    "dbref",
    "decimal128",
    "int32",
    "int64",
    "bsonregexp",
    "bsontimestamp",
    "date.now",
    "date.utc",
    "datetime.datetime",
    "objectid.createfromtime",
    "long.fromstring",
];

/// Functions whose names are words of English: a string is one only if its arguments fit.
const WORDS: [&str; 8] = ["date", "timestamp", "double", "long", "binary", "datetime", "code", "symbol"];

/// Returns what to write in place of a string that can only be meant as a typed value: a shell constructor, or Extended JSON in
/// quotes. `is_secret` keeps the string itself out of it.
pub(super) fn constructor(text: &str, is_secret: bool) -> Option<String> {
    let text = text.trim().trim_end_matches(';').trim_end();
    if text.starts_with('{') && text[1..].trim_start().trim_start_matches(['"', '\'']).starts_with('$') {
        return Some(match typed(text).filter(|_| !is_secret) {
            Some(value) => format!("{value}, without the quotes around it"),
            None => "the same without the quotes around it".to_owned(),
        });
    }
    let call = text.strip_prefix("new ").map_or(text, str::trim_start);
    let (name, arguments) = call.split_once('(')?;
    let name = name.trim_end().to_ascii_lowercase();
    let first = arguments.trim_start().chars().next();
    let is_called = first.is_none_or(|first| "\"'{)-".contains(first) || first.is_ascii_digit());
    let is_function = FUNCTIONS.contains(&name.as_str()) || (WORDS.contains(&name.as_str()) && is_called);
    let written = || typed(text).or_else(|| day(&name, arguments)).filter(|_| !is_secret);
    is_function.then(|| written().unwrap_or_else(|| form(&name).to_owned()))
}

/// Operators that compare, each before a space or a colon.
const OPERATORS: [&str; 12] =
    ["$gt", "$gte", "$lt", "$lte", "$ne", "$eq", "$in", "$nin", "$exists", "$not", "$regex", "$elemMatch"];

/// Returns what to write in place of a string that begins with an operator and what it compares with, such as `$gt 5`.
/// `is_secret` keeps the string itself out of it.
pub(super) fn operator(text: &str, is_secret: bool) -> Option<String> {
    let text = text.trim();
    let (name, value) = text.split_at(text.find([' ', ':'])?);
    let value = value.trim_start_matches([' ', ':']);
    let value = if is_secret { "..." } else { value };
    (OPERATORS.contains(&name) && !value.is_empty()).then(|| format!("{{{name}: {value}}}"))
}

/// Returns the Extended JSON of a constructor of a date whose argument is a day, which mongosh takes for its midnight in UTC.
fn day(name: &str, arguments: &str) -> Option<String> {
    let day = arguments.trim_end().strip_suffix(')')?.trim().trim_matches(['"', '\'']);
    let instant = ["isodate", "date"].contains(&name).then(|| instant(day)).flatten()?;
    Some(format!("{{$date: \"{instant}\"}}"))
}

/// Returns the form of the Extended JSON in place of a tag of YAML that is named like a constructor, such as `!ISODate`.
pub(super) fn of_tag(tag: &str) -> Option<&'static str> {
    let name = tag.trim_start_matches('!').to_ascii_lowercase();
    (FUNCTIONS.contains(&name.as_str()) || WORDS.contains(&name.as_str())).then(|| form(&name))
}

/// Returns the Extended JSON of a text that mongosh would read as a value with a type.
fn typed(text: &str) -> Option<String> {
    match mongosh::candidates(text).ok()?.as_slice() {
        [Bson::String(_)] => None,
        [value] => Some(written(value)),
        _ => None,
    }
}

/// Returns the form of the Extended JSON in place of a constructor.
fn form(name: &str) -> &'static str {
    match name {
        "objectid" | "objectid.createfromtime" => "{$oid: \"...\"} with 24 hexadecimal digits",
        "numberlong" | "long" | "int64" | "long.fromstring" => "a whole number, or {$numberLong: \"...\"}",
        "numberint" | "int32" => "a whole number, or {$numberInt: \"...\"}",
        "numberdecimal" | "decimal128" => "{$numberDecimal: \"...\"}",
        "numberdouble" | "double" => "a number, or {$numberDouble: \"...\"}",
        "uuid" => "{$uuid: \"...\"}",
        "csuuid" | "juuid" | "pyuuid" | "luuid" => "{$binary: {base64: \"...\", subType: \"03\"}}",
        "bindata" | "hexdata" | "binary" => "{$binary: {base64: \"...\", subType: \"00\"}}",
        "timestamp" | "bsontimestamp" => "{$timestamp: {t: 1, i: 1}}",
        "minkey" => "{$minKey: 1}",
        "maxkey" => "{$maxKey: 1}",
        "regexp" | "bsonregexp" => "{$regularExpression: {pattern: \"...\", options: \"\"}}",
        "dbref" | "code" | "symbol" => "its Extended JSON",
        _ => "{$date: \"2026-11-24T00:00:00Z\"}, with a date of your own",
    }
}

/// Returns a value as Extended JSON in the notation of a policy.
fn written(value: &Bson) -> String {
    let plain = value.clone().into_relaxed_extjson();
    // A number without its type is the same in a policy.
    shown(&plain)
}

fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(parts) => {
            let parts: Vec<String> = parts.iter().map(|(key, value)| format!("{key}: {}", shown(value))).collect();
            format!("{{{}}}", parts.join(", "))
        }
        other => other.to_string(),
    }
}

/// Whether a string looks like a date, a date with a time, or a regular expression, which no string of a field is likely to be
/// that holds none.
pub(super) fn is_date_or_pattern(text: &str) -> bool {
    is_date(text) || pattern(text).is_some()
}

/// Returns what to write in place of a string next to a field without strings. `is_secret` keeps the string itself out of it;
/// `None` if nothing tells what was meant.
pub(super) fn meant(text: &str, is_secret: bool) -> Option<String> {
    let shown = if is_secret { "..." } else { text.trim() };
    if is_date(text) {
        let parsed = instant(text.trim()).filter(|_| !is_secret);
        return Some(format!("{{$date: \"{}\"}}", parsed.unwrap_or_else(|| "2026-11-24T00:00:00Z".to_owned())));
    }
    if let Some((pattern, options)) = pattern(text) {
        let (pattern, options) = if is_secret { ("...", "...") } else { (pattern, options) };
        return Some(match options {
            "" => format!("{{$regex: '{pattern}'}}"),
            options => format!("{{$regex: '{pattern}', $options: '{options}'}}"),
        });
    }
    let text = text.trim();
    if bson::oid::ObjectId::parse_str(text).is_ok() {
        return Some(format!("{{$oid: \"{shown}\"}}"));
    }
    if text.len() == 36 && bson::Uuid::parse_str(text).is_ok() {
        return Some(format!("{{$uuid: \"{shown}\"}}"));
    }
    // A number that YAML takes for a string, as it is written.
    let is_grouped = text.contains(['_', ',']) || (text.len() > 1 && text.starts_with('0') && !text.contains('.'));
    if let Some(number) = meant_number(text).filter(|_| is_grouped) {
        return Some(if is_secret { "the number in plain digits".to_owned() } else { number.to_string() });
    }
    if text.parse::<f64>().is_ok() {
        return Some("the number without quotes".to_owned());
    }
    let words = ["true", "false", "yes", "no", "on", "off"];
    words.iter().any(|word| word.eq_ignore_ascii_case(text)).then(|| "true or false without quotes".to_owned())
}

/// Returns what to write in place of a sub-document that is Extended JSON but for a `$`.
pub(super) fn misspelt(keys: &[&str]) -> Option<String> {
    const KEYS: [&str; 11] = [
        "date",
        "oid",
        "numberLong",
        "numberInt",
        "numberDouble",
        "numberDecimal",
        "uuid",
        "binary",
        "timestamp",
        "regularExpression",
        "regex",
    ];
    let [key] = keys else { return None };
    KEYS.iter().find(|known| known.eq_ignore_ascii_case(key)).map(|known| format!("{{${known}: ...}}"))
}

/// Returns a date as the Extended JSON has it; `None` if the day is not clear.
fn instant(text: &str) -> Option<String> {
    let day = chrono::NaiveDate::parse_from_str(text.get(..10)?, "%Y-%m-%d").ok()?;
    let rest = &text[10..];
    if rest.is_empty() {
        return Some(format!("{day}T00:00:00Z"));
    }
    chrono::DateTime::parse_from_rfc3339(text).ok().map(|_| text.to_owned())
}

/// Whether a string is a day, or a day and a time, in one of the usual forms.
fn is_date(text: &str) -> bool {
    let text = text.trim();
    let digits: Vec<usize> = text.split(|c: char| !c.is_ascii_digit()).take(4).map(str::len).collect();
    let separator = |at: usize| text.as_bytes().get(at).copied();
    let day_ends = |at: usize| matches!(separator(at), None | Some(b'T' | b't' | b' ' | b'Z' | b'+' | b'_'));
    match digits.as_slice() {
        // 2026-11-24, 2026/11/24, and what follows.
        [4, 1..=2, day @ 1..=2, ..] if "-/.".contains([text.as_bytes()[4] as char]) => day_ends(4 + 1 + digits[1] + 1 + day),
        // 2026-11
        [4, 2] => separator(4) == Some(b'-'),
        // 24.11.2026, 11/24/2026
        [1..=2, 1..=2, 4, ..] => {
            let after_first = digits[0];
            "-/.".contains([text.as_bytes()[after_first] as char]) && day_ends(after_first + 1 + digits[1] + 1 + 4)
        }
        // 20261124T000000
        [8, 6, ..] => separator(8) == Some(b'T'),
        _ => false,
    }
}

/// Returns the pattern and the options of a regular expression between slashes.
fn pattern(text: &str) -> Option<(&str, &str)> {
    let (pattern, options) = text.trim().strip_prefix('/')?.rsplit_once('/')?;
    let is_options = options.len() <= 6 && options.chars().all(|c| "gimsuxyl".contains(c));
    (!pattern.is_empty() && is_options).then_some((pattern, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_constructor_has_an_extended_json() {
        for (text, expected) in [
            ("ISODate(\"2025-11-24\")", "{$date: \"2025-11-24T00:00:00Z\"}"),
            ("new Date('2025-11-24' )", "{$date: \"2025-11-24T00:00:00Z\"}"),
            ("ISODate('24.11.2025')", "{$date: \"2026-11-24T00:00:00Z\"}, with a date of your own"),
            ("ISODate(\"2026-11-24T00:00:00Z\")", "{$date: \"2026-11-24T00:00:00Z\"}"),
            ("new Date('2026-11-24T00:00:00Z');", "{$date: \"2026-11-24T00:00:00Z\"}"),
            ("ISODate (\"x", "{$date: \"2026-11-24T00:00:00Z\"}, with a date of your own"),
            ("ObjectId('0123456789abcdef01234567')", "{$oid: \"0123456789abcdef01234567\"}"),
            ("ObjectID(id)", "{$oid: \"...\"} with 24 hexadecimal digits"),
            ("NumberLong(5)", "5"),
            ("NumberInt(\"5\")", "5"),
            ("NumberDecimal('1.50')", "{$numberDecimal: \"1.50\"}"),
            ("Timestamp(1, 2)", "{$timestamp: {t: 1, i: 2}}"),
            ("Timestamp(1", "{$timestamp: {t: 1, i: 1}}"),
            ("Date()", "{$date: \"2026-11-24T00:00:00Z\"}, with a date of your own"),
            ("BinData(0, 'AQI=')", "{$binary: {base64: \"AQI=\", subType: \"00\"}}"),
            ("{\"$date\": \"2026-11-24T00:00:00Z\"}", "{$date: \"2026-11-24T00:00:00Z\"}, without the quotes around it"),
            ("{ $oid: x }", "the same without the quotes around it"),
        ] {
            assert_eq!(constructor(text, false).as_deref(), Some(expected), "{text}");
        }
        let uuid = constructor("UUID('c8edabc3-f738-4ca3-b68d-ab92a91478a3')", false).unwrap();
        assert!(uuid.starts_with("{$uuid: ") || uuid.starts_with("{$binary: "), "{uuid}");
        assert_eq!(constructor("UUID('c8edabc3-f738-4ca3-b68d-ab92a91478a3')", true).as_deref(), Some("{$uuid: \"...\"}"));
        for text in [
            "",
            "(",
            "Date",
            "Date (approximate)",
            "date(of birth)",
            "long(ish)",
            "code (x)",
            "f(5)",
            "updateDate('x')",
            "{name}",
            "{a: 5}",
            "Timestamp",
            "see ISODate(5)",
            "/api/v1",
        ] {
            assert_eq!(constructor(text, false), None, "{text}");
        }
    }

    #[test]
    fn dates_and_patterns_are_told_from_other_strings() {
        for text in [
            "2026-11-24",
            "2026-11-24T00:00:00Z",
            "2026-11-24 00:00",
            "2026-11-24T10:00:00.000+0000",
            "2026/11/24",
            "2026-1-5",
            "2026-11",
            "24.11.2026",
            "11/24/2026 10:00",
            "20261124T000000Z",
            " 2026-11-24 ",
            "/^abc/",
            "/x/i",
            "2026.11.24",
        ] {
            assert!(is_date_or_pattern(text), "{text}");
        }
        for text in [
            "",
            "/",
            "//",
            "/api/v1",
            "/api/users",
            "2026",
            "2026-11-24-a",
            "v2026-11-24",
            "555-12-3456",
            "10.0.0.1",
            "1.2.3",
            "2026-111",
            "done",
            "/a/zz",
            "192.168.1.10",
            "é2026-11-24",
            "12345678",
        ] {
            assert!(!is_date_or_pattern(text), "{text}");
        }
    }

    #[test]
    fn what_was_meant_is_said_and_never_for_a_variable() {
        for (text, expected) in [
            ("2026-11-24", "{$date: \"2026-11-24T00:00:00Z\"}"),
            ("2026-11-24T10:00:00+01:00", "{$date: \"2026-11-24T10:00:00+01:00\"}"),
            ("24.12.2025", "{$date: \"2026-11-24T00:00:00Z\"}"),
            ("/^a'/i", "{$regex: '^a'', $options: 'i'}"),
            ("0123456789abcdef01234567", "{$oid: \"0123456789abcdef01234567\"}"),
            ("c8edabc3-f738-4ca3-b68d-ab92a91478a3", "{$uuid: \"c8edabc3-f738-4ca3-b68d-ab92a91478a3\"}"),
            ("5", "the number without quotes"),
            ("0.5", "the number without quotes"),
            ("1_000", "1000"),
            ("1,000", "1000"),
            ("017", "17"),
            ("true", "true or false without quotes"),
            ("Yes", "true or false without quotes"),
        ] {
            assert_eq!(meant(text, false).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(meant("done", false), None);
        for text in ["2025-10-23", "/secret/i", "0123456789abcdef01234567", "c8edabc3-f738-4ca3-b68d-ab92a91478a3"] {
            let said = meant(text, true).unwrap();
            assert!(!said.contains(text) && !said.contains("secret"), "{said}");
        }
        assert_eq!(misspelt(&["date"]).as_deref(), Some("{$date: ...}"));
        assert_eq!((misspelt(&["date", "x"]), misspelt(&["day"])), (None, None));
    }
}
