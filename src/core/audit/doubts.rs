//! Warnings about suspicious dates: wrong unit, wrong type, far future, January 1970.

use super::distribution::Distribution;
use crate::base::text::plural;
use crate::core::expiry::Expiry;
use crate::core::expiry::shape::STRING;
use crate::core::policy::DateFormat;

/// Returns warnings about suspicious dates. `sampled`: the counts come from a sample. `is_told`: the look for the fields that the
/// policy names has warned that there is no date.
pub(crate) fn doubts(expiry: &Expiry, found: &Distribution, sampled: bool, is_told: bool) -> Vec<String> {
    let field = &expiry.field;
    let of_sample = if sampled { " of the sample" } else { "" };
    let documents = |n: u64| format!("{}{of_sample}", plural(n, "document"));
    let mut doubts = Vec::new();
    let never = |reason: &str| found.never.get(reason).copied().unwrap_or(0);
    let dated = found.expired()
        + found.not_expired()
        + ["ttlNever", "ttlNotPositive", "noTtl", "before1970"].map(never).iter().sum::<u64>();
    let all = found.expired() + found.not_expired() + found.never();
    // A field that is missing everywhere has been warned of by the look for the fields that the policy names.
    if dated == 0 && never("missing") < all && !is_told {
        let seen: Vec<String> = found.never.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| format!("{reason} {n}")).collect();
        doubts.push(format!("no document{of_sample} has a date in `{field}` ({}): nothing ever expires", seen.join(", ")));
    }
    for (n, unit, format) in
        [(found.number_seconds, "seconds", "epochSeconds"), (found.number_millis, "milliseconds", "epochMillis")]
    {
        if n > 0 {
            doubts.push(format!(
                "{} with a number in `{field}` that looks like epoch {unit} and never expires by this rule; `dateFormat: {format}` is for them",
                documents(n)
            ));
        }
    }
    if found.string_dates > 0 {
        doubts.push(format!(
            "{} with a date in `{field}` that is written as a string, and never expires by this rule; `dateFormat: iso8601` is for those by RFC 3339 with `Z` or an offset",
            documents(found.string_dates)
        ));
    }
    let unreadable = never(STRING);
    if unreadable > 0 && expiry.format == DateFormat::Iso8601 {
        doubts.push(format!(
            "{} with a string in `{field}` that is no date by RFC 3339 with `Z` or an offset, and is kept",
            documents(unreadable)
        ));
    }
    let wrong_unit = never("implausibleEpoch");
    if wrong_unit > 0 {
        let (is, meant, other) = match expiry.format {
            DateFormat::EpochSeconds => ("milliseconds", "seconds", "epochMillis"),
            _ => ("seconds", "milliseconds", "epochSeconds"),
        };
        doubts.push(format!(
            "{} with a number in `{field}` that looks like {is} where the rule says {meant}, and is kept; is `dateFormat: {other}` meant?",
            documents(wrong_unit)
        ));
    }
    let of_dates = never("date");
    if of_dates > 0 {
        doubts.push(format!(
            "{} with a BSON date in `{field}`, which `dateFormat` does not read; a rule without it is for them",
            documents(of_dates)
        ));
    }
    if found.january_1970() > 0 && expiry.format == DateFormat::Date {
        doubts.push(format!(
            "{} with a date in January 1970 would be deleted: seconds stored where milliseconds are meant look like this, and so does 0",
            documents(found.january_1970())
        ));
    }
    // Nothing is mistaken for a unit in a string.
    let far = if expiry.format == DateFormat::Iso8601 { 0 } else { found.far };
    if far > 0 {
        doubts.push(format!(
            "{} with a date in the year 5138 or later: milliseconds stored where seconds are meant look like this",
            documents(far)
        ));
    }
    let in_ten_years = found.ages.first().map_or(0, |(_, not_expired)| not_expired.saturating_sub(far));
    if in_ten_years > 0 {
        doubts.push(format!("{} with a date more than ten years ahead", documents(in_ten_years)));
    }
    doubts
}
