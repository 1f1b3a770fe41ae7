//! Periods: how long documents live by a setting of their tenant, which another collection has.
//!
//! A document of a rule with periods goes if
//!
//! - a ttl of its own says so, which replaces everything else; or
//! - it has expired by the period of its key, or by the rule's own time where its key has no period. A document with a list of
//!   keys has to have expired by each of them, so that the longest period counts.
//!
//! The predicate of the rule selects what has expired by the shortest of all these times, along the index. A condition in every
//! command then leaves out what has a longer one: for each period, the documents with one of its keys that are younger.

mod condition;

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bson::raw::CString;
use bson::spec::ElementType;
use bson::{Bson, Document, RawDocument, doc};

pub(crate) use condition::PeriodCondition;
use condition::write_every_key_has_one;

use super::judgement::PeriodWhy;
use super::keys::{KeyList, canonical};
use crate::base::values::raw::{self, RawValue};
use crate::core::expiry::Expiry;

/// Number of different periods from which on those of similar length share a first look, so that a document is not compared with
/// every one of them.
const MAX_UNGROUPED: usize = 16;

/// The periods of a rule in one namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct PeriodRule {
    /// Path of the period in its document.
    pub value: String,
    /// Seconds of its unit.
    pub unit: i64,
    /// The expiry of the rule without periods.
    pub expiry: Expiry,
    /// The shortest time by which a document can expire, in seconds, as the rule's predicate has it; `None` before the periods
    /// were read, and where nothing can.
    pub shortest: Option<i64>,
}

/// A period, as a document says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Period {
    /// Seconds, above 0.
    Seconds(i64),
    Never,
    /// No value: the rule's own time applies.
    Missing,
    /// It is no whole number above 0, or documents with the same key differ.
    Unclear,
}

/// The keys of one read.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptKeys {
    /// Keys whose documents never go.
    pub held: KeyList,
    /// Keys with a period; `None` for holds.
    pub periods: Option<PeriodKeys>,
}

impl KeptKeys {
    /// Creates the keys of holds.
    pub(crate) fn of(keys: Vec<RawValue>) -> Result<Self, bson::error::Error> {
        Ok(Self { held: KeyList::of(keys)?, periods: None })
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.periods.as_ref().map_or(self.held.count(), PeriodKeys::count)
    }

    /// Returns the bytes that the keys add to a statement.
    pub(crate) fn bytes(&self) -> usize {
        self.held.bytes() + self.periods.as_ref().map_or(0, PeriodKeys::bytes)
    }
}

/// Keys by their periods.
#[derive(Debug, Clone, PartialEq)]
pub struct PeriodKeys {
    /// In ascending order of the periods.
    groups: Vec<PeriodGroup>,
    /// All keys with a period, those included that never expire or are unclear.
    all: KeyList,
    /// Keys whose period is unclear, and whose documents stay.
    pub unclear: KeyList,
    /// Whether no document was found.
    pub is_empty: bool,
}

/// Periods of similar length.
#[derive(Debug, Clone, PartialEq)]
struct PeriodGroup {
    /// Seconds of the longest.
    longest: i64,
    /// The keys of all of them; `None` for one period.
    keys: Option<KeyList>,
    /// Seconds and keys, in ascending order.
    periods: Vec<(i64, KeyList)>,
}

impl PeriodRule {
    /// Returns the longest of the times that keys of a document have; `None` among them stands for a key without a period.
    pub(crate) fn longest(&self, of_keys: &[Option<Period>]) -> PeriodWhy {
        let has = |period| of_keys.contains(&Some(period));
        if has(Period::Unclear) {
            return PeriodWhy::Unclear;
        }
        if has(Period::Never) {
            return PeriodWhy::Never;
        }
        let seconds = |period: &Option<Period>| match period {
            Some(Period::Seconds(seconds)) => Some(*seconds),
            _ => None,
        };
        let longest = of_keys.iter().filter_map(seconds).max();
        // The rule's own time counts for a key without a period, and for a document without a key.
        let counts_own = longest.is_none() || of_keys.contains(&None);
        match (longest, self.expiry.expire_after_seconds) {
            (_, None) if counts_own => PeriodWhy::Missing,
            (Some(longest), Some(own)) if counts_own && longest <= i64::from(own) => PeriodWhy::OfRule(own),
            (Some(longest), _) => PeriodWhy::Period(longest),
            (None, own) => own.map_or(PeriodWhy::Missing, PeriodWhy::OfRule),
        }
    }
}

impl Period {
    /// Reads the period of a document, in this unit of seconds.
    pub(crate) fn read(document: &RawDocument, path: &str, unit: i64) -> Self {
        let ends = path.match_indices('.').map(|(end, _)| end);
        let before = ends.filter_map(|end| RawValue::at(document, &path[..end]));
        // A list has several values, and something else has none that is meant.
        if before.into_iter().any(|value| value.kind() != ElementType::EmbeddedDocument) {
            return Self::Unclear;
        }
        let Some(value) = RawValue::at(document, path) else { return Self::Missing };
        let number = match value.decoded() {
            Some(Bson::Int32(number)) => i64::from(number),
            Some(Bson::Int64(number)) => number,
            // Doubles below 2^53 are whole numbers exactly.
            Some(Bson::Double(number)) if number.trunc() == number && number.abs() < 9e15 => number as i64,
            _ => return Self::Unclear,
        };
        match number {
            -1 => Self::Never,
            // Whatever is too long for a number is longer than any age.
            1.. => Self::Seconds(number.saturating_mul(unit)),
            _ => Self::Unclear,
        }
    }
}

