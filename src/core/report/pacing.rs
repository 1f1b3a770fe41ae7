//! The values of pace and windows that were replaced while a sweep ran.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::instant::Instant;
use crate::core::policy::reread::PacingChange;

/// A value of the policy that was replaced while the sweep ran. The value before held until then, the other one from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "pacingChange")]
pub struct PacingReport {
    pub at: Instant,
    /// Name of the rule; null for the whole run.
    pub rule: Option<String>,
    /// Key of the policy.
    pub key: String,
    /// Null if the key was left out.
    pub before: Option<String>,
    /// Null if the key is left out.
    pub after: Option<String>,
}

impl PacingReport {
    /// Makes the report of a change at an instant.
    pub(crate) fn of(change: PacingChange, at: Instant) -> Self {
        let PacingChange { rule, key, before, after } = change;
        Self { at, rule, key: key.to_owned(), before, after }
    }

    /// Says what was replaced by what, and when.
    pub(crate) fn words(&self) -> String {
        let rule = self.rule.as_ref().map(|rule| format!("rule `{rule}`: ")).unwrap_or_default();
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        format!("{rule}`{}` {} from {} on, {} before", self.key, value(&self.after), self.at, value(&self.before))
    }
}
