//! The class of each document of a collection, as facets of one aggregation: expired, due to expire on a certain day, or never
//! expiring for some reason.

use bson::{Bson, Document, doc};

use super::expression::{when, with};
use super::iso8601::{FIRST_MS, LAST_MS};
use super::{Expiry, earliest, shape, whole_int32};
use crate::core::policy::DateFormat;

/// Days of the forecast.
pub(crate) const FORECAST_DAYS: u32 = 30;

const DAY_MS: i64 = 86_400_000;

/// The instant (in the year 5138) from which on a date is more likely one whose milliseconds were mistaken for seconds.
const FAR_MS: i64 = 100_000_000_000_000;

impl Expiry {
    /// Returns the stages that show what decides on each document besides its periods: the key `k` at a path, the date `ms` in
    /// milliseconds, its own valid `ttl`, and the reason `r` why a document without a date never expires. A missing one is null.
    pub fn seen(&self, key: &str) -> Vec<Document> {
        vec![
            doc! { "$project": { "s": self.decides(doc! { "k": format!("${key}") }) } },
            doc! { "$project": { "k": "$s.k", "ttl": "$s.ttl", "r": "$s.r", "ms": { "$toLong": self.millis("$s.e") } } },
        ]
    }

    /// Returns the branches of a `$facet` that put each document selected by the filter into exactly one of up to four lists of
    /// groups.
    ///
    /// `expired`: those that [`Self::predicate`] selects; groups of `_id: {a, m}` with `n`, `oldest`, `newest` (as
    /// [`Self::instant`] reads them) and the sums of `sums`. `wrongUnit` and `decimal`: those that an epoch rule keeps for the
    /// magnitude or the type of a number. `rest`: all others; groups of `_id: {r, a, d, f}`.
    ///
    /// `a` is the position of the deciding date's age among `age_bounds` (milliseconds, ascending): the number of bounds at or
    /// below it. `m` is the month, 12 * year + month - 1. `r` is the reason why the documents never expire, or null. `d` is the
    /// day on which they expire, counted from 1 for the first day after now, or null if that is not within [`FORECAST_DAYS`]. `f`
    /// tells whether their date is in the year 5138 or later. Groups of documents that never expire have some of their `_id`s in
    /// `first`, `last`, `least` and `greatest`.
    pub fn classes(&self, filter: Option<&Document>, age_bounds: &[i64], sums: &Document) -> Document {
        let matching = |condition: Document| {
            let all: Vec<Document> = filter.cloned().into_iter().chain([condition]).collect();
            doc! { "$match": { "$and": all } }
        };
        let predicate = self.predicate();
        let mut kept = self.wrong_unit().unwrap_or_default();
        let decimal = doc! { &self.field: { "$type": "decimal" } };
        let mut facets = doc! { "expired": self.expired(age_bounds, sums) };
        if !kept.is_empty() {
            let group = grouped(Bson::Null, true.into());
            facets.insert("wrongUnit", vec![matching(doc! { "$or": kept.clone() }), group.clone()]);
            let others = matching(doc! { "$and": [&decimal, { "$nor": kept.clone() }] });
            facets.insert("decimal", vec![others, group]);
            kept.push(decimal);
        }
        kept.push(predicate);
        let mut rest = vec![matching(doc! { "$nor": kept })];
        rest.extend(self.rest(age_bounds));
        facets.insert("rest", rest);
        facets
    }

    /// Returns the stages that read some expired documents with the values of [`Self::deciding`].
    pub fn samples(&self, limit: i64) -> Vec<Document> {
        vec![doc! { "$match": self.predicate() }, doc! { "$limit": limit }, doc! { "$project": self.deciding() }]
    }

    /// Returns a projection of the values that decide whether a document has expired: `date` as [`Self::instant`] reads it, the
    /// number of `dates`, and the document's own valid `ttl` or null.
    pub fn deciding(&self) -> Document {
        let ttl = self.ttl_field.as_ref().map_or(Bson::Null, |field| whole_int32(format!("${field}").into()));
        doc! {
            "_id": 1,
            "date": self.earliest(),
            "dates": earliest::count(&self.field, self.format),
            // `$project` does not accept a bare null.
            "ttl": { "$ifNull": [ttl, Bson::Null] },
        }
    }

    fn expired(&self, age_bounds: &[i64], sums: &Document) -> Vec<Document> {
        let inside = doc! { "$max": [FIRST_MS, { "$min": [LAST_MS, "$ms"] }] };
        let mut dated = doc! { "e": self.earliest() };
        let mut group = doc! {
            "_id": { "a": place(&self.age(), age_bounds), "m": "$m" },
            "n": { "$sum": 1 },
            "oldest": { "$min": "$e" },
            "newest": { "$max": "$e" },
        };
        let mut months = doc! { "e": 1, "ms": 1 };
        for (name, value) in sums {
            dated.insert(name, value);
            months.insert(name, 1);
            group.insert(name, doc! { "$sum": format!("${name}") });
        }
        let mut with_ms = months.clone();
        with_ms.insert("ms", self.millis("$e"));
        months.insert(
            "m",
            with(
                "at",
                doc! { "$toDate": inside },
                doc! { "$add": [{ "$multiply": [12, { "$year": "$$at" }] }, { "$month": "$$at" }, -1] },
            ),
        );
        vec![
            doc! { "$match": self.predicate() },
            doc! { "$project": dated },
            doc! { "$project": with_ms },
            doc! { "$project": months },
            doc! { "$group": group },
        ]
    }

