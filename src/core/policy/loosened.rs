//! The restrictions that a policy has lost since the one before it: signs of a file that was read while it was being written.

use bson::{Bson, Document};

use super::window::Windows;
use super::{Policy, Rule, duration};

/// A period that becomes this many times shorter is a slip more often than a wish.
const MAX_SHORTENED: u32 = 10;

/// Returns what was lost, one sentence each: of the policy, and of its rules that have the name of a rule before. Empty if
/// nothing was.
pub fn loosened(before: &Policy, now: &Policy) -> Vec<String> {
    let (had, has) = (&before.connection.expect, &now.connection.expect);
    let expect = [
        ("connection.expect.replicaSet", had.replica_set.is_some() && has.replica_set.is_none()),
        ("connection.expect.hosts", had.hosts.len() > has.hosts.len()),
    ];
    let of_policy = expect.into_iter().filter(|(_, is_lost)| *is_lost).map(|(key, _)| format!("`{key}` is gone"));
    let pairs = now.rules.iter().filter_map(|rule| Some((before.rule(&rule.name)?, rule)));
    of_policy.chain(pairs.flat_map(|(before, now)| of_rule(before, now))).collect()
}

fn of_rule(before: &Rule, now: &Rule) -> Vec<String> {
    let lost = [
        ("`filter`, or a part of it,", is_filter_lost(before.filter.as_ref(), now.filter.as_ref())),
        ("`holds`", before.holds.is_some() && now.holds.is_none()),
        ("`periods`", before.periods.is_some() && now.periods.is_none()),
        ("`ttlField`", before.ttl_field.is_some() && now.ttl_field.is_none()),
        ("`exclude`, or a part of it,", before.exclude.iter().any(|pattern| !now.exclude.contains(pattern))),
        ("`archive`", before.archive.is_some() && now.archive.is_none()),
        ("`maxDeletes`", before.limits.max_deletes.is_some() && now.limits.max_deletes.is_none()),
        ("`maxDeletePercent`", before.limits.max_delete_percent.is_some() && now.limits.max_delete_percent.is_none()),
        ("`window`, or a part of it,", is_window_lost(before.limits.window.as_ref(), now.limits.window.as_ref())),
        ("`enabled: false`", !before.enabled && now.enabled),
    ];
    let lost = lost.into_iter().filter(|(_, is_lost)| *is_lost).map(|(what, _)| format!("rule `{}`: {what} is gone", now.name));
    lost.chain(shortened(before, now)).chain(counted_shorter(before, now)).collect()
}

fn is_filter_lost(before: Option<&Document>, now: Option<&Document>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before != now && is_part(&now.into(), &before.into()),
        (before, now) => before.is_some() && now.is_none(),
    }
}

fn is_window_lost(before: Option<&Windows>, now: Option<&Windows>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => now.has_lost_days(before),
        (before, now) => before.is_some() && now.is_none(),
    }
}

/// Whether a value is what is left of another if anything is left out.
fn is_part(part: &Bson, whole: &Bson) -> bool {
    match (part, whole) {
        (Bson::Document(part), Bson::Document(whole)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|whole| is_part(value, whole)))
        }
        (Bson::Array(part), Bson::Array(whole)) => {
            part.len() <= whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
        }
        // A key whose value is left out reads as null.
        (Bson::Null, _) => true,
        _ => part == whole,
    }
}

/// Says that the numbers of `periods` stand for shorter times than before; `None` if they do not.
fn counted_shorter(before: &Rule, now: &Rule) -> Option<String> {
    let (was, is) = (before.periods.as_ref()?.unit, now.periods.as_ref()?.unit);
    let (was_shown, is_shown) = (duration::format(was), duration::format(is));
    (is < was).then(|| format!("rule `{}`: a number of `periods` stands for {is_shown} each, {was_shown} before", now.name))
}

