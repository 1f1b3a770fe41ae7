//! Fields of sampled documents that hold dates.

use std::collections::BTreeMap;

use bson::{Bson, DateTime, Document};

use crate::core::policy::DateFormat;

/// Maximum depth of the sub-documents that are searched.
const MAX_DEPTH: usize = 4;

/// The years 2000 to 2099 in seconds since 1970: a number in this range may well be a date.
const PLAUSIBLE_SECONDS: std::ops::Range<i64> = 946_684_800..4_102_444_800;

/// A field path that holds dates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DateField {
    pub path: String,
    pub format: DateFormat,
    /// Number of documents that have a date at this path.
    pub documents: usize,
    pub oldest: DateTime,
    pub newest: DateTime,
}

/// Finds the field paths at which the documents hold dates, ObjectIds (only in `_id`), or strings or numbers that may be dates.
/// Fields that half of the documents have come first, dates before strings and numbers; then the other dates, the ObjectIds, and
/// the other strings and numbers. Among each of these, fields that more documents have come first.
pub(crate) fn date_fields(documents: &[Document]) -> Vec<DateField> {
    let mut found: BTreeMap<(String, u8), DateField> = BTreeMap::new();
    for document in documents {
        let mut dates = Vec::new();
        for (name, value) in document {
            look("", name, value, 0, &mut dates);
        }
        let mut seen: BTreeMap<(String, u8), DateField> = BTreeMap::new();
        for (path, format, at) in dates {
            let new = DateField { path: path.clone(), format, documents: 1, oldest: at, newest: at };
            seen.entry((path, rank(format))).and_modify(|field| widen(field, at, at)).or_insert(new);
        }
        for (key, field) in seen {
            let (oldest, newest) = (field.oldest, field.newest);
            found
                .entry(key)
                .and_modify(|known| {
                    known.documents += 1;
                    widen(known, oldest, newest);
                })
                .or_insert(field);
        }
    }
    let mut fields: Vec<DateField> = found.into_values().collect();
    let place = |field: &DateField| match (field.documents * 2 >= documents.len(), field.format) {
        (false, DateFormat::Date) => 4,
        (_, DateFormat::ObjectId) => 5,
        (true, format) => rank(format),
        (false, format) => 5 + rank(format),
    };
    fields.sort_by(|a, b| (place(a), b.documents, &a.path).cmp(&(place(b), a.documents, &b.path)));
    fields
}

fn look(above: &str, name: &str, value: &Bson, depth: usize, dates: &mut Vec<(String, DateFormat, DateTime)>) {
    if name.is_empty() || name.starts_with('$') || name.contains(['.', '\0']) || depth > MAX_DEPTH {
        return;
    }
    let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
    match value {
        Bson::Document(inner) => inner.iter().for_each(|(name, value)| look(&path, name, value, depth + 1, dates)),
        Bson::Array(items) => items.iter().for_each(|item| match item {
            Bson::Document(inner) => inner.iter().for_each(|(name, value)| look(&path, name, value, depth + 1, dates)),
            item => dates.extend(date(item).map(|(format, at)| (path.clone(), format, at))),
        }),
        Bson::ObjectId(id) if path == "_id" => dates.push((path, DateFormat::ObjectId, id.timestamp())),
        // A number or a string in `_id` is not taken for a date.
        value if path != "_id" || matches!(value, Bson::DateTime(_)) => {
            dates.extend(date(value).map(|(format, at)| (path, format, at)))
        }
        _ => {}
    }
}

fn date(value: &Bson) -> Option<(DateFormat, DateTime)> {
    let number = match value {
        Bson::DateTime(at) => return Some((DateFormat::Date, *at)),
        Bson::String(text) => return DateTime::parse_rfc3339_str(text).ok().map(|at| (DateFormat::Iso8601, at)),
        Bson::Int32(n) => i64::from(*n),
        Bson::Int64(n) => *n,
        // A cast from float truncates and saturates.
        Bson::Double(n) => *n as i64,
        _ => return None,
    };
    if PLAUSIBLE_SECONDS.contains(&number) {
        Some((DateFormat::EpochSeconds, DateTime::from_millis(number * 1000)))
    } else if PLAUSIBLE_SECONDS.contains(&(number / 1000)) {
        Some((DateFormat::EpochMillis, DateTime::from_millis(number)))
    } else {
        None
    }
}

fn widen(field: &mut DateField, oldest: DateTime, newest: DateTime) {
    field.oldest = field.oldest.min(oldest);
    field.newest = field.newest.max(newest);
}

fn rank(format: DateFormat) -> u8 {
    match format {
        DateFormat::Date => 0,
        DateFormat::Iso8601 => 1,
        DateFormat::EpochMillis => 2,
        DateFormat::EpochSeconds => 3,
        DateFormat::ObjectId => 4,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn what_most_documents_have_comes_first_then_dates_the_id_and_numbers() {
        let at = |seconds: i64| DateTime::from_millis(seconds * 1000);
        let id = ObjectId::from_bytes([0x65, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let documents = [
            doc! { "_id": id, "made": at(1), "n": 3, "ms": 1_700_000_000_000_i64, "s": 1_700_000_000, "events": [{ "at": at(5) }, { "at": at(9) }] },
            doc! { "_id": id, "made": [at(2), "x", at(-7)], "s": 1_700_000_000.5, "meta": { "done": at(3), "$x": at(1) }, "a.b": at(1) },
            doc! { "_id": id, "made": "2026-01-01", "other": id },
        ];
        let found = date_fields(&documents);
        let brief: Vec<_> = found.iter().map(|field| (field.path.as_str(), field.format, field.documents)).collect();
        assert_eq!(
            brief,
            [
                ("made", DateFormat::Date, 2),
                ("s", DateFormat::EpochSeconds, 2),
                ("events.at", DateFormat::Date, 1),
                ("meta.done", DateFormat::Date, 1),
                ("_id", DateFormat::ObjectId, 3),
                ("ms", DateFormat::EpochMillis, 1),
            ]
        );
        assert_eq!((found[0].oldest, found[0].newest), (at(-7), at(2)));
        assert_eq!((found[2].oldest, found[2].newest), (at(5), at(9)));
    }

    #[test]
    fn a_numeric_id_and_small_numbers_are_no_dates() {
        let documents = [doc! { "_id": 1_700_000_000, "n": 5, "big": i64::MAX, "inf": f64::INFINITY, "nan": f64::NAN }];
        assert_eq!(date_fields(&documents), []);
    }
}
