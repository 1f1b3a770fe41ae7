//! The estimate of a sweep in words.

use serde_json::Value;

use super::amount::is_of_buckets;
use super::{Report, RuleReport, json};
use crate::base::text::{self, bytes, count, duration, plural};
use crate::core::plan::estimate::{Estimate, SpeedSource};

/// Returns the estimate of a rule in clauses, without what is unknown, and without what is the same for all rules of a run:
/// `adds 1.17 MiB to the oplog`.
pub(super) fn of_rule(rule: &RuleReport) -> Vec<String> {
    let Some(estimate) = &rule.estimate else { return Vec::new() };
    let noun = if is_of_buckets(rule) { "bucket" } else { "document" };
    let children = estimate.children.filter(|number| *number > 0);
    let children = children.map_or_else(String::new, |number| format!(" and {}", text::children(number)));
    let what = plural(estimate.documents, noun) + &children;
    let mut clauses = vec![format!("would delete {what}{}", in_size_and_time(estimate, noun))];
    clauses.extend(estimate.oplog_bytes.map(|size| format!("adds {} to the oplog", bytes(size))));
    clauses.extend(estimate.reusable_bytes.map(|size| format!("makes {} reusable", bytes(size))));
    let compact = estimate.compact_bytes.filter(|size| *size > 0);
    let on_each = if matches!(estimate.compact_members.as_deref(), Some([_, _, ..])) { " on each member" } else { "" };
    clauses.extend(compact.map(|size| format!("`compact`{on_each} would free {}", bytes(size))));
    clauses
}

/// Returns the estimate of a rule that stands for itself in clauses: the clauses of [`of_rule`], the oplog's window, and the
/// members to compact.
pub(super) fn clauses(rule: &RuleReport) -> Vec<String> {
    let mut clauses = of_rule(rule);
    let Some(estimate) = &rule.estimate else { return clauses };
    clauses.extend(estimate.oplog_window_seconds.map(|now| match estimate.oplog_window_after_seconds {
        Some(after) => format!("the oplog window is {}", window(now, "", after)),
        None => format!("the oplog window is {} now, and unknown after the sweep", seconds(now)),
    }));
    clauses.extend(of_deployment(estimate));
    clauses
}

/// Returns what the estimates of several rules say of the deployment, each clause once; nothing where only one rule has an
/// estimate, which says it itself.
pub(super) fn of_deployment_once(report: &Report) -> Vec<String> {
    let mut clauses: Vec<String> = Vec::new();
    for clause in estimates(report).filter(|_| has_several(report)).flat_map(of_deployment) {
        if !clauses.contains(&clause) {
            clauses.push(clause);
        }
    }
    clauses
}

/// Whether several rules have an estimate, so that what is the same for all of them is said once.
pub(super) fn has_several(report: &Report) -> bool {
    estimates(report).nth(1).is_some()
}

fn estimates(report: &Report) -> impl Iterator<Item = &Estimate> {
    report.rules.iter().filter_map(|rule| rule.estimate.as_ref()).filter(|estimate| estimate.documents > 0)
}

/// Returns why the oplog is unknown, and the members to compact.
fn of_deployment(estimate: &Estimate) -> Vec<String> {
    let unknown = estimate.oplog_unknown.as_ref().map(|why| format!("what the sweep leaves of the oplog is unknown: {why}"));
    let members = match (estimate.compact_bytes, estimate.compact_members.as_deref()) {
        (None | Some(0), _) | (_, None | Some([])) => None,
        (_, Some([only])) => Some(format!("the member to `compact` is {only}")),
        (_, Some([secondaries @ .., primary])) => {
            Some(format!("the members to `compact`, in this order: {}, then {primary} (primary)", secondaries.join(", ")))
        }
    };
    unknown.into_iter().chain(members).collect()
}

/// Returns the values that are known, by their names in the report.
pub(super) fn named(estimate: &Estimate) -> Vec<(String, String)> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        value => value.to_string(),
    };
    let known = json::values(estimate).into_iter().filter(|(_, value)| !value.is_null());
    known.map(|(name, value)| (name, text(value))).collect()
}

