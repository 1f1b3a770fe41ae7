//! The condition in every command of a rule with periods: the documents that have expired by the period of their key.

use std::sync::Arc;

use bson::DateTime;
use bson::raw::{CStr, CString, RawDocumentBuf, cstr};

use super::{KeptKeys, PeriodKeys, PeriodRule};
use crate::base::values::raw::Fields;
use crate::core::plan::keys::{KeyList, no_array};

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
    /// Documents whose key never expires are left out.
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
    pub(in crate::core::plan) fn new(
        rule: &PeriodRule,
        path: &str,
        keys: Arc<KeptKeys>,
        until: Option<DateTime>,
    ) -> Result<Option<Self>, bson::error::Error> {
        let Some(periods) = &keys.periods else { return Ok(None) };
        let old = |seconds: i64| RawDocumentBuf::try_from(&rule.expiry.old_by(seconds));
        // A document of that age has expired by every shorter period.
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

    pub(in crate::core::plan) fn write(&self, fields: &mut Fields) {
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
    pub(in crate::core::plan) fn bytes(&self) -> usize {
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
pub(super) fn write_every_key_has_one(fields: &mut Fields, path: &CStr, all: &KeyList) {
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
    use bson::{Bson, Document, doc};

    use super::*;
    use crate::core::plan::findings::ReadKeys;
    use crate::core::plan::periods::Period;
    use crate::core::plan::periods::tests::keys;
    use crate::testing::made_up::planned;

    const DAY: i64 = 86_400;

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
}
