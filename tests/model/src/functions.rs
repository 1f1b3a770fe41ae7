//! The operators of expressions whose operands are all evaluated first.

use std::borrow::Cow;
use std::cmp::Ordering;

use bson::{Bson, DateTime, RawDocumentBuf, doc};

use crate::arithmetic::{self, Operation};
use crate::codes;
use crate::failure::Failure;
use crate::order::{compare, is_number, type_name};
use crate::text;
use crate::value::{Value, integer, is_nothing, is_true, number};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Type,
    IsArray,
    IfNull,
    Size,
    Min,
    Max,
    ArrayElemAt,
    IndexOfArray,
    Trunc,
    Ceil,
    Round,
    Add,
    Subtract,
    Multiply,
    Divide,
    ObjectToArray,
    BsonSize,
    Concat,
    ToString,
    ToDate,
    /// `$dateFromString` whose `onError` is null, with or without a format.
    DateFromString,
    /// `$dateToString` with a format.
    DateToString,
    /// `$convert` to a long whose `onError` is null.
    LongOrNull,
    ToUpper,
    StrLenBytes,
    StrLenCp,
    IndexOfBytes,
    SubstrBytes,
    ToDouble,
    ToInt,
    Not,
    Sum,
    AnyElementTrue,
    Year,
    Month,
}

const NAMES: [(&str, Function, std::ops::RangeInclusive<usize>); 32] = {
    use Function::*;
    const MANY: usize = usize::MAX;
    [
        ("$type", Type, 1..=1),
        ("$isArray", IsArray, 1..=1),
        ("$ifNull", IfNull, 2..=MANY),
        ("$size", Size, 1..=1),
        ("$min", Min, 1..=MANY),
        ("$max", Max, 1..=MANY),
        ("$arrayElemAt", ArrayElemAt, 2..=2),
        ("$indexOfArray", IndexOfArray, 2..=4),
        ("$trunc", Trunc, 1..=2),
        ("$ceil", Ceil, 1..=1),
        ("$round", Round, 1..=2),
        ("$add", Add, 0..=MANY),
        ("$subtract", Subtract, 2..=2),
        ("$multiply", Multiply, 0..=MANY),
        ("$divide", Divide, 2..=2),
        ("$objectToArray", ObjectToArray, 1..=1),
        ("$bsonSize", BsonSize, 1..=1),
        ("$concat", Concat, 0..=MANY),
        ("$toString", ToString, 1..=1),
        ("$toUpper", ToUpper, 1..=1),
        ("$strLenBytes", StrLenBytes, 1..=1),
        ("$strLenCP", StrLenCp, 1..=1),
        ("$indexOfBytes", IndexOfBytes, 2..=4),
        ("$substrBytes", SubstrBytes, 3..=3),
        ("$toDate", ToDate, 1..=1),
        ("$toDouble", ToDouble, 1..=1),
        ("$toInt", ToInt, 1..=1),
        ("$not", Not, 1..=1),
        ("$sum", Sum, 1..=MANY),
        ("$anyElementTrue", AnyElementTrue, 1..=1),
        ("$year", Year, 1..=1),
        ("$month", Month, 1..=1),
    ]
};

impl Function {
    pub(crate) fn named(operator: &str) -> Option<Self> {
        NAMES.iter().find(|(name, ..)| *name == operator).map(|(_, function, _)| *function)
    }

    pub(crate) fn takes(self, operands: usize) -> bool {
        NAMES.iter().any(|(_, function, numbers)| *function == self && numbers.contains(&operands))
    }

