//! Checks of single values of a rule, such as the answers that `sweeper init` gets.

use super::entry::{Context, Entry};
use super::key::AnyKey;
use super::keys;
use super::yaml::{self, Node};

/// A key of a rule that a first policy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Namespace,
    Field,
    DateFormat,
    ExpireAfter,
    TtlField,
    MaxDeletePercent,
}

impl Answer {
    fn key(self) -> &'static dyn AnyKey {
        match self {
            Self::Namespace => &keys::NAMESPACE,
            Self::Field => &keys::FIELD,
            Self::DateFormat => &keys::DATE_FORMAT,
            Self::ExpireAfter => &keys::EXPIRE_AFTER,
            Self::TtlField => &keys::TTL_FIELD,
            Self::MaxDeletePercent => &keys::MAX_DELETE_PERCENT,
        }
    }

    /// Checks a value as the policy reads it; environment variables in it are not replaced.
    ///
    /// Errors: the problem, without the name of the key.
    pub fn check(self, text: &str) -> Result<(), String> {
        let node = match self {
            Self::MaxDeletePercent => yaml::parse(text).map_err(|(message, _)| message)?,
            _ => Node::Str(text.replace("${", "$${")),
        };
        let context = Context::new(&|_| None, true);
        let key = self.key();
        let name = key.about().name;
        key.check(&Entry { context: &context, key: name, node: &node, path: Vec::new(), rule: None, reports: true });
        match context.into_problems().into_iter().next() {
            None => Ok(()),
            Some(problem) => {
                let prefix = format!("`{name}`: ");
                Err(problem.message.strip_prefix(&prefix).map(str::to_owned).unwrap_or(problem.message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_checked_by_itself() {
        for (answer, text) in [
            (Answer::Namespace, "app.c"),
            (Answer::Field, "at"),
            (Answer::DateFormat, "epochMillis"),
            (Answer::ExpireAfter, "90d"),
            (Answer::TtlField, "at"),
            (Answer::MaxDeletePercent, "0.5"),
        ] {
            assert_eq!(answer.check(text), Ok(()), "{answer:?}");
        }
        let why = Answer::Namespace.check("sessions").unwrap_err();
        assert_eq!(why, "\"sessions\" has no collection; expected `database.collection`");
        let why = Answer::ExpireAfter.check("soon").unwrap_err();
        assert!(why.starts_with("not a duration: \"soon\""), "{why}");
        let why = Answer::MaxDeletePercent.check("0").unwrap_err();
        assert!(why.contains("above 0 and at most 100"), "{why}");
        assert!(Answer::Field.check("").is_err() && Answer::DateFormat.check("iso").is_err());
    }
}
