//! `--only`: which rules, and which of a rule's namespaces, a run is about.

use crate::failure::Failure;
use crate::policy::namespace::{Namespace, glob};
use crate::policy::{Policy, Rule, nearest};
use crate::text::clean;

/// The patterns of `--only`; none selects everything.
pub struct Only<'a>(pub &'a [String]);

impl Only<'_> {
    /// The rules to look at: those whose name or namespace matches, and those with a `*` of which a namespace may.
    ///
    /// Errors: no rule can match.
    pub fn rules<'p>(&self, policy: &'p Policy) -> Result<Vec<&'p Rule>, Failure> {
        let rules: Vec<&Rule> = policy.rules.iter().filter(|rule| self.is_meant(rule) || rule.namespace.is_glob()).collect();
        if rules.is_empty() { Err(self.matches_nothing(policy)) } else { Ok(rules) }
    }

    /// Whether a rule in a namespace, or a namespace without a rule, is selected.
    pub fn selects(&self, rule: Option<&Rule>, namespace: &Namespace) -> bool {
        self.0.is_empty() || rule.is_some_and(|rule| self.is_meant(rule)) || self.any(&namespace.to_string())
    }

    fn is_meant(&self, rule: &Rule) -> bool {
        self.0.is_empty() || self.any(&rule.name) || self.any(&rule.namespace.to_string())
    }

    fn any(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| glob(pattern, text))
    }

    /// The error of a run that nothing is selected for.
    pub fn matches_nothing(&self, policy: &Policy) -> Failure {
        let names: Vec<&str> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
        let meant = self.0.iter().find_map(|pattern| meant(pattern, policy));
        let shown: Vec<String> = names.iter().take(MOST_SHOWN).map(|name| format!("`{}`", clean(name))).collect();
        let more = names.len().saturating_sub(MOST_SHOWN);
        let and_more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let list = format!("the policy's rules are {}{and_more}", shown.join(", "));
        Failure::usage(format!("--only {}: no rule or namespace matches; nothing was deleted", self.0.join(" --only ")))
            .hint(meant.map_or(list.clone(), |name| format!("--only '{}'? {list}", clean(&name))))
    }
}

/// Rules that are named at most.
const MOST_SHOWN: usize = 10;

/// The name or namespace that a pattern was most likely meant to be: a near one, or one that holds it.
fn meant(pattern: &str, policy: &Policy) -> Option<String> {
    let known: Vec<String> = policy.rules.iter().flat_map(|rule| [rule.name.clone(), rule.namespace.to_string()]).collect();
    let holds = |name: &&String| !pattern.is_empty() && name.contains(pattern.trim_matches('*'));
    let collection = |name: &str| name.split_once('.').map(|(_, collection)| collection.to_owned());
    let near = nearest(pattern, known.iter().map(String::as_str)).map(str::to_owned);
    near.or_else(|| known.iter().find(holds).cloned()).or_else(|| {
        known
            .iter()
            .find(|name| collection(name).is_some_and(|collection| nearest(pattern, [collection.as_str()]).is_some()))
            .cloned()
    })
}
