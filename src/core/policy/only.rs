//! The patterns of `--only`, which restrict a run to some rules, or to some namespaces of a rule.

use super::namespace::{Namespace, glob};
use super::problem::nearest;
use super::{Policy, Rule};

/// The patterns of `--only`; without any, everything is selected.
pub struct Only<'a>(pub &'a [String]);

/// Patterns that select nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NothingSelected {
    pub message: String,
    /// Lists the rules, after the pattern that was most likely meant.
    pub hint: String,
}

/// Maximum number of rules that a hint names.
const MAX_SHOWN: usize = 10;

impl Only<'_> {
    /// Returns the rules that may have something to do: those whose name or namespace matches, and those with a `*` that may
    /// stand for a namespace that matches.
    ///
    /// Errors: no rule can match.
    pub fn rules<'p>(&self, policy: &'p Policy) -> Result<Vec<&'p Rule>, NothingSelected> {
        let rules: Vec<&Rule> = policy.rules.iter().filter(|rule| self.selects_rule(rule) || self.may_match(rule)).collect();
        if rules.is_empty() { Err(self.nothing_selected(policy)) } else { Ok(rules) }
    }

    /// Whether a rule in a namespace, or a namespace without a rule, is selected.
    pub fn selects(&self, rule: Option<&Rule>, namespace: &Namespace) -> bool {
        self.0.is_empty() || rule.is_some_and(|rule| self.selects_rule(rule)) || self.matches(&namespace.to_string())
    }

    /// Makes the error of a run for which nothing is selected.
    pub fn nothing_selected(&self, policy: &Policy) -> NothingSelected {
        let shown: Vec<String> = policy.rules.iter().take(MAX_SHOWN).map(|rule| format!("`{}`", rule.name)).collect();
        let more = match policy.rules.len().saturating_sub(MAX_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let rules = format!("the policy's rules are {}{more}", shown.join(", "));
        let meant = self.0.iter().find_map(|pattern| meant(pattern, policy));
        NothingSelected {
            message: format!("--only {}: no rule or namespace matches; nothing was deleted", self.0.join(" --only ")),
            hint: meant.map_or(rules.clone(), |name| format!("--only '{name}'? {rules}")),
        }
    }

    fn selects_rule(&self, rule: &Rule) -> bool {
        self.0.is_empty() || self.matches(&rule.name) || self.matches(&rule.namespace.to_string())
    }

    /// Whether a rule or a namespace of a report is selected.
    pub fn selects_named(&self, rule: &str, namespace: &str) -> bool {
        self.0.is_empty() || self.matches(rule) || self.matches(namespace)
    }

    /// Whether a namespace that the rule stands for may match.
    fn may_match(&self, rule: &Rule) -> bool {
        let namespace = rule.namespace.to_string();
        rule.namespace.is_glob() && self.0.iter().any(|pattern| have_common_text(pattern, &namespace))
    }

    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| glob(pattern, text))
    }
}

/// Whether some text matches both of two patterns in which only `*` is special.
fn have_common_text(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // Whether the rest of `a` from a place on and the rest of `b` from another have a text in common.
    let mut from = vec![vec![false; b.len() + 1]; a.len() + 1];
    for i in (0..=a.len()).rev() {
        for j in (0..=b.len()).rev() {
            from[i][j] = match (a.get(i), b.get(j)) {
                (None, None) => true,
                (Some('*'), next) => from[i + 1][j] || (next.is_some() && from[i][j + 1]),
                (next, Some('*')) => from[i][j + 1] || (next.is_some() && from[i + 1][j]),
                (Some(one), Some(other)) => one == other && from[i + 1][j + 1],
                (None, Some(_)) | (Some(_), None) => false,
            };
        }
    }
    from[0][0]
}

