//! A slow and obvious reference for expiry, written from the documented tables and not from the code of the tool.

use mongodb::bson::{Bson, DateTime, Document};

/// A step on the path to a value.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Name(String),
    Position(usize),
}

/// Returns the earliest Date that an index on `path` would hold for the document.
pub(crate) fn earliest(document: &Document, path: &str) -> Option<DateTime> {
    least(document, path, |value| value.as_datetime().copied())
}

/// Returns the least result of `read` for the values that an index on `path` would hold for the document.
pub(crate) fn least<T: PartialOrd>(document: &Document, path: &str, read: impl Fn(&Bson) -> Option<T>) -> Option<T> {
    let names: Vec<&str> = path.split('.').collect();
    let mut all = Vec::new();
    for (name, value) in document {
        leaves(value, &mut vec![Step::Name(name.clone())], &mut all);
    }
    all.iter()
        .filter(|(steps, _)| reaches(steps, &names, false))
        .filter_map(|(_, value)| read(value))
        .reduce(|least, value| if value < least { value } else { least })
}

/// Collects all values except arrays and documents, each with its complete path.
fn leaves(value: &Bson, way: &mut Vec<Step>, found: &mut Vec<(Vec<Step>, Bson)>) {
    let mut enter = |step: Step, inner: &Bson| {
        way.push(step);
        leaves(inner, way, found);
        way.pop();
    };
    match value {
        Bson::Document(document) => document.iter().for_each(|(name, inner)| enter(Step::Name(name.clone()), inner)),
        Bson::Array(items) => items.iter().enumerate().for_each(|(index, inner)| enter(Step::Position(index), inner)),
        _ => found.push((way.clone(), value.clone())),
    }
}

/// Whether a path leads along these steps. A position may be named or skipped. It is skipped only once in a row, and only before
/// a name or at the end of a path whose last name was not a position.
fn reaches(steps: &[Step], path: &[&str], by_position: bool) -> bool {
    let Some((name, below)) = path.split_first() else {
        return match steps {
            [] => true,
            [Step::Position(_)] => !by_position,
            _ => false,
        };
    };
    match steps {
        [Step::Name(own), rest @ ..] => own == name && reaches(rest, below, false),
        [Step::Position(index), rest @ ..] => {
            let named = index.to_string() == *name && reaches(rest, below, true);
            named || (matches!(rest, [Step::Name(_), ..]) && reaches(rest, path, false))
        }
        [] => false,
    }
}

/// The setting in a document's own ttl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ttl {
    /// The rule's expireAfterSeconds applies.
    Default,
    Never,
    /// 0, or negative but not -1: kept.
    Kept,
    Seconds(i64),
}

pub(crate) fn own_ttl(value: Option<&Bson>) -> Ttl {
    let whole = match value {
        Some(Bson::Int32(n)) => Some(i64::from(*n)),
        Some(Bson::Int64(n)) => Some(*n),
        Some(Bson::Double(n)) if n.is_finite() && n.fract() == 0.0 && n.abs() < 1e15 => Some(*n as i64),
        _ => None,
    };
    match whole {
        Some(-1) => Ttl::Never,
        Some(n) if (1..=2_147_483_647).contains(&n) => Ttl::Seconds(n),
        Some(n) if (-2_147_483_648..=0).contains(&n) => Ttl::Kept,
        _ => Ttl::Default,
    }
}

/// Whether a document with this earliest date has expired; `default` is the rule's expireAfterSeconds, or `None` if that is -1.
pub(crate) fn has_expired(earliest: Option<DateTime>, ttl: Ttl, default: Option<i64>, as_of: DateTime) -> bool {
    let seconds = match ttl {
        Ttl::Default => default,
        Ttl::Never | Ttl::Kept => None,
        Ttl::Seconds(n) => Some(n),
    };
    match (earliest, seconds) {
        (Some(date), Some(seconds)) => {
            i128::from(date.timestamp_millis()) + i128::from(seconds) * 1000 <= i128::from(as_of.timestamp_millis())
        }
        _ => false,
    }
}
