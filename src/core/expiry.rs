//! The complete predicate of a rule as one filter document, which selects the expired documents. Every delete and every count
//! carries it.

pub(crate) mod classes;
mod earliest;
pub(crate) mod expression;
mod iso8601;
pub(crate) mod shape;
pub(crate) mod stretch;
#[cfg(test)]
mod tests;

use bson::{Bson, DateTime, Document, doc};

use crate::base::values::last_object_id;
use crate::core::policy::DateFormat;
use expression::{is_type, when, with};

/// Magnitude that separates epoch seconds (below it) from epoch milliseconds: 10^11 ms is March 1973, 10^11 s is the year 5138.
const SECONDS_OR_MILLIS: i64 = 100_000_000_000;

/// The earliest instant of ECMAScript's dates, in milliseconds: an epoch number before it cannot be meant as a date.
const EARLIEST_MILLIS: i64 = -8_640_000_000_000_000;

/// Decides which documents of one collection have expired at `as_of`.
///
/// Date rules follow mongod's TTL monitor (`src/mongo/db/ttl`): any BSON Date expires that an index on `field` would hold and
/// that is at or before the threshold. Per-document rules follow Azure Cosmos DB's reading of `ttl`, with the date in `field` in
/// place of `_ts`.
#[derive(Debug, Clone, PartialEq)]
pub struct Expiry {
    pub field: String,
    pub format: DateFormat,
    /// `None` if only documents with a ttl of their own expire.
    pub expire_after_seconds: Option<u32>,
    pub ttl_field: Option<String>,
    /// Whether dates before 1970 are kept: servers from 6.1 do so for the `_id` of clustered collections.
    pub not_before_1970: bool,
    /// Whether the date is looked up by an expression as well, which no index serves. An index of the DocumentDB engine on
    /// `a.b` also holds a field whose name is literally `a.b`, which no rule means.
    pub checks_path: bool,
    /// A further predicate that has to hold as well.
    pub filter: Option<Document>,
    /// The instant at which the run judges expiry.
    pub as_of: DateTime,
}

impl Expiry {
    /// Returns the threshold of documents without a ttl of their own; `None` if those never expire.
    pub fn threshold(&self) -> Option<DateTime> {
        threshold(self.as_of, self.expire_after_seconds)
    }

    /// Returns the latest date that can have expired at all: with a `ttlField`, one second before now, which is the shortest ttl
    /// of a document.
    pub fn latest(&self) -> DateTime {
        let own = self.ttl_field.as_ref().map(|_| minus_seconds(self.as_of, 1));
        // A rule with neither expires nothing; the policy does not allow one.
        self.threshold().max(own).unwrap_or(DateTime::MIN)
    }

    /// Returns the latest date that can have expired, as a document holds it; `MinKey`, which no date equals, if none can.
    pub fn latest_key(&self) -> Bson {
        self.key(self.latest())
    }

    /// Returns an instant as a document holds it; `MinKey`, which no date equals, if the format has no such date, or documents
    /// hold it in many ways.
    fn key(&self, at: DateTime) -> Bson {
        match self.dated(at).get_document(&self.field).ok().and_then(|condition| condition.get("$lte")) {
            Some(key) => key.clone(),
            None => Bson::MinKey,
        }
    }

    /// Returns the whole predicate of the rule. A document matches if and only if it has expired and the rule's filter selects
    /// it.
    pub fn predicate(&self) -> Document {
        self.predicate_with(self.dated(self.latest()))
    }

    /// Returns the whole predicate with a condition on the date in place of the bound that [`Self::latest`] sets; it must imply
    /// that bound.
    fn predicate_with(&self, dated: Document) -> Document {
        let mut all = vec![dated];
        all.extend(self.at_path(self.latest()));
        all.extend(self.in_unit());
        if let Some(ttl_field) = &self.ttl_field {
            let own = doc! { ttl_field: { "$exists": true }, "$expr": self.own_ttl_expired(ttl_field) };
            all.push(match self.threshold() {
                Some(threshold) => {
                    let mut rest = doc! { ttl_field: { "$exists": false } };
                    rest.extend(self.dated_at_path(threshold));
                    doc! { "$or": [rest, own] }
                }
                None => own,
            });
        }
        all.extend(self.filter.clone());
        if all.len() == 1 {
            all.remove(0)
        } else {
            doc! { "$and": all }
        }
    }

