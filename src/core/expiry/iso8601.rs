//! The instant of a string by RFC 3339, as an aggregation expression that fails on no string.
//!
//! No operator reads exactly this form. `$dateFromString` reads many others, and takes a time without an offset for UTC.
//! `$regexMatch` fails on text that is not valid UTF-8 (seen at MongoDB 6.0.5), and with it the whole command. So the string is
//! cut into parts, each part is read, and what was read is written again: a part counts only if that yields the same bytes.
//! `$indexOfBytes` compares bytes, whatever the collation of the command.
//!
//! `$substrBytes` fails where a cut is next to a UTF-8 continuation byte (`src/mongo/db/pipeline/expression.cpp`). Text with such
//! bytes is left out first: `$strLenCP` does not count them, and `$strLenBytes` does.

use bson::{Bson, DateTime, Document, doc};

use super::expression::{is_type, when, with};

/// The first and the last millisecond of the years 0 to 9999: no server splits a date outside of them into its parts, or writes
/// it.
pub(super) const FIRST_MS: i64 = -62_167_219_200_000;
pub(super) const LAST_MS: i64 = 253_402_300_799_999;

/// A date and time to the second, in the format language of the server.
const FORMAT: &str = "%Y-%m-%dT%H:%M:%S";

/// Bytes of [`FORMAT`] written out.
const SECONDS: i32 = 19;

/// Bytes of an offset, such as `+02:00`.
const OFFSET: i32 = 6;

/// Maximum number of digits of a fraction: nanoseconds.
const MAX_DIGITS: i32 = 9;

/// Nanoseconds of a second. In front of [`MAX_DIGITS`] digits, its first digit keeps their zeros.
const NANOS: i32 = 1_000_000_000;

/// Returns an expression for the instant of `value` as a BSON Date; null unless it is a string by RFC 3339 with `Z` or an offset.
///
/// A fraction is rounded up to the next millisecond, so that no document is taken for older than it is. More digits than
/// nanoseconds have, and a leap second, which BSON dates do not know, make it no date.
pub(super) fn instant(value: &str) -> Bson {
    let length = |text: &str| doc! { "$strLenBytes": text };
    let can_be_cut = doc! { "$and": [
        { "$gte": [length(value), SECONDS + 1] },
        { "$lte": [length(value), SECONDS + 1 + MAX_DIGITS + OFFSET] },
        { "$eq": [length(value), { "$strLenCP": value }] },
    ] };
    // RFC 3339 allows `t` and `z`.
    let last = doc! { "$subtract": [length("$$upper"), 1] };
    let ends_with_z = doc! { "$eq": [{ "$indexOfBytes": ["$$upper", "Z", &last] }, &last] };
    let utc = doc! { "$concat": [cut("$$upper", 0, last.clone()), "+00:00"] };
    let has_offset = doc! { "$gte": [length("$$text"), SECONDS + OFFSET] };
    let read = with("text", when(ends_with_z, utc, "$$upper"), when(has_offset, with_offset(), Bson::Null));
    let read = when(can_be_cut, with("upper", doc! { "$toUpper": value }, read), Bson::Null);
    when(is_type(value, "string"), read, Bson::Null)
}

/// Returns an expression for the instant of `$$text`, which has an offset at its end; null if a part of it is malformed.
fn with_offset() -> Bson {
    let from_end = |bytes: i32| doc! { "$subtract": [{ "$strLenBytes": "$$text" }, bytes] };
    let time = doc! { "$concat": ["1970-01-01T", cut("$$text", from_end(OFFSET - 1), OFFSET - 1), ":00"] };
    let offset = doc! { "$subtract": [to_the_second(time), DateTime::from_millis(0)] };
    // 0 for `+`, which makes the instant earlier than the time that is written, and 1 for `-`.
    let sign = doc! { "$indexOfBytes": ["+-", cut("$$text", from_end(OFFSET), 1)] };
    let direction = doc! { "$subtract": [{ "$multiply": [2, "$$sign"] }, 1] };
    let parts = doc! { "$add": [
        to_the_second(cut("$$text", 0, SECONDS)),
        { "$multiply": [offset, direction] },
        fraction(),
    ] };
    // A part that is null makes the sum null.
    with("sign", sign, when(doc! { "$gte": ["$$sign", 0] }, parts, Bson::Null))
}

/// Returns an expression for the fraction in `$$text` in milliseconds, rounded up: 0 without one, null if it is malformed.
fn fraction() -> Bson {
    let digits = doc! { "$subtract": [{ "$strLenBytes": "$$text" }, SECONDS + 1 + OFFSET] };
    let point = doc! { "$eq": [{ "$indexOfBytes": ["$$text", ".", SECONDS, SECONDS + 1] }, SECONDS] };
    let is_one = doc! { "$and": [{ "$gte": [&digits, 1] }, { "$lte": [&digits, MAX_DIGITS] }, point] };
    let zeros = cut("000000000", 0, doc! { "$subtract": [MAX_DIGITS, &digits] });
    let padded = doc! { "$concat": ["1", cut("$$text", SECONDS + 1, digits.clone()), zeros] };
    let number = doc! { "$convert": { "input": "$$padded", "to": "long", "onError": Bson::Null } };
    let millis = doc! { "$ceil": { "$divide": [{ "$subtract": ["$$number", NANOS] }, 1_000_000] } };
    let is_same = begins("$$padded", doc! { "$toString": "$$number" });
    let exact = when(doc! { "$gte": ["$$number", NANOS] }, when(is_same, millis, Bson::Null), Bson::Null);
    let read = with("padded", padded, with("number", number, exact));
    // Neither a point nor a digit.
    when(doc! { "$eq": [digits, -1] }, 0, when(is_one, read, Bson::Null))
}

/// Returns an expression for the date of a text of [`SECONDS`] bytes in [`FORMAT`], taken for UTC; null if it is any other text,
/// such as the 30th of February.
fn to_the_second(text: Document) -> Bson {
    let read = doc! { "$dateFromString": { "dateString": "$$part", "format": FORMAT, "onError": Bson::Null } };
    // `$dateToString` fails outside of these years (`src/mongo/db/query/datetime/date_time_support.h`).
    let can_be_written = doc! { "$and": [
        { "$gte": ["$$date", DateTime::from_millis(FIRST_MS)] },
        { "$lte": ["$$date", DateTime::from_millis(LAST_MS)] },
    ] };
    let is_same = begins("$$part", doc! { "$dateToString": { "date": "$$date", "format": FORMAT } });
    let exact = when(can_be_written, when(is_same, "$$date", Bson::Null), Bson::Null);
    with("part", text, with("date", read, exact))
}

/// Returns an expression for so many bytes of a text, from a place on.
fn cut(text: &str, from: impl Into<Bson>, bytes: impl Into<Bson>) -> Document {
    doc! { "$substrBytes": [text, from.into(), bytes.into()] }
}

/// Returns a condition that a text begins with the bytes of another.
fn begins(text: &str, with: Document) -> Document {
    doc! { "$eq": [{ "$indexOfBytes": [text, with] }, 0] }
}