    /// Returns an expression for the date `e` of a document, its own valid `ttl`, the reason `r` why it has no date, and `more`.
    /// They are one value, so that no field of the document can collide with a name.
    fn decides(&self, more: Document) -> Bson {
        let ttl = self.ttl_field.as_ref().map_or(Bson::Null, |field| whole_int32(format!("${field}").into()));
        let undated = when(doc! { "$eq": ["$$e", Bson::Null] }, shape::shape(&self.field, self.format), Bson::Null);
        let mut decides = doc! { "e": "$$e", "ttl": ttl, "r": undated };
        decides.extend(more);
        with("e", self.earliest(), decides)
    }

    fn rest(&self, age_bounds: &[i64]) -> Vec<Document> {
        let default = self.expire_after_seconds.map_or(Bson::Null, |seconds| Bson::Int64(seconds.into()));
        let after = doc! { "$ifNull": ["$s.ttl", default] };
        let mut reasons = vec![doc! { "case": { "$ne": ["$s.r", Bson::Null] }, "then": "$s.r" }];
        if self.not_before_1970 {
            reasons.push(doc! { "case": { "$lt": ["$ms", 0] }, "then": "before1970" });
        }
        if self.ttl_field.is_some() {
            let none = doc! { "$eq": [&after, Bson::Null] };
            reasons.push(doc! { "case": none, "then": "noTtl" });
            reasons.push(doc! { "case": { "$eq": ["$s.ttl", -1] }, "then": "ttlNever" });
            // Null is below every number, but is not a ttl.
            let not_positive = doc! { "$and": [{ "$ne": ["$s.ttl", Bson::Null] }, { "$lte": ["$s.ttl", 0] }] };
            reasons.push(doc! { "case": not_positive, "then": "ttlNotPositive" });
        }
        let left = doc! { "$subtract": [
            { "$add": ["$ms", { "$multiply": [after, 1000] }] },
            self.as_of.timestamp_millis() as f64,
        ] };
        let within = doc! { "$and": [
            { "$eq": ["$r", Bson::Null] },
            { "$gt": ["$left", 0] },
            { "$lte": ["$left", i64::from(FORECAST_DAYS) * DAY_MS] },
        ] };
        let dated = |value: Bson| when(doc! { "$eq": ["$r", Bson::Null] }, value, Bson::Null);
        let key = doc! {
            "r": "$r",
            "a": dated(place(&self.age(), age_bounds)),
            "d": when(within, doc! { "$ceil": { "$divide": ["$left", DAY_MS] } }, Bson::Null),
            "f": dated(doc! { "$gte": ["$ms", FAR_MS] }.into()),
        };
        vec![
            doc! { "$project": { "s": self.decides(doc! {}) } },
            doc! { "$project": { "s": 1, "ms": self.millis("$s.e") } },
            doc! { "$project": { "ms": 1, "left": left, "r": { "$switch": { "branches": reasons, "default": Bson::Null } } } },
            grouped(key.into(), doc! { "$ne": ["$r", Bson::Null] }.into()),
        ]
    }

    /// Returns the age of a date in `$ms`, in milliseconds, as a double.
    fn age(&self) -> Document {
        doc! { "$subtract": [self.as_of.timestamp_millis() as f64, "$ms"] }
    }

    /// Returns a date of the format as milliseconds since 1970, a double; null for null. Dates more than 285,000 years away lose
    /// their last digits, which do not matter.
    fn millis(&self, date: &str) -> Document {
        match self.format {
            DateFormat::Date | DateFormat::EpochMillis | DateFormat::Iso8601 => doc! { "$toDouble": date },
            // Seconds with a fraction are whole milliseconds, except for the error of the multiplication.
            DateFormat::EpochSeconds => doc! { "$round": [{ "$multiply": [date, 1000.0] }, 2] },
            DateFormat::ObjectId => doc! { "$toDouble": { "$toDate": date } },
        }
    }
}

/// Returns a stage that counts documents by a key and, for documents for which `named` is true, collects some `_id`s.
fn grouped(key: Bson, named: Bson) -> Document {
    let id = when(named, "$_id", "$$REMOVE");
    doc! { "$group": {
        "_id": key,
        "n": { "$sum": 1 },
        "first": { "$first": &id },
        "last": { "$last": &id },
        "least": { "$min": &id },
        "greatest": { "$max": &id },
    } }
}

/// Returns an expression for the number of ascending bounds that are at or below the value, by binary search.
fn place(value: &Document, bounds: &[i64]) -> Bson {
    fn among(value: &str, bounds: &[i64], below: i32) -> Bson {
        if bounds.is_empty() {
            return below.into();
        }
        let middle = bounds.len() / 2;
        let at_or_above = below + i32::try_from(middle).unwrap_or(i32::MAX) + 1;
        when(
            doc! { "$gte": [value, bounds[middle]] },
            among(value, &bounds[middle + 1..], at_or_above),
            among(value, &bounds[..middle], below),
        )
    }
    with("age", value.clone(), among("$$age", bounds, 0))
}