    /// Returns a predicate for documents that would expire by their date, but are kept because their ttl is 0, or a negative
    /// number other than -1.
    ///
    /// `None` if the rule has no `ttlField`.
    pub fn ttl_not_positive(&self) -> Option<Document> {
        let ttl_field = self.ttl_field.as_ref()?;
        let ttl = Bson::from(format!("${ttl_field}"));
        let mut all = vec![self.dated(self.latest())];
        all.extend(self.at_path(self.latest()));
        all.extend(self.in_unit());
        // A null ttl compares below every number, so its type is checked as well.
        all.push(doc! { "$expr": with("ttl", whole_int32(ttl), doc! { "$and": [
            { "$ne": ["$$ttl", Bson::Null] },
            { "$lte": ["$$ttl", 0] },
            { "$ne": ["$$ttl", -1] },
        ] }) });
        all.extend(self.filter.clone());
        Some(doc! { "$and": all })
    }

    /// Returns a predicate for documents whose date lies before now and whose value in the ttl field does not count, because it
    /// is no whole number that fits int32. `None` if the rule has no `ttlField`.
    pub fn ttl_ignored(&self) -> Option<Document> {
        let ttl_field = self.ttl_field.as_ref()?;
        let value = whole_int32(Bson::from(format!("${ttl_field}")));
        let mut all = vec![self.dated(self.latest())];
        all.extend(self.at_path(self.latest()));
        all.extend(self.in_unit());
        all.push(doc! { ttl_field: { "$exists": true }, "$expr": { "$eq": [value, Bson::Null] } });
        all.extend(self.filter.clone());
        Some(doc! { "$and": all })
    }

    /// Returns a predicate for documents that are kept because their epoch number is in seconds although the rule says
    /// milliseconds, or the reverse. `None` if the rule's dates are not epoch numbers.
    pub fn implausible_epoch(&self) -> Option<Document> {
        let mut all = vec![doc! { "$or": self.wrong_unit()? }];
        all.extend(self.filter.clone());
        Some(doc! { "$and": all })
    }

    /// Returns a predicate for documents that are kept because their string is no date by RFC 3339 with `Z` or an offset. `None`
    /// if the rule's dates are not strings.
    pub fn unreadable_string(&self) -> Option<Document> {
        if self.format != DateFormat::Iso8601 {
            return None;
        }
        let undated = when(doc! { "$eq": [self.earliest(), Bson::Null] }, shape::shape(&self.field, self.format), Bson::Null);
        let mut all = vec![doc! { &self.field: { "$type": "string" }, "$expr": { "$eq": [undated, shape::STRING] } }];
        all.extend(self.filter.clone());
        Some(doc! { "$and": all })
    }

    /// Returns an aggregation expression for the earliest date of a document in the unit of the format, a BSON Date for strings;
    /// null if it has none.
    pub fn earliest(&self) -> Bson {
        earliest::earliest(&self.field, self.format, &[])
    }

    /// Returns the instant of a value of [`Self::earliest`]; `None` if it is not a date.
    pub fn instant(&self, earliest: &Bson) -> Option<DateTime> {
        let number = match earliest {
            Bson::DateTime(date) => return Some(*date),
            Bson::ObjectId(id) => return Some(id.timestamp()),
            Bson::Int32(n) => f64::from(*n),
            Bson::Int64(n) => *n as f64,
            Bson::Double(n) => *n,
            _ => return None,
        };
        let millis = if self.format == DateFormat::EpochSeconds { number * 1000.0 } else { number };
        // A cast from float saturates; NaN does not occur, because it never compares as expired.
        Some(DateTime::from_millis(millis.floor() as i64))
    }