/// Says that a period is far shorter than it was; `None` if it is not.
fn shortened(before: &Rule, now: &Rule) -> Option<String> {
    let (was, is) = (before.expire_after_seconds, now.expire_after_seconds?);
    let shown = |seconds: u32| duration::format(seconds.into());
    match was {
        // Only documents with a ttl of their own expired.
        None => Some(format!(
            "rule `{}`: documents without a ttl of their own expire after {}; before, none did",
            now.name,
            shown(is)
        )),
        Some(was) if is < was / MAX_SHORTENED => Some(format!(
            "rule `{}`: documents expire after {}, less than a tenth of the {} before",
            now.name,
            shown(is),
            shown(was)
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::policy::parse::{may_be_cut, parse};

    /// Every key that keeps documents back, each at the end of a rule.
    const WHOLE: &str = "version: 1
collections:
  - namespace: app.jobs
    field: at
    expireAfterSeconds: 7776000
    filter:
      status: done
      owner:
        $ne: legal
        $exists: true
  - namespace: app.held
    field: at
    expireAfter: 90d
    holds: {collection: app.holds, key: _id}
  - namespace: app.own
    field: at
    expireAfter: 90d
    ttlField: ttl
  - {name: some, namespace: 'app.c*', field: at, expireAfter: 90d, exclude: [app.carts]}
  - namespace: app.archived
    field: at
    expireAfter: 90d
    archive: {directory: /backups}
  - namespace: app.few
    field: at
    expireAfter: 90d
    maxDeletes: 1000
  - namespace: app.share
    field: at
    expireAfter: 90d
    maxDeletePercent: 10
  - namespace: app.night
    field: at
    expireAfter: 90d
    window:
      - start: '02:00'
        end: '04:00'
        days: [sat]
  - namespace: app.not
    field: at
    expireAfter: 90d
    enabled: false
connection:
  expect:
    replicaSet: rs0
    hosts: [a:27017]
";

    fn read(text: &str) -> Option<Policy> {
        parse("p.yaml", text, &|_| None, true).ok()
    }

    #[test]
    fn a_policy_that_was_cut_is_refused_or_has_lost_something_or_has_only_fewer_rules() {
        let whole = read(WHOLE).unwrap();
        assert_eq!(loosened(&whole, &whole), Vec::<String>::new());
        let (mut valid, mut open, mut said) = (0, 0, Vec::new());
        for end in 0..WHOLE.len() {
            let text = &WHOLE[..end];
            let Some(cut) = read(text) else { continue };
            valid += 1;
            if may_be_cut(text) {
                open += 1;
                continue;
            }
            let of_rules = loosened(&Policy { connection: cut.connection.clone(), ..whole.clone() }, &cut);
            assert_eq!(of_rules.is_empty(), cut.rules.iter().all(|rule| whole.rules.contains(rule)), "{text}");
            let of_policy = loosened(&whole, &cut);
            assert!(of_policy.iter().any(|why| why.contains("`connection.expect")), "it is the last of all: {text}");
            said.extend(of_rules);
        }
        said.sort();
        said.dedup();
        let said = said.join("\n");
        for key in ["filter", "holds", "ttlField", "archive", "maxDeletes", "maxDeletePercent", "window", "enabled: false"] {
            let part = if ["filter", "window"].contains(&key) { ", or a part of it," } else { "" };
            assert!(said.contains(&format!("`{key}`{part} is gone")), "{key}: {said}");
        }
        assert!(open > valid / 2, "{open} of {valid}");
    }

    #[test]
    fn what_keeps_less_back_is_said_and_what_keeps_more_back_is_not() {
        let rule =
            |keys: &str| read(&format!("version: 1\ncollections:\n  - {{namespace: app.c*, field: at, {keys}}}\n")).unwrap();
        for (before, now, why) in [
            ("expireAfter: 90d", "expireAfter: 9d", ""),
            ("expireAfter: 90d", "expireAfter: 8d", "documents expire after 8d, less than a tenth of the 90d before"),
            ("expireAfter: 1d", "expireAfter: 90d", ""),
            ("expireAfterSeconds: -1, ttlField: ttl", "expireAfter: 90d, ttlField: ttl", "before, none did"),
            (
                "expireAfter: 1d, periods: {collection: app.t, key: t, value: v, unit: d}",
                "expireAfter: 1d, periods: {collection: app.t, key: t, value: v, unit: h}",
                "a number of `periods` stands for 1h each, 1d before",
            ),
            (
                "expireAfter: 1d, periods: {collection: app.t, key: t, value: v, unit: h}",
                "expireAfter: 1d, periods: {collection: app.t, key: t, value: v, unit: d}",
                "",
            ),
            ("expireAfter: 1d, filter: {a: 1}", "expireAfter: 1d, filter: {a: 2}", ""),
            ("expireAfter: 1d", "expireAfter: 1d, filter: {a: 2}, maxDeletes: 5", ""),
            (
                "expireAfter: 1d, exclude: [app.ca, app.cb]",
                "expireAfter: 1d, exclude: [app.cb]",
                "`exclude`, or a part of it, is gone",
            ),
            (
                "expireAfter: 1d, filter: {a: 1, b: {$in: [1, 2]}}",
                "expireAfter: 1d, filter: {a: 1, b: {$in: [1]}}",
                "`filter`, or a part of it, is gone",
            ),
            ("expireAfter: 1d, filter: {a: 1, b: 2}", "expireAfter: 1d, filter: {b: 2}", "`filter`, or a part of it, is gone"),
            (
                "expireAfter: 1d, filter: {a: 1, b: 2}",
                "expireAfter: 1d, filter: {a: 1, b: null}",
                "`filter`, or a part of it, is gone",
            ),
            ("expireAfter: 1d, filter: {a: 1, b: 2}", "expireAfter: 1d, filter: {a: 1, c: 2}", ""),
            (
                "expireAfter: 1d, window: [{start: '01:00', end: '02:00', days: [sat]}]",
                "expireAfter: 1d, window: {start: '01:00', end: '02:00'}",
                "`window`, or a part of it, is gone",
            ),
            (
                "expireAfter: 1d, window: [{start: '01:00', end: '02:00'}, {start: '03:00', end: '04:00'}]",
                "expireAfter: 1d, window: {start: '01:00', end: '02:00'}",
                "",
            ),
        ] {
            let lost = loosened(&rule(before), &rule(now)).join("\n");
            assert!(lost.contains(why) && lost.is_empty() == why.is_empty(), "{before} -> {now}: {lost}");
        }
    }
}