impl KeptKeys {
    /// Creates the keys of periods, as they were read.
    pub(crate) fn of_periods(read: Vec<(RawValue, Period)>) -> Result<Self, bson::error::Error> {
        let mut by_key: HashMap<RawValue, Period> = HashMap::with_capacity(read.len());
        let is_empty = read.is_empty();
        for (key, period) in read {
            match by_key.entry(canonical(key)) {
                Entry::Vacant(free) => drop(free.insert(period)),
                Entry::Occupied(mut known) if *known.get() != period => drop(known.insert(Period::Unclear)),
                Entry::Occupied(_) => {}
            }
        }
        let mut periods: HashMap<i64, Vec<RawValue>> = HashMap::new();
        let (mut held, mut unclear) = (Vec::new(), Vec::new());
        let mut all = Vec::with_capacity(by_key.len());
        for (key, period) in by_key {
            match period {
                Period::Missing => continue,
                Period::Seconds(seconds) => periods.entry(seconds).or_default().push(key.clone()),
                Period::Never => held.push(key.clone()),
                Period::Unclear => {
                    held.push(key.clone());
                    unclear.push(key.clone());
                }
            }
            all.push(key);
        }
        let mut periods: Vec<(i64, Vec<RawValue>)> = periods.into_iter().collect();
        periods.sort_unstable_by_key(|(seconds, _)| *seconds);
        let size = if periods.len() > MAX_UNGROUPED { periods.len().isqrt() } else { 1 };
        let groups = periods.chunks(size).map(PeriodGroup::of).collect::<Result<_, _>>()?;
        let keys = PeriodKeys { groups, all: KeyList::of(all)?, unclear: KeyList::of(unclear)?, is_empty };
        Ok(Self { held: KeyList::of(held)?, periods: Some(keys) })
    }
}

/// The period of each key.
pub(crate) struct PeriodByKey(HashMap<RawValue, Period>);

impl PeriodByKey {
    /// Returns the period of a key; `None` if it has none.
    pub(crate) fn of(&self, key: RawValue) -> Option<Period> {
        self.0.get(&canonical(key)).copied()
    }
}

impl KeptKeys {
    /// Returns the period of each key.
    pub(crate) fn by_key(&self) -> PeriodByKey {
        let items = |keys: &KeyList| keys.list.items();
        let mut by_key: HashMap<RawValue, Period> = items(&self.held).into_iter().map(|key| (key, Period::Never)).collect();
        if let Some(periods) = &self.periods {
            by_key.extend(items(&periods.unclear).into_iter().map(|key| (key, Period::Unclear)));
            for (seconds, keys) in periods.periods() {
                by_key.extend(items(keys).into_iter().map(|key| (key, Period::Seconds(*seconds))));
            }
        }
        PeriodByKey(by_key)
    }
}

impl PeriodGroup {
    fn of(periods: &[(i64, Vec<RawValue>)]) -> Result<Self, bson::error::Error> {
        let keys = match periods {
            [_] => None,
            _ => Some(KeyList::of(periods.iter().flat_map(|(_, keys)| keys.iter().cloned()).collect())?),
        };
        let longest = periods.last().map_or(0, |(seconds, _)| *seconds);
        let periods = periods.iter().map(|(seconds, keys)| Ok((*seconds, KeyList::of(keys.clone())?)));
        Ok(Self { longest, keys, periods: periods.collect::<Result<_, bson::error::Error>>()? })
    }
}

impl PeriodKeys {
    /// Returns the periods that end, in seconds, with their keys, in ascending order.
    pub(crate) fn periods(&self) -> impl Iterator<Item = &(i64, KeyList)> {
        self.groups.iter().flat_map(|group| &group.periods)
    }

    /// Returns the number of keys with a period.
    pub(crate) fn count(&self) -> usize {
        self.all.count()
    }

    /// Returns the bytes that the keys add to a statement.
    pub(crate) fn bytes(&self) -> usize {
        let of_group = |group: &PeriodGroup| {
            group.keys.as_ref().map_or(0, KeyList::bytes) + group.periods.iter().map(|(_, keys)| keys.bytes()).sum::<usize>()
        };
        2 * self.all.bytes() + self.groups.iter().map(of_group).sum::<usize>()
    }