    /// Returns `{field: at or before the instant}`, in the unit of the format. Matches those array elements that an index on the
    /// field would hold.
    ///
    /// Uses `$expr` only for strings: its comparisons are not bracketed by type, and would match documents without any date.
    fn dated(&self, at: DateTime) -> Document {
        let millis = at.timestamp_millis();
        let condition = match self.format {
            // Strings do not compare as their dates do.
            DateFormat::Iso8601 => return doc! { &self.field: { "$type": "string" }, "$expr": self.earliest_until(at) },
            DateFormat::Date if self.not_before_1970 => doc! { "$gte": DateTime::from_millis(0), "$lte": at },
            DateFormat::Date => doc! { "$lte": at },
            DateFormat::EpochMillis => doc! { "$lte": millis },
            DateFormat::EpochSeconds if millis % 1000 == 0 => doc! { "$lte": millis / 1000 },
            DateFormat::EpochSeconds => doc! { "$lte": millis as f64 / 1000.0 },
            DateFormat::ObjectId => match u32::try_from(millis.div_euclid(1000)) {
                Ok(seconds) => doc! { "$lte": last_object_id(seconds) },
                // Before 1970 no ObjectId was made; after 2106 none can be.
                Err(_) if millis < 0 => doc! { "$in": [] },
                Err(_) => doc! { "$lte": last_object_id(u32::MAX) },
            },
        };
        doc! { &self.field: condition }
    }

    /// Returns the condition for documents whose date is so many seconds old.
    pub(crate) fn old_by(&self, seconds: i64) -> Document {
        self.dated_at_path(minus_seconds(self.as_of, seconds))
    }

    /// Returns the condition that a date is at or before the instant, by an expression too where the rule checks the path.
    fn dated_at_path(&self, at: DateTime) -> Document {
        let mut dated = self.dated(at);
        dated.extend(self.at_path(at).unwrap_or_default());
        dated
    }

    /// Whether a date is compared as it is stored, and by nothing else.
    pub(crate) fn compares_dates(&self) -> bool {
        self.format == DateFormat::Date && !self.checks_path
    }

    /// Returns the age of a date in whole seconds, rounded down.
    pub(crate) fn age_in_seconds(&self, date: DateTime) -> i64 {
        self.as_of.timestamp_millis().saturating_sub(date.timestamp_millis()).div_euclid(1000)
    }

    /// Returns the condition for documents with a ttl of their own that counts and is above 0; `None` if the rule has no ttls.
    pub(crate) fn has_own_ttl(&self) -> Option<Document> {
        let ttl = whole_int32(Bson::from(format!("${}", self.ttl_field.as_ref()?)));
        Some(doc! { "$expr": { "$gt": [ttl, 0] } })
    }

    /// Returns the condition that the earliest date at the path, by an expression, is at or before the instant; `None` unless the
    /// rule checks the path.
    fn at_path(&self, at: DateTime) -> Option<Document> {
        // The condition on strings is an expression anyway.
        let adds_to_bound = self.checks_path && self.format != DateFormat::Iso8601;
        adds_to_bound.then(|| doc! { "$expr": self.earliest_until(self.key(at)) })
    }

    /// Returns an aggregation expression that tells whether the document has a date, and the earliest one is at or before the
    /// given one.
    fn earliest_until(&self, latest: impl Into<Bson>) -> Document {
        doc! { "$lte": [{ "$ifNull": [self.earliest(), Bson::MaxKey] }, latest.into()] }
    }

    /// Returns the condition that leaves out documents whose epoch number does not count; `None` if the rule's dates are not
    /// epoch numbers.
    fn in_unit(&self) -> Option<Document> {
        let mut none_of = self.wrong_unit()?;
        // A Decimal128 does not count as an epoch number, but would compare as one.
        none_of.push(doc! { &self.field: { "$type": "decimal" } });
        Some(doc! { "$nor": none_of })
    }

