//! The paths that a filter names, and what each condition says of a document that does not have the field.

use bson::{Bson, Document};

use super::Variable;

/// A path that a filter names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterPath {
    pub path: String,
    /// The path as messages show it: with the names of environment variables in place of their values.
    pub shown: String,
    /// Whether a document without the field may match. It does if the condition is a negation, and by each condition that is not
    /// known to need a value.
    pub matches_missing: bool,
}

/// Returns the paths that a filter names, each once, in their order. The names of elements follow the name of their array:
/// `items.held` for `{items: {$elemMatch: {held: true}}}`.
///
/// A comparison in `$expr` orders a missing value below all others, and a property in `$jsonSchema` need not be there. So every
/// path in them may match a document without the field, but for those that `required` names.
pub fn of_filter(filter: &Document, variables: &[Variable]) -> Vec<FilterPath> {
    let mut walk = FilterWalk { variables, bound: Vec::new(), found: Vec::new() };
    walk.query(filter, "", false);
    walk.found
}

struct FilterWalk<'a> {
    variables: &'a [Variable],
    /// Variables of the expression around, each with the path that it stands for; `None` if it stands for anything else.
    bound: Vec<(String, Option<String>)>,
    found: Vec<FilterPath>,
}

impl FilterWalk<'_> {
    fn query(&mut self, query: &Document, above: &str, is_negated: bool) {
        for (key, value) in query {
            match key.as_str() {
                "$and" | "$or" => documents(value).for_each(|branch| self.query(branch, above, is_negated)),
                "$nor" => documents(value).for_each(|branch| self.query(branch, above, true)),
                "$expr" => self.expression(value),
                "$jsonSchema" => self.schema(value, above, is_negated),
                "$comment" => {}
                name => self.field(&below(above, name), value, is_negated),
            }
        }
    }

    fn field(&mut self, path: &str, condition: &Bson, is_negated: bool) {
        let Some(operators) = operators(condition) else {
            return self.add(path, is_negated || *condition == Bson::Null);
        };
        let needs_value = operators.iter().any(|(operator, operand)| needs_value(operator, operand));
        self.add(path, is_negated || !needs_value);
        self.elements(path, operators, is_negated);
    }

    /// Adds the paths below a field that its operators name.
    fn elements(&mut self, path: &str, operators: &Document, is_negated: bool) {
        for (operator, operand) in operators {
            match (operator.as_str(), operand) {
                ("$not", Bson::Document(negated)) => self.elements(path, negated, true),
                ("$all", all) => documents(all).for_each(|one| self.elements(path, one, is_negated)),
                ("$elemMatch", Bson::Document(of_element)) if operators_of_values(of_element) => {
                    self.elements(path, of_element, is_negated);
                }
                ("$elemMatch", Bson::Document(of_element)) => self.query(of_element, path, is_negated),
                _ => {}
            }
        }
    }

    fn expression(&mut self, expression: &Bson) {
        match expression {
            Bson::String(text) => {
                if let Some(path) = self.path_of(text) {
                    self.add_value(&path, text, true);
                }
            }
            Bson::Array(parts) => parts.iter().for_each(|part| self.expression(part)),
            Bson::Document(parts) => parts.iter().for_each(|(operator, operand)| self.operator(operator, operand)),
            _ => {}
        }
    }

    fn operator(&mut self, operator: &str, operand: &Bson) {
        match (operator, operand) {
            ("$literal" | "$const", _) => {}
            ("$getField", Bson::String(name)) if !name.starts_with('$') => self.add_value(name, name, true),
            ("$getField", Bson::Document(parts)) => {
                let input = parts.get("input");
                input.iter().for_each(|input| self.expression(input));
                match (parts.get("field"), input) {
                    (Some(Bson::String(name)), None) if !name.starts_with('$') => self.add_value(name, name, true),
                    (Some(Bson::String(name)), Some(Bson::String(input))) if !name.starts_with('$') => {
                        let above =
                            if input == "$$ROOT" || input == "$$CURRENT" { Some(String::new()) } else { self.path_of(input) };
                        above.iter().for_each(|above| self.add_value(&below(above, name), name, true));
                    }
                    (field, _) => field.iter().for_each(|field| self.expression(field)),
                }
            }
            ("$map" | "$filter" | "$reduce", Bson::Document(parts)) => {
                let path = parts.get_str("input").ok().and_then(|input| self.path_of(input));
                let name = parts.get_str("as").unwrap_or("this").to_owned();
                parts.get("input").iter().for_each(|input| self.expression(input));
                self.bound.push((name, path));
                let rest = parts.iter().filter(|(key, _)| !["input", "as"].contains(&key.as_str()));
                rest.for_each(|(_, part)| self.expression(part));
                self.bound.pop();
            }
            ("$let", Bson::Document(parts)) => {
                let before = self.bound.len();
                for (name, value) in parts.get_document("vars").into_iter().flatten() {
                    self.expression(value);
                    let path = value.as_str().and_then(|value| self.path_of(value));
                    self.bound.push((name.clone(), path));
                }
                parts.get("in").iter().for_each(|body| self.expression(body));
                self.bound.truncate(before);
            }
            _ => self.expression(operand),
        }
    }

    /// Returns the path that a string of an expression stands for; `None` if it is plain text or a variable that stands for
    /// anything else.
    fn path_of(&self, text: &str) -> Option<String> {
        let Some(variable) = text.strip_prefix("$$") else {
            return text.strip_prefix('$').filter(|path| !path.is_empty()).map(str::to_owned);
        };
        let (name, rest) = variable.split_once('.').unwrap_or((variable, ""));
        let above = match self.bound.iter().rev().find(|(bound, _)| bound == name) {
            Some((_, path)) => path.clone()?,
            None if !rest.is_empty() && ["ROOT", "CURRENT"].contains(&name) => String::new(),
            None => return None,
        };
        Some(if rest.is_empty() { above } else { below(&above, rest) })
    }

    fn schema(&mut self, schema: &Bson, above: &str, is_negated: bool) {
        for (key, value) in schema.as_document().into_iter().flatten() {
            match (key.as_str(), value) {
                ("properties", Bson::Document(properties)) => {
                    for (name, of_property) in properties {
                        let path = below(above, name);
                        self.add(&path, true);
                        self.schema(of_property, &path, is_negated);
                    }
                }
                ("required", names) => self.names(names, above, is_negated),
                ("dependencies", Bson::Document(dependencies)) => {
                    for (name, needed) in dependencies {
                        self.add(&below(above, name), true);
                        self.names(needed, above, true);
                        self.schema(needed, above, true);
                    }
                }
                ("allOf" | "anyOf" | "items", Bson::Array(all)) => all.iter().for_each(|one| self.schema(one, above, is_negated)),
                ("items" | "additionalItems", of_elements) => self.schema(of_elements, above, is_negated),
                // A document may match exactly one of several for the lack of what another asks for.
                ("oneOf", Bson::Array(all)) => all.iter().for_each(|one| self.schema(one, above, true)),
                ("not", negated) => self.schema(negated, above, true),
                _ => {}
            }
        }
    }

    fn names(&mut self, names: &Bson, above: &str, matches_missing: bool) {
        let names = names.as_array().into_iter().flatten().filter_map(Bson::as_str);
        names.for_each(|name| self.add_value(&below(above, name), name, matches_missing));
    }

    /// Adds a path that comes from a value of the filter, which may stand for environment variables.
    fn add_value(&mut self, path: &str, value: &str, matches_missing: bool) {
        let written = self.variables.iter().find(|variable| variable.value == Bson::from(value));
        let text = |written: &str| written.strip_prefix('$').filter(|rest| !rest.starts_with('{')).unwrap_or(written).to_owned();
        let shown = written.map_or_else(|| path.to_owned(), |variable| text(&variable.written));
        self.enter(path, shown, matches_missing);
    }

    fn add(&mut self, path: &str, matches_missing: bool) {
        self.enter(path, path.to_owned(), matches_missing);
    }

    fn enter(&mut self, path: &str, shown: String, matches_missing: bool) {
        match self.found.iter_mut().find(|found| found.path == path) {
            Some(found) => found.matches_missing |= matches_missing,
            None => self.found.push(FilterPath { path: path.to_owned(), shown, matches_missing }),
        }
    }
}

