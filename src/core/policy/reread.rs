//! A policy that is read again while a sweep runs: the sweep takes over its pace and its windows, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use super::duration::format;
use super::limits::Limits;
use super::window::Windows;
use super::{Policy, Rule, RunLimits};

/// The pace and the windows that hold in a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Pacing {
    /// Documents per second of the whole run at most.
    pub rate: Option<u32>,
    /// Delete commands of the whole run in flight at most.
    pub concurrency: Option<u32>,
    /// The limits of the rules by their names, of which only pace and windows count.
    pub rules: BTreeMap<String, Limits>,
}

/// A value of the pacing that was replaced. `None` is the value of a key that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacingChange {
    /// Name of the rule; `None` for the whole run.
    pub rule: Option<String>,
    /// Key of the policy.
    pub key: &'static str,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl Pacing {
    /// Returns the pacing of a policy.
    pub fn of(policy: &Policy) -> Self {
        let RunLimits { rate, concurrency, .. } = policy.run;
        Self { rate, concurrency, rules: policy.rules.iter().map(|rule| (rule.name.clone(), rule.limits.clone())).collect() }
    }

    /// Takes over the pacing of a policy, and returns what that changes. Rules that it does not have keep theirs.
    pub fn take(&mut self, policy: &Policy) -> Vec<PacingChange> {
        let Self { rate, concurrency, rules } = Self::of(policy);
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let of_run = [("run.rate", self.rate, rate), ("run.concurrency", self.concurrency, concurrency)];
        let of_run = of_run.map(|(key, before, after)| (key, number(before), number(after)));
        let mut changes = changed(None, of_run);
        (self.rate, self.concurrency) = (rate, concurrency);
        for (name, now) in rules {
            let Some(before) = self.rules.get_mut(&name) else { continue };
            let values = texts(before).into_iter().zip(texts(&now));
            changes.extend(changed(Some(&name), values.map(|((key, before), (_, after))| (key, before, after))));
            *before = now;
        }
        changes
    }
}

