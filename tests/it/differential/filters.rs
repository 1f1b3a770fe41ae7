//! Random filters of a policy, and what they select: written from MongoDB's documentation of its query language, not from the
//! tool.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use fastrand::Rng;
use mongodb::bson::{Bson, DateTime, Document};
use serde_json::{Value, json};

/// A predicate of a policy.
#[derive(Debug, Clone)]
pub(super) enum Filter {
    Field(String, Test),
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Nor(Vec<Filter>),
}

/// The relative dates of the filters: as a policy writes them, and in milliseconds.
pub(super) const AGES: [(&str, i64); 4] = [("90d", 7_776_000_000), ("1d", 86_400_000), ("1h30m", 5_400_000), ("0s", 0)];

/// A condition on the values of one field. Values are numbers, strings, null and relative dates.
#[derive(Debug, Clone)]
pub(super) enum Test {
    Equals(Value),
    Is(&'static str, Value),
    Among(&'static str, Vec<Value>),
    Exists(bool),
    Not(Box<Test>),
}

/// Returns a random filter on these fields.
pub(super) fn filter(random: &mut Rng, fields: &[&str], depth: u32) -> Filter {
    let several = |random: &mut Rng| (0..random.usize(1..3)).map(|_| filter(random, fields, depth - 1)).collect();
    match random.u8(0..10) {
        0 if depth > 0 => Filter::And(several(random)),
        1 | 2 if depth > 0 => Filter::Or(several(random)),
        3 if depth > 0 => Filter::Nor(several(random)),
        _ => {
            let field = fields[random.usize(0..fields.len())];
            Filter::Field(field.to_owned(), test(random, field, 1))
        }
    }
}

fn test(random: &mut Rng, field: &str, depth: u32) -> Test {
    match random.u8(0..14) {
        0..3 => Test::Equals(value(random, field)),
        3..5 => Test::Is("$ne", value(random, field)),
        5 => Test::Is("$eq", value(random, field)),
        // Strings are compared for equality only: how a collation orders them is not for this test.
        6..8 => {
            let value = if is_date(field) { value(random, field) } else { json!(random.i32(0..6)) };
            Test::Is(["$gt", "$gte", "$lt", "$lte"][random.usize(0..4)], value)
        }
        8 => Test::Among("$in", (0..random.usize(1..4)).map(|_| value(random, field)).collect()),
        9 => Test::Among("$nin", (0..random.usize(1..4)).map(|_| value(random, field)).collect()),
        10 => Test::Exists(random.bool()),
        _ if depth > 0 => match test(random, field, 0) {
            // `$not` takes operators only.
            Test::Equals(value) => Test::Not(Box::new(Test::Is("$eq", value))),
            test => Test::Not(Box::new(test)),
        },
        _ => Test::Equals(value(random, field)),
    }
}

fn value(random: &mut Rng, field: &str) -> Value {
    match random.u8(0..12) {
        0 => Value::Null,
        1 => json!(random.i32(0..6)),
        2 => json!("done"),
        _ if is_date(field) => json!({ "$ago": AGES[random.usize(0..AGES.len())].0 }),
        _ if field.ends_with('n') => json!(random.i32(0..6)),
        _ => json!(["x", "y", "done", "X"][random.usize(0..4)]),
    }
}

/// Whether a field holds dates next to values of other types.
fn is_date(field: &str) -> bool {
    field.ends_with("seen")
}

impl Filter {
    /// Returns the filter as a policy writes it.
    pub(super) fn json(&self) -> Value {
        let list = |filters: &[Filter]| filters.iter().map(Filter::json).collect::<Vec<_>>();
        match self {
            Self::Field(field, test) => json!({ field: test.json() }),
            Self::And(filters) => json!({ "$and": list(filters) }),
            Self::Or(filters) => json!({ "$or": list(filters) }),
            Self::Nor(filters) => json!({ "$nor": list(filters) }),
        }
    }

    /// Whether the filter selects a document.
    pub(super) fn selects(&self, document: &Document, by: Comparing) -> bool {
        match self {
            Self::Field(field, test) => test.holds(&values(document, field), by),
            Self::And(filters) => filters.iter().all(|filter| filter.selects(document, by)),
            Self::Or(filters) => filters.iter().any(|filter| filter.selects(document, by)),
            Self::Nor(filters) => !filters.iter().any(|filter| filter.selects(document, by)),
        }
    }

    /// Adds the fields that the filter names, each with whether it stands under a negation or is compared with null.
    pub(super) fn fields(&self, is_negated: bool, found: &mut Vec<(String, bool)>) {
        match self {
            Self::Field(field, test) => found.push((field.clone(), is_negated || test.selects_missing())),
            Self::And(filters) | Self::Or(filters) => filters.iter().for_each(|filter| filter.fields(is_negated, found)),
            Self::Nor(filters) => filters.iter().for_each(|filter| filter.fields(true, found)),
        }
    }

    /// Adds the types of the values that are compared where the whole filter is guarded, or under a negation, by field.
    pub(super) fn guarded_types(&self, is_guarded: bool, found: &mut BTreeSet<(String, &'static str)>) {
        match self {
            Self::Field(field, test) => {
                if is_guarded || test.is_negation() {
                    found.extend(test.values().iter().filter_map(|value| Some((field.clone(), type_of(value)?))));
                }
            }
            Self::And(filters) | Self::Or(filters) => filters.iter().for_each(|filter| filter.guarded_types(is_guarded, found)),
            Self::Nor(filters) => filters.iter().for_each(|filter| filter.guarded_types(true, found)),
        }
    }
}

impl Test {
    fn json(&self) -> Value {
        match self {
            Self::Equals(value) => value.clone(),
            Self::Is(operator, value) => json!({ *operator: value }),
            Self::Among(operator, values) => json!({ *operator: values }),
            Self::Exists(exists) => json!({ "$exists": exists }),
            Self::Not(test) => json!({ "$not": test.json() }),
        }
    }

    /// Whether the condition holds for the values of a field; a missing field has none.
    fn holds(&self, values: &[&Bson], by: Comparing) -> bool {
        let equals = |value: &Value| match value {
            Value::Null => values.is_empty() || values.iter().any(|found| matches!(found, Bson::Null)),
            _ => values.iter().any(|found| by.compare(found, value) == Some(Ordering::Equal)),
        };
        let ordered = |value: &Value, wanted: &[Ordering]| {
            values.iter().any(|found| by.compare(found, value).is_some_and(|order| wanted.contains(&order)))
        };
        match self {
            Self::Equals(value) | Self::Is("$eq", value) => equals(value),
            Self::Is("$ne", value) => !equals(value),
            Self::Is("$gt", value) => ordered(value, &[Ordering::Greater]),
            Self::Is("$gte", value) => ordered(value, &[Ordering::Greater, Ordering::Equal]),
            Self::Is("$lt", value) => ordered(value, &[Ordering::Less]),
            Self::Is("$lte", value) => ordered(value, &[Ordering::Less, Ordering::Equal]),
            Self::Among("$in", all) => all.iter().any(equals),
            Self::Among(_, all) => !all.iter().any(equals),
            Self::Exists(exists) => values.is_empty() != *exists,
            Self::Not(test) => !test.holds(values, by),
            Self::Is(operator, _) => panic!("{operator}"),
        }
    }

    /// Whether the condition is a negation, or compares with null: a document may go for the lack of the field.
    fn selects_missing(&self) -> bool {
        let is_null = |value: &Value| value.is_null();
        match self {
            Self::Equals(value) | Self::Is("$eq", value) => is_null(value),
            Self::Among("$in", values) => values.iter().any(is_null),
            _ => self.is_negation(),
        }
    }

    fn is_negation(&self) -> bool {
        match self {
            Self::Is(operator, _) => *operator == "$ne",
            Self::Among(operator, _) => *operator == "$nin",
            Self::Exists(exists) => !exists,
            Self::Not(_) => true,
            Self::Equals(_) => false,
        }
    }

    fn values(&self) -> Vec<Value> {
        match self {
            Self::Equals(value) | Self::Is(_, value) => vec![value.clone()],
            Self::Among(_, values) => values.clone(),
            Self::Exists(_) => Vec::new(),
            Self::Not(test) => test.values(),
        }
    }
}

/// Returns the values that a condition on a field is compared with: the value, and the elements of an array. A path of two names
/// goes through one document.
pub(super) fn values<'a>(document: &'a Document, path: &str) -> Vec<&'a Bson> {
    let found = match path.split_once('.') {
        Some((root, rest)) => document.get(root).and_then(Bson::as_document).and_then(|inner| inner.get(rest)),
        None => document.get(path),
    };
    match found {
        Some(Bson::Array(items)) => found.into_iter().chain(items).collect(),
        _ => found.into_iter().collect(),
    }
}

/// Settings of a run by which values are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparing {
    /// Whether the rule's collation ignores the case of strings.
    pub folds: bool,
    /// The instant of the run.
    pub as_of: DateTime,
}