    /// Returns predicates for epoch numbers that cannot be meant in the rule's unit. One such element of an array is enough: if
    /// in doubt, a document is kept.
    fn wrong_unit(&self) -> Option<Vec<Document>> {
        let ranges: [&[(&str, i64)]; 2] = match self.format {
            DateFormat::EpochSeconds => [&[("$gte", SECONDS_OR_MILLIS)], &[("$lte", -SECONDS_OR_MILLIS)]],
            DateFormat::EpochMillis => [&[("$gt", -SECONDS_OR_MILLIS), ("$lt", SECONDS_OR_MILLIS)], &[("$lt", EARLIEST_MILLIS)]],
            DateFormat::Date | DateFormat::ObjectId | DateFormat::Iso8601 => return None,
        };
        // Two comparisons on one path may be met by different elements of an array; the expression requires one element that
        // meets both.
        let in_range = |range: &[(&str, i64)]| {
            let bounds: Document = range.iter().map(|(operator, bound)| ((*operator).to_owned(), Bson::from(*bound))).collect();
            let element = earliest::earliest(&self.field, self.format, range);
            doc! { &self.field: bounds, "$expr": { "$ne": [element, Bson::Null] } }
        };
        Some(ranges.into_iter().map(in_range).collect())
    }

    /// Returns an aggregation expression that tells whether a document with a value in its ttl field has expired. The expression
    /// fails on no value.
    fn own_ttl_expired(&self, ttl_field: &str) -> Bson {
        let default = self.expire_after_seconds.map_or(Bson::Null, |seconds| Bson::Int64(seconds.into()));
        let (now, per_second, earliest) = match self.format {
            DateFormat::Date | DateFormat::Iso8601 => (Bson::from(self.as_of), 1000, self.earliest()),
            DateFormat::EpochMillis => (Bson::from(self.as_of.timestamp_millis()), 1000, self.earliest()),
            DateFormat::EpochSeconds => (Bson::from(self.as_of.timestamp_millis() as f64 / 1000.0), 1, self.earliest()),
            DateFormat::ObjectId => (Bson::from(self.as_of), 1000, doc! { "$toDate": self.earliest() }.into()),
        };
        let after = doc! { "$switch": {
            "branches": [
                { "case": { "$eq": ["$$ttl", Bson::Null] }, "then": default },
                { "case": { "$gt": ["$$ttl", 0] }, "then": "$$ttl" },
            ],
            "default": Bson::Null,
        } };
        // On the right, null (the document never expires) is not above any date; on the left, it would be below all of them.
        let is_over = doc! { "$lte": [
            { "$ifNull": ["$$earliest", Bson::MaxKey] },
            { "$subtract": [now, { "$multiply": ["$$after", per_second] }] },
        ] };
        let ttl = whole_int32(Bson::from(format!("${ttl_field}")));
        with("ttl", ttl, with("earliest", earliest, with("after", after, is_over)))
    }
}

/// Returns the instant at or before which a date counts as expired; `None` without `expire_after_seconds`, because
/// documents then need a ttl of their own.
pub(crate) fn threshold(as_of: DateTime, expire_after_seconds: Option<u32>) -> Option<DateTime> {
    expire_after_seconds.map(|seconds| minus_seconds(as_of, seconds.into()))
}

fn minus_seconds(instant: DateTime, seconds: i64) -> DateTime {
    DateTime::from_millis(instant.timestamp_millis().saturating_sub(seconds.saturating_mul(1000)))
}

/// Returns an expression for the value if it is a whole number that fits int32 (int32, int64 or double), else null.
///
/// Source: Azure Cosmos DB for MongoDB, "Time to live": values of other types are stored but are not meaningful.
fn whole_int32(value: Bson) -> Bson {
    // The choices are nested because `$trunc` fails on a string, and only a branch that is not taken is certain not to be
    // evaluated. The most frequent type comes first.
    let fits = doc! { "$and": [
        { "$gte": [value.clone(), i32::MIN] },
        { "$lte": [value.clone(), i32::MAX] },
        { "$eq": [{ "$trunc": value.clone() }, value.clone()] },
    ] };
    let may_fit = doc! { "$or": [is_type(value.clone(), "long"), is_type(value.clone(), "double")] };
    let other = when(may_fit, when(fits, value.clone(), Bson::Null), Bson::Null);
    when(is_type(value.clone(), "int"), value, other)
}
