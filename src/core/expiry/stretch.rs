//! A stretch of the dates of a rule: the whole rule, narrowed to one range of its field.
//!
//! The DocumentDB engine walks an index along every condition on its field. With a range and the rule side by side, the rule's
//! own bound, which is open on one side, walks all that has expired for every batch. Here the range takes the place of the bound.

use bson::raw::RawBsonRef;
use bson::{DateTime, Document, RawDocument, doc};

use super::Expiry;
use crate::base::values;
use crate::core::policy::DateFormat;

/// A range of dates of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stretch {
    /// The rule.
    expiry: Expiry,
    /// The first date; `None` for no bound.
    from: Option<DateTime>,
    /// The last date, never later than the latest that can have expired.
    to: DateTime,
}

impl Expiry {
    /// Returns the stretch of dates from `from` to `to`, both included, but to the latest date that can have expired at most.
    /// `None` if the range is empty, or the rule has no stretches: its dates are of another format. A dotted field has none
    /// either: an index of the DocumentDB engine holds more under it than the rule means, and a delete by `_id` does not ask that
    /// index.
    pub(crate) fn stretch(&self, from: Option<DateTime>, to: DateTime) -> Option<Stretch> {
        if self.format != DateFormat::Date || self.not_before_1970 || self.field.contains('.') {
            return None;
        }
        let to = to.min(self.latest());
        from.is_none_or(|from| from <= to).then(|| Stretch { expiry: self.clone(), from, to })
    }
}

impl Stretch {
    /// Returns the whole predicate of the rule with the range in place of its bound. The range implies the bound. A list of
    /// dates with an element at or before the last date of the range has an element at or before the latest that can have
    /// expired.
    pub(crate) fn predicate(&self) -> Document {
        let mut range = self.from.map(|from| doc! { "$gte": from }).unwrap_or_default();
        range.insert("$lte", self.to);
        self.expiry.predicate_with(doc! { &self.expiry.field: range })
    }

    /// Returns the part of the stretch from one of its dates to another, both included.
    pub(crate) fn part(&self, from: DateTime, to: DateTime) -> Self {
        let from = self.from.map_or(from, |first| first.max(from));
        Self { expiry: self.expiry.clone(), from: Some(from), to: self.to.min(to) }
    }

    /// Returns the last date.
    pub(crate) fn latest(&self) -> DateTime {
        self.to
    }

    /// Returns the field of the dates.
    pub(crate) fn field(&self) -> &str {
        &self.expiry.field
    }

    /// Whether a document belongs to an earlier stretch, by the earliest of several dates. A list with dates before and after the
    /// stretch matches its predicate as well.
    pub(crate) fn is_before(&self, document: &RawDocument) -> bool {
        let is_earlier = |item: RawBsonRef<'_>| item.as_datetime().is_some_and(|date| self.from.is_some_and(|from| date < from));
        match values::at_raw(document, self.field()) {
            Some(RawBsonRef::Array(items)) => items.into_iter().flatten().any(is_earlier),
            _ => false,
        }
    }

