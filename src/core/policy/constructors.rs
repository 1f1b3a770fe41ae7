//! Strings of a filter that a shell would take for a value with a type.

use bson::{Bson, Document};

use super::comparisons::{self, Comparison};
use super::{Variable, mistaken};

/// Operators whose strings are text in any case.
const TEXT: [&str; 3] = ["$comment", "$regex", "$options"];

/// Returns why a filter is refused that has a constructor of a shell in a string; `None` if it has none, or only in comparisons
/// of fields that are `allowed` to be compared with any type.
pub(super) fn refused(filter: &Document, variables: &[Variable], allowed: &[String]) -> Option<String> {
    let mut strings = Vec::new();
    collect(&Bson::Document(filter.clone()), &mut strings);
    strings.retain(|text| mistaken::constructor(text, true).is_some());
    if strings.is_empty() {
        return None;
    }
    let compared = comparisons::of_filter(filter, variables);
    let refused = strings.into_iter().find_map(|text| {
        let of_text = || compared.iter().filter(|comparison| comparison.texts.contains(&text));
        match of_text().find(|comparison| !comparison.is_allowed(allowed)) {
            Some(comparison) => Some((text.clone(), Some(comparison))),
            None => of_text().next().is_none().then(|| (text.clone(), None)),
        }
    });
    let (text, comparison): (String, Option<&Comparison>) = refused?;
    let is_secret = variables.iter().any(|variable| variable.value == Bson::from(text.as_str()));
    let write = mistaken::constructor(&text, is_secret)?;
    let means = "a function of the shell in a string is only a string, which no date, number or id equals";
    Some(match comparison {
        Some(Comparison { shown, .. }) => {
            format!("`{shown}`: {means}; write {write}; if strings are meant, set `allowUnknownTypes: [{shown}]`")
        }
        None => format!("{means}; write {write}"),
    })
}

fn collect(value: &Bson, strings: &mut Vec<String>) {
    match value {
        Bson::String(text) => strings.push(text.clone()),
        Bson::Array(parts) => parts.iter().for_each(|part| collect(part, strings)),
        Bson::Document(parts) => {
            let parts = parts.iter().filter(|(key, _)| !TEXT.contains(&key.as_str()));
            parts.for_each(|(_, part)| collect(part, strings));
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
        ] {
            let found = problems(&format!("filter: {filter}"));
            assert!(found.contains(part), "{filter}: {found}");
        }
        let found = problems("holds: {collection: legal.h, key: t, filter: {until: {$gt: ISODate()}}}");
        assert!(found.contains("`holds`: `filter`: `until`"), "{found}");
    }

    #[test]
    fn a_constructor_is_let_pass_where_the_rule_says_so_and_in_text() {
        for keys in [
            "filter: {a: ISODate()}, allowUnknownTypes: [a]",
            "filter: {s: {$ne: {id: ObjectId(5)}}}, allowUnknownTypes: [s]",
            "holds: {collection: legal.h, key: t, filter: {a: ISODate()}}, allowUnknownTypes: [a]",
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
