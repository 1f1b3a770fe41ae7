//! Filters, compiled once per command. An operator that is not known is an error.

use std::cmp::Ordering;

use bson::{Bson, DateTime, Document};

use crate::expression::Expression;
use crate::failure::Failure;
use crate::order::{self, compare, is_nan, rank, type_name};
use crate::path::Path;
use crate::value::is_true;

/// A condition on documents.
#[derive(Debug)]
pub(crate) enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    None(Vec<Filter>),
    Field { path: Path, condition: Condition },
    Expression(Expression),
    Always(bool),
}

/// A condition on the values at a path.
#[derive(Debug)]
pub(crate) enum Condition {
    Compared {
        is: Comparison,
        operand: Bson,
    },
    /// Ascending, without those that are equal.
    In(Vec<Bson>),
    Exists,
    Type(Vec<&'static str>),
    Size(usize),
    /// Texts that are compared byte by byte, which is all that the tool's regular expressions do.
    Texts(Vec<String>),
    Not(Vec<Condition>),
    ElementMatches(Box<Filter>),
    Element(Vec<Condition>),
    Or(Vec<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Filter {
    /// Compiles a filter. `now` is the value of `$$NOW`.
    pub(crate) fn new(filter: &Document, now: DateTime) -> Result<Self, Failure> {
        let mut all = Vec::new();
        for (key, value) in filter {
            match key.as_str() {
                "$and" => all.extend(list(key, value, now)?),
                "$or" => all.push(Self::Any(list(key, value, now)?)),
                "$nor" => all.push(Self::None(list(key, value, now)?)),
                "$expr" => all.push(Self::Expression(Expression::new(value, now)?)),
                "$comment" => {}
                "$alwaysTrue" => all.push(Self::Always(true)),
                "$alwaysFalse" => all.push(Self::Always(false)),
                operator if operator.starts_with('$') => {
                    return Err(Failure::bad(format!("unknown top level operator: {operator}")));
                }
                path => {
                    for condition in conditions(value, now)? {
                        all.push(Self::Field { path: Path::new(path), condition });
                    }
                }
            }
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Self::All(all) })
    }

    /// Tells whether a document matches.
    pub(crate) fn matches(&self, document: &Bson) -> Result<bool, Failure> {
        match self {
            Self::All(filters) => {
                for filter in filters {
                    if !filter.matches(document)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(filters) => any(filters, document),
            Self::None(filters) => Ok(!any(filters, document)?),
            Self::Field { path, condition } => Ok(condition.holds_at(path, document.as_document().expect("a document"))?),
            Self::Expression(expression) => Ok(is_true(expression.evaluate(document)?.as_deref())),
            Self::Always(is_true) => Ok(*is_true),
        }
    }

    /// Returns the paths that the filter looks at; `None` if it looks at whole documents.
    pub(crate) fn paths(&self) -> Option<Vec<Path>> {
        match self {
            Self::All(filters) => Some(filters.iter().map(Self::paths).collect::<Option<Vec<_>>>()?.concat()),
            Self::Field { path, .. } => Some(vec![path.clone()]),
            _ => None,
        }
    }

    /// Returns the conditions on a path that all matches meet.
    pub(crate) fn conditions_on<'a>(&'a self, path: &Path) -> Vec<&'a Condition> {
        match self {
            Self::All(filters) => filters.iter().flat_map(|filter| filter.conditions_on(path)).collect(),
            Self::Field { path: of, condition } if of == path => vec![condition],
            _ => Vec::new(),
        }
    }
}

fn any(filters: &[Filter], document: &Bson) -> Result<bool, Failure> {
    for filter in filters {
        if filter.matches(document)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn list(key: &str, value: &Bson, now: DateTime) -> Result<Vec<Filter>, Failure> {
    let parts = value.as_array().filter(|parts| !parts.is_empty());
    let parts = parts.ok_or_else(|| Failure::bad(format!("{key} must be a nonempty array")))?;
    let filter = |part: &Bson| match part.as_document() {
        Some(filter) => Filter::new(filter, now),
        None => Err(Failure::bad("$or/$and/$nor entries need to be full objects")),
    };
    parts.iter().map(filter).collect()
}

/// Returns the conditions that a value in a filter stands for.
fn conditions(value: &Bson, now: DateTime) -> Result<Vec<Condition>, Failure> {
    match value {
        Bson::Document(operators) if operators.keys().next().is_some_and(|key| key.starts_with('$')) => {
            operators.iter().map(|(operator, operand)| Condition::new(operator, operand, now)).collect()
        }
        Bson::RegularExpression(regex) => Ok(vec![Condition::Texts(vec![literal(regex)?])]),
        value => Ok(vec![Condition::compared(Comparison::Equal, value)?]),
    }
}

/// Reads the regular expression of one text, `\A...\z` with backslashes before signs.
fn literal(regex: &bson::Regex) -> Result<String, Failure> {
    let pattern = regex.pattern.as_str();
    let inner =
        pattern.strip_prefix("\\A").and_then(|rest| rest.strip_suffix("\\z")).filter(|_| regex.options.as_str().is_empty());
    let inner = inner.unwrap_or_else(|| panic!("the model does not know regular expressions like {pattern:?}"));
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.extend(chars.next().filter(|c| c.is_ascii() && !c.is_ascii_alphanumeric())),
            c => text.push(c),
        }
    }
    Ok(text)
}

impl Condition {
    fn new(operator: &str, operand: &Bson, now: DateTime) -> Result<Self, Failure> {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        match operator {
            "$eq" => Self::compared(Equal, operand),
            "$ne" => Ok(Self::Not(vec![Self::compared(Equal, operand)?])),
            "$lt" => Self::compared(Less, operand),
            "$lte" => Self::compared(LessOrEqual, operand),
            "$gt" => Self::compared(Greater, operand),
            "$gte" => Self::compared(GreaterOrEqual, operand),
            "$in" => Self::any_of(operator, operand),
            "$nin" => Ok(Self::Not(vec![Self::any_of(operator, operand)?])),
            "$exists" => Ok(if is_true(Some(operand)) { Self::Exists } else { Self::Not(vec![Self::Exists]) }),
            "$type" => types(operand),
            "$size" => match whole(operand).and_then(|n| usize::try_from(n).ok()) {
                Some(size) => Ok(Self::Size(size)),
                None => Err(Failure::bad("$size must be a whole number")),
            },
            "$not" => match operand {
                Bson::Document(operators) if !operators.is_empty() => {
                    let not = |(operator, operand): (&String, &Bson)| match operator.starts_with('$') {
                        true => Self::new(operator, operand, now),
                        false => Err(Failure::bad(format!("unknown operator: {operator}"))),
                    };
                    Ok(Self::Not(operators.iter().map(not).collect::<Result<_, _>>()?))
                }
                Bson::RegularExpression(_) => Ok(Self::Not(conditions(operand, now)?)),
                _ => Err(Failure::bad("$not needs a regex or a document")),
            },
            "$elemMatch" => {
                let Some(inner) = operand.as_document() else { return Err(Failure::bad("$elemMatch needs an Object")) };
                let is_of_values = inner.keys().next().is_some_and(|key| key.starts_with('$') && !is_of_documents(key));
                if is_of_values {
                    Ok(Self::Element(conditions(operand, now)?))
                } else {
                    Ok(Self::ElementMatches(Box::new(Filter::new(inner, now)?)))
                }
            }
            _ => Err(Failure::bad(format!("unknown operator: {operator}"))),
        }
    }

    fn compared(is: Comparison, operand: &Bson) -> Result<Self, Failure> {
        match operand {
            Bson::Undefined => Err(Failure::bad("cannot compare to undefined")),
            Bson::RegularExpression(_) if is != Comparison::Equal => Err(Failure::bad("Can't have RegEx as arg to predicate")),
            operand => Ok(Self::Compared { is, operand: operand.clone() }),
        }
    }

    fn any_of(operator: &str, operand: &Bson) -> Result<Self, Failure> {
        let Some(items) = operand.as_array() else { return Err(Failure::bad(format!("{operator} needs an array"))) };
        let (mut values, mut texts) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Bson::RegularExpression(regex) => texts.push(literal(regex)?),
                Bson::Undefined => return Err(Failure::bad("InMatchExpression equality cannot be undefined")),
                Bson::Document(inner) if inner.keys().next().is_some_and(|key| key.starts_with('$')) => {
                    return Err(Failure::bad(format!("cannot nest $ under {operator}")));
                }
                item => values.push(item.clone()),
            }
        }
        values.sort_by(compare);
        values.dedup_by(|a, b| compare(a, b).is_eq());
        texts.sort();
        Ok(match texts.is_empty() {
            true => Self::In(values),
            false => Self::Or(vec![Self::In(values), Self::Texts(texts)]),
        })
    }

