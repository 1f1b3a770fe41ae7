//! Findings of one pass over a collection: reads the groups of [`Expiry::classes`] and turns them into figures.

use std::collections::BTreeMap;

use bson::{Bson, DateTime, Document};
use chrono::Datelike;
use serde_json::Value;

use super::sample::canonical;
use super::{margin_percent, ranges};
use crate::base::instant::Instant;
use crate::base::values::integer;
use crate::core::audit::figures::{AuditReport, BacklogMonth, ForecastDay, Sampling};
use crate::core::expiry::Expiry;
use crate::core::expiry::classes::FORECAST_DAYS;
use crate::core::expiry::shape::{NUMBER_MILLIS, NUMBER_SECONDS, STRING, STRING_DATE};
use crate::core::policy::DateFormat;

/// `_id`s in the report for each reason at most.
pub(crate) const MAX_SAMPLES: usize = 5;

const DAY_MS: i64 = 86_400_000;

/// January 1970 as a key of [`Distribution::months`]. Seconds that were read as milliseconds end up in this month: the seconds of
/// the years 2001 to 2055 become 12 January to 1 February 1970.
const JANUARY_1970: i64 = 12 * 1970;

/// All documents that were looked at, each in one class.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Distribution {
    /// Expired documents and others, by the index of their age among [`ranges::bounds`].
    pub ages: Vec<(u64, u64)>,
    /// Expired documents by month: 12 * year + month - 1.
    pub months: BTreeMap<i64, u64>,
    /// Documents that expire on each of the 30 days after now.
    pub days: Vec<u64>,
    /// Documents that never expire, by reason; `number` stands for all kinds of numbers.
    pub never: BTreeMap<String, u64>,
    pub never_samples: BTreeMap<String, Vec<Value>>,
    /// The earliest date of any expired document.
    pub oldest: Option<DateTime>,
    /// The latest date of any expired document.
    pub newest: Option<DateTime>,
    /// Measurements in expired buckets.
    pub measurements: Option<u64>,
    /// Documents with a number that looks like seconds since 1970 under a rule that expects dates.
    pub number_seconds: u64,
    /// Documents with a number that looks like milliseconds since 1970 under a rule that expects dates.
    pub number_millis: u64,
    /// Documents with a string that reads as a date under a rule that expects dates.
    pub string_dates: u64,
    /// Documents that have not expired, with a date in the year 5138 or later.
    pub far: u64,
}

impl Distribution {
    /// Reads the document that the stage returns, or one for each part of a collection.
    pub(crate) fn read(expiry: &Expiry, found: &[Document]) -> Self {
        let mut all = Self { ages: vec![(0, 0); ranges::bounds().len() + 1], ..Self::default() };
        all.days = vec![0; FORECAST_DAYS as usize];
        // Like a dry run, an audit names these reasons even if no document has them.
        if expiry.ttl_field.is_some() {
            all.never.insert("ttlNotPositive".into(), 0);
        }
        if found.iter().any(|part| part.contains_key("wrongUnit")) {
            all.never.insert("implausibleEpoch".into(), 0);
        }
        if expiry.format == DateFormat::Iso8601 {
            all.never.insert(STRING.into(), 0);
        }
        for group in groups(found, "expired") {
            all.enter_expired(expiry, group);
        }
        for group in groups(found, "rest") {
            all.enter_rest(group);
        }
        for (facet, reason) in [("wrongUnit", "implausibleEpoch"), ("decimal", "decimal")] {
            groups(found, facet).for_each(|group| all.enter_never(reason, group));
        }
        all
    }

    fn enter_expired(&mut self, expiry: &Expiry, group: &Document) {
        let n = whole(group, "n");
        if let Some(range) = place(group).and_then(|place| self.ages.get_mut(place)) {
            range.0 += n;
        }
        if let Some(month) = group.get_document("_id").ok().and_then(month) {
            *self.months.entry(month).or_default() += n;
        }
        let instant = |key| group.get(key).and_then(|date| expiry.instant(date));
        self.oldest = [self.oldest, instant("oldest")].into_iter().flatten().min();
        self.newest = [self.newest, instant("newest")].into_iter().flatten().max();
        if group.contains_key("measurements") {
            *self.measurements.get_or_insert(0) += whole(group, "measurements");
        }
    }

    pub(crate) fn enter_rest(&mut self, group: &Document) {
        let n = whole(group, "n");
        let Ok(key) = group.get_document("_id") else { return };
        match key.get_str("r") {
            Ok(NUMBER_SECONDS) => {
                self.number_seconds += n;
                return self.enter_never("number", group);
            }
            Ok(NUMBER_MILLIS) => {
                self.number_millis += n;
                return self.enter_never("number", group);
            }
            Ok(STRING_DATE) => {
                self.string_dates += n;
                return self.enter_never(STRING, group);
            }
            Ok(reason) => return self.enter_never(reason, group),
            Err(_) => {}
        }
        if let Some(range) = place(group).and_then(|place| self.ages.get_mut(place)) {
            range.1 += n;
        }
        let day = key.get("d").and_then(integer).and_then(|day| usize::try_from(day - 1).ok());
        if let Some(day) = day.and_then(|day| self.days.get_mut(day)) {
            *day += n;
        }
        if key.get_bool("f").unwrap_or(false) {
            self.far += n;
        }
    }

