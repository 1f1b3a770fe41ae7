//! The comparisons of a filter, each with the query that finds a document in which it can be true.
//!
//! A comparison in a query matches values of its own type only, so that one with a value of the wrong type matches nothing, and
//! its negation everything. In `$expr` values of different types are ordered by their types: there a wrong type matches
//! everything or nothing.

mod expression;
#[cfg(test)]
mod tests;

use bson::{Bson, Document, doc};

use self::expression::Expressions;
use super::Variable;
use super::mistaken;
use super::paths::{below, documents, needs_value, operators, operators_of_values};
use super::value_type::{ValueType, any_value};

/// A comparison of a field with values of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Path of the field. The names of elements follow the name of their array.
    pub path: String,
    /// The path as messages show it: with the names of environment variables in place of their values.
    pub shown: String,
    /// Every path that it reads.
    pub reads: Vec<String>,
    pub value_type: ValueType,
    /// Whether documents may be deleted for a value of the wrong type, or the value can only be a mistake if the field has none
    /// of its type.
    pub is_guarded: bool,
    /// Query of the documents that have a value of the type.
    pub having: Document,
    /// Query of the documents that have a value of any type, without which nothing is known of the field. `None` if what is
    /// compared has to be there.
    pub having_any: Option<Document>,
    /// Text to write in place of the value, if it can be guessed.
    pub meant: Option<String>,
    /// The strings that are compared.
    pub(super) texts: Vec<String>,
}

impl Comparison {
    /// Whether a rule allows types that no document has at the path, or above it.
    pub fn is_allowed(&self, allowed: &[String]) -> bool {
        let is_in = |read: &String, path: &String| {
            read.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        allowed.iter().any(|path| self.reads.iter().any(|read| is_in(read, path)))
    }
}

/// Returns the comparisons of a filter, each type at a place once, in their order.
///
/// Left out are comparisons that no single type is known for: of two fields with each other, with null, and with the least and
/// the greatest key.
pub fn of_filter(filter: &Document, variables: &[Variable]) -> Vec<Comparison> {
    let mut walk = ComparisonWalk { variables, found: Vec::new() };
    walk.query(filter, &ComparedPath::default(), false);
    walk.found
}

/// A place in documents: dotted paths, each the path of a field in the elements of the array before it. An empty one stands for
/// the elements themselves.
#[derive(Debug, Clone, Default)]
struct ComparedPath(Vec<String>);

impl ComparedPath {
    fn then(&self, name: &str) -> Self {
        Self([self.0.as_slice(), &[name.to_owned()]].concat())
    }

    /// Returns the place of a field in a sub-document.
    fn inside(&self, name: &str) -> Self {
        let mut steps = self.0.clone();
        if let Some(last) = steps.last_mut() {
            *last = below(last, name);
        }
        Self(steps)
    }

    fn path(&self) -> String {
        self.0.iter().filter(|step| !step.is_empty()).fold(String::new(), |path, step| below(&path, step))
    }

    /// Returns the query of the documents that meet a condition there.
    fn query(&self, condition: Document) -> Document {
        let Some((first, rest)) = self.0.split_first() else { return condition };
        let condition = rest.iter().rev().fold(condition, |condition, step| match step.as_str() {
            "" => doc! { "$elemMatch": condition },
            step => doc! { "$elemMatch": { step: condition } },
        });
        doc! { first: condition }
    }

    /// Returns the query of the documents that tell what is there: a value of any type, or one in place of an array whose
    /// elements are compared.
    fn known(&self) -> Document {
        let there = self.query(any_value());
        match self.0.as_slice() {
            [array, _, ..] => {
                let mut instead = any_value();
                instead.insert("$not", doc! { "$type": "array" });
                doc! { "$or": [there, { array: instead }] }
            }
            _ => there,
        }
    }
}

struct ComparisonWalk<'a> {
    variables: &'a [Variable],
    found: Vec<Comparison>,
}

