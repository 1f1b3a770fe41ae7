//! Text of a first policy.

use crate::core::draft::yaml::text;
use crate::core::policy::{PolicyError, duration, parse};

/// Column in which comments begin if there is room.
const COMMENTS: usize = 30;

/// The answers, as text. The policy's own parser checks them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    /// At least one.
    pub rules: Vec<DraftRule>,
    /// Share of the collection above which the rule is refused, in percent.
    pub max_delete_percent: f64,
    /// Name of the replica set that the questions were asked about.
    pub replica_set: Option<String>,
}

/// The answers about one collection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DraftRule {
    pub namespace: String,
    /// `None` for a time-series collection.
    pub field: Option<String>,
    pub date_format: Option<String>,
    pub expire_after: String,
    pub ttl_field: Option<String>,
}

/// A line of the policy, and the comment behind it; without one if that is empty.
type DraftLine = (String, &'static str);

impl Draft {
    /// Default of [`Draft::max_delete_percent`].
    pub(crate) const PERCENT: f64 = 50.0;

    /// Writes the policy.
    pub(crate) fn yaml(&self) -> String {
        let expect = self.replica_set.as_ref().map(|name| format!("  expect: {{replicaSet: {}}}", text(name)));
        let head = [
            Some(("version: 1".to_owned(), "")),
            Some((String::new(), "")),
            Some(("connection:".to_owned(), "")),
            Some(("  uri: ${MONGODB_URI}".to_owned(), "from the environment: no password in this file")),
            expect.map(|entry| (entry, "refuse to run anywhere else")),
            Some((String::new(), "")),
            Some(("defaults:".to_owned(), "for every rule; a rule's own key wins")),
            Some((format!("  maxDeletePercent: {}", self.max_delete_percent), "refuse where more of a collection would go")),
            Some(("  maxDeletes: 1000000".to_owned(), "stop there; the rest goes in the next run")),
            Some(("  # rate: 5000".to_owned(), "documents per second at most")),
            Some((String::new(), "")),
            Some(("collections:".to_owned(), "the rules")),
        ];
        let rules = self.rules.iter().enumerate().flat_map(|(index, rule)| rule.lines(index == 0));
        let lines = head.into_iter().flatten().chain(rules).map(|(entry, comment)| match comment {
            "" => format!("{entry}\n"),
            comment => format!("{entry:<COMMENTS$}  # {comment}\n"),
        });
        format!("{HEAD}{}", lines.collect::<String>())
    }

    /// Checks the policy with the parser that will read it.
    ///
    /// Errors: all problems.
    pub(crate) fn check(&self, path: &str) -> Result<(), PolicyError> {
        parse::parse(path, &self.yaml(), &|_| None, true).map(|_| ())
    }
}

impl DraftRule {
    /// Returns the lines of the rule. Only the first rule explains its keys, and shows those that it could have as well.
    fn lines(&self, is_first: bool) -> Vec<DraftLine> {
        let is_series = self.field.is_none();
        let field = self.field.as_ref().map_or("    # field:".to_owned(), |field| format!("    field: {}", text(field)));
        let ttl_field = self.ttl_field.as_ref().map(|name| format!("    ttlField: {}", text(name)));
        let date_format = self.date_format.as_ref().map(|format| format!("    dateFormat: {}", text(format)));
        // A duration begins with a digit but is not a number, so it needs no quotation marks.
        let expire_after = match duration::parse(&self.expire_after) {
            Ok(_) => self.expire_after.clone(),
            Err(_) => text(&self.expire_after),
        };
        let example = |entry: &str| is_first.then(|| entry.to_owned());
        let lines = [
            Some((format!("  - namespace: {}", text(&self.namespace)), "database.collection; `*` stands for anything")),
            Some((field, if is_series { "left out: a time-series collection has its own" } else { "holds the date" })),
            date_format.map(|entry| (entry, "date | epochSeconds | epochMillis | objectId | iso8601")),
            Some((format!("    expireAfter: {expire_after}"), "time from that date: w, d, h, m, s")),
            ttl_field.or(example("    # ttlField: ttl")).map(|entry| (entry, "overrides it for its document, in seconds")),
            example("    # filter: {status: done}").map(|entry| (entry, "only these; MongoDB's query language")),
        ];
        let explained = |(entry, comment): DraftLine| {
            let explains = is_first || entry.trim_start().starts_with('#');
            (entry, if explains { comment } else { "" })
        };
        lines.into_iter().flatten().map(explained).collect()
    }
}

const HEAD: &str = "\
# yaml-language-server: $schema=sweeper.schema.json
# With that line, editors complete and check this file, once
# `sweeper schema -o sweeper.schema.json` was run in its directory.
#
# What sweeper deletes. Before the first sweep:
#   sweeper check                 is it right?
#   sweeper check --connect       does it fit the deployment?
#   sweeper sweep --dry-run       what would go? deletes nothing
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_answers_hold_is_read_back_or_refused() {
        for (namespace, field, expire_after) in [
            ("app.sessions", "lastModified", "1h"),
            ("app.a b # c: d", "a b", "90d"),
            ("app.${HOME}", "x", "1d"),
            ("app.x\ny: 1", "a: b\nc: d", "1d"),
            ("app.no", "null", "0s"),
            ("tenant_*.sessions", "\"quoted\"", "1w"),
        ] {
            let rule = DraftRule {
                namespace: namespace.into(),
                field: Some(field.into()),
                expire_after: expire_after.into(),
                date_format: None,
                ttl_field: None,
            };
            let draft = Draft { rules: vec![rule], max_delete_percent: Draft::PERCENT, replica_set: Some("rs: #0".into()) };
            let text = draft.yaml();
            match parse::parse("", &text, &|_| None, true) {
                Ok(policy) => {
                    assert_eq!(policy.rules[0].namespace.to_string(), namespace);
                    assert_eq!(policy.rules[0].field.as_deref(), Some(field));
                    assert_eq!(policy.connection.expect.replica_set.as_deref(), Some("rs: #0"));
                    assert_eq!(policy.rules[0].limits.max_delete_percent, Some(50.0));
                    assert_eq!(policy.rules[0].limits.max_deletes, Some(1_000_000));
                }
                // A collection's name holds no `$`.
                Err(error) => assert!(namespace.contains('$') && error.problems.len() == 1, "{error}\n{text}"),
            }
        }
    }

    #[test]
    fn each_rule_has_its_own_keys_and_only_the_first_explains_them() {
        let rule = |namespace: &str, field: Option<&str>, date_format: Option<&str>, ttl_field: Option<&str>| DraftRule {
            namespace: namespace.into(),
            field: field.map(Into::into),
            date_format: date_format.map(Into::into),
            expire_after: "1d".into(),
            ttl_field: ttl_field.map(Into::into),
        };
        let rules = vec![
            rule("app.a", Some("at"), None, None),
            rule("app.b", Some("ts"), Some("epochMillis"), Some("ttl")),
            rule("app.c", None, None, None),
        ];
        let text = Draft { rules, max_delete_percent: 50.0, replica_set: None }.yaml();
        let later = "  - namespace: app.b\n    field: ts\n    dateFormat: epochMillis\n    expireAfter: 1d\n    ttlField: ttl\n\
                     \u{20} - namespace: app.c\n    # field:                    # left out: a time-series collection has its own\n\
                     \u{20}   expireAfter: 1d\n";
        assert!(text.ends_with(later), "{text}");
        assert_eq!(text.matches("# ttlField").count(), 1, "{text}");
        let policy = parse::parse("", &text, &|_| None, true).unwrap();
        let read = |index: usize| (policy.rules[index].namespace.to_string(), policy.rules[index].field.clone());
        assert_eq!(
            [0, 1, 2].map(read),
            [("app.a", Some("at")), ("app.b", Some("ts")), ("app.c", None)]
                .map(|(namespace, field)| { (namespace.to_owned(), field.map(str::to_owned)) })
        );
        assert_eq!(policy.rules[1].ttl_field.as_deref(), Some("ttl"));
    }
}