    /// Returns the condition for the documents of each period, by the path of their key. `None` stands for documents of which a
    /// key has no period.
    ///
    /// Errors: a key cannot be decoded.
    pub(crate) fn choices(&self, path: &str, held: &KeyList) -> Result<Vec<(Option<Period>, Document)>, bson::error::Error> {
        let name = CString::try_from(path.to_owned())?;
        let mut choices = vec![
            (Some(Period::Unclear), self.unclear.condition(path, "$in")?),
            (Some(Period::Never), held.condition(path, "$in")?),
        ];
        for (seconds, keys) in self.periods() {
            choices.push((Some(Period::Seconds(*seconds)), keys.condition(path, "$in")?));
        }
        let every_key = raw::written(0, |fields| write_every_key_has_one(fields, &name, &self.all))?;
        choices.push((None, doc! { "$nor": [Document::try_from(&*every_key)?] }));
        Ok(choices)
    }

    /// Returns the shortest time by which a document can expire, if the rule's own time is this one; `None` if none can.
    pub(crate) fn shortest(&self, own: Option<u32>) -> Option<i64> {
        self.periods().map(|(seconds, _)| *seconds).next().into_iter().chain(own.map(i64::from)).min()
    }
}

#[cfg(test)]
pub(in crate::core::plan) mod tests {
    use std::sync::Arc;

    use bson::RawDocumentBuf;

    use super::*;
    use crate::core::plan::findings::ReadKeys;
    use crate::testing::made_up::planned;

    const DAY: i64 = 86_400;

    fn read(document: Document, path: &str) -> Period {
        Period::read(&RawDocumentBuf::try_from(&document).unwrap(), path, DAY)
    }

    pub(in crate::core::plan::periods) fn keys(periods: impl IntoIterator<Item = (Bson, Period)>) -> Arc<KeptKeys> {
        let raw = |(key, period): (Bson, Period)| (RawValue::of(key).unwrap(), period);
        Arc::new(KeptKeys::of_periods(periods.into_iter().map(raw).collect()).unwrap())
    }

    #[test]
    fn only_a_whole_number_above_zero_is_a_period() {
        for (value, period) in [
            (Bson::from(3), Period::Seconds(3 * DAY)),
            (3_i64.into(), Period::Seconds(3 * DAY)),
            (3.0.into(), Period::Seconds(3 * DAY)),
            (i64::MAX.into(), Period::Seconds(i64::MAX)),
            ((-1).into(), Period::Never),
            ((-1.0).into(), Period::Never),
            (0.into(), Period::Unclear),
            ((-2).into(), Period::Unclear),
            (2.5.into(), Period::Unclear),
            (f64::INFINITY.into(), Period::Unclear),
            (1e300.into(), Period::Unclear),
            ("3".into(), Period::Unclear),
            (Bson::Null, Period::Unclear),
            (true.into(), Period::Unclear),
            (Bson::Decimal128("3".parse().unwrap()), Period::Unclear),
            (vec![3].into(), Period::Unclear),
        ] {
            assert_eq!(read(doc! { "set": { "days": value.clone() } }, "set.days"), period, "{value}");
        }
        for (document, period) in [
            (doc! {}, Period::Missing),
            (doc! { "set": {} }, Period::Missing),
            (doc! { "set": [{ "days": 3 }] }, Period::Unclear),
            (doc! { "set": 3 }, Period::Unclear),
            (doc! { "set": Bson::Null }, Period::Unclear),
        ] {
            assert_eq!(read(document.clone(), "set.days"), period, "{document}");
        }
    }

    #[test]
    fn documents_with_one_key_that_differ_are_unclear_whatever_type_the_number_has() {
        let found = keys([
            (1.into(), Period::Seconds(DAY)),
            (1.0.into(), Period::Seconds(2 * DAY)),
            (2.into(), Period::Seconds(DAY)),
            (2_i64.into(), Period::Seconds(DAY)),
            (3.into(), Period::Missing),
            (3.0.into(), Period::Never),
            (4.into(), Period::Missing),
        ]);
        let by_key = found.by_key();
        let of = |key: i32| by_key.of(RawValue::of(key).unwrap());
        assert_eq!(of(1), Some(Period::Unclear));
        assert_eq!(of(2), Some(Period::Seconds(DAY)));
        assert_eq!((of(3), of(4)), (Some(Period::Unclear), None));
        assert_eq!((found.held.count(), found.count()), (2, 3));
    }

    #[test]
    fn a_predicate_selects_by_the_shortest_time() {
        let rule = |own: &str| {
            let keys = format!("    periods: {{collection: app.tenants, key: k, value: d, unit: d}}\n{own}");
            planned(&keys, 4).decision.countable().unwrap().clone()
        };
        for (periods, shortest) in [
            (vec![Period::Seconds(600), Period::Seconds(DAY)], Some(600)),
            (vec![Period::Seconds(DAY), Period::Never], Some(3600)),
            (vec![], Some(3600)),
            (vec![Period::Seconds(i64::MAX)], Some(3600)),
        ] {
            let periods = keys(periods.into_iter().enumerate().map(|(n, period)| (Bson::from(n as i64), period)));
            let read = ReadKeys { periods: Some(periods), holds: None };
            let rule = rule("").with_keys(&read);
            assert_eq!(rule.expiry.expire_after_seconds.map(i64::from), shortest);
            assert_eq!(rule.selection.predicate, rule.expiry.predicate());
        }
        assert!(rule("").selection.unheld().unwrap_err().to_string().contains("the periods were not read"));
    }
}
