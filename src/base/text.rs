//! Numbers, durations, names and checksums as text.

use std::borrow::Cow;

use bson::Bson;
use indicatif::{BinaryBytes, HumanCount};
use serde_json::Value;
use sha2::{Digest, Sha256};
use textwrap::WordSeparator;
use textwrap::core::Word;

/// Formats a number with grouped digits: `1,234,567`.
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// Formats a number like [`count`] up to six digits, and above that with three figures and a prefix: `1.23 M`.
pub fn compact(number: u64) -> String {
    if number < 1_000_000 {
        return count(number);
    }
    let prefixes = [(1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E")];
    let value = number as f64;
    // A value that would be rounded to 1000 takes the next prefix.
    let (unit, prefix) = prefixes.into_iter().find(|(unit, _)| value / unit < 999.5).unwrap_or((1e18, "E"));
    let value = value / unit;
    match value {
        ..9.995 => format!("{value:.2} {prefix}"),
        ..99.95 => format!("{value:.1} {prefix}"),
        _ => format!("{value:.0} {prefix}"),
    }
}

/// Formats a size in binary units: `1.50 GiB`.
pub fn bytes(number: u64) -> String {
    BinaryBytes(number).to_string()
}

/// Formats a duration: `840 ms`, `12.3 s`, `5m 10s`, `2h 03m`.
pub fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds}.{} s", millis % 1000 / 100),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats a count with its noun: `1 rule`, `2 rules`.
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns a number of children: `1 child`, `2,000 children`.
pub fn children(number: u64) -> String {
    if number == 1 { "1 child".to_owned() } else { format!("{} children", count(number)) }
}

/// Makes one line of a text from outside safe to print: shows what a terminal would obey or not show as escapes. Every output for
/// people goes through this function, where its lines are written: [`page`], [`fold`], the log, the questions, the bars.
pub fn clean(line: &str) -> String {
    line.chars().fold(String::with_capacity(line.len()), |mut out, c| {
        if is_hidden(c) {
            out.extend(c.escape_unicode())
        } else {
            out.push(c)
        }
        out
    })
}

/// Whether a character is one that a terminal obeys, or that is invisible: control characters, directions, blanks without width,
/// tags.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Makes JSON safe to print: escapes the characters that [`clean`] escapes, and that JSON itself allows in strings. The value
/// stays the same.
pub fn clean_json(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut out, c| {
        // What is ASCII is escaped already, but for a line break between values.
        if is_hidden(c) && c >= '\u{7f}' {
            let mut units = [0; 2];
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c)
        }
        out
    })
}

/// Joins lines to a text that ends with a newline.
pub fn page(lines: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    lines.into_iter().map(|line| clean(line.as_ref()) + "\n").collect()
}

/// Width of text whose reader's width is unknown: mails, and files.
pub const MAIL_WIDTH: usize = 80;

/// Breaks a line at 80 columns, for mails and terminals, and begins the further lines with `indent`. Names, instants,
/// numbers with their units, and months with their numbers stay whole.
pub fn fold(text: &str, indent: &str) -> Vec<String> {
    fold_to(text, indent, MAIL_WIDTH)
}

/// Breaks a line as [`fold`] does, at another width.
pub fn fold_to(text: &str, indent: &str, width: usize) -> Vec<String> {
    let options = textwrap::Options::new(width)
        .subsequent_indent(indent)
        .break_words(false)
        .word_separator(WordSeparator::Custom(words))
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(&clean(text), options).into_iter().map(Cow::into_owned).collect()
}

/// Splits a line at its blanks, but not before the unit of a number, or the number of a month.
fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    const UNITS: [&str; 9] = ["%", "ms", "s", "h", "d", "B", "KiB", "MiB", "GiB"];
    let is_digit = |c: char| c.is_ascii_digit();
    let is_month = |word: &str| word.len() == 7 && word.char_indices().all(|(n, c)| if n == 4 { c == '-' } else { is_digit(c) });
    let mut begins = vec![0];
    let (mut end, mut before) = (0, "");
    for word in WordSeparator::AsciiSpace.find_words(line) {
        let is_unit = UNITS.contains(&word.trim_end_matches([',', ';', '.', ':', ')']));
        let (is_after_number, is_number) = (before.ends_with(is_digit), word.starts_with(is_digit));
        if end > 0 && !(is_after_number && is_unit) && !(is_month(before) && is_number) {
            begins.push(end);
        }
        before = word.word;
        end += word.len() + word.whitespace.len();
    }
    let ends = begins.iter().skip(1).copied().chain([line.len()]).collect::<Vec<_>>();
    Box::new(begins.into_iter().zip(ends).map(|(begin, end)| Word::from(&line[begin..end])))
}

/// Formats an `_id` from a report, safe to print: as mongosh shows it if it has one of the usual types, otherwise as Extended
/// JSON.
pub fn id(canonical: &Value) -> String {
    let text = match Bson::try_from(canonical.clone()) {
        Ok(Bson::ObjectId(id)) => format!("ObjectId(\"{id}\")"),
        Ok(Bson::Int64(n)) => format!("NumberLong(\"{n}\")"),
        Ok(id) => id.into_relaxed_extjson().to_string(),
        Err(_) => canonical.to_string(),
    };
    clean(&text)
}