impl ComparisonWalk<'_> {
    fn query(&mut self, query: &Document, above: &ComparedPath, is_negated: bool) {
        for (key, value) in query {
            match key.as_str() {
                "$and" | "$or" => documents(value).for_each(|branch| self.query(branch, above, is_negated)),
                "$nor" => documents(value).for_each(|branch| self.query(branch, above, true)),
                "$expr" => self.expressions(value),
                "$jsonSchema" => self.schema(value, &above.path(), is_negated),
                "$comment" => {}
                name => self.field(&above.then(name), value, is_negated),
            }
        }
    }

    fn field(&mut self, place: &ComparedPath, condition: &Bson, is_negated: bool) {
        match operators(condition) {
            None => self.equality(place, condition, is_negated),
            Some(operators) => {
                let needs_value = operators.iter().any(|(operator, operand)| needs_value(operator, operand));
                self.operators(place, operators, is_negated || !needs_value);
            }
        }
    }

    fn operators(&mut self, place: &ComparedPath, operators: &Document, is_negated: bool) {
        for (operator, operand) in operators {
            match (operator.as_str(), operand) {
                ("$eq", value) => self.equality(place, value, is_negated),
                ("$ne", value) => self.equality(place, value, true),
                ("$gt" | "$gte" | "$lt" | "$lte", value) => self.value(place, value, is_negated),
                ("$in", Bson::Array(values)) => values.iter().for_each(|value| self.equality(place, value, is_negated)),
                ("$nin", Bson::Array(values)) => values.iter().for_each(|value| self.equality(place, value, true)),
                ("$all", Bson::Array(values)) => {
                    for value in values {
                        match self::operators(value) {
                            Some(of_element) => self.operators(place, of_element, is_negated),
                            None => self.equality(place, value, is_negated),
                        }
                    }
                }
                ("$not", Bson::Document(negated)) => self.operators(place, negated, true),
                ("$not", value) => self.value(place, value, true),
                ("$elemMatch", Bson::Document(of_element)) if operators_of_values(of_element) => {
                    self.operators(&place.then(""), of_element, is_negated);
                }
                ("$elemMatch", Bson::Document(of_element)) => self.query(of_element, place, is_negated),
                ("$regex", _) => self.add(place, ValueType::String, is_negated, None),
                ("$mod", _) => self.add(place, ValueType::Number, is_negated, None),
                ("$bitsAllSet" | "$bitsAnySet" | "$bitsAllClear" | "$bitsAnyClear", _) => {
                    self.add(place, ValueType::Bits, is_negated, None);
                }
                _ => {}
            }
        }
    }

    /// Adds a comparison for equality, and what is inside the value: a sub-document or an array equals only one with the same
    /// values.
    fn equality(&mut self, place: &ComparedPath, value: &Bson, is_negated: bool) {
        self.value(place, value, is_negated);
        match value {
            Bson::Document(inside) => inside.iter().for_each(|(name, value)| self.inside(&place.inside(name), value, is_negated)),
            Bson::Array(inside) => inside.iter().for_each(|value| self.inside(&place.then(""), value, is_negated)),
            _ => {}
        }
    }

    fn inside(&mut self, place: &ComparedPath, value: &Bson, is_negated: bool) {
        let from = self.found.len();
        self.equality(place, value, is_negated);
        for found in &mut self.found[from..] {
            // The array that is compared may itself be an element of one.
            if place.0.last().is_some_and(String::is_empty) {
                found.having = doc! { "$or": [&found.having, place.then("").query(found.value_type.condition())] };
            }
            found.having_any = None;
        }
    }

    fn value(&mut self, place: &ComparedPath, value: &Bson, is_negated: bool) {
        let value_type = match value {
            Bson::RegularExpression(_) => Some(ValueType::String),
            value => ValueType::of(value),
        };
        if let Some(value_type) = value_type {
            self.add(place, value_type, is_negated, Some(value));
        }
    }

    fn add(&mut self, place: &ComparedPath, value_type: ValueType, is_negated: bool, value: Option<&Bson>) {
        let (meant, texts, is_mistake) = self.mistake(value);
        let path = place.path();
        self.enter(Comparison {
            shown: path.clone(),
            reads: vec![path.clone()],
            path,
            value_type,
            is_guarded: is_negated || is_mistake,
            having: place.query(value_type.condition()),
            having_any: Some(place.known()).filter(|_| !(is_mistake && is_negated)),
            meant,
            texts,
        });
    }

    /// Returns what was meant by a value, the string that it is, and whether that can only be a mistake if the field has no
    /// strings.
    fn mistake(&self, value: Option<&Bson>) -> (Option<String>, Vec<String>, bool) {
        match value {
            Some(Bson::String(text)) => {
                let is_secret = self.variables.iter().any(|variable| variable.value == Bson::from(text.as_str()));
                let is_mistake = mistaken::is_date_or_pattern(text);
                (mistaken::meant(text, is_secret), vec![text.clone()], is_mistake)
            }
            Some(Bson::Document(value)) => {
                let keys: Vec<&str> = value.keys().map(String::as_str).collect();
                (mistaken::misspelt(&keys), Vec::new(), false)
            }
            _ => (None, Vec::new(), false),
        }
    }

    fn enter(&mut self, comparison: Comparison) {
        match self.found.iter_mut().find(|found| found.having == comparison.having) {
            Some(found) => {
                found.is_guarded |= comparison.is_guarded;
                found.having_any = found.having_any.take().filter(|_| comparison.having_any.is_some());
                found.meant = found.meant.take().or(comparison.meant);
                found.texts.extend(comparison.texts);
            }
            None => self.found.push(comparison),
        }
    }

    fn expressions(&mut self, expression: &Bson) {
        for compared in Expressions::of(expression) {
            let (meant, texts, _) = self.mistake(compared.value.as_ref());
            let reads = super::paths::of_filter(&doc! { "$expr": &compared.reads }, self.variables);
            // The fields that the expression itself reads come last, after the variables around it.
            let Some(last) = reads.last() else { continue };
            self.enter(Comparison {
                path: last.path.clone(),
                shown: last.shown.clone(),
                reads: reads.iter().map(|read| read.path.clone()).collect(),
                value_type: compared.value_type,
                is_guarded: true,
                having: match compared.is_possible {
                    true => doc! { "$expr": compared.having },
                    false => doc! { "$expr": false, "$comment": last.path.clone() },
                },
                having_any: Some(doc! { "$expr": compared.having_any }).filter(|_| compared.is_possible),
                meant,
                texts,
            });
        }
    }

    /// Adds the comparisons of a schema. Its limits for numbers, strings and lists are met by a value of any other type.
    fn schema(&mut self, schema: &Bson, path: &str, is_negated: bool) {
        let place = ComparedPath(vec![path.to_owned()]);
        for (key, value) in schema.as_document().into_iter().flatten() {
            match (key.as_str(), value) {
                ("enum", Bson::Array(values)) if !path.is_empty() => {
                    values.iter().for_each(|value| self.equality(&place, value, is_negated));
                }
                ("minimum" | "maximum" | "multipleOf", _) if !path.is_empty() => {
                    self.add(&place, ValueType::Number, true, None);
                }
                ("minLength" | "maxLength" | "pattern", _) if !path.is_empty() => {
                    self.add(&place, ValueType::String, true, None);
                }
                ("properties", Bson::Document(properties)) => {
                    properties.iter().for_each(|(name, of_property)| self.schema(of_property, &below(path, name), is_negated));
                }
                ("dependencies", Bson::Document(dependencies)) => {
                    dependencies.iter().for_each(|(_, needed)| self.schema(needed, path, true));
                }
                ("allOf" | "anyOf" | "items", Bson::Array(all)) => {
                    all.iter().for_each(|one| self.schema(one, path, is_negated));
                }
                ("items" | "additionalItems", of_elements) => self.schema(of_elements, path, is_negated),
                ("oneOf", Bson::Array(all)) => all.iter().for_each(|one| self.schema(one, path, true)),
                ("not", negated) => self.schema(negated, path, true),
                _ => {}
            }
        }
    }
}
