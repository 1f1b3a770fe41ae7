//! Keys that documents of a rule share with documents of another collection.

use std::cmp::Ordering;
use std::collections::HashSet;

use bson::spec::ElementType;
use bson::{Bson, Document, doc};

use crate::base::values::raw::{self, RawValue};

/// Keys, each once.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyList {
    count: usize,
    pub(super) list: RawValue,
}

impl KeyList {
    /// Creates a list. The server sorts a list that it gets in every command, which takes long unless the list is in order
    /// already. This list is in order, but for types of which there are few.
    pub(crate) fn of(mut keys: Vec<RawValue>) -> Result<Self, bson::error::Error> {
        keys.sort_by(order);
        keys.dedup();
        Ok(Self { count: keys.len(), list: RawValue::list(&keys)? })
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes that the list adds to a statement.
    pub(super) fn bytes(&self) -> usize {
        if self.count == 0 { 0 } else { self.list.as_bytes().len() }
    }

    /// Returns the condition that compares a path with the list.
    ///
    /// Errors: a key cannot be decoded.
    pub(crate) fn condition(&self, path: &str, operator: &str) -> Result<Document, bson::error::Error> {
        let list = raw::document([(operator, &self.list)])?;
        let list = Document::try_from(&*list)?;
        Ok(doc! { path: list })
    }

    /// Returns the keys that an earlier list does not have.
    pub(super) fn since(&self, before: &Self) -> Result<Self, bson::error::Error> {
        if self.list == before.list {
            return Ok(Self { count: 0, list: RawValue::list(&[])? });
        }
        let known = before.list.items();
        let known: HashSet<(u8, &[u8])> = known.iter().map(|key| (key.kind() as u8, key.as_bytes())).collect();
        Self::of(self.list.items().into_iter().filter(|key| !known.contains(&(key.kind() as u8, key.as_bytes()))).collect())
    }
}

/// Returns what is wrong with a key; `None` if nothing is.
///
/// Null, a list or a pattern is no key: the server takes them for no value, several values or many. With null, every document
/// without the field would have it. NaN is no key because in most languages nothing is equal to it. A list of keys takes no
/// document whose names begin with `$`.
pub(crate) fn malformed(key: Option<&RawValue>) -> Option<&'static str> {
    let Some(key) = key else { return Some("is missing") };
    match key.kind() {
        ElementType::Null => Some("is null"),
        ElementType::Array => Some("is a list"),
        ElementType::Double | ElementType::Decimal128 => is_nan(key).then_some("is NaN"),
        ElementType::EmbeddedDocument => match key.decoded() {
            Some(Bson::Document(document)) if !has_operator(&document) => None,
            _ => Some("is a document with a name that begins with `$`, or one that is not valid"),
        },
        ElementType::String
        | ElementType::Int32
        | ElementType::Int64
        | ElementType::Binary
        | ElementType::ObjectId
        | ElementType::Boolean
        | ElementType::DateTime
        | ElementType::Timestamp => None,
        _ => Some("is of a type that is no key"),
    }
}

fn is_nan(key: &RawValue) -> bool {
    match key.decoded() {
        Some(Bson::Double(number)) => number.is_nan(),
        Some(Bson::Decimal128(number)) => number.to_string().contains("NaN"),
        _ => true,
    }
}

fn has_operator(document: &Document) -> bool {
    document.iter().any(|(name, value)| name.starts_with('$') || value.as_document().is_some_and(has_operator))
}

