//! Numbers of documents, buckets and orphans, summed over the rules of a report.

use std::fmt;

use super::{Report, RuleReport, Strategy, overlap};
use crate::base::text::{count, plural};
use crate::core::plan::Status;

/// Documents, buckets and orphans that a sweep deletes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtMost {
    amount: Amount,
    /// Limit of the run for all together.
    limit: u64,
    /// Whether a document may be in the sum more than once.
    is_shared: bool,
}

/// Numbers of documents, buckets and orphans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    documents: u64,
    buckets: u64,
    orphans: u64,
}

impl AtMost {
    /// Returns what a sweep by the rules of a report deletes at most; `None` if that is unknown for one of them.
    pub(super) fn of(report: &Report) -> Option<Self> {
        let ready = || report.rules.iter().filter(|rule| rule.status == Status::Complete);
        let sum = |of_buckets: bool| {
            let ready = ready().filter(|rule| is_of_buckets(rule) == of_buckets);
            ready.map(|rule| rule.would_delete_count).sum::<Option<u64>>()
        };
        // A rule that leaves its orphans has no such number.
        let orphans = ready().filter_map(|rule| rule.would_delete_orphan_count).fold(0, u64::saturating_add);
        let amount = Amount { documents: sum(false)?, buckets: sum(true)?, orphans };
        let is_shared = overlap::is_shared(ready(), |rule| rule.would_delete_count);
        Some(Self { amount, limit: max_deletes(report).unwrap_or(u64::MAX), is_shared })
    }

    /// Returns the number after `at most `, where it may be less.
    pub(super) fn bounded(self) -> String {
        format!("{}{self}", if self.is_shared { "at most " } else { "" })
    }

    /// Whether nothing would go.
    pub(super) fn is_none(self) -> bool {
        self.amount.kinds().is_empty()
    }

    /// Whether orphans are among it.
    pub(super) fn has_orphans(self) -> bool {
        self.amount.orphans > 0
    }
}

impl fmt::Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { amount, limit, is_shared: _ } = *self;
        let kinds = amount.kinds();
        let sum = kinds.iter().map(|(number, _)| *number).fold(0, u64::saturating_add);
        if kinds.len() > 1 && sum > limit {
            let names: Vec<String> = kinds.iter().map(|(_, noun)| format!("{noun}s")).collect();
            return write!(f, "{} {}", count(limit), names.join(" or "));
        }
        let Amount { documents, buckets, orphans } = amount;
        let bounded = Amount { documents: documents.min(limit), buckets: buckets.min(limit), orphans: orphans.min(limit) };
        bounded.fmt(f)
    }
}

impl Amount {
    /// Returns the numbers that are not 0, with their nouns.
    fn kinds(self) -> Vec<(u64, &'static str)> {
        let kinds = [(self.documents, "document"), (self.buckets, "bucket"), (self.orphans, "orphan")];
        kinds.into_iter().filter(|(number, _)| *number > 0).collect()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let parts: Vec<String> = self.kinds().into_iter().map(|(number, noun)| plural(number, noun)).collect();
        match parts.split_last() {
            None => f.write_str(&plural(0, "document")),
            Some((last, [])) => f.write_str(last),
            Some((last, others)) => write!(f, "{} and {last}", others.join(", ")),
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

/// Returns a number of each rule, and one of its orphans, summed.
pub(super) fn amount(report: &Report, value: impl Fn(&RuleReport) -> u64, of_orphans: impl Fn(&RuleReport) -> u64) -> String {
    let sum = |of_buckets: bool| {
        let rules = report.rules.iter().filter(|rule| is_of_buckets(rule) == of_buckets);
        rules.map(&value).fold(0, u64::saturating_add)
    };
    let orphans = report.rules.iter().map(of_orphans).fold(0, u64::saturating_add);
    Amount { documents: sum(false), buckets: sum(true), orphans }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_is_named_by_its_kinds_and_a_limit_of_the_run_is_for_all_of_them() {
        for (documents, buckets, orphans, limit, words) in [
            (0, 0, 0, u64::MAX, "0 documents"),
            (1, 0, 0, u64::MAX, "1 document"),
            (0, 0, 6_000, u64::MAX, "6,000 orphans"),
            (3, 0, 1, u64::MAX, "3 documents and 1 orphan"),
            (3, 2, 1, u64::MAX, "3 documents, 2 buckets and 1 orphan"),
            (3, 0, 6, 9, "3 documents and 6 orphans"),
            (3, 0, 6, 8, "8 documents or orphans"),
            (3, 2, 6, 8, "8 documents or buckets or orphans"),
            (0, 0, 6, 5, "5 orphans"),
        ] {
            let most = AtMost { amount: Amount { documents, buckets, orphans }, limit, is_shared: false };
            assert_eq!(most.to_string(), words);
        }
    }
}
