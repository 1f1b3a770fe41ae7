//! Numbers of documents, buckets, orphans and children, summed over the rules of a report.

use std::fmt;
use std::iter::Sum;

use super::{Report, RuleReport, Strategy, overlap};
use crate::base::text::{self, plural};
use crate::core::plan::Status;

/// What a sweep deletes at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtMost {
    amount: Amount,
    /// Limit of the run for all documents, buckets and orphans together.
    limit: u64,
    /// Whether a document may be in the sum more than once.
    is_shared: bool,
}

/// Numbers of documents, buckets and orphans, and the children that go with the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount {
    documents: u64,
    buckets: u64,
    orphans: u64,
    children: OfParents,
}

/// Children that go with their parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OfParents {
    count: u64,
    /// Whether a limit keeps some of the parents, so that the count is a part of the children of all.
    is_about: bool,
    /// Whether there may be others, which were not counted.
    is_partial: bool,
}

impl AtMost {
    /// Returns what a sweep by the rules of a report deletes at most; `None` if that is unknown for one of them.
    pub(super) fn of(report: &Report) -> Option<Self> {
        Self::of_rules(report, report.rules.iter())
    }

    /// Returns what a sweep deletes at most by some rules of a report; `None` if that is unknown for one of them.
    pub(super) fn of_rules<'a>(report: &Report, rules: impl Iterator<Item = &'a RuleReport> + Clone) -> Option<Self> {
        let ready = || rules.clone().filter(|rule| rule.status == Status::Complete);
        let sum = |of_buckets: bool| {
            let ready = ready().filter(|rule| is_of_buckets(rule) == of_buckets);
            ready.map(|rule| rule.would_delete_count).sum::<Option<u64>>()
        };
        // A rule that leaves its orphans has no such number.
        let orphans = ready().filter_map(|rule| rule.would_delete_orphan_count).fold(0, u64::saturating_add);
        let children = ready().map(OfParents::of).sum();
        let amount = Amount { documents: sum(false)?, buckets: sum(true)?, orphans, children };
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
            let children = amount.children.words().map(|children| format!(" and {children}")).unwrap_or_default();
            return write!(f, "{} {}{children}", text::count(limit), names.join(" or "));
        }
        let Amount { documents, buckets, orphans, children } = amount;
        let [documents, buckets, orphans] = [documents, buckets, orphans].map(|number| number.min(limit));
        Amount { documents, buckets, orphans, children }.fmt(f)
    }
}

impl Amount {
    /// Returns the sum of all numbers.
    pub(super) fn total(self) -> u64 {
        self.kinds().iter().map(|(number, _)| *number).fold(self.children.count, u64::saturating_add)
    }

    /// Returns the numbers that are not 0, with their nouns, without the children.
    fn kinds(self) -> Vec<(u64, &'static str)> {
        let kinds = [(self.documents, "document"), (self.buckets, "bucket"), (self.orphans, "orphan")];
        kinds.into_iter().filter(|(number, _)| *number > 0).collect()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let kinds = self.kinds().into_iter().map(|(number, noun)| plural(number, noun));
        let parts: Vec<String> = kinds.chain(self.children.words()).collect();
        match parts.split_last() {
            None => f.write_str(&plural(0, "document")),
            Some((last, [])) => f.write_str(last),
            Some((last, others)) => write!(f, "{} and {last}", others.join(", ")),
        }
    }
}

impl OfParents {
    /// Returns the children that go with the documents that a rule would delete.
    pub(super) fn of(rule: &RuleReport) -> Self {
        let goes = rule.would_delete_count.filter(|goes| *goes > 0);
        let (Some(goes), Some(_)) = (goes, &rule.child_namespaces) else { return Self::default() };
        match (rule.children_count, rule.expired_count.filter(|expired| goes < *expired)) {
            (None, _) => Self { is_partial: true, ..Self::default() },
            (Some(count), None) => Self { count, ..Self::default() },
            (Some(count), Some(expired)) => {
                let part = (u128::from(count) * u128::from(goes)).div_ceil(u128::from(expired));
                Self { count: u64::try_from(part).unwrap_or(count), is_about: true, is_partial: false }
            }
        }
    }