/// Compares two keys as the server orders them, without a collation, as far as they are of the same type. The order is one of
/// speed only.
fn order(a: &RawValue, b: &RawValue) -> Ordering {
    let number = |value: &RawValue| match (value.kind(), value.as_bytes()) {
        (ElementType::Int32, bytes) => bytes.try_into().map(|bytes| i64::from(i32::from_le_bytes(bytes))).ok(),
        (ElementType::Int64 | ElementType::DateTime, bytes) => bytes.try_into().map(i64::from_le_bytes).ok(),
        _ => None,
    };
    let double = |value: &RawValue| match (value.kind(), value.as_bytes().try_into()) {
        (ElementType::Double, Ok(bytes)) => Some(f64::from_le_bytes(bytes)),
        _ => None,
    };
    let by_rank = rank(a).cmp(&rank(b));
    let by_value = || match (number(a).zip(number(b)), double(a).zip(double(b)), a.kind()) {
        (Some((a, b)), ..) => a.cmp(&b),
        (_, Some((a, b)), _) => a.total_cmp(&b),
        // Behind the length.
        (_, _, ElementType::String) => a.as_bytes().get(4..).cmp(&b.as_bytes().get(4..)),
        _ => a.as_bytes().cmp(b.as_bytes()),
    };
    by_rank.then_with(by_value).then_with(|| (a.kind() as u8).cmp(&(b.kind() as u8))).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

/// Returns the place of a type in the server's order; whole numbers of both types share one.
fn rank(value: &RawValue) -> u8 {
    match value.kind() {
        ElementType::Int32 | ElementType::Int64 => 0,
        ElementType::Double => 1,
        ElementType::Decimal128 => 2,
        ElementType::String => 3,
        ElementType::EmbeddedDocument => 4,
        ElementType::Binary => 5,
        ElementType::ObjectId => 6,
        ElementType::Boolean => 7,
        ElementType::DateTime => 8,
        _ => 9,
    }
}

/// Returns the key that stands for all that the server takes for the same: whole numbers of any type are one.
pub(crate) fn canonical(key: RawValue) -> RawValue {
    let whole = match key.kind() {
        ElementType::Int32 | ElementType::Double | ElementType::Decimal128 => key.decoded().and_then(|number| match number {
            Bson::Int32(number) => Some(i64::from(number)),
            // Each whole double below 2^63 is a number of 64 bits exactly.
            Bson::Double(number) if number.trunc() == number && number.abs() < 9.2e18 => Some(number as i64),
            Bson::Decimal128(number) => whole_decimal(&number.to_string()),
            _ => None,
        }),
        _ => None,
    };
    whole.and_then(|number| RawValue::of(number).ok()).unwrap_or(key)
}

/// Returns a decimal number that is whole; `None` for a fraction, and for more digits than a double has.
fn whole_decimal(text: &str) -> Option<i64> {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let number: f64 = text.parse().ok()?;
    (digits <= 15 && number.trunc() == number && number.abs() < 9e15).then_some(number as i64)
}

/// Returns the predicate of a child, and of its parent by the path of the key: nowhere on the path is an array, which could name
/// others too.
pub(crate) fn no_array(field: &str) -> Document {
    let ends = field.match_indices('.').map(|(end, _)| end).chain([field.len()]);
    ends.map(|end| (field[..end].to_owned(), doc! { "$not": { "$type": "array" } }.into())).collect()
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Regex};

    use super::*;

    #[test]
    fn what_is_no_value_or_many_is_no_key() {
        let wrong = |key: Bson| malformed(Some(&RawValue::of(key).unwrap()));
        for key in [
            "x".into(),
            "".into(),
            0.into(),
            (-0.0).into(),
            f64::INFINITY.into(),
            Bson::Decimal128("1.0".parse().unwrap()),
            true.into(),
            DateTime::from_millis(0).into(),
            doc! { "a": { "b": [1] } }.into(),
            bson::oid::ObjectId::new().into(),
        ] {
            assert_eq!(wrong(key.clone()), None, "{key}");
        }
        let pattern = Regex { pattern: bson::raw::cstr!("x").to_owned(), options: bson::raw::cstr!("").to_owned() };
        for (key, why) in [
            (Bson::Null, "is null"),
            (Bson::Array(vec![1.into()]), "is a list"),
            (f64::NAN.into(), "is NaN"),
            (Bson::Decimal128("NaN".parse().unwrap()), "is NaN"),
            (Bson::RegularExpression(pattern), "no key"),
            (Bson::Undefined, "no key"),
            (Bson::MaxKey, "no key"),
            (doc! { "a": { "$gt": 1 } }.into(), "begins with `$`"),
        ] {
            assert!(wrong(key.clone()).is_some_and(|found| found.contains(why)), "{key}");
        }
        assert_eq!(malformed(None), Some("is missing"));
    }

    #[test]
    fn whole_numbers_of_all_types_are_one_key_and_no_others_are() {
        let of = |key: Bson| canonical(RawValue::of(key).unwrap()).decoded().unwrap();
        let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
        for key in [Bson::from(5), 5_i64.into(), 5.0.into(), decimal("5"), decimal("5.00"), decimal("50E-1")] {
            assert_eq!(of(key.clone()), Bson::Int64(5), "{key}");
        }
        assert_eq!([of(1e16.into()), of(decimal("1E+3"))], [Bson::Int64(10_000_000_000_000_000), Bson::Int64(1000)]);
        assert_eq!(of((-0.0).into()), Bson::Int64(0));
        for key in [Bson::from("5"), 5.5.into(), 1e300.into(), true.into(), decimal("5.5"), decimal("5.000000000000000001")] {
            assert_eq!(of(key.clone()), key);
        }
    }
}