fn changed(
    rule: Option<&str>,
    values: impl IntoIterator<Item = (&'static str, Option<String>, Option<String>)>,
) -> Vec<PacingChange> {
    let changed = values.into_iter().filter(|(_, before, after)| before != after);
    changed.map(|(key, before, after)| PacingChange { rule: rule.map(str::to_owned), key, before, after }).collect()
}

/// Returns the keys of a rule's pace and windows with their values as texts.
fn texts(limits: &Limits) -> [(&'static str, Option<String>); 9] {
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let seconds = |time: Option<Duration>| time.map(|time| format(i64::try_from(time.as_secs()).unwrap_or(i64::MAX)));
    let millis = |time: Duration| time.as_millis().to_string();
    [
        ("rate", number(limits.rate)),
        ("concurrency", number(limits.concurrency)),
        ("batchSize", number(limits.batch_size)),
        ("targetBatchMs", Some(millis(limits.target_batch))),
        ("maxLag", seconds(limits.max_lag)),
        ("maxDirty", limits.max_dirty.map(|share| share.to_string())),
        ("maxHeadMs", limits.max_head.map(millis)),
        ("minOplogWindow", seconds(limits.min_oplog_window)),
        ("window", limits.window.as_ref().map(Windows::to_string)),
    ]
}

/// Names what a sweep that began with the policy `before` does not take over from the policy `now`. Empty if there is nothing.
pub fn not_taken(before: &Policy, now: &Policy) -> Vec<String> {
    let of_policy = [
        ("connection", before.connection != now.connection),
        ("run.maxDuration", before.run.max_duration != now.run.max_duration),
        ("lock", before.lock != now.lock),
        ("history", before.history != now.history),
        ("journal", before.journal != now.journal),
    ];
    let of_policy = of_policy.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| format!("`{key}`"));
    let rules = now.rules.iter().filter_map(|rule| match before.rule(&rule.name) {
        Some(begun) => {
            let keys = other_keys(begun, rule);
            (!keys.is_empty()).then(|| format!("{} of rule `{}`", keys.join(", "), rule.name))
        }
        None => Some(format!("the new rule `{}`", rule.name)),
    });
    let gone = before.rules.iter().filter(|rule| now.rule(&rule.name).is_none());
    let gone = gone.map(|rule| format!("the end of rule `{}`", rule.name));
    of_policy.chain(rules).chain(gone).collect()
}

/// Returns the keys of a rule that changed, pace and windows left out.
fn other_keys(before: &Rule, now: &Rule) -> Vec<String> {
    let Rule {
        name: _,
        namespace,
        exclude,
        field,
        expire_after_seconds,
        ttl_field,
        filter,
        collation,
        variables,
        date_format,
        hint,
        order,
        enabled,
        limits: Limits { max_request_units, max_deletes, max_delete_percent, .. },
        allow_collection_scan,
        allow_unknown_fields,
        allow_unknown_types,
        archive,
        family,
        holds,
        periods,
    } = now;
    let keys = [
        ("namespace", *namespace != before.namespace),
        ("exclude", *exclude != before.exclude),
        ("field", *field != before.field),
        ("expireAfter", *expire_after_seconds != before.expire_after_seconds),
        ("ttlField", *ttl_field != before.ttl_field),
        ("filter", *filter != before.filter || *variables != before.variables),
        ("collation", *collation != before.collation),
        ("dateFormat", *date_format != before.date_format),
        ("hint", *hint != before.hint),
        ("order", *order != before.order),
        ("enabled", *enabled != before.enabled),
        ("maxRequestUnits", *max_request_units != before.limits.max_request_units),
        ("maxDeletes", *max_deletes != before.limits.max_deletes),
        ("maxDeletePercent", *max_delete_percent != before.limits.max_delete_percent),
        ("allowCollectionScan", *allow_collection_scan != before.allow_collection_scan),
        ("allowUnknownFields", *allow_unknown_fields != before.allow_unknown_fields),
        ("allowUnknownTypes", *allow_unknown_types != before.allow_unknown_types),
        ("archive", *archive != before.archive),
        ("children", *family != before.family),
        ("holds", *holds != before.holds),
        ("periods", *periods != before.periods),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| format!("`{key}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::policy::parse::parse;

    fn policy(rules: &[&str], rest: &str) -> Policy {
        let rules: String = rules
            .iter()
            .map(|keys| {
                let filter = if keys.contains("filter") { "" } else { ", filter: {a: 1}" };
                format!("  - {{namespace: app.c, field: at, expireAfter: 1d{filter}, {keys}}}\n")
            })
            .collect();
        let text = format!("version: 1\ncollections:\n{rules}{rest}");
        parse("p.yaml", &text, &|_| None, true).unwrap_or_else(|invalid| panic!("{text}: {:?}", invalid.lines()))
    }

    /// Returns what a sweep takes over, in words, and what it does not.
    fn between(before: (&str, &str), now: (&str, &str)) -> (Vec<String>, Vec<String>) {
        let [before, now] = [before, now].map(|(keys, rest)| policy(&[&format!("name: a, {keys}")], rest));
        let mut pacing = Pacing::of(&before);
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let words = |change: PacingChange| {
            let rule = change.rule.map(|rule| format!("{rule}: ")).unwrap_or_default();
            format!("{rule}{} {} {}", change.key, shown(change.before), shown(change.after))
        };
        let changes = pacing.take(&now).into_iter().map(words).collect();
        assert_eq!(pacing, Pacing::of(&now));
        (changes, not_taken(&before, &now))
    }

    #[test]
    fn pace_and_windows_are_taken_over_and_each_change_is_told() {
        for (before, after, change) in [
            ("rate: 100", "rate: 200", "a: rate 100 200"),
            ("order: auto", "rate: 200", "a: rate - 200"),
            ("rate: 100", "order: auto", "a: rate 100 -"),
            ("concurrency: 1", "concurrency: 2", "a: concurrency 1 2"),
            ("batchSize: 10", "batchSize: 20", "a: batchSize 10 20"),
            ("order: auto", "targetBatchMs: 500", "a: targetBatchMs 200 500"),
            ("maxLag: 10s", "maxLag: 2m", "a: maxLag 10s 2m"),
            ("maxDirty: 15", "maxDirty: 2.5", "a: maxDirty 15 2.5"),
            ("maxHeadMs: 15", "order: auto", "a: maxHeadMs 15 -"),
            ("minOplogWindow: 24h", "minOplogWindow: 36h", "a: minOplogWindow 1d 1d12h"),
            (
                "window: {start: '01:00', end: '02:00'}",
                "window: [{start: '01:00', end: '03:00'}, {start: '05:00', end: '06:00', days: [sat]}]",
                "a: window 01:00:00 to 02:00:00 UTC 01:00:00 to 03:00:00 UTC or 05:00:00 to 06:00:00 UTC on Sat",
            ),
        ] {
            assert_eq!(between((before, ""), (after, "")), (vec![change.to_owned()], vec![]), "{before} -> {after}");
        }
        let run = |rate| format!("run: {{rate: {rate}, concurrency: 2}}\n");
        let (changes, kept) = between(("rate: 1", &run(5)), ("rate: 1", &run(6)));
        assert_eq!((changes, kept), (vec!["run.rate 5 6".to_owned()], vec![]));
        let (changes, kept) = between(("rate: 1", &run(5)), ("rate: 1", ""));
        assert_eq!((changes, kept), (vec!["run.rate 5 -".to_owned(), "run.concurrency 2 -".to_owned()], vec![]));
    }

    #[test]
    fn every_other_change_is_named_and_not_taken_over() {
        for (after, key) in [
            ("exclude: [app.b], namespace: 'app.*'", "`namespace`, `exclude`"),
            ("field: on", "`field`"),
            ("expireAfter: 2d", "`expireAfter`"),
            ("ttlField: ttl", "`ttlField`"),
            ("filter: {a: 2}", "`filter`"),
            ("collation: {locale: en}", "`collation`"),
            ("dateFormat: epochMillis", "`dateFormat`"),
            ("hint: at_1", "`hint`"),
            ("order: storage", "`order`"),
            ("enabled: false", "`enabled`"),
            ("maxRequestUnits: 400", "`maxRequestUnits`"),
            ("maxDeletes: 5", "`maxDeletes`"),
            ("maxDeletePercent: 5", "`maxDeletePercent`"),
            ("allowCollectionScan: true", "`allowCollectionScan`"),
            ("allowUnknownFields: [a]", "`allowUnknownFields`"),
            ("allowUnknownTypes: [a]", "`allowUnknownTypes`"),
            ("archive: {directory: /backups}", "`archive`"),
            ("holds: {collection: app.holds, key: a}", "`holds`"),
            ("periods: {collection: app.tenants, key: a, value: days, unit: d}", "`periods`"),
        ] {
            let line = |keys: &str| {
                let mut all = vec![("namespace", "app.c"), ("field", "at"), ("expireAfter", "1d")];
                all.retain(|(name, _)| !keys.contains(&format!("{name}: ")));
                let all: Vec<String> = all.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                format!("version: 1\ncollections:\n  - {{name: a, {}, {keys}}}\n", all.join(", "))
            };
            let [before, now] = ["enabled: true", after].map(|keys| parse("p.yaml", &line(keys), &|_| None, true).unwrap());
            assert_eq!(not_taken(&before, &now), [format!("{key} of rule `a`")], "{after}");
            assert_eq!(Pacing::of(&before).take(&now), [], "{after}");
        }
        let journal = "journal: {collection: ops.journal}\n";
        let children = "children: [{namespace: app.d, field: of}]";
        let (_, kept) = between(("rate: 1", journal), (&format!("rate: 1, {children}"), journal));
        assert_eq!(kept, ["`children` of rule `a`"]);
        for (rest, key) in [
            ("run: {maxDuration: 1h}\n", "`run.maxDuration`"),
            ("connection: {expect: {replicaSet: rs0}}\n", "`connection`"),
            ("lock: {collection: ops.locks}\n", "`lock`"),
            ("history: {collection: ops.runs}\n", "`history`"),
            (journal, "`journal`"),
        ] {
            assert_eq!(between(("rate: 1", ""), ("rate: 1", rest)), (vec![], vec![key.to_owned()]));
        }
    }

    #[test]
    fn a_rule_that_is_new_is_not_taken_over_and_one_that_is_gone_keeps_its_pace() {
        let [before, now] =
            [["name: a, rate: 1", "name: b, rate: 1"], ["name: a, rate: 2", "name: c, rate: 2"]].map(|rules| policy(&rules, ""));
        let mut pacing = Pacing::of(&before);
        assert_eq!(pacing.take(&now).len(), 1);
        let rates: Vec<_> = pacing.rules.iter().map(|(name, limits)| (name.as_str(), limits.rate)).collect();
        assert_eq!(rates, [("a", Some(2)), ("b", Some(1))]);
        assert_eq!(not_taken(&before, &now), ["the new rule `c`", "the end of rule `b`"]);
    }
}
