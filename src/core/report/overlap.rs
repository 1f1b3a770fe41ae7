//! Rules of a run that share a collection. A document that has expired by several of them is counted by each and deleted once. So
//! sums over the rules are upper bounds, and what one rule leaves depends on the others.

use std::collections::BTreeMap;

use super::{ReportCommand, RuleReport};
use crate::core::plan::Status;
use crate::core::plan::outcome::RuleOutcome;
use crate::core::plan::{Plan, PlannedRule};

/// Maximum number of rules that a warning names.
const MAX_NAMED: usize = 3;

/// Whether two rules of one namespace count documents, so that a sum of `value` may have some documents in it more than once.
pub(super) fn is_shared<'a>(rules: impl IntoIterator<Item = &'a RuleReport>, value: impl Fn(&RuleReport) -> Option<u64>) -> bool {
    let mut namespaces: BTreeMap<&str, usize> = BTreeMap::new();
    for rule in rules.into_iter().filter(|rule| value(rule).is_some_and(|value| value > 0)) {
        *namespaces.entry(&rule.namespace).or_default() += 1;
    }
    namespaces.values().any(|rules| *rules > 1)
}

/// Returns `at most `, or nothing, to stand before such a sum.
pub(super) fn at_most<'a>(
    rules: impl IntoIterator<Item = &'a RuleReport>,
    value: impl Fn(&RuleReport) -> Option<u64>,
) -> &'static str {
    if is_shared(rules, value) { "at most " } else { "" }
}

/// Warns of the rules that overlap, where a person looks before anything is deleted. These are the rules that count documents
/// and, in a check, which counts none, the rules that a sweep would follow.
pub(super) fn warn(command: ReportCommand, rules: &mut [RuleReport]) {
    let is_check = command == ReportCommand::Check;
    let counts = |rule: &RuleReport| match rule.expired_count {
        Some(count) => count > 0,
        None => is_check && rule.status == Status::Complete,
    };
    let mut namespaces: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| counts(rule)) {
        namespaces.entry(&rule.namespace).or_default().push(index);
    }
    let mut warnings = Vec::new();
    for sharing in namespaces.values().filter(|sharing| sharing.len() > 1) {
        for index in sharing {
            let others: Vec<&str> =
                sharing.iter().filter(|other| *other != index).map(|other| rules[*other].name.as_str()).collect();
            warnings.push((*index, warning(&others)));
        }
    }
    for (index, warning) in warnings {
        rules[index].warnings.push(warning);
    }
}

fn warning(others: &[&str]) -> String {
    let named: Vec<String> = others.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    let more = match others.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let are = if others.len() == 1 { "is" } else { "are" };
    format!(
        "{}{more} {are} for the same collection: a document that has expired by both is counted by each, and deleted once",
        named.join(", ")
    )
}

/// Returns for each rule of a plan whether another one has, or may have, deleted documents in its namespace.
pub(crate) fn others_deleted(plan: &Plan, outcomes: &[RuleOutcome]) -> Vec<bool> {
    let deleted =
        |outcome: &RuleOutcome| outcome.swept().is_some_and(|swept| swept.outcome.deleted > 0 || swept.outcome.uncertain);
    let mut namespaces = BTreeMap::new();
    for (planned, _) in plan.rules.iter().zip(outcomes).filter(|(_, outcome)| deleted(outcome)) {
        *namespaces.entry(&planned.namespace).or_insert(0_usize) += 1;
    }
    let others = |(planned, outcome): (&PlannedRule, &RuleOutcome)| {
        namespaces.get(&planned.namespace).copied().unwrap_or(0) > usize::from(deleted(outcome))
    };
    plan.rules.iter().zip(outcomes).map(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::plan::StopReason;
    use crate::core::plan::findings::{Findings, Remaining};
    use crate::core::plan::outcome::End;
    use crate::testing::made_up::{counted, not_swept, planned, report, swept};

    fn rule(name: &str, namespace: &str, expired: Option<u64>) -> RuleReport {
        RuleReport { expired_count: expired, ..report(name, namespace) }
    }

    #[test]
    fn rules_overlap_where_two_of_one_namespace_count_documents() {
        let is_shared = |rules: &[RuleReport]| is_shared(rules, |rule| rule.expired_count);
        assert!(is_shared(&[rule("a", "d.c", Some(1)), rule("b", "d.x", Some(9)), rule("c", "d.c", Some(1))]));
        assert!(!is_shared(&[rule("a", "d.c", Some(1)), rule("b", "d.x", Some(9))]));
        assert!(!is_shared(&[rule("a", "d.c", Some(1)), rule("b", "d.c", Some(0)), rule("c", "d.c", None)]));
    }

    #[test]
    fn each_of_them_is_warned_of_the_others() {
        let warned = |command, rules: &[RuleReport]| {
            let mut rules = rules.to_vec();
            warn(command, &mut rules);
            rules.into_iter().map(|rule| rule.warnings.join("; ")).collect::<Vec<_>>()
        };
        let said = |names: &str| {
            format!("{names} for the same collection: a document that has expired by both is counted by each, and deleted once")
        };
        let two = [rule("a", "d.c", Some(1)), rule("b", "d.c", Some(2)), rule("c", "d.c", Some(0)), rule("e", "d.c", None)];
        assert_eq!(warned(ReportCommand::Audit, &two), [said("`b` is"), said("`a` is"), String::new(), String::new()]);
        let five: Vec<RuleReport> = ["a", "b", "c", "e", "f"].map(|name| rule(name, "d.c", None)).into();
        assert_eq!(warned(ReportCommand::Sweep, &five), [""; 5]);
        assert_eq!(warned(ReportCommand::Check, &five)[1], said("`a`, `c`, `e` and 1 more are"));
        let mut skipped = five;
        skipped[1..].iter_mut().for_each(|rule| rule.status = Status::Skipped);
        assert_eq!(warned(ReportCommand::Check, &skipped), [""; 5]);
    }

    #[test]
    fn what_a_rule_leaves_does_not_follow_from_its_own_counts_where_others_deleted() {
        let sweep = |deleted, end| RuleOutcome::Swept(Box::new(swept(deleted, end)));
        let stop = || End::Partial(StopReason::MaxDeletes);
        let shared = |outcomes: &[RuleOutcome]| {
            let rules = outcomes.iter().map(|_| planned("", 200)).collect();
            others_deleted(&Plan { as_of: bson::DateTime::from_millis(0), rules, strict: false }, outcomes)
        };
        assert_eq!(shared(&[sweep(3, stop()), sweep(0, stop()), not_swept()]), [false, true, true]);
        assert_eq!(shared(&[sweep(3, stop()), sweep(1, stop())]), [true, true]);
        let mut lost = swept(0, stop());
        lost.outcome.uncertain = true;
        assert_eq!(shared(&[RuleOutcome::Swept(Box::new(lost)), sweep(0, stop())]), [false, true]);
        let left =
            |outcome: RuleOutcome| RuleReport::of(&planned("", 200), &counted(10), &outcome, &Remaining::Shared).remaining_count;
        assert_eq!([left(sweep(3, stop())), left(not_swept()), left(sweep(3, End::Complete))], [None, None, Some(0)]);
        let failed =
            RuleReport::of(&planned("", 200), &Findings::default(), &sweep(3, End::Failed("no".into())), &Remaining::Shared);
        assert_eq!(failed.remaining_count, None);
    }
}