    /// Returns the number with its noun; `None` if there are none.
    pub(super) fn words(self) -> Option<String> {
        let about = if self.is_about { "about " } else { "" };
        match (self.count, self.is_partial) {
            (0, false) => None,
            (0, true) => Some("their children (not counted)".to_owned()),
            (count, false) => Some(format!("{about}{}", text::children(count))),
            (count, true) => Some(format!("more than {} (not all were counted)", text::children(count))),
        }
    }
}

impl Sum for OfParents {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            count: sum.count.saturating_add(one.count),
            is_about: sum.is_about || one.is_about,
            is_partial: sum.is_partial || one.is_partial,
        })
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

/// Returns what the run deleted.
pub(super) fn deleted(report: &Report) -> Amount {
    let orphans = |rule: &RuleReport| rule.orphans_deleted_count.unwrap_or(0);
    // Orphans are among the children.
    let children = report.rules.iter().map(|rule| rule.children_deleted_count.unwrap_or(0).saturating_sub(orphans(rule)));
    let children = OfParents { count: children.fold(0, u64::saturating_add), ..OfParents::default() };
    Amount { children, ..amount(report, |rule| rule.deleted_count, orphans) }
}

/// Returns what the run left, by a number of each rule and one of its orphans.
pub(super) fn left(report: &Report, value: impl Fn(&RuleReport) -> u64, of_orphans: impl Fn(&RuleReport) -> u64) -> Amount {
    amount(report, value, of_orphans)
}

fn amount(report: &Report, value: impl Fn(&RuleReport) -> u64, of_orphans: impl Fn(&RuleReport) -> u64) -> Amount {
    let sum = |of_buckets: bool| {
        let rules = report.rules.iter().filter(|rule| is_of_buckets(rule) == of_buckets);
        rules.map(&value).fold(0, u64::saturating_add)
    };
    let orphans = report.rules.iter().map(of_orphans).fold(0, u64::saturating_add);
    Amount { documents: sum(false), buckets: sum(true), orphans, children: OfParents::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::made_up::{dry_run, report};

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
            let amount = Amount { documents, buckets, orphans, children: OfParents::default() };
            assert_eq!(AtMost { amount, limit, is_shared: false }.to_string(), words);
        }
    }

    #[test]
    fn children_are_a_part_of_those_that_were_counted_where_a_limit_keeps_parents() {
        let rule = |goes, expired, children_count| RuleReport {
            would_delete_count: Some(goes),
            expired_count: Some(expired),
            children_count,
            child_namespaces: Some(vec!["app.lines".into()]),
            ..report("r", "app.orders")
        };
        let words = |rules: &[RuleReport]| rules.iter().map(OfParents::of).sum::<OfParents>().words();
        assert_eq!(words(&[rule(4, 4, Some(9))]).as_deref(), Some("9 children"));
        assert_eq!(words(&[rule(1, 4, Some(9))]).as_deref(), Some("about 3 children"));
        assert_eq!(words(&[rule(1, 4, None)]).as_deref(), Some("their children (not counted)"));
        let both = [rule(4, 4, Some(9)), rule(1, 1, None)];
        assert_eq!(words(&both).as_deref(), Some("more than 9 children (not all were counted)"));
        // None of the parents goes, or the rule has no children.
        assert_eq!(words(&[rule(0, 4, Some(9)), rule(0, 4, None), report("r", "app.orders")]), None);
        let of_run = AtMost::of(&dry_run(vec![rule(4, 4, Some(9)), rule(4, 4, Some(1))])).unwrap();
        assert_eq!(of_run.bounded(), "at most 8 documents and 10 children");
        let children = OfParents { count: 2, ..OfParents::default() };
        let limited = AtMost { amount: Amount { documents: 3, buckets: 2, orphans: 0, children }, limit: 4, is_shared: false };
        assert_eq!(limited.to_string(), "4 documents or buckets and 2 children");
    }
}
