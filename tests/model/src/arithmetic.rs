//! Arithmetic of expressions: whole numbers stay whole, and become longer where they must.

use std::borrow::Cow;

use bson::{Bson, DateTime};

use crate::codes;
use crate::failure::Failure;
use crate::order::{float, is_number, type_name};
use crate::value::{Value, integer, is_nothing};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// The code of an operand of a type that the operation does not take.
const TYPE_MISMATCH: i32 = 14;

/// Combines all values, from the first on.
pub(crate) fn all<'a>(operation: Operation, values: &[Value<'a>]) -> Result<Value<'a>, Failure> {
    if values.iter().any(|value| is_nothing(value.as_deref())) {
        return Ok(Some(Cow::Owned(Bson::Null)));
    }
    let mut total: Option<Bson> = None;
    for value in values.iter().flatten() {
        total = Some(match total {
            Some(total) => combined(operation, &total, value)?,
            None if is_number(value) || matches!(**value, Bson::DateTime(_)) => (**value).clone(),
            None => return Err(mismatch(operation, value)),
        });
    }
    Ok(Some(Cow::Owned(total.unwrap_or(Bson::Int32(i32::from(operation == Operation::Multiply))))))
}

/// Combines two values.
pub(crate) fn two<'a>(operation: Operation, a: Option<&Bson>, b: Option<&Bson>) -> Result<Value<'a>, Failure> {
    match (a, b) {
        (Some(a), Some(b)) if !is_nothing(Some(a)) && !is_nothing(Some(b)) => Ok(Some(Cow::Owned(combined(operation, a, b)?))),
        _ => Ok(Some(Cow::Owned(Bson::Null))),
    }
}

fn mismatch(operation: Operation, value: &Bson) -> Failure {
    Failure::new(TYPE_MISMATCH, format!("{operation:?} does not take a {}", type_name(value)))
}

fn long(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        _ => None,
    }
}

fn combined(operation: Operation, a: &Bson, b: &Bson) -> Result<Bson, Failure> {
    use Operation::{Add, Divide, Multiply, Subtract};
    if let (Bson::Decimal128(_), _) | (_, Bson::Decimal128(_)) = (a, b) {
        panic!("the model does not calculate with decimals");
    }
    match (operation, a, b) {
        (Subtract, Bson::DateTime(a), Bson::DateTime(b)) => {
            let difference = a.timestamp_millis().checked_sub(b.timestamp_millis());
            return difference.map(Bson::Int64).ok_or_else(overflow);
        }
        (Subtract, Bson::DateTime(date), _) if is_number(b) => return moved(*date, -1, b),
        (Add, Bson::DateTime(date), _) if is_number(b) => return moved(*date, 1, b),
        (Add, _, Bson::DateTime(date)) if is_number(a) => return moved(*date, 1, a),
        _ => {}
    }
    let (Some(x), Some(y)) = (float(a), float(b)) else {
        return Err(mismatch(operation, if is_number(a) { b } else { a }));
    };
    if operation == Divide {
        return if y == 0.0 { Err(Failure::bad("can't $divide by zero")) } else { Ok((x / y).into()) };
    }
    if let (Some(x), Some(y)) = (long(a), long(b)) {
        let exact = match operation {
            Add => x.checked_add(y),
            Subtract => x.checked_sub(y),
            Multiply | Divide => x.checked_mul(y),
        };
        let is_short = matches!((a, b), (Bson::Int32(_), Bson::Int32(_)));
        match (exact, exact.and_then(|n| i32::try_from(n).ok())) {
            (_, Some(short)) if is_short => return Ok(short.into()),
            (Some(exact), _) => return Ok(exact.into()),
            (None, _) => {}
        }
    }
    Ok(match operation {
        Add => x + y,
        Subtract => x - y,
        Multiply | Divide => x * y,
    }
    .into())
}

/// Moves a date by milliseconds, which are rounded to whole ones.
fn moved(date: DateTime, direction: i64, by: &Bson) -> Result<Bson, Failure> {
    let millis = match by {
        Bson::Double(n) if !n.is_finite() || n.abs() >= 9.2e18 => return Err(overflow()),
        Bson::Double(n) => n.round() as i64,
        by => long(by).expect("a whole number"),
    };
    let moved = millis.checked_mul(direction).and_then(|millis| date.timestamp_millis().checked_add(millis));
    moved.map(|millis| DateTime::from_millis(millis).into()).ok_or_else(overflow)
}

fn overflow() -> Failure {
    Failure::new(15, "date overflow")
}

/// Adds numbers and leaves out all other values.
pub(crate) fn sum<'a>(values: impl Iterator<Item = &'a Bson>) -> Bson {
    let mut total = Bson::Int32(0);
    for value in values.filter(|value| is_number(value)) {
        total = combined(Operation::Add, &total, value).expect("numbers add up");
    }
    total
}

/// Rounds a number to so many places.
pub(crate) fn rounded(round: fn(f64) -> f64, n: f64, places: Option<&Bson>) -> Result<Bson, Failure> {
    let places = places.map_or(Some(0), integer).ok_or_else(|| Failure::new(codes::BAD_VALUE, "places"))?;
    let factor = 10_f64.powi(i32::try_from(places).expect("few places"));
    Ok(if places == 0 { round(n) } else { round(n * factor) / factor }.into())
}

/// Returns year and month of a date.
pub(crate) fn year_and_month(date: DateTime) -> (i32, i32) {
    use chrono::{DateTime as Chrono, Datelike, Utc};
    let date: Chrono<Utc> = Chrono::from_timestamp_millis(date.timestamp_millis()).expect("a date within the calendar");
    (date.year(), i32::try_from(date.month()).expect("a month"))
}