/// Returns the estimate of a sweep by some rules in a few words: `about 12.0 s, 1.17 MiB of oplog`. `max_deletes` is the limit of
/// the run. `None` if nothing was estimated.
pub(super) fn of_all(rules: &[&RuleReport], max_deletes: Option<u64>) -> Option<String> {
    let units: f64 = rules.iter().filter_map(|rule| rule.estimated_request_units).sum();
    if units > 0.0 {
        let seconds = rules.iter().map(|rule| rule.estimated_seconds).sum();
        return Some(cost(units, seconds));
    }
    let estimates: Vec<&Estimate> = rules.iter().filter_map(|rule| rule.estimate.as_ref()).collect();
    let sum = |of: fn(&Estimate) -> u64| estimates.iter().map(|estimate| of(estimate)).fold(0, u64::saturating_add);
    let (documents, children) = (sum(|estimate| estimate.documents), sum(|estimate| estimate.children.unwrap_or(0)));
    if documents == 0 && children == 0 {
        return None;
    }
    let part = max_deletes.map_or(1.0, |most| (most as f64 / documents as f64).min(1.0));
    let assumed = estimates.iter().any(|estimate| estimate.speed_source == SpeedSource::Assumption);
    // A cast from float saturates.
    let size: Option<u64> = estimates.iter().map(|estimate| estimate.bytes).sum();
    let size = size.map_or_else(String::new, |size| format!(" for {}", bytes((size as f64 * part) as u64)));
    let in_time = time(estimates.iter().map(|estimate| Some(estimate.seconds? * part)).sum());
    let mut parts = vec![format!("{in_time}{}{size}", if assumed { " (no history yet)" } else { "" })];
    let size: Option<u64> = estimates.iter().map(|estimate| estimate.oplog_bytes).sum();
    parts.extend(size.map(|size| {
        let shortest = |of: fn(&Estimate) -> Option<u64>| estimates.iter().filter_map(|estimate| of(estimate)).min();
        let now = shortest(|estimate| estimate.oplog_window_seconds);
        let after = shortest(|estimate| estimate.oplog_window_after_seconds);
        let at_most = if estimates.len() > 1 { "at most " } else { "" };
        let window = now.zip(after).map(|(now, after)| format!(", whose window is {}", window(now, at_most, after)));
        // A cast from float saturates.
        format!("{} of oplog{}", bytes((size as f64 * part) as u64), window.unwrap_or_default())
    }));
    Some(parts.join(", "))
}

/// Returns the estimated cost of a sweep, such as `about 7000 request units, at least 18 s`.
pub(super) fn cost(units: f64, seconds: Option<f64>) -> String {
    let time = seconds.map_or_else(String::new, |seconds| format!(", at least {}", duration((seconds * 1000.0) as u64)));
    format!("about {units:.0} request units{time}")
}

fn in_size_and_time(estimate: &Estimate, noun: &str) -> String {
    let size = estimate.bytes.map(|size| format!(" of {}", bytes(size))).unwrap_or_default();
    let speed = format!("{} {noun}s per second", count(estimate.documents_per_second as u64));
    let speed = match estimate.speed_source {
        SpeedSource::History => format!("by the {speed} of earlier sweeps"),
        SpeedSource::Assumption => format!("assuming {speed} (no history yet)"),
    };
    format!("{size} in {}, {speed} and the limits", time(estimate.seconds))
}

fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "an unknown time".to_owned(),
        Some(..1.0) => "less than a second".to_owned(),
        // A cast from float saturates.
        Some(seconds) => format!("about {}", duration((seconds * 1000.0) as u64)),
    }
}

/// Returns the time that the oplog covers, in seconds, now and after the sweep. Only an oplog that is not full can cover more
/// later.
fn window(now: u64, at_most: &str, after: u64) -> String {
    match after > now {
        true => format!("{} now (it is not full yet; once it is, {at_most}{})", seconds(now), seconds(after)),
        false => format!("{} now, and {at_most}{} after the sweep", seconds(now), seconds(after)),
    }
}

