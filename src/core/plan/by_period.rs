//! The classes of the documents of a rule with periods, each of which expires by a time of its own.

use std::collections::BTreeMap;

use bson::spec::ElementType;
use bson::{Bson, DateTime, RawDocument, doc};

use super::judgement::PeriodWhy;
use super::periods::{KeptKeys, PeriodByKey, PeriodRule};
use crate::base::values::integer;
use crate::base::values::raw::RawValue;
use crate::core::audit::distribution::{Distribution, projected};
use crate::core::audit::figures::{PeriodDocuments, PeriodKind};
use crate::core::audit::ranges;
use crate::core::expiry::Expiry;

/// Documents by their classes, and by their periods.
pub(crate) struct ByPeriod<'a> {
    rule: &'a PeriodRule,
    keys: PeriodByKey,
    age_bounds: Vec<i64>,
    pub found: Distribution,
    counts: BTreeMap<(PeriodKind, Option<i64>), u64>,
}

impl<'a> ByPeriod<'a> {
    /// Begins without documents.
    pub(crate) fn new(rule: &'a PeriodRule, keys: &KeptKeys) -> Self {
        let found = Distribution::read(&rule.expiry, &[]);
        Self { rule, keys: keys.by_key(), age_bounds: ranges::bounds_ms(), found, counts: BTreeMap::new() }
    }

    /// Enters a document, as the stages of [`Expiry::seen`] show it.
    pub(crate) fn enter(&mut self, seen: &RawDocument) {
        let value = |name: &str| RawValue::at(seen, name).filter(|value| value.kind() != ElementType::Null);
        let of_keys: Vec<_> = match value("k") {
            Some(list) if list.kind() == ElementType::Array => list.items().into_iter().map(|key| self.keys.of(key)).collect(),
            Some(key) => vec![self.keys.of(key)],
            None => Vec::new(),
        };
        // No key has no period.
        let period = self.rule.longest(if of_keys.is_empty() { &[None] } else { &of_keys });
        let (kind, seconds, never) = match period {
            PeriodWhy::Period(seconds) => (PeriodKind::Period, Some(seconds), None),
            PeriodWhy::OfRule(seconds) => (PeriodKind::OfRule, Some(seconds.into()), None),
            PeriodWhy::Never => (PeriodKind::Never, None, Some("periodNever")),
            PeriodWhy::Unclear => (PeriodKind::Unclear, None, Some("periodUnclear")),
            PeriodWhy::Missing => (PeriodKind::Missing, None, Some("noPeriod")),
        };
        *self.counts.entry((kind, seconds)).or_default() += 1;
        let number = |name: &str| value(name).and_then(|value| value.decoded()).and_then(|value| integer(&value));
        let (seconds, never) = match number("ttl") {
            Some(-1) => (None, Some("ttlNever")),
            Some(ttl) if ttl <= 0 => (None, Some("ttlNotPositive")),
            Some(ttl) => (Some(ttl), None),
            None => (seconds, never),
        };
        let undated = value("r").and_then(|reason| reason.decoded());
        let Expiry { as_of, not_before_1970, .. } = &self.rule.expiry;
        let date = number("ms");
        let is_kept = *not_before_1970 && date.is_some_and(|millis| millis < 0);
        let before = is_kept.then(|| Bson::from("before1970"));
        let never = undated.or(before).or(never.map(Bson::from));
        match (never, date.zip(seconds)) {
            (None, Some((millis, seconds))) => {
                let left = millis.saturating_add(seconds.saturating_mul(1000)).saturating_sub(as_of.timestamp_millis());
                self.found.enter_one(&self.rule.expiry, &self.age_bounds, DateTime::from_millis(millis), left);
            }
            (never, _) => {
                let id = value("_id").and_then(|id| id.decoded()).unwrap_or(Bson::Null);
                self.found.enter_rest(&doc! { "_id": { "r": never.unwrap_or("missing".into()) }, "n": 1, "first": id });
            }
        }
    }

    /// Returns the documents by their periods, the shortest first; of `sampled`, as many as were drawn of all.
    pub(crate) fn periods(&self, sampled: Option<(u64, u64)>) -> Vec<PeriodDocuments> {
        let of = |((kind, seconds), count): (&(PeriodKind, Option<i64>), &u64)| PeriodDocuments {
            kind: *kind,
            seconds: *seconds,
            count: projected(*count, sampled),
        };
        self.counts.iter().map(of).collect()
    }
}
