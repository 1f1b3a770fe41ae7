//! Strings of a filter that a shell would take for a value with a type, or a person for an operator.

use bson::{Bson, Document};

use super::comparisons::{self, Comparison};
use super::paths::below;
use super::place::PathStep;
use super::problem::Problems;
use super::{Variable, mistaken};

/// Operators whose strings are text in any case.
const TEXT: [&str; 3] = ["$comment", "$regex", "$options"];

/// Returns why a filter is refused that has constructors of a shell, or operators, in its strings. Comparisons of fields that are
/// `allowed` to be compared with any type are none.
pub(super) fn refused(filter: &Document, variables: &[Variable], allowed: &[String]) -> Problems {
    let mut strings = Vec::new();
    collect(&Bson::Document(filter.clone()), &WrittenText::default(), &mut strings);
    strings.retain(|written| meant(&written.text, true).is_some());
    if strings.is_empty() {
        return Problems::new();
    }
    let compared = comparisons::of_filter(filter, variables);
    strings.iter().filter_map(|written| Some((written.path.clone(), written.why(&compared, variables, allowed)?))).collect()
}

/// Returns what is wrong with a string, and what to write in its place. `is_secret` keeps the string itself out of it.
fn meant(text: &str, is_secret: bool) -> Option<(&'static str, String)> {
    let constructor = mistaken::constructor(text, is_secret);
    let means = "a function of the shell in a string is only a string, which no date, number or id equals";
    constructor.map(|write| (means, write)).or_else(|| {
        let write = mistaken::operator(text, is_secret)?;
        Some(("an operator in a string is only a string", write))
    })
}

/// A string of a filter.
#[derive(Debug, Clone, Default)]
struct WrittenText {
    text: String,
    path: Vec<PathStep>,
    /// Dotted names of the fields that it stands in.
    field: String,
}

impl WrittenText {
    fn inside(&self, step: PathStep, field: String) -> Self {
        Self { text: String::new(), path: [self.path.as_slice(), &[step]].concat(), field }
    }

    /// Returns why the string is refused; `None` if it stands only in comparisons that are allowed.
    fn why(&self, compared: &[Comparison], variables: &[Variable], allowed: &[String]) -> Option<String> {
        let of_text = || compared.iter().filter(|comparison| comparison.texts.contains(&self.text));
        // In an expression the field is not around its value.
        let is_here = |comparison: &&Comparison| match self.field.is_empty() {
            true => comparison.having.contains_key("$expr"),
            false => comparison.path == self.field,
        };
        let here: Vec<&Comparison> = match of_text().any(|comparison| is_here(&comparison)) {
            true => of_text().filter(is_here).collect(),
            false => of_text().collect(),
        };
        let refused = here.iter().find(|comparison| !comparison.is_allowed(allowed));
        let is_secret = variables.iter().any(|variable| variable.value == Bson::from(self.text.as_str()));
        let (means, write) = meant(&self.text, is_secret)?;
        match refused {
            Some(Comparison { shown, .. }) => {
                Some(format!("`{shown}`: {means}; write {write}; if strings are meant, set `allowUnknownTypes: [{shown}]`"))
            }
            None => here.is_empty().then(|| format!("{means}; write {write}")),
        }
    }
}

