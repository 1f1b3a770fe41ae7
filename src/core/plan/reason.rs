//! Reasons why a rule is skipped, refused or stopped, each with its word in reports.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guard::Guard;

/// Status of a rule or a run, the worst last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "status")]
pub enum Status {
    /// There was nothing to do for the rule.
    Skipped,
    /// No expired document is left; in a dry run, an audit or a check: nothing keeps the rule from being swept.
    Complete,
    /// A limit or a stop ended the rule before that.
    Partial,
    /// A guard refused the rule.
    Refused,
    /// An error ended the rule.
    // The default, because a status that was never set must not look like a success.
    #[default]
    Failed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// Reason for the status of a rule: for a partial rule the limit that ended it, for a refused rule the guard, for a skipped rule
/// a sentence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Reason {
    Guard(Guard),
    Stop(StopReason),
    Skip(SkipReason),
    /// A word of a later version, found in a report.
    Other(String),
}

/// Reason why a rule does nothing in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SkipReason {
    /// The policy disables the rule.
    #[serde(rename = "disabled in the policy")]
    Disabled,
    /// The rule's namespace does not exist.
    #[serde(rename = "no such namespace")]
    NoSuchNamespace,
    /// The saved plan does not have the rule.
    #[serde(rename = "not in the plan")]
    NotInPlan,
}

/// Reason why a sweep ends while documents are left, or could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The rule or the run has deleted as many documents as it may.
    MaxDeletes,
    /// The run has taken as long as it may.
    MaxDuration,
    /// The rule's window has closed.
    Window,
    /// A signal asked the run to stop.
    Interrupted,
    /// The stop file exists.
    StopFile,
    /// Another run may hold the lease in the database by now.
    LockLost,
    /// Expired documents may be left on the shards of a cluster: chunks moved during deletes, or others inserted some.
    Missed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_word_and_is_read_back_as_the_same() {
        for (reason, word) in [
            (Reason::Guard(Guard::MaxDeletePercent), "maxDeletePercent"),
            (Reason::Guard(Guard::AsOf), "asOf"),
            (Reason::Stop(StopReason::LockLost), "lockLost"),
            (Reason::Stop(StopReason::Missed), "missed"),
            (Reason::Skip(SkipReason::NoSuchNamespace), "no such namespace"),
            (Reason::Other("of a later version".into()), "of a later version"),
        ] {
            assert_eq!(reason.to_string(), word);
            let json = serde_json::to_value(&reason).unwrap();
            assert_eq!(json, word);
            assert_eq!(serde_json::from_value::<Reason>(json).unwrap(), reason);
        }
    }
}
