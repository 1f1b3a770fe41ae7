//! The stages of aggregations that the program sends. A stage that is not known is an error.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{Bson, DateTime, Document, doc};

use crate::arithmetic;
use crate::expression::Expression;
use crate::failure::Failure;
use crate::filter::Filter;
use crate::order::{compare, compare_values};
use crate::path::Path;
use crate::projection::Projection;
use crate::value::{integer, is_nothing, or_null};
use crate::{plan, sort};

pub(crate) enum Stage {
    Match(Filter),
    Limit(usize),
    Skip(usize),
    Sort(Vec<(Path, bool)>),
    Project(Projection),
    Set(Vec<(String, Expression)>),
    Group { id: Expression, fields: Vec<(String, Accumulator, Expression)> },
    Count(String),
    Facet(Vec<(String, Vec<Stage>)>),
    ReplaceWith(Expression),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accumulator {
    Sum,
    Min,
    Max,
    First,
    Last,
}

pub(crate) fn compile(stages: &[&Document], now: DateTime) -> Result<Vec<Stage>, Failure> {
    stages.iter().map(|stage| Stage::new(stage, now)).collect()
}

/// Runs stages one after another.
pub(crate) fn run(stages: &[Stage], mut documents: Vec<Arc<Bson>>) -> Result<Vec<Arc<Bson>>, Failure> {
    for stage in stages {
        documents = stage.run(documents)?;
    }
    Ok(documents)
}

impl Stage {
    fn new(stage: &Document, now: DateTime) -> Result<Self, Failure> {
        let mut parts = stage.iter();
        let (Some((name, operand)), None) = (parts.next(), parts.next()) else {
            return Err(Failure::new(40_323, "A pipeline stage specification object must contain exactly one field."));
        };
        let document = || operand.as_document().ok_or_else(|| Failure::new(15_959, format!("{name} must be an object")));
        let whole = |least: i64| {
            let n = integer(operand).filter(|n| *n >= least);
            let n =
                n.ok_or_else(|| Failure::new(if name == "$limit" { 15_958 } else { 15_956 }, format!("{name} must be positive")));
            Ok::<_, Failure>(usize::try_from(n?).expect("a small number"))
        };
        Ok(match name.as_str() {
            "$match" => Self::Match(Filter::new(document()?, now)?),
            "$limit" => Self::Limit(whole(1)?),
            "$skip" => Self::Skip(whole(0)?),
            "$sort" => Self::Sort(plan::sort(Some(document()?))?),
            "$project" => Self::Project(Projection::new(Some(document()?), now)?),
            "$set" | "$addFields" => {
                let fields = document()?.iter().map(|(name, value)| {
                    assert!(!name.contains('.'), "the model sets no fields below others");
                    Ok((name.clone(), Expression::new(value, now)?))
                });
                Self::Set(fields.collect::<Result<_, Failure>>()?)
            }
            "$replaceWith" => Self::ReplaceWith(Expression::new(operand, now)?),
            "$count" => {
                Self::Count(operand.as_str().ok_or_else(|| Failure::new(40_156, "the count field must be a string"))?.to_owned())
            }
            "$facet" => {
                let facets = document()?.iter().map(|(name, stages)| {
                    let stages = stages.as_array().ok_or_else(|| Failure::new(40_170, "arguments to $facet must be arrays"))?;
                    let stages: Vec<&Document> = stages.iter().filter_map(Bson::as_document).collect();
                    Ok((name.clone(), compile(&stages, now)?))
                });
                Self::Facet(facets.collect::<Result<_, Failure>>()?)
            }
            "$group" => {
                let group = document()?;
                let id = group.get("_id").ok_or_else(|| Failure::new(15_955, "a group specification must include an _id"))?;
                let mut fields = Vec::new();
                for (name, accumulated) in group.iter().filter(|(name, _)| *name != "_id") {
                    let one = accumulated.as_document().and_then(|accumulated| accumulated.iter().next());
                    let (operator, operand) =
                        one.ok_or_else(|| Failure::new(40_234, format!("The field '{name}' must be an accumulator object")))?;
                    fields.push((name.clone(), Accumulator::named(operator)?, Expression::new(operand, now)?));
                }
                Self::Group { id: Expression::new(id, now)?, fields }
            }
            _ => return Err(Failure::new(40_324, format!("Unrecognized pipeline stage name: '{name}'"))),
        })
    }

