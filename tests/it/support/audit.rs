//! The expected figures of an audit, computed document by document from the documented tables.

use std::collections::{BTreeMap, BTreeSet};

use mongodb::bson::{Bson, DateTime, Document};
use serde_json::Value;

use super::reference::{self, Ttl};
use super::sweeper::{Case, Ran, Report, id_set};

const DAY: i128 = 86_400_000;

/// The state of a document under a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fate {
    Expired(DateTime),
    /// The date, and the instant at which the document expires.
    Later(DateTime, i128),
    Never(String),
}

/// Returns the fate of a document under a rule for dates; `default` is expireAfterSeconds, or `None` if that is -1.
pub(crate) fn fate(document: &Document, path: &str, with_ttl: bool, default: Option<i64>, as_of: DateTime) -> Fate {
    let Some(date) = reference::earliest(document, path) else { return Fate::Never(undated(document.get(path))) };
    let ttl = if with_ttl { reference::own_ttl(document.get("ttl")) } else { Ttl::Default };
    let seconds = match (ttl, default) {
        (Ttl::Never, _) => return Fate::Never("ttlNever".into()),
        (Ttl::Kept, _) => return Fate::Never("ttlNotPositive".into()),
        (Ttl::Seconds(seconds), _) | (Ttl::Default, Some(seconds)) => seconds,
        (Ttl::Default, None) => return Fate::Never("noTtl".into()),
    };
    let due = i128::from(date.timestamp_millis()) + i128::from(seconds) * 1000;
    let is_expired = reference::has_expired(Some(date), ttl, default, as_of);
    assert_eq!(is_expired, due <= i128::from(as_of.timestamp_millis()));
    if is_expired { Fate::Expired(date) } else { Fate::Later(date, due) }
}

/// Returns the reason why a value of a top-level field is not a date.
pub(crate) fn undated(value: Option<&Bson>) -> String {
    let word = match value {
        None => "missing",
        Some(Bson::Null | Bson::Undefined) => "null",
        Some(Bson::String(_)) => "string",
        Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_)) => "number",
        Some(Bson::Timestamp(_)) => "timestamp",
        Some(Bson::Array(items)) if items.is_empty() => "emptyArray",
        Some(Bson::Array(items)) if !items.iter().any(|item| item.as_array().is_some()) => "arrayWithoutDate",
        Some(_) => "otherType",
    };
    word.to_owned()
}

/// Runs `sweeper audit` and reads its JSON report.
pub(crate) async fn audit(case: &Case, rules: &str, args: &[&str]) -> Report {
    read(case.run(rules, &[&["audit", "--format", "json"], args].concat()).await)
}

/// Reads the JSON report of a run, which must be valid under the schema.
pub(crate) fn read(ran: Ran) -> Report {
    let schema = serde_json::from_str(&ttl_sweeper::core::report::json::schema::<ttl_sweeper::core::report::Report>())
        .expect("the schema is JSON");
    let schema = jsonschema::options().build(&schema).expect("the schema is a schema");
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let errors: Vec<String> = schema.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{}", ran.stdout);
    Report { json, ran }
}

/// Returns the warnings of a rule.
pub(crate) fn warnings(report: &Report, rule: usize) -> String {
    report.rule(rule, "warnings").to_string()
}

/// Adds up a count over the entries of a list.
pub(crate) fn sum(list: &Value, key: &str) -> u64 {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter().map(|entry| entry[key].as_u64().unwrap()).sum()
}