/// Returns the name or namespace that a pattern was most likely meant to be.
///
/// Prefers one that is nearly the pattern, then one that contains it, then one whose collection is nearly the pattern.
fn meant(pattern: &str, policy: &Policy) -> Option<String> {
    let known: Vec<String> = policy.rules.iter().flat_map(|rule| [rule.name.clone(), rule.namespace.to_string()]).collect();
    if let Some(near) = nearest(pattern, known.iter().map(String::as_str)) {
        return Some(near.to_owned());
    }
    let contains = |name: &&String| !pattern.is_empty() && name.contains(pattern.trim_matches('*'));
    let is_near = |name: &&String| name.split_once('.').is_some_and(|(_, collection)| nearest(pattern, [collection]).is_some());
    known.iter().find(contains).or_else(|| known.iter().find(is_near)).cloned()
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn policy() -> Policy {
        let text = "version: 1\ndefaults: {expireAfter: 1d}\ncollections: [{name: old carts, namespace: shop.carts, field: a}, \
                    {namespace: shop.sessions, field: a}, {namespace: tenant_*.jobs, field: a}]";
        parse("p", text, &|_| None, true).unwrap()
    }

    fn names(patterns: &[&str], policy: &Policy) -> Result<Vec<String>, NothingSelected> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Only(&patterns).rules(policy).map(|rules| rules.into_iter().map(|rule| rule.name.clone()).collect())
    }

    #[test]
    fn rules_are_selected_by_name_or_namespace_and_globs_stay_if_a_namespace_may_match() {
        let policy = policy();
        for (patterns, expected) in [
            (&[][..], &["old carts", "shop.sessions", "tenant_*.jobs"][..]),
            (&["old carts"], &["old carts"]),
            (&["shop.*"], &["old carts", "shop.sessions"]),
            (&["tenant_7.jobs"], &["tenant_*.jobs"]),
            (&["*obs"], &["tenant_*.jobs"]),
            (&["t*7*"], &["tenant_*.jobs"]),
        ] {
            assert_eq!(names(patterns, &policy).unwrap(), expected, "{patterns:?}");
        }
    }

    #[test]
    fn patterns_have_a_common_text_or_none() {
        for (a, b, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a", "", false),
            ("a*c", "ab*", true),
            ("a*c", "*b", false),
            ("*x*", "*y*", true),
            ("a*b*c", "a*d", false),
            ("zzz", "tenant_*.jobs", false),
        ] {
            assert_eq!((have_common_text(a, b), have_common_text(b, a)), (expected, expected), "{a} {b}");
        }
        let policy = policy();
        assert!(names(&["zzz"], &policy).unwrap_err().message.contains("no rule or namespace matches"));
    }

    #[test]
    fn a_namespace_of_a_glob_is_selected_by_itself() {
        let policy = policy();
        let patterns = ["tenant_7.jobs".to_owned()];
        let jobs = |database: &str| Namespace { database: database.into(), collection: "jobs".into() };
        let only = Only(&patterns);
        assert!(only.selects(Some(&policy.rules[2]), &jobs("tenant_7")) && only.selects(None, &jobs("tenant_7")));
        assert!(!only.selects(Some(&policy.rules[2]), &jobs("tenant_8")));
        assert!(Only(&[]).selects(None, &jobs("tenant_8")));
    }

    #[test]
    fn nothing_selected_names_what_was_meant() {
        let mut policy = policy();
        policy.rules.truncate(2);
        for (pattern, hint) in [
            ("old cart", "--only 'old carts'? the policy's rules are `old carts`, `shop.sessions`"),
            ("sessions", "--only 'shop.sessions'? the policy's rules are `old carts`, `shop.sessions`"),
            ("sesions", "--only 'shop.sessions'? the policy's rules are `old carts`, `shop.sessions`"),
            ("invoices", "the policy's rules are `old carts`, `shop.sessions`"),
        ] {
            let error = names(&[pattern], &policy).unwrap_err();
            assert_eq!(error.hint, hint);
            assert_eq!(error.message, format!("--only {pattern}: no rule or namespace matches; nothing was deleted"));
        }
    }
}
