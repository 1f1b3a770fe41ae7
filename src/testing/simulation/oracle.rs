//! The rule of expiry, told plainly over the values of one document. It shares nothing with the predicates that the tool sends.

mod classes;
mod predicates;

use bson::{Bson, Document};

/// A rule, as far as it decides which documents expire.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub namespace: String,
    pub field: &'static str,
    pub format: Format,
    /// `None` if only documents with a ttl of their own expire.
    pub expire_after: Option<i64>,
    pub ttl_field: Option<&'static str>,
    pub filter: Filter,
}

/// The type of the dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Date,
    EpochSeconds,
    EpochMillis,
    ObjectId,
    Iso8601,
}

/// A further condition of a rule, on the field `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    Nothing,
    Done,
    NotHeld,
}

impl Rule {
    /// Whether a document has expired at an instant, in milliseconds since 1970.
    pub(super) fn is_expired(&self, document: &Document, now: i64) -> bool {
        let Some(date) = document.get(self.field).and_then(|value| self.earliest(value)) else { return false };
        let Some(seconds) = self.lifetime(document) else { return false };
        date + seconds * 1000.0 <= now as f64 && self.selects(document)
    }

    /// Returns the earliest date of a value, in milliseconds.
    fn earliest(&self, value: &Bson) -> Option<f64> {
        let one = std::slice::from_ref(value);
        let values = if let Bson::Array(elements) = value { elements } else { one };
        let dates: Vec<f64> = values.iter().filter_map(|value| self.date(value)).collect();
        // A number that makes sense only in the other unit keeps its document.
        if dates.iter().any(|date| self.is_in_another_unit(*date)) {
            return None;
        }
        dates.into_iter().min_by(f64::total_cmp)
    }

    fn date(&self, value: &Bson) -> Option<f64> {
        let number = match value {
            Bson::Int32(n) => Some(f64::from(*n)),
            Bson::Int64(n) => Some(*n as f64),
            Bson::Double(n) if !n.is_nan() => Some(*n),
            _ => None,
        };
        match (self.format, value) {
            (Format::Date, Bson::DateTime(date)) => Some(date.timestamp_millis() as f64),
            (Format::ObjectId, Bson::ObjectId(id)) => Some(id.timestamp().timestamp_millis() as f64),
            (Format::EpochSeconds, _) => number.map(|seconds| seconds * 1000.0),
            (Format::EpochMillis, _) => number,
            (Format::Iso8601, Bson::String(text)) => rfc3339(text),
            _ => None,
        }
    }

    /// Whether a date is a number of milliseconds where the rule says seconds, or the reverse.
    fn is_in_another_unit(&self, millis: f64) -> bool {
        match self.format {
            Format::EpochSeconds => millis.abs() >= 1e14,
            Format::EpochMillis => millis.abs() < 1e11 || millis < -8.64e15,
            Format::Date | Format::ObjectId | Format::Iso8601 => false,
        }
    }

    /// Returns the seconds after its date at which a document expires; `None` if it never does.
    fn lifetime(&self, document: &Document) -> Option<f64> {
        let own = match self.ttl_field.and_then(|field| document.get(field)) {
            Some(Bson::Int32(n)) => Some(f64::from(*n)),
            Some(Bson::Int64(n)) => Some(*n as f64),
            Some(Bson::Double(n)) => Some(*n),
            _ => None,
        };
        let counts = |n: &f64| n.fract() == 0.0 && *n >= f64::from(i32::MIN) && *n <= f64::from(i32::MAX);
        match own.filter(counts) {
            Some(own) if own > 0.0 => Some(own),
            Some(_) => None,
            None => self.expire_after.map(|seconds| seconds as f64),
        }
    }

    fn selects(&self, document: &Document) -> bool {
        let status = document.get("status").and_then(Bson::as_str);
        match self.filter {
            Filter::Nothing => true,
            Filter::Done => status == Some("done"),
            Filter::NotHeld => status != Some("held"),
        }
    }
}

/// Returns the milliseconds since 1970 of a text by RFC 3339 with an offset or `Z`, rounded up.
fn rfc3339(text: &str) -> Option<f64> {
    let has_form = |form: &str, part: &str| {
        let fits = |(form, byte): (u8, u8)| if form == b'9' { byte.is_ascii_digit() } else { form == byte.to_ascii_uppercase() };
        form.len() == part.len() && form.bytes().zip(part.bytes()).all(fits)
    };
    let number = |part: &str| part.parse::<i64>().ok();
    let (second, rest) = (text.get(..19)?, text.get(19..)?);
    let zone = if rest.ends_with(['Z', 'z']) { rest.len() - 1 } else { rest.len().checked_sub(6)? };
    let (fraction, zone) = (rest.get(..zone)?, rest.get(zone..)?);
    if !has_form("9999-99-99T99:99:99", second) {
        return None;
    }
    let minutes = match zone {
        "Z" | "z" => 0,
        zone if has_form("+99:99", zone) => {
            -number(&zone[1..3]).filter(|n| *n < 24)? * 60 - number(&zone[4..]).filter(|n| *n < 60)?
        }
        zone if has_form("-99:99", zone) => {
            number(&zone[1..3]).filter(|n| *n < 24)? * 60 + number(&zone[4..]).filter(|n| *n < 60)?
        }
        _ => return None,
    };
    let (year, month, day) = (number(&second[..4])?, number(&second[5..7])?, number(&second[8..10])?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month).ok()?.checked_sub(1)?;
    let (hour, minute, seconds) = (number(&second[11..13])?, number(&second[14..16])?, number(&second[17..])?);
    if !(1..=*lengths.get(before)?).contains(&day) || hour > 23 || minute > 59 || seconds > 59 {
        return None;
    }
    // Leap days before the year, counted from the year 0, which is one of them.
    let leap_days = if year == 0 { 0 } else { (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400 + 1 };
    let days = year * 365 + leap_days + lengths[..before].iter().sum::<i64>() + day - 1 - 719_528;
    let nanos = match fraction.strip_prefix('.') {
        None if fraction.is_empty() => 0,
        Some(digits) if (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            number(&format!("{digits:0<9}"))?
        }
        _ => return None,
    };
    let seconds = ((days * 24 + hour) * 60 + minute + minutes) * 60 + seconds;
    Some((seconds * 1000 + (nanos + 999_999) / 1_000_000) as f64)
}
