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

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bson::raw::{CStr, CString, RawDocumentBuf, cstr};
use bson::spec::ElementType;
use bson::{Bson, DateTime, Document, RawDocument, doc};

use super::judgement::PeriodWhy;
use super::keys::{KeyList, canonical, no_array};
use crate::base::values::raw::{self, Fields, RawValue};
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
    /// There is none: the rule's own time applies.
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
    /// Whether a document was found that has a value.
    pub has_values: bool,
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
        match (of_keys.contains(&None), self.expiry.expire_after_seconds, longest) {
            (true, None, _) | (false, None, None) => PeriodWhy::Missing,
            (true, Some(own), longest) if longest.is_none_or(|longest| longest <= i64::from(own)) => PeriodWhy::OfRule(own),
            (false, Some(own), None) => PeriodWhy::OfRule(own),
            (_, _, Some(longest)) => PeriodWhy::Period(longest),
            (true, Some(own), None) => PeriodWhy::OfRule(own),
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
        let (mut has_values, is_empty) = (false, read.is_empty());
        for (key, period) in read {
            has_values |= period != Period::Missing;
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
        let keys = PeriodKeys { groups, all: KeyList::of(all)?, unclear: KeyList::of(unclear)?, has_values, is_empty };
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

/// The condition for documents that have expired by the period of their key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PeriodCondition {
    /// Path of the key.
    path: CString,
    keys: Arc<KeptKeys>,
    /// The parts of the condition, each of which has to be met.
    clauses: Vec<Clause>,
    /// The condition for documents with a ttl of their own, for which no period counts; `None` if the rule has no ttls.
    own_ttl: Option<RawDocumentBuf>,
}

/// A part of the condition.
#[derive(Debug, Clone, PartialEq)]
enum Clause {
    /// The key is none of those that never expire.
    NeverHeld,
    /// The date is old enough for all periods of a group, or the key has none of them, or the date is old enough for the one that
    /// it has.
    Group { group: usize, old: RawDocumentBuf, periods: Vec<(usize, RawDocumentBuf)> },
    /// The date is old enough for one period, or the key does not have it.
    One { group: usize, old: RawDocumentBuf },
    /// The date is old enough for the rule's own time, or every key has a period. `None`: no date is.
    Own(Option<RawDocumentBuf>),
}

impl PeriodCondition {
    /// Creates the condition; `None` if all documents that the rule's predicate selects have expired. `until` is the date that no
    /// document of a command exceeds, by a condition of its own.
    ///
    /// Errors: BSON cannot hold a part of it.
    pub(super) fn new(
        rule: &PeriodRule,
        path: &str,
        keys: Arc<KeptKeys>,
        until: Option<DateTime>,
    ) -> Result<Option<Self>, bson::error::Error> {
        let Some(periods) = &keys.periods else { return Ok(None) };
        let old = |seconds: i64| RawDocumentBuf::try_from(&rule.expiry.old_by(seconds));
        // What is that old has expired by shorter periods as well.
        let age = until.filter(|_| rule.expiry.compares_dates()).map(|until| rule.expiry.age_in_seconds(until));
        let shortest = rule.shortest.into_iter().chain(age).max();
        let is_longer = |seconds: i64| shortest.is_none_or(|shortest| seconds > shortest);
        let mut clauses = Vec::new();
        if keys.held.count() > 0 {
            clauses.push(Clause::NeverHeld);
        }
        for (number, group) in periods.groups.iter().enumerate().filter(|(_, group)| is_longer(group.longest)) {
            let old_by_all = old(group.longest)?;
            clauses.push(match &group.keys {
                None => Clause::One { group: number, old: old_by_all },
                Some(_) => {
                    let longer = group.periods.iter().enumerate().filter(|(_, (seconds, _))| is_longer(*seconds));
                    let each = longer.map(|(place, (seconds, _))| Ok((place, old(*seconds)?)));
                    let periods = each.collect::<Result<_, bson::error::Error>>()?;
                    Clause::Group { group: number, old: old_by_all, periods }
                }
            });
        }
        match rule.expiry.expire_after_seconds.map(i64::from) {
            None => clauses.push(Clause::Own(None)),
            Some(own) if is_longer(own) => clauses.push(Clause::Own(Some(old(own)?))),
            Some(_) => {}
        }
        let own_ttl = rule.expiry.has_own_ttl().as_ref().map(RawDocumentBuf::try_from).transpose()?;
        let path = CString::try_from(path.to_owned())?;
        Ok((!clauses.is_empty()).then_some(Self { path, keys, clauses, own_ttl }))
    }

    pub(super) fn write(&self, fields: &mut Fields) {
        match &self.own_ttl {
            Some(own_ttl) => fields.documents(cstr!("$or"), 2, |choice, n| match n {
                0 => choice.all_of(own_ttl),
                _ => self.write_clauses(choice),
            }),
            None => self.write_clauses(fields),
        }
    }

    fn write_clauses(&self, fields: &mut Fields) {
        fields.documents(cstr!("$and"), self.clauses.len(), |clause, n| self.write_clause(clause, &self.clauses[n]));
    }

    fn write_clause(&self, fields: &mut Fields, clause: &Clause) {
        let none_of = |fields: &mut Fields, keys: &KeyList| {
            fields.document(&self.path, |condition| condition.value(cstr!("$nin"), &keys.list));
        };
        let Some(PeriodKeys { groups, all, .. }) = &self.keys.periods else { return };
        match clause {
            Clause::NeverHeld => none_of(fields, &self.keys.held),
            Clause::One { group, old } => fields.documents(cstr!("$or"), 2, |choice, n| match n {
                0 => choice.all_of(old),
                _ => none_of(choice, &groups[*group].periods[0].1),
            }),
            // A server evaluates a `$nor` after the comparison of a date, wherever it stands, and an `$and` before it. Most
            // documents are older than all periods of a group.
            Clause::Group { group, old, periods } => {
                fields.documents(cstr!("$or"), 3, |choice, n| match (n, &groups[*group].keys) {
                    (0, _) => choice.all_of(old),
                    (1, Some(keys)) => none_of(choice, keys),
                    _ => choice.documents(cstr!("$nor"), periods.len(), |young, n| {
                        let (place, old) = &periods[n];
                        let keys = &groups[*group].periods[*place].1;
                        young.document(&self.path, |condition| condition.value(cstr!("$in"), &keys.list));
                        young.documents(cstr!("$nor"), 1, |not, _| not.all_of(old));
                    }),
                })
            }
            Clause::Own(old) => {
                let count = 1 + usize::from(old.is_some());
                fields.documents(cstr!("$or"), count, |choice, n| match (n, old) {
                    (0, Some(old)) => choice.all_of(old),
                    _ => write_every_key_has_one(choice, &self.path, all),
                });
            }
        }
    }

    /// Returns the bytes of the condition, rounded up.
    pub(super) fn bytes(&self) -> usize {
        let of_keys = self.keys.bytes();
        let parts: usize = self.keys.periods.as_ref().map_or(0, |keys| keys.periods().count());
        let of_one = self.clauses.iter().map(|clause| match clause {
            Clause::One { old, .. } | Clause::Group { old, .. } | Clause::Own(Some(old)) => old.as_bytes().len(),
            Clause::NeverHeld | Clause::Own(None) => 0,
        });
        let around = AROUND_PERIOD + self.path.as_str().len() + of_one.max().unwrap_or(0);
        let of_ttl = self.own_ttl.as_ref().map_or(0, |own_ttl| own_ttl.as_bytes().len());
        of_keys + of_ttl + (2 * parts + 4) * around
    }
}

/// Writes the condition that a document has a key, and each of its keys is one of a list. A list before the end of the path
/// counts as one with a key that is not.
fn write_every_key_has_one(fields: &mut Fields, path: &CStr, all: &KeyList) {
    if let Some((before, _)) = path.as_str().rsplit_once('.') {
        // Paths come from the policy, and BSON can hold them.
        fields.all_of(&RawDocumentBuf::try_from(&no_array(before)).unwrap_or_default());
    }
    fields.document(path, |condition| {
        condition.value(cstr!("$in"), &all.list);
        condition.document(cstr!("$not"), |not| {
            not.document(cstr!("$elemMatch"), |element| element.value(cstr!("$nin"), &all.list));
        });
    });
}

/// Bytes around the keys of a period besides the path and the condition on the date.
const AROUND_PERIOD: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::plan::findings::ReadKeys;
    use crate::testing::made_up::planned;

    const DAY: i64 = 86_400;

    fn read(document: Document, path: &str) -> Period {
        Period::read(&RawDocumentBuf::try_from(&document).unwrap(), path, DAY)
    }

    fn keys(periods: impl IntoIterator<Item = (Bson, Period)>) -> Arc<KeptKeys> {
        let raw = |(key, period): (Bson, Period)| (RawValue::of(key).unwrap(), period);
        Arc::new(KeptKeys::of_periods(periods.into_iter().map(raw).collect()).unwrap())
    }

    /// Returns the condition of a rule that lets documents live for an hour without a period.
    fn condition(keys: &Arc<KeptKeys>, ttl: Option<&str>, until: Option<i64>) -> Option<Document> {
        let keys_of_rule = "    periods: {collection: app.tenants, key: {of: t.k, in: _id}, value: d, unit: d}\n";
        let mut rule = planned(keys_of_rule, 4).decision.countable().unwrap().clone();
        let periods = rule.selection.periods.as_mut().and_then(|held| held.periods.as_mut()).unwrap();
        periods.expiry.ttl_field = ttl.map(str::to_owned);
        let read = ReadKeys { periods: Some(keys.clone()), holds: None };
        let rule = rule.with_keys(&read);
        let as_of = rule.expiry.as_of.timestamp_millis();
        let until = until.map(|age| DateTime::from_millis(as_of - age));
        let condition = rule.selection.unheld_until(until).unwrap();
        condition.map(|condition| Document::try_from(&*condition.document().unwrap()).unwrap())
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
    fn the_condition_has_a_part_for_each_time_that_is_longer_than_what_is_selected() {
        let found = keys([
            ("a".into(), Period::Seconds(600)),
            ("b".into(), Period::Seconds(2 * DAY)),
            ("n".into(), Period::Never),
            ("u".into(), Period::Unclear),
        ]);
        let as_of = planned("", 4).decision.countable().unwrap().expiry.as_of.timestamp_millis();
        let old = |seconds: i64| doc! { "at": { "$lte": DateTime::from_millis(as_of - seconds * 1000) } };
        let all = ["a", "b", "n", "u"];
        let every =
            doc! { "t": { "$not": { "$type": "array" } }, "t.k": { "$in": all, "$not": { "$elemMatch": { "$nin": all } } } };
        let never = doc! { "t.k": { "$nin": ["n", "u"] } };
        let longer = doc! { "$or": [old(2 * DAY), { "t.k": { "$nin": ["b"] } }] };
        let own = doc! { "$or": [old(3600), every] };
        assert_eq!(condition(&found, None, None), Some(doc! { "$and": [&never, &longer, &own] }));
        // Of documents that are old enough for the rule's own time, and for all.
        assert_eq!(condition(&found, None, Some(3_600_000)), Some(doc! { "$and": [&never, &longer] }));
        assert_eq!(condition(&found, None, Some(3_599_999)), Some(doc! { "$and": [&never, &longer, &own] }));
        assert_eq!(condition(&found, None, Some(2 * DAY * 1000)), Some(doc! { "$and": [&never] }));
        assert_eq!(condition(&keys([("a".into(), Period::Seconds(3600))]), None, None), None);
        let with_ttl = condition(&found, Some("ttl"), None).unwrap();
        let choices = with_ttl.get_array("$or").unwrap();
        assert_eq!((choices.len(), choices[1].as_document().unwrap()), (2, &doc! { "$and": [never, longer, own] }));
    }

    #[test]
    fn many_periods_are_looked_at_in_groups() {
        let found = keys((1..=20_i32).map(|n| (Bson::from(n), Period::Seconds(i64::from(n) * DAY))));
        let condition = condition(&found, None, None).unwrap();
        let clauses = condition.get_array("$and").unwrap();
        // Five groups of four. Without a period documents go first.
        assert_eq!(clauses.len(), 5);
        let first = clauses[0].as_document().unwrap().get_array("$or").unwrap();
        assert_eq!(first[1].as_document().unwrap(), &doc! { "t.k": { "$nin": [1_i64, 2_i64, 3_i64, 4_i64] } });
        let each = first[2].as_document().unwrap().get_array("$nor").unwrap();
        assert_eq!(each.len(), 4);
        assert!(found.bytes() < 3 * found.periods.as_ref().unwrap().all.bytes() + 400);
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