    fn holds_at(&self, path: &Path, document: &Document) -> Result<bool, Failure> {
        match self {
            Self::Not(conditions) => {
                for condition in conditions {
                    if !condition.holds_at(path, document)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Or(conditions) => {
                for condition in conditions {
                    if condition.holds_at(path, document)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Exists | Self::Size(_) => Ok(path.any(document, false, &mut |value| self.holds(value))),
            Self::ElementMatches(_) | Self::Element(_) => {
                let mut failed = None;
                let found = path.any(document, false, &mut |value| {
                    let Some(Bson::Array(items)) = value else { return false };
                    items.iter().any(|item| match self.holds_for_element(item) {
                        Ok(holds) => holds,
                        Err(failure) => {
                            failed = Some(failure);
                            false
                        }
                    })
                });
                failed.map_or(Ok(found), Err)
            }
            _ => Ok(path.any(document, true, &mut |value| self.holds(value))),
        }
    }

    fn holds_for_element(&self, item: &Bson) -> Result<bool, Failure> {
        match (self, item) {
            (Self::ElementMatches(filter), Bson::Document(_)) => filter.matches(item),
            (Self::ElementMatches(_), Bson::Array(_)) => panic!("the model does not know `$elemMatch` on arrays of arrays"),
            (Self::Element(conditions), _) => Ok(conditions.iter().all(|condition| match condition {
                Self::Not(inner) => !inner.iter().all(|condition| condition.holds(Some(item))),
                condition => condition.holds(Some(item)),
            })),
            _ => Ok(false),
        }
    }

    fn holds(&self, value: Option<&Bson>) -> bool {
        match self {
            Self::Compared { is, operand } => compares(value, *is, operand),
            Self::In(values) => match value {
                Some(value) => {
                    values.binary_search_by(|of| compare(of, value)).is_ok()
                        || (*value == Bson::Undefined && values.contains(&Bson::Null))
                }
                None => values.contains(&Bson::Null),
            },
            Self::Exists => value.is_some(),
            Self::Type(names) => value.is_some_and(|value| names.contains(&type_name(value))),
            Self::Size(size) => value.and_then(Bson::as_array).is_some_and(|items| items.len() == *size),
            Self::Texts(texts) => match value {
                Some(Bson::String(text) | Bson::Symbol(text)) => texts.binary_search(text).is_ok(),
                _ => false,
            },
            Self::Not(_) | Self::Or(_) | Self::ElementMatches(_) | Self::Element(_) => {
                panic!("the model does not know {self:?} below `$elemMatch`")
            }
        }
    }
}

fn is_of_documents(key: &str) -> bool {
    ["$and", "$or", "$nor", "$expr"].contains(&key)
}

/// Tells whether a value compares with an operand as an operator says.
///
/// Source: mongo `src/mongo/db/matcher/expression_leaf.cpp`, ComparisonMatchExpression::matchesSingleElement.
fn compares(value: Option<&Bson>, is: Comparison, operand: &Bson) -> bool {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
    let place = value.map_or(order::MISSING, rank);
    if place != rank(operand) {
        return match operand {
            Bson::Null => place == order::MISSING && matches!(is, Equal | LessOrEqual | GreaterOrEqual),
            Bson::MaxKey => matches!(is, Less | LessOrEqual),
            Bson::MinKey => matches!(is, Greater | GreaterOrEqual),
            _ => false,
        };
    }
    let Some(value) = value else { return false };
    if is_nan(value) || is_nan(operand) {
        return is_nan(value) && is_nan(operand) && matches!(is, Equal | LessOrEqual | GreaterOrEqual);
    }
    let order = compare(value, operand);
    match is {
        Equal => order == Ordering::Equal,
        Less => order.is_lt(),
        LessOrEqual => order.is_le(),
        Greater => order.is_gt(),
        GreaterOrEqual => order.is_ge(),
    }
}

fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) if n.fract() == 0.0 => Some(*n as i64),
        _ => None,
    }
}

const TYPES: [(&str, i64); 21] = [
    ("double", 1),
    ("string", 2),
    ("object", 3),
    ("array", 4),
    ("binData", 5),
    ("undefined", 6),
    ("objectId", 7),
    ("bool", 8),
    ("date", 9),
    ("null", 10),
    ("regex", 11),
    ("dbPointer", 12),
    ("javascript", 13),
    ("symbol", 14),
    ("javascriptWithScope", 15),
    ("int", 16),
    ("timestamp", 17),
    ("long", 18),
    ("decimal", 19),
    ("minKey", -1),
    ("maxKey", 127),
];

fn types(operand: &Bson) -> Result<Condition, Failure> {
    let one = |operand: &Bson| -> Result<Vec<&'static str>, Failure> {
        let known = match operand {
            Bson::String(name) if name == "number" => return Ok(vec!["double", "int", "long", "decimal"]),
            Bson::String(name) => TYPES.iter().find(|(known, _)| known == name),
            other => whole(other).and_then(|code| TYPES.iter().find(|(_, known)| *known == code)),
        };
        known.map(|(name, _)| vec![*name]).ok_or_else(|| Failure::bad(format!("Unknown type name alias: {operand}")))
    };
    let names = match operand {
        Bson::Array(operands) if operands.is_empty() => return Err(Failure::new(9, "$type must match at least one type")),
        Bson::Array(operands) => operands.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat(),
        operand => one(operand)?,
    };
    Ok(Condition::Type(names))
}
