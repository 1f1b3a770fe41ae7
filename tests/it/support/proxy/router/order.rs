//! The order of values in an index, and the hash of a value in a hashed shard key.

use std::cmp::Ordering;

use mongodb::bson::{Binary, Bson};

/// Compares two values by their types' places, and then by value.
///
/// Source: `canonicalizeBSONType` in bson/bsontypes.h, `compareElements` in bson/bsonelement.cpp.
pub(super) fn compare(a: &Bson, b: &Bson) -> Ordering {
    place(a).cmp(&place(b)).then_with(|| match (a, b) {
        (Bson::String(a) | Bson::Symbol(a), Bson::String(b) | Bson::Symbol(b)) => a.cmp(b),
        (Bson::Boolean(a), Bson::Boolean(b)) => a.cmp(b),
        (Bson::DateTime(a), Bson::DateTime(b)) => a.cmp(b),
        (Bson::ObjectId(a), Bson::ObjectId(b)) => a.bytes().cmp(&b.bytes()),
        (Bson::Timestamp(a), Bson::Timestamp(b)) => (a.time, a.increment).cmp(&(b.time, b.increment)),
        (Bson::Binary(a), Bson::Binary(b)) => {
            let key = |binary: &Binary| (binary.bytes.len(), u8::from(binary.subtype), binary.bytes.clone());
            key(a).cmp(&key(b))
        }
        (Bson::Array(a), Bson::Array(b)) => all(a.iter().map(|a| ("", a)), b.iter().map(|b| ("", b))),
        (Bson::Document(a), Bson::Document(b)) => {
            all(a.iter().map(|(name, a)| (name.as_str(), a)), b.iter().map(|(name, b)| (name.as_str(), b)))
        }
        _ => number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)),
    })
}

fn all<'a>(a: impl Iterator<Item = (&'a str, &'a Bson)>, b: impl Iterator<Item = (&'a str, &'a Bson)>) -> Ordering {
    let (a, b): (Vec<_>, Vec<_>) = (a.collect(), b.collect());
    let pairs = a
        .iter()
        .zip(&b)
        .map(|((a_name, a), (b_name, b))| place(a).cmp(&place(b)).then_with(|| a_name.cmp(b_name)).then_with(|| compare(a, b)));
    pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
}

fn place(value: &Bson) -> u8 {
    match value {
        Bson::MinKey => 0,
        Bson::Undefined => 1,
        Bson::Null => 2,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 3,
        Bson::String(_) | Bson::Symbol(_) => 4,
        Bson::Document(_) => 5,
        Bson::Array(_) => 6,
        Bson::Binary(_) => 7,
        Bson::ObjectId(_) => 8,
        Bson::Boolean(_) => 9,
        Bson::DateTime(_) => 10,
        Bson::Timestamp(_) => 11,
        Bson::MaxKey => 20,
        _ => 12,
    }
}

/// Returns the value of a number; a test needs none that an f64 cannot hold.
fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        Bson::Decimal128(n) => n.to_string().parse().ok(),
        _ => None,
    }
}

/// Returns a hash of a value. Equal numbers of any types have one, and fractions are cut off.
///
/// Source: db/hasher.cpp. That one is made by MD5; which shard a hash falls to does not matter here.
pub(super) fn hash(value: &Bson) -> Bson {
    let text = match number(value) {
        Some(n) => format!("{}", n.trunc() as i64),
        None => format!("{value:?}"),
    };
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    // The high bits of neighbours hardly differ.
    Bson::Int64((hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash).cast_signed())
}
