//! Numbers of documents and buckets, summed over the rules of a report.

use std::fmt;

use super::{Report, RuleReport, Status, Strategy};
use crate::text::{count, plural};

/// Documents and buckets that a sweep deletes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtMost {
    /// Sum of the rules.
    documents: u64,
    buckets: u64,
    /// Limit of the run for both together.
    limit: u64,
}

impl AtMost {
    /// Returns what a sweep by the rules of a report deletes at most; `None` if that is unknown for one of them.
    pub(super) fn of(report: &Report) -> Option<Self> {
        let sum = |of_buckets: bool| {
            let ready = report.rules.iter().filter(|rule| rule.status == Status::Complete && is_of_buckets(rule) == of_buckets);
            ready.map(|rule| rule.would_delete_count).sum::<Option<u64>>()
        };
        Some(Self { documents: sum(false)?, buckets: sum(true)?, limit: max_deletes(report).unwrap_or(u64::MAX) })
    }

    /// Whether nothing would go.
    pub(super) fn is_none(self) -> bool {
        self.documents == 0 && self.buckets == 0
    }
}

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { documents, buckets, limit } = *self;
        match documents > 0 && buckets > 0 && documents.saturating_add(buckets) > limit {
            true => write!(f, "{} documents or buckets", count(limit)),
            false => f.write_str(&both(documents.min(limit), buckets.min(limit))),
        }
    }
}

/// Whether the counts of a rule are of buckets.
pub(super) fn is_of_buckets(rule: &RuleReport) -> bool {
    rule.strategy == Some(Strategy::Buckets)
}

/// Returns the documents that the run deletes at most; `None` if that is not limited.
pub(super) fn max_deletes(report: &Report) -> Option<u64> {
    report.limits.as_ref()?.max_deletes
}

/// Returns a number of each rule, summed: documents, buckets or both.
pub(super) fn amount(report: &Report, value: impl Fn(&RuleReport) -> u64) -> String {
    let sum = |of_buckets: bool| {
        let rules = report.rules.iter().filter(|rule| is_of_buckets(rule) == of_buckets);
        rules.map(&value).fold(0, u64::saturating_add)
    };
    both(sum(false), sum(true))
}

fn both(documents: u64, buckets: u64) -> String {
    match (documents, buckets) {
        (documents, 0) => plural(documents, "document"),
        (0, buckets) => plural(buckets, "bucket"),
        (documents, buckets) => format!("{} and {}", plural(documents, "document"), plural(buckets, "bucket")),
    }
}
