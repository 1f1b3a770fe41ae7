//! Relative dates in filters: `{$ago: 90d}` stands for the date 90 days before the instant at which a run judges expiry.

use bson::{Bson, DateTime, Document};

use super::env::expand;
use super::key::Kind;
use super::kinds::Seconds;
use super::yaml::Node;
use super::{Rule, duration};

/// The operator of a relative date.
pub(super) const AGO: &str = "$ago";

/// A relative date in a filter of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelativeDate {
    /// The key of the filter: `filter`, or `holds.filter`.
    pub of: &'static str,
    /// Path of the field next to which the date stands; empty within `$expr`.
    pub path: String,
    /// The time before the instant of the run, as the policy writes it.
    pub ago: String,
    pub date: DateTime,
}

/// Returns what is wrong with the value of [`AGO`] in a mapping of so many keys; `None` if nothing is.
pub(super) fn wrong(value: &Node, keys: usize, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    if keys > 1 {
        return Some(format!("`{AGO}` stands for a date; expected no other key next to it"));
    }
    let Node::Str(raw) = value else {
        return Some(format!("`{AGO}`: found {}; expected {}", value.describe(), Seconds.words()));
    };
    // A variable that is not set is told as such.
    let why = duration::parse(&expand(raw, env).ok()?).err()?;
    // The parser quotes its input, and the value of an environment variable may be secret.
    let why = if raw.contains("${") { format!("what `{raw}` stands for is no duration such as `90d`") } else { why };
    Some(format!("`{AGO}`: {why}"))
}

/// Whether a filter has a relative date.
pub fn has_any(filter: &Document) -> bool {
    filter.iter().any(|(key, value)| key == AGO || is_inside(value))
}

fn is_inside(value: &Bson) -> bool {
    match value {
        Bson::Document(document) => has_any(document),
        Bson::Array(items) => items.iter().any(is_inside),
        _ => false,
    }
}

impl Rule {
    /// Puts the dates at an instant in the place of relative ones, in the filter of the rule and in the filter of its holds.
    /// Returns the dates in the order of the text.
    pub fn fix_relative_dates(&mut self, as_of: DateTime) -> Vec<RelativeDate> {
        let mut found = Vec::new();
        for (of, filter) in
            [("filter", self.filter.as_mut()), ("holds.filter", self.holds.as_mut().and_then(|holds| holds.filter.as_mut()))]
        {
            filter.into_iter().for_each(|filter| Fixing { of, as_of, found: &mut found }.document(filter, ""));
        }
        found
    }
}

/// A walk that replaces relative dates.
struct Fixing<'a> {
    of: &'static str,
    as_of: DateTime,
    found: &'a mut Vec<RelativeDate>,
}

