//! Operators of expressions on text, and on dates as text.

use std::borrow::Cow;

use bson::{Bson, DateTime};

use crate::failure::Failure;
use crate::value::{Value, integer, is_nothing, number};

/// The only format of dates that the model knows.
const FORMAT: &str = "%Y-%m-%dT%H:%M:%S";

/// Returns the ASCII letters of a text in upper case.
pub(crate) fn upper(value: Option<&Bson>) -> Bson {
    match value {
        value if is_nothing(value) => "".into(),
        Some(Bson::String(text)) => text.to_ascii_uppercase().into(),
        value => panic!("the model does not know {value:?} in upper case"),
    }
}

/// Returns the bytes of a text, or the bytes among them that do not continue a character.
pub(crate) fn length(value: Option<&Bson>, in_bytes: bool) -> Result<Bson, Failure> {
    match value {
        Some(Bson::String(text)) if in_bytes => Ok(number(text.len())),
        Some(Bson::String(text)) => Ok(number(text.chars().count())),
        _ if in_bytes => Err(Failure::new(34_473, "$strLenBytes requires a string argument")),
        _ => Err(Failure::new(34_471, "$strLenCP requires a string argument")),
    }
}

/// Returns the place of a text in another, between two places; -1 if it is not there.
pub(crate) fn index_of_bytes(values: &[Value<'_>]) -> Result<Bson, Failure> {
    let text = match values[0].as_deref() {
        value if is_nothing(value) => return Ok(Bson::Null),
        Some(Bson::String(text)) => text.as_bytes(),
        _ => return Err(Failure::new(40_091, "$indexOfBytes requires a string as the first argument")),
    };
    let Some(Bson::String(token)) = values[1].as_deref() else {
        return Err(Failure::new(40_092, "$indexOfBytes requires a string as the second argument"));
    };
    let place = |at: usize, default| values.get(at).map_or(Ok(default), |value| whole(value, 40_096, 40_097));
    let (start, end) = (place(2, 0)?, place(3, text.len())?.min(text.len()));
    let within = text.get(..end).and_then(|text| text.get(start..)).unwrap_or_default();
    let found = if token.is_empty() {
        (start <= end).then_some(0)
    } else {
        within.windows(token.len()).position(|part| part == token.as_bytes())
    };
    Ok(found.map_or(Bson::Int32(-1), |found| number(start + found)))
}

/// Returns a part of a text, of so many bytes at most; without an end if the number is negative.
pub(crate) fn substring(values: &[Value<'_>]) -> Result<Bson, Failure> {
    let text = match values[0].as_deref() {
        value if is_nothing(value) => "",
        Some(Bson::String(text)) => text,
        value => panic!("the model does not know {value:?} as a text"),
    };
    let start = whole(&values[1], 16_034, 50_752)?.min(text.len());
    let bytes = values[2].as_deref().and_then(integer).ok_or_else(|| Failure::new(16_035, "a numeric length"))?;
    let end = usize::try_from(bytes).map_or(text.len(), |bytes| (start + bytes).min(text.len()));
    match (text.is_char_boundary(start), text.get(start..end)) {
        (_, Some(part)) => Ok(part.into()),
        (false, None) => Err(Failure::new(28_656, "the starting index is a UTF-8 continuation byte")),
        (true, None) => Err(Failure::new(28_657, "the ending index is in the middle of a UTF-8 character")),
    }
}

/// Returns the date that a text is; null if it is no date.
pub(crate) fn date(text: Option<&Bson>, format: Option<&Bson>) -> Result<Bson, Failure> {
    let text = match text {
        text if is_nothing(text) => return Ok(Bson::Null),
        Some(Bson::String(text)) => text,
        _ => {
            return Err(Failure::new(crate::codes::CONVERSION_FAILURE, "$dateFromString requires a string"));
        }
    };
    let date = match format {
        // A mongod reads more forms than these, but none of those that the sequences have.
        None => DateTime::parse_rfc3339_str(text).or_else(|_| DateTime::parse_rfc3339_str(format!("{text}T00:00:00Z"))).ok(),
        Some(format) => {
            assert_eq!(*format, FORMAT.into(), "the model knows one format of dates");
            // This reads more than a mongod does, as another engine may: the program compares what was read with the text.
            let read = chrono::NaiveDateTime::parse_from_str(text, FORMAT).ok().filter(|_| text.len() == 19);
            read.map(|read| DateTime::from_millis(read.and_utc().timestamp_millis()))
        }
    };
    Ok(date.map_or(Bson::Null, Bson::DateTime))
}

/// Returns a date as text.
pub(crate) fn written(date: Option<&Bson>, format: Option<&Bson>) -> Bson {
    assert_eq!(format, Some(&FORMAT.into()), "the model knows one format of dates");
    match date {
        date if is_nothing(date) => Bson::Null,
        Some(Bson::DateTime(date)) => {
            let date = chrono::DateTime::from_timestamp_millis(date.timestamp_millis()).expect("a date within the calendar");
            date.format(FORMAT).to_string().into()
        }
        date => panic!("the model does not write {date:?} as a date"),
    }
}

/// Returns the whole number that a text is; null if it is no number, or too large.
pub(crate) fn long(text: Option<&Bson>) -> Bson {
    match text {
        text if is_nothing(text) => Bson::Null,
        Some(Bson::String(text)) => text.parse::<i64>().map_or(Bson::Null, Bson::Int64),
        text => panic!("the model does not know {text:?} as a whole number"),
    }
}

/// Returns a value that is a whole number, and no negative one.
fn whole(value: &Value<'_>, not_whole: i32, negative: i32) -> Result<usize, Failure> {
    let value = value.as_ref().map(Cow::as_ref).and_then(integer);
    let value = value.ok_or_else(|| Failure::new(not_whole, "an index must be a whole number"))?;
    usize::try_from(value).map_err(|_| Failure::new(negative, "an index must not be negative"))
}
