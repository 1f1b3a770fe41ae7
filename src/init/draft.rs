//! Text of a first policy.

use crate::native::yaml::text;
use crate::policy::{PolicyError, duration, parse};

/// Column in which comments begin if there is room.
const COMMENTS: usize = 30;

/// The answers, as text. The policy's own parser checks them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    pub namespace: String,
    /// `None` for a time-series collection.
    pub field: Option<String>,
    pub date_format: Option<String>,
    pub expire_after: String,
    pub ttl_field: Option<String>,
    /// Share of the collection above which the rule is refused, in percent.
    pub max_delete_percent: f64,
    /// Name of the replica set that the questions were asked about.
    pub replica_set: Option<String>,
}

impl Draft {
    /// Default of [`Draft::max_delete_percent`].
    pub(crate) const PERCENT: f64 = 50.0;

    /// Writes the policy.
    pub(crate) fn yaml(&self) -> String {
        let expect = self.replica_set.as_ref().map(|name| format!("  expect: {{replicaSet: {}}}", text(name)));
        let field = self.field.as_ref().map_or("    # field:".to_owned(), |field| format!("    field: {}", text(field)));
        let ttl_field =
            self.ttl_field.as_ref().map_or("    # ttlField: ttl".to_owned(), |name| format!("    ttlField: {}", text(name)));
        let date_format = self.date_format.as_ref().map(|format| format!("    dateFormat: {}", text(format)));
        // A duration begins with a digit but is not a number, so it needs no quotation marks.
        let expire_after = match duration::parse(&self.expire_after) {
            Ok(_) => self.expire_after.clone(),
            Err(_) => text(&self.expire_after),
        };
        let lines = [
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
            Some((format!("  - namespace: {}", text(&self.namespace)), "database.collection; `*` stands for anything")),
            Some((field, if self.field.is_some() { "holds the date" } else { "left out: a time-series collection has its own" })),
            date_format.map(|entry| (entry, "date | epochSeconds | epochMillis | objectId")),
            Some((format!("    expireAfter: {expire_after}"), "time from that date: w, d, h, m, s")),
            Some((ttl_field, "overrides it for its document, in seconds")),
            Some(("    # filter: {status: done}".to_owned(), "only these; MongoDB's query language")),
        ];
        let lines = lines.into_iter().flatten().map(|(entry, comment)| match comment {
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
            let draft = Draft {
                namespace: namespace.into(),
                field: Some(field.into()),
                expire_after: expire_after.into(),
                replica_set: Some("rs: #0".into()),
                date_format: None,
                ttl_field: None,
                max_delete_percent: Draft::PERCENT,
            };
            let text = draft.yaml();
            match parse::parse("", &text, &|_| None, true) {
                Ok(policy) => {
                    assert_eq!(policy.rules[0].namespace.to_string(), namespace);
                    assert_eq!(policy.rules[0].field.as_deref(), Some(field));
                    assert_eq!(policy.connection.expect.replica_set.as_deref(), Some("rs: #0"));
                    assert_eq!(policy.rules[0].max_delete_percent, Some(50.0));
                    assert_eq!(policy.rules[0].max_deletes, Some(1_000_000));
                }
                // A collection's name holds no `$`.
                Err(error) => assert!(namespace.contains('$') && error.problems.len() == 1, "{error}\n{text}"),
            }
        }
    }
}