    /// Returns two stretches that together have the same dates; `None` if it has one date or no first one.
    pub(crate) fn halves(&self) -> Option<(Self, Self)> {
        let (first, last) = (self.from?.timestamp_millis(), self.to.timestamp_millis());
        let middle = first.midpoint(last);
        let part = |from, to| Self {
            expiry: self.expiry.clone(),
            from: Some(DateTime::from_millis(from)),
            to: DateTime::from_millis(to),
        };
        (first < last).then(|| (part(first, middle), part(middle + 1, last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: i64 = 1_000_000;

    fn rule() -> Expiry {
        Expiry {
            field: "at".into(),
            format: DateFormat::Date,
            expire_after_seconds: Some(60),
            ttl_field: None,
            not_before_1970: false,
            checks_path: false,
            filter: None,
            as_of: at(THRESHOLD + 60_000),
        }
    }

    fn at(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    #[test]
    fn no_stretch_is_later_than_the_threshold() {
        let stretch = |from: i64, to: i64| rule().stretch(Some(at(from)), at(to)).map(|stretch| stretch.predicate());
        assert_eq!(stretch(5, 7), Some(doc! { "at": { "$gte": at(5), "$lte": at(7) } }));
        assert_eq!(stretch(5, THRESHOLD + 1), Some(doc! { "at": { "$gte": at(5), "$lte": at(THRESHOLD) } }));
        assert_eq!((stretch(7, 5), stretch(THRESHOLD + 1, THRESHOLD + 2)), (None, None));
        let open = rule().stretch(None, DateTime::MAX).unwrap();
        assert_eq!((open.predicate(), open.halves()), (rule().predicate(), None));
    }

    #[test]
    fn a_ttl_of_its_own_decides_in_a_stretch_too() {
        let rule = Expiry { ttl_field: Some("ttl".into()), ..rule() };
        let mut all = rule.predicate();
        let mut stretch = rule.stretch(Some(at(5)), DateTime::MAX).unwrap().predicate();
        let first_of = |predicate: &mut Document| predicate.get_array_mut("$and").unwrap().remove(0);
        let latest = at(THRESHOLD + 59_000);
        assert_eq!(first_of(&mut stretch), doc! { "at": { "$gte": at(5), "$lte": latest } }.into());
        assert_eq!(first_of(&mut all), doc! { "at": { "$lte": latest } }.into());
        assert_eq!(stretch, all);
    }

    #[test]
    fn a_filter_decides_in_a_stretch_too() {
        let rule = Expiry { filter: Some(doc! { "kind": "x" }), ..rule() };
        let stretch = rule.stretch(Some(at(5)), at(7)).unwrap().predicate();
        assert_eq!(stretch, doc! { "$and": [{ "at": { "$gte": at(5), "$lte": at(7) } }, { "kind": "x" }] });
    }

    #[test]
    fn rules_that_more_than_dates_decide_have_no_stretches() {
        for rule in [
            Expiry { format: DateFormat::EpochMillis, ..rule() },
            Expiry { format: DateFormat::ObjectId, ..rule() },
            Expiry { format: DateFormat::Iso8601, ..rule() },
            Expiry { not_before_1970: true, ..rule() },
            Expiry { field: "a.b".into(), ..rule() },
        ] {
            assert_eq!(rule.stretch(None, at(5)), None, "{rule:?}");
        }
    }

    #[test]
    fn a_part_is_within_its_stretch() {
        let stretch = rule().stretch(Some(at(5)), at(9)).unwrap();
        for (from, to, expected) in [(6, 7, (6, 7)), (1, 7, (5, 7)), (6, 12, (6, 9))] {
            let within = doc! { "at": { "$gte": at(expected.0), "$lte": at(expected.1) } };
            assert_eq!(stretch.part(at(from), at(to)).predicate(), within, "{from} {to}");
        }
        let open = rule().stretch(None, at(9)).unwrap();
        assert_eq!(open.part(at(6), at(7)).predicate(), doc! { "at": { "$gte": at(6), "$lte": at(7) } });
    }

    #[test]
    fn a_list_belongs_to_the_stretch_of_its_earliest_date() {
        let stretch = rule().stretch(Some(at(5)), at(9)).unwrap();
        let open = rule().stretch(None, at(9)).unwrap();
        for (value, expected) in [
            (bson::Bson::from(vec![at(4), at(20)]), true),
            (vec![at(20), at(5)].into(), false),
            (vec![bson::Bson::from("x"), at(20).into(), at(4).into()].into(), true),
            (at(4).into(), false),
            (bson::Bson::Null, false),
        ] {
            let document = bson::RawDocumentBuf::try_from(&doc! { "at": value.clone() }).unwrap();
            assert_eq!((stretch.is_before(&document), open.is_before(&document)), (expected, false), "{value}");
        }
    }

    #[test]
    fn halves_have_the_same_dates() {
        let stretch = |from, to| Stretch { expiry: rule(), from: Some(at(from)), to: at(to) };
        assert_eq!(stretch(-3, 4).halves(), Some((stretch(-3, 0), stretch(1, 4))));
        assert_eq!(stretch(4, 5).halves(), Some((stretch(4, 4), stretch(5, 5))));
        assert_eq!(stretch(5, 5).halves(), None);
    }
}