impl Fixing<'_> {
    fn document(&mut self, document: &mut Document, path: &str) {
        for (key, value) in document.iter_mut() {
            match (key.starts_with('$'), path) {
                (true, _) => self.value(value, path),
                (false, "") => self.value(value, key),
                (false, path) => self.value(value, &format!("{path}.{key}")),
            }
        }
    }

    fn value(&mut self, value: &mut Bson, path: &str) {
        match value {
            Bson::Document(document) => match document.get_str(AGO).ok().map(|ago| (ago.to_owned(), duration::parse(ago))) {
                Some((ago, Ok(seconds))) => {
                    let date = DateTime::from_millis(self.as_of.timestamp_millis().saturating_sub(seconds * 1000));
                    self.found.push(RelativeDate { of: self.of, path: path.to_owned(), ago, date });
                    *value = date.into();
                }
                // No policy has another value. If one had, the server would refuse the operator.
                _ => self.document(document, path),
            },
            Bson::Array(items) => items.iter_mut().for_each(|item| self.value(item, path)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::core::policy::parse::parse;

    fn rule(keys: &str) -> Result<Rule, String> {
        let text = format!("version: 1\ncollections:\n  - {{namespace: app.c, field: at, expireAfter: 365d, {keys}}}\n");
        let env = |name: &str| {
            [("KEEP", "2d"), ("SECRET", "hush")].iter().find(|(known, _)| name == *known).map(|(_, value)| (*value).to_owned())
        };
        let mut policy = parse("p", &text, &env, true).map_err(|problems| problems.to_string())?;
        Ok(policy.rules.remove(0))
    }

    const DAY: i64 = 86_400_000;

    #[test]
    fn dates_take_the_place_of_relative_ones_wherever_a_filter_may_hold_a_date() {
        let at = |days: i64| DateTime::from_millis((100 - days) * DAY);
        let fixed = |keys: &str| {
            let mut rule = rule(keys).unwrap();
            assert!(
                [rule.filter.as_ref(), rule.holds.as_ref().and_then(|holds| holds.filter.as_ref())]
                    .into_iter()
                    .flatten()
                    .any(has_any)
            );
            let found = rule.fix_relative_dates(at(0));
            let found: Vec<String> = found
                .iter()
                .map(|one| format!("{} {} {} {}", one.of, one.path, one.ago, one.date.timestamp_millis() / DAY))
                .collect();
            (rule, found.join(", "))
        };
        let of_filter = |filter: &str| {
            let (rule, found) = fixed(&format!("filter: {filter}"));
            (rule.filter.unwrap(), found)
        };
        assert_eq!(
            of_filter("{seenAt: {$lt: {$ago: 90d}}}"),
            (doc! { "seenAt": { "$lt": at(90) } }, "filter seenAt 90d 10".to_owned())
        );
        assert_eq!(
            of_filter("{$or: [{a: {$ago: 1d}}, {b.c: {$not: {$gte: {$ago: '${KEEP}'}}}}, {d: {$in: [{$ago: 0s}, 5]}}]}"),
            (
                doc! { "$or": [{ "a": at(1) }, { "b.c": { "$not": { "$gte": at(2) } } }, { "d": { "$in": [at(0), 5] } }] },
                "filter a 1d 99, filter b.c 2d 98, filter d 0s 100".to_owned()
            )
        );
        assert_eq!(
            of_filter("{e: {$elemMatch: {at: {$gt: {$ago: 1w}}}}, sub: {$ne: {at: {$ago: 3d}}}}"),
            (
                doc! { "e": { "$elemMatch": { "at": { "$gt": at(7) } } }, "sub": { "$ne": { "at": at(3) } } },
                "filter e.at 1w 93, filter sub.at 3d 97".to_owned()
            )
        );
        assert_eq!(
            of_filter("{$expr: {$lt: [$seenAt, {$ago: 4d}]}}"),
            (doc! { "$expr": { "$lt": ["$seenAt", at(4)] } }, "filter  4d 96".to_owned())
        );
        let (rule, found) = fixed("filter: {s: 1}, holds: {collection: h, key: k, filter: {until: {$gt: {$ago: 5d}}}}");
        assert_eq!(rule.holds.unwrap().filter, Some(doc! { "until": { "$gt": at(5) } }));
        assert_eq!((rule.filter, found.as_str()), (Some(doc! { "s": 1 }), "holds.filter until 5d 95"));
    }

    #[test]
    fn the_dates_of_two_instants_are_as_far_apart_as_the_instants() {
        let rule = rule("filter: {seenAt: {$lt: {$ago: 1h30m}}}").unwrap();
        let dates =
            [0, 1].map(|millis| rule.clone().fix_relative_dates(DateTime::from_millis(millis))[0].date.timestamp_millis());
        assert_eq!(dates, [-5_400_000, -5_399_999]);
    }

    #[test]
    fn what_is_no_relative_date_is_a_problem() {
        for (filter, why) in [
            ("{seenAt: {$lt: {$ago: 90}}}", "`$ago`: found the number 90; expected a duration such as `90d`"),
            ("{seenAt: {$lt: {$ago: 90 days}}}", "`$ago`: an unknown unit: \"90 days\"; expected `90d`?"),
            ("{seenAt: {$lt: {$ago: -1d}}}", "`$ago`: not a duration"),
            ("{seenAt: {$lt: {$ago: 3 months}}}", "no fixed length"),
            ("{seenAt: {$lt: {$ago: {d: 90}}}}", "`$ago`: found a mapping; expected a duration"),
            ("{seenAt: {$lt: {$ago: 90d, $gt: 5}}}", "`$ago` stands for a date; expected no other key next to it"),
            ("{seenAt: {$ago: 90d, $exists: true}}", "expected no other key next to it"),
            ("{$ago: 90d}", "cannot stand at the top of a filter"),
            ("{seenAt: {$lt: {$ago: '${NONE}'}}}", "`NONE` is not set"),
            ("{seenAt: {$lt: {$ago: '${SECRET}'}}}", "`$ago`: what `${SECRET}` stands for is no duration such as `90d`"),
        ] {
            let problems = rule(&format!("filter: {filter}")).unwrap_err();
            assert!(problems.contains(why) && !problems.contains("hush"), "{filter}: {problems}");
        }
    }
}
