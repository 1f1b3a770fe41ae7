//! The types of values, as far as a comparison tells them apart.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};

/// A type of values. A comparison in a query matches values of the same type only.
///
/// Source: MongoDB manual, "Comparison/Sort Order" and "Type Bracketing".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// Every numeric type: they compare with each other.
    Number,
    String,
    Object,
    Array,
    /// Binary data that is no UUID.
    Binary,
    /// Binary data of subtype 3 or 4. The two never equal each other, although both hold UUIDs.
    Uuid(BinarySubtype),
    ObjectId,
    Boolean,
    Date,
    Timestamp,
    /// Numbers and binary data, which `$bitsAllSet` and its kin look at.
    Bits,
}

/// The types that tell what a field holds. A null says nothing, and of an array its elements do.
const OF_VALUES: [&str; 14] = [
    "number",
    "string",
    "symbol",
    "object",
    "binData",
    "objectId",
    "bool",
    "date",
    "timestamp",
    "regex",
    "javascript",
    "dbPointer",
    "minKey",
    "maxKey",
];

impl ValueType {
    /// Returns the type of a value in a comparison; `None` if the value does not tell: null, and what lies below or above all
    /// types.
    pub fn of(value: &Bson) -> Option<Self> {
        Some(match value {
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => Self::Number,
            Bson::String(_) | Bson::Symbol(_) => Self::String,
            Bson::Document(_) => Self::Object,
            Bson::Array(_) => Self::Array,
            Bson::Binary(Binary { subtype: subtype @ (BinarySubtype::Uuid | BinarySubtype::UuidOld), bytes })
                if bytes.len() == 16 =>
            {
                Self::Uuid(*subtype)
            }
            Bson::Binary(_) => Self::Binary,
            Bson::ObjectId(_) => Self::ObjectId,
            Bson::Boolean(_) => Self::Boolean,
            Bson::DateTime(_) => Self::Date,
            Bson::Timestamp(_) => Self::Timestamp,
            _ => return None,
        })
    }

    /// Returns the type as messages name it, with its article.
    pub fn words(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::String => "a string",
            Self::Object => "a sub-document",
            Self::Array => "a list",
            Self::Binary => "a binary value other than a UUID",
            Self::Uuid(BinarySubtype::UuidOld) => "a UUID of the legacy subtype 3",
            Self::Uuid(_) => "a UUID of subtype 4",
            Self::ObjectId => "an ObjectId",
            Self::Boolean => "a boolean",
            Self::Date => "a date",
            Self::Timestamp => "a timestamp",
            Self::Bits => "a number or a binary value",
        }
    }

    /// Returns the condition of a query that a value of the type meets, and an array with such an element.
    pub fn condition(self) -> Document {
        match (self, self.range()) {
            (Self::Binary, Some([least, greatest])) => {
                doc! { "$type": "binData", "$not": { "$gte": least, "$lte": greatest } }
            }
            (_, Some([least, greatest])) => doc! { "$gte": least, "$lte": greatest },
            (_, None) => match self.names(&["number"]).as_slice() {
                [name] => doc! { "$type": *name },
                names => doc! { "$type": names.to_vec() },
            },
        }
    }

    /// Returns the expression that tells whether the value of another has the type.
    pub fn expression(self, value: &Bson) -> Bson {
        let of_type = doc! { "$in": [{ "$type": value }, self.names(&["int", "long", "double", "decimal"])] };
        let Some([least, greatest]) = self.range() else { return of_type.into() };
        let is_in = doc! { "$and": [{ "$gte": [value, least] }, { "$lte": [value, greatest] }] };
        match self {
            Self::Binary => doc! { "$and": [of_type, { "$not": [is_in] }] }.into(),
            _ => is_in.into(),
        }
    }

    fn names<'a>(self, numbers: &[&'a str]) -> Vec<&'a str> {
        match self {
            Self::Number => numbers.to_vec(),
            Self::String => vec!["string", "symbol"],
            Self::Object => vec!["object"],
            Self::Array => vec!["array"],
            Self::Binary | Self::Uuid(_) => vec!["binData"],
            Self::ObjectId => vec!["objectId"],
            Self::Boolean => vec!["bool"],
            Self::Date => vec!["date"],
            Self::Timestamp => vec!["timestamp"],
            Self::Bits => [numbers, &["binData"]].concat(),
        }
    }

    /// Returns the least and the greatest UUID that a value of the type may be, or must not be. Binary data is in the order of
    /// its length, its subtype and its bytes.
    fn range(self) -> Option<[Bson; 2]> {
        let subtypes = match self {
            Self::Uuid(subtype) => [subtype, subtype],
            Self::Binary => [BinarySubtype::UuidOld, BinarySubtype::Uuid],
            _ => return None,
        };
        let bound = |(subtype, byte)| Bson::Binary(Binary { subtype, bytes: vec![byte; 16] });
        Some([(subtypes[0], 0), (subtypes[1], 0xff)].map(bound))
    }
}

/// Returns the condition of a query that every value meets that tells what a field holds.
pub fn any_value() -> Document {
    doc! { "$type": OF_VALUES.to_vec() }
}

/// Returns the expression that tells whether another has a value that tells what it holds.
pub fn is_any_value(value: &Bson) -> Bson {
    doc! { "$not": [{ "$in": [{ "$type": value }, ["missing", "null", "undefined"]] }] }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_one_type_and_uuids_two() {
        let uuid = |subtype| ValueType::of(&Binary { subtype, bytes: vec![7; 16] }.into());
        assert_eq!(ValueType::of(&5.into()), ValueType::of(&5.5.into()));
        assert_ne!(uuid(BinarySubtype::Uuid), uuid(BinarySubtype::UuidOld));
        assert_eq!(ValueType::of(&Bson::Null), None);
        assert_eq!(ValueType::Number.condition(), doc! { "$type": "number" });
        let least = Bson::Binary(Binary { subtype: BinarySubtype::UuidOld, bytes: vec![0; 16] });
        assert_eq!(ValueType::Uuid(BinarySubtype::UuidOld).condition().get("$gte"), Some(&least));
    }
}