fn seconds(seconds: u64) -> String {
    duration(seconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::made_up::{dry_run, report};

    #[test]
    fn what_is_unknown_is_said_or_left_out_and_never_zero() {
        let known = Estimate {
            documents: 1200,
            children: None,
            bytes: Some(2048),
            seconds: Some(12.0),
            documents_per_second: 100.0,
            speed_source: SpeedSource::History,
            oplog_bytes_per_document: Some(125.0),
            oplog_bytes: Some(150_000),
            oplog_window_seconds: Some(86_400),
            oplog_window_after_seconds: Some(80_000),
            oplog_unknown: None,
            reusable_bytes: Some(4096),
            compact_bytes: Some(8192),
            compact_members: Some(vec!["b:1".into(), "c:1".into(), "a:1".into()]),
        };
        let rule = |estimate: &Estimate| RuleReport { estimate: Some(estimate.clone()), ..report("r", "app.c") };
        assert_eq!(
            clauses(&rule(&Estimate { children: Some(0), ..known.clone() })),
            [
                "would delete 1,200 documents of 2.00 KiB in about 12.0 s, by the 100 documents per second of earlier sweeps and the limits",
                "adds 146.48 KiB to the oplog",
                "makes 4.00 KiB reusable",
                "`compact` on each member would free 8.00 KiB",
                "the oplog window is 24h 00m now, and 22h 13m after the sweep",
                "the members to `compact`, in this order: b:1, c:1, then a:1 (primary)",
            ]
        );
        let of_all = |estimates: &[&Estimate], most| {
            let rules: Vec<RuleReport> = estimates.iter().map(|estimate| rule(estimate)).collect();
            of_all(&rules.iter().collect::<Vec<_>>(), most)
        };
        assert_eq!(
            of_all(&[&known], None).unwrap(),
            "about 12.0 s for 2.00 KiB, 146.48 KiB of oplog, whose window is 24h 00m now, and 22h 13m after the sweep"
        );
        let less = Estimate { oplog_window_after_seconds: Some(70_000), ..known.clone() };
        let both =
            "about 24.0 s for 4.00 KiB, 292.97 KiB of oplog, whose window is 24h 00m now, and at most 19h 26m after the sweep";
        assert_eq!(of_all(&[&known, &less], None).unwrap(), both);
        let half =
            "about 12.0 s for 2.00 KiB, 146.48 KiB of oplog, whose window is 24h 00m now, and at most 19h 26m after the sweep";
        assert_eq!(of_all(&[&known, &less], Some(1200)).unwrap(), half);
        let young = Estimate { oplog_window_seconds: Some(8), ..known.clone() };
        let grows = "the oplog window is 8.0 s now (it is not full yet; once it is, 22h 13m)";
        assert!(clauses(&rule(&young)).contains(&grows.to_owned()));
        assert!(
            of_all(&[&young], None).unwrap().ends_with("whose window is 8.0 s now (it is not full yet; once it is, 22h 13m)")
        );
        let unclear = Estimate { oplog_window_after_seconds: None, ..known.clone() };
        assert!(clauses(&rule(&unclear)).contains(&"the oplog window is 24h 00m now, and unknown after the sweep".to_owned()));
        let short = Estimate { seconds: Some(0.9), oplog_bytes: None, ..known.clone() };
        assert_eq!(of_all(&[&short], None).unwrap(), "less than a second for 2.00 KiB");
        assert_eq!(of_all(&[], None), None);
        let unknown = Estimate {
            bytes: None,
            seconds: None,
            speed_source: SpeedSource::Assumption,
            oplog_bytes_per_document: None,
            oplog_bytes: None,
            oplog_window_seconds: None,
            oplog_window_after_seconds: None,
            oplog_unknown: Some("not shown".into()),
            reusable_bytes: None,
            compact_bytes: None,
            compact_members: None,
            ..known.clone()
        };
        assert_eq!(
            clauses(&rule(&Estimate { children: Some(3000), ..unknown.clone() })),
            [
                "would delete 1,200 documents and 3,000 children in an unknown time, assuming 100 documents per second (no history yet) and the \
                 limits",
                "what the sweep leaves of the oplog is unknown: not shown",
            ]
        );
        assert_eq!(of_all(&[&unknown], None).unwrap(), "an unknown time (no history yet)");
        let run = |estimates: &[&Estimate]| dry_run(estimates.iter().map(|estimate| rule(estimate)).collect());
        assert_eq!(of_deployment_once(&run(&[&known])), [""; 0]);
        let once = [
            "the members to `compact`, in this order: b:1, c:1, then a:1 (primary)",
            "what the sweep leaves of the oplog is unknown: not shown",
        ];
        assert_eq!(of_deployment_once(&run(&[&known, &known, &unknown, &unknown])), once);
        let orphans = Estimate { documents: 0, children: Some(1), ..short };
        assert_eq!(of_all(&[&orphans], None).unwrap(), "less than a second for 2.00 KiB");
    }
}