pub(super) fn below(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

pub(super) fn documents(value: &Bson) -> impl Iterator<Item = &Document> {
    value.as_array().into_iter().flatten().filter_map(Bson::as_document)
}

/// Returns the operators of a condition; `None` if it is a value to compare with.
pub(super) fn operators(condition: &Bson) -> Option<&Document> {
    condition.as_document().filter(|document| document.keys().next().is_some_and(|key| key.starts_with('$')))
}

/// Whether the operand of `$elemMatch` compares elements as they are, and does not look for documents among them.
pub(super) fn operators_of_values(operand: &Document) -> bool {
    let first = operand.keys().next().map_or("", String::as_str);
    first.starts_with('$') && !["$and", "$or", "$nor", "$expr", "$comment"].contains(&first)
}

/// Whether an operator is known to match no document without the field.
///
/// Source: MongoDB manual, "Query for Null or Missing Fields" and "Comparison/Sort Order": a missing field equals null, and lies
/// between MinKey and MaxKey.
pub(super) fn needs_value(operator: &str, operand: &Bson) -> bool {
    let has_null = || operand.as_array().is_none_or(|values| values.contains(&Bson::Null));
    match operator {
        "$exists" => {
            !matches!(operand, Bson::Null | Bson::Boolean(false) | Bson::Int32(0) | Bson::Int64(0))
                && *operand != Bson::Double(0.0)
        }
        "$eq" => *operand != Bson::Null,
        "$gt" | "$gte" => !matches!(operand, Bson::Null | Bson::MinKey),
        "$lt" | "$lte" => !matches!(operand, Bson::Null | Bson::MaxKey),
        "$in" | "$all" => !has_null(),
        "$type" | "$size" | "$mod" | "$regex" | "$elemMatch" | "$geoWithin" | "$geoIntersects" => true,
        "$bitsAllSet" | "$bitsAnySet" | "$bitsAllClear" | "$bitsAnyClear" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::parse_filter;
    use super::super::yaml::parse;
    use super::*;

    /// Returns the paths of a filter; a `!` marks the paths whose field a document may lack and still match.
    fn paths(filter: &str) -> String {
        let filter = parse_filter(&parse(filter).unwrap(), &|_| None).unwrap();
        let mark = |found: FilterPath| format!("{}{}", found.path, if found.matches_missing { "!" } else { "" });
        of_filter(&filter, &[]).into_iter().map(mark).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_path_is_guarded_wherever_a_document_without_the_field_may_match() {
        for (filter, expected) in [
            ("{status: done, legalHold: {$ne: true}}", "status legalHold!"),
            ("{a: {$nin: [1]}, b: {$in: [1, 2]}, c: {$in: [1, null]}}", "a! b c!"),
            ("{a: {$not: {$gt: 5}}, b: {$not: {$regex: x}}, c: {$gt: 5, $lt: 9}}", "a! b! c"),
            ("{a: {$exists: false}, b: {$exists: true}, c: {$exists: 0}}", "a! b c!"),
            ("{a: null, b: {$eq: null}, c: {$lte: null}, d: {$lt: {$maxKey: 1}}, e: {$gte: {$minKey: 1}}}", "a! b! c! d! e!"),
            ("{$nor: [{a: 1}, {b: {$gt: 5}}]}", "a! b!"),
            ("{$or: [{a: 1}, {$and: [{b: {$ne: 1}}, {c: 1}]}]}", "a b! c"),
            ("{$nor: [{$and: [{$or: [{a: 1}]}]}]}", "a!"),
            ("{items: {$elemMatch: {held: {$ne: true}, n: 1}}}", "items items.held! items.n"),
            ("{items: {$elemMatch: {$or: [{held: {$exists: false}}]}}}", "items items.held!"),
            ("{items: {$not: {$elemMatch: {held: true}}}}", "items! items.held!"),
            ("{items: {$all: [{$elemMatch: {held: {$ne: 1}}}]}}", "items items.held!"),
            ("{items: {$elemMatch: {$gt: 5, $ne: 7}}}", "items"),
            ("{'a.b.0.c': {$ne: 1}, 'd.e': 1}", "a.b.0.c! d.e"),
            // Both conditions have to hold, and one of them needs the field.
            ("{a: {$ne: 1, $exists: true}}", "a"),
            ("{a: {$type: string, $size: 3}, b: {$mod: [2, 0]}, c: {$bitsAllClear: 1}}", "a b c"),
            // A document is a value to compare with.
            ("{a: {b: 1}, c: {$ne: {d: 1}}}", "a c!"),
            ("{$comment: '$a', _id: {$ne: 4}}", "_id!"),
        ] {
            assert_eq!(paths(filter), expected, "{filter}");
        }
    }

    #[test]
    fn expressions_name_the_paths_that_they_read() {
        for (filter, expected) in [
            ("{$expr: {$lt: ['$n', 5]}}", "n!"),
            ("{$expr: {$and: [{$not: ['$hold']}, {$eq: ['$a.b', {$literal: '$no'}]}]}}", "hold! a.b!"),
            ("{$expr: {$eq: ['$$ROOT.a', '$$CURRENT.b']}}", "a! b!"),
            ("{$expr: {$gt: ['$$NOW', '$at']}}", "at!"),
            ("{$expr: {$eq: [{$getField: hold}, {$getField: {field: b, input: '$a'}}]}}", "hold! a! a.b!"),
            ("{$expr: {$eq: [{$getField: {field: hold, input: $$ROOT}}, 1]}}", "hold!"),
            ("{$expr: {$anyElementTrue: [{$map: {input: $items, as: i, in: {$not: [$$i.held]}}}]}}", "items! items.held!"),
            ("{$expr: {$size: {$filter: {input: $items, cond: {$ne: [$$this.x, $$other.y]}}}}}", "items! items.x!"),
            ("{$expr: {$let: {vars: {m: $meta, n: {$add: [$k, 1]}}, in: {$ne: [$$m.held, $$n.x]}}}}", "meta! k! meta.held!"),
            ("{$expr: {$eq: ['plain text', '$']}}", ""),
        ] {
            assert_eq!(paths(filter), expected, "{filter}");
        }
    }

    #[test]
    fn a_schema_names_its_properties_and_what_it_requires() {
        for (filter, expected) in [
            ("{$jsonSchema: {required: [status], properties: {hold: {enum: [false]}}}}", "status hold!"),
            ("{$jsonSchema: {properties: {meta: {required: [a], properties: {b: {bsonType: int}}}}}}", "meta! meta.a meta.b!"),
            ("{$jsonSchema: {not: {required: [hold]}, anyOf: [{required: [a]}], oneOf: [{required: [b]}]}}", "hold! a b!"),
            ("{$jsonSchema: {properties: {items: {items: {required: [x]}}}, dependencies: {c: [d]}}}", "items! items.x c! d!"),
        ] {
            assert_eq!(paths(filter), expected, "{filter}");
        }
    }

    #[test]
    fn a_path_that_stands_for_a_variable_is_shown_as_it_is_written() {
        let text =
            "version: 1\ncollections: [{namespace: a.b, field: at, expireAfter: 1d, filter: {$expr: {$ne: ['$a.${HELD}', 1]}}}]";
        let rule = super::super::parse::parse("p", text, &|_| Some("secret".into()), true).unwrap().rules.remove(0);
        let found = of_filter(rule.filter.as_ref().unwrap(), &rule.variables);
        assert_eq!(found, [FilterPath { path: "a.secret".into(), shown: "a.${HELD}".into(), matches_missing: true }]);
    }
}