    pub(crate) fn call<'a>(self, values: Vec<Value<'a>>) -> Result<Value<'a>, Failure> {
        let owned = |value: Bson| Ok(Some(Cow::Owned(value)));
        let null = || Ok(Some(Cow::Owned(Bson::Null)));
        let first = values.first().and_then(|value| value.as_deref());
        let second = values.get(1).and_then(|value| value.as_deref());
        match self {
            Self::Type => owned(first.map_or("missing", type_name).into()),
            Self::IsArray => owned(matches!(first, Some(Bson::Array(_))).into()),
            Self::Not => owned((!is_true(first)).into()),
            Self::IfNull => {
                let found = values.iter().position(|value| !is_nothing(value.as_deref())).unwrap_or(values.len() - 1);
                Ok(values.into_iter().nth(found).expect("a value"))
            }
            Self::Size => match first {
                Some(Bson::Array(items)) => owned(number(items.len())),
                _ => Err(Failure::new(17_124, "The argument to $size must be an array")),
            },
            Self::Min | Self::Max => {
                let is_better = if self == Self::Min { Ordering::is_lt } else { Ordering::is_gt };
                let best = |items: &mut dyn Iterator<Item = &'_ Bson>| {
                    let known = items.filter(|item| !is_nothing(Some(item)));
                    known.reduce(|best, item| if is_better(compare(item, best)) { item } else { best }).cloned()
                };
                let found = match first {
                    Some(Bson::Array(items)) if values.len() == 1 => best(&mut items.iter()),
                    _ => best(&mut values.iter().filter_map(|value| value.as_deref())),
                };
                owned(found.unwrap_or(Bson::Null))
            }
            Self::Sum => match first {
                Some(Bson::Array(items)) if values.len() == 1 => owned(arithmetic::sum(items.iter())),
                _ => owned(arithmetic::sum(values.iter().filter_map(|value| value.as_deref()))),
            },
            Self::ArrayElemAt => {
                if is_nothing(first) || is_nothing(second) {
                    return null();
                }
                if !matches!(first, Some(Bson::Array(_))) {
                    return Err(Failure::new(28_689, "$arrayElemAt's first argument must be an array"));
                }
                let at = second
                    .and_then(position)
                    .ok_or_else(|| Failure::new(28_691, "$arrayElemAt's second argument must be whole"))?;
                Ok(element(values.into_iter().next().flatten(), at))
            }
            Self::IndexOfArray => match (first, second) {
                (first, _) if is_nothing(first) => null(),
                (Some(Bson::Array(items)), Some(value)) if values.len() == 2 => {
                    owned(items.iter().position(|item| compare(item, value).is_eq()).map_or(Bson::Int32(-1), number))
                }
                (Some(Bson::Array(_)), None) => owned(Bson::Int32(-1)),
                _ => Err(Failure::new(40_090, "$indexOfArray requires an array as a first argument")),
            },
            Self::Trunc | Self::Ceil | Self::Round => match first {
                first if is_nothing(first) => null(),
                Some(Bson::Double(n)) => {
                    let round = match self {
                        Self::Trunc => f64::trunc,
                        Self::Ceil => f64::ceil,
                        _ => f64::round_ties_even,
                    };
                    owned(arithmetic::rounded(round, *n, second)?)
                }
                Some(n @ (Bson::Int32(_) | Bson::Int64(_))) => owned(n.clone()),
                Some(Bson::Decimal128(_)) => panic!("the model does not round decimals"),
                _ => Err(Failure::new(if self == Self::Ceil { 28_765 } else { 51_081 }, "only supports numeric types")),
            },
            Self::Add => arithmetic::all(Operation::Add, &values),
            Self::Multiply => arithmetic::all(Operation::Multiply, &values),
            Self::Subtract => arithmetic::two(Operation::Subtract, first, second),
            Self::Divide => arithmetic::two(Operation::Divide, first, second),
            Self::ObjectToArray => match first {
                first if is_nothing(first) => null(),
                Some(Bson::Document(document)) => {
                    let pairs = document.iter().map(|(key, value)| doc! { "k": key, "v": value }.into());
                    owned(Bson::Array(pairs.collect()))
                }
                _ => Err(Failure::new(40_390, "$objectToArray requires a document input")),
            },
            Self::BsonSize => match first {
                first if is_nothing(first) => null(),
                Some(Bson::Document(document)) => {
                    owned(number(RawDocumentBuf::try_from(document).expect("a document").as_bytes().len()))
                }
                _ => Err(Failure::new(31_393, "$bsonSize requires a document input")),
            },
            Self::Concat => {
                let mut text = String::new();
                for value in &values {
                    match value.as_deref() {
                        Some(Bson::String(part)) => text.push_str(part),
                        value if is_nothing(value) => return null(),
                        _ => return Err(Failure::new(16_702, "$concat only supports strings")),
                    }
                }
                owned(text.into())
            }
            Self::ToString => match first {
                first if is_nothing(first) => null(),
                Some(Bson::Double(n)) if *n == 0.0 => owned(if n.is_sign_negative() { "-0" } else { "0" }.into()),
                Some(Bson::Int32(n)) => owned(n.to_string().into()),
                Some(Bson::Int64(n)) => owned(n.to_string().into()),
                Some(Bson::Decimal128(n)) => owned(n.to_string().into()),
                Some(Bson::String(text)) => owned(text.as_str().into()),
                Some(Bson::Document(_) | Bson::Array(_)) => Err(unconvertible()),
                value => panic!("the model does not know the text of {value:?}"),
            },
            Self::ToDate => match first {
                first if is_nothing(first) => null(),
                Some(Bson::DateTime(date)) => owned((*date).into()),
                Some(Bson::ObjectId(id)) => owned(id.timestamp().into()),
                Some(Bson::Int64(n)) => owned(DateTime::from_millis(*n).into()),
                Some(Bson::Double(n)) if n.is_finite() && n.abs() < 9.2e18 => owned(DateTime::from_millis(*n as i64).into()),
                _ => Err(unconvertible()),
            },
            Self::DateFromString => owned(text::date(first, second)?),
            Self::DateToString => owned(text::written(first, second)),
            Self::LongOrNull => owned(text::long(first)),
            Self::ToUpper => owned(text::upper(first)),
            Self::StrLenBytes => owned(text::length(first, true)?),
            Self::StrLenCp => owned(text::length(first, false)?),
            Self::IndexOfBytes => owned(text::index_of_bytes(&values)?),
            Self::SubstrBytes => owned(text::substring(&values)?),
            Self::ToDouble => match first {
                first if is_nothing(first) => null(),
                Some(Bson::DateTime(date)) => owned((date.timestamp_millis() as f64).into()),
                Some(Bson::Boolean(is_one)) => owned(f64::from(u8::from(*is_one)).into()),
                Some(value) => crate::order::float(value).map_or_else(|| Err(unconvertible()), |n| owned(n.into())),
                None => null(),
            },
            Self::ToInt => match first {
                first if is_nothing(first) => null(),
                Some(Bson::Int32(n)) => owned((*n).into()),
                Some(Bson::String(text)) => match text.parse::<i32>() {
                    Ok(n) => owned(n.into()),
                    Err(_) => {
                        let why = format!("Failed to parse number '{text}' in $convert with no onError value");
                        Err(Failure::new(codes::CONVERSION_FAILURE, why))
                    }
                },
                value => panic!("the model does not know {value:?} as a whole number"),
            },
            Self::AnyElementTrue => match first {
                Some(Bson::Array(items)) => owned(items.iter().any(|item| is_true(Some(item))).into()),
                _ => Err(Failure::new(17_041, "$anyElementTrue's argument must be an array")),
            },
            Self::Year | Self::Month => match first {
                first if is_nothing(first) => null(),
                Some(Bson::DateTime(date)) => {
                    let (year, month) = arithmetic::year_and_month(*date);
                    owned(Bson::Int32(if self == Self::Year { year } else { month }))
                }
                _ => Err(Failure::new(16_006, "can't convert to Date")),
            },
        }
    }
}

fn unconvertible() -> Failure {
    Failure::new(codes::CONVERSION_FAILURE, "Unsupported conversion in $convert with no onError value")
}

fn position(at: &Bson) -> Option<i64> {
    match at {
        Bson::Double(n) if n.fract() != 0.0 => None,
        at if is_number(at) => integer(at),
        _ => None,
    }
}

/// Returns the element at a place, counted from the end if it is negative.
fn element(items: Value<'_>, at: i64) -> Value<'_> {
    let place = |length: usize| {
        let length = i64::try_from(length).expect("few items");
        usize::try_from(if at < 0 { length + at } else { at }).ok()
    };
    match items? {
        Cow::Borrowed(Bson::Array(items)) => items.get(place(items.len())?).map(Cow::Borrowed),
        Cow::Owned(Bson::Array(items)) => items.get(place(items.len())?).cloned().map(Cow::Owned),
        _ => None,
    }
}