    fn enter_never(&mut self, reason: &str, group: &Document) {
        *self.never.entry(reason.to_owned()).or_default() += whole(group, "n");
        let samples = self.never_samples.entry(reason.to_owned()).or_default();
        for id in ["first", "last", "least", "greatest"].into_iter().filter_map(|key| group.get(key)).map(canonical) {
            if samples.len() < MAX_SAMPLES && !samples.contains(&id) {
                samples.push(id);
            }
        }
    }

    /// Enters one document: its date, and the milliseconds that are left until it expires. `age_bounds` are those of
    /// [`ranges::bounds_ms`].
    pub(crate) fn enter_one(&mut self, expiry: &Expiry, age_bounds: &[i64], date: DateTime, left: i64) {
        let age = expiry.as_of.timestamp_millis().saturating_sub(date.timestamp_millis());
        let place = age_bounds.partition_point(|bound| *bound <= age);
        let range = &mut self.ages[place];
        if left > 0 {
            range.1 += 1;
            let day = usize::try_from((left - 1) / DAY_MS).ok();
            if let Some(day) = day.and_then(|day| self.days.get_mut(day)) {
                *day += 1;
            }
            return;
        }
        range.0 += 1;
        let month = match chrono::DateTime::from_timestamp_millis(date.timestamp_millis()) {
            Some(at) => 12 * i64::from(at.year().clamp(0, 9999)) + i64::from(at.month0()),
            None => 0,
        };
        *self.months.entry(month).or_default() += 1;
        self.oldest = self.oldest.into_iter().chain([date]).min();
        self.newest = self.newest.into_iter().chain([date]).max();
    }

    /// Returns the number of expired documents.
    pub(crate) fn expired(&self) -> u64 {
        self.ages.iter().map(|(expired, _)| expired).sum()
    }

    /// Returns the number of documents that expire later.
    pub(crate) fn not_expired(&self) -> u64 {
        self.ages.iter().map(|(_, not_expired)| not_expired).sum()
    }

    /// Returns the number of documents that never expire.
    pub(crate) fn never(&self) -> u64 {
        self.never.values().sum()
    }

    /// Returns the number of expired documents whose date is in January 1970.
    pub(crate) fn january_1970(&self) -> u64 {
        self.months.get(&JANUARY_1970).copied().unwrap_or(0)
    }

    /// Enters what was found into the figures. `sampled`: how many documents were drawn, and of how many; the counts are then
    /// projected.
    pub(crate) fn enter(&self, expiry: &Expiry, is_buckets: bool, sampled: Option<(u64, u64)>, audit: &mut AuditReport) {
        audit.sampling = sampled.map(|(documents, of)| Sampling { documents, of, margin_percent: margin_percent(documents) });
        let ages: Vec<(u64, u64)> =
            self.ages.iter().map(|(expired, not)| (projected(*expired, sampled), projected(*not, sampled))).collect();
        audit.age_histogram = Some(ranges::histogram(&ages));
        let day = |(day, n): (i64, &u64)| ForecastDay {
            from: Instant(DateTime::from_millis(expiry.as_of.timestamp_millis().saturating_add(day * DAY_MS))),
            count: projected(*n, sampled),
        };
        audit.forecast = Some((0..).zip(&self.days).map(day).collect());
        let month = |(month, n): (&i64, &u64)| BacklogMonth { month: month_name(*month), count: projected(*n, sampled) };
        audit.backlog = Some(self.months.iter().map(month).collect());
        // The latest date of a sample is not the latest of all.
        audit.newest_expired = self.newest.filter(|_| sampled.is_none()).map(Instant);
        if !is_buckets {
            audit.never_expires_samples = self.never_samples.clone();
        }
    }

    /// Returns the documents that never expire, by reason; projected if they are `sampled`.
    pub(crate) fn never_expires(&self, sampled: Option<(u64, u64)>) -> BTreeMap<String, u64> {
        self.never.iter().map(|(reason, n)| (reason.clone(), projected(*n, sampled))).collect()
    }
}

/// Returns a count of a sample, projected to the whole collection.
pub(crate) fn projected(n: u64, sampled: Option<(u64, u64)>) -> u64 {
    match sampled {
        Some((drawn, of)) => u64::try_from(u128::from(n) * u128::from(of) / u128::from(drawn.max(1))).unwrap_or(u64::MAX),
        None => n,
    }
}

fn groups<'a>(found: &'a [Document], facet: &'a str) -> impl Iterator<Item = &'a Document> {
    found.iter().filter_map(move |part| part.get_array(facet).ok()).flatten().filter_map(Bson::as_document)
}

/// Returns the index of a group's age among the bounds.
fn place(group: &Document) -> Option<usize> {
    usize::try_from(integer(group.get_document("_id").ok()?.get("a")?)?).ok()
}

fn whole(group: &Document, key: &str) -> u64 {
    group.get(key).and_then(integer).and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
}

/// Returns the month of a group. The DocumentDB engine calls the year before the year 1 -1 and not 0 (`date_part` of Postgres);
/// the first month of the year 0 stands for everything earlier.
fn month(key: &Document) -> Option<i64> {
    integer(key.get("m")?).map(|month| month.max(0))
}

fn month_name(month: i64) -> String {
    format!("{:04}-{:02}", month.div_euclid(12), month.rem_euclid(12) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_named() {
        assert_eq!([JANUARY_1970, 12 * 2026 + 11, 5].map(month_name), ["1970-01", "2026-12", "0000-06"]);
    }

    #[test]
    fn the_first_month_stands_for_all_before_it() {
        let months = [-12_i64, -1, 0, 5].map(|m| month(&bson::doc! { "m": m }));
        assert_eq!(months, [Some(0), Some(0), Some(0), Some(5)]);
    }
}
