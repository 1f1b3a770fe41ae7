//! Positions of keys, and keys at a position: with them the end of a stretch is guessed.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime};

/// A scale of keys of one type. A key with a greater position is greater.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scale {
    Number,
    Date,
    ObjectId,
    /// Binary values of 16 bytes, such as UUIDs, with the subtype of the last one; as far as 15 bytes tell them apart.
    Binary(BinarySubtype),
    /// Strings that begin with the part that the first and the last one have in common; as far as the next characters tell them
    /// apart.
    Text(String),
}

/// Characters of a string that count, and their number of values: the characters of ASCII that are shown.
const LETTERS: usize = 15;
const VALUES: i128 = 95;
const FIRST: u8 = b' ';

impl Scale {
    /// Returns the scale of the keys from the first to the last one; `None` if they have no distances. BSON sorts by type, binary
    /// values also by length: if both ends are of one kind, so are all keys between.
    pub(crate) fn of(first: &Bson, last: &Bson) -> Option<Self> {
        match (first, last) {
            (Bson::DateTime(_), Bson::DateTime(_)) => Some(Self::Date),
            (Bson::ObjectId(_), Bson::ObjectId(_)) => Some(Self::ObjectId),
            (Bson::Binary(first), Bson::Binary(last)) if first.bytes.len() == 16 && last.bytes.len() == 16 => {
                Some(Self::Binary(last.subtype))
            }
            (Bson::String(first), Bson::String(last)) => {
                let common = first.chars().zip(last.chars()).take_while(|(a, b)| a == b);
                Some(Self::Text(common.map(|(letter, _)| letter).collect()))
            }
            (Bson::Int32(_) | Bson::Int64(_), Bson::Int32(_) | Bson::Int64(_)) => Some(Self::Number),
            _ => None,
        }
    }

    pub(crate) fn position(&self, key: &Bson) -> Option<i128> {
        let of_bytes = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| (sum << 8) | i128::from(*byte));
        match (self, key) {
            (Self::Number, Bson::Int32(n)) => Some(i128::from(*n)),
            (Self::Number, Bson::Int64(n)) => Some(i128::from(*n)),
            // A cast from float saturates.
            (Self::Number, Bson::Double(n)) => Some(n.floor() as i128),
            (Self::Number, Bson::Decimal128(n)) => n.to_string().parse::<f64>().ok().map(|n| n.floor() as i128),
            (Self::Date, Bson::DateTime(date)) => Some(i128::from(date.timestamp_millis())),
            (Self::ObjectId, Bson::ObjectId(id)) => Some(of_bytes(&id.bytes())),
            (Self::Binary(_), Bson::Binary(Binary { bytes, .. })) => bytes.get(..15).map(of_bytes),
            (Self::Text(common), Bson::String(text)) => {
                let rest = text.strip_prefix(common.as_str())?.bytes();
                let values = rest.map(|byte| i128::from(byte.saturating_sub(FIRST)).min(VALUES - 1));
                Some(values.chain(std::iter::repeat(0)).take(LETTERS).fold(0, |sum, value| sum * VALUES + value))
            }
            _ => None,
        }
    }

    /// Returns a key at a position.
    pub(crate) fn at(&self, position: i128) -> Bson {
        let bytes = position.to_be_bytes();
        match self {
            Self::Number => Bson::Int64(saturated(position)),
            Self::Date => DateTime::from_millis(saturated(position)).into(),
            Self::ObjectId => {
                let mut id = [0; 12];
                id.copy_from_slice(&bytes[4..]);
                ObjectId::from_bytes(id).into()
            }
            Self::Binary(subtype) => {
                let mut end = bytes[1..].to_vec();
                end.push(0xff);
                Bson::Binary(Binary { subtype: *subtype, bytes: end })
            }
            Self::Text(common) => {
                let mut left = position;
                let mut letters = [' '; LETTERS];
                for letter in letters.iter_mut().rev() {
                    // Always one of the letters.
                    *letter = char::from(FIRST + u8::try_from(left % VALUES).unwrap_or(0));
                    left /= VALUES;
                }
                common.chars().chain(letters).collect::<String>().into()
            }
        }
    }
}

fn saturated(position: i128) -> i64 {
    i64::try_from(position).unwrap_or(if position < 0 { i64::MIN } else { i64::MAX })
}
