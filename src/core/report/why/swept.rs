//! The reasons that keep a rule from deleting, as far as they are known before anything is counted.

use crate::core::plan::PlannedRule;
use crate::core::plan::findings::Findings;
use crate::core::plan::verdict::Verdict;

/// A rule that explains a document, with what is known of its next sweep.
#[derive(Debug, Clone, Copy)]
pub struct ByRule<'a> {
    pub planned: &'a PlannedRule,
    /// The findings on the rule so far.
    pub findings: &'a Findings,
    /// Whether it is not the time at which the rule may delete.
    pub window_closed: bool,
}

impl ByRule<'_> {
    /// Returns the reason why the rule deletes nothing now; `None` if it may.
    pub(super) fn not_swept(&self) -> Option<String> {
        let verdict =
            Verdict::before(self.planned, &self.findings.decides).map(|verdict| match (verdict.reason, verdict.error) {
                (Some(reason), Some(error)) => format!("{} ({reason}): {error}", verdict.status),
                (Some(reason), None) => reason.to_string(),
                (None, error) => error.unwrap_or_default(),
            });
        let window = self.planned.rule.limits.window.as_ref().filter(|_| self.window_closed);
        verdict.or_else(|| window.map(|window| format!("it deletes only from {window}, and it is not that time now")))
    }

    /// Returns the limits of the rule that may keep a document which it takes, and of which only a count tells.
    pub(super) fn limits(&self) -> Vec<&'static str> {
        let Some(limits) = self.planned.decision.countable().map(|rule| &rule.limits) else { return Vec::new() };
        let all = [
            ("maxDeletes", limits.max_deletes.is_some()),
            ("maxDeletePercent", limits.max_delete_percent.is_some()),
            ("minOplogWindow", limits.min_oplog_window.is_some()),
        ];
        all.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
    }
}

/// Says what the next sweep does with a document that the rule takes, under these limits.
pub(super) fn goes(limits: &[&str]) -> String {
    let names: Vec<String> = limits.iter().map(|name| format!("`{name}`")).collect();
    let unless = if names.is_empty() { String::new() } else { format!(", unless {} keeps it", names.join(" or ")) };
    format!("the next sweep deletes it{unless}")
}
