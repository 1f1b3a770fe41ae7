//! Values inside BSON: whole and floating numbers, dotted paths, and the bounds of ObjectIds.

pub(crate) mod mongosh;
pub(crate) mod raw;
pub(crate) mod typed;

use bson::oid::ObjectId;
use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument};

/// Returns a number of any numeric type without its fraction; `None` for NaN, Decimal128 and anything that is not a number.
pub(crate) fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        // A cast from float truncates and saturates.
        Bson::Double(n) if !n.is_nan() => Some(*n as i64),
        _ => None,
    }
}

/// Returns a number as a float; `None` for Decimal128 and anything that is not a number.
pub(crate) fn float(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}

/// Reads the number under a key, without its fraction.
pub(crate) fn integer_in(document: &Document, key: &str) -> Option<i64> {
    document.get(key).and_then(integer)
}

/// Reads the number under a key that cannot be negative, such as a count.
pub(crate) fn count_in(document: &Document, key: &str) -> Option<u64> {
    integer_in(document, key).and_then(|n| u64::try_from(n).ok())
}

/// Finds the value at a dotted path that leads only through documents; `None` if an array is on the way, where the server means
/// several values.
pub(crate) fn at<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        None => document.get(path),
        Some((name, rest)) => at(document.get_document(name).ok()?, rest),
    }
}

/// Finds the value at a dotted path as [`at`] does, in a document that is not decoded.
pub(crate) fn at_raw<'a>(document: &'a RawDocument, path: &str) -> Option<RawBsonRef<'a>> {
    match path.split_once('.') {
        None => document.get(path).ok()?,
        Some((name, rest)) => at_raw(document.get_document(name).ok()?, rest),
    }
}

/// Returns the greatest ObjectId made in a second, which is counted from 1970.
pub(crate) fn last_object_id(seconds: u32) -> ObjectId {
    let mut bytes = [0xff; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, doc};

    use super::*;

    #[test]
    fn numbers_are_read_in_every_numeric_type() {
        for (value, whole, float_) in [
            (Bson::Int32(-7), Some(-7), Some(-7.0)),
            (Bson::Int64(1 << 40), Some(1 << 40), Some(1_099_511_627_776.0)),
            (Bson::Double(2.9), Some(2), Some(2.9)),
            (Bson::Double(1e300), Some(i64::MAX), Some(1e300)),
            (Bson::String("7".into()), None, None),
            (Bson::Boolean(true), None, None),
        ] {
            assert_eq!((integer(&value), float(&value)), (whole, float_), "{value}");
        }
        assert_eq!(integer(&Bson::Double(f64::NAN)), None);
        let reply = doc! { "n": 3.0, "left": -1 };
        assert_eq!((count_in(&reply, "n"), count_in(&reply, "left"), count_in(&reply, "ok")), (Some(3), None, None));
        assert_eq!(integer_in(&reply, "left"), Some(-1));
    }

    #[test]
    fn a_path_leads_through_documents_and_never_through_lists() {
        let document = doc! { "a": { "b": { "c": 1 } }, "list": [{ "b": 2 }], "a.b": 3 };
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        for (path, value) in [("a.b.c", Some(1)), ("a.b.d", None), ("list.b", None), ("list.0.b", None), ("a.b.c.d", None)] {
            assert_eq!(at(&document, path).and_then(Bson::as_i32), value, "{path}");
            assert_eq!(at_raw(&raw, path).and_then(|value| value.as_i32()), value, "{path}");
        }
    }

    #[test]
    fn the_last_object_id_of_a_second_is_greater_than_every_other_of_it() {
        let last = last_object_id(0x0102_0304);
        assert_eq!(last.to_hex(), "01020304ffffffffffffffff");
        assert!(last < last_object_id(0x0102_0305));
        assert_eq!(last.timestamp().timestamp_millis(), 0x0102_0304 * 1000);
    }
}