impl Comparing {
    /// Compares a value with one of a filter; `None` if they are of different types.
    fn compare(self, found: &Bson, value: &Value) -> Option<Ordering> {
        match value {
            Value::Number(number) => self::number(found)?.partial_cmp(&number.as_f64()?),
            Value::String(text) => {
                let found = found.as_str()?;
                Some(if self.folds { found.to_lowercase().cmp(&text.to_lowercase()) } else { found.cmp(text) })
            }
            Value::Object(relative) => {
                let (_, age) = AGES.into_iter().find(|(text, _)| relative["$ago"] == *text)?;
                Some(found.as_datetime()?.timestamp_millis().cmp(&(self.as_of.timestamp_millis() - age)))
            }
            _ => None,
        }
    }
}

/// Returns the value of a number of any type.
pub(super) fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        _ => None,
    }
}

fn type_of(value: &Value) -> Option<&'static str> {
    match value {
        Value::Number(_) => Some("number"),
        Value::String(_) => Some("string"),
        Value::Object(_) => Some("date"),
        _ => None,
    }
}

/// Whether a document has a value of a type in a field.
pub(super) fn has_type(document: &Document, path: &str, kind: &str) -> bool {
    values(document, path).iter().any(|value| match kind {
        "number" => number(value).is_some(),
        "date" => value.as_datetime().is_some(),
        _ => value.as_str().is_some(),
    })
}