/// Returns the whole number that a person means by a text that is not written as one: `1e6`, `1_000`, `1,000`, `5k`, `1000.0`.
pub fn meant_number(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (text, factor) = text.strip_suffix('k').map_or((text.as_str(), 1.0), |text| (text, 1e3));
    let mut groups = text.split([',', '_', ' ']);
    let mut digits = groups.next()?.to_owned();
    for group in groups {
        if group.len() != 3 {
            return None;
        }
        digits.push_str(group);
    }
    let number = digits.parse::<f64>().ok()? * factor;
    // Above 2^53 not every whole number is one that is parsed exactly.
    (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
}

/// Beginning of the number of an error of the operating system.
const OS_ERROR: &str = " (os error ";

/// Takes out the numbers that the standard library writes behind the operating system's words for an error:
/// `No such file or directory (os error 2)`.
pub(crate) fn without_os_numbers(text: &str) -> String {
    let mut parts = text.split(OS_ERROR);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| match part.split_once(')') {
        Some((number, rest)) if number.chars().all(|c| c.is_ascii_digit()) => all + rest,
        _ => all + OS_ERROR + part,
    })
}

/// Returns the share of a whole in percent; a part greater than the whole is 100 %. `None` if both are 0.
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    match whole.max(part) {
        0 => None,
        whole => Some(part as f64 * 100.0 / whole as f64),
    }
}

/// Returns the SHA-256 of some bytes in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_another_notation_is_understood_and_a_fraction_is_not() {
        for (text, number) in
            [("1e6", 1_000_000), ("1_000", 1000), ("1,000,000", 1_000_000), ("5K", 5000), ("1.5k", 1500), (" 7 ", 7)]
        {
            assert_eq!(meant_number(text), Some(number), "{text}");
        }
        for text in ["", "x", "1.5", "1,5", "-1", "1e40", "inf", "nan", "k", "10/s", "1_0"] {
            assert_eq!(meant_number(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_and_names() {
        assert_eq!(count(1_234_567), "1,234,567");
        for (millis, text) in [(840, "840 ms"), (12_345, "12.3 s"), (310_000, "5m 10s"), (7_385_000, "2h 03m")] {
            assert_eq!(duration(millis), text);
        }
        for (number, text) in [
            (999_999, "999,999"),
            (1_000_000, "1.00 M"),
            (9_995_000, "10.0 M"),
            (12_345_678, "12.3 M"),
            (999_600_000, "1.00 G"),
            (u64::MAX, "18.4 E"),
        ] {
            assert_eq!(compact(number), text);
        }
        assert_eq!(plural(1, "rule"), "1 rule");
        assert_eq!(plural(0, "rule"), "0 rules");
    }

    #[test]
    fn what_a_terminal_obeys_or_hides_is_shown_as_an_escape() {
        assert_eq!(clean("a\u{1b}[31m\u{202e}é"), "a\\u{1b}[31m\\u{202e}é");
        for hidden in [
            '\0',
            '\u{7}',
            '\n',
            '\r',
            '\t',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{200b}',
            '\u{200d}',
            '\u{2028}',
            '\u{2066}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert_eq!(clean(&hidden.to_string()), hidden.escape_unicode().to_string());
            let json = serde_json::to_string(&Value::String(hidden.into())).unwrap();
            let shown = clean_json(&json);
            assert!(shown.is_ascii() && !shown.contains(char::is_control), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), Value::String(hidden.into()));
        }
        assert_eq!(clean_json("{\n  \"é\": 1\n}"), "{\n  \"é\": 1\n}");
        assert_eq!(page(["a\nerror: b", ""]), "a\\u{a}error: b\n\n");
        assert_eq!(fold("a\rb", ""), ["a\\u{d}b"]);
    }

    #[test]
    fn a_number_and_its_unit_stay_on_one_line() {
        let text = "  deletes at 5.31 MiB, or 50.0 % of 12 documents s";
        for width in 1..60 {
            let lines = fold_to(text, " ", width);
            let is_whole = |part: &str| lines.iter().any(|line| line.contains(part));
            assert!(is_whole("5.31 MiB,") && is_whole("50.0 %"), "{width}: {lines:?}");
            assert_eq!(lines.join(" ").split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        }
        assert_eq!(fold_to("at 5.31 MiB", "  ", 8), ["at", "  5.31 MiB"]);
        assert_eq!(fold_to("of 12 documents", "  ", 6), ["of 12", "  documents"]);
        assert_eq!(fold_to("in 2026-03 1,234, 2026-04 5", "  ", 16), ["in", "  2026-03 1,234,", "  2026-04 5"]);
        assert_eq!(fold_to("of 2026-03 documents", "  ", 12), ["of 2026-03", "  documents"]);
    }

    #[test]
    fn ids_keep_their_types() {
        let canonical = |id: Bson| super::id(&id.into_canonical_extjson());
        assert_eq!(canonical(Bson::Int32(7)), "7");
        assert_eq!(canonical(Bson::Int64(7)), "NumberLong(\"7\")");
        assert_eq!(canonical(Bson::Double(7.0)), "7.0");
        assert_eq!(canonical(Bson::String("7\u{202e}".into())), "\"7\\u{202e}\"");
        assert_eq!(canonical(Bson::ObjectId(bson::oid::ObjectId::from_bytes([1; 12]))), "ObjectId(\"010101010101010101010101\")");
        assert_eq!(canonical(bson::bson!({ "a": 1, "b": Bson::Null })), "{\"a\":1,\"b\":null}");
    }
}