/// Adds up the values of `neverExpires`.
pub(crate) fn never(rule: &Value) -> u64 {
    rule["neverExpires"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
}

/// Compares a rule of a report with the fates of the documents, figure by figure.
pub(crate) fn assert_is_account_of(rule: &Value, fates: &BTreeMap<i32, Fate>, as_of: DateTime, names_reasons: bool) {
    let now = i128::from(as_of.timestamp_millis());
    let expired: Vec<DateTime> =
        fates.values().filter_map(|fate| if let Fate::Expired(date) = fate { Some(*date) } else { None }).collect();
    let later: Vec<(DateTime, i128)> =
        fates.values().filter_map(|fate| if let Fate::Later(date, due) = fate { Some((*date, *due)) } else { None }).collect();
    assert_eq!(rule["sampling"], Value::Null);
    assert_eq!(rule["expiredCount"], expired.len());

    let ages = rule["ageHistogram"].as_array().unwrap();
    let age = |date: &DateTime| now - i128::from(date.timestamp_millis());
    for range in ages {
        let bound = |key: &str| range[key].as_i64().map(|seconds| i128::from(seconds) * 1000);
        let (min, max) = (bound("minAgeSeconds"), bound("maxAgeSeconds"));
        let within = |date: &DateTime| min.is_none_or(|min| min <= age(date)) && max.is_none_or(|max| age(date) < max);
        assert_eq!(range["expiredCount"], expired.iter().filter(|date| within(date)).count(), "{range}");
        assert_eq!(range["notExpiredCount"], later.iter().filter(|(date, _)| within(date)).count(), "{range}");
    }
    assert_eq!(sum(&rule["ageHistogram"], "expiredCount"), expired.len() as u64);
    assert_eq!(sum(&rule["ageHistogram"], "notExpiredCount"), later.len() as u64);
    assert_eq!(expired.len() as u64 + later.len() as u64 + never(rule), fates.len() as u64);

    let forecast = rule["forecast"].as_array().unwrap();
    assert_eq!(forecast.len(), 30);
    for (k, day) in (0..).zip(forecast) {
        let (from, to) = (now + k * DAY, now + (k + 1) * DAY);
        assert_eq!(millis(&day["from"]), from);
        assert_eq!(day["count"], later.iter().filter(|(_, due)| from < *due && *due <= to).count(), "day {k}");
    }

    assert_eq!(sum(&rule["backlog"], "count"), expired.len() as u64);
    for month in rule["backlog"].as_array().unwrap() {
        let name = month["month"].as_str().unwrap();
        let is_in = |date: &&DateTime| match date.try_to_rfc3339_string() {
            Ok(text) => text.starts_with(name),
            Err(_) => name == "0000-01",
        };
        assert_eq!(month["count"], expired.iter().filter(is_in).count(), "{month}");
    }
    let newest = expired.iter().max();
    assert_eq!(
        rule["newestExpired"].as_str().map(|_| millis(&rule["newestExpired"])),
        newest.map(|date| i128::from(date.timestamp_millis()))
    );

    if names_reasons {
        let mut reasons: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (id, fate) in fates {
            if let Fate::Never(reason) = fate {
                reasons.entry(reason).or_default().extend(id_set([*id]));
            }
        }
        for (reason, n) in rule["neverExpires"].as_object().unwrap() {
            let ids = reasons.remove(reason.as_str()).unwrap_or_default();
            assert_eq!(n, ids.len(), "{reason}");
            let samples = rule["neverExpiresSamples"].get(reason).and_then(Value::as_array).cloned().unwrap_or_default();
            assert!(samples.len() <= 5 && samples.is_empty() == ids.is_empty(), "{reason}: {samples:?}");
            assert!(samples.iter().all(|id| ids.contains(&id.to_string())), "{reason}: {samples:?}");
        }
        assert!(reasons.is_empty(), "not reported: {reasons:?}");
    }

    let samples = rule["samples"].as_array().unwrap();
    assert_eq!(samples.len(), expired.len().min(10));
    for sample in samples {
        let id = sample["id"]["$numberInt"].as_str().unwrap().parse().unwrap();
        let Fate::Expired(date) = &fates[&id] else { panic!("{sample}: {:?}", fates[&id]) };
        assert_eq!(millis(&sample["date"]), i128::from(date.timestamp_millis()), "{sample}");
    }
}

/// Returns an instant of a report in milliseconds since 1970.
fn millis(instant: &Value) -> i128 {
    let text = instant.as_str().unwrap_or_else(|| panic!("no instant: {instant}"));
    match text.strip_suffix(" ms since 1970") {
        Some(number) => number.parse().expect("a number"),
        None => i128::from(DateTime::parse_rfc3339_str(text).expect("an instant").timestamp_millis()),
    }
}