    fn run(&self, mut documents: Vec<Arc<Bson>>) -> Result<Vec<Arc<Bson>>, Failure> {
        match self {
            Self::Match(filter) => {
                let mut kept = Vec::new();
                for document in documents {
                    if filter.matches(&document)? {
                        kept.push(document);
                    }
                }
                return Ok(kept);
            }
            Self::Limit(limit) => documents.truncate(*limit),
            Self::Skip(skip) => drop(documents.drain(..documents.len().min(*skip))),
            Self::Sort(sort) => sort::sort(&mut documents, sort)?,
            Self::Project(projection) => {
                return documents.iter().map(|document| Ok(Arc::new(projection.of(document)?))).collect();
            }
            Self::Set(fields) => {
                return documents.iter().map(|document| Ok(Arc::new(with_fields(document, fields)?))).collect();
            }
            Self::ReplaceWith(expression) => {
                let replaced = documents.iter().map(|document| match expression.evaluate(document)?.map(Cow::into_owned) {
                    Some(document @ Bson::Document(_)) => Ok(Arc::new(document)),
                    _ => Err(Failure::new(40_228, "'newRoot' expression must evaluate to an object")),
                });
                return replaced.collect();
            }
            Self::Count(name) => {
                let count = i32::try_from(documents.len()).expect("few documents");
                documents.clear();
                if count > 0 {
                    documents.push(Arc::new(doc! { name: count }.into()));
                }
            }
            Self::Facet(facets) => {
                let mut all = Document::new();
                for (name, stages) in facets {
                    let found = run(stages, documents.clone())?;
                    all.insert(name, found.iter().map(|document| (**document).clone()).collect::<Vec<Bson>>());
                }
                return Ok(vec![Arc::new(all.into())]);
            }
            Self::Group { id, fields } => return group(&documents, id, fields),
        }
        Ok(documents)
    }
}

/// Returns a document with further fields, all computed from what it was before.
pub(crate) fn with_fields(document: &Bson, fields: &[(String, Expression)]) -> Result<Bson, Failure> {
    let mut changed = document.as_document().expect("a document").clone();
    for (name, expression) in fields {
        match expression.evaluate(document)? {
            Some(value) => drop(changed.insert(name, value.into_owned())),
            None => drop(changed.remove(name)),
        }
    }
    Ok(changed.into())
}

/// A key of a group. A missing one is its own.
struct GroupKey(Option<Bson>);

impl PartialEq for GroupKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for GroupKey {}

impl PartialOrd for GroupKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GroupKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        compare_values(self.0.as_ref(), other.0.as_ref())
    }
}

fn group(
    documents: &[Arc<Bson>],
    id: &Expression,
    fields: &[(String, Accumulator, Expression)],
) -> Result<Vec<Arc<Bson>>, Failure> {
    let mut groups: BTreeMap<GroupKey, Vec<Vec<Option<Bson>>>> = BTreeMap::new();
    for document in documents {
        let key = GroupKey(id.evaluate(document)?.map(Cow::into_owned));
        let sums = groups.entry(key).or_insert_with(|| vec![Vec::new(); fields.len()]);
        for ((_, accumulator, expression), values) in fields.iter().zip(sums) {
            let value = expression.evaluate(document)?.map(Cow::into_owned);
            accumulator.add(values, value);
        }
    }
    let grouped = groups.into_iter().map(|(key, sums)| {
        let mut group = doc! { "_id": key.0.unwrap_or(Bson::Null) };
        for ((name, accumulator, _), values) in fields.iter().zip(sums) {
            group.insert(name, accumulator.result(values));
        }
        Arc::new(group.into())
    });
    Ok(grouped.collect())
}

impl Accumulator {
    fn named(operator: &str) -> Result<Self, Failure> {
        Ok(match operator {
            "$sum" => Self::Sum,
            "$min" => Self::Min,
            "$max" => Self::Max,
            "$first" => Self::First,
            "$last" => Self::Last,
            _ => return Err(Failure::new(15_952, format!("unknown group operator '{operator}'"))),
        })
    }

    /// Adds a value. No more are kept than decide the result.
    fn add(self, values: &mut Vec<Option<Bson>>, value: Option<Bson>) {
        let replaces = match (self, values.first()) {
            (_, None) => true,
            (Self::First, Some(_)) => false,
            (Self::Last, Some(_)) => true,
            (Self::Sum, Some(sum)) => {
                let both = [sum.as_ref(), value.as_ref()];
                values[0] = Some(arithmetic::sum(both.into_iter().flatten()));
                return;
            }
            (Self::Min | Self::Max, Some(best)) => {
                let (best, value) = (best.as_ref(), value.as_ref());
                if is_nothing(value) {
                    false
                } else if is_nothing(best) {
                    true
                } else {
                    let order = value.zip(best).map(|(value, best)| compare(value, best));
                    order.is_some_and(|order| if self == Self::Min { order.is_lt() } else { order.is_gt() })
                }
            }
        };
        if replaces {
            *values = vec![value];
        }
    }

    fn result(self, mut values: Vec<Option<Bson>>) -> Bson {
        let value = values.pop().flatten();
        match self {
            Self::Sum => arithmetic::sum(value.iter()),
            Self::Min | Self::Max if is_nothing(value.as_ref()) => Bson::Null,
            _ => or_null(value.map(Cow::Owned)),
        }
    }
}