fn collect(value: &Bson, at: &WrittenText, strings: &mut Vec<WrittenText>) {
    match value {
        Bson::String(text) => strings.push(WrittenText { text: text.clone(), ..at.clone() }),
        Bson::Array(parts) => {
            let parts = parts.iter().enumerate();
            parts.for_each(|(index, part)| collect(part, &at.inside(PathStep::Item(index), at.field.clone()), strings));
        }
        Bson::Document(parts) => {
            for (index, (key, part)) in parts.iter().enumerate().filter(|(_, (key, _))| !TEXT.contains(&key.as_str())) {
                let field = if key.starts_with('$') { at.field.clone() } else { below(&at.field, key) };
                collect(part, &at.inside(PathStep::Value(index), field), strings);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::core::policy::parse::parse;

    fn problems(keys: &str) -> String {
        let text = format!("version: 1\ncollections:\n  - {{namespace: a.b, field: at, expireAfter: 1d, {keys}}}\n");
        let env = |name: &str| Some(if name == "DAY" { "2025-10-23" } else { "ObjectId(\"secret\")" }.to_owned());
        parse("p", &text, &env, true).map_or_else(|problems| problems.to_string(), |_| String::new())
    }

    #[test]
    fn a_constructor_in_a_string_is_refused_wherever_it_is() {
        for (filter, part) in [
            (
                "{k: {$not: {$gt: 'ISODate(\"2026-11-24T00:00:00Z\")'}}}",
                "`k`: a function of the shell in a string is only a string, which no date, number or id equals; write {$date: \"2026-11-24T00:00:00Z\"}; if strings are meant, set `allowUnknownTypes: [k]`",
            ),
            ("{_id: {$ne: ObjectId('0123456789abcdef01234567')}}", "write {$oid: \"0123456789abcdef01234567\"}"),
            ("{a: {$nin: [1, NumberLong(5)]}}", "`a`"),
            ("{a: UUID('c8edabc3-f738-4ca3-b68d-ab92a91478a3')}", "write {$"),
            ("{$nor: [{i: {$elemMatch: {at: new Date()}}}]}", "`i.at`"),
            ("{$expr: {$gt: [$at, ISODate()]}}", "`at`"),
            ("{$expr: {$gt: [{$toDate: ISODate()}, {$literal: 5}]}}", "write {$date"),
            ("{$expr: {$let: {vars: {c: ISODate()}, in: {$gt: [$at, $$c]}}}}", "write {$date"),
            ("{s: {id: ObjectId(5)}}", "`s.id`"),
            ("{a: {$ne: '{\"$date\": \"2026-11-24T00:00:00Z\"}'}}", "without the quotes around it"),
            ("{a: {$exists: 'false'}}", "`$exists`"),
            ("{a: {$not: {$eq: $gt 5}}}", "`a`: an operator in a string is only a string; write {$gt: 5}; if strings are meant"),
        ] {
            let found = problems(&format!("filter: {filter}"));
            assert!(found.contains(part), "{filter}: {found}");
        }
        let found = problems("filter: {a: ISODate(), b: {$in: [5, ObjectId(5), ISODate()]}, $expr: {$gt: [$c, ISODate()]}}");
        for (column, field) in [(62, "a"), (86, "b"), (99, "b"), (130, "c")] {
            assert!(found.contains(&format!("p:3:{column}: collections[0] `a.b`: `filter`: `{field}`: a function")), "{found}");
        }
        assert_eq!(found.lines().count(), 5, "{found}");
        let found = problems("holds: {collection: legal.h, key: t, filter: {until: {$gt: ISODate()}}}");
        assert!(found.contains("`holds`: `filter`: `until`"), "{found}");
    }

    #[test]
    fn a_constructor_is_let_pass_where_the_rule_says_so_and_in_text() {
        for keys in [
            "filter: {a: ISODate()}, allowUnknownTypes: [a]",
            "filter: {s: {$ne: {id: ObjectId(5)}}}, allowUnknownTypes: [s]",
            "holds: {collection: legal.h, key: t, filter: {a: ISODate()}}, allowUnknownTypes: [a]",
            "filter: {a: $gte, b: $gt, c: '$ 5', d: '$size x'}",
            "filter: {$comment: ISODate(), a: {$regex: 'ISODate()'}}",
        ] {
            assert_eq!(problems(keys), "", "{keys}");
        }
        assert!(problems("filter: {a: ISODate(), b: ISODate()}, allowUnknownTypes: [a]").contains("`b`"));
    }

    #[test]
    fn no_value_of_a_variable_is_shown() {
        for filter in ["{a: '${ID}'}", "{a: {$ne: 'ISODate(\"${DAY}\")'}}"] {
            let found = problems(&format!("filter: {filter}"));
            assert!(found.contains("write {$"), "{found}");
            assert!(!found.contains("secret") && !found.contains("2025-10-23"), "{found}");
        }
    }
}
